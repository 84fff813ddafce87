/* SPDX-License-Identifier: MIT
 *
 * Rows of the lean backward that are out of range: once more, from memory, scaled. */
#ifndef RMS_CUDA_LEAN_SCALED_CUH
#define RMS_CUDA_LEAN_SCALED_CUH

#include "lean_ring.cuh"
#include "lean_steps.cuh"

namespace rms_cuda {

/* dy to u. */
template <class T, int MORE, int V>
__device__ __forceinline__ void weigh(const LeanBackward &p, float (&u)[V], const float4 *gain, int plane) {
#pragma unroll
  for (int c = 0; c < V / 4; c++) {
    float4 g = gain[c * plane];
    u[4 * c] *= g.x, u[4 * c + 1] *= g.y, u[4 * c + 2] *= g.z, u[4 * c + 3] *= g.w;
  }
  round_u<T, MORE>(p, u);
}

/* One row of a team; none where row is negative. Every team of a block goes through the same barriers. */
template <class T, int NV, bool LAYER, bool DBIAS, int MORE, int SUMS, int PANELS, bool CLUSTER>
__device__ __forceinline__ void scaled_row(const LeanBackward &p, RowSums<NV, SUMS, PANELS, CLUSTER> &sums, int64_t row,
                                           int first, const float4 *gain, int cells,
                                           ColumnSums<NV, vector_of<T>> &dweight, ColumnSums<NV, vector_of<T>> &dbias) {
  constexpr int V = vector_of<T>;
  const int team = sums.team;
  const bool active = row >= 0;
  const RowPlace at = place_of_row<MORE>(p.inner, active ? row : 0);
  RowFactors f = {0, 1, 1, 1, 0, 0, 0};
  Packed<T, V> x[NV], dy[NV];
  float v[SUMS * NV];
  if (active) {
    f.r = MORE == 1 && !p.rstd ? 0.0f : p.rstd[row];
    if (LAYER && (MORE != 1 || p.mean)) f.mean = p.mean[row];
  }
#pragma unroll
  for (int i = 0; i < NV; i++) {
    clear(x[i]), clear(dy[i]);
    if (active && first + i * team < p.vectors) {
      load_vector<true, true>(x[i], row_at<MORE>(p.x, at) + (first + i * team) * 16, V);
      load_vector<true, true>(dy[i], row_at<MORE>(p.dy, at) + (first + i * team) * 16, V);
    }
  }
#pragma unroll
  for (int i = 0; i < SUMS * NV; i++)
    v[i] = 0;
  auto largest = [&](bool of_u) -> float {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float e[V];
      unpack(of_u ? dy[i] : x[i], e);
      if (of_u)
        weigh<T, MORE>(p, e, gain + i * team, cells);
      else
        keep_leading<MORE>(p, e, (first + i * team) * V);
      v[i] = 0;
#pragma unroll
      for (int j = 0; j < V; j++)
        v[i] = Max::of(v[i], size_for_scale(e[j]));
    }
    return sums.template of<Max>(v).x;
  };
  Statistic<float> st = {0, 0, 0, 0, 1};
  const float scale = scale_for(largest(false), p.eps_limit);
#pragma unroll 1
  for (int pass = 0; pass < 2; pass++) { /* as it is, then scaled if it has to be */
    if (pass == 1 && !in_range(st.sum)) st.scale = scale;
    st.mean = 0;
#pragma unroll 1
    for (int squares = LAYER ? 0 : 1; squares < 2; squares++) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        float a = 0, e[V];
        unpack(x[i], e);
        keep_leading<MORE>(p, e, (first + i * team) * V);
#pragma unroll
        for (int j = 0; j < V; j++) {
          float d = fused(e[j], st.scale, -st.mean);
          a = squares ? fused(d, d, a) : a + d;
        }
        v[i] = first + i * team < p.vectors ? a : 0.0f;
      }
      const float total = sums.template of<Add>(v).x;
      if (squares)
        st.sum = total;
      else
        st.mean = quotient(total, p.k);
    }
  }
  if (!trusted(f.r)) {
    float eps = st.scale == 1.0f ? p.eps : (float)(p.exact_eps * (double)st.scale * (double)st.scale);
    float root = square_root(quotient(st.sum, p.k) + eps);
    f.mean = st.mean, f.scale = st.scale, f.r = root == 0 ? 0.0f : quotient(1.0f, root);
  }
  float2 sum = make_float2(0, 0);
  const float u_scale = scale_for(largest(true), Range<float>::highest);
  keep_packed(x), keep_packed(dy);
#pragma unroll 1
  for (int pass = 0; pass < 2; pass++) {
    if (pass == 1 && (!trusted_dot(sum.x) || (LAYER && !trusted_dot(sum.y)))) f.u_scale = u_scale;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0, h[V], u[V];
      unpack(x[i], h);
      unpack(dy[i], u);
      weigh<T, MORE>(p, u, gain + i * team, cells);
#pragma unroll
      for (int j = 0; j < V; j++) {
        u[j] *= f.u_scale;
        a = fused(u[j], fused(h[j], f.scale, -f.mean) * f.r, a);
        b += u[j];
      }
      v[i] = a;
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    sum = sums.template of<Add>(v);
  }
  f.c2 = quotient(sum.x, p.k);
  f.c1 = LAYER ? quotient(sum.y, p.k) : 0.0f;
  f.out = quotient(f.r * f.scale, f.u_scale);
  keep_packed(x), keep_packed(dy);
  if (!active) return;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    const int vector = first + i * team;
    const bool here = vector < p.vectors;
    float d[V], h[V], u[V];
    unpack(x[i], h);
    unpack(dy[i], d);
    unpack(dy[i], u);
    weigh<T, MORE>(p, u, gain + i * team, cells);
#pragma unroll
    for (int j = 0; j < V; j++) {
      h[j] = fused(h[j], f.scale, -f.mean) * f.r;
      u[j] *= f.u_scale;
    }
    add_dweight<T, MORE>(p, dweight.sum[i], dy[i], d, h);
    if (DBIAS) {
#pragma unroll
      for (int j = 0; j < V; j++)
        dbias.sum[i][j] += d[j];
    }
    finish_dx<true, MORE>(p, u, h, f.c1, f.c2, f.out, vector * V);
    if (MORE == 1 && here && p.added.data) load_vector<true, true>(x[i], row_at<MORE>(p.added, at) + vector * 16, V);
    if (here) store_dx<MORE>(p, u, x[i], row_at<MORE>(p.dx, at) + vector * 16, row_at<MORE>(p.copy, at) + vector * 16);
  }
}

} // namespace rms_cuda

#endif
