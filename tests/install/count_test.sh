#!/bin/sh
# SPDX-License-Identifier: MIT
#
# count_test.sh TEST_SCRIPT: scripts/test.sh with an invented ctest: what it counts, what it calls a failure.
set -eu
script=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
failures=0
mkdir "$top/bin" "$top/build"

# The invented ctest writes the report that $top/REPORT holds, and ends with the status in $top/status.
cat >"$top/bin/ctest" <<EOF
#!/bin/sh
while [ \$# -gt 0 ]; do [ "\$1" = --output-junit ] && name=\$2; shift; done
cp "$top/\$name" "$top/build/\$name"
exit \$(cat "$top/status")
EOF
chmod +x "$top/bin/ctest"
cases() { # FILE NAME:STATUS...: a report of tests
  file=$top/$1
  shift
  : >"$file"
  for test; do
    printf '\t<testcase name="%s" classname="x" time="1" status="%s">\n' "${test%:*}" "${test#*:}" >>"$file"
  done
}
expect() { # PART STRICT STATUS LAST_LINE
  code=0
  PATH=$top/bin:$PATH RMSNORM_STRICT=$2 sh "$script" "$top/build" 2 "$1" >"$top/out" 2>&1 || code=$?
  last=$(tail -n 1 "$top/out")
  if [ $code -ne "$3" ] || [ "$last" != "$4" ]; then
    echo "FAIL: $*: status $code, last line: $last"
    failures=$((failures + 1))
  fi
}

echo 0 >"$top/status"
cases tests-first.xml a:run b:run
cases tests-rest.xml variant_aarch64:run cuda_gpu:notrun
expect first on 0 "2 passed, 0 failed, 0 skipped"
expect rest on 0 "3 passed, 0 failed, 1 skipped"
cases tests-rest.xml variant_aarch64:notrun cuda_gpu:notrun
expect first on 0 "2 passed, 0 failed, 0 skipped"
expect rest off 0 "2 passed, 0 failed, 2 skipped"
expect rest on 1 "2 passed, 0 failed, 2 skipped"
grep -q "skipped, and must not be: variant_aarch64" "$top/out" || { echo "FAIL: $(cat "$top/out")"; failures=1; }
echo 8 >"$top/status"
cases tests-first.xml a:run b:fail
rm -f "$top/tests-rest.xml"
expect first off 8 "1 passed, 1 failed, 0 skipped"
exit $((failures > 0))
