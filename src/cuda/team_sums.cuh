/* SPDX-License-Identifier: MIT
 *
 * Sums over one row after the other, for persistent kernels: the threads of a team, and where a cluster shares the row
 * its blocks, with one barrier for each sum. */
#ifndef RMS_CUDA_TEAM_SUMS_CUH
#define RMS_CUDA_TEAM_SUMS_CUH

#include "copies.cuh"
#include "plan.h"
#include "sum.cuh"

namespace rms_cuda {

static_assert(WIDE_CLUSTER * BACKWARD_TEAM * BACKWARD_VECTORS <= PORTION * PANEL, "rows of one portion");

/* The threads of one team; teams of a block have barriers of their own. */
__device__ __forceinline__ void team_sync(int which, int threads) {
  if (threads == 32)
    __syncwarp();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(which + 1), "r"(threads) : "memory");
}

/* ---- clusters: blocks of one row see each other's shared memory ---- */

__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* Blocks of a cluster exchange sums by asynchronous stores that count bytes on a barrier in the receiver's shared
 * memory, its mailbox: a cluster-wide barrier would wait for the rows that are still being written as well. */
__device__ __forceinline__ void send_to_block(float *mine, uint64_t *mailbox, int rank, float value) {
#if __CUDA_ARCH__ >= 900
  uint32_t local = (uint32_t)__cvta_generic_to_shared(mine), box = (uint32_t)__cvta_generic_to_shared(mailbox), to,
           to_box;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(local), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to_box) : "r"(box), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
               "r"(__float_as_uint(value)), "r"(to_box)
               : "memory");
#else
  (void)mine, (void)mailbox, (void)rank, (void)value;
#endif
}

__device__ __forceinline__ void wait_for_mail(uint64_t *mailbox, int parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(mailbox), done = 0;
  while (!done)
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n selp.u32 "
                 "%0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
#else
  (void)mailbox, (void)parity;
#endif
}

/* What the blocks of a cluster sent: `count` panel sums in increasing order, four at a time. Behind them are exact
 * zeros, which change no sum. */
template <class Op> __device__ __forceinline__ float over_mail(const float *mail, int count) {
  float total = exact_zero;
#pragma unroll 1
  for (int i = 0; i < count; i += 4) {
    const float4 four = *reinterpret_cast<const float4 *>(mail + i);
    total = Op::of(Op::of(Op::of(Op::of(total, four.x), four.y), four.z), four.w);
  }
  return total;
}

/* The panels of a portion in increasing order. Behind them are exact zeros, which change no sum. */
template <class Op> __device__ __forceinline__ float over_portion(const float *mail) {
  float4 four[PORTION / 4];
  float total = exact_zero;
#pragma unroll
  for (int i = 0; i < PORTION / 4; i++)
    four[i] = reinterpret_cast<const float4 *>(mail)[i];
#pragma unroll
  for (int i = 0; i < PORTION / 4; i++)
    total = Op::of(Op::of(Op::of(Op::of(total, four[i].x), four[i].y), four[i].z), four[i].w);
  return total;
}

/* The same of a row of `panels` panels, for which there is room for PORTIONS portions, a power of two: a lane has one
 * of them first. */
template <class Op, int PORTIONS> __device__ __forceinline__ float over_portions(const float *mail, int panels) {
  if (PORTIONS <= 1 || panels <= PORTION) return over_mail<Op>(mail, panels);
  const float own = over_portion<Op>(mail + ((int)threadIdx.x & (PORTIONS - 1)) * PORTION);
  double total = -0.0; /* so that a sum of exact zeros stays one */
#pragma unroll 1
  for (int i = 0; i * PORTION < panels; i++)
    total = Op::of(total, (double)__shfl_sync(whole_warp, own, i));
  return (float)total;
}

/* ---- a sum ---- */

/* Publish, then collect. Two buffers in turn: a team, or block of a cluster, can be one sum ahead of another, never
 * two. */
template <int NV, int SUMS, int PANELS, bool CLUSTER> struct TeamSums {
  float *chunk, *mail;
  uint64_t *mailbox;
  int place; /* of this lane's chunk sums */
  int which; /* team of the block         */
  int team;  /* its threads               */
  int cluster, rank;
  int phase, parity;

  /* Numbers that each block sends, and so many for each block in a mailbox. */
  static constexpr int boxes = SUMS * PANELS;
  static constexpr int peers = WIDE_CLUSTER; /* blocks that there is room for */
  static_assert(!CLUSTER || boxes <= 4, "eight or sixteen lanes for each");
  static constexpr int mail_places = 2 * boxes * peers;

  /* What nobody will send to the teams of a block. By all of its threads, before the barriers of its start. */
  static __device__ __forceinline__ void clear_mail(float *mail, int teams = 1) {
    for (int i = (int)threadIdx.x; i < teams * mail_places; i += (int)blockDim.x)
      mail[i] = exact_zero;
  }

  template <class Op> __device__ __forceinline__ void publish(float (&v)[SUMS * NV]) {
    float sum = fold<Op>(v);
    if (place >= 0) chunk[phase * (SUMS * PANELS * 32) + place] = sum;
    team_sync(which, team);
  }
  template <class Op> __device__ __forceinline__ float2 collect() {
    const float part = panel_sums<Op, SUMS, PANELS>(chunk + phase * (SUMS * PANELS * 32));
    float2 sum = make_float2(0, 0);
    if (!CLUSTER) {
      sum.x = over_panels<Op, SUMS, PANELS>(part, 0);
      if (SUMS == 2) sum.y = over_panels<Op, SUMS, PANELS>(part, 1);
    } else {
      constexpr int places = PANELS * peers;
      float *box = mail + phase * boxes * peers;
      /* every eight lanes have another sum, and of two sums every sixteen have both again */
      const int thread = (int)threadIdx.x - which * team, lane = thread & 31,
                g = boxes <= 2 ? lane >> 3 & 1 : lane >> 3,
                peer = boxes <= 2 ? (lane & 7) | (lane >> 4) << 3 : lane & 7;
      if (thread < 32 && g < boxes && peer < cluster)
        send_to_block(box + g / PANELS * places + rank * PANELS + g % PANELS, mailbox + phase, peer, part);
      if (boxes > 2 && thread < 32 && peer + 8 < cluster)
        send_to_block(box + g / PANELS * places + rank * PANELS + g % PANELS, mailbox + phase, peer + 8, part);
      if (thread == 0) expect_bytes(mailbox + phase, cluster * boxes * 4);
      wait_for_mail(mailbox + phase, parity);
      sum.x = over_portions<Op, places / PORTION>(box, cluster * PANELS);
      if (SUMS == 2) sum.y = over_portions<Op, places / PORTION>(box + places, cluster * PANELS);
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
