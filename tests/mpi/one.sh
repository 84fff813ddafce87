#!/bin/sh
# SPDX-License-Identifier: MIT
#
# one.sh dies|wrong MPIRUN... PROGRAM: rank 1 of a job calls abort, or passes a bad argument. The job must fail with a message.
set -u
how=$1
shift
output=$(timeout 60 "$@" --one "$how" 2>&1)
code=$?
echo "$output"
fail() {
  echo "FAIL: $*"
  exit 1
}
[ $code -ne 124 ] || fail "the job hangs"
[ $code -ne 0 ] || fail "the job succeeds"
[ -n "$output" ] || fail "there is no message"
if [ "$how" = wrong ]; then
  [ "$(echo "$output" | grep -c '^rank [0-9]*: unknown data type')" -eq 3 ] || fail "not every rank has the error"
fi
