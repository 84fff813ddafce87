/* SPDX-License-Identifier: MIT
 *
 * Programmatic dependent launch. A kernel that may start before the one ahead of it in the stream has ended
 *   - reads and writes nothing before wait_for_previous() but prefetches, which read no value;
 *   - lets the next kernel start after that: so whoever waits for it waits for all that came before it too;
 *   - reads nothing through the cache for data that no kernel writes (ld.global.nc, __ldg): what it reads may have been
 *     written while it was already there.
 * tests/cuda/early.sh looks for all three in the compiled code. */
#ifndef RMS_CUDA_START_CUH
#define RMS_CUDA_START_CUH

namespace rms_cuda {

/* What the kernel before this one wrote can be read from here on. */
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

} // namespace rms_cuda

#endif
