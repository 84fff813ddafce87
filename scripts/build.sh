#!/bin/sh
# SPDX-License-Identifier: MIT
#
# build.sh BUILD JOBS TARGET CMAKE_ARGUMENT...: configures the folder BUILD and builds TARGET with JOBS compilers. Prints one
# line, with progress on a terminal. The output of the tools goes to BUILD/build.log and is shown if they fail.
set -eu
build=$1 jobs=$2 target=$3
shift 3
unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs this
mkdir -p "$build"
log=$build/build.log

# The generator and the launcher of the compiler can be chosen for a new build folder only.
set -- -S . -B "$build" "$@"
if [ ! -e "$build/CMakeCache.txt" ]; then
  if command -v ninja >/dev/null; then set -- -G Ninja "$@"; fi
  if command -v ccache >/dev/null; then
    set -- -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache "$@"
  fi
fi
# So that the builds inside tests, and another checkout, find what is compiled here.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$PWD"
if ! cmake "$@" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi

counted() { # the tools' lines; shows "[12/34]" of ninja and "[ 12%]" of make
  if [ -t 1 ]; then
    awk -v log_file="$log" '
      { print >>log_file; fflush(log_file) }
      match($0, /^\[[^]]*\]/) { printf "\r\033[Kbuilding %s", substr($0, RSTART, RLENGTH); fflush() }
      END { printf "\r\033[K" }'
  else
    cat >>"$log"
  fi
}
start=$(date +%s)
failed=$log.failed
rm -f "$failed"
{ cmake --build "$build" --parallel "$jobs" --target "$target" 2>&1 || touch "$failed"; } | counted
if [ -e "$failed" ]; then
  rm -f "$failed"
  tail -n 60 "$log" >&2
  exit 1
fi
echo "built in $(($(date +%s) - start)) s (details: $log)"
