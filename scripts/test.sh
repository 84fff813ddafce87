#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test.sh BUILD JOBS: runs every test of the build folder; the last line counts them. Details: BUILD/tests.xml.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs this: tests that build have their own

build=$1
jobs=$2
report=$build/tests.xml
failures=$build/Testing/Temporary/LastTestsFailed.log # one line per test that failed or could not be run

lines() { if [ -e "$1" ]; then grep -c "$2" "$1"; else echo 0; fi; }

rm -f "$report" "$failures"
ctest --test-dir "$build" --output-on-failure --no-tests=error --output-junit tests.xml -j "$jobs" </dev/null
status=$?
all=$(lines "$report" '<testcase ')
passed=$(lines "$report" '<testcase .* status="run"')
failed=$(lines "$failures" .)
echo "tests: $passed passed, $failed failed, $((all - passed - failed)) skipped"
exit $status
