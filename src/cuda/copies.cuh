/* SPDX-License-Identifier: MIT
 *
 * Copies from memory to shared memory that the threads do not wait for, and the barriers that count them.
 *
 * A ring of stages in shared memory is filled ahead. On sm_90 and later one thread asks for a whole row by bulk copies,
 * which count their bytes on a barrier. In code for older chips every thread asks for its own 16-byte cells, and reads
 * back nothing else. */
#ifndef RMS_CUDA_COPIES_CUH
#define RMS_CUDA_COPIES_CUH

#include "element.cuh"

namespace rms_cuda {

/* ---- cells of one thread ---- */

/* 16 bytes to shared memory: from `from`, or zeros where bytes is 0. */
__device__ __forceinline__ void copy_ahead(void *shared, const char *from, int bytes) {
  uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* The same of 4 bytes. */
__device__ __forceinline__ void copy_word_ahead(float *shared, const float *from, int bytes) {
  uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void end_of_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the newest `stages - 1` sets of copies have landed. */
__device__ __forceinline__ void wait_for_stage(int stages) {
  if (stages == 4)
    asm volatile("cp.async.wait_group 3;" ::: "memory");
  else if (stages == 3)
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  else if (stages == 2)
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  else
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ void wait_for_all_copies() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* What lies in cells that are `pitch` apart. */
template <class S, int V> __device__ __forceinline__ void take_cell(Packed<S, V> &v, const uint4 *cell, int pitch = 0) {
#pragma unroll
  for (int c = 0; c < Packed<S, V>::words / 4; c++) {
    const uint4 q = cell[c * pitch];
    v.w[4 * c] = q.x, v.w[4 * c + 1] = q.y, v.w[4 * c + 2] = q.z, v.w[4 * c + 3] = q.w;
  }
}

/* ---- barriers that count bytes ---- */

__device__ __forceinline__ void start_barrier(uint64_t *barrier) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  (void)barrier;
#endif
}

/* By one thread. Not inlined: a predicated initialisation is taken for one of every thread by racecheck. */
static __device__ __noinline__ void start_barriers(uint64_t *barrier, int count) {
#pragma unroll 1
  for (int i = 0; i < count; i++)
    start_barrier(barrier + i);
}

/* Before expect_bytes(), which is the last word. */
__device__ __forceinline__ void expect_more_bytes(uint64_t *barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
#else
  (void)barrier, (void)bytes;
#endif
}

__device__ __forceinline__ void expect_bytes(uint64_t *barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
#else
  (void)barrier, (void)bytes;
#endif
}

/* ---- bulk copies ---- */

/* One thread copies `bytes` (a multiple of 16) to shared memory; they count on the barrier `full`. ONCE: nobody reads
 * them again; the hint of read_policy() helps the forward and, measured, that of leaving first hurts the backward. */
template <bool ONCE>
__device__ __forceinline__ void copy_bulk(void *shared, const char *from, int bytes, uint64_t *full) {
#if __CUDA_ARCH__ >= 900
  uint32_t to = (uint32_t)__cvta_generic_to_shared(shared), barrier = (uint32_t)__cvta_generic_to_shared(full);
  if (ONCE) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(read_policy<true>())
        : "memory");
    return;
  }
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
#else
  (void)shared, (void)from, (void)bytes, (void)full;
#endif
}

__device__ __forceinline__ void wait_for_copies(uint64_t *full, int parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(full), done = 0;
  while (!done)
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
#else
  (void)full, (void)parity;
#endif
}

/* What threads wrote to shared memory can be copied from there, once all have said so and passed a barrier. */
__device__ __forceinline__ void share_with_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* One thread copies `bytes` (a multiple of 16) from shared memory, which stays there until wait_for_stores(). */
__device__ __forceinline__ void store_bulk(char *to, const void *shared, int bytes) {
#if __CUDA_ARCH__ >= 900
  uint32_t from = (uint32_t)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  (void)to, (void)shared, (void)bytes;
#endif
}
__device__ __forceinline__ void wait_for_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

/* ---- prefetches ---- */

/* Bring what a kernel will read first to L2. No value is read, so they may come before the wait for the kernel that
 * writes it. */
__device__ __forceinline__ void prefetch_bulk(const char *from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
  (void)from, (void)bytes;
#endif
}
__device__ __forceinline__ void prefetch_line(const char *from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

} // namespace rms_cuda

#endif
