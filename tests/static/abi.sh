#!/bin/sh
# SPDX-License-Identifier: MIT
# The binary interface of a shared library is the one that is checked in: functions, structs, numbers of enums, versions of
# symbols, soname. usage: abi.sh [--refresh] LIBRARY.so FOLDER_OF_HEADERS DUMP.abi
set -eu
refresh=no
if [ "$1" = --refresh ]; then
  refresh=yes
  shift
fi
library=$1 headers=$2 dump=$3
for tool in abidw abidiff; do
  command -v $tool > /dev/null || { echo "skipped: $tool is not installed (Debian: abigail-tools)"; exit 77; }
done

if [ $refresh = yes ]; then
  # Nothing of the machine that it was made on: no paths, no line numbers, no architecture.
  abidw --headers-dir "$headers" --drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path \
    --no-show-locs --short-locs --no-elf-needed --no-parameter-names --no-architecture --type-id-style hash \
    --out-file "$dump" "$library"
  echo "$dump is written anew"
  exit
fi
grep -q 'rms_spec' "$dump" || { echo "$dump has no types" >&2; exit 1; }
# abidiff exits with 1 for an error, and with 4 and 8 for changes, also for those that it calls harmless.
if ! abidiff --no-architecture --harmless --headers-dir2 "$headers" --drop-private-types --exported-interfaces-only \
  "$dump" "$library"; then
  echo "The binary interface is not that of $dump. A change that programs compiled before bear (a new function, a new" >&2
  echo "field behind the last one) is written there by: cmake --build BUILD --target refresh_abi" >&2
  exit 1
fi
echo "the binary interface is that of $dump"
