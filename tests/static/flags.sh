#!/bin/sh
# SPDX-License-Identifier: MIT
# The compiler is never told to break the numerics, always told not to contract, and the units that run before the CPU is
# known are built for the baseline. usage: flags.sh compile_commands.json SOURCE_DIR
set -eu
commands=$1 source=$2
status=0
fail() { echo "$*" >&2; status=1; }

[ -s "$commands" ] || { echo "$commands is missing" >&2; exit 1; }
count=$(grep -c '"command":' "$commands")
[ "$count" -gt 10 ] || fail "only $count compile commands"

if grep -nE -- '-Ofast|-ffast-math|-funsafe-math|-fassociative-math|-freciprocal-math|-ffinite-math|-march=native|-flto' "$commands"; then
  fail "a flag above changes results or code placement"
fi
# every C unit of the library and of what checks it
bad=$(grep '"command":' "$commands" | grep -E "$source/(src|verify|cli|lab|tests)/.*\.c\"?" | grep -vE '\.(cpp|cu)' | grep -vc -- '-ffp-contract=off' || true)
[ "$bad" = 0 ] || fail "$bad units are compiled without -ffp-contract=off"
if grep '"command":' "$commands" | grep "$source/src/core/" | grep -E -- ' -m(avx|fma|f16c|arch)'; then
  fail "a unit of src/core is compiled for more than the baseline"
fi
if grep -rnE 'fast-math|Ofast|#pragma *(GCC|clang) *(optimize|fp)|FP_CONTRACT *ON' "$source/src" "$source/CMakeLists.txt" "$source/cmake"; then
  fail "the sources above switch the numerics"
fi
[ $status = 0 ] && echo "$count compile commands, none of them dangerous"
exit $status
