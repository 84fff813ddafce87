#!/bin/sh
# SPDX-License-Identifier: MIT
# early.sh FOLDER: kernels that may start before the one ahead of them has ended (src/cuda/start.cuh) touch nothing before
# they wait, let the next one start after that, and read nothing through the cache for data that no kernel writes. Looks at
# what src/cuda/report.sh kept of the PTX for sm_90 and later.
#
# finish_kernel goes through its code once before it waits, with its loads and stores switched off, and follows kernels that
# have waited: it is held to the rest.
orders=$(find "$1" -name '*.order' | grep -E '\.sm_(9|1[0-9])[0-9]' )
[ -n "$orders" ] || { echo "skipped: no code for sm_90 or later under $1"; exit 77; }
# shellcheck disable=SC2086
awk '
  function close_kernel() {
    if (name == "") return
    kernels++
    if (waits) {
      early++
      if (nc) { print name ": ld.global.nc"; bad++ }
      if (before && name !~ /finish_kernel/) { print name ": touches memory before it waits: " before; bad++ }
      if (lets_first && name !~ /finish_kernel/) { print name ": lets the next kernel start before it waits"; bad++ }
    } else if (name ~ /(forward|backward)_(warp|block|cluster)_kernel|finish_kernel/) {
      print name ": does not wait"; bad++
    }
  }
  FNR == 1 { close_kernel(); name = "" }
  /\.entry/ {
    close_kernel()
    name = $0; sub(/.*\.entry */, "", name); sub(/\(.*/, "", name)
    waits = nc = lets_first = 0; before = ""
    next
  }
  /griddepcontrol\.wait/ { waits = 1; next }
  /griddepcontrol\.launch_dependents/ { if (!waits) lets_first = 1; next }
  /ld\.global[a-zA-Z0-9_:.]*\.nc/ { nc = 1 }
  !/cp\.async\.bulk\.prefetch/ && !/cp\.async\.(commit|wait)/ { if (!waits && before == "") before = $0 }
  END {
    close_kernel()
    printf "%d kernels, of which %d may start early, %d mistakes\n", kernels, early, bad
    exit bad > 0 || early < 100
  }' $orders
