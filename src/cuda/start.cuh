/* SPDX-License-Identifier: MIT
 *
 * Programmatic dependent launch. A kernel that may start before the one ahead of it in the stream has ended
 *   - reads and writes nothing before wait_for_previous() but prefetches, which read no value;
 *   - lets the next kernel start after that: when a kernel starts, all that came before the call ahead of it has ended.
 *     finish_kernel alone lets it start at once. It starts itself only after every block of the backward ahead of it
 * has waited, so that this holds for what comes after it as well; and whoever waits for it waits for that backward too.
 *     Between backwards of a sequence this is worth 1.5 to 2 us each;
 *   - reads nothing through the cache for data that no kernel writes (ld.global.nc, __ldg): what it reads may have been
 *     written while it was already there.
 * tests/cuda/early.sh looks for all of this in the compiled code. */
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
