/* SPDX-License-Identifier: MIT
 *
 * Forward of the common case (lean_forward.cuh) for wide rows: persistent clusters of blocks walk the rows, which come
 * through a ring of stages that bulk copies fill ahead. */
#ifndef RMS_CUDA_RING_FORWARD_CUH
#define RMS_CUDA_RING_FORWARD_CUH

#include "lean_forward.cuh"
#include "lean_ring.cuh"

namespace rms_cuda {

enum { RING_TEAM = 512 };

/* The parts of a block's shared memory, in bytes from its start. */
struct ForwardShared {
  int weight, chunk, mail, barrier, total; /* the ring is at the start */
};
template <int NV, bool RESIDUAL, int PANELS>
__host__ __device__ constexpr ForwardShared forward_shared(int threads, int stages) {
  ForwardShared s = {};
  s.weight = stages * (RESIDUAL ? 2 : 1) * threads * NV * 16;
  s.chunk = s.weight + threads * NV * 16;
  s.mail = s.chunk + 2 * PANELS * 32 * 4;
  s.barrier = s.mail + 2 * PANELS * MAX_CLUSTER * 4;
  s.total = s.barrier + (stages + 2) * 8;
  return s;
}

template <class T, int NV, bool LAYER, bool RESIDUAL, bool OPTIONS>
__global__ void __launch_bounds__(RING_TEAM, OPTIONS || NV == 8 ? 1 : 2)
    ring_forward_kernel(const __grid_constant__ LeanForward p) {
  constexpr int V = vector_of<T>, PANELS = NV * RING_TEAM / PANEL;
  extern __shared__ __align__(128) char shared[];
  const int team = RING_TEAM, cells = team * NV, stages = p.stages, t = (int)threadIdx.x;
  const ForwardShared where = forward_shared<NV, RESIDUAL, PANELS>(team, stages);
  const int rank = (int)(blockIdx.x % (unsigned)p.cluster), share = (int)(blockIdx.x / (unsigned)p.cluster);
  const int own = p.vectors - rank * cells < cells ? p.vectors - rank * cells : cells; /* of this block */
  const int stage_bytes = (RESIDUAL ? 2 : 1) * cells * 16;
  const int64_t at = (int64_t)rank * cells * 16;
  uint64_t *full = reinterpret_cast<uint64_t *>(shared + where.barrier);
  float *chunks = reinterpret_cast<float *>(shared + where.chunk);
  RowSums<NV, 1, PANELS, true> sums = {chunks,
                                       reinterpret_cast<float *>(shared + where.mail),
                                       full + stages,
                                       place_of_lane<1, PANELS, NV>(t / 32, team / 32),
                                       0,
                                       team,
                                       p.cluster,
                                       rank,
                                       0,
                                       0};
  const int rounds = (int)((p.rows - share + p.shares - 1) / p.shares);
  if (t == 0) start_barriers(full, stages + 2);
  /* what no copy and no sum will write */
  for (int i = t; i < 2 * PANELS * 32; i += team)
    chunks[i] = 0;
  for (int i = own + t; i < cells; i += team)
    for (int s = 0; s < stages * (RESIDUAL ? 2 : 1); s++)
      *reinterpret_cast<uint4 *>(shared + (s * cells + i) * 16) = make_uint4(0, 0, 0, 0);
  __syncthreads();
  cluster_arrive();
  wait_for_previous();

  auto request = [&](int round, int stage) {
    const RowPlace place = place_of_row<OPTIONS>(p.inner, share + (int64_t)round * p.shares);
    char *to = shared + stage * stage_bytes;
    expect_bytes(full + stage, own * (RESIDUAL ? 32 : 16));
    copy_bulk<true>(to, row_at<OPTIONS>(p.x, place) + at, own * 16, full + stage);
    if (RESIDUAL) copy_bulk<true>(to + cells * 16, row_at<OPTIONS>(p.residual, place) + at, own * 16, full + stage);
  };
  const bool issuer = t == team - 32; /* not of the first warp, which sends the sums to the other blocks */
  if (issuer)
#pragma unroll 1
    for (int i = 0; i < stages && i < rounds; i++)
      request(i, i);
  uint4 *weights = reinterpret_cast<uint4 *>(shared + where.weight) + t; /* each thread reads what it wrote */
  const bool packed_weight = p.weight && !(OPTIONS && p.weight_wide);
  const bool kept = packed_weight && !(OPTIONS && p.weight_inner != 0); /* the same for all rows */
  if (kept) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (t + i * team < own) weights[i * team] = load_shared_by_rows(p.weight + at + (t + i * team) * 16);
  }
  cluster_wait();

  int stage = 0, turn = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const int64_t row = share + (int64_t)round * p.shares;
    const RowPlace place = place_of_row<OPTIONS>(p.inner, row);
    wait_for_copies(full + stage, turn);
    const uint4 *cell = reinterpret_cast<const uint4 *>(shared + stage * stage_bytes) + t;
    Packed<T, V> x[NV];
    Statistic<float> st = {0, 0, 0, 0, 1};
    float a[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      take_cell(x[i], cell + i * team);
    if (RESIDUAL) {
      char *sum_at = p.sum.data ? row_at<OPTIONS>(p.sum, place) + at + t * 16 : nullptr;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        Packed<T, V> residual;
        take_cell(residual, cell + cells + i * team);
        add_vector(x[i], residual);
        if (sum_at && t + i * team < own) store_vector<true>(sum_at + i * team * 16, x[i], V);
      }
    }
    auto count = [&](int i) -> int { return counted<OPTIONS, T>(p, rank * cells + t + i * team); };
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[i] = sum_of_vector<!LAYER, LAYER, false, OPTIONS>(x[i], count(i), 1, 0);
    keep_packed(x);
    sums.template publish<Add>(a);
    if (LAYER && issuer && round + stages < rounds) request(round + stages, stage); /* all have read the stage */
    st.sum = sums.template collect<Add>().x;
    if (LAYER) {
      st.mean = divided(st.sum, p.k, p.inverse_k);
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[i] = t + i * team < own ? sum_of_vector<true, LAYER, false, OPTIONS>(x[i], count(i), 1, st.mean) : 0.0f;
      keep_packed(x);
      st.sum = sums.template of<Add>(a).x;
    }
    if (__builtin_expect(in_range(st.sum), 1)) {
      st.r = root_of<OPTIONS>(p, st.sum);
    } else {
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[i] = largest_of_vector<OPTIONS>(x[i], count(i));
      keep_packed(x);
      st.scale = scale_for(sums.template of<Max>(a).x, p.eps_limit);
      if (LAYER) {
#pragma unroll
        for (int i = 0; i < NV; i++)
          a[i] = sum_of_vector<false, LAYER, true, OPTIONS>(x[i], count(i), st.scale, 0);
        keep_packed(x);
        st.mean = quotient(sums.template of<Add>(a).x, p.k);
      }
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[i] = t + i * team < own ? sum_of_vector<true, LAYER, true, OPTIONS>(x[i], count(i), st.scale, st.mean) : 0.0f;
      keep_packed(x);
      st.sum = sums.template of<Add>(a).x;
      st.r = scaled_root_of<OPTIONS>(p, st.sum, st.scale);
    }
    if (t == 0 && rank == 0) write_statistic(p, row, st);
    char *y_at = row_at<OPTIONS>(p.y, place) + at + t * 16;
    const int64_t skip = weight_skip<OPTIONS>(p, row);
    auto finish_row = [&](auto before) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (t + i * team >= own) continue;
        Packed<T, V> out, weight;
        if (!OPTIONS || kept)
          take_cell(weight, weights + i * team);
        else if (packed_weight)
          load_vector<true, false>(weight, p.weight + skip + at + (t + i * team) * 16, V);
        finish_vector<LAYER, OPTIONS, before>(p, x[i], st, weight, skip, rank * cells + t + i * team, out);
        store_vector<true>(y_at + i * team * 16, out, V);
      }
    };
    if (OPTIONS && p.before)
      finish_row(std::true_type());
    else
      finish_row(std::false_type());
    if (!LAYER && issuer && round + stages < rounds) request(round + stages, stage); /* later is quicker */
    if (++stage == stages) stage = 0, turn ^= 1;
    if (round + 2 == rounds) let_next_start();
  }
}

} // namespace rms_cuda

#endif
