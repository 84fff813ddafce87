#!/bin/bash
# SPDX-License-Identifier: MIT
# Does the suite catch planted errors? Applies the mutations of mutations.txt one at a time to a copy of the sources, builds
# the least, runs the tests until one is red, and fails if a mutation survives or no longer fits its file.
# usage: mutation.sh [--parts N] [--only TEXT] SOURCE WORK
#   --parts N    every Nth mutation, another Nth each day (or RMSNORM_SEED's): all of them in N days
#   --only TEXT  only mutations whose file name contains TEXT
# CC=aarch64-linux-gnu-gcc tries the NEON header on another machine, with the quickest of the programs under qemu.
set -euo pipefail
parts=1 only=
while [ $# -gt 2 ]; do
  case $1 in
  --parts) parts=$2 ;;
  --only) only=$2 ;;
  *) echo "usage: $0 [--parts N] [--only TEXT] SOURCE WORK" >&2; exit 2 ;;
  esac
  shift 2
done
source=$(cd "$1" && pwd) work=$2
mkdir -p "$work"
work=$(cd "$work" && pwd)
tree=$work/tree
rm -rf "$tree" "$work/obj"
mkdir -p "$tree" "$work/obj"
cp -r "$source/include" "$source/src" "$source/tests" "$source/verify" "$tree"

cc=${CC:-gcc}
# Without forced inlining the templates compile in a second or two; the results are the same.
flags="-std=c11 -O1 -g0 -ffp-contract=off -fno-math-errno -Dalways_inline=unused -D_POSIX_C_SOURCE=200809L"
isas="scalar" isa_flags_avx2="-mavx2 -mfma -mf16c"
isa_flags_avx512="$isa_flags_avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq"
command -v "$cc" > /dev/null || { echo "no $cc"; exit 77; }
machine=$($cc -dumpmachine) emulator=()
# has FLAG...: this x86 CPU has all of them
has() { local flag; for flag; do grep -q -w "$flag" /proc/cpuinfo || return 1; done; }
case $machine in
x86_64*)
  if has avx2 fma f16c; then isas="scalar avx2"; fi
  if has avx512f avx512bw avx512vl avx512dq; then isas="scalar avx2 avx512"; fi
  ;;
aarch64*)
  isas="scalar neon"
  if [ "$(uname -m)" != aarch64 ]; then
    command -v qemu-aarch64 > /dev/null || { echo "no qemu-aarch64"; exit 77; }
    emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
  fi
  ;;
esac
one_isa=scalar # the quickest to compile
[[ $isas != *avx2* ]] || one_isa=avx2
for isa in $isas; do
  [ "$isa" = scalar ] || flags="$flags -DRMS_WITH_${isa^^}"
done

# compile UNIT...: units of the tree, in parallel; the object of a/b.c is a-b.o
compile() {
  local unit object extra jobs=() job
  for unit; do
    object=$work/obj/${unit//\//-}
    case $unit in
    */avx2.c) extra=$isa_flags_avx2 ;;
    */avx512.c | */avx512_narrow.c) extra=$isa_flags_avx512 ;;
    */avx512_native.c) extra="$isa_flags_avx512 -mavx512bf16" ;;
    *) extra= ;;
    esac
    # shellcheck disable=SC2086
    $cc $flags $extra -DRMSNORM_BUILD -I"$tree/include" -I"$tree/tests" -I"$tree/tests/unit" -I"$tree/tests/vec" -I"$tree/verify" \
      -c "$tree/$unit" -o "${object%.c}.o" 2> "${object%.c}.log" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do
    wait "$job" || { cat "$work"/obj/*.log | head -20; return 1; }
  done
}

library=() kernels=() vec_units=()
for unit in "$tree"/src/core/*.c; do library+=("src/core/${unit##*/}"); done
for unit in "$tree"/src/cpu/*.c; do [ -e "$unit" ] && library+=("src/cpu/${unit##*/}"); done
for isa in ${isas/avx512/avx512 avx512_narrow avx512_native}; do # the last two are of bf16
  kernels+=("src/cpu/isa/$isa.c")
  vec_units+=("tests/vec/$isa.c")
done
reference="verify/problem.c verify/words.c verify/number.c verify/random.c verify/data.c verify/memory.c verify/oracle.c verify/bounds.c verify/stepwise.c verify/backend_cpu.c verify/quantise.c verify/run.c"
support=(tests/harness.c tests/call.c tests/data.c tests/run.c verify/case.c)

objects() { local unit; for unit; do unit=${unit//\//-}; printf '%s\n' "$work/obj/${unit%.c}.o"; done; }

# Programs: name, then units beside the library and the support; quickest to tell first.
programs=(
  "vec tests/vec/vec.c tests/vec/reference.c verify/number.c verify/quantise.c ${vec_units[*]}"
  "activations tests/vec/activation.c tests/vec/reference.c verify/number.c verify/quantise.c ${vec_units[*]}"
  "quantised tests/unit/quantised.c verify/number.c"
  "straight tests/bits/quantised.c"
  "arguments tests/unit/arguments.c tests/unit/world.c"
  "alias tests/unit/alias.c tests/unit/world.c"
  "rows tests/unit/rows.c tests/unit/world.c"
  "sized tests/unit/sized.c tests/unit/world.c"
  "common tests/unit/common.c"
  "tiles tests/unit/tiles.c"
  "basics tests/unit/basics.c"
  "environment tests/unit/environment.c"
  "bytes tests/unit/environment.c"
  "first_call tests/unit/first_call.c"
  "statistics tests/accuracy/statistics.c verify/number.c verify/random.c"
  "unusual tests/accuracy/rows.c $reference"
  "steps tests/accuracy/steps.c $reference"
  "digests tests/golden/digests.c"
  "channels tests/bits/channels.c"
  "heads tests/bits/heads.c"
  "split tests/bits/split.c"
  "threads tests/threads/threads.c"
  "pool tests/threads/pool.c"
  "strategy tests/unit/strategy.c"
  "quicker tests/unit/quicker.c"
  "isa tests/bits/isa.c"
  "settings tests/bits/settings.c"
  "batch tests/bits/batch.c"
  "guard tests/guard/guard.c"
)
[ ${#emulator[@]} = 0 ] || programs=("${programs[0]}")

# link NAME UNIT...
link() {
  # shellcheck disable=SC2046
  $cc -o "$work/$1" $(objects "${@:2}" "${library[@]}" "${kernels[@]}" "${support[@]}") -lm -lpthread
}

# first_red [NAME...]: links and runs the programs, or those named, until one is red; says which. A program that hangs or
# crashes is red too.
first_red() {
  local program name names=" $* "
  for program in "${programs[@]}"; do
    name=${program%% *}
    [[ $# = 0 || $names == *" $name "* ]] || continue
    # shellcheck disable=SC2086
    link $program || return 1
    local arguments=() settings=()
    case $name in
    environment) settings=(env RMSNORM_ISA=nonsense) ;;
    bytes) settings=(env RMSNORM_STREAM_BYTES=1M) ;;
    digests) arguments=("$tree/tests/golden/digests.txt") ;;
    unusual) arguments=(with_drstd) ;;
    steps) arguments=(right long_rows given_or_not) ;;
    isa) arguments=(offsets behind values groups quantised beside_y) ;;
    batch) arguments=(short_rows uneven_rows mixed_rows_alone row_sums wide_rows long_rows) ;;
    guard) arguments=(small_sizes) ;;
    esac
    if ! timeout 120 "${settings[@]}" "${emulator[@]}" "$work/$name" "${arguments[@]}" > "$work/$name.out" 2>&1; then
      echo "$name"
      return
    fi
  done
}

# shellcheck source=tests/plant.sh
. "$source/tests/plant.sh" # replace

# units_of FILE: what must be compiled again
units_of() {
  case $1 in
  src/core/*.c | src/cpu/*.c) echo "$1" ;;
  src/core/*.h) echo "${library[*]}" ;;
  src/cpu/vec/x86.h | src/cpu/vec/same.h | src/cpu/kernels/activation.h) echo "${kernels[*]} ${vec_units[*]}" ;;
  src/cpu/vec/avx2.h) # serves two units
    for isa in avx2 avx512_narrow; do
      [[ " ${kernels[*]} " != *"/$isa.c "* ]] || echo "src/cpu/isa/$isa.c tests/vec/$isa.c"
    done ;;
  src/cpu/vec/avx512_native.h) echo "src/cpu/isa/avx512_native.c tests/vec/avx512_native.c" ;;
  src/cpu/vec/avx512.h) echo "src/cpu/isa/avx512.c tests/vec/avx512.c src/cpu/isa/avx512_native.c tests/vec/avx512_native.c" ;;
  src/cpu/vec/*.h) isa=${1##*/}; isa=${isa%.h}; echo "src/cpu/isa/$isa.c tests/vec/$isa.c" ;;
  src/cpu/convert.h) echo "src/cpu/isa/scalar.c tests/vec/scalar.c src/cpu/column_sums.c" ;;
  *) echo "${kernels[*]}" ;;
  esac
}

# programs_of FILE: those that can see an error there; the first two test vector headers alone, and quickly
programs_of() {
  case $1 in
  src/cpu/vec/* | src/cpu/convert.h | src/cpu/kernels/activation.h) ;;
  *) for program in "${programs[@]:2}"; do echo "${program%% *}"; done ;;
  esac
}

# first_red_of FILE UNITS: compiles the units and runs the programs until one is red. An error in a template is in every
# instruction set, so that one of them compiled and run alone shows most errors soonest.
first_red_of() {
  local file=$1 units=$2 red=
  if [ "$units" = "${kernels[*]}" ] && [ ${#emulator[@]} = 0 ]; then
    compile "src/cpu/isa/$one_isa.c" || return 1
    red=$(RMSNORM_ONLY_ISA=$one_isa first_red quantised straight rows statistics steps split digests) || return 1
    units=${units/src\/cpu\/isa\/$one_isa.c/}
  fi
  if [ -z "$red" ]; then
    # shellcheck disable=SC2086
    compile $units || return 1
    # shellcheck disable=SC2046
    red=$(first_red $(programs_of "$file")) || return 1
  fi
  echo "$red"
}

# for_each_mutation FUNCTION: calls it with FILE OLD NEW. Blocks of three lines (file, "- old", "+ new") between empty lines;
# one for an instruction set that cannot run here is left out.
for_each_mutation() {
  local file='' old='' line isa
  while IFS= read -r line <&3; do
    case $line in
    '#'* | '') ;;
    '- '*) old=${line:2} ;;
    '+ '*)
      isa=${file##*/} isa=${isa%.h}
      case $isa in x86) isa=avx2 ;; same) isa=scalar ;; esac
      if [ "$isa" = avx512_native ] && has avx512_bf16; then isa=avx512; fi
      [[ $file != src/cpu/vec/*.h || " $isas " == *" $isa "* ]] || continue
      [[ $file == *"$only"* ]] || continue
      "$1" "$file" "$old" "${line:2}"
      ;;
    *) file=$line ;;
    esac
  done 3< "$source/tests/mutations.txt"
}

stale=0
fits() { # FILE OLD NEW
  cp "$tree/$1" "$work/fits"
  replace "$work/fits" "$2" "$3" && return
  echo "STALE     $1: does not occur exactly once: $2"
  stale=$((stale + 1))
}
for_each_mutation fits
[ "$stale" = 0 ] || exit 1

echo "building the unchanged sources ($cc; $isas)"
all_units=("${library[@]}" "${kernels[@]}" "${support[@]}")
for program in "${programs[@]}"; do
  # shellcheck disable=SC2206
  words=($program)
  all_units+=("${words[@]:1}")
done
mapfile -t all_units < <(printf '%s\n' "${all_units[@]}" | sort -u)
for ((i = 0; i < ${#all_units[@]}; i += 4)); do compile "${all_units[@]:i:4}"; done
export RMSNORM_FIRST_FAILURE=on # one is enough
red=$(first_red)
if [ -n "$red" ]; then
  echo "the unchanged sources are red ($red):"
  tail -20 "$work/$red.out"
  exit 1
fi

begin=$SECONDS number=0 tried=0 bad=0 left=0
today=$(( ${RMSNORM_SEED:-$(( $(date +%s) / 86400 ))} % parts ))
try() { # FILE OLD NEW
  local file=$1 old=$2 new=$3 red units
  number=$((number + 1))
  if [ $((number % parts)) -ne "$today" ]; then
    left=$((left + 1))
    return
  fi
  cp "$tree/$file" "$work/original"
  replace "$tree/$file" "$old" "$new"
  units=$(units_of "$file")
  mkdir -p "$work/kept"
  # shellcheck disable=SC2046,SC2086
  cp $(objects $units) "$work/kept"
  if ! red=$(first_red_of "$file" "$units"); then
    echo "NO BUILD  $file: $old -> $new"
    printf '%s\n' "$red" | head -5
    bad=$((bad + 1))
  elif [ -n "$red" ]; then
    echo "red       $file: $old -> $new ($red)"
  else
    echo "SURVIVED  $file: $old -> $new"
    bad=$((bad + 1))
  fi
  cp "$work/original" "$tree/$file"
  mv "$work"/kept/*.o "$work/obj"
  tried=$((tried + 1))
}

for_each_mutation try
echo "$tried mutations tried, $bad not caught, $left left for other days, $((SECONDS - begin)) s"
[ "$tried" -gt 0 ] && [ "$bad" = 0 ]
