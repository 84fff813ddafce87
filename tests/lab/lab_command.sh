#!/bin/sh
# SPDX-License-Identifier: MIT
# The command: usage errors, a short run with its report, stopping, resume, divergence. $1: the rmsnorm command.
set -u
command=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
fail() {
  echo "FAIL: $*"
  failed=1
}

common="--synthetic --quiet --batch 8 --tested 4"
pairs="--pairs 300 --merges 50"
rnnsearch="rnnsearch $common $pairs --width 16 --embed 8 --beam 2"
transformer="transformer $common $pairs --width 16 --hidden 16 --layers 1 --heads 2 --beam 2"
lm="lm $common --width 16 --hidden 16 --layers 1 --heads 2 --length 8"
convpool="convpool $common --embed 4"

# refused WHAT ARGUMENT...: exit code 2, one line that contains WHAT, nothing left behind
refused() {
  what=$1
  shift
  "$command" lab "$@" --out "$folder/bad" >"$folder/stdout" 2>"$folder/stderr"
  code=$?
  [ $code -eq 2 ] || fail "lab $*: exit code $code"
  [ "$(wc -l <"$folder/stderr")" -eq 1 ] || fail "lab $*: not one line: $(cat "$folder/stderr")"
  grep -qF -- "$what" "$folder/stderr" || fail "lab $*: no '$what' in: $(cat "$folder/stderr")"
  [ ! -e "$folder/bad" ] || fail "lab $*: left a report"
}

# gray HEIGHT WIDTH FOLDER: idx files of 40 black images of that size
gray() {
  mkdir -p "$3"
  for set in train t10k; do
    {
      # shellcheck disable=SC2059 # the format is made of two numbers
      printf "$(printf '\\0\\0\\010\\003\\0\\0\\0\\050\\0\\0\\0\\%03o\\0\\0\\0\\%03o' "$1" "$2")"
      head -c $((40 * $1 * $2)) /dev/zero
    } >"$3/$set-images-idx3-ubyte"
    {
      printf '\0\0\010\001\0\0\0\050'
      head -c 40 /dev/zero
    } >"$3/$set-labels-idx1-ubyte"
  done
}

# ---- bad usage ----
echo "one line" >"$folder/line"
refused "unknown model" nosuchmodel
refused "unknown option" --nosuch
refused "--steps" --steps
refused "outside 1.." --steps 0
refused "not a whole number" --steps x
refused "nope" --norms rms,nope
refused "--ranks: belongs to --norms prms-local" lm --norms prms --ranks 2
refused "--ranks: 3 does not divide the widths 16 and 16" lm --norms prms-local --ranks 3 --width 16
refused "prms-local is not for convpool" convpool --norms prms-local
refused "prms-local has no textbook form" lm --norms prms-local --engine textbook
refused "one word too many" scaling lm reader
refused "named twice" --norms rms,rms
refused "outside (0, 1]" --p 2
refused "--p: 0 is outside" --p 0
refused "--p: 1.0000001 is outside" --p 1.0000001
refused "--p: nan" --p nan
refused "--rate: 0 is outside" --rate 0
refused "neither library nor textbook" --engine fast
refused "neither first nor spread" --subset last
refused "exclude each other" transformer --pre --post
refused "go together" --source x
refused "needs --checkpoints" --resume
refused "--every: needs --checkpoints" --every 5
refused "named twice" lm lm
refused "one word too many" invariance rate
refused "unknown model" psweep nosuch
refused "belongs to" convpool --text "$folder/line"
refused "belongs to" lm --source "$folder/line" --target "$folder/line"
refused "belongs to" rate --steps 3
refused "--beam: 100000 is outside 1..64" rnnsearch --beam 100000
refused "no catalogue of 'xx'" transformer --language xx
refused "--max-words: 1 is outside" transformer --max-words 1
# shellcheck disable=SC2086 # lists of options
{
  refused "batch is for convpool only" $transformer --norms batch
  refused "batch is for convpool only" $lm --norms batch
  refused "--heads: 3 does not divide the width 16" $transformer --heads 3
  refused "--heads: 7 does not divide" $lm --heads 7
  refused "cannot be cut into 2 shards" $transformer --batch 1
}
refused "$folder/missing" lm --text "$folder/missing"
refused "line: too short" lm --text "$folder/line"
refused "too few" transformer --source "$folder/line" --target "$folder/line"
refused "line + line" transformer --source "$folder/line" --target "$folder/line"
refused "$folder/missing" transformer --mo "$folder/missing"
# every path is looked at before the first model is trained
refused "$folder" lm convpool --images "$folder"
for size in "28 3" "15 15" "11 11" "8 8" "5 5" "1 1" "28 1"; do
  # shellcheck disable=SC2086
  gray $size "$folder/gray"
  refused "are too small for convpool" convpool --images "$folder/gray"
done
gray 16 16 "$folder/gray"
"$command" lab convpool --images "$folder/gray" --quiet --steps 2 --norms rms --batch 8 --embed 2 --runs 1 \
  --out "$folder/smallest" >"$folder/stdout" 2>&1 || fail "16 x 16 images: $(cat "$folder/stdout")"

# ---- help ----
for words in "lab -h" "lab --help" "help lab"; do
  # shellcheck disable=SC2086
  "$command" $words | head -n 1 | grep -q "^Usage: rmsnorm lab" || fail "$words: not the lab's help"
done

# ---- every model, a few steps ----
# shellcheck disable=SC2086
"$command" lab all $common $pairs --width 16 --hidden 16 --layers 1 --heads 2 --beam 2 --length 8 --embed 4 --steps 3 \
  --norms layer,rms --runs 1 --timing 4 --out "$folder/all" >"$folder/stdout" 2>"$folder/stderr" ||
  fail "lab all: exit code $?"
for family in rnnsearch transformer convpool reader order lm; do
  # two norms trained, and both timed on both engines
  [ "$(grep -c "^$family," "$folder/all/runs.csv")" -eq 6 ] || fail "lab all: $family is not in runs.csv"
done
for file in report.html report.json curves.csv; do
  [ -s "$folder/all/$file" ] || fail "lab all: no $file"
done
grep -q "report: $folder/all/report.html" "$folder/stdout" || fail "lab all: the report's path is not printed"

# ---- the kernels of OpenBLAS ----
# OpenBLAS takes kernels for SSE3 on processors that its release does not know; the command asks for better ones, unless the
# user has chosen.
kernels() { sed -n 's/.*"openblas_kernels": "\(.*\)".*/\1/p' "$1/report.json"; }
[ -n "$(kernels "$folder/all")" ] || fail "the report does not name OpenBLAS's kernels"
if grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo; then
  [ "$(kernels "$folder/all")" != Prescott ] || fail "products run without AVX2"
  # shellcheck disable=SC2086
  OPENBLAS_CORETYPE=Prescott "$command" lab $lm --runs 1 --steps 1 --out "$folder/prescott" >"$folder/stdout" 2>&1 ||
    fail "OPENBLAS_CORETYPE=Prescott: $(cat "$folder/stdout")"
  [ "$(kernels "$folder/prescott")" = Prescott ] || fail "OPENBLAS_CORETYPE is overruled: $(kernels "$folder/prescott")"
fi

# ---- an earlier report is never lost ----
refused_again() {
  # shellcheck disable=SC2086
  "$command" lab $transformer --steps 2 --norms rms --runs 1 --out "$folder/all" "$@" >/dev/null 2>"$folder/stderr"
}
before=$(cksum <"$folder/all/report.json")
refused_again && fail "a report was replaced"
grep -q "holds a report already" "$folder/stderr" || fail "an old report: $(cat "$folder/stderr")"
[ "$before" = "$(cksum <"$folder/all/report.json")" ] || fail "a report was changed"
refused_again --replace || fail "--replace: $(cat "$folder/stderr")"
[ "$before" != "$(cksum <"$folder/all/report.json")" ] || fail "--replace changed nothing"
(
  cd "$folder" || exit 1
  "$command" lab invariance >/dev/null && "$command" lab rate >rate.txt
) || fail "lab invariance, lab rate: exit code $?"
[ -s "$folder/lab-out/report.json" ] || fail "no report in lab-out"
[ -s "$folder/lab-out-2/report.json" ] || fail "two reports in one folder"
grep -q "report: lab-out-2/report.html" "$folder/rate.txt" || fail "the second report's folder is not printed"

# ---- what is done is reported, whatever comes after it ----
mkdir "$folder/tiny" # the file that a checkpoint is written to before it gets its name is a full disk
ln -s /dev/full "$folder/tiny/transformer-rms-library-seed1.safetensors.part"
# shellcheck disable=SC2086
"$command" lab $transformer --steps 6 --norms rms,layer --runs 1 --checkpoints "$folder/tiny" --every 5 \
  --out "$folder/full" >"$folder/stdout" 2>"$folder/stderr"
code=$?
[ $code -eq 2 ] || fail "a full disk: exit code $code"
grep -q "No space left" "$folder/stderr" || fail "a full disk: $(cat "$folder/stderr")"
[ -s "$folder/full/report.html" ] || fail "a full disk: no report of the steps that were done"
# shellcheck disable=SC2086
"$command" lab $transformer --steps 2 --norms rms --runs 1 --out "$folder/line/below" >"$folder/stdout" 2>"$folder/stderr"
[ $? -eq 2 ] || fail "an unwritable folder: exit code"
[ ! -s "$folder/stdout" ] || fail "an unwritable folder was found after training"

# ---- the thread count changes nothing ----
for threads in 1 2; do
  # shellcheck disable=SC2086
  "$command" lab $transformer --steps 6 --norm rms --runs 1 --threads $threads --out "$folder/t$threads" >/dev/null 2>&1
done
sed -n 1p "$folder/t1/curves.csv" | grep -q loss || fail "curves.csv has no loss"
column=$(sed -n 1p "$folder/t1/curves.csv" | tr ',' '\n' | grep -n '^loss$' | cut -d: -f1)
losses() { cut -d, -f"$column" "$folder/$1/curves.csv"; }
[ "$(losses t1)" = "$(losses t2)" ] || fail "1 and 2 threads give different losses"

# ---- dropout 0 is none: not the default, and not a mistake ----
for dropout in 0 0.3; do
  # shellcheck disable=SC2086
  "$command" lab $transformer --steps 3 --norms rms --runs 1 --dropout $dropout --out "$folder/d$dropout" >/dev/null 2>&1
done
[ "$(losses d0)" != "$(losses d0.3)" ] || fail "--dropout changes nothing"

# ---- divergence is reported, not a failure, and has no time ----
# shellcheck disable=SC2086
"$command" lab $transformer --steps 30 --norms none,layer --rate 1e30 --clip 1e30 --warmup 1 --runs 1 --timing 0 \
  --out "$folder/wild" >"$folder/stdout" 2>&1 || fail "a diverging run: exit code $?"
grep -q "diverged at step" "$folder/stdout" || fail "a diverging run is not reported as one: $(cat "$folder/stdout")"
grep -q "library ms" "$folder/stdout" && fail "a diverged run has a time: $(cat "$folder/stdout")"

# ---- Ctrl-C and SIGTERM: exit code, a report that says so, a checkpoint; resumed, the run ends as an unbroken one ----
stopped() { # SIGNAL CODE WORD
  # shellcheck disable=SC2086
  "$command" lab $transformer --steps 4000 --norms rms --runs 1 --checkpoints "$folder/keep$1" --every 10 \
    --out "$folder/stopped$1" >"$folder/stdout" 2>"$folder/stderr" &
  pid=$!
  tries=0
  while [ ! -e "$folder/keep$1/transformer-rms-library-seed1.safetensors" ] && [ $tries -lt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill -s "$1" $pid
  wait $pid
  code=$?
  [ $code -eq "$2" ] || fail "$1: exit code $code"
  grep -q "stopped by $3" "$folder/stopped$1/report.html" || fail "$1: the report does not say so"
}
stopped INT 130 Ctrl-C
stopped TERM 143 SIGTERM

few="$transformer --steps 20 --norms rms --runs 1 --timing 0"
# shellcheck disable=SC2086
{
  "$command" lab $few --out "$folder/whole" >/dev/null 2>&1
  "$command" lab $few --checkpoints "$folder/some" --every 7 --out "$folder/part" >/dev/null 2>&1
  "$command" lab $few --checkpoints "$folder/some" --resume --out "$folder/again" >/dev/null 2>&1 ||
    fail "resume: exit code $?"
}
[ "$(losses whole)" = "$(losses again)" ] || fail "a resumed run differs from an unbroken one"

# ---- a damaged checkpoint is named ----
head -c 100 "$folder/some/transformer-rms-library-seed1.safetensors" >"$folder/cut"
for damaged in "$folder/cut" "$folder/line" /dev/null; do
  cp "$damaged" "$folder/some/transformer-rms-library-seed1.safetensors"
  # shellcheck disable=SC2086
  refused_checkpoint=$("$command" lab $few --checkpoints "$folder/some" --resume --out "$folder/damaged" 2>&1 >/dev/null)
  [ $? -eq 2 ] || fail "a damaged checkpoint is accepted"
  echo "$refused_checkpoint" | grep -q "seed1.safetensors: " || fail "a damaged checkpoint: '$refused_checkpoint'"
  rm -rf "$folder/damaged"
done
# That of a later seed is found before the first step.
# shellcheck disable=SC2086
{
  rm -rf "$folder/some"
  "$command" lab $few --steps 4 --runs 2 --checkpoints "$folder/some" --out "$folder/both" >/dev/null 2>&1 || fail "two seeds: exit code $?"
  cp "$folder/cut" "$folder/some/transformer-rms-library-seed2.safetensors"
  rm "$folder/some/transformer-rms-library-seed1.safetensors"
  refused_checkpoint=$("$command" lab $few --steps 4 --runs 2 --checkpoints "$folder/some" --resume --out "$folder/damaged" 2>&1 >/dev/null)
  [ $? -eq 2 ] || fail "a damaged checkpoint of the second seed is accepted"
  echo "$refused_checkpoint" | grep -q "seed2.safetensors: " || fail "the second seed's damaged checkpoint: '$refused_checkpoint'"
  [ ! -e "$folder/some/transformer-rms-library-seed1.safetensors" ] ||
    fail "the first seed was trained although the second's checkpoint is damaged"
}

# ---- too little memory: exit code 2 and one line; sanitizers need more room than a limit leaves ----
if ! ldd "$command" | grep -q "lib[atl]*san"; then
  # shellcheck disable=SC2086,SC3045
  (ulimit -v 1500000 && exec "$command" lab $lm --width 4096 --hidden 16384 --steps 1 --runs 1 --out "$folder/large") \
    >"$folder/stdout" 2>"$folder/stderr"
  code=$?
  [ $code -eq 2 ] || fail "too little memory: exit code $code"
  grep -q "out of memory" "$folder/stderr" || fail "too little memory: $(cat "$folder/stderr")"
fi
# shellcheck disable=SC2086
"$command" lab $rnnsearch --steps 2 --norms prms --runs 1 --subset spread --p 0.5 --out "$folder/spread" >/dev/null 2>&1 ||
  fail "--subset spread: exit code $?"
# shellcheck disable=SC2086
"$command" lab $convpool --steps 2 --norms batch --runs 1 --out "$folder/batch" >/dev/null 2>&1 || fail "batch: exit code $?"

# ---- a statistic for each shard of the columns: one shard is pRMSNorm, two are not ----
for local in "prms" "prms-local --ranks 1" "prms-local --ranks 2"; do
  # shellcheck disable=SC2086
  "$command" lab $lm --steps 4 --norms $local --runs 1 --out "$folder/local" --replace >/dev/null 2>&1 || fail "$local: exit code $?"
  cut -d, -f5,6,8 "$folder/local/curves.csv" >"$folder/local-$(echo "$local" | tr -d ' ')"
done
cmp "$folder/local-prms" "$folder/local-prms-local--ranks1" || fail "prms-local on one rank is not prms"
if cmp -s "$folder/local-prms" "$folder/local-prms-local--ranks2"; then fail "prms-local on two ranks is prms"; fi

# ---- scaling ----
# shellcheck disable=SC2086
"$command" lab scaling $lm --steps 3 --out "$folder/scaling" >"$folder/scaling.txt" 2>&1 || fail "scaling: exit code $?"
grep -q '^1 measured .* 1.00 ' "$folder/scaling.txt" || fail "scaling: $(cat "$folder/scaling.txt")"
[ "$(grep -c '^8 estimated ' "$folder/scaling.txt")" -eq 2 ] || fail "scaling: no estimate: $(cat "$folder/scaling.txt")"
grep -q '^32: too many .*batch of 8 ' "$folder/scaling.txt" || fail "scaling: more machines than examples: $(cat "$folder/scaling.txt")"

exit $failed
