#!/bin/sh
# SPDX-License-Identifier: MIT
# The lab's engine and models in a build of their own with sanitizers. usage: sanitized.sh asan|tsan SOURCE BUILD
set -eu
name=$1 source=$2 own=$3/variants/lab_$1
# Instrumented kernels take minutes to compile if everything in them is inlined by force.
flags="-O1 -fno-omit-frame-pointer -Dalways_inline=unused"
cases=
case $name in
asan)
  flags="$flags -fsanitize=address,undefined -fno-sanitize-recover=all"
  tests="lab_gradients lab_model_gradients lab_training lab_beam"
  ;;
tsan)
  flags="$flags -fsanitize=thread"
  tests="lab_training"
  cases=same_bits_for_any_thread_count # the one with threads
  ;;
*)
  echo "no such sanitizer: $name" >&2
  exit 2
  ;;
esac

mkdir -p "$own"
cmake -S "$source" -B "$own" -DRMSNORM_LAB=on -DRMSNORM_CUDA=off -DRMSNORM_MPI=off -DRMSNORM_VARIANTS=OFF \
  -DRMSNORM_NO_OPENMP=ON -DCMAKE_BUILD_TYPE=Debug -DRMSNORM_OPTIMIZE=OFF -DCMAKE_C_FLAGS="$flags" >"$own/log" 2>&1 ||
  { cat "$own/log"; exit 1; }
# shellcheck disable=SC2086 # a list
cmake --build "$own" --target $tests --parallel "${RMSNORM_BUILD_JOBS:-2}" >"$own/log" 2>&1 || { cat "$own/log"; exit 1; }
for test in $tests; do
  echo "+ $test"
  # shellcheck disable=SC2086 # none or one
  "$own/tests/lab/$test" $cases
done
