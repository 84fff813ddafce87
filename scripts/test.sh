#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test.sh BUILD JOBS first|rest: runs the tests of `make test` (first), or those that `make test-all` adds (rest). The last line
# counts the results, including those of the part that ran before. Details: BUILD/tests-first.xml, BUILD/tests-rest.xml.
# RMSNORM_STRICT=on: a skipped test is a failure, except those that need a GPU or its compiler.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs this: tests that build have their own

build=$1
jobs=$2
part=$3
rest='variant|mutation|browser|cuda|mpi|long' # labels; long: the Python package with torch, transformers and JAX
report=$build/tests-$part.xml

# Tests run beside each other, so each build inside a test gets one core; those builds share what was compiled before.
export RMSNORM_BUILD_JOBS=1
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$PWD"
fi

if [ "$part" = first ]; then
  rm -f "$build"/tests-*.xml
  set -- -LE "$rest"
else
  rm -f "$report"
  set -- -L "$rest"
fi
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$jobs" --test-output-size-passed 20000 \
  --output-junit "tests-$part.xml" "$@" </dev/null
status=$?

# count ATTRIBUTES: the tests of the reports with that status
count() { cat "$build"/tests-*.xml 2>/dev/null | grep -c "<testcase .* status=\"$1\""; }
skipped_names() { sed -n 's/.*<testcase name="\([^"]*\)".* status="notrun".*/\1/p' "$build"/tests-*.xml; }

unexpected=$(skipped_names | grep -vE '^(python_)?cuda' | tr '\n' ' ')
if [ "${RMSNORM_STRICT:-off}" = on ] && [ -n "$unexpected" ]; then
  echo "skipped, and must not be: $unexpected"
  status=1
fi
passed=$(count run) failed=$(count fail) skipped=$(count notrun)
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
