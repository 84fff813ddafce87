/* SPDX-License-Identifier: MIT
 *
 * Forward of wide aligned rows: persistent clusters of blocks walk the rows, which come through a ring of stages that
 * bulk copies fill ahead. Template parameters as in forward_steps.cuh. */
#ifndef RMS_CUDA_FORWARD_CLUSTER_CUH
#define RMS_CUDA_FORWARD_CLUSTER_CUH

#include "forward_steps.cuh"
#include "plan.h"
#include "start.cuh"
#include "team_sums.cuh"

namespace rms_cuda {

/* A block of a cluster: its shared memory, and which part of which rows it has. */
template <class T, class S, int NV, bool RESIDUAL, bool OPTIONS> struct ForwardBlock {
  static constexpr int V = vector_of<T>, PANELS = NV * CLUSTER_FORWARD_THREADS / PANEL;
  static constexpr int team = CLUSTER_FORWARD_THREADS, cells = team * NV;
  static constexpr int residual_cells = RESIDUAL ? V * (int)sizeof(S) / 16 : 0; /* of 16 bytes, in a vector */
  static constexpr int stage_bytes = (1 + residual_cells) * cells * 16;
  static constexpr bool keeps_weights = sizeof(S) == sizeof(T); /* there is room for them in shared memory */
  using Sums = TeamSums<NV, 1, PANELS, true>;

  const ForwardJob &p;
  char *shared;
  int t, rank, share;
  int own; /* vectors of a row that this block has */
  bool issuer;

  __device__ __forceinline__ ForwardBlock(const ForwardJob &job, char *memory) : p(job), shared(memory) {
    t = (int)threadIdx.x;
    rank = (int)(blockIdx.x % (unsigned)p.cluster), share = (int)(blockIdx.x / (unsigned)p.cluster);
    own = p.vectors - rank * cells < cells ? p.vectors - rank * cells : cells;
    issuer = t == team - 32; /* not of the first warp, which sends the sums to the other blocks */
  }
  /* The parts of shared memory: the ring, the weights, chunk sums, mail, barriers. */
  static __host__ __device__ constexpr int weights_at(int stages) { return stages * stage_bytes; }
  static __host__ __device__ constexpr int chunks_at(int stages) {
    return weights_at(stages) + (keeps_weights ? cells * 16 : 0);
  }
  static __host__ __device__ constexpr int mail_at(int stages) { return chunks_at(stages) + 2 * PANELS * 32 * 4; }
  static __host__ __device__ constexpr int barriers_at(int stages) { return mail_at(stages) + Sums::mail_places * 4; }
  static __host__ __device__ constexpr int bytes(int stages) { return barriers_at(stages) + (stages + 2) * 8; }

  __device__ __forceinline__ uint64_t *full() const {
    return reinterpret_cast<uint64_t *>(shared + barriers_at(p.stages));
  }
  __device__ __forceinline__ uint4 *weights() const {
    return reinterpret_cast<uint4 *>(shared + weights_at(p.stages)) + t; /* each thread reads what it wrote */
  }
  __device__ __forceinline__ Sums sums() const {
    return {reinterpret_cast<float *>(shared + chunks_at(p.stages)),
            reinterpret_cast<float *>(shared + mail_at(p.stages)),
            full() + p.stages,
            place_of_lane<1, PANELS, NV>(t / 32, team / 32),
            0,
            team,
            p.cluster,
            rank,
            0,
            0};
  }
  /* Barriers, and zeros where no copy and no sum will write. */
  __device__ __forceinline__ void start() const {
    float *chunks = reinterpret_cast<float *>(shared + chunks_at(p.stages));
    if (t == 0) start_barriers(full(), p.stages + 2);
    for (int i = t; i < 2 * PANELS * 32; i += team)
      chunks[i] = 0;
    Sums::clear_mail(reinterpret_cast<float *>(shared + mail_at(p.stages)));
    for (int i = own + t; i < cells; i += team)
      for (int s = 0; s < p.stages; s++) {
        uint4 *cell = reinterpret_cast<uint4 *>(shared + s * stage_bytes);
        cell[i] = make_uint4(0, 0, 0, 0);
        for (int c = 0; c < residual_cells; c++)
          cell[cells + i * residual_cells + c] = make_uint4(0, 0, 0, 0);
      }
    __syncthreads();
  }
  __device__ __forceinline__ void request(int round, int stage) const {
    const RowPlace place = place_of_row<OPTIONS>(p.inner, share + (int64_t)round * p.shares);
    char *to = shared + stage * stage_bytes;
    const int64_t first = (int64_t)rank * cells;
    expect_bytes(full() + stage, own * 16 * (1 + residual_cells));
    copy_bulk<true>(to, row_at<OPTIONS>(p.x, place) + first * 16, own * 16, full() + stage);
    if (RESIDUAL)
      copy_bulk<true>(to + cells * 16, row_at<OPTIONS>(p.residual, place) + first * (16 * residual_cells),
                      own * (16 * residual_cells), full() + stage);
  }
  /* The row of a stage: x, or its sum with the residual, which is written. */
  __device__ __forceinline__ void take(int stage, const RowPlace &place, Packed<S, V> (&x)[NV]) const {
    const uint4 *cell = reinterpret_cast<const uint4 *>(shared + stage * stage_bytes);
    Packed<T, V> in[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      take_cell(in[i], cell + t + i * team);
    if constexpr (RESIDUAL) {
      char *sum_at = p.sum.data ? row_at<OPTIONS>(p.sum, place) + bytes_before<S, V>(rank * cells + t) : nullptr;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        Packed<S, V> residual;
        take_cell(residual, cell + cells + (t + i * team) * residual_cells, 1);
        add_residual(x[i], in[i], residual);
        if (sum_at && t + i * team < own) store_vector<true>(sum_at + bytes_before<S, V>(i * team), x[i], V);
      }
    } else {
#pragma unroll
      for (int i = 0; i < NV; i++)
        x[i] = in[i];
    }
  }
};

/* Sums over a row of the cluster. Once all threads have read the stage, which the first sum tells, LayerNorm asks for
 * the next row; RMSNorm does so at the end of a row: later is quicker. */
template <int NV, class Block> struct ClusterSums : VectorSums<ClusterSums<NV, Block>> {
  static constexpr bool cuts = false;
  const Block &block;
  typename Block::Sums &exchange;
  int next, stage; /* the row to ask for; negative: none */

  __device__ __forceinline__ ClusterSums(const Block &of, typename Block::Sums &with, int row, int to)
      : block(of), exchange(with), next(row), stage(to) {}
  __device__ __forceinline__ int vector(int i) const { return block.rank * Block::cells + block.t + i * Block::team; }
  __device__ __forceinline__ bool has(const ForwardJob &, int i) const { return block.t + i * Block::team < block.own; }
  __device__ __forceinline__ bool any(bool yes) const { return yes; }
  __device__ __forceinline__ void some(bool (&yes)[1]) {
    float a[NV] = {yes[0] ? 1.0f : 0.0f};
    yes[0] = exchange.template of<Max>(a).x != 0;
  }
  template <class Op, int USE> __device__ __forceinline__ void of(float (&sum)[1], float (&a)[1][NV]) {
    exchange.template publish<Op>(a[0]);
    if (USE == USE_MEAN && block.issuer && next >= 0) block.request(next, stage);
    sum[0] = exchange.template collect<Op>().x;
  }
};

template <class T, class S, int NV, bool LAYER, bool RESIDUAL, bool OPTIONS>
__global__ void __launch_bounds__(CLUSTER_FORWARD_THREADS, OPTIONS || NV == 8 ? 1 : 2)
    forward_cluster_kernel(const __grid_constant__ ForwardJob p) {
  using Block = ForwardBlock<T, S, NV, RESIDUAL, OPTIONS>;
  constexpr int V = Block::V, team = Block::team, cells = Block::cells;
  extern __shared__ __align__(128) char shared[];
  const Block block(p, shared);
  const int t = block.t, own = block.own, stages = p.stages;
  const int rounds = (int)((p.rows - block.share + p.shares - 1) / p.shares);
  const int64_t at = (int64_t)block.rank * cells * 16;
  typename Block::Sums sums = block.sums();
  block.start();
  cluster_arrive();
  wait_for_previous();
  if (block.issuer)
#pragma unroll 1
    for (int i = 0; i < stages && i < rounds; i++)
      block.request(i, i);
  const bool packed_weight = p.weight && !(OPTIONS && p.weight_is_f32);
  const bool kept = Block::keeps_weights && packed_weight && !(OPTIONS && p.weight_inner != 0); /* for all rows */
  uint4 *weights = block.weights();
  constexpr bool keeps_bias = LAYER && !OPTIONS && NV == 8; /* in registers, of which one block in an SM has enough */
  Packed<T, V> bias[keeps_bias ? NV : 1] = {};
#pragma unroll
  for (int i = 0; i < NV; i++) {
    if (t + i * team >= own) continue;
    if (kept) weights[i * team] = load_shared_by_rows(p.weight + at + (t + i * team) * 16);
    if constexpr (keeps_bias)
      if (p.bias) load_vector<true, false>(bias[i], p.bias + at + (t + i * team) * 16, V);
  }
  cluster_wait();

  int stage = 0, turn = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const int64_t row = block.share + (int64_t)round * p.shares;
    const RowPlace place = place_of_row<OPTIONS>(p.inner, row);
    const int next = round + stages < rounds ? round + stages : -1;
    wait_for_copies(block.full() + stage, turn);
    Packed<S, V> x[1][NV];
    Statistic<float> st[1];
    block.take(stage, place, x[0]);
    ClusterSums<NV, Block> over(block, sums, next, stage);
    measure_rows<LAYER, OPTIONS, T>(p, x, st, over);
    if (t == 0 && block.rank == 0) write_statistic(p, row, st[0]);
    char *y_at = row_at<OPTIONS>(p.y, place) + at + t * 16;
    const int64_t skip = weight_skip<OPTIONS>(p, row);
    if constexpr (keeps_bias) keep_packed(bias); /* or it would stay in f32 from one row to the next */
    by_rounding<OPTIONS>(p, [&](auto before) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (t + i * team >= own) continue;
        Packed<T, V> out, weight;
        if (!OPTIONS || kept)
          take_cell(weight, weights + i * team);
        else if (packed_weight)
          load_vector<true, false>(weight, p.weight + skip + at + (t + i * team) * 16, V);
        if constexpr (keeps_bias)
          finish_common<LAYER, RMS_GATE_NONE>(p, x[0][i], st[0], weight, bias[i], weight, out);
        else
          finish_vector<LAYER, OPTIONS, false, before, RMS_GATE_NONE>(p, x[0][i], st[0], weight, weight, skip,
                                                                      over.vector(i), out);
        store_vector<true>(y_at + i * team * 16, out, V);
      }
    });
    if (!LAYER && block.issuer && next >= 0) block.request(next, stage);
    if (++stage == stages) stage = 0, turn ^= 1;
    if (round + 2 == rounds) let_next_start();
  }
}

} // namespace rms_cuda

#endif
