/* SPDX-License-Identifier: MIT
 *
 * Rows whose elements lie apart, as the channels of images do: rms_rows.col. A block has 32 rows that lie next to each
 * other, one for each lane, and its warps share their elements, so that a warp reads and writes 32 neighbours of
 * memory. The arithmetic of rows is f64 whatever the data is: no sum needs a scale, and memory stays the limit where
 * f64 has half the speed of f32. Any layout of any tensor is right; it is fast where rows are next to each other. */
#ifndef RMS_CUDA_APART_CUH
#define RMS_CUDA_APART_CUH

#include "activation.cuh"
#include "any_element.cuh"
#include "apart.h"

namespace rms_cuda {

__device__ __forceinline__ int lane_of() {
  return (int)threadIdx.x % APART_ROWS;
}
__device__ __forceinline__ int warp_of() {
  return (int)threadIdx.x / APART_ROWS;
}

/* ---- where things are ---- */

/* The row of a lane, and the elements of it that a warp has: warp, warp + APART_WARPS, ... */
struct ApartPlace {
  int64_t outer, inner, first; /* first: column of the group's first element */
  int64_t statistic;           /* number of its statistic                    */
  bool live;                   /* there is such a row                        */

  __device__ __forceinline__ ApartPlace(const rms_layout &lay, int64_t tiles, int64_t tile) {
    const int64_t group = tile % lay.groups, number = tile / lay.groups;
    outer = number / tiles;
    inner = number % tiles * APART_ROWS + lane_of();
    first = group * lay.width;
    live = inner < lay.inner;
    statistic = (outer * lay.inner + inner) * lay.groups + group;
  }
};

/* A tensor as the kernels read and write it. */
struct ApartTensor {
  const Rows &rows;
  rms_dtype type;
  bool bytewise;

  __device__ __forceinline__ bool given() const { return rows.data != nullptr; }
  __device__ __forceinline__ char *at(const ApartPlace &p, int64_t j) const {
    const int64_t col = rows.col ? rows.col : type == RMS_F32 ? 4 : 2;
    return rows.data + p.outer * rows.outer + p.inner * rows.inner + (p.first + j) * col;
  }
  __device__ __forceinline__ float load(const ApartPlace &p, int64_t j) const {
    return load_element(at(p, j), type, bytewise);
  }
  __device__ __forceinline__ void store(const ApartPlace &p, int64_t j, float v) const {
    store_element(at(p, j), v, type, bytewise);
  }
};

/* Weight + offset, or 1. */
__device__ __forceinline__ float gain_of(const rms_layout &lay, const ApartPlace &p, int64_t j, bool bytewise) {
  if (!lay.weight) return 1;
  const rms_dtype type = lay.weight_is_f32 ? RMS_F32 : lay.dtype;
  float g = load_element(lay.weight + (p.first + j) * (type == RMS_F32 ? 4 : 2), type, bytewise);
  if (lay.offset != 0) g += (float)lay.offset;
  return lay.gain_as_weight ? round_as(g, type) : g;
}

__device__ __forceinline__ float bias_of(const rms_layout &lay, const char *bias, const ApartPlace &p, int64_t j,
                                         bool bytewise) {
  const rms_dtype type = lay.weight_is_f32 ? RMS_F32 : lay.dtype;
  return load_element(bias + (p.first + j) * (type == RMS_F32 ? 4 : 2), type, bytewise);
}

__device__ __forceinline__ bool in_statistic(const rms_layout &lay, int64_t j) {
  if (!lay.indices) return j < lay.k;
  int64_t low = 0, high = lay.k;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (lay.indices[middle] < j)
      low = middle + 1;
    else
      high = middle;
  }
  return low < lay.k && lay.indices[low] == j;
}

/* ---- sums over a row ---- */

/* The sum over the warps, for each lane; every thread of the block takes part and has the result. */
__device__ __forceinline__ double sum_warps(double value, double (&room)[APART_WARPS][APART_ROWS]) {
  room[warp_of()][lane_of()] = value;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int w = 0; w < APART_WARPS; w++)
    sum += room[w][lane_of()];
  __syncthreads();
  return sum;
}

/* mean: 0 for RMSNorm. rms: the root of the statistic without eps; 0 where eps bounds it from below. */
struct ApartStatistic {
  double mean, rms, r;
};

__device__ __forceinline__ ApartStatistic finish_statistic(const rms_layout &lay, double mean, double squares) {
  const double ms = squares / (double)lay.k, eps = (double)(float)lay.eps, rms = sqrt(ms);
  const bool clamp = lay.eps_place == RMS_EPS_CLAMP, clamped = clamp && rms < eps;
  const double below = clamped ? eps : clamp ? rms : lay.eps_place == RMS_EPS_OUTSIDE ? rms + eps : sqrt(ms + eps);
  return {mean, clamped ? 0 : rms, below == 0 ? 0 : 1 / below};
}

/* value(i): element i of the thread, 0 beyond the row. */
template <class F>
__device__ __forceinline__ ApartStatistic measure(const rms_layout &lay, int count, F value,
                                                  double (&room)[APART_WARPS][APART_ROWS]) {
  double sum = 0, mean = 0;
  if (lay.kind == RMS_KIND_LAYER) {
#pragma unroll 4
    for (int i = 0; i < count; i++)
      sum += value(i);
    mean = sum_warps(sum, room) / (double)lay.width;
    sum = 0;
  }
  const bool whole = !lay.indices && lay.k == lay.width;
#pragma unroll 4
  for (int i = 0; i < count; i++) {
    const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
    const double d = value(i) - mean;
    if (j < lay.width && (whole || in_statistic(lay, j))) sum += d * d;
  }
  return finish_statistic(lay, mean, sum_warps(sum, room));
}

/* h to y or m, but for the last rounding: affine.cuh for one element. */
__device__ __forceinline__ float affine_apart(const rms_layout &lay, float h, float g, const char *bias,
                                              const ApartPlace &p, int64_t j, bool bytewise, bool round_product) {
  const float b = bias ? bias_of(lay, bias, p, j, bytewise) : 0;
  if (lay.rounding != RMS_ROUND_BEFORE_WEIGHT)
    return !bias ? (lay.weight ? h * g : h) : lay.weight ? fused(h, g, b) : h + b;
  h = round_as(h, lay.dtype);
  if (lay.weight) {
    h *= g;
    if (round_product) h = round_as(h, lay.dtype);
  }
  return bias ? h + b : h;
}

/* ---- forward ---- */

/* Each thread keeps its elements in its own places of shared memory where there is room; otherwise they are read again
 * for each sum. */
__global__ void __launch_bounds__(APART_THREADS) forward_apart_kernel(const ApartForward a) {
  extern __shared__ float kept[];
  __shared__ double room[APART_WARPS][APART_ROWS];
  const rms_forward_job &job = a.job;
  const rms_layout &lay = job.lay;
  const bool bytes = a.bytewise, sigmoid = lay.activation == RMS_ACT_SIGMOID;
  const rms_dtype residual_type = lay.residual_is_f32 ? RMS_F32 : lay.dtype;
  const ApartTensor x = {job.x, lay.dtype, bytes}, residual = {job.residual, residual_type, bytes};
  const ApartTensor gate = {job.gate, lay.dtype, bytes}, y = {job.y, job.y_type, bytes};
  const ApartTensor residual_out = {job.residual_out, residual_type, bytes};
  const bool before = lay.gate_place == RMS_GATE_BEFORE, round_product = !lay.weight_is_f32;
  const int count = (int)((lay.width + APART_WARPS - 1) / APART_WARPS);
  for (int64_t tile = blockIdx.x; tile < a.count; tile += gridDim.x) {
    const ApartPlace p(lay, a.tiles, tile);
    auto sum_at = [&](int64_t j) {
      const float v = x.load(p, j);
      return residual.given() ? round_as(v + residual.load(p, j), residual_type) : v;
    };
    auto source = [&](int i) -> float {
      const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
      if (!p.live || j >= lay.width) return 0;
      const float v = sum_at(j);
      return before ? v * Activation<float>(gate.load(p, j)).value(sigmoid) : v;
    };
    if (a.kept) {
#pragma unroll 8
      for (int i = 0; i < count; i++)
        kept[i * APART_THREADS + threadIdx.x] = source(i);
    }
    auto value = [&](int i) -> float { return a.kept ? kept[i * APART_THREADS + threadIdx.x] : source(i); };
    const ApartStatistic st = measure(lay, count, value, room);
    if (p.live && warp_of() == 0 && job.rstd) static_cast<float *>(job.rstd)[p.statistic] = (float)st.r;
    if (p.live && warp_of() == 0 && job.mean) static_cast<float *>(job.mean)[p.statistic] = (float)st.mean;
#pragma unroll 4
    for (int i = 0; i < count; i++) {
      const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
      if (!p.live || j >= lay.width) continue;
      const double v = value(i);
      const float sum = residual_out.given() ? sum_at(j) : 0; /* everything is read before the first store */
      const float act = gate.given() && !before ? Activation<float>(gate.load(p, j)).value(sigmoid) : 1;
      const float h = (float)((v - st.mean) * st.r);
      float m = affine_apart(lay, h, gain_of(lay, p, j, bytes), job.bias, p, j, bytes, round_product);
      if (gate.given() && !before) {
        if (lay.rounding == RMS_ROUND_BEFORE_WEIGHT && round_product) m = round_as(m, lay.dtype);
        m *= act;
      }
      if (residual_out.given()) residual_out.store(p, j, sum);
      if (y.given()) y.store(p, j, m);
    }
  }
}

/* ---- backward ---- */

/* The sum over the lanes, in lane 0. */
__device__ __forceinline__ double sum_lanes(double value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    value += __shfl_down_sync(0xffffffffu, value, step);
  return value;
}

/* What a row's gradient is made of: dx = u*r - du - [j] e*c, e = x - mean. */
struct ApartFactors {
  double du, c;
};

__global__ void __launch_bounds__(APART_THREADS) backward_apart_kernel(const ApartBackward a) {
  extern __shared__ float kept[];
  __shared__ double room[APART_WARPS][APART_ROWS];
  const rms_backward_job &job = a.job;
  const rms_layout &lay = job.lay;
  const bool bytes = a.bytewise, sigmoid = lay.activation == RMS_ACT_SIGMOID, layer = lay.kind == RMS_KIND_LAYER;
  const rms_dtype residual_type = lay.residual_is_f32 ? RMS_F32 : lay.dtype;
  const ApartTensor dy = {job.dy, job.dy_type, bytes}, x = {job.x, job.x_is_f32 ? RMS_F32 : lay.dtype, bytes};
  const ApartTensor gate = {job.gate, lay.dtype, bytes}, dx = {job.dx, lay.dtype, bytes};
  const ApartTensor dresidual = {job.dresidual, residual_type, bytes};
  const ApartTensor dresidual_out = {job.dresidual_out, residual_type, bytes}, dgate = {job.dgate, lay.dtype, bytes};
  const bool gate_before = lay.gate_place == RMS_GATE_BEFORE, gate_after = lay.gate_place == RMS_GATE_AFTER;
  const bool before = lay.rounding == RMS_ROUND_BEFORE_WEIGHT, round_product = before && !lay.weight_is_f32;
  const bool whole = !lay.indices && lay.k == lay.width, terms = lay.steps == RMS_STEPS_TERMS;
  const int count = (int)((lay.width + APART_WARPS - 1) / APART_WARPS);
  const int64_t group = blockIdx.x % lay.groups, share = blockIdx.x / lay.groups;
  const int64_t first = a.count * share / a.shares, last = a.count * (share + 1) / a.shares;
  for (int64_t tile = first; tile < last; tile++) {
    const ApartPlace p(lay, a.tiles, tile * lay.groups + group);
    auto is_there = [&](int64_t j) { return p.live && j < lay.width; };
    auto source = [&](int i) -> float {
      const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
      if (!is_there(j)) return 0;
      const float v = x.load(p, j);
      return gate_before ? v * Activation<float>(gate.load(p, j)).value(sigmoid) : v;
    };
    /* dm: dy, or with a gate after the norm dy*act(z) */
    auto gradient = [&](int i) -> double {
      const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
      if (!is_there(j)) return 0;
      const double d = dy.load(p, j);
      if (!gate_after) return d;
      const double m = d * (double)Activation<float>(gate.load(p, j)).value(sigmoid);
      return round_product ? (double)round_as((float)m, lay.dtype) : before ? (double)(float)m : m;
    };
    float *const kept_dy = kept + count * APART_THREADS;
    if (a.kept) {
#pragma unroll 4
      for (int i = 0; i < count; i++) {
        kept[i * APART_THREADS + threadIdx.x] = source(i);
        if (!gate_after) kept_dy[i * APART_THREADS + threadIdx.x] = (float)gradient(i);
      }
    }
    auto value = [&](int i) -> float { return a.kept ? kept[i * APART_THREADS + threadIdx.x] : source(i); };
    auto dm_at = [&](int i) -> double {
      return a.kept && !gate_after ? (double)kept_dy[i * APART_THREADS + threadIdx.x] : gradient(i);
    };
    auto u_of = [&](double dm, float g) -> double {
      if (!lay.weight) return before ? (double)round_as((float)dm, lay.dtype) : dm;
      const double u = dm * (double)g;
      return before ? (double)round_as((float)u, lay.dtype) : u;
    };
    /* what was saved of rows near the ends of the range has lost digits */
    ApartStatistic st = {0, 0, 0}, saved = st;
    if (job.rstd && (!layer || job.mean) && p.live) {
      saved.r = static_cast<const float *>(job.rstd)[p.statistic];
      if (layer) saved.mean = static_cast<const float *>(job.mean)[p.statistic];
    }
    const bool whole_digits = saved.r >= 0x1p-32 && saved.r <= 0x1p32 && (!layer || fabs(saved.mean) >= 0x1p-60);
    if (__syncthreads_or(p.live && !whole_digits) || lay.eps_place != RMS_EPS_INSIDE)
      st = measure(lay, count, value, room);
    if (whole_digits) st.r = saved.r, st.mean = saved.mean;
    double ue = 0, us = 0;
#pragma unroll 4
    for (int i = 0; i < count; i++) {
      const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
      if (!is_there(j)) continue;
      const double u = u_of(dm_at(i), gain_of(lay, p, j, bytes));
      ue += u * (value(i) - st.mean);
      us += u;
    }
    ue = sum_warps(ue, room);
    if (layer) us = sum_warps(us, room);
    const double k = (double)lay.k;
    ApartFactors f;
    f.du = layer ? st.r * us / k : 0;
    f.c = ue * (st.r * st.r * st.r) / k;
    if (lay.eps_place == RMS_EPS_OUTSIDE) f.c = ue * (st.r * st.r) / (k * st.rms);
    if (lay.eps_place != RMS_EPS_INSIDE && st.rms == 0) f.c = 0;
#pragma unroll 4
    for (int i = 0; i < count; i++) {
      const int64_t j = warp_of() + (int64_t)i * APART_WARPS;
      double to_weight = 0, to_bias = 0;
      if (is_there(j)) {
        const float g = gain_of(lay, p, j, bytes), v = value(i);
        const double e = v - st.mean, dm = dm_at(i), u = u_of(dm, g);
        const double through = whole || in_statistic(lay, j) ? e * f.c : 0; /* what reaches x by way of the statistic */
        double d = u * st.r - f.du;
        if (terms)
          d = round_as(round_as((float)(u * st.r), lay.dtype) - round_as((float)through, lay.dtype), lay.dtype);
        else
          d -= through;
        const float h = (float)(e * st.r);
        to_bias = dm;
        to_weight = before ? (double)(float)(dm * (double)round_as(h, lay.dtype)) : dm * (double)h;
        if (round_product) to_weight = round_as((float)to_weight, lay.dtype);
        float dz = 0;
        if (gate.given()) {
          const Activation<float> act(gate.load(p, j));
          if (gate_before) {
            dz = (float)(d * (double)x.load(p, j) * (double)act.slope(sigmoid));
            d *= (double)act.value(sigmoid);
          } else if (dgate.given()) {
            float m = affine_apart(lay, h, g, job.bias, p, j, bytes, !lay.weight_is_f32);
            if (round_product) m = round_as(m, lay.dtype);
            dz = (float)((double)dy.load(p, j) * (double)m * (double)act.slope(sigmoid));
          }
        }
        if (dresidual.given()) d += dresidual.load(p, j);
        if (job.add_to_dx) d += dx.load(p, j);
        if (dx.given()) dx.store(p, j, (float)d);
        if (dresidual_out.given()) dresidual_out.store(p, j, (float)d);
        if (dgate.given()) dgate.store(p, j, dz);
      }
      if (a.planes == 0) continue;
      const int64_t at = (group * a.shares + share) * lay.width + j, plane = lay.groups * a.shares * lay.width;
      int n = 0;
      for (int sum = 0; sum < 2; sum++) {
        if (!(sum == 0 ? a.want_dweight : a.want_dbias)) continue;
        const double total = sum_lanes(sum == 0 ? to_weight : to_bias);
        if (lane_of() == 0 && j < lay.width) {
          double *to = a.partial + n * plane + at;
          *to = tile == first ? total : *to + total;
        }
        n++;
      }
    }
  }
}

} // namespace rms_cuda

#endif
