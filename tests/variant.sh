#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs tests in another way than the build at hand. usage: variant.sh NAME SOURCE BUILD
#   asan      address and undefined-behaviour sanitizers        a build of its own, all quick tests
#   tsan      thread sanitizer                                  a build of its own, the tests with threads
#   clang     the other compiler                                a build of its own, digests and bits
#   native    -march=native and what careless parents pass      a build of its own, all quick tests
#   v3        clang with a distribution's baseline, x86-64-v3   a build of its own, all quick tests
#   aarch64   cross compiled, run by qemu-aarch64               a build of its own, all quick tests
#   musl      the other C library, linked statically            a build of its own, digests, units and examples
#   mingw64   for Windows, run by wine                          a build of its own, digests and examples
#   valgrind  BUILD's programs under memcheck
#   nehalem   BUILD's programs on an emulated CPU without AVX:  must choose scalar
#   haswell   BUILD's programs on an emulated CPU with AVX2:    must choose avx2
# Exit status 77: a tool is missing. Own builds stay in BUILD/variants/NAME.
set -eu
name=$1 source=$2 build=$3
own=$build/variants/$name
# Kernels take minutes to compile if everything in them is inlined by force. The build at hand, the wheel and the single file do that.
less_inlining=-Dalways_inline=unused

need() {
  for tool; do
    command -v "$tool" > /dev/null || { echo "skipped: $tool is not installed"; exit 77; }
  done
}

# configure_and_build "TARGET..." CMAKE_ARGUMENT...: the library and those tests alone
configure_and_build() {
  targets=$1
  shift
  cmake -S "$source" -B "$own" -DRMSNORM_CLI=OFF -DRMSNORM_LAB=off -DRMSNORM_CUDA=off -DRMSNORM_MPI=off -DRMSNORM_VARIANTS=OFF \
    -DRMSNORM_NO_OPENMP=ON "$@" > "$own.log" 2>&1 || { cat "$own.log"; exit 1; }
  # shellcheck disable=SC2086 # a list
  cmake --build "$own" --target $targets --parallel "${RMSNORM_BUILD_JOBS:-2}" > "$own.log" 2>&1 || { cat "$own.log"; exit 1; }
}

# First which instruction sets run and which are compiled only.
run_tests() {
  ctest --test-dir "$own" -V -R '^unit_active$' | grep -E 'instruction sets:|active:'
  ctest --test-dir "$own" --output-on-failure --no-tests=error "$@"
}

# Emulators, sanitizers and valgrind are slow: a part of the repetitions of the longer tests.
export RMSNORM_EFFORT="${RMSNORM_EFFORT:-15}"

# run PROGRAM ARGUMENT...: one program of BUILD through $prefix
run() {
  echo "+ $prefix $*"
  program=$build/tests/$1
  shift
  # shellcheck disable=SC2086 # the prefix is a command with arguments
  $prefix "$program" "$@"
}

mkdir -p "$build/variants"
case $name in
asan)
  flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 $less_inlining"
  configure_and_build quick_tests -DCMAKE_BUILD_TYPE=Debug -DRMSNORM_OPTIMIZE=OFF -DCMAKE_C_FLAGS="$flags" \
    -DCMAKE_CXX_FLAGS="$flags"
  run_tests -L quick
  ;;
tsan)
  flags="-fsanitize=thread -O1 $less_inlining"
  configure_and_build "threads threads_pool threads_openmp_loaded unit_active" -DCMAKE_BUILD_TYPE=Debug -DRMSNORM_OPTIMIZE=OFF -DCMAKE_C_FLAGS="$flags"
  run_tests -L threads
  ;;
clang)
  need clang
  configure_and_build "golden_digests bits_isa vec_operations vec_activations unit_active" -DCMAKE_C_COMPILER=clang -DRMSNORM_WERROR=ON \
    -DCMAKE_C_FLAGS=$less_inlining
  run_tests -R '^(golden_digests|bits_isa|vec_operations|vec_activations)$'
  ;;
native)
  flags="-march=native -Ofast -ffast-math -funsafe-math-optimizations -ffinite-math-only -flto $less_inlining"
  configure_and_build "quick_tests rmsnorm_shared" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="$flags"
  # What gcc links into programs and libraries under such flags would change the arithmetic of every process that loads them.
  if nm "$own/librmsnorm.so" | grep set_fast_math; then echo "the shared library switches to flush-to-zero" >&2; exit 1; fi
  run_tests -L quick
  ;;
v3)
  need clang
  for flag in avx2 fma bmi2 movbe; do
    grep -qw $flag /proc/cpuinfo || { echo "skipped: this CPU is older than x86-64-v3"; exit 77; }
  done
  configure_and_build quick_tests -DCMAKE_C_COMPILER=clang -DCMAKE_C_FLAGS="-march=x86-64-v3 $less_inlining"
  run_tests -L quick
  ;;
aarch64)
  need aarch64-linux-gnu-gcc qemu-aarch64
  configure_and_build quick_tests --toolchain "$source/cmake/toolchains/aarch64.cmake" -DCMAKE_C_FLAGS=$less_inlining
  # This emulator fails an assertion of its own when the child of a process with threads starts some.
  export RMSNORM_NO_THREADS_AFTER_FORK=1
  RMSNORM_REQUIRE_ISA=neon run_tests -L quick
  ;;
musl)
  need musl-gcc
  configure_and_build "rmsnorm_shared golden_digests unit_active unit_arguments threads examples" -DRMSNORM_OPTIMIZE=OFF \
    -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_EXE_LINKER_FLAGS=-static -DCMAKE_C_FLAGS_RELEASE="-O1 $less_inlining"
  run_tests -R '^(golden_digests|unit_arguments|threads|examples\..*)$'
  ;;
mingw64)
  need x86_64-w64-mingw32-gcc
  configure_and_build "rmsnorm_shared golden_digests unit_active examples" \
    --toolchain "$source/cmake/toolchains/mingw64.cmake" -DRMSNORM_OPTIMIZE=OFF -DCMAKE_C_FLAGS_RELEASE="-O2 $less_inlining"
  if x86_64-w64-mingw32-objdump -d "$own/librmsnorm.a" | grep -E 'vmov(aps|apd|dqa)[0-9]* .*%r[sb]p.*%[yz]mm|vmov(aps|apd|dqa)[0-9]* .*%[yz]mm.*%r[sb]p'; then
    echo "aligned moves of vectors on a stack that is not aligned" >&2
    exit 1
  fi
  export WINEPREFIX="$own/wine" WINEDEBUG=-all
  wine cmd /c exit > "$own.log" 2>&1 || { echo "skipped: compiled, but not run: wine does not work here"; exit 77; }
  run_tests -R '^(golden_digests|examples\..*)$'
  ;;
valgrind)
  need valgrind
  prefix="valgrind --quiet --error-exitcode=9"
  run unit/unit_active
  run unit/unit_arguments
  run unit/unit_alias
  run unit/unit_rows
  run vec/vec_operations
  run bits/bits_isa values
  run threads/threads shared_pool
  ;;
nehalem | haswell)
  need qemu-x86_64
  model=Nehalem isa=scalar
  [ "$name" = nehalem ] || { model=Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm isa=avx2; }
  # This emulator loads whole vectors before it applies a mask.
  export RMSNORM_GUARD_SLACK=64
  prefix="qemu-x86_64 -cpu $model"
  run unit/unit_active "$isa"
  run unit/unit_basics
  run vec/vec_operations
  run golden/golden_digests "$source/tests/golden/digests.txt"
  ;;
*)
  echo "no such variant: $name" >&2
  exit 2
  ;;
esac
