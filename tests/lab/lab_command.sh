#!/bin/sh
# SPDX-License-Identifier: MIT
# The command: usage errors, a short run with its report, Ctrl-C, resume, divergence. $1: the rmsnorm command.
set -u
command=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
fail() {
  echo "FAIL: $*"
  failed=1
}

tiny="--synthetic --quiet --pairs 300 --merges 50 --width 16 --embed 8 --hidden 16 --layers 1 --heads 2 --batch 8 --beam 2 --tested 4 --length 8"

# bad usage: exit code 2 and one line
for bad in "nosuchmodel" "--nosuch" "--steps" "--steps 0" "--steps x" "--norms rms,nope" "--norms rms,rms" "--p 2" \
  "--engine fast" "--subset last" "--pre --post" "--source x" "--resume" "transformer --norms batch $tiny" "transformer $tiny --heads 3" "transformer $tiny --batch 1" \
  "lm --text $folder/missing" "convpool --images $folder" "psweep nosuch" "transformer --mo $folder/missing"; do
  # shellcheck disable=SC2086
  "$command" lab $bad --out "$folder/bad" >"$folder/stdout" 2>"$folder/stderr"
  code=$?
  [ $code -eq 2 ] || fail "lab $bad: exit code $code"
  [ "$(wc -l <"$folder/stderr")" -eq 1 ] || fail "lab $bad: not one line: $(cat "$folder/stderr")"
  [ ! -e "$folder/bad" ] || fail "lab $bad: left a report"
done

# every model, a few steps
"$command" lab all $tiny --steps 3 --norms layer,rms --embed 4 --out "$folder/all" >"$folder/stdout" 2>"$folder/stderr" ||
  fail "lab all: exit code $?"
for family in rnnsearch transformer convpool reader order lm; do
  [ "$(grep -c "^$family," "$folder/all/runs.csv")" -eq 2 ] || fail "lab all: $family is not in runs.csv"
done
for file in report.html report.json curves.csv; do
  [ -s "$folder/all/$file" ] || fail "lab all: no $file"
done
grep -q "report: $folder/all/report.html" "$folder/stdout" || fail "lab all: the report's path is not printed"

# the thread count changes nothing
for threads in 1 2; do
  "$command" lab transformer $tiny --steps 6 --norm rms --threads $threads --out "$folder/t$threads" >/dev/null 2>&1
done
sed -n 1p "$folder/t1/curves.csv" | grep -q loss || fail "curves.csv has no loss"
column=$(sed -n 1p "$folder/t1/curves.csv" | tr ',' '\n' | grep -n '^loss$' | cut -d: -f1)
cut -d, -f"$column" "$folder/t1/curves.csv" >"$folder/loss1"
cut -d, -f"$column" "$folder/t2/curves.csv" >"$folder/loss2"
cmp -s "$folder/loss1" "$folder/loss2" || fail "1 and 2 threads give different losses"

# divergence is reported, not a failure
"$command" lab transformer $tiny --steps 30 --norms none --rate 1e30 --clip 1e30 --warmup 1 --out "$folder/wild" \
  >"$folder/stdout" 2>&1 || fail "a diverging run: exit code $?"
grep -q "diverged at step" "$folder/stdout" || fail "a diverging run is not reported as one: $(cat "$folder/stdout")"

# Ctrl-C: exit code 130, a report, a checkpoint; resumed, the run ends as an unbroken one
"$command" lab transformer $tiny --steps 4000 --norms rms --checkpoints "$folder/keep" --every 10 --out "$folder/stopped" \
  >"$folder/stdout" 2>"$folder/stderr" &
pid=$!
tries=0
while [ ! -e "$folder/keep/transformer-rms-library-seed1.safetensors" ] && [ $tries -lt 600 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -INT $pid
wait $pid
code=$?
[ $code -eq 130 ] || fail "Ctrl-C: exit code $code"
[ -s "$folder/stopped/report.html" ] || fail "Ctrl-C: no report"
grep -q "stopped by Ctrl-C" "$folder/stopped/report.html" || fail "Ctrl-C: the report does not say so"

"$command" lab transformer $tiny --steps 20 --norms rms --out "$folder/whole" >/dev/null 2>&1
"$command" lab transformer $tiny --steps 20 --norms rms --checkpoints "$folder/some" --every 7 --out "$folder/part" \
  >/dev/null 2>&1
"$command" lab transformer $tiny --steps 20 --norms rms --checkpoints "$folder/some" --resume --out "$folder/again" \
  >/dev/null 2>&1 || fail "resume: exit code $?"
cut -d, -f"$column" "$folder/whole/curves.csv" >"$folder/loss1"
cut -d, -f"$column" "$folder/again/curves.csv" >"$folder/loss2"
cmp -s "$folder/loss1" "$folder/loss2" || fail "a resumed run differs from an unbroken one"

exit $failed
