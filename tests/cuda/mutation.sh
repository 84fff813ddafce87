#!/bin/bash
# SPDX-License-Identifier: MIT
# Does cuda_gpu catch planted errors? On a machine with a GPU: applies each mutation of mutations.txt to a copy of the sources,
# compiles the one object that it names, links it before the library into the test program, and runs that. Fails if a mutation
# survives, no longer fits its file, or makes the test so slow that nothing has failed within its time. All are compiled and run
# side by side.
# usage: mutation.sh SOURCE BUILD WORK [I/N]      BUILD: a Ninja build of SOURCE with the target cuda_gpu; I/N: every N-th one,
# from number I on (0 is the first)
set -uo pipefail
share=${4:-0/1}
[ $# -ge 3 ] && [ $# -le 4 ] && [[ $share =~ ^[0-9]+/[1-9][0-9]*$ ]] || { echo "usage: $0 SOURCE BUILD WORK [I/N]" >&2; exit 2; }
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
[ -e "$build/build.ninja" ] || { echo "$build is no Ninja build" >&2; exit 2; }
mkdir -p "$3"
work=$(cd "$3" && pwd)

# object_of UNIT FILE: an object of the build, from its root
object_of() {
  if [ "$1" = objects ]; then
    echo "src/cuda/CMakeFiles/rmsnorm_cuda_objects.dir/${2##*/}.o"
  else
    echo "src/cuda/CMakeFiles/rmsnorm_cuda_$1.dir/${1%%_*}.cu.o"
  fi
}

# shellcheck source=tests/plant.sh
. "$source/tests/plant.sh" # replace

# plant NUMBER FILE UNIT OLD NEW: the program with the error in it
plant() {
  local tree=$work/$1 object command
  rm -rf "$tree"
  mkdir -p "$tree"
  cp -r "$source/src" "$source/include" "$tree"
  replace "$tree/$2" "$4" "$5" || { echo stale > "$tree/result"; return; }
  object=$(object_of "$3" "$2")
  command=$(ninja -C "$build" -t commands "$object" | tail -1)
  command=${command#*report.sh * } # the compiler's own command
  command=${command//"$source/src/"/"$tree/src/"}
  command=${command//"$object"/"$tree/mutated.o"}
  (cd "$build" && eval "$command") > "$tree/compiled" 2>&1 || { echo uncompiled > "$tree/result"; return; }
  command=$(ninja -C "$build" -t commands cuda_gpu | tail -1)
  command=${command/ librmsnorm_cuda.a/ "$tree/mutated.o" librmsnorm_cuda.a}
  command=${command/-o tests\/cuda\/cuda_gpu/-o "$tree/cuda_gpu"}
  (cd "$build" && eval "$command") > "$tree/linked" 2>&1 && [ -x "$tree/cuda_gpu" ] || echo unlinked > "$tree/result"
}

seen=0 number=0 file='' unit='' old='' names=() jobs=()
while IFS= read -r line <&3; do
  case $line in
  '#'* | '') ;;
  '- '*) old=${line:2} ;;
  '+ '*)
    seen=$((seen + 1))
    [ $(((seen - 1) % ${share#*/})) = "${share%/*}" ] || continue
    number=$((number + 1))
    names[number]="$file: $old -> ${line:2}"
    plant "$number" "$file" "$unit" "$old" "${line:2}" &
    jobs+=($!)
    ;;
  *) read -r file unit <<< "$line" ;;
  esac
done 3< "$source/tests/cuda/mutations.txt"
wait "${jobs[@]}"

try() { # NUMBER
  timeout 180 "$work/$1/cuda_gpu" --small > "$work/$1/output" 2>&1
  echo $? > "$work/$1/code"
}
for ((i = 1; i <= number; i++)); do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  [ -e "$work/$i/result" ] || try "$i" &
done
wait
survived=0
for ((i = 1; i <= number; i++)); do
  failures=$(grep -c FAILED "$work/$i/output" 2> /dev/null)
  if [ -e "$work/$i/result" ]; then
    echo "${names[i]}: $(cat "$work/$i/result")"
    survived=$((survived + 1))
  elif [ "$(cat "$work/$i/code")" = 0 ]; then
    echo "SURVIVED  ${names[i]}"
    survived=$((survived + 1))
  elif [ "$(cat "$work/$i/code")" = 124 ] && [ "$failures" = 0 ]; then
    echo "UNDECIDED ${names[i]}"
    survived=$((survived + 1))
  else
    echo "caught    ${names[i]} ($failures failures shown)"
  fi
done
echo "$((number - survived)) of $number planted errors caught"
[ "$survived" = 0 ]
