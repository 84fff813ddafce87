#!/bin/sh
# SPDX-License-Identifier: MIT
# spills.sh FOLDER ARCHITECTURE...: the compiler's account of every kernel of the library was kept (src/cuda/report.sh); those
# of aligned rows must be there for each architecture, and keep everything in registers. The general ones may spill.
# RMSNORM_LEAST_KERNELS: fewer than this many are an error (100).
folder=$1
shift
reports=$(find "$folder" -name '*.ptxas')
[ -n "$reports" ] || { echo "no reports under $folder"; exit 1; }
for architecture in "$@"; do
  # shellcheck disable=SC2086
  awk -v architecture="sm_$architecture" -v least="${RMSNORM_LEAST_KERNELS:-100}" '
    /Compiling entry function/ { split($0, part, "\x27"); name = part[2]; here = index($0, architecture) > 0 }
    /bytes spill stores/ && here {
      if (name ~ /(forward|backward)_(warp|block|cluster|samples|own|pieces|flat)_kernel|finish_kernel/) { count++; if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/) { print name ": " $0; bad++ } }
    }
    END {
      printf "%s: %d kernels, %d with spills\n", architecture, count, bad
      exit bad > 0 || count < least
    }' $reports || failed=1
done
exit ${failed:-0}
