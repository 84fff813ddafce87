#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles one file (report.sh OBJECT COMMAND...) and keeps what the tests of the compiled code look at beside the object:
# ptxas' account of registers and spills (OBJECT.ptxas, tests/cuda/spills.sh), and of the PTX of each architecture the names
# of the kernels, their accesses to memory and their waits, in order (OBJECT.ARCHITECTURE.order, tests/cuda/early.sh).
object=$1
shift
kept=$object.kept
rm -rf "$kept" "$object".*.order
mkdir -p "$kept"
"$@" -keep -keep-dir "$kept" 2>"$object.ptxas"
code=$?
if [ $code -eq 0 ] && [ -z "$(find "$kept" -name '*.ptx')" ]; then # a compiler cache had the object, and only that
  CCACHE_DISABLE=1 "$@" -keep -keep-dir "$kept" 2>"$object.ptxas"
  code=$?
fi
for ptx in "$kept"/*.ptx; do
  [ -e "$ptx" ] || continue
  architecture=$(sed -n 's/^\.target *\(sm_[0-9]*\).*/\1/p' "$ptx")
  grep -E '\.entry|griddepcontrol|[^a-z](ld|st|atom|red|cp)\.' "$ptx" | grep -v -E '(ld|st)\.(param|shared|local|const)' \
    >"$object.$architecture.order"
done
rm -rf "$kept"
grep -v -E '^ptxas info|bytes stack frame|^$' "$object.ptxas" >&2
exit $code
