/* SPDX-License-Identifier: MIT
 *
 * Kernels that can do everything, reading rows twice: f64 data, index lists, the split operations, and rows that are
 * too wide for the tuned kernels. Their sums have the same order, so they give the same bits. */
#ifndef RMS_CUDA_PLAIN_CUH
#define RMS_CUDA_PLAIN_CUH

#include "forward.cuh"
#include "guard.cuh"

namespace rms_cuda {

enum { PLAIN_TEAM = 512 };

/* n elements from element j on, as T or, if wide, as f32. */
template <class T, int V, class R>
__device__ __forceinline__ void load_elements(R (&f)[V], const char *p, int64_t j, int n, bool wide, bool aligned) {
  if (sizeof(T) == 2 && wide) {
    Packed<float, V> v;
    if (aligned)
      load_vector<true, true>(v, p + j * 4, n);
    else
      load_narrow(v.w, p + j * 4, n * 4);
    unpack(v, f);
  } else {
    Packed<T, V> v;
    if (aligned)
      load_vector<true, true>(v, p + j * (int64_t)sizeof(T), n);
    else
      load_narrow(v.w, p + j * (int64_t)sizeof(T), n * (int)sizeof(T));
    unpack(v, f);
  }
}

template <class T, int V, class R>
__device__ __forceinline__ void store_elements(char *p, int64_t j, const R (&f)[V], int n, bool wide, bool aligned) {
  if constexpr (sizeof(T) == 2) {
    if (wide) {
      Packed<float, V> v;
      pack(v, f);
      if (aligned)
        store_vector<true>(p + j * 4, v, n);
      else
        store_narrow(p + j * 4, v.w, n * 4);
      return;
    }
  }
  Packed<T, V> v;
  pack(v, f);
  if (aligned)
    store_vector<true>(p + j * (int64_t)sizeof(T), v, n);
  else
    store_narrow(p + j * (int64_t)sizeof(T), v.w, n * (int)sizeof(T));
}

template <class T, int V, class R>
__device__ __forceinline__ void load_parameters(R (&f)[V], const char *p, int64_t j, int n, bool wide, bool aligned) {
  if (aligned)
    load_parameter<true, T>(f, p, j, n, wide);
  else
    load_parameter<false, T>(f, p, j, n, wide);
}

/* The threads of a segment: 2^n lanes that have one vector each, or warps (a power of two up to 16). */
struct Crew {
  int lanes, warps, lane, warp;
  double *slots; /* [32], shared */
};

template <class Op, class R, class F>
__device__ __forceinline__ R sum_over(const Crew &crew, int64_t vectors, F of_vector) {
  if (crew.lanes < 32) return butterfly<Op>(crew.lane < vectors ? of_vector(crew.lane) : (R)0, crew.lanes / 2, 1);
  R total = 0;
  for (int64_t panel = 0; panel * 1024 < vectors; panel++) {
    R slot = 0;
    for (int64_t c = panel * 32 + crew.warp; c < panel * 32 + 32 && c * 32 < vectors; c += crew.warps) {
      const int64_t v = c * 32 + crew.lane;
      R sum = butterfly<Op>(v < vectors ? of_vector(v) : (R)0, 16, 1);
      if (crew.lane == (int)(c & 31)) slot = sum;
    }
    if (crew.warps > 1) {
      __syncthreads(); /* the sum before this one has been read */
      if (crew.lane % crew.warps == crew.warp) crew.slots[crew.lane] = (double)slot;
      __syncthreads();
      slot = (R)crew.slots[crew.lane];
    }
    slot = butterfly<Op>(slot, 16, 1);
    total = panel == 0 ? slot : Op::of(total, slot);
  }
  return total;
}

__device__ __forceinline__ Crew join_crew(int team, double *slots) {
  Crew crew;
  crew.lanes = team < 32 ? team : 32;
  crew.lane = (int)threadIdx.x & (crew.lanes - 1);
  crew.warps = team <= 32 ? 1 : team / 32;
  crew.warp = team <= 32 ? 0 : (int)threadIdx.x / 32;
  crew.slots = slots;
  return crew;
}

/* The statistic of a segment that load(j, n, f) reads. */
template <class T, class F>
__device__ __forceinline__ Statistic<real_of<T>> plain_statistic(const Layout &lay, const Crew &crew, F load) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const int64_t vectors = (lay.width + V - 1) / V;
  auto count = [&](int64_t v) -> int { return (int)(lay.width - v * V < V ? lay.width - v * V : V); };
  Statistic<R> st = {0, 0, 0, 0, 1};
#pragma unroll 1
  for (bool scaled = false;; scaled = true) {
    auto sum = [&](bool squares) -> R {
      return sum_over<Add, R>(crew, vectors, [&](int64_t v) -> R {
        R x[V], s = 0;
        int n = count(v);
        unsigned mask = statistic_mask<V>(lay, v * V) & ((1u << n) - 1);
        load(v * V, n, x);
#pragma unroll
        for (int j = 0; j < V; j++) {
          R d = mask >> j & 1 ? fused(x[j], st.scale, -st.mean) : (R)0;
          s = squares ? fused(d, d, s) : s + d;
        }
        return s;
      });
    };
    st.mean = 0;
    if (lay.layer && lay.k > 0) st.mean = quotient(sum(false), (R)lay.k);
    st.sum = sum(true);
    bool again = !in_range(st.sum);
    if (scaled || !(crew.lanes < 32 ? __any_sync(whole_warp, again) != 0 : again)) break;
    R largest = sum_over<Max, R>(crew, vectors, [&](int64_t v) -> R {
      R x[V], most = 0;
      int n = count(v);
      unsigned mask = statistic_mask<V>(lay, v * V) & ((1u << n) - 1);
      load(v * V, n, x);
#pragma unroll
      for (int j = 0; j < V; j++)
        if (mask >> j & 1) most = Max::of(most, size_for_scale(x[j]));
      return most;
    });
    if (again) st.scale = scale_for(largest, lay.eps_limit);
  }
  finish(lay, st, (R)lay.k);
  return st;
}

template <class T>
__global__ void __launch_bounds__(PLAIN_TEAM, 1) plain_forward_kernel(const __grid_constant__ ForwardJob job) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  __shared__ double slots[32];
  const Layout &lay = job.lay;
  Crew crew = join_crew(job.team, slots);
  const int64_t segments = lay.outer * lay.inner * lay.groups, vectors = (lay.width + V - 1) / V;
  int64_t segment = job.first + blockIdx.x;
  if (job.team < 32)
    segment = job.first + (int64_t)blockIdx.x * (blockDim.x / (unsigned)job.team) + threadIdx.x / (unsigned)job.team;
  const bool active = segment < segments;
  if (!active) segment = segments - 1; /* idle teams keep their warp company and store nothing */
  const Place at = place_of(lay, segment);
  const int size = (int)sizeof(T), residual_size = lay.residual_wide ? 4 : size,
            weight_size = lay.weight_wide ? 4 : size;
  const char *x_at = segment_at(job.x, lay, at, size), *residual_at = segment_at(job.residual, lay, at, residual_size);
  auto load = [&](int64_t j, int n, R(&x)[V]) {
    load_elements<T>(x, x_at, j, n, false, job.aligned);
    if (job.residual.data) {
      R r[V];
      load_elements<T>(r, residual_at, j, n, lay.residual_wide, job.aligned);
#pragma unroll
      for (int i = 0; i < V; i++)
        x[i] += r[i];
      if (!lay.residual_wide) round_to<T>(x);
    }
  };

  Statistic<R> st;
  if (job.stats_in)
    st = import_statistic<R>(lay, job.stats_in[segment]);
  else
    st = plain_statistic<T>(lay, crew, load);
  const bool leader = active && crew.lane == 0 && crew.warp == 0;
  if (job.stats_out) {
    if (leader) job.stats_out[segment] = export_statistic(lay, st);
    return;
  }
  if (leader && job.rstd) static_cast<R *>(job.rstd)[segment] = st.r * st.scale;
  if (leader && job.mean) static_cast<R *>(job.mean)[segment] = quotient(st.mean, st.scale);
  if (!active) return;

  char *y_at = segment_at(job.y, lay, at, size), *sum_at = segment_at(job.residual_out, lay, at, residual_size);
  const char *weight_at = parameter_at(lay.weight, lay, at, weight_size),
             *bias_at = parameter_at(job.bias, lay, at, weight_size);
  for (int64_t v = (int64_t)crew.warp * crew.lanes + crew.lane; v < vectors; v += (int64_t)crew.warps * crew.lanes) {
    int n = (int)(lay.width - v * V < V ? lay.width - v * V : V);
    R h[V], g[V], b[V];
    load(v * V, n, h);
    if (job.residual_out.data) store_elements<T>(sum_at, v * V, h, n, lay.residual_wide, job.aligned);
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] = fused(h[j], st.scale, -st.mean) * st.r;
    if (lay.weight) {
      load_parameters<T>(g, weight_at, v * V, n, lay.weight_wide, job.aligned);
      add_offset(g, lay.offset);
    }
    if (job.bias) load_parameters<T>(b, bias_at, v * V, n, lay.weight_wide, job.aligned);
    affine<T>(h, g, b, {lay.weight != nullptr, job.bias != nullptr, lay.before, lay.weight_wide});
    store_elements<T>(y_at, v * V, h, n, false, job.aligned);
  }
}

/* ---- backward ---- */

/* Where a row of a slice is. */
__device__ __forceinline__ Place place_in_slice(const BackwardJob &job, int64_t slice, int64_t row) {
  const Layout &lay = job.lay;
  Place at = {row, 0, slice % lay.groups};
  if (lay.weight_inner != 0) {
    at.inner = slice / lay.groups;
  } else if (lay.inner > 1) {
    at.outer = row / lay.inner;
    at.inner = row - at.outer * lay.inner;
  }
  return at;
}

__device__ __forceinline__ int64_t segment_of(const Layout &lay, const Place &at) {
  return (at.outer * lay.inner + at.inner) * lay.groups + at.group;
}

/* A segment in memory, for the range guard: vectors v of its threads. */
template <class T> struct SegmentRow {
  using R = real_of<T>;
  static constexpr int V = vector_of<T>;
  const BackwardJob &job;
  const Crew &crew;
  const char *x, *dy, *weight;

  __device__ __forceinline__ SegmentRow(const BackwardJob &of, const Crew &by, const Place &at)
      : job(of), crew(by), x(segment_at(of.x, of.lay, at, of.x_wide ? 4 : (int)sizeof(T))),
        dy(segment_at(of.dy, of.lay, at, (int)sizeof(T))),
        weight(parameter_at(of.lay.weight, of.lay, at, of.lay.weight_wide ? 4 : (int)sizeof(T))) {}

  __device__ __forceinline__ int count(int64_t v) const {
    return (int)(job.lay.width - v * V < V ? job.lay.width - v * V : V);
  }
  __device__ __forceinline__ unsigned mask(int64_t v) const {
    return statistic_mask<V>(job.lay, v * V) & ((1u << count(v)) - 1);
  }
  __device__ __forceinline__ void load_x(int64_t v, R (&f)[V]) const {
    load_elements<T>(f, x, v * V, count(v), job.x_wide, job.aligned);
  }
  __device__ __forceinline__ void load_dy(int64_t v, R (&f)[V]) const {
    load_elements<T>(f, dy, v * V, count(v), false, job.aligned);
  }
  __device__ __forceinline__ void load_g(int64_t v, R (&g)[V]) const {
    if (job.lay.weight) {
      load_parameters<T>(g, weight, v * V, count(v), job.lay.weight_wide, job.aligned);
      add_offset(g, job.lay.offset);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j] = 1;
    }
  }
  template <class Op, class F> __device__ __forceinline__ R over(F of_vector) const {
    return sum_over<Op, R>(crew, (job.lay.width + V - 1) / V, of_vector);
  }
};

template <class R> __device__ __forceinline__ GuardSpec<R> guard_of(const Layout &lay) {
  return {lay.eps, (R)lay.k, lay.eps_limit, lay.layer, lay.eps_outside, lay.before};
}

/* Vector v of dx and dresidual_out; in d and h what dweight is made of. */
template <class T>
__device__ __forceinline__ void plain_apply(const BackwardJob &job, const SegmentRow<T> &row, const Place &at,
                                            int64_t v, const GuardSpec<real_of<T>> &spec,
                                            const RowFactors<real_of<T>> &f, real_of<T> (&d)[vector_of<T>],
                                            real_of<T> (&h)[vector_of<T>]) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const Layout &lay = job.lay;
  const int size = (int)sizeof(T), residual_size = lay.residual_wide ? 4 : size, n = row.count(v);
  const int64_t j = v * V;
  R out[V], g[V];
  row.load_dy(v, d);
  row.load_x(v, h);
  gradient_h(h, f.scale, f.mean, f.r);
  if (!job.dx.data && !job.dresidual_out.data) return;
  row.load_g(v, g);
#pragma unroll
  for (int i = 0; i < V; i++)
    out[i] = d[i];
  if (f.up == 0 && f.down == 0) {
    gradient_u<false, T>(spec, out, g, 0);
    gradient_dx<false>(f, out, h, row.mask(v));
  } else {
    gradient_u<true, T>(spec, out, g, f.up);
    gradient_dx<true>(f, out, h, row.mask(v));
  }
  if (job.dresidual.data) {
    R more[V];
    load_elements<T>(more, segment_at(job.dresidual, lay, at, residual_size), j, n, lay.residual_wide, job.aligned);
#pragma unroll
    for (int i = 0; i < V; i++)
      out[i] += more[i];
  }
  if (job.add_to_dx) {
    R more[V];
    load_elements<T>(more, segment_at(job.dx, lay, at, size), j, n, false, job.aligned);
#pragma unroll
    for (int i = 0; i < V; i++)
      out[i] += more[i];
  }
  if (job.dresidual_out.data)
    store_elements<T>(segment_at(job.dresidual_out, lay, at, residual_size), j, out, n, lay.residual_wide, job.aligned);
  if (job.dx.data) store_elements<T>(segment_at(job.dx, lay, at, size), j, out, n, false, job.aligned);
}

/* ---- the split form ---- */

/* The public sums of a row, from those of its statistic and its u*2^up, and back. RMSNorm of f32, bf16 and f16 data
 * divides the sum of u*h by r: multiplied by it again it rounds back to the same number. */
template <class R>
__device__ __forceinline__ rms_grad_sum export_sums(const GuardSpec<R> &spec, const Statistic<R> &st, int up,
                                                    const GradientSums<R> &sums) {
  rms_grad_sum out = {times_power((double)sums.dot, -up), times_power((double)sums.u, -up)};
  if (spec.layer) return out;
  const double r = sums_x(spec) ? (double)st.scale : (double)st.r * (double)st.scale;
  out.ux = r != 0 ? out.ux / r : 0;
  out.u = 0;
  return out;
}

template <class R>
__device__ __forceinline__ GradientSums<R> import_sums(const GuardSpec<R> &spec, const Statistic<R> &st, int up,
                                                       const rms_grad_sum &in) {
  double dot = in.ux;
  if (!spec.layer) dot *= sums_x(spec) ? (double)st.scale : (double)st.r * (double)st.scale;
  return {(R)times_power(dot, up), (R)times_power(in.u, up)};
}

/* The factors of a segment. calm: whether the local sums are; of a split backward's second half (sums_in) those of all
 * shards have to be too. */
template <class T>
__device__ __forceinline__ RowFactors<real_of<T>> plain_factors(const BackwardJob &job, const Crew &crew,
                                                                SegmentRow<T> &row, int64_t segment, bool write) {
  using R = real_of<T>;
  const Layout &lay = job.lay;
  const GuardSpec<R> spec = guard_of<R>(lay);
  const rms_stat *stats = job.stats_in ? job.stats_in + segment : nullptr;
  const R k = stats ? (R)stats->count : spec.k;
  Statistic<R> st = {0, 0, 0, 0, 1};
  if (stats) {
    st = given_statistic<R>(spec, *stats);
  } else if (job.rstd && !lay.eps_outside) {
    st.r = static_cast<const R *>(job.rstd)[segment];
    if (job.mean) st.mean = static_cast<const R *>(job.mean)[segment];
  } else {
    st = row_statistic<false>(spec, row);
  }
  GradientSums<R> sums = row_sums<false, T>(spec, row, st, 0);
  bool good = calm(spec, st.r, sums);
  if (job.sums_in && good) {
    sums = import_sums(spec, st, 0, job.sums_in[segment]);
    good = calm(spec, st.r, sums);
  }
  int up = 0;
  if (crew.lanes < 32 ? __any_sync(whole_warp, !good) != 0 : !good) {
    const Statistic<R> scaled = stats ? import_statistic<R>(spec, *stats) : row_statistic<true>(spec, row);
    const int exponent = row_exponent<T>(spec, row);
    GradientSums<R> scaled_sums = row_sums<true, T>(spec, row, scaled, exponent);
    if (job.sums_in) scaled_sums = import_sums(spec, scaled, exponent, job.sums_in[segment]);
    if (!good) st = scaled, sums = scaled_sums, up = exponent;
  }
  if (job.sums_out && write) job.sums_out[segment] = export_sums(spec, st, up, sums);
  return factors_of(spec, st, up, sums, k);
}

/* First half: the sums of one segment per block, or per team of lanes. Where no column sums are asked for the second
 * half follows at once; otherwise its factors are kept for it. Or the public sums are written. */
template <class T>
__global__ void __launch_bounds__(PLAIN_TEAM, 1) plain_rows_kernel(const __grid_constant__ BackwardJob job) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  __shared__ double slots[32];
  const Layout &lay = job.lay;
  Crew crew = join_crew(job.team, slots);
  int64_t unit = blockIdx.x;
  if (job.team < 32) unit = (int64_t)blockIdx.x * (blockDim.x / (unsigned)job.team) + threadIdx.x / (unsigned)job.team;
  const bool active = unit < job.slices * job.count;
  if (!active) unit = 0;
  const int64_t slice = unit / job.count, row = job.first + (unit - slice * job.count);
  const Place at = place_in_slice(job, slice, row);
  const bool leader = active && crew.lane == 0 && crew.warp == 0;
  SegmentRow<T> seg(job, crew, at);
  const RowFactors<R> f = plain_factors(job, crew, seg, segment_of(lay, at), leader);
  if (job.sums_out) return;
  if (job.scalars) {
    if (leader) job.scalars[unit] = {f.scale, f.mean, f.r, f.c1, f.c2, f.up, f.down};
    return;
  }
  if (!active) return;
  const GuardSpec<R> spec = guard_of<R>(lay);
  const int64_t vectors = (lay.width + V - 1) / V;
  for (int64_t v = (int64_t)crew.warp * crew.lanes + crew.lane; v < vectors; v += (int64_t)crew.warps * crew.lanes) {
    R d[V], h[V];
    plain_apply(job, seg, at, v, spec, f, d, h);
  }
}

/* Second half: a thread has one vector of columns and walks the rows of its block of rows. */
template <class T>
__global__ void __launch_bounds__(128, 1) plain_columns_kernel(const __grid_constant__ BackwardJob job) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const Layout &lay = job.lay;
  const int64_t vectors = (lay.width + V - 1) / V, tiles = (vectors + blockDim.x - 1) / blockDim.x;
  const int64_t tile = blockIdx.x % tiles, rest = blockIdx.x / tiles, share = rest % job.shares,
                slice = rest / job.shares;
  const int64_t v = tile * blockDim.x + threadIdx.x, j = v * V;
  if (v >= vectors) return;
  const Crew alone = {1, 1, 0, 0, nullptr};
  const GuardSpec<R> spec = guard_of<R>(lay);
  const int n = (int)(lay.width - j < V ? lay.width - j : V);
  R dweight[V] = {}, dbias[V] = {};
  double dweight_total[V] = {}, dbias_total[V] = {};
  int in_block = 0;
  for (int64_t i = share; i < job.count; i += job.shares) {
    const Place at = place_in_slice(job, slice, job.first + i);
    const RowScalars s = job.scalars[slice * job.count + i];
    const RowFactors<R> f = {(R)s.scale, (R)s.mean, (R)s.r, s.up, (R)s.c1, (R)s.c2, s.down};
    const SegmentRow<T> seg(job, alone, at);
    R d[V], h[V];
    plain_apply(job, seg, at, v, spec, f, d, h);
    if (lay.before) round_to<T>(h);
    if (job.round_product) {
#pragma unroll
      for (int c = 0; c < V; c++)
        h[c] *= d[c];
      round_to<T>(h);
    }
#pragma unroll
    for (int c = 0; c < V; c++) {
      dweight[c] = job.round_product ? dweight[c] + h[c] : fused(d[c], h[c], dweight[c]);
      dbias[c] += d[c];
    }
    if (++in_block == BLOCK_ROWS || i + job.shares >= job.count) {
#pragma unroll
      for (int c = 0; c < V; c++) {
        dweight_total[c] += (double)dweight[c], dbias_total[c] += (double)dbias[c];
        dweight[c] = dbias[c] = 0;
      }
      in_block = 0;
    }
  }
  double *to = static_cast<double *>(job.partial) + (slice * job.shares + share) * lay.width + j;
  const int64_t plane = job.want_dweight ? job.slices * job.shares * lay.width : 0;
#pragma unroll
  for (int c = 0; c < V; c++) {
    if (c >= n) continue;
    if (job.want_dweight) to[c] = (job.first > 0 ? to[c] : 0.0) + dweight_total[c];
    if (job.want_dbias) to[plane + c] = (job.first > 0 ? to[plane + c] : 0.0) + dbias_total[c];
  }
}

} // namespace rms_cuda

#endif
