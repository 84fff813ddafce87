/* SPDX-License-Identifier: MIT
 *
 * Backward and its two halves of any rows: general.cuh. Where column sums are wanted it runs in two steps over batches
 * of rows: the sums of each row first, then threads that own columns walk down the rows and write dx and the column
 * sums, which are f64. */
#ifndef RMS_CUDA_BACKWARD_GENERAL_CUH
#define RMS_CUDA_BACKWARD_GENERAL_CUH

#include "forward_general.cuh"

namespace rms_cuda {

/* Where a row of a slice is. */
__device__ __forceinline__ Place place_in_slice(const rms_layout &lay, int64_t slice, int64_t row) {
  Place at = {row, 0, slice % lay.groups};
  if (lay.per_inner) {
    at.inner = slice / lay.groups;
  } else if (lay.inner > 1) {
    at.outer = row / lay.inner;
    at.inner = row - at.outer * lay.inner;
  }
  return at;
}

__device__ __forceinline__ int64_t segment_of(const rms_layout &lay, const Place &at) {
  return (at.outer * lay.inner + at.inner) * lay.groups + at.group;
}

/* ---- a segment ---- */

/* A segment in shared memory or in memory: what the range guard asks for. */
template <class T> struct BackwardSegment {
  using R = real_of<T>;
  static constexpr int V = vector_of<T>;
  static constexpr bool has_f32 = sizeof(T) == 2;
  const GeneralBackward &g;
  const Team &team;
  const char *x, *dy, *weight;
  uint4 *x_cells, *dy_cells;

  __device__ __forceinline__ BackwardSegment(const GeneralBackward &of, const Team &by, const Place &at, uint4 *cells)
      : g(of), team(by) {
    x = segment_at(g.job.x, lay(), at, g.job.x_is_f32 ? 4 : (int)sizeof(T));
    dy = segment_at(g.job.dy, lay(), at, (int)sizeof(T));
    weight = parameter_at(lay().weight, lay(), at, lay().weight_is_f32 ? 4 : (int)sizeof(T));
    dy_cells = cells;
    x_cells = cells ? cells + vectors() : nullptr;
  }
  __device__ __forceinline__ const rms_layout &lay() const { return g.job.lay; }
  __device__ __forceinline__ int64_t vectors() const { return (lay().width + V - 1) / V; }
  __device__ __forceinline__ KeptRow<T, V> dy_row() const { return {dy, lay().width * (int64_t)sizeof(T), dy_cells}; }
  __device__ __forceinline__ KeptRow<T, V> x_row() const { return {x, lay().width * (int64_t)sizeof(T), x_cells}; }
  __device__ __forceinline__ KeptRow<float, V> f32_row() const { return {x, lay().width * 4, x_cells}; }

  __device__ __forceinline__ void bring() const {
    dy_row().bring(team, vectors());
    if constexpr (has_f32) {
      if (g.job.x_is_f32) {
        f32_row().bring(team, vectors());
        return;
      }
    }
    x_row().bring(team, vectors());
  }
  __device__ __forceinline__ unsigned mask(int64_t v) const {
    return statistic_mask<V>(lay(), v) & ((1u << count_at<V>(lay(), v)) - 1);
  }
  __device__ __forceinline__ void load_x(int64_t v, R (&f)[V]) const {
    if constexpr (has_f32) {
      if (g.job.x_is_f32) {
        Packed<float, V> wide;
        f32_row().load(v, wide);
        unpack(wide, f);
        return;
      }
    }
    Packed<T, V> in;
    x_row().load(v, in);
    unpack(in, f);
  }
  __device__ __forceinline__ void load_dy(int64_t v, R (&f)[V]) const {
    Packed<T, V> in;
    dy_row().load(v, in);
    unpack(in, f);
  }
  __device__ __forceinline__ void load_g(int64_t v, R (&f)[V]) const {
    if (lay().weight) {
      load_parameters<T>(f, weight, lay(), v);
      add_offset(f, lay().offset);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] = 1;
    }
  }
  template <class Op, class F> __device__ __forceinline__ R over(F of_vector) const {
    return team.sum<Op, R>(vectors(), of_vector);
  }
};

/* ---- dx ---- */

/* Adds vector v of a row of type T, or f32. */
template <class T, int V, class R>
__device__ __forceinline__ void add_elements(R (&f)[V], const char *row, const rms_layout &lay, int64_t v,
                                             bool is_f32) {
  R more[V];
  if constexpr (sizeof(T) == 2) {
    if (is_f32) {
      Packed<float, V> wide;
      load_at(wide, row, v, lay.width * 4);
      unpack(wide, more);
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] += more[j];
      return;
    }
  }
  Packed<T, V> in;
  load_at(in, row, v, lay.width * (int64_t)sizeof(T));
  unpack(in, more);
#pragma unroll
  for (int j = 0; j < V; j++)
    f[j] += more[j];
}

/* Vector v of dx and dresidual_out, from dy and h; n = 0: there is none. All lanes of the warp call it. */
template <class T>
__device__ __forceinline__ void write_dx(const GeneralBackward &g, const BackwardSegment<T> &segment, const Place &at,
                                         int64_t v, int n, const RowFactors<real_of<T>> &f,
                                         const real_of<T> (&dy)[vector_of<T>], const real_of<T> (&h)[vector_of<T>],
                                         bool apart) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const rms_layout &lay = g.job.lay;
  if (!g.job.dx.data && !g.job.dresidual_out.data) return;
  const int size = (int)sizeof(T), residual_size = lay.residual_is_f32 ? 4 : size;
  const Norm<R> norm = norm_of<R>(lay, g.eps_limit);
  R out[V] = {}, weight[V];
  if (n > 0) {
    segment.load_g(v, weight);
#pragma unroll
    for (int i = 0; i < V; i++)
      out[i] = dy[i];
    if (f.up == 0 && f.down == 0) {
      gradient_u<false, T>(norm, out, weight, 0);
      gradient_dx<false>(f, out, h, segment.mask(v));
    } else {
      gradient_u<true, T>(norm, out, weight, f.up);
      gradient_dx<true>(f, out, h, segment.mask(v));
    }
    if (g.job.dresidual.data)
      add_elements<T>(out, segment_at(g.job.dresidual, lay, at, residual_size), lay, v, lay.residual_is_f32);
    if (g.job.add_to_dx) add_elements<T>(out, segment_at(g.job.dx, lay, at, size), lay, v, false);
  }
  if (g.job.dresidual_out.data)
    store_elements<T>(segment_at(g.job.dresidual_out, lay, at, residual_size), v, out, n, lay.residual_is_f32,
                      g.aligned, apart);
  if (g.job.dx.data) store_elements<T>(segment_at(g.job.dx, lay, at, size), v, out, n, false, g.aligned, apart);
}

/* ---- the split form ---- */

/* The public sums of a row, from those of its statistic and its u*2^up, and back. RMSNorm of f32, bf16 and f16 data
 * divides the sum of u*h by r: multiplied by it again it rounds back to the same number. */
template <class R>
__device__ __forceinline__ rms_grad_sum export_sums(const Norm<R> &norm, const Statistic<R> &st, int up,
                                                    const GradientSums<R> &sums) {
  rms_grad_sum out = {times_power((double)sums.dot, -up), times_power((double)sums.u, -up)};
  if (norm.layer) return out;
  const double r = sums_x(norm) ? (double)st.scale : (double)st.r * (double)st.scale;
  out.ux = r != 0 ? out.ux / r : 0;
  out.u = 0;
  return out;
}

template <class R>
__device__ __forceinline__ GradientSums<R> import_sums(const Norm<R> &norm, const Statistic<R> &st, int up,
                                                       const rms_grad_sum &in) {
  double dot = in.ux;
  if (!norm.layer) dot *= sums_x(norm) ? (double)st.scale : (double)st.r * (double)st.scale;
  return {(R)times_power(dot, up), (R)times_power(in.u, up)};
}

/* ---- the sums of a row ---- */

/* The scaled way, in a function of its own, so that the usual one has the registers for itself. */
template <class R> struct ScaledSums {
  Statistic<R> st;
  GradientSums<R> sums;
  int up;
};
template <class T>
__device__ __noinline__ ScaledSums<real_of<T>> scaled_segment(const GeneralBackward &g, const Place &at, int64_t index,
                                                              uint4 *cells, double *slots) {
  using R = real_of<T>;
  const Team team(g.team, slots);
  const BackwardSegment<T> segment(g, team, at, cells);
  const Norm<R> norm = norm_of<R>(g.job.lay, g.eps_limit);
  ScaledSums<R> s;
  s.st = g.job.stats_in ? import_statistic(norm, g.job.stats_in[index]) : row_statistic<true>(norm, segment);
  s.up = row_exponent<T>(norm, segment);
  s.sums = row_sums<true, T>(norm, segment, s.st, s.up);
  if (g.job.sums_in) s.sums = import_sums(norm, s.st, s.up, g.job.sums_in[index]);
  return s;
}

/* The factors of a segment. In the second half of a split backward (sums_in) the sums of all shards have to be in range
 * as well as those of this one. */
template <class T>
__device__ __forceinline__ RowFactors<real_of<T>>
segment_factors(const GeneralBackward &g, const BackwardSegment<T> &segment, const Place &at, bool writes) {
  using R = real_of<T>;
  const Norm<R> norm = norm_of<R>(g.job.lay, g.eps_limit);
  const int64_t index = segment_of(g.job.lay, at);
  const rms_stat *stats = g.job.stats_in ? g.job.stats_in + index : nullptr;
  const R k = stats ? (R)stats->count : norm.k;
  Statistic<R> st = {0, 0, 0, 0, 1};
  if (stats) {
    st = given_statistic(norm, *stats);
  } else if (g.job.rstd && !norm.eps_outside) {
    st.r = static_cast<const R *>(g.job.rstd)[index];
    if (g.job.mean) st.mean = static_cast<const R *>(g.job.mean)[index];
  } else {
    st = row_statistic<false>(norm, segment);
  }
  GradientSums<R> sums = row_sums<false, T>(norm, segment, st, 0);
  bool in_range = row_in_range(norm, st.r, sums);
  if (g.job.sums_in && in_range) {
    sums = import_sums(norm, st, 0, g.job.sums_in[index]);
    in_range = row_in_range(norm, st.r, sums);
  }
  int up = 0;
  if (segment.team.any(!in_range)) {
    const ScaledSums<R> scaled = scaled_segment<T>(g, at, index, segment.dy_cells, segment.team.slots);
    if (!in_range) st = scaled.st, sums = scaled.sums, up = scaled.up;
  }
  if (g.job.sums_out && writes) g.job.sums_out[index] = export_sums(norm, st, up, sums);
  return factors_of(norm, st, up, sums, k);
}

/* First step: the sums of one segment per team. Where no column sums are wanted dx follows at once; otherwise the
 * segment's factors are kept for the second step. Or the public sums are written. */
template <class T>
__global__ void __launch_bounds__(GENERAL_THREADS, 2)
    backward_general_rows_kernel(const __grid_constant__ GeneralBackward g) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  __shared__ double slots[32];
  extern __shared__ uint4 general_cells[];
  const rms_layout &lay = g.job.lay;
  const Team team(g.team, slots);
  const int teams = team.warps > 1 ? 1 : (int)blockDim.x / g.team,
            which = team.warps > 1 ? 0 : (int)threadIdx.x / g.team;
  int64_t unit = (int64_t)blockIdx.x * teams + which;
  const bool active = unit < g.slices * g.count, writes = active && team.leads();
  if (!active) unit = 0;
  const int64_t slice = unit / g.count, row = g.first + (unit - slice * g.count);
  const Place at = place_in_slice(lay, slice, row);
  const int64_t vectors = (lay.width + V - 1) / V;
  const int pieces = 1 + (g.job.x_is_f32 ? KeptRow<float, V>::pieces : 1);
  const BackwardSegment<T> segment(g, team, at, g.kept ? general_cells + which * vectors * pieces : nullptr);
  segment.bring();
  const RowFactors<R> f = segment_factors<T>(g, segment, at, writes);
  if (g.job.sums_out) return;
  if (g.scalars) {
    if (writes) g.scalars[unit] = {f.scale, f.mean, f.r, f.c1, f.c2, f.up, f.down};
    return;
  }
  team.each(vectors, [&](int64_t v, bool here) {
    const int n = active && here ? count_at<V>(lay, v) : 0;
    R dy[V] = {}, h[V] = {};
    if (n > 0) {
      segment.load_dy(v, dy);
      segment.load_x(v, h);
      gradient_h(h, f.scale, f.mean, f.r);
    }
    write_dx<T>(g, segment, at, v, n, f, dy, h, team.lane == 0);
  });
}

/* ---- columns ---- */

/* What a row adds to the column sums of a vector. */
template <class T, int V, class R>
__device__ __forceinline__ void add_columns(const GeneralBackward &g, double (&dweight)[V], double (&dbias)[V],
                                            const R (&dy)[V], R (&h)[V]) {
  if (g.job.lay.rounding == RMS_ROUND_BEFORE_WEIGHT) round_to<T>(h);
  if (g.round_product) {
#pragma unroll
    for (int c = 0; c < V; c++)
      h[c] *= dy[c];
    round_to<T>(h);
  }
#pragma unroll
  for (int c = 0; c < V; c++) {
    dweight[c] = g.round_product ? dweight[c] + (double)h[c] : fused((double)dy[c], (double)h[c], dweight[c]);
    if (g.want_dbias) dbias[c] += (double)dy[c];
  }
}

/* Second step: a thread has one vector of columns and walks rows of a slice, two at once. */
template <class T>
__global__ void __launch_bounds__(COLUMN_THREADS, 3)
    backward_general_columns_kernel(const __grid_constant__ GeneralBackward g) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>, AT_ONCE = 2;
  const rms_layout &lay = g.job.lay;
  const int64_t vectors = (lay.width + V - 1) / V, tiles = (vectors + COLUMN_THREADS - 1) / COLUMN_THREADS;
  const int64_t tile = blockIdx.x % tiles, rest = blockIdx.x / tiles, share = rest % g.shares, slice = rest / g.shares;
  const int64_t v = tile * COLUMN_THREADS + threadIdx.x;
  const int n = v < vectors ? count_at<V>(lay, v) : 0;
  const int64_t row_bytes = lay.width * (int64_t)sizeof(T);
  const Team alone(1, nullptr);
  double dweight[V] = {}, dbias[V] = {};
#pragma unroll 1
  for (int64_t i = share; i < g.count; i += AT_ONCE * g.shares) {
    Sixteen x[AT_ONCE], dy[AT_ONCE];
#pragma unroll
    for (int a = 0; a < AT_ONCE; a++) {
      const int64_t row = i + a * g.shares < g.count ? i + a * g.shares : i;
      const BackwardSegment<T> segment(g, alone, place_in_slice(lay, slice, g.first + row), nullptr);
      const int64_t bytes = n > 0 ? v * 16 : row_bytes;
      dy[a] = fetch(segment.dy, bytes, row_bytes);
      if (!g.job.x_is_f32) x[a] = fetch(segment.x, bytes, row_bytes);
    }
#pragma unroll
    for (int a = 0; a < AT_ONCE; a++) {
      if (i + a * g.shares >= g.count) break;
      const Place at = place_in_slice(lay, slice, g.first + i + a * g.shares);
      const BackwardSegment<T> segment(g, alone, at, nullptr);
      const RowScalars s = g.scalars[slice * g.count + i + a * g.shares];
      const RowFactors<R> f = {(R)s.scale, (R)s.mean, (R)s.r, s.up, (R)s.c1, (R)s.c2, s.down};
      R d[V] = {}, h[V] = {};
      if (n > 0) {
        Packed<T, V> packed;
        put_together(packed.w, dy[a], segment.dy, v * 16, row_bytes);
        unpack(packed, d);
        if (g.job.x_is_f32) {
          segment.load_x(v, h);
        } else {
          put_together(packed.w, x[a], segment.x, v * 16, row_bytes);
          unpack(packed, h);
        }
        gradient_h(h, f.scale, f.mean, f.r);
      }
      write_dx<T>(g, segment, at, v, n, f, d, h, false);
      if (n > 0) add_columns<T>(g, dweight, dbias, d, h);
    }
  }
  double *to = g.partial + (slice * g.shares + share) * lay.width + v * V;
  const int64_t plane = g.want_dweight ? g.slices * g.shares * lay.width : 0;
#pragma unroll
  for (int c = 0; c < V; c++) {
    if (c >= n) continue;
    if (g.want_dweight) to[c] = (g.first > 0 ? to[c] : 0.0) + dweight[c];
    if (g.want_dbias) to[plane + c] = (g.first > 0 ? to[plane + c] : 0.0) + dbias[c];
  }
}

} // namespace rms_cuda

#endif
