#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh [--refresh] CASE.sh: runs a case in an empty folder and compares its transcript with CASE.expected.
# --refresh writes CASE.expected instead: read the difference before it is committed.
# From the environment: RMSNORM, the command under test; TOOL, tests/cli/tool; WRAPPER, a prefix such as valgrind or an
# emulator; SOURCE, the project's folder.
set -u

refresh=
if [ "$1" = --refresh ]; then
  refresh=1
  shift
fi
CASES=$(cd "$(dirname "$1")" && pwd)
case=$CASES/$(basename "$1")
expected=${case%.sh}.expected
export LC_ALL=C NO_COLOR=1
unset RMSNORM_ISA RMSNORM_STREAM_BYTES

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/work"

# In a case: `rmsnorm ARGUMENT...` runs the command and records what it says and its exit code.
rmsnorm() {
  echo "\$ rmsnorm $*"
  # shellcheck disable=SC2086
  ${WRAPPER-} "$RMSNORM" "$@" 2>"$folder/stderr"
  local code=$?
  sed 's/^/stderr: /' "$folder/stderr"
  [ $code = 0 ] || echo "exit $code"
  return $code
}
plain() { ${WRAPPER-} "$RMSNORM" "$@"; } # the same without the record, for pipes
tool() { ${WRAPPER-} "$TOOL" "$@"; }
note() { echo "# $*"; }

(
  cd "$folder/work" || exit 1
  # shellcheck disable=SC1090
  . "$case"
) >"$folder/transcript" 2>&1 </dev/null
if grep -q '^exit 77$' "$folder/transcript"; then
  echo "skipped: $(tail -n 2 "$folder/transcript" | head -n 1)"
  exit 77
fi

if [ -n "$refresh" ]; then
  cp "$folder/transcript" "$expected"
else
  diff -u "$expected" "$folder/transcript"
fi
