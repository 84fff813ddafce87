/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows, a row per block: each thread loads all that it needs at once, so that many rows are on their
 * way in an SM. Template parameters as in forward_steps.cuh. */
#ifndef RMS_CUDA_FORWARD_BLOCK_CUH
#define RMS_CUDA_FORWARD_BLOCK_CUH

#include "forward_steps.cuh"
#include "start.cuh"

namespace rms_cuda {

/* The sum of a block: `folded` is the warp's, which goes to `place` of its chunk sums. */
template <class Op, int NV, int PANELS>
__device__ __forceinline__ float block_sum(float (&chunk)[PANELS * 32], int place, float folded) {
  constexpr int at_once = PANELS < 4 ? PANELS : 4; /* panels */
  if (place >= 0) chunk[place] = folded;
#pragma unroll 1
  for (int i = (int)blockDim.x / 32 * NV + (int)threadIdx.x; i < PANELS * 32; i += (int)blockDim.x)
    chunk[chunk_place(i)] = 0;
  __syncthreads();
  float total = over_panels<Op, 1, at_once>(panel_sums<Op, 1, at_once>(chunk), 0);
#pragma unroll
  for (int panel = at_once; panel < PANELS; panel += at_once)
    total = over_panels<Op, 1, at_once, false>(panel_sums<Op, 1, at_once>(chunk + panel * 32), 0, total);
  return total;
}

/* Sums over a row; each has its own place in shared memory, so that no barrier is needed between them. */
template <int NV, int PANELS, bool CUTS> struct BlockSums : VectorSums<BlockSums<NV, PANELS, CUTS>> {
  static constexpr bool cuts = CUTS;
  float (&chunk)[USES][PANELS * 32];
  int step, left; /* vectors threadIdx.x + i*step of the row, for the i < NV with i*step < left */

  __device__ __forceinline__ BlockSums(float (&chunks)[USES][PANELS * 32], int distance, int there)
      : chunk(chunks), step(distance), left(there) {}
  __device__ __forceinline__ int vector(int i) const { return (int)threadIdx.x + i * step; }
  __device__ __forceinline__ bool has(const ForwardJob &, int i) const { return i * step < left; }
  __device__ __forceinline__ bool any(bool yes) const { return yes; }
  __device__ __forceinline__ void some(bool (&yes)[1]) const { yes[0] = __syncthreads_or(yes[0]) != 0; }
  template <class Op, int USE> __device__ __forceinline__ void of(float (&sum)[1], float (&a)[1][NV]) {
    const int place = place_of_lane<1, PANELS, NV>((int)threadIdx.x / 32, (int)blockDim.x / 32);
    sum[0] = block_sum<Op, NV, PANELS>(chunk[USE], place, fold<Op>(a[0]));
  }
};

/* x*act(z) of a row. */
template <class T, int V, int NV>
__device__ __forceinline__ void open_gates(const ForwardJob &p, Packed<float, V> (&x)[NV], const Packed<T, V> (&in)[NV],
                                           const Packed<T, V> (&gate)[NV]) {
#pragma unroll
  for (int i = 0; i < NV; i++)
    open_gate(x[i], in[i], gate[i], p.sigmoid);
}

/* load_row() of rows that are not aligned. */
template <class T, class S, bool RESIDUAL, rms_gate_place GATE, int V, int NV>
__device__ __forceinline__ void load_shifted_row(const ForwardJob &p, const RowPlace &place, Packed<S, V> (&x)[NV],
                                                 Packed<T, V> (&gate)[NV]) {
  auto load = [&](const Rows &rows, const char *end, Packed<T, V>(&to)[NV]) {
    const ShiftedRow row = {row_at<true>(rows, place), end, p.bytes};
    Sixteen s[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      s[i] = row.fetch((int)threadIdx.x + i * (int)blockDim.x);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(to[i]);
      if (((int)threadIdx.x & ~31) + i * (int)blockDim.x < p.vectors)
        row.take(to[i].w, s[i], (int)threadIdx.x + i * (int)blockDim.x);
    }
  };
  Packed<T, V> in[NV];
  load(p.x, p.x_end, in);
  if constexpr (GATE != RMS_GATE_NONE) load(p.gate, p.gate_end, gate);
  if constexpr (GATE == RMS_GATE_BEFORE) {
    open_gates(p, x, in, gate);
  } else if constexpr (RESIDUAL) {
    Packed<T, V> residual[NV];
    load(p.residual, p.residual_end, residual);
#pragma unroll
    for (int i = 0; i < NV; i++)
      add_residual(x[i], in[i], residual[i]);
  } else {
#pragma unroll
    for (int i = 0; i < NV; i++)
      x[i] = in[i];
  }
}

/* The row: x, or its sum with the residual, which is written, or x*act(z); the gate beside it where it comes after the
 * norm. LAST: as in read_policy(). */
template <class T, class S, bool RESIDUAL, bool OPTIONS, rms_gate_place GATE, bool LAST = false, int V, int NV>
__device__ __forceinline__ void load_row(const ForwardJob &p, const RowPlace &place, Packed<S, V> (&x)[NV],
                                         Packed<T, V> (&gate)[NV]) {
  const int step = (int)blockDim.x, left = p.vectors - (int)threadIdx.x;
  const char *x_at = row_at<OPTIONS>(p.x, place) + bytes_before<T, V>((int)threadIdx.x);
  Packed<T, V> in[NV];
  auto load = [&](auto known) {
    constexpr bool all = decltype(known)::value; /* vectors are there */
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (!all) clear(in[i]);
      if (all || i * step < left) load_vector<true, true, LAST>(in[i], x_at + bytes_before<T, V>(i * step), V);
    }
    if constexpr (GATE != RMS_GATE_NONE) {
      const char *gate_at = row_at<OPTIONS>(p.gate, place) + bytes_before<T, V>((int)threadIdx.x);
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!all) clear(gate[i]);
        if (all || i * step < left) load_vector<true, true, LAST>(gate[i], gate_at + bytes_before<T, V>(i * step), V);
      }
    }
  };
  if (GATE != RMS_GATE_NONE && (NV - 1) * step < left) /* with a gate instructions count */
    load(std::true_type());
  else
    load(std::false_type());
  if constexpr (GATE == RMS_GATE_BEFORE) {
    open_gates(p, x, in, gate);
  } else if constexpr (RESIDUAL) {
    Packed<S, V> residual[NV];
    const char *residual_at = row_at<OPTIONS>(p.residual, place) + bytes_before<S, V>((int)threadIdx.x);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(residual[i]);
      if (i * step < left) load_vector<true, true, LAST>(residual[i], residual_at + bytes_before<S, V>(i * step), V);
    }
#pragma unroll
    for (int i = 0; i < NV; i++)
      add_residual(x[i], in[i], residual[i]);
  } else {
#pragma unroll
    for (int i = 0; i < NV; i++)
      x[i] = in[i];
  }
}

/* Blocks of an SM that there must be registers for; MORE: each thread needs more of them. */
template <class T, class S, int NV, bool OPTIONS, bool MORE, bool EARLY, int MOST>
constexpr int forward_block_blocks = EARLY || (OPTIONS && NV == 8)          ? 1
                                     : MORE                                 ? 768 / MOST
                                     : MOST == 128                          ? 7
                                     : sizeof(S) != sizeof(T) && MOST > 256 ? 1
                                     : sizeof(S) != sizeof(T)               ? 512 / MOST
                                                                            : 1024 / MOST;

/* The same with a gate, of which LayerNorm needs more again. */
template <bool LAYER, int MOST> constexpr int gated_block_blocks = (LAYER ? 512 : 768) / MOST;

/* Whether there are registers for the weights beside the row, before the sums. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int NV, bool LAYER, bool RESIDUAL, bool OPTIONS, int MOST> constexpr bool weights_with_row = false;
#else
template <int NV, bool LAYER, bool RESIDUAL, bool OPTIONS, int MOST>
constexpr bool weights_with_row = NV == 4 && MOST <= 256 && !LAYER && !RESIDUAL && !OPTIONS;
#endif

/* MOST: threads of a block. EARLY: the weights are loaded with the row whatever registers that takes, and the next
 * kernel starts late, which is quicker for few rows. */
template <class T, class S, int NV, bool LAYER, bool RESIDUAL, bool OPTIONS, bool SHIFTED, bool EARLY, int MOST,
          rms_gate_place GATE>
__global__ void __launch_bounds__(
    MOST, (GATE != RMS_GATE_NONE
               ? gated_block_blocks<LAYER, MOST>
               : forward_block_blocks<T, S, NV, OPTIONS,
                                      (SHIFTED && (RESIDUAL || LAYER)) ||
                                          (std::is_same<T, __half>::value && OPTIONS && LAYER && RESIDUAL),
                                      EARLY, MOST>)) forward_block_kernel(const __grid_constant__ ForwardJob p) {
  constexpr int V = vector_of<T>, PANELS = NV * MOST > PANEL ? NV * MOST / PANEL : 1;
  constexpr bool with_row = EARLY || (weights_with_row<NV, LAYER, RESIDUAL, OPTIONS, MOST> && GATE == RMS_GATE_NONE);
  constexpr bool several = OPTIONS || GATE != RMS_GATE_NONE; /* distances between rows, as there may be */
  __shared__ __align__(16) float chunk[USES][PANELS * 32];
  const int64_t row = blockIdx.x;
  /* vectors threadIdx.x + i*step of the row, for the i < NV for which there are that many */
  const int step = (int)blockDim.x, left = p.vectors - (int)threadIdx.x;
  const RowPlace place = place_of_row<several>(p.inner, row);
  wait_for_previous();
  if (!EARLY) let_next_start();

  Packed<S, V> x[1][NV];
  Packed<T, V> weight[NV], gate[NV];
  if constexpr (SHIFTED)
    load_shifted_row<T, S, RESIDUAL, GATE>(p, place, x[0], gate);
  else
    load_row<T, S, RESIDUAL, several, GATE, !EARLY>(p, place, x[0], gate);
  const bool packed_weight = p.weight && !(OPTIONS && p.weight_is_f32);
  const int64_t skip = weight_skip<several>(p, row);
  if (with_row && packed_weight) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (i * step < left) load_weights<SHIFTED>(p, skip, (int)threadIdx.x + i * step, weight[i]);
  }
  if (RESIDUAL && p.sum.data) {
    char *sum_at = row_at<several>(p.sum, place);
#pragma unroll
    for (int i = 0; i < NV; i++)
      store_row<SHIFTED>(p, sum_at, (int)threadIdx.x + i * step, x[0][i], i * step < left, 32);
  }

  Statistic<float> st[1];
  BlockSums<NV, PANELS, SHIFTED> over(chunk, step, left);
  measure_rows<LAYER, OPTIONS, T>(p, x, st, over);
  if (threadIdx.x == 0) write_statistic(p, row, st[0]);

  if (EARLY) let_next_start();
  char *y_at = row_at<several>(p.y, place);
  if (GATE != RMS_GATE_NONE && !SHIFTED && __builtin_expect(is_plain<OPTIONS>(p, st[0]), 1)) {
    const char *weight_at = p.weight + skip;
    by_rounding<several>(p, [&](auto before) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (i * step >= left) continue;
        const int64_t at = bytes_before<T, V>((int)threadIdx.x + i * step);
        Packed<T, V> out;
        float g[V];
        load_vector<true, false>(weight[i], weight_at + at, V);
        unpack(weight[i], g);
        finish_plain<LAYER, before, GATE>(p, x[0][i], st[0], g, gate[i], out);
        store_vector<true>(y_at + at, out, V);
      }
    });
    return;
  }
  by_rounding<several>(p, [&](auto before) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int vector = (int)threadIdx.x + i * step;
      if (SHIFTED ? (vector & ~31) >= p.vectors : i * step >= left) continue; /* shifted: all lanes of a warp or none */
      if (!with_row && packed_weight) load_weights<SHIFTED>(p, skip, vector, weight[i]);
      Packed<T, V> out;
      finish_vector<LAYER, OPTIONS, SHIFTED, before, GATE>(p, x[0][i], st[0], weight[i], gate[i], skip, vector, out);
      store_row<SHIFTED>(p, y_at, vector, out, i * step < left || SHIFTED, 32);
    }
  });
}

} // namespace rms_cuda

#endif
