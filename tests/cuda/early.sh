#!/bin/sh
# SPDX-License-Identifier: MIT
# early.sh FOLDER [TYPE...]: kernels that may start before the one ahead of them has ended (src/cuda/start.cuh) touch nothing before
# they wait, let the next one start after that, and read nothing through the cache for data that no kernel writes. Looks at
# the PTX for sm_90 and later, which the objects of tested builds hold as text. Kernels of the types are drafts and left out.
#
# finish_kernel goes through its code once before it waits, with its loads and stores switched off, and follows kernels that
# have waited: it is held to the rest.
folder=$1
shift
objects=$(find "$folder" -name '*.cu.o')
for type; do objects=$(printf '%s\n' "$objects" | grep -v "_$type[_.]"); done
[ -n "$objects" ] || { echo "no objects under $folder"; exit 1; }
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
# shellcheck disable=SC2086 # a list
strings -n 4 $objects >"$lines" || exit 1
awk '
  function close_kernel() {
    if (name == "") return
    kernels++
    if (waits) {
      early++
      if (nc) { print name ": ld.global.nc"; bad++ }
      if (before && name !~ /finish_kernel/) { print name ": touches memory before it waits: " before; bad++ }
      if (lets_first && name !~ /finish_kernel/) { print name ": lets the next kernel start before it waits"; bad++ }
    } else if (name ~ /(forward|backward)_(warp|block|cluster|samples|own|pieces|flat)_kernel|finish_kernel/) {
      print name ": does not wait"; bad++
    }
  }
  /^\.target/ { close_kernel(); name = ""; here = /sm_(9|1[0-9])[0-9]/; if (here) found++ }
  !here { next }
  /\.entry/ {
    close_kernel()
    name = $0; sub(/.*\.entry */, "", name); sub(/\(.*/, "", name)
    waits = nc = lets_first = 0; before = ""
    next
  }
  /griddepcontrol\.wait/ { waits = 1; next }
  /griddepcontrol\.launch_dependents/ { if (!waits) lets_first = 1; next }
  /ld\.global[a-zA-Z0-9_:.]*\.nc/ { nc = 1 }
  !/[^a-z](ld|st|atom|red|cp)\./ || /(ld|st)\.(param|shared|local|const)/ { next }
  !/cp\.async\.bulk\.prefetch/ && !/cp\.async\.(commit|wait)/ { if (!waits && before == "") before = $0 }
  END {
    close_kernel()
    if (!found) { print "skipped: no PTX for sm_90 or later"; exit 77 }
    printf "%d kernels, of which %d may start early, %d mistakes\n", kernels, early, bad
    exit bad > 0 || early < 100
  }' "$lines"
