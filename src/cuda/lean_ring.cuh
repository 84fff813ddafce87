/* SPDX-License-Identifier: MIT
 *
 * What persistent kernels need that walk rows through a ring of stages in shared memory: barriers that count copied
 * bytes, and sums over one row after the other. */
#ifndef RMS_CUDA_LEAN_RING_CUH
#define RMS_CUDA_LEAN_RING_CUH

#include "lean.cuh"

namespace rms_cuda {

/* By one thread. Not inlined: a predicated initialisation is taken for one of every thread by racecheck. */
static __device__ __noinline__ void start_barriers(uint64_t *barrier, int count) {
#pragma unroll 1
  for (int i = 0; i < count; i++)
    start_mailbox(barrier + i);
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

template <class T, int V> __device__ __forceinline__ void take_cell(Packed<T, V> &v, const uint4 *cell) {
  uint4 q = *cell;
  v.w[0] = q.x, v.w[1] = q.y, v.w[2] = q.z, v.w[3] = q.w;
}

/* Sums over the rows of a team: publish, then collect. Two buffers in turn: a team, or block of a cluster, can be one
 * sum ahead of another, never two. */
template <int NV, int SUMS, int PANELS, bool CLUSTER> struct RowSums {
  float *chunk, *mail;
  uint64_t *mailbox;
  int place, group, team, cluster, rank;
  int phase, parity;

  template <class Op> __device__ __forceinline__ void publish(float (&v)[SUMS * NV]) {
    float sum = fold<Op>(v);
    if (place >= 0) chunk[phase * (SUMS * PANELS * 32) + place] = sum;
    team_sync(group, team);
  }
  template <class Op> __device__ __forceinline__ float2 collect() {
    const float part = panel_sums<Op, SUMS, PANELS>(chunk + phase * (SUMS * PANELS * 32));
    float2 sum = make_float2(0, 0);
    if (!CLUSTER) {
      sum.x = over_panels<Op, SUMS, PANELS>(part, 0);
      if (SUMS == 2) sum.y = over_panels<Op, SUMS, PANELS>(part, 1);
    } else {
      constexpr int places = PANELS * MAX_CLUSTER;
      float *box = mail + phase * SUMS * places;
      const int lane = (int)threadIdx.x & 31, g = lane >> 3, peer = lane & 7;
      if (threadIdx.x < 32 && g < SUMS * PANELS && peer < cluster)
        send_to_block(box + g / PANELS * places + rank * PANELS + g % PANELS, mailbox + phase, peer, part);
      if (threadIdx.x == 0) expect_bytes(mailbox + phase, cluster * PANELS * SUMS * 4);
      wait_for_mail(mailbox + phase, parity);
      sum.x = over_mail<Op>(box, cluster * PANELS);
      if (SUMS == 2) sum.y = over_mail<Op>(box + places, cluster * PANELS);
      parity ^= phase;
    }
    phase ^= 1;
    return sum;
  }
  template <class Op> __device__ __forceinline__ float2 of(float (&v)[SUMS * NV]) {
    publish<Op>(v);
    return collect<Op>();
  }
};

} // namespace rms_cuda

#endif
