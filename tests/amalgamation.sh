#!/bin/sh
# SPDX-License-Identifier: MIT
# The library in one file has the bits of the library. usage: amalgamation.sh WAY SOURCE BUILD
#   gcc      cc -c rmsnorm.c, as it is        gcc-O2   optimised, for a shared library: its symbols too
#   clang    the same with clang              aarch64  cross compiled and optimised, run by qemu-aarch64
#   mingw64  for Windows, portable code alone, run by wine
# Exit status 77: a tool is missing.
# shellcheck disable=SC2086 # lists of options are meant to split
set -eu
way=$1 source=$2 work=$3/amalgamation/$1
warnings="-Wall -Wextra -Werror"

need() {
  for tool; do
    command -v "$tool" > /dev/null || { echo "skipped: $tool is not installed"; exit 77; }
  done
}

need python3
rm -rf "$work"
mkdir -p "$work"
make -s -C "$source" amalgamation DIST="$work" > "$work/log"
cd "$work"
cc=gcc run=
cached=${CMAKE_C_COMPILER_LAUNCHER:-} # a compiler cache, as the other builds use it
# Optimised, the one file takes minutes to compile if everything in it is inlined by force. Not optimised, it is compiled as it is.
less_inlining=-Dalways_inline=unused
case $way in
gcc) $cached gcc -c rmsnorm.c ;;
gcc-O2)
  $cached gcc -O2 -fPIC $warnings $less_inlining -c rmsnorm.c
  gcc -shared rmsnorm.o -lm -o librmsnorm.so
  "$source/tests/static/symbols.sh" nm rmsnorm.h rmsnorm.o librmsnorm.so
  ;;
clang)
  need clang
  $cached clang $warnings -c rmsnorm.c
  ;;
aarch64)
  need aarch64-linux-gnu-gcc qemu-aarch64
  cc=aarch64-linux-gnu-gcc run="qemu-aarch64 -L /usr/aarch64-linux-gnu"
  $cached $cc -O2 $less_inlining -c rmsnorm.c
  ;;
mingw64)
  need x86_64-w64-mingw32-gcc
  cc="x86_64-w64-mingw32-gcc -static" run=wine
  export WINEPREFIX="$work/wine" WINEDEBUG=-all
  $cached $cc -c rmsnorm.c
  wine cmd /c exit > log 2>&1 || { echo "skipped: compiled, but not run: wine does not work here"; exit 77; }
  ;;
*) echo "unknown way: $way" >&2; exit 2 ;;
esac
# The same tests that the library passes, with its own flags for what they compute: all of the best instruction set, a part
# of the others, which are slow where the file is not optimised.
export RMSNORM_EFFORT="${RMSNORM_EFFORT:-15}"
t=$source/tests
$cc -O1 -std=c11 -ffp-contract=off -D_POSIX_C_SOURCE=200809L -I. -I"$t" "$t/harness.c" "$t/call.c" "$t/data.c" "$t/run.c" "$t/../verify/case.c" \
  "$t/golden/digests.c" rmsnorm.o -lm -pthread -o digests.exe
$run ./digests.exe "$t/golden/digests.txt"
