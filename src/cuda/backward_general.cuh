/* SPDX-License-Identifier: MIT
 *
 * Backward and its two halves of any rows: general.cuh, forward_general.cuh. Blocks walk the rows of a slice; each
 * row's dx follows its sums, and its part of dweight and dbias is added to f64 sums in shared memory.
 *
 * Where a row or these sums do not fit there, the columns take a second step: the first keeps the factors of a batch of
 * rows, the second has threads that own columns walk down them and write dx and the column sums. */
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

/* Whether dy has another type than the data. It is kept in f32 then. */
template <class T> __device__ __forceinline__ bool dy_has_own_type(const GeneralBackward &g) {
  return sizeof(T) < 8 && g.job.dy_type != g.job.lay.dtype;
}

/* Sixteen bytes of a vector that are kept: of dy; and of dy, x and the gate. */
template <class T> __device__ __forceinline__ int dy_pieces(const GeneralBackward &g) {
  return dy_has_own_type<T>(g) ? vector_of<T> * 4 / 16 : 1;
}
template <class T, bool GATED> __device__ __forceinline__ int backward_pieces(const GeneralBackward &g) {
  return dy_pieces<T>(g) + (sizeof(T) == 2 && g.job.x_is_f32 ? vector_of<T> * 4 / 16 : 1) + (GATED ? 1 : 0);
}

/* A segment in shared memory or in memory: what the range guard asks for. With a gate after the norm dm = dy*act(z)
 * stands for dy, and with one before it x*act(z) for x. */
template <class T, bool ALIGNED, bool GATED> struct BackwardSegment {
  using R = real_of<T>;
  static constexpr int V = vector_of<T>;
  static constexpr bool has_f32 = sizeof(T) == 2;
  const GeneralBackward &g;
  const Team &team;
  KeptRow<T, V, ALIGNED> dy, x_row, gate;
  const char *weight;
  int64_t vectors;

  /* cells: those of this team, or NULL. */
  __device__ __forceinline__ BackwardSegment(const GeneralBackward &of, const Team &by, const Place &at, uint4 *cells)
      : g(of),
        team(by), dy{{segment_at(of.job.dy, of.job.lay, at, (int)element_size(of.job.dy_type)), of.job.lay.width},
                     cells},
        x_row{{segment_at(of.job.x, of.job.lay, at, of.job.x_is_f32 ? 4 : (int)sizeof(T)), of.job.lay.width}, nullptr},
        gate{{GATED ? segment_at(of.job.gate, of.job.lay, at, (int)sizeof(T)) : nullptr, of.job.lay.width}, nullptr} {
    vectors = (lay().width + V - 1) / V;
    if (cells) x_row.cells = cells + vectors * dy_pieces<T>(g);
    if (cells && GATED) gate.cells = cells + vectors * backward_pieces<T, false>(g);
    weight = parameter_at(lay().weight, lay(), at, lay().weight_is_f32 ? 4 : (int)sizeof(T));
  }
  __device__ __forceinline__ const rms_layout &lay() const { return g.job.lay; }
  __device__ __forceinline__ bool x_is_f32() const { return has_f32 && g.job.x_is_f32; }
  __device__ __forceinline__ KeptRow<float, V, ALIGNED> f32_row() const {
    return {{x_row.row.row, lay().width}, x_row.cells};
  }
  /* Of a dy of another type, in place of dy: as it is kept. */
  __device__ __forceinline__ KeptRow<float, V, ALIGNED> kept_dy() const {
    return {{dy.row.row, lay().width}, dy.cells};
  }
  __device__ __forceinline__ void bring_dy() const {
    if (!g.job.dy.data) return;
    if constexpr (sizeof(R) == 4) {
      if (dy_has_own_type<T>(g)) {
        if (!dy.cells) return;
        team.each(vectors, [&](int64_t v) {
          const Floats<V> f = load_any<ALIGNED, V>(dy.row.row, lay().width, v, g.job.dy_type);
          Packed<float, V> wide;
          pack(wide, f.of);
          kept_dy().keep(v, wide);
        });
        return;
      }
    }
    dy.bring(team, vectors);
  }
  __device__ __forceinline__ bool gated_after() const { return GATED && lay().gate_place == RMS_GATE_AFTER; }
  __device__ __forceinline__ bool gated_before() const { return GATED && lay().gate_place == RMS_GATE_BEFORE; }
  __device__ __forceinline__ bool is_sigmoid() const { return lay().activation == RMS_ACT_SIGMOID; }
  __device__ __forceinline__ void bring() const {
    bring_dy();
    if constexpr (GATED) gate.bring(team, vectors);
    if constexpr (has_f32) {
      if (x_is_f32()) {
        f32_row().bring(team, vectors);
        return;
      }
    }
    x_row.bring(team, vectors);
  }
  __device__ __forceinline__ unsigned mask(int64_t v) const { return statistic_mask<V>(lay(), g.whole, v); }
  __device__ __forceinline__ bool counts_all() const { return g.whole; }
  __device__ __forceinline__ void load_gate(int64_t v, R (&z)[V]) const {
    Packed<T, V> in;
    gate.load(v, in);
    unpack(in, z);
  }
  /* dm from dy, and what was normalised from x. */
  __device__ __forceinline__ void open_dy(R (&f)[V], const R (&act)[V]) const {
    multiply(f, act);
    if (g.round_product) round_to<T>(f);
  }
  __device__ __forceinline__ void open_x(R (&f)[V], const R (&act)[V]) const { multiply(f, act); }
  __device__ __forceinline__ void load_x(int64_t v, R (&f)[V]) const {
    load_given_x(v, f);
    if constexpr (GATED) {
      if (!gated_before()) return;
      R act[V];
      load_gate(v, act);
      activate(act, is_sigmoid());
      open_x(f, act);
    }
  }
  __device__ __forceinline__ void load_dy(int64_t v, R (&f)[V]) const {
    load_given_dy(v, f);
    if constexpr (GATED) {
      if (!gated_after()) return;
      R act[V];
      load_gate(v, act);
      activate(act, is_sigmoid());
      open_dy(f, act);
    }
  }
  /* As they are in memory. */
  __device__ __forceinline__ void load_given_x(int64_t v, R (&f)[V]) const {
    if constexpr (has_f32) {
      if (x_is_f32()) {
        Packed<float, V> wide;
        f32_row().load(v, wide);
        unpack(wide, f);
        return;
      }
    }
    Packed<T, V> in;
    x_row.load(v, in);
    unpack(in, f);
  }
  __device__ __forceinline__ void load_given_dy(int64_t v, R (&f)[V]) const {
    if (!g.job.dy.data) {
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] = 0;
      return;
    }
    if constexpr (sizeof(R) == 4) {
      if (dy_has_own_type<T>(g)) {
        Packed<float, V> wide;
        if (dy.cells)
          kept_dy().load(v, wide);
        else
          pack(wide, load_any<ALIGNED, V>(dy.row.row, lay().width, v, g.job.dy_type).of);
        unpack(wide, f);
        return;
      }
    }
    Packed<T, V> in;
    dy.load(v, in);
    unpack(in, f);
  }
  __device__ __forceinline__ void load_g(int64_t v, R (&f)[V]) const {
    if (lay().weight) {
      load_gains<T, ALIGNED>(f, weight, lay(), v);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] = 1;
    }
  }
  template <class Op, class F> __device__ __forceinline__ R over(F of_vector) const {
    return team.sum<Op, R>(vectors, of_vector);
  }
};

/* ---- dx ---- */

/* Vector v of dx, from dy (dm) and h, but for what is added to it. */
template <class T, bool ALIGNED, bool GATED, int V, class R>
__device__ __forceinline__ void make_dx(const GeneralBackward &g, const BackwardSegment<T, ALIGNED, GATED> &segment,
                                        int64_t v, const RowFactors<R> &f, const R (&dy)[V], const R (&h)[V],
                                        R (&out)[V]) {
  const Norm<R> norm = norm_of<R>(g.job.lay, g.eps_limit);
  const bool terms = sizeof(T) == 2 && !GATED && g.job.lay.steps == RMS_STEPS_TERMS;
  R gain[V];
  segment.load_g(v, gain);
#pragma unroll
  for (int i = 0; i < V; i++)
    out[i] = dy[i];
  if (f.up == 0 && f.down == 0) {
    gradient_u<false, T>(norm, out, gain, 0);
    if (!terms) gradient_dx<false>(f, out, h, segment.mask(v));
  } else {
    gradient_u<true, T>(norm, out, gain, f.up);
    if (!terms) gradient_dx<true>(f, out, h, segment.mask(v));
  }
  if constexpr (sizeof(T) == 2 && !GATED) {
    if (terms) gradient_terms<T>(f, out, h, segment.mask(v));
  }
}

template <class T, bool ALIGNED, int V, class R>
__device__ __forceinline__ void add_to_dx(const GeneralBackward &g, const Place &at, int64_t v, R (&out)[V]) {
  const rms_layout &lay = g.job.lay;
  auto add = [&](const Rows &rows, bool is_f32) {
    R more[V];
    load_elements<T, ALIGNED>(more, segment_at(rows, lay, at, is_f32 ? 4 : (int)sizeof(T)), lay.width, v, is_f32);
#pragma unroll
    for (int i = 0; i < V; i++)
      out[i] += more[i];
  };
  if (g.job.dresidual.data) add(g.job.dresidual, lay.residual_is_f32);
  if (g.job.add_to_dx) add(g.job.dx, false);
}

/* What the forward multiplied by the activation of a gate after the norm: from h. */
template <class T, bool ALIGNED, bool GATED, int V, class R>
__device__ __forceinline__ void make_ungated(const GeneralBackward &g,
                                             const BackwardSegment<T, ALIGNED, GATED> &segment, const Place &at,
                                             int64_t v, R (&h)[V]) {
  const rms_layout &lay = g.job.lay;
  const Affine form = {lay.weight != nullptr, g.job.bias != nullptr, lay.rounding == RMS_ROUND_BEFORE_WEIGHT,
                       lay.weight_is_f32, false};
  R gain[V], b[V];
  segment.load_g(v, gain);
  if (g.job.bias)
    load_parameters<T, ALIGNED>(b, parameter_at(g.job.bias, lay, at, lay.weight_is_f32 ? 4 : (int)sizeof(T)), lay, v);
  affine<T>(h, gain, b, form);
  round_before_gate<T>(h, form);
}

/* What the gradient of the mean adds to every dx of a segment. */
template <class R> __device__ __forceinline__ R shift_of(const GeneralBackward &g, const Place &at) {
  const rms_layout &lay = g.job.lay;
  return g.job.dmean ? quotient(static_cast<const R *>(g.job.dmean)[segment_of(lay, at)], (R)lay.k) : (R)0;
}
template <int V, class R> __device__ __forceinline__ void shift_by(R (&dx)[V], R shift) {
#pragma unroll
  for (int i = 0; i < V; i++)
    dx[i] += shift;
}

/* The results of vector v of a row. dy and x, as they are in memory, become dm and h. */
template <class T, bool ALIGNED, bool GATED, int V, class R>
__device__ __forceinline__ void make_vector(const GeneralBackward &g, const BackwardSegment<T, ALIGNED, GATED> &segment,
                                            const Place &at, int64_t v, const RowFactors<R> &f, R (&dy)[V], R (&x)[V],
                                            R (&dx)[V], R (&dgate)[V]) {
  const bool wants_dx = g.job.dx.data || g.job.dresidual_out.data;
  const R shift = shift_of<R>(g, at);
  if constexpr (GATED) {
    const bool before = segment.gated_before();
    R act[V], factor[V]; /* factor: of the slope in dgate */
    segment.load_gate(v, act);
    activate(act, dgate, segment.is_sigmoid());
#pragma unroll
    for (int i = 0; i < V; i++)
      factor[i] = before ? x[i] : dy[i];
    if (before)
      segment.open_x(x, act);
    else
      segment.open_dy(dy, act);
    gradient_h(x, f.scale, f.mean, f.r);
    if (wants_dx || before) make_dx<T>(g, segment, v, f, dy, x, dx);
    if (g.job.dmean) shift_by(dx, shift);
    if (before) {
#pragma unroll
      for (int i = 0; i < V; i++)
        dgate[i] *= dx[i] * factor[i];
      multiply(dx, act);
    } else if (g.job.dgate.data) {
      R m[V];
#pragma unroll
      for (int i = 0; i < V; i++)
        m[i] = x[i];
      make_ungated<T>(g, segment, at, v, m);
#pragma unroll
      for (int i = 0; i < V; i++)
        dgate[i] *= factor[i] * m[i];
    }
  } else {
    gradient_h(x, f.scale, f.mean, f.r);
    if (wants_dx) make_dx<T>(g, segment, v, f, dy, x, dx);
    if (g.job.dmean) shift_by(dx, shift);
  }
  if (wants_dx) add_to_dx<T, ALIGNED>(g, at, v, dx);
}

/* To memory, after all of the vector was read: each may lie where one of the tensors does that are read. */
template <class T, bool ALIGNED, bool GATED, int V, class R>
__device__ __forceinline__ void write_vector(const GeneralBackward &g, const Place &at, int64_t v, const R (&out)[V],
                                             const R (&dgate)[V]) {
  const rms_layout &lay = g.job.lay;
  const int n = count_at<V>(lay, v), size = (int)sizeof(T), residual_size = lay.residual_is_f32 ? 4 : size;
  if (g.job.dresidual_out.data)
    store_elements<T, ALIGNED>(segment_at(g.job.dresidual_out, lay, at, residual_size), v, out, n, lay.residual_is_f32);
  if (g.job.dx.data) store_elements<T, ALIGNED>(segment_at(g.job.dx, lay, at, size), v, out, n, false);
  if (GATED && g.job.dgate.data) store_elements<T, ALIGNED>(segment_at(g.job.dgate, lay, at, size), v, dgate, n, false);
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

/* ---- a gradient of r itself ---- */

template <class R> __device__ __forceinline__ R drstd_of(const GeneralBackward &g, int64_t index) {
  return g.job.drstd ? static_cast<const R *>(g.job.drstd)[index] : (R)0;
}

/* What it adds to the sum of a row, for u times 2^up. */
template <class R>
__device__ __forceinline__ R dot_of_drstd(const Norm<R> &norm, const Statistic<R> &st, R drstd, int up) {
  if (!(fabs((double)drstd) <= Range<double>::most())) return (R)NAN;
  const double scaled = times_power((double)drstd, exponent_of(st.scale) + up);
  return (R)(sums_x(norm) ? scaled : scaled * (double)st.r);
}

/* The exponent by which u of a scaled row is scaled then: less than `up` where what is added would be beyond all
 * bounds, and where there is no dy one that brings it to the order of one. */
template <class R>
__device__ __forceinline__ int exponent_with_drstd(const Norm<R> &norm, const Statistic<R> &st, R drstd, bool has_dy,
                                                   int up) {
  const int most = sizeof(R) == 8 ? 900 : 100;
  int own = exponent_of((double)drstd) + exponent_of(st.scale);
  if (norm.eps_outside)
    own -= st.rms > 0 ? exponent_of(st.rms) : 0;
  else if (st.r > 1)
    own += 3 * exponent_of(st.r);
  return !has_dy ? -own : own + up > most ? most - own : up;
}

/* ---- the sums of a row ---- */

/* The scaled way, in a function of its own, so that the usual one has the registers for itself. */
template <class R> struct ScaledSums {
  Statistic<R> st;
  GradientSums<R> sums;
  int up;
};
template <class T, bool ALIGNED, bool GATED>
__device__ __noinline__ ScaledSums<real_of<T>> scaled_segment(const GeneralBackward &g, const Place &at, int64_t index,
                                                              uint4 *cells, double *slots) {
  using R = real_of<T>;
  const Team team(g.team, slots);
  const BackwardSegment<T, ALIGNED, GATED> segment(g, team, at, cells);
  const Norm<R> norm = norm_of<R>(g.job.lay, g.eps_limit);
  ScaledSums<R> s;
  s.st = g.job.stats_in ? import_statistic(norm, g.job.stats_in[index]) : row_statistic<true>(norm, segment);
  s.up = row_exponent<T>(norm, segment);
  const R drstd = drstd_of<R>(g, index);
  if (drstd != 0) s.up = exponent_with_drstd(norm, s.st, drstd, g.job.dy.data != nullptr, s.up);
  s.sums = row_sums<true, T>(norm, segment, s.st, s.up);
  if (drstd != 0) s.sums.dot += dot_of_drstd(norm, s.st, drstd, s.up);
  if (g.job.sums_in) s.sums = import_sums(norm, s.st, s.up, g.job.sums_in[index]);
  return s;
}

/* The factors of a segment. In the second half of a split backward (sums_in) the sums of all shards have to be in range
 * as well as those of this one. */
template <class T, bool ALIGNED, bool GATED>
__device__ __forceinline__ RowFactors<real_of<T>> segment_factors(const GeneralBackward &g,
                                                                  const BackwardSegment<T, ALIGNED, GATED> &segment,
                                                                  const Place &at, bool writes) {
  using R = real_of<T>;
  const Norm<R> norm = norm_of<R>(g.job.lay, g.eps_limit);
  const int64_t index = segment_of(g.job.lay, at);
  const rms_stat *stats = g.job.stats_in ? g.job.stats_in + index : nullptr;
  const R k = stats ? (R)stats->count : norm.k;
  Statistic<R> st = {0, 0, 0, 0, 1, 0};
  if (stats) {
    st = given_statistic(norm, *stats);
  } else if (g.job.rstd && !norm.eps_outside) {
    st.r = static_cast<const R *>(g.job.rstd)[index];
    if (g.job.mean) st.mean = static_cast<const R *>(g.job.mean)[index];
  } else {
    st = row_statistic<false>(norm, segment);
  }
  GradientSums<R> sums = row_sums<false, T>(norm, segment, st, 0);
  bool in_range = row_in_range(norm, st.r, sums), zeros = false;
  if (segment.team.any(!in_range)) zeros = row_adds_zeros<T>(norm, segment, st) && r_in_range(st.r);
  in_range = in_range || zeros;
  if (g.job.sums_in && in_range) {
    sums = import_sums(norm, st, 0, g.job.sums_in[index]);
    in_range = row_in_range(norm, st.r, sums) || (zeros && sums.dot == 0);
  }
  const R drstd = drstd_of<R>(g, index);
  if (drstd != 0 && in_range) {
    sums.dot += dot_of_drstd(norm, st, drstd, 0);
    in_range = !norm.eps_outside && sum_in_range(dot_uh(norm, sums.dot, st.r));
  }
  int up = 0;
  if (segment.team.any(!in_range)) {
    const ScaledSums<R> scaled = scaled_segment<T, ALIGNED, GATED>(g, at, index, segment.dy.cells, segment.team.slots);
    if (!in_range) st = scaled.st, sums = scaled.sums, up = scaled.up;
  }
  if (g.job.sums_out && writes) g.job.sums_out[index] = export_sums(norm, st, up, sums);
  return factors_of(norm, st, up, sums, k);
}

/* ---- column sums ---- */

/* What dweight gets from a vector of a row, from dy and h. */
template <class T, int V, class R>
__device__ __forceinline__ void dweight_terms(const GeneralBackward &g, const R (&dy)[V], R (&h)[V], double (&sum)[V]) {
  if (g.job.lay.rounding == RMS_ROUND_BEFORE_WEIGHT) round_to<T>(h);
  if (g.round_product) {
#pragma unroll
    for (int c = 0; c < V; c++)
      h[c] *= dy[c];
    round_to<T>(h);
#pragma unroll
    for (int c = 0; c < V; c++)
      sum[c] += (double)h[c];
  } else {
#pragma unroll
    for (int c = 0; c < V; c++)
      sum[c] = fused((double)dy[c], (double)h[c], sum[c]);
  }
}

/* The column sums of a team in shared memory: planes of a number for each vector, one for each element of it, first of
 * dweight and then of dbias. Each thread has those of its own vectors. */
template <int V> struct TeamColumns {
  double *sums; /* NULL: they are not kept here */
  int vectors, planes;

  __device__ __forceinline__ int size() const { return planes * V * vectors; }
  __device__ __forceinline__ void get(int plane, int64_t v, double (&sum)[V]) const {
#pragma unroll
    for (int c = 0; c < V; c++)
      sum[c] = sums[(plane * V + c) * vectors + v];
  }
  __device__ __forceinline__ void set(int plane, int64_t v, const double (&sum)[V]) const {
#pragma unroll
    for (int c = 0; c < V; c++)
      sums[(plane * V + c) * vectors + v] = sum[c];
  }
  template <class T, class R>
  __device__ __forceinline__ void add(const GeneralBackward &g, int64_t v, const R (&dy)[V], R (&h)[V]) const {
    double sum[V];
    if (g.want_dbias) {
      get(planes - 1, v, sum);
#pragma unroll
      for (int c = 0; c < V; c++)
        sum[c] += (double)dy[c];
      set(planes - 1, v, sum);
    }
    if (g.want_dweight) {
      get(0, v, sum);
      dweight_terms<T>(g, dy, h, sum);
      set(0, v, sum);
    }
  }
};

/* Adds the teams of a block, of which the first has its sums at `first`, and writes them. */
template <int V>
__device__ __forceinline__ void write_partial(const GeneralBackward &g, const TeamColumns<V> &first, int teams,
                                              int64_t slice, int64_t share) {
  const int64_t width = g.job.lay.width;
  __syncthreads();
  for (int plane = 0; plane < first.planes; plane++) {
    double *to = g.partial + ((plane * g.slices + slice) * g.shares + share) * width;
    for (int j = (int)threadIdx.x; j < width; j += (int)blockDim.x) {
      double sum = 0;
      for (int t = 0; t < teams; t++)
        sum += first.sums[t * first.size() + (plane * V + j % V) * first.vectors + j / V];
      to[j] = sum;
    }
  }
}

/* ---- rows ---- */

/* One row of a team: its sums, and then dx, dgate and its part of the column sums, or the factors for the second step,
 * or the public sums. */
template <class T, bool ALIGNED, bool GATED>
__device__ __forceinline__ void do_row(const GeneralBackward &g, const Team &team, uint4 *cells, int64_t slice,
                                       int64_t row, bool active, const TeamColumns<vector_of<T>> &columns) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>;
  const rms_layout &lay = g.job.lay;
  const bool writes = active && team.leads();
  const Place at = place_in_slice(lay, slice, g.first + row);
  const BackwardSegment<T, ALIGNED, GATED> segment(g, team, at, cells);
  segment.bring();
  wait_for_kept();
  const RowFactors<R> f = segment_factors(g, segment, at, writes);
  if (g.job.sums_out) return;
  if (g.scalars) {
    if (writes) g.scalars[slice * g.count + row] = {f.scale, f.mean, f.r, f.c1, f.c2, f.up, f.down};
    return;
  }
  const bool wants_dx = g.job.dx.data || g.job.dresidual_out.data, wants_dgate = GATED && g.job.dgate.data;
  /* by way of shared memory, where dy and the gate were */
  const bool through = !ALIGNED && cells && (wants_dx || wants_dgate) && !dy_has_own_type<T>(g) &&
                       !(g.job.dresidual_out.data && lay.residual_is_f32);
  auto keep = [&](const KeptRow<T, V, ALIGNED> &to, int64_t v, const R(&out)[V]) {
    Packed<T, V> packed;
    pack(packed, out);
    to.keep(v, packed);
  };
  if (active)
    team.each(segment.vectors, [&](int64_t v) {
      R dy[V], x[V], dx[V], dgate[V];
      segment.load_given_dy(v, dy);
      segment.load_given_x(v, x);
      make_vector<T>(g, segment, at, v, f, dy, x, dx, dgate);
      if (through) {
        if (wants_dx) keep(segment.dy, v, dx);
        if (wants_dgate) keep(segment.gate, v, dgate);
      } else {
        write_vector<T, ALIGNED, GATED>(g, at, v, dx, dgate);
      }
      if (columns.sums) columns.template add<T>(g, v, dy, x);
    });
  if (!through) return;
  team.sync();
  auto write = [&](const Rows &to, const uint4 *from) {
    if (active && to.data)
      copy_out(team, from, segment_at(to, lay, at, (int)sizeof(T)), (int)(lay.width * (int64_t)sizeof(T)));
  };
  write(g.job.dresidual_out, cells);
  write(g.job.dx, cells);
  if constexpr (GATED) write(g.job.dgate, segment.gate.cells);
  team.sync();
}

/* Blocks come slice by slice; the teams of a block have every `shares * teams`-th row. */
template <class T, bool ALIGNED, bool GATED>
__global__ void __launch_bounds__(GENERAL_THREADS, ALIGNED ? 2 : 1)
    backward_general_rows_kernel(const __grid_constant__ GeneralBackward g) {
  constexpr int V = vector_of<T>;
  __shared__ double slots[32];
  extern __shared__ uint4 general_cells[];
  const Team team(g.team, slots);
  const int64_t slice = blockIdx.x / g.shares, share = blockIdx.x - slice * g.shares;
  const int64_t vectors = (g.job.lay.width + V - 1) / V;
  const int pieces = backward_pieces<T, GATED>(g);
  uint4 *cells = g.kept ? general_cells + team.which * vectors * pieces : nullptr;
  TeamColumns<V> columns = {nullptr, (int)vectors, (g.want_dweight ? 1 : 0) + (g.want_dbias ? 1 : 0)};
  if (g.columns_kept) {
    columns.sums = reinterpret_cast<double *>(general_cells + team.teams * vectors * pieces);
    for (int i = (int)threadIdx.x; i < team.teams * columns.size(); i += (int)blockDim.x)
      columns.sums[i] = 0;
    __syncthreads();
    columns.sums += team.which * columns.size();
  }
#pragma unroll 1
  for (int64_t first = share * team.teams; first < g.count; first += g.shares * team.teams) {
    const int64_t row = first + team.which;
    do_row<T, ALIGNED, GATED>(g, team, cells, slice, row < g.count ? row : first, row < g.count, columns);
  }
  if (!g.columns_kept) return;
  columns.sums -= team.which * columns.size();
  write_partial(g, columns, team.teams, slice, share);
}

/* The second step: a thread has one vector of columns and walks rows of a slice, two at once. */
template <class T, bool ALIGNED, bool GATED>
__global__ void __launch_bounds__(COLUMN_THREADS, 4)
    backward_general_columns_kernel(const __grid_constant__ GeneralBackward g) {
  using R = real_of<T>;
  constexpr int V = vector_of<T>, AT_ONCE = 2;
  const rms_layout &lay = g.job.lay;
  const int64_t vectors = (lay.width + V - 1) / V, tiles = (vectors + COLUMN_THREADS - 1) / COLUMN_THREADS;
  const int64_t tile = blockIdx.x % tiles, rest = blockIdx.x / tiles, share = rest % g.shares, slice = rest / g.shares;
  const int64_t v = tile * COLUMN_THREADS + threadIdx.x;
  if (v >= vectors) return;
  const Team alone(1, nullptr);
  double dweight[V] = {}, dbias[V] = {};
#pragma unroll 1
  for (int64_t i = share; i < g.count; i += AT_ONCE * g.shares) {
    R dy[AT_ONCE][V], x[AT_ONCE][V];
#pragma unroll
    for (int a = 0; a < AT_ONCE; a++) {
      const int64_t row = i + a * g.shares < g.count ? i + a * g.shares : i;
      const BackwardSegment<T, ALIGNED, GATED> segment(g, alone, place_in_slice(lay, slice, g.first + row), nullptr);
      segment.load_given_dy(v, dy[a]);
      segment.load_given_x(v, x[a]);
    }
#pragma unroll
    for (int a = 0; a < AT_ONCE; a++) {
      const int64_t row = i + a * g.shares;
      if (row >= g.count) break;
      const Place at = place_in_slice(lay, slice, g.first + row);
      const BackwardSegment<T, ALIGNED, GATED> segment(g, alone, at, nullptr);
      const RowScalars s = g.scalars[slice * g.count + row];
      const RowFactors<R> f = {(R)s.scale, (R)s.mean, (R)s.r, s.up, (R)s.c1, (R)s.c2, s.down};
      R dx[V], dgate[V];
      make_vector<T>(g, segment, at, v, f, dy[a], x[a], dx, dgate);
      write_vector<T, ALIGNED, GATED>(g, at, v, dx, dgate);
      if (g.want_dweight) dweight_terms<T>(g, dy[a], x[a], dweight);
#pragma unroll
      for (int c = 0; c < V; c++)
        if (g.want_dbias) dbias[c] += (double)dy[a][c];
    }
  }
  double *to = g.partial + (slice * g.shares + share) * lay.width + v * V;
  const int64_t plane = g.want_dweight ? g.slices * g.shares * lay.width : 0;
#pragma unroll
  for (int c = 0; c < V; c++) {
    if (c >= count_at<V>(lay, v)) continue;
    if (g.want_dweight) to[c] = (g.first > 0 ? to[c] : 0.0) + dweight[c];
    if (g.want_dbias) to[plane + c] = (g.first > 0 ? to[plane + c] : 0.0) + dbias[c];
  }
}

} // namespace rms_cuda

#endif
