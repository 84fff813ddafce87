#!/bin/sh
# SPDX-License-Identifier: MIT
# The units that choose the instruction set must run on every CPU: their code has no AVX instruction, and AVX-512 registers
# appear in the AVX-512 unit alone. usage: baseline.sh OBJDUMP LIBRARY.a
set -eu
objdump=$1 archive=$2
status=0
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT
cd "$tmp"
ar x "$archive"
seen=0
for unit in *.o; do
  "$objdump" -d --no-show-raw-insn "$unit" > code
  wide=$(grep -cE '%[yz]mm|%k[1-7]|[[:space:]]v[a-z0-9]+[[:space:]].*%xmm' code || true)
  case $unit in
  avx2*) [ "$wide" -gt 0 ] || { echo "$unit has no AVX instruction: is it built at all?" >&2; status=1; }
         if grep -qE '%zmm|%k[1-7]' code; then echo "$unit uses AVX-512" >&2; status=1; fi ;;
  avx512*) grep -q '%zmm' code || { echo "$unit has no 512-bit instruction: is it built at all?" >&2; status=1; } ;;
  *) seen=$((seen + 1))
     [ "$wide" = 0 ] || { echo "$unit has $wide AVX instructions" >&2; status=1; } ;;
  esac
done
[ "$seen" -ge 2 ] || { echo "only $seen baseline units in $archive" >&2; status=1; }
[ $status = 0 ] && echo "$seen baseline units without AVX"
exit $status
