#!/bin/bash
# SPDX-License-Identifier: MIT
#
# On a machine with a GPU: builds the CUDA library, checks it, sanitizes it, times it, and writes docs/gpu-results.md.
#
#   scripts/gpu.sh [FOLDER]            everything; logs go to FOLDER (default: build-gpu/log)
#   STEPS="build check" scripts/gpu.sh   some of: build bench check sanitize mutate report
#   COMMIT=...                          what is written where there is no git repository
set -u
cd "$(dirname "$0")/.."
log=${1:-build-gpu/log}
steps=${STEPS:-build bench check sanitize mutate report}
arch=${ARCH:-90-real}
mkdir -p "$log"
export PATH=$PATH:/usr/local/cuda/bin
has() { [[ " $steps " == *" $1 "* ]]; }
failed=0

if has build; then
  generator=(); command -v ninja >/dev/null && generator=(-G Ninja)
  cmake -S . -B build-gpu "${generator[@]}" -DRMSNORM_CUDA=on -DRMSNORM_LAB=off -DRMSNORM_MPI=off -DRMSNORM_VARIANTS=OFF \
    "-DCMAKE_CUDA_ARCHITECTURES=$arch" >"$log/cmake.txt" 2>&1 || { cat "$log/cmake.txt"; exit 1; }
  start=$SECONDS
  cmake --build build-gpu --target rmsnorm_command cuda_gpu cuda_old_code cuda_shared cuda_nccl cuda_nccl_real -j "$(nproc)" >"$log/build.txt" 2>&1 ||
    { tail -60 "$log/build.txt"; exit 1; }
  echo "built in $((SECONDS - start)) s"
fi
gpu_test=$(find build-gpu -name cuda_gpu -type f | head -1)
if has bench; then
  ./build-gpu/rmsnorm bench --device cuda ${PROBLEMS:-} >"$log/bench.txt" 2>&1 || failed=1
  cat "$log/bench.txt"
fi
if has check; then
  start=$SECONDS
  {
    for test in old_code shared nccl; do
      "$(dirname "$gpu_test")/cuda_$test" || failed=1
    done
    nccl=${RMSNORM_NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null)} # torch's
    RMSNORM_NCCL=$nccl "$(dirname "$gpu_test")/cuda_nccl_real" || [ $? = 77 ] || failed=1
    # Side by side: most of the time is the oracle's, on the host. Small shares keep all processors busy to the end.
    shares=$((8 * $(nproc)))
    rm -f "$log"/share.*
    seq 0 $((shares - 1)) | xargs -P "$(nproc)" -I{} \
      sh -c '"$1" $4 --share {}/$3 >"$2/share.{}" 2>&1' share "$gpu_test" "$log" "$shares" "${CHECK:-}" || failed=1
    grep -h FAILED "$log"/share.*
    grep -hE '^[0-9]+ checks, [0-9]+ failures$' "$log"/share.* | awk '{ checks += $1; failures += $3; done++ } END {
      printf "tests/cuda/gpu.cu, %d of '$shares' shares: %d checks, %d failures\n", done, checks, failures }'
    ./build-gpu/rmsnorm check --device cuda --quiet ${CHECK:+--short} && echo "rmsnorm check --device cuda: all within their bounds" || failed=1
  } >"$log/check.txt" 2>&1
  tail -50 "$log/check.txt"
  echo "checked in $((SECONDS - start)) s"
fi
sanitize() { # TOOL
  local start=$SECONDS code
  timeout "${SANITIZE_LIMIT:-300}" compute-sanitizer --tool "$1" --error-exitcode 9 "$gpu_test" --small >"$log/$1.txt" 2>&1
  code=$?
  echo "$1: exit $code, $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log/$1.txt" | tail -1), $((SECONDS - start)) s"
  return $code
}
if has sanitize; then
  jobs=()
  for tool in memcheck racecheck initcheck synccheck; do
    sanitize "$tool" >"$log/$tool.line" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  cat "$log"/*.line | tee "$log/sanitize.txt"
fi
if has mutate; then # planted errors: those of src/cuda that the small set of tests must catch
  start=$SECONDS
  tests/cuda/mutation.sh . build-gpu build-gpu/mutation >"$log/mutation.txt" 2>&1 || failed=1
  cat "$log/mutation.txt"
  echo "planted in $((SECONDS - start)) s"
fi
if has report; then
  {
    echo "# GPU results"
    echo
    commit=${COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null)$(git diff --quiet HEAD 2>/dev/null || echo ", with changes")}
    echo "Made by \`scripts/gpu.sh\` on $(date -u +%Y-%m-%d) from commit ${commit:-unknown}. Every figure is from one run on this machine:"
    echo
    echo '```'
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory --format=csv
    nvcc --version | tail -2
    ./build-gpu/rmsnorm info | grep -A3 -i -E 'rmsnorm|cuda'
    echo '```'
    echo
    echo "## Checks (\`tests/cuda/gpu.cu${CHECK:+ $CHECK}\`)"
    echo
    echo '```'
    tail -16 "$log/check.txt"
    cat "$log/sanitize.txt" 2>/dev/null
    echo '```'
    echo
    echo "## Planted errors (\`tests/cuda/mutation.sh\`)"
    echo
    echo '```'
    cat "$log/mutation.txt" 2>/dev/null
    echo '```'
    echo
    echo "## Speed (\`rmsnorm bench --device cuda\`)"
    echo
    echo "- Method: CUDA graph replay over rotating buffers (inputs and outputs) of at least 640 MB or 1024 sets, median of 15 replays;"
    echo "  spread: second lowest to second highest. \"warm\" uses the same buffers over and over, so that they stay in L2."
    echo "- GB/s counts the bytes that must move. \"copy\" is the fastest copy with the same mix of reads and writes, \"share\" the"
    echo "  fraction of its speed, \"host\" the microseconds after which a call returns."
    echo "- The library's kernels overlap their starts with the end of the kernel before them (programmatic dependent launch); the"
    echo "  copies do not."
    echo
    echo '```'
    cat "$log/bench.txt"
    echo '```'
    echo
    echo '`docs/cuda.md` says what limits the targets that are missed.'
  } >"$log/gpu-results.md"
  cp "$log/gpu-results.md" docs/gpu-results.md
fi
exit $failed
