#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test.sh BUILD JOBS: runs every test of the build folder; the last line counts them. Details: BUILD/tests.xml.
set -u

build=$1
jobs=$2

count() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$build/suite"; }

rm -f "$build/tests.xml"
ctest --test-dir "$build" --output-on-failure --no-tests=error --output-junit tests.xml -j "$jobs" </dev/null
status=$?
if [ ! -s "$build/tests.xml" ]; then
  echo "no test was run"
  exit 1
fi
# The attributes of the one <testsuite ...> tag, one per line.
sed -n '/<testsuite/,/>/p' "$build/tests.xml" | tr '\n\t' '  ' | sed 's/>.*//' | sed 's/" /"\n /g' >"$build/suite"
tests=$(count tests)
failed=$(count failures)
skipped=$(($(count skipped) + $(count disabled)))
rm -f "$build/suite"
echo "tests: $((tests - failed - skipped)) passed, $failed failed, $skipped skipped"
exit $status
