#!/bin/sh
# SPDX-License-Identifier: MIT
# Every C unit has the options that keep the arithmetic (cmake/arithmetic.cmake), the project adds none behind them that
# breaks it, and the units that run before the CPU is known get no more than the baseline from the project. What stands in
# front of those options comes from outside and has no effect: arithmetic.sh. usage: flags.sh compile_commands.json SOURCE_DIR
set -eu
commands=$1 source=$2
status=0
fail() { echo "$*" >&2; status=1; }

[ -s "$commands" ] || { echo "$commands is missing" >&2; exit 1; }
tmp=$(mktemp)
trap 'rm "$tmp"' EXIT
# every C unit of the library and of what checks it
grep '"command":' "$commands" | grep -E "$source/(src|verify|cli|lab|tests)/[^ ]*\.c\"" | grep -vE '\.(cpp|cu)' > "$tmp"
count=$(wc -l < "$tmp")
[ "$count" -gt 10 ] || fail "only $count compile commands"

for option in -fno-fast-math -ffp-contract=off -fno-finite-math-only -fno-lto; do
  bad=$(grep -vc -- " $option " "$tmp" || true)
  [ "$bad" = 0 ] || fail "$bad units are compiled without $option"
done
sed -i 's/.* -fno-fast-math //' "$tmp" # what the project adds
if grep -E -- '-Ofast|-ffast-math|-funsafe-math|-fassociative-math|-freciprocal-math|-ffinite-math|-march=|-flto|-ffp-contract=[^o]' "$tmp"; then
  fail "a flag above changes results or code placement"
fi
if grep "$source/src/core/" "$tmp" | grep -E -- ' -m(avx|fma|f16c|arch)'; then
  fail "a unit of src/core is compiled for more than the baseline"
fi
if grep -rnE '#pragma *(GCC|clang) *(optimize|fp)|FP_CONTRACT *ON' "$source/src"; then
  fail "the sources above switch the numerics"
fi
[ $status = 0 ] && echo "$count compile commands, none of them dangerous"
exit $status
