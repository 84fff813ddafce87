/* SPDX-License-Identifier: MIT
 *
 * The order of every sum over a segment. It is defined on elements, so that it is the same for every division of the
 * work:
 *
 *   vector   16 bytes of the data type: one chain of fma (or additions) in increasing order from zero
 *   chunk    32 vectors: l with l+16, then l+8, l+4, l+2, l+1
 *   panel    32 chunks, in the same way
 *   segment  its panels in increasing order
 *
 * What is missing counts as zeros. A team of 2^n < 32 lanes, a warp, a block or a cluster of blocks may share a
 * segment. */
#ifndef RMS_CUDA_SUM_CUH
#define RMS_CUDA_SUM_CUH

#include "element.cuh"

namespace rms_cuda {

constexpr unsigned whole_warp = 0xffffffffu;

struct Add {
  template <class R> static __device__ __forceinline__ R of(R a, R b) { return a + b; }
};
struct Max {
  template <class R> static __device__ __forceinline__ R of(R a, R b) { return a > b ? a : b; }
};

template <class Op, class R> __device__ __forceinline__ R butterfly(R a, int from, int down_to) {
  for (int o = from; o >= down_to; o >>= 1)
    a = Op::of(a, __shfl_xor_sync(whole_warp, a, o));
  return a;
}

/* ---- clusters: blocks of one segment see each other's shared memory ---- */

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
 * memory: a cluster-wide barrier would wait for the rows that are still being written as well. */
__device__ __forceinline__ void start_mailbox(uint64_t *mailbox) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(mailbox);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  (void)mailbox;
#endif
}

__device__ __forceinline__ void expect_bytes(uint64_t *mailbox, int bytes) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(mailbox);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
#else
  (void)mailbox, (void)bytes;
#endif
}

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

/* ---- the team of a tuned kernel ---- */

/* Which part of its segment a thread has: vectors first + i*team, i < NV. */
struct Team {
  int threads, cluster;
  int thread, rank; /* place in the block's part, and which block    */
  int phase;        /* bit 0: buffer in turn; bit 1: parity of its mailbox */
  float *chunks;    /* [phase][pitch], shared: chunk sums of the segment */
  int pitch;
  uint64_t *mailbox; /* [2], shared: clusters only                      */
};

/* Sums NV vector sums a[i], each over the 32 lanes of the warp, all at once: on return lane l has that of
 * i = l >> (5 - log2 NV). The additions are those of NV butterflies. */
template <class Op, int NV> __device__ __forceinline__ float fold(float (&a)[NV]) {
  int lane = threadIdx.x & 31, o = 16;
#pragma unroll
  for (int n = NV / 2; n >= 1; n /= 2) {
    bool upper = (lane & o) != 0;
#pragma unroll
    for (int j = 0; j < n; j++) {
      float send = upper ? a[j] : a[j + n], keep = upper ? a[j + n] : a[j];
      a[j] = Op::of(keep, __shfl_xor_sync(whole_warp, send, o));
    }
    o >>= 1;
  }
  return butterfly<Op>(a[0], o, 1);
}

template <class Op, int NV> __device__ __forceinline__ float sum_of_lanes(const Team &team, float (&a)[NV]) {
#pragma unroll
  for (int n = NV / 2; n >= 1; n /= 2)
#pragma unroll
    for (int j = 0; j < n; j++)
      a[j] = Op::of(a[j], a[j + n]);
  return butterfly<Op>(a[0], team.threads / 2, 1);
}

template <class Op, int NV> __device__ __forceinline__ void publish_chunks(const Team &team, float *chunks, float sum) {
  constexpr int copies = 32 / NV; /* lanes that hold the same chunk sum */
  int lane = threadIdx.x & 31, warps = team.threads / 32;
  int chunk = (team.rank * NV + lane / copies) * warps + team.thread / 32;
  float *slot = chunks + chunk;
  if (team.cluster == 1) {
    if (lane % copies == 0) *slot = sum;
  } else {
#pragma unroll 1
    for (int peer = lane % copies; peer < team.cluster; peer += copies)
      send_to_block(slot, team.mailbox + (team.phase & 1), peer, sum);
  }
}

template <class Op> __device__ __forceinline__ float gather_chunks(const Team &team, const float *chunk) {
  const int lane = (int)threadIdx.x & 31;
  float sum = butterfly<Op>(lane < team.pitch ? chunk[lane] : 0.0f, 16, 1);
#pragma unroll 1
  for (int panel = 32; panel < team.pitch; panel += 32)
    sum = Op::of(sum, butterfly<Op>(panel + lane < team.pitch ? chunk[panel + lane] : 0.0f, 16, 1));
  return sum;
}

/* The chunk sums of all threads, `buffers` numbers a chunk, are there. */
__device__ __forceinline__ void team_barrier(Team &team, int buffers) {
  if (team.cluster == 1) {
    __syncthreads();
  } else {
    if (threadIdx.x == 0) expect_bytes(team.mailbox + (team.phase & 1), team.pitch * 4 * buffers);
    wait_for_mail(team.mailbox + (team.phase & 1), team.phase >> 1);
  }
}

/* The other buffer; after both, the other parity. */
__device__ __forceinline__ void next_phase(Team &team) {
  team.phase = (team.phase & 1) ? (team.phase ^ 3) : (team.phase ^ 1);
}

/* The sum (or maximum) over the segment of the vectors' a[i]; every thread of the team gets it. Two buffers in turn: a
 * block can be one reduction ahead of another, never two. */
template <class Op, int NV> __device__ __forceinline__ float reduce(Team &team, float (&a)[NV]) {
  if (team.threads < 32) return sum_of_lanes<Op>(team, a);
  float sum = fold<Op>(a);
  if (team.threads == 32) return butterfly<Op>(sum, 16, 32 / NV);
  float *chunks = team.chunks + (team.phase & 1) * team.pitch;
  publish_chunks<Op, NV>(team, chunks, sum);
  team_barrier(team, 1);
  sum = gather_chunks<Op>(team, chunks);
  next_phase(team);
  return sum;
}

/* Two sums at the price of one barrier; team.chunks has room for two more phases. */
template <int NV> __device__ __forceinline__ float2 reduce_two(Team &team, float (&a)[NV], float (&b)[NV]) {
  if (team.threads < 32) return make_float2(sum_of_lanes<Add>(team, a), sum_of_lanes<Add>(team, b));
  float sum = fold<Add>(a), other = fold<Add>(b);
  if (team.threads == 32) return make_float2(butterfly<Add>(sum, 16, 32 / NV), butterfly<Add>(other, 16, 32 / NV));
  float *chunks = team.chunks + (team.phase & 1) * team.pitch, *more = chunks + 2 * team.pitch;
  publish_chunks<Add, NV>(team, chunks, sum);
  publish_chunks<Add, NV>(team, more, other);
  team_barrier(team, 2);
  next_phase(team);
  return make_float2(gather_chunks<Add>(team, chunks), gather_chunks<Add>(team, more));
}

/* Whether any team of the warp says yes; within a bigger team all say the same. */
__device__ __forceinline__ bool any_team(const Team &team, bool yes) {
  return team.threads < 32 ? __any_sync(whole_warp, yes) != 0 : yes;
}

} // namespace rms_cuda

#endif
