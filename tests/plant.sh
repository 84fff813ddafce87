# SPDX-License-Identifier: MIT
# For the scripts that plant errors: how one is put into a file.
# shellcheck shell=bash

# replace FILE OLD NEW: exactly one occurrence
replace() {
  OLD=$2 NEW=$3 awk '
    BEGIN { RS = "\001"; old = ENVIRON["OLD"]; new = ENVIRON["NEW"] }
    { at = index($0, old)
      if (!at || index(substr($0, at + length(old)), old)) exit 3
      printf "%s%s%s", substr($0, 1, at - 1), new, substr($0, at + length(old)) }' "$1" > "$1.mutated" || return 1
  mv "$1.mutated" "$1"
}
