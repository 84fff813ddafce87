#!/bin/sh
# SPDX-License-Identifier: MIT
#
# consume.sh WAY: installs the library, or uses the installed one in one of the ways in which users do. From CMake's
# environment: SOURCE, BUILD, SCRATCH (folders), CC, CXX, CFLAGS. Exit code 77: skipped, with the reason.
# shellcheck disable=SC2016,SC2046,SC2086 # flags and the answers of pkg-config are lists
set -eu

way=$1
here=$(cd "$(dirname "$0")" && pwd)
prefix=$SCRATCH/installed
work=$SCRATCH/$way
soname=librmsnorm.so.0.2
warnings="-Wall -Wextra -Wpedantic -Werror"

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

skip() {
  echo "SKIP: $*"
  exit 77
}

needs() { command -v "$1" >/dev/null || skip "$1 is not installed"; }

# The folder of the libraries is lib, or lib/<architecture> on some systems.
library_folder() { dirname "$(find "$1" -name librmsnorm.a)"; }

consumer=consumer.c
compile() { $CC $CFLAGS -std=c11 $warnings "$here/$consumer" -o "$work/consumer" "$@"; }

run() { LD_LIBRARY_PATH="${1:-}" "$work/consumer" || fail "the consumer exits with $?"; }

expect_shared() { readelf -d "$work/consumer" | grep -q "NEEDED.*\[$soname\]" || fail "not linked to $soname"; }
expect_static() { if readelf -d "$work/consumer" | grep -q 'NEEDED.*librmsnorm'; then fail "linked to the shared library"; fi; }

cmake_project() {
  if ! {
    cmake -S "$here/project" -B "$work/build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS="$CFLAGS" "$@" &&
      cmake --build "$work/build" --target consumer --parallel "${RMSNORM_BUILD_JOBS:-2}"
  } >"$work/log" 2>&1; then
    cat "$work/log"
    fail "the project does not build"
  fi
  cp "$work/build/consumer" "$work/consumer"
}

rm -rf "$work"
mkdir -p "$work"
if [ "$way" != prefix ] && [ "$way" != staged ] && [ "$way" != subproject ] && [ "$way" != sources ]; then
  lib=$(library_folder "$prefix")
fi

case $way in
prefix)
  rm -rf "$prefix"
  env -u DESTDIR cmake --install "$BUILD" --prefix "$prefix" >"$work/log" || fail "cmake --install"
  ;;
staged) # as the makers of packages do
  DESTDIR=$work cmake --install "$BUILD" --prefix /usr >"$work/log" || fail "cmake --install with DESTDIR"
  [ -f "$work/usr/include/rmsnorm.h" ] || fail "DESTDIR is not respected"
  ;;
files)
  for file in include/rmsnorm.h include/rmsnorm_openmp.h include/rmsnorm_openmp_loaded.h include/rmsnorm_openmp_team.h \
    include/rmsnorm_mpi.h include/rmsnorm_rows.h; do
    cmp "$SOURCE/$file" "$prefix/$file"
  done
  for file in librmsnorm.a librmsnorm.so pkgconfig/rmsnorm.pc cmake/rmsnorm/rmsnormConfig.cmake; do
    [ -e "$lib/$file" ] || fail "$file is not installed"
  done
  readelf -d "$lib/librmsnorm.so" | grep -q "SONAME.*\[$soname\]" || fail "the soname is not $soname"
  [ -e "$lib/$soname" ] || fail "$soname is not installed"
  version=$(sed -n 's/^Version: //p' "$lib/pkgconfig/rmsnorm.pc")
  [ "$("$prefix/bin/rmsnorm" --version)" = "rmsnorm $version" ] || fail "the command and rmsnorm.pc have different versions"
  [ -s "$prefix/share/man/man1/rmsnorm.1" ] || fail "no man page"
  if grep -rIl "$prefix" "$prefix"; then fail "these files name the place of installation"; fi
  ;;
cc-shared)
  compile -I"$prefix/include" -L"$lib" -lrmsnorm
  expect_shared
  run "$lib"
  ;;
cc-static)
  compile -I"$prefix/include" "$lib/librmsnorm.a" -lm -pthread
  expect_static
  run
  ;;
pkgconfig-shared)
  needs pkg-config
  compile $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs rmsnorm)
  expect_shared
  run "$lib"
  ;;
readme) # the example of the README, built as the README says
  needs pkg-config
  sed -n '/^```c$/,/^```$/p' "$SOURCE/README.md" | sed '/^```/d' >"$work/hello.c"
  [ -s "$work/hello.c" ] || fail "the README has no example"
  $CC $CFLAGS $warnings "$work/hello.c" $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs rmsnorm) -o "$work/consumer"
  run "$lib"
  ;;
examples) # every one of them with the line of the README
  needs pkg-config
  flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs rmsnorm)
  for example in "$SOURCE"/examples/*.c; do
    case $example in
    */openmp.c) openmp=-fopenmp ;;
    *_mpi.c) continue ;; # the way `mpi`
    *) openmp= ;;
    esac
    $CC $CFLAGS $openmp "$example" $flags -o "$work/consumer" || fail "$example does not link"
    run "$lib" >"$work/log"
  done
  ;;
mpi) # the examples that need MPI, with the line at their top
  needs pkg-config
  needs mpicc
  flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs rmsnorm)
  for example in "$SOURCE"/examples/*_mpi.c; do
    OMPI_CC=$CC mpicc $CFLAGS "$example" $flags -o "$work/consumer" || fail "$example does not link"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH=$lib \
      timeout 60 mpirun --oversubscribe -n 2 "$work/consumer" 3 >"$work/log" || fail "$example exits with $?"
  done
  ;;
pkgconfig-static)
  needs pkg-config
  case $CFLAGS in *-fsanitize*) skip "sanitizers do not link statically" ;; esac
  compile -static $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --static --cflags --libs rmsnorm)
  expect_static
  run
  ;;
package) # rmsnorm::rmsnorm is what BUILD_SHARED_LIBS says
  cmake_project -DCMAKE_PREFIX_PATH="$prefix" -DRMSNORM_WANTED=0.2 -DRMSNORM_TARGET=rmsnorm::rmsnorm
  expect_static
  run
  cmake_project -DBUILD_SHARED_LIBS=ON
  expect_shared
  run
  cmake_project -DBUILD_SHARED_LIBS=OFF
  expect_static
  cmake_project -DRMSNORM_TARGET=rmsnorm::shared
  expect_shared
  ;;
package-version) # an incompatible version is refused, not taken
  for version in 99.0 0.1; do
    if cmake -S "$here/project" -B "$work/build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" \
      -DRMSNORM_WANTED=$version -DRMSNORM_TARGET=rmsnorm::rmsnorm >"$work/log" 2>&1; then fail "version $version was found"; fi
    grep -q "compatible with requested version \"$version\"" "$work/log" || { cat "$work/log"; fail "another reason"; }
  done
  ;;
moved) # the installation works from another place
  needs pkg-config
  cp -a "$prefix" "$work/elsewhere"
  lib=$(library_folder "$work/elsewhere")
  compile $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs rmsnorm) -MD -MF "$work/used"
  grep -q "$work/elsewhere/.*rmsnorm\.h" "$work/used" || fail "the header came from another place"
  run "$lib"
  cmake_project -DCMAKE_PREFIX_PATH="$work/elsewhere" -DRMSNORM_TARGET=rmsnorm::shared
  readelf -d "$work/build/consumer" | grep -q "R.*PATH.*$work/elsewhere" || fail "the library came from another place"
  run
  ;;
subproject) # without a build type; rmsnorm::rmsnorm is what BUILD_SHARED_LIBS says
  CFLAGS="$CFLAGS -Dalways_inline=unused" # the kernels compile in seconds if nothing in them is inlined by force
  cmake_project -DRMSNORM_SOURCE="$SOURCE" -DRMSNORM_CUDA=off -DRMSNORM_TARGET=rmsnorm::rmsnorm
  expect_static
  run
  [ ! -e "$work/build/rmsnorm/librmsnorm.so" ] || fail "the shared library was built, and nobody asked for it"
  grep '"command"' "$work/build/compile_commands.json" | grep "$SOURCE/src/" | sed 's/.* -O/-O/' >"$work/units"
  [ -s "$work/units" ] || fail "the library has no units"
  if grep -v '^-O[23] ' "$work/units"; then fail "these units of the library are not optimised"; fi
  cmake_project -DBUILD_SHARED_LIBS=ON
  expect_shared
  run
  DESTDIR=$work/stage cmake --install "$work/build" --prefix /usr >"$work/log"
  if find "$work/stage" -name '*rmsnorm*' | grep .; then fail "the library was installed with the user's project"; fi
  ;;
sources) # the portable library without any build system
  $CC $CFLAGS -ffp-contract=off -I"$SOURCE/include" "$here/consumer.c" "$SOURCE"/src/core/*.c \
    "$SOURCE"/src/cpu/*.c "$SOURCE/src/cpu/isa/scalar.c" -lm -pthread -o "$work/consumer"
  run
  ;;
cxx)
  $CXX $CFLAGS -std=c++11 $warnings -I"$prefix/include" -x c++ "$here/consumer.c" -x none -o "$work/consumer" \
    -L"$lib" -lrmsnorm
  run "$lib"
  ;;
openmp)
  if ! echo '#include <omp.h>' | $CC -fopenmp -fsyntax-only -x c - 2>/dev/null; then skip "$CC has no OpenMP"; fi
  compile -fopenmp -DCONSUMER_OPENMP -I"$prefix/include" -L"$lib" -lrmsnorm -ldl
  run "$lib"
  $CXX $CFLAGS -std=c++11 $warnings -fopenmp -DCONSUMER_OPENMP -I"$prefix/include" -x c++ "$here/consumer.c" -x none \
    -o "$work/consumer" -L"$lib" -lrmsnorm -ldl
  run "$lib"
  if compile -DCONSUMER_OPENMP -I"$prefix/include" -L"$lib" -lrmsnorm 2>"$work/log"; then fail "compiled without -fopenmp"; fi
  grep -q 'error.*compile with -fopenmp' "$work/log" || fail "no helpful message without -fopenmp"
  ;;
cuda-files)
  cmp "$SOURCE/include/rmsnorm_cuda.h" "$prefix/include/rmsnorm_cuda.h"
  cmp "$SOURCE/include/rmsnorm_nccl.h" "$prefix/include/rmsnorm_nccl.h"
  for file in librmsnorm_cuda.a librmsnorm_cuda.so librmsnorm_cuda.so.0.2 pkgconfig/rmsnorm_cuda.pc; do
    [ -e "$lib/$file" ] || fail "$file is not installed"
  done
  readelf -d "$lib/librmsnorm_cuda.so" >"$work/log"
  grep -q "SONAME.*\[librmsnorm_cuda.so.0.2\]" "$work/log" || fail "the soname is not librmsnorm_cuda.so.0.2"
  if grep "NEEDED.*\[lib\(cuda\|rmsnorm\)" "$work/log"; then fail "the CUDA runtime or librmsnorm is not inside"; fi
  ;;
cuda-pkgconfig)
  needs pkg-config
  consumer=consumer_cuda.c
  compile $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs rmsnorm_cuda)
  expect_shared
  readelf -d "$work/consumer" | grep -q "NEEDED.*\[librmsnorm_cuda.so.0.2\]" || fail "not linked to librmsnorm_cuda.so.0.2"
  run "$lib"
  ;;
cuda-static) # with the CUDA runtime of the toolkit
  needs pkg-config
  runtime=$(find -L "${CUDA_ROOT:?}" -name libcudart_static.a 2>/dev/null | head -1)
  [ -n "$runtime" ] || skip "no libcudart_static.a under $CUDA_ROOT"
  consumer=consumer_cuda.c
  compile $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags rmsnorm_cuda) "$lib/librmsnorm_cuda.a" "$lib/librmsnorm.a" \
    -L"$(dirname "$runtime")" $(sed -n 's/^Libs.private: //p' "$lib/pkgconfig/rmsnorm_cuda.pc") -lm
  expect_static
  run
  ;;
cuda-package) # rmsnorm::cuda is what BUILD_SHARED_LIBS says; the shared library needs no CUDA toolkit
  cmake_project -DCMAKE_PREFIX_PATH="$prefix" -DRMSNORM_COMPONENTS=cuda -DRMSNORM_TARGET=rmsnorm::cuda \
    -DCONSUMER=consumer_cuda.c -DBUILD_SHARED_LIBS=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  expect_shared
  run
  rm -r "$work/build"
  if cmake -S "$here/project" -B "$work/build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" -DRMSNORM_COMPONENTS=cuda \
    -DRMSNORM_TARGET=rmsnorm::cuda -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON >"$work/log" 2>&1; then
    fail "the static library was found without the CUDA toolkit"
  fi
  grep -q "needs the CUDA toolkit" "$work/log" || { cat "$work/log"; fail "no helpful message without the CUDA toolkit"; }
  rm -r "$work/build"
  cmake_project -DCMAKE_PREFIX_PATH="$prefix" -DRMSNORM_COMPONENTS=cuda -DRMSNORM_TARGET=rmsnorm::cuda \
    -DCONSUMER=consumer_cuda.c -DCUDAToolkit_ROOT="${CUDA_ROOT:?}"
  expect_static
  run
  ;;
*) fail "unknown way: $way" ;;
esac
