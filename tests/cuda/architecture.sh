#!/bin/sh
# SPDX-License-Identifier: MIT
# architecture.sh ARCHITECTURE PARTS SOURCE BUILD: the library compiles for another architecture than those of BUILD, with
# warnings as errors and without spills. Every PARTSth of the kernels' objects is compiled, another part each day (or
# RMSNORM_SEED's); PARTS 1 compiles all.
set -eu
architecture=$1 parts=$2 source=$3 own=$4/variants/sm_$1
mkdir -p "$own"
cmake -S "$source" -B "$own" -DRMSNORM_CUDA=on "-DCMAKE_CUDA_ARCHITECTURES=$architecture-real" -DRMSNORM_LAB=off -DRMSNORM_MPI=off \
  -DRMSNORM_TESTS=OFF -DRMSNORM_CLI=OFF -DRMSNORM_WERROR=ON > "$own.log" 2>&1 || { cat "$own.log"; exit 1; }
today=$((${RMSNORM_SEED:-$(($(date +%s) / 86400))} % parts))
targets=$(cmake --build "$own" --target help |
  sed -n 's/^[. ]*\(rmsnorm_cuda_[a-z0-9]*_[a-z0-9_]*\)\(:.*\)\{0,1\}$/\1/p' | grep -v -E '_(objects|static|shared)$' | sort -u |
  awk -v parts="$parts" -v today="$today" 'NR % parts == today')
[ -n "$targets" ] || { echo "no kernels to compile"; exit 1; }
# shellcheck disable=SC2086 # a list
cmake --build "$own" --target $targets --parallel "${RMSNORM_BUILD_JOBS:-2}" > "$own.log" 2>&1 || { cat "$own.log"; exit 1; }
for target in $targets; do
  echo "$target"
  RMSNORM_LEAST_KERNELS=0 "$source/tests/cuda/spills.sh" "$own/src/cuda/CMakeFiles/$target.dir" "$architecture"
done
