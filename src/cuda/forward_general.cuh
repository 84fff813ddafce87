/* SPDX-License-Identifier: MIT
 *
 * Forward, its first half (the statistics of a shard) and its second (given statistics), of any rows: general.cuh.
 * ALIGNED: every vector of every tensor is 16-byte aligned and whole. GATED: there is a gate (activation.cuh). */
#ifndef RMS_CUDA_FORWARD_GENERAL_CUH
#define RMS_CUDA_FORWARD_GENERAL_CUH

#include "activation.cuh"
#include "general.cuh"

namespace rms_cuda {

/* The segment that is normalised: x, or its sum with the residual, or that times a gate's activation. */
template <class T, bool ALIGNED, bool GATED> struct ForwardSegment {
  using R = real_of<T>;
  static constexpr int V = vector_of<T>;
  static constexpr bool has_f32 = sizeof(T) == 2; /* the sum may be kept in f32 */
  const GeneralForward &g;
  const Team &team;
  KeptRow<T, V, ALIGNED> row, gate;
  const char *residual;
  int64_t vectors;

  __device__ __forceinline__ ForwardSegment(const GeneralForward &of, const Team &by, const Place &at, uint4 *cells)
      : g(of), team(by), row{{segment_at(of.job.x, of.job.lay, at, (int)sizeof(T)), of.job.lay.width}, nullptr},
        gate{{GATED ? segment_at(of.job.gate, of.job.lay, at, (int)sizeof(T)) : nullptr, of.job.lay.width}, nullptr} {
    vectors = (lay().width + V - 1) / V;
    residual = nullptr;
    if (g.job.residual.data)
      residual = segment_at(g.job.residual, lay(), at, lay().residual_is_f32 ? 4 : (int)sizeof(T));
    const int own = sum_is_f32() ? f32_cells() : 1;
    if (g.kept) row.cells = cells + team.which * vectors * (own + (GATED ? 1 : 0));
    if (g.kept && GATED) gate.cells = row.cells + vectors * own;
  }
  __device__ __forceinline__ const rms_layout &lay() const { return g.job.lay; }
  __device__ __forceinline__ bool sum_is_f32() const { return has_f32 && residual && lay().residual_is_f32; }
  static __device__ __forceinline__ constexpr int f32_cells() { return V * 4 / 16 > 0 ? V * 4 / 16 : 1; }

  __device__ __forceinline__ unsigned mask(int64_t v) const { return statistic_mask<V>(lay(), g.whole, v); }
  __device__ __forceinline__ bool counts_all() const { return g.whole; }
  template <class Op, class F> __device__ __forceinline__ R over(F of_vector) const {
    return team.sum<Op, R>(vectors, of_vector);
  }
  /* From memory. */
  __device__ __forceinline__ void read(int64_t v, R (&f)[V]) const {
    load_elements<T, ALIGNED>(f, row.row.row, lay().width, v, false);
    if (!residual) return;
    R more[V];
    load_elements<T, ALIGNED>(more, residual, lay().width, v, lay().residual_is_f32);
#pragma unroll
    for (int j = 0; j < V; j++)
      f[j] += more[j];
    if (!sum_is_f32()) round_to<T>(f);
  }
  /* What is normalised. */
  __device__ __forceinline__ void load_x(int64_t v, R (&f)[V]) const {
    load_source(v, f);
    if constexpr (GATED) {
      if (lay().gate_place != RMS_GATE_BEFORE) return;
      R act[V];
      load_act(v, act);
      multiply(f, act);
    }
  }
  __device__ __forceinline__ void load_act(int64_t v, R (&act)[V]) const {
    Packed<T, V> z;
    gate.load(v, z);
    unpack(z, act);
    activate(act, lay().activation == RMS_ACT_SIGMOID);
  }
  /* The same without the gate. */
  __device__ __forceinline__ void load_source(int64_t v, R (&f)[V]) const {
    if (!row.cells) {
      read(v, f);
      return;
    }
    if constexpr (has_f32) {
      if (sum_is_f32()) {
        const float4 *cell = reinterpret_cast<const float4 *>(row.cells) + v * f32_cells();
#pragma unroll
        for (int c = 0; c < V / 4; c++)
          f[4 * c] = cell[c].x, f[4 * c + 1] = cell[c].y, f[4 * c + 2] = cell[c].z, f[4 * c + 3] = cell[c].w;
        return;
      }
    }
    Packed<T, V> in;
    row.load(v, in);
    unpack(in, f);
  }
  /* To shared memory. */
  __device__ __forceinline__ void bring() const {
    if (!row.cells) return;
    if constexpr (GATED) gate.bring(team, vectors);
    if (!residual) {
      row.bring(team, vectors);
      return;
    }
    team.each(vectors, [&](int64_t v) {
      R f[V];
      read(v, f);
      if constexpr (has_f32) {
        if (sum_is_f32()) {
          float4 *cell = reinterpret_cast<float4 *>(row.cells) + v * f32_cells();
#pragma unroll
          for (int c = 0; c < V / 4; c++)
            cell[c] = make_float4(f[4 * c], f[4 * c + 1], f[4 * c + 2], f[4 * c + 3]);
          return;
        }
      }
      keep(v, f);
    });
  }
  /* A vector, rounded to T. */
  __device__ __forceinline__ void keep(int64_t v, const R (&f)[V]) const {
    Packed<T, V> packed;
    pack(packed, f);
    row.keep(v, packed);
  }
};

/* Vector v of type T, or f32, to memory. */
template <class T, bool ALIGNED, int V, class R>
__device__ __forceinline__ void store_elements(char *row, int64_t v, const R (&f)[V], int n, bool is_f32) {
  if constexpr (sizeof(T) == 2) {
    if (is_f32) {
      Packed<float, V> wide;
      pack(wide, f);
      store_at<ALIGNED>(row, v, wide, n);
      return;
    }
  }
  Packed<T, V> out;
  pack(out, f);
  store_at<ALIGNED>(row, v, out, n);
}

template <class R, class Segment>
__device__ __forceinline__ Statistic<R> segment_statistic(const Norm<R> &norm, const Segment &segment) {
  Statistic<R> st = row_statistic<false>(norm, segment);
  const bool again = !squares_in_range(st.sum);
  if (segment.team.any(again)) {
    const Statistic<R> scaled = row_statistic<true>(norm, segment);
    if (again) st = scaled;
  }
  return st;
}

/* From vectors of a segment to y, but for its last rounding. */
template <class T, bool ALIGNED, bool GATED> struct MakeY {
  using R = real_of<T>;
  static constexpr int V = vector_of<T>;
  const GeneralForward &g;
  const char *weight, *bias;
  Affine form;

  __device__ __forceinline__ MakeY(const GeneralForward &of, const Place &at) : g(of) {
    const rms_layout &lay = g.job.lay;
    const int size = lay.weight_is_f32 ? 4 : (int)sizeof(T);
    weight = parameter_at(lay.weight, lay, at, size), bias = parameter_at(g.job.bias, lay, at, size);
    form = {lay.weight != nullptr, g.job.bias != nullptr, lay.rounding == RMS_ROUND_BEFORE_WEIGHT, lay.weight_is_f32,
            sizeof(R) == 4 && g.job.y_type != lay.dtype};
  }
  /* h: the vector without a gate; act: what a gate makes of it. */
  __device__ __forceinline__ void of(const Statistic<R> &st, int64_t v, R (&h)[V], const R (&act)[V]) const {
    const rms_layout &lay = g.job.lay;
    R f[V], b[V];
    if constexpr (GATED) {
      if (lay.gate_place == RMS_GATE_BEFORE) multiply(h, act);
    }
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] = fused(h[j], st.scale, -st.mean) * st.r;
    if (lay.weight) load_gains<T, ALIGNED>(f, weight, lay, v);
    if (g.job.bias) load_parameters<T, ALIGNED>(b, bias, lay, v);
    affine<T>(h, f, b, form);
    if constexpr (GATED) {
      if (lay.gate_place == RMS_GATE_AFTER) {
        round_before_gate<T>(h, form);
        multiply(h, act);
      }
    }
  }
};

/* y, and the sum with the residual. Of a row that is not aligned both go by way of shared memory, but for a y of
 * another type. Otherwise each thread reads all that it needs of a vector before it stores there, for both may lie
 * where the row, the residual or the gate does. */
template <class T, bool ALIGNED, bool GATED>
__device__ __forceinline__ void write_row(const GeneralForward &g, const ForwardSegment<T, ALIGNED, GATED> &segment,
                                          const Place &at, bool active, const Statistic<real_of<T>> &st) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const rms_layout &lay = g.job.lay;
  const int size = (int)sizeof(T);
  const MakeY<T, ALIGNED, GATED> make(g, at);
  char *y = nullptr, *sum = nullptr;
  if (g.job.y.data) y = segment_at(g.job.y, lay, at, (int)element_size(g.job.y_type));
  if (g.job.residual_out.data) sum = segment_at(g.job.residual_out, lay, at, lay.residual_is_f32 ? 4 : size);
  bool through = !ALIGNED && segment.row.cells && !segment.sum_is_f32();
  if (through && sum) {
    segment.team.sync();
    if (active) copy_out(segment.team, segment.row.cells, sum, (int)(lay.width * (int64_t)size));
    segment.team.sync();
    sum = nullptr;
  }
  if (!y && !sum) return;
  through = through && y && !make.form.own_type;
  if (active)
    segment.team.each(segment.vectors, [&](int64_t v) {
      R h[V], act[V];
      segment.load_source(v, h);
      if constexpr (GATED) segment.load_act(v, act);
      if (sum) store_elements<T, ALIGNED>(sum, v, h, count_at<V>(lay, v), lay.residual_is_f32);
      if (!y) return;
      make.of(st, v, h, act);
      if constexpr (sizeof(R) == 4) {
        if (make.form.own_type) {
          Floats<V> out;
#pragma unroll
          for (int j = 0; j < V; j++)
            out.of[j] = h[j];
          store_any<ALIGNED>(y, v, out, count_at<V>(lay, v), g.job.y_type);
          return;
        }
      }
      if (through)
        segment.keep(v, h);
      else
        store_elements<T, ALIGNED>(y, v, h, count_at<V>(lay, v), false);
    });
  if (!through) return;
  segment.team.sync();
  if (active) copy_out(segment.team, segment.row.cells, y, (int)(lay.width * (int64_t)size));
}

/* The rows of a block. before_y(segment, at, index, active, st) is called before y and the sum are written, which may
 * be over what is read. */
template <class T, bool ALIGNED, bool GATED, class F>
__device__ __forceinline__ void forward_general_rows(const GeneralForward &g, F before_y) {
  using R = real_of<T>;
  __shared__ double slots[32];
  extern __shared__ uint4 general_cells[];
  const rms_layout &lay = g.job.lay;
  const Team team(g.team, slots);
  int64_t index = g.first + (int64_t)blockIdx.x * team.teams + team.which;
  const bool active = index < g.segments;
  if (!active) index = g.segments - 1; /* teams without a segment keep their warp company and store nothing */
  const Place at = place_of(lay, index);
  const ForwardSegment<T, ALIGNED, GATED> segment(g, team, at, general_cells);
  segment.bring();
  wait_for_kept();

  const Norm<R> norm = norm_of<R>(lay, g.eps_limit);
  const Statistic<R> st =
      g.job.stats_in ? import_statistic(norm, g.job.stats_in[index]) : segment_statistic(norm, segment);
  const bool writes = active && team.leads();
  if (g.job.stats_out) {
    if (writes) g.job.stats_out[index] = export_statistic(st, lay.k);
    return;
  }
  if (writes && g.job.rstd) static_cast<R *>(g.job.rstd)[index] = st.r * st.scale;
  if (writes && g.job.mean) static_cast<R *>(g.job.mean)[index] = quotient(st.mean, st.scale);
  before_y(segment, at, index, active, st);
  write_row(g, segment, at, active, st);
}

template <class T, bool ALIGNED, bool GATED>
__global__ void __launch_bounds__(GENERAL_THREADS, ALIGNED ? 3 : 2)
    forward_general_kernel(const __grid_constant__ GeneralForward g) {
  forward_general_rows<T, ALIGNED, GATED>(g, [](auto &&...) {});
}

} // namespace rms_cuda

#endif
