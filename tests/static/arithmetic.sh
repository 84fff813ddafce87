#!/bin/sh
# SPDX-License-Identifier: MIT
# Flags of a parent project or a packager that would change results or speed have no effect on the library: behind them its
# own options leave the compiler with the same settings as without them. Where somebody compiles the sources without those
# options, flags that change results are refused. usage: arithmetic.sh CC compile_commands.json SOURCE_DIR
# shellcheck disable=SC2086 # lists of options are meant to split
set -eu
cc=$1 commands=$2 source=$3
status=0
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT
fail() { echo "$*" >&2; status=1; }

relaxed="-ffast-math -Ofast -funsafe-math-optimizations -ffinite-math-only"
harmful="$relaxed -O0 -Os -fassociative-math -freciprocal-math -fno-signed-zeros -fno-trapping-math -ffp-contract=fast
  -flto -frounding-math"
case $("$cc" -dumpmachine) in
x86_64*) x86=yes harmful="$harmful -mfpmath=387" ;;
*) x86=no ;;
esac
case $("$cc" --version) in
*clang*) gnu=no ;;
*) gnu=yes harmful="$harmful -fsingle-precision-constant" ;;
esac

# settings OPTION...: what the compiler makes of them, line by line
settings() {
  if [ $gnu = yes ]; then
    for class in optimizers common target; do "$cc" "$@" -Q --help=$class; done | grep -v '^ *-o '
  else
    "$cc" -### "$@" -c -x c /dev/null -o /dev/null 2>&1 | grep -v warning: | tr ' ' '\n'
  fi
}

# options UNIT: those that the library's build gives it
options() { sed -n "s|.*\"command\": \"[^ ]* \(.*\) -o [^ ]* -c $source/src/$1\".*|\1|p" "$commands"; }

count=0
for unit in core/forward.c cpu/isa/scalar.c; do
  own=$(options $unit)
  [ -n "$own" ] || fail "no compile command of $unit"
  settings $own > "$tmp/own"
  for flag in $harmful; do
    settings "$flag" $own > "$tmp/parent"
    diff "$tmp/own" "$tmp/parent" > "$tmp/changes" || fail "$unit: $flag of a parent changes: $(cat "$tmp/changes")"
    count=$((count + 1))
  done
done

# refused UNIT OPTION...: does not compile, and says why in the library's own words
refused() {
  unit=$1
  shift
  if "$cc" -D_POSIX_C_SOURCE=200809L "$@" -fsyntax-only -x c "$source/src/$unit" 2> "$tmp/log"; then
    fail "$unit compiles with $*"
  elif ! grep -q '#error "\{0,1\}rmsnorm: ' "$tmp/log"; then
    fail "$unit with $* is refused for another reason: $(cat "$tmp/log")"
  fi
}

for unit in $(cd "$source/src" && grep -lE '\b(float|double)\b|kernels' core/*.c cpu/*.c) cpu/isa/scalar.c; do
  "$cc" -D_POSIX_C_SOURCE=200809L -fsyntax-only -x c "$source/src/$unit" || fail "$unit does not compile"
  refused "$unit" -ffast-math
done
refused core/arithmetic.h -Ofast
refused core/arithmetic.h -ffinite-math-only
if [ $gnu = yes ]; then # clang tells its sources of -ffast-math and -ffinite-math-only alone
  refused core/arithmetic.h -funsafe-math-optimizations
  refused core/arithmetic.h -fassociative-math -fno-signed-zeros -fno-trapping-math
  refused core/arithmetic.h -freciprocal-math
  refused core/arithmetic.h -fsingle-precision-constant
fi
if [ $x86 = yes ]; then
  refused core/arithmetic.h -m32 -mno-sse
  "$cc" -m32 -msse2 -mfpmath=sse -fsyntax-only -x c "$source/src/core/arithmetic.h" || fail "-m32 -msse2 -mfpmath=sse is refused"
  [ $gnu = no ] || refused core/arithmetic.h -mfpmath=387
fi
[ $status = 0 ] && echo "$count combinations of a unit and a flag of a parent without effect"
exit $status
