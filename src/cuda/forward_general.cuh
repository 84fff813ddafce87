/* SPDX-License-Identifier: MIT
 *
 * Forward, its first half (the statistics of a shard) and its second (given statistics), of any rows: general.cuh. */
#ifndef RMS_CUDA_FORWARD_GENERAL_CUH
#define RMS_CUDA_FORWARD_GENERAL_CUH

#include "general.cuh"

namespace rms_cuda {

/* The segment that is normalised: x, or its sum with the residual. */
template <class T> struct ForwardSegment {
  using R = real_of<T>;
  static constexpr int V = vector_of<T>;
  static constexpr bool has_f32 = sizeof(T) == 2; /* the sum may be kept in f32 */
  const GeneralForward &g;
  const Team &team;
  const char *x, *residual;
  uint4 *cells; /* of this team; NULL: no room */

  __device__ __forceinline__ const rms_layout &lay() const { return g.job.lay; }
  __device__ __forceinline__ int64_t vectors() const { return (lay().width + V - 1) / V; }
  __device__ __forceinline__ bool sum_is_f32() const { return has_f32 && residual && lay().residual_is_f32; }
  __device__ __forceinline__ KeptRow<T, V> row() const { return {x, lay().width * (int64_t)sizeof(T), cells}; }
  __device__ __forceinline__ KeptRow<float, V> sum_row() const { return {nullptr, 0, cells}; }

  __device__ __forceinline__ unsigned mask(int64_t v) const {
    return statistic_mask<V>(lay(), v) & ((1u << count_at<V>(lay(), v)) - 1);
  }
  template <class Op, class F> __device__ __forceinline__ R over(F of_vector) const {
    return team.sum<Op, R>(vectors(), of_vector);
  }
  /* From memory. */
  __device__ __forceinline__ void read(int64_t v, R (&f)[V]) const {
    Packed<T, V> in;
    load_at(in, x, v, lay().width * (int64_t)sizeof(T));
    unpack(in, f);
    if (!residual) return;
    R more[V];
    if constexpr (has_f32) {
      if (lay().residual_is_f32) {
        Packed<float, V> wide;
        load_at(wide, residual, v, lay().width * 4);
        unpack(wide, more);
#pragma unroll
        for (int j = 0; j < V; j++)
          f[j] += more[j];
        return;
      }
    }
    load_at(in, residual, v, lay().width * (int64_t)sizeof(T));
    unpack(in, more);
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] += more[j];
    round_to<T>(f);
  }
  __device__ __forceinline__ void load_x(int64_t v, R (&f)[V]) const {
    if (!cells) {
      read(v, f);
      return;
    }
    if constexpr (has_f32) {
      if (sum_is_f32()) {
        Packed<float, V> wide;
        sum_row().load(v, wide);
        unpack(wide, f);
        return;
      }
    }
    Packed<T, V> in;
    row().load(v, in);
    unpack(in, f);
  }
  /* To shared memory. */
  __device__ __forceinline__ void bring() const {
    if (!cells) return;
    if (!residual) {
      row().bring(team, vectors());
      return;
    }
    team.each(vectors(), [&](int64_t v, bool here) {
      R f[V];
      if (!here) return;
      read(v, f);
      if constexpr (has_f32) {
        if (sum_is_f32()) {
          Packed<float, V> wide;
          pack(wide, f);
          sum_row().keep(v, wide);
          return;
        }
      }
      Packed<T, V> in;
      pack(in, f);
      row().keep(v, in);
    });
  }
};

/* Vector v of type T, or f32, to memory; n = 0: none. All lanes of the warp call it. */
template <class T, int V, class R>
__device__ __forceinline__ void store_elements(char *row, int64_t v, const R (&f)[V], int n, bool is_f32, bool aligned,
                                               bool apart) {
  if constexpr (sizeof(T) == 2) {
    if (is_f32) {
      Packed<float, V> wide;
      pack(wide, f);
      if (aligned)
        store_at<true>(row, v, wide, n, apart);
      else
        store_at<false>(row, v, wide, n, apart);
      return;
    }
  }
  Packed<T, V> out;
  pack(out, f);
  if (aligned)
    store_at<true>(row, v, out, n, apart);
  else
    store_at<false>(row, v, out, n, apart);
}

template <class T>
__device__ __forceinline__ Statistic<real_of<T>> segment_statistic(const Norm<real_of<T>> &norm,
                                                                   const ForwardSegment<T> &s) {
  Statistic<real_of<T>> st = row_statistic<false>(norm, s);
  const bool again = !squares_in_range(st.sum);
  if (s.team.any(again)) {
    const Statistic<real_of<T>> scaled = row_statistic<true>(norm, s);
    if (again) st = scaled;
  }
  return st;
}

/* y and the sum with the residual. */
template <class T>
__device__ __forceinline__ void finish_segment(const GeneralForward &g, const Team &team,
                                               const ForwardSegment<T> &segment, const Place &at, bool active,
                                               const Statistic<real_of<T>> &st) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const rms_layout &lay = g.job.lay;
  const int size = (int)sizeof(T), residual_size = lay.residual_is_f32 ? 4 : size,
            weight_size = lay.weight_is_f32 ? 4 : size;
  char *y = segment_at(g.job.y, lay, at, size), *sum = segment_at(g.job.residual_out, lay, at, residual_size);
  const char *weight = parameter_at(lay.weight, lay, at, weight_size),
             *bias = parameter_at(g.job.bias, lay, at, weight_size);
  const Affine form = {lay.weight != nullptr, g.job.bias != nullptr, lay.rounding == RMS_ROUND_BEFORE_WEIGHT,
                       lay.weight_is_f32};
  team.each(segment.vectors(), [&](int64_t v, bool here) {
    const int n = active && here ? count_at<V>(lay, v) : 0;
    R h[V] = {}, f[V], b[V];
    if (n > 0) segment.load_x(v, h);
    if (g.job.residual_out.data) store_elements<T>(sum, v, h, n, lay.residual_is_f32, g.aligned, team.lane == 0);
    if (n > 0) {
#pragma unroll
      for (int j = 0; j < V; j++)
        h[j] = fused(h[j], st.scale, -st.mean) * st.r;
      if (lay.weight) {
        load_parameters<T>(f, weight, lay, v);
        add_offset(f, lay.offset);
      }
      if (g.job.bias) load_parameters<T>(b, bias, lay, v);
      affine<T>(h, f, b, form);
    }
    store_elements<T>(y, v, h, n, false, g.aligned, team.lane == 0);
  });
}

template <class T>
__global__ void __launch_bounds__(GENERAL_THREADS, 2) forward_general_kernel(const __grid_constant__ GeneralForward g) {
  using R = real_of<T>;
  __shared__ double slots[32];
  extern __shared__ uint4 general_cells[];
  const rms_layout &lay = g.job.lay;
  const Team team(g.team, slots);
  const int teams = team.warps > 1 ? 1 : (int)blockDim.x / g.team,
            which = team.warps > 1 ? 0 : (int)threadIdx.x / g.team;
  int64_t index = g.first + (int64_t)blockIdx.x * teams + which;
  const bool active = index < g.segments;
  if (!active) index = g.segments - 1; /* teams without a segment keep their warp company and store nothing */
  const Place at = place_of(lay, index);
  ForwardSegment<T> segment = {g, team, segment_at(g.job.x, lay, at, (int)sizeof(T)), nullptr, nullptr};
  if (g.job.residual.data)
    segment.residual = segment_at(g.job.residual, lay, at, lay.residual_is_f32 ? 4 : (int)sizeof(T));
  if (g.kept)
    segment.cells =
        general_cells + which * segment.vectors() * (segment.sum_is_f32() ? KeptRow<float, vector_of<T>>::pieces : 1);
  segment.bring();

  const Norm<R> norm = norm_of<R>(lay, g.eps_limit);
  const Statistic<R> st =
      g.job.stats_in ? import_statistic(norm, g.job.stats_in[index]) : segment_statistic<T>(norm, segment);
  const bool writes = active && team.leads();
  if (g.job.stats_out) {
    if (writes) g.job.stats_out[index] = export_statistic(st, lay.k);
    return;
  }
  if (writes && g.job.rstd) static_cast<R *>(g.job.rstd)[index] = st.r * st.scale;
  if (writes && g.job.mean) static_cast<R *>(g.job.mean)[index] = quotient(st.mean, st.scale);
  finish_segment<T>(g, team, segment, at, active, st);
}

} // namespace rms_cuda

#endif
