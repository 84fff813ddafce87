/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows. A row per block, or several rows per warp; each thread loads all that it needs at once, so
 * that many rows are on their way in an SM. The arithmetic is that of forward.cuh.
 *
 * T: data type. NV: vectors of a thread. OPTIONS: false for the common case: rows at one distance, the whole row in the
 * statistic, eps inside the root, weight and bias (if any) in the data type, no bias without a weight, one rounding. */
#ifndef RMS_CUDA_LEAN_FORWARD_CUH
#define RMS_CUDA_LEAN_FORWARD_CUH

#include <type_traits>
#include "affine.cuh"
#include "lean.cuh"

namespace rms_cuda {

/* ---- where things are ---- */

/* Bytes from the first weights to those of a row. */
template <bool OPTIONS> __device__ __forceinline__ int64_t weight_skip(const LeanForward &p, int64_t row) {
  return OPTIONS && p.weight_inner != 0 ? place_of_row<OPTIONS>(p.inner, row).inner * p.weight_inner : 0;
}

/* Elements of the row that are in its statistic, from a vector on. */
template <bool OPTIONS, class T> __device__ __forceinline__ int counted(const LeanForward &p, int vector) {
  return OPTIONS ? p.statistic - vector * vector_of<T> : vector_of<T>;
}

/* ---- vectors ---- */

/* Sum of the squares, or of the elements, of at most `count` elements of a vector. */
template <bool SQUARES, bool LAYER, bool SCALED, bool OPTIONS, class T, int V>
__device__ __forceinline__ float sum_of_vector(const Packed<T, V> &packed, int count, float scale, float mean) {
  constexpr bool partial = OPTIONS && !LAYER;
  float x[V], sum = 0;
  if (partial && count <= 0) return 0;
  unpack(packed, x);
  auto add = [&](int j) {
    float d = SCALED ? fused(x[j], scale, SQUARES ? -mean : 0.0f) : SQUARES && LAYER ? x[j] - mean : x[j];
    sum = SQUARES ? fused(d, d, sum) : sum + d;
  };
  if (partial && count < V) {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j < count) add(j);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      add(j);
  }
  return sum;
}

template <bool OPTIONS, class T, int V>
__device__ __forceinline__ float largest_of_vector(const Packed<T, V> &packed, int count) {
  float x[V], most = 0;
  unpack(packed, x);
#pragma unroll
  for (int j = 0; j < V; j++)
    if (!OPTIONS || j < count) most = Max::of(most, size_for_scale(x[j]));
  return most;
}

/* r of a sum within the range. */
template <bool OPTIONS> __device__ __forceinline__ float root_of(const LeanForward &p, float sum) {
  const float square = divided(sum, p.k, p.inverse_k);
  return __frcp_rn(OPTIONS && p.eps_outside ? __fsqrt_rn(square) + p.eps : __fsqrt_rn(square + p.eps));
}

/* r of any sum, scaled. */
template <bool OPTIONS> __device__ __forceinline__ float scaled_root_of(const LeanForward &p, float sum, float scale) {
  const float square = quotient(sum, p.k);
  float eps = p.eps, root;
  if (OPTIONS && p.eps_outside) {
    if (scale != 1.0f) eps = (float)(p.exact_eps * (double)scale);
    root = square_root(square) + eps;
  } else {
    if (scale != 1.0f) eps = (float)(p.exact_eps * (double)scale * (double)scale);
    root = square_root(square + eps);
  }
  return root == 0 ? 0.0f : quotient(1.0f, root);
}

/* One vector of y, rounded before the weight or not. `weight` has its weights if they are in the data type; those of
 * the row's inner index are `skip` bytes from the first. */
template <bool LAYER, bool OPTIONS, bool BEFORE, class T, int V>
__device__ __forceinline__ void finish_vector(const LeanForward &p, const Packed<T, V> &x, const Statistic<float> &st,
                                              const Packed<T, V> &weight, int64_t skip, int vector, Packed<T, V> &out) {
  const bool wide = OPTIONS && p.weight_wide;
  float h[V], g[V], b[V];
  unpack(x, h);
  if (__builtin_expect(st.scale != 1.0f, 0)) {
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] *= st.scale;
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    h[j] = (LAYER ? h[j] - st.mean : h[j]) * st.r;
  if (p.weight) {
    if (wide)
      load_parameter<true, T>(g, p.weight + skip, vector * V, V, true);
    else
      unpack(weight, g);
    add_offset(g, p.offset);
    if (p.bias) {
      load_parameter<true, T>(b, p.bias + skip, vector * V, V, wide);
      affine<T>(h, g, b, {true, true, BEFORE, wide});
    } else {
      affine<T>(h, g, b, {true, false, BEFORE, wide});
    }
  } else if (OPTIONS) {
    if (p.bias) load_parameter<true, T>(b, p.bias + skip, vector * V, V, wide);
    affine<T>(h, g, b, {false, p.bias != nullptr, BEFORE, wide});
  }
  pack(out, h);
}

/* x + residual, rounded. */
template <class T, int V> __device__ __forceinline__ void add_vector(Packed<T, V> &x, const Packed<T, V> &residual) {
  float a[V], b[V];
  unpack(x, a);
  unpack(residual, b);
#pragma unroll
  for (int j = 0; j < V; j++)
    a[j] += b[j];
  pack(x, a);
}

__device__ __forceinline__ void write_statistic(const LeanForward &p, int64_t row, const Statistic<float> &st) {
  if (p.rstd) p.rstd[row] = st.r * st.scale;
  if (p.mean) p.mean[row] = quotient(st.mean, st.scale);
}

/* ---- a row per block ---- */

/* Sums over a row; each has its own place in shared memory, so that no barrier is needed between them. */
template <int PANELS> struct BlockShared {
  __align__(16) float chunk[5][PANELS * 32]; /* mean and squares, largest, mean and squares again */
};

template <class Op, int USE, int NV, int PANELS>
__device__ __forceinline__ float over_block(BlockShared<PANELS> &shared, float (&a)[NV]) {
  constexpr int group = PANELS < 4 ? PANELS : 4; /* panels at a time */
  const int warps = (int)blockDim.x / 32, place = place_of_lane<1, PANELS, NV>((int)threadIdx.x / 32, warps);
  const float sum = fold<Op>(a);
  if (place >= 0) shared.chunk[USE][place] = sum;
#pragma unroll 1
  for (int i = warps * NV + (int)threadIdx.x; i < PANELS * 32; i += (int)blockDim.x)
    shared.chunk[USE][chunk_place(i)] = 0;
  __syncthreads();
  float total = over_panels<Op, 1, group>(panel_sums<Op, 1, group>(shared.chunk[USE]), 0);
#pragma unroll
  for (int panel = group; panel < PANELS; panel += group)
    total = over_panels<Op, 1, group, false>(panel_sums<Op, 1, group>(shared.chunk[USE] + panel * 32), 0, total);
  return total;
}

/* Blocks of an SM that there must be registers for. */
template <int NV, bool OPTIONS, bool EARLY, int MOST>
constexpr int lean_forward_blocks = EARLY || (OPTIONS && NV == 8) ? 1
                                    : MOST == 128                 ? 7
                                                                  : 1024 / MOST;

/* EARLY: the weights are loaded with the row, and the next kernel starts late, which is quicker for few rows; otherwise
 * the registers are worth more. */
template <class T, int NV, bool LAYER, bool RESIDUAL, bool OPTIONS, bool EARLY, int MOST>
__global__ void __launch_bounds__(MOST, lean_forward_blocks<NV, OPTIONS, EARLY, MOST>)
    lean_forward_kernel(const __grid_constant__ LeanForward p) {
  constexpr int V = vector_of<T>, PANELS = NV * MOST > PANEL ? NV * MOST / PANEL : 1;
  __shared__ BlockShared<PANELS> shared;
  const int64_t row = blockIdx.x;
  /* vectors threadIdx.x + i*step of the row, for the i < NV for which there are that many */
  const int step = (int)blockDim.x, left = p.vectors - (int)threadIdx.x;
  const int64_t at = (int64_t)threadIdx.x * 16;
  const RowPlace place = place_of_row<OPTIONS>(p.inner, row);
  const char *x_at = row_at<OPTIONS>(p.x, place) + at;
  wait_for_previous();
  if (!EARLY) let_next_start();

  Packed<T, V> x[NV], weight[NV];
#pragma unroll
  for (int i = 0; i < NV; i++) {
    clear(x[i]);
    if (i * step < left) load_vector<true, true>(x[i], x_at + i * step * 16, V);
  }
  if (RESIDUAL) {
    Packed<T, V> residual[NV];
    const char *residual_at = row_at<OPTIONS>(p.residual, place) + at;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(residual[i]);
      if (i * step < left) load_vector<true, true>(residual[i], residual_at + i * step * 16, V);
    }
#pragma unroll
    for (int i = 0; i < NV; i++)
      add_vector(x[i], residual[i]);
  }
  const bool packed_weight = p.weight && !(OPTIONS && p.weight_wide);
  const int64_t skip = weight_skip<OPTIONS>(p, row);
  if (EARLY && packed_weight) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (i * step < left) load_vector<true, false>(weight[i], p.weight + skip + at + i * step * 16, V);
  }
  if (RESIDUAL && p.sum.data) {
    char *sum_at = row_at<OPTIONS>(p.sum, place) + at;
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (i * step < left) store_vector<true>(sum_at + i * step * 16, x[i], V);
  }

  auto count = [&](int i) -> int { return counted<OPTIONS, T>(p, (int)threadIdx.x + i * step); };
  Statistic<float> st = {0, 0, 0, 0, 1};
  float a[NV];
  if (LAYER) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[i] = sum_of_vector<false, LAYER, false, OPTIONS>(x[i], count(i), 1, 0);
    keep_packed(x);
    st.mean = divided(over_block<Add, 0>(shared, a), p.k, p.inverse_k);
  }
#pragma unroll
  for (int i = 0; i < NV; i++) {
    a[i] = sum_of_vector<true, LAYER, false, OPTIONS>(x[i], count(i), 1, st.mean);
    if (LAYER && i * step >= left) a[i] = 0;
  }
  keep_packed(x);
  st.sum = over_block<Add, 1>(shared, a);
  if (__builtin_expect(in_range(st.sum), 1)) {
    st.r = root_of<OPTIONS>(p, st.sum);
  } else {
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[i] = largest_of_vector<OPTIONS>(x[i], count(i));
    keep_packed(x);
    st.scale = scale_for(over_block<Max, 2>(shared, a), p.eps_limit);
    if (LAYER) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[i] = sum_of_vector<false, LAYER, true, OPTIONS>(x[i], count(i), st.scale, 0);
      keep_packed(x);
      st.mean = quotient(over_block<Add, 3>(shared, a), p.k);
    }
#pragma unroll
    for (int i = 0; i < NV; i++) {
      a[i] = sum_of_vector<true, LAYER, true, OPTIONS>(x[i], count(i), st.scale, st.mean);
      if (LAYER && i * step >= left) a[i] = 0;
    }
    keep_packed(x);
    st.sum = over_block<Add, 4>(shared, a);
    st.r = scaled_root_of<OPTIONS>(p, st.sum, st.scale);
  }
  if (threadIdx.x == 0) write_statistic(p, row, st);

  if (EARLY) let_next_start();
  char *y_at = row_at<OPTIONS>(p.y, place) + at;
  auto finish_row = [&](auto before) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (i * step >= left) continue;
      if (!EARLY && packed_weight) load_vector<true, false>(weight[i], p.weight + skip + at + i * step * 16, V);
      Packed<T, V> out;
      finish_vector<LAYER, OPTIONS, before>(p, x[i], st, weight[i], skip, (int)threadIdx.x + i * step, out);
      store_vector<true>(y_at + i * step * 16, out, V);
    }
  };
  if (OPTIONS && p.before)
    finish_row(std::true_type());
  else
    finish_row(std::false_type());
}

/* ---- rows of a warp or less ---- */

enum { SHORT_BLOCK = 128 };

/* Blocks of an SM: as many as there are registers for. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int NV, bool LAYER, bool OPTIONS>
constexpr int short_forward_blocks = OPTIONS             ? 5
                                     : NV == 4 && !LAYER ? 6
                                                         : 7;
#else
template <int NV, bool LAYER, bool OPTIONS>
constexpr int short_forward_blocks = OPTIONS            ? (LAYER     ? 5
                                                           : NV == 1 ? 7
                                                                     : 6)
                                     : NV == 4 && LAYER ? 8
                                                        : 7;
#endif

/* Sums over the `team` lanes of a row, of ROWS rows at once. */
template <class Op, int ROWS, int NV>
__device__ __forceinline__ void sum_rows(float (&sum)[ROWS], float (&a)[ROWS][NV], int team) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    sum[r] = NV == 1 ? a[r][0] : fold<Op>(a[r]);
#pragma unroll
  for (int o = 16; o >= (NV == 1 ? 1 : 32 / NV); o /= 2)
    if (NV > 1 || o < team) {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        sum[r] = Op::of(sum[r], __shfl_xor_sync(whole_warp, sum[r], o));
    }
}

template <bool LAYER, bool SCALED, bool OPTIONS, class T, int V, int ROWS, int NV>
__device__ __forceinline__ void measure_rows(const LeanForward &p, Packed<T, V> (&x)[ROWS][NV],
                                             Statistic<float> (&st)[ROWS], int first) {
  float a[ROWS][NV], sum[ROWS];
  if (LAYER) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[r][i] = sum_of_vector<false, LAYER, SCALED, OPTIONS>(x[r][i], counted<OPTIONS, T>(p, first + i * 32),
                                                               st[r].scale, 0);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      keep_packed(x[r]);
    sum_rows<Add>(sum, a, p.team);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      st[r].mean = SCALED ? quotient(sum[r], p.k) : divided(sum[r], p.k, p.inverse_k);
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int i = 0; i < NV; i++) {
      a[r][i] = sum_of_vector<true, LAYER, SCALED, OPTIONS>(x[r][i], counted<OPTIONS, T>(p, first + i * 32),
                                                            st[r].scale, st[r].mean);
      if (LAYER && first + i * 32 >= p.vectors) a[r][i] = 0;
    }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    keep_packed(x[r]);
  sum_rows<Add>(sum, a, p.team);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    st[r].sum = sum[r];
}

/* A warp has ROWS * 32/team rows. */
template <class T, int NV, int ROWS, bool LAYER, bool RESIDUAL, bool OPTIONS>
__global__ void __launch_bounds__(SHORT_BLOCK, short_forward_blocks<NV, LAYER, OPTIONS>)
    short_forward_kernel(const __grid_constant__ LeanForward p) {
  constexpr int V = vector_of<T>;
  constexpr bool early = NV < 4 || !LAYER; /* weights before the sums, where there are registers for them */
  const int first = (int)threadIdx.x & (p.team - 1), teams = SHORT_BLOCK / p.team;
  const int64_t row = (int64_t)blockIdx.x * (teams * ROWS) + threadIdx.x / (unsigned)p.team;
  if (NV < 4 && blockIdx.x < p.ahead) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < NV; i++)
        if (first + i * 32 < p.vectors && row + r * teams < p.rows)
          prefetch_line(row_at<OPTIONS>(p.x, place_of_row<OPTIONS>(p.inner, row + r * teams)) + (first + i * 32) * 16);
  }
  wait_for_previous();
  if (NV == 4) let_next_start();

  constexpr bool own = OPTIONS && NV == 1; /* each row has a copy of its weights */
  Packed<T, V> x[ROWS][NV], weight[own ? ROWS : 1][NV];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int i = 0; i < NV; i++) {
      clear(x[r][i]);
      if (first + i * 32 < p.vectors && row + r * teams < p.rows)
        load_vector<true, true>(
            x[r][i], row_at<OPTIONS>(p.x, place_of_row<OPTIONS>(p.inner, row + r * teams)) + (first + i * 32) * 16, V);
    }
  const bool packed_weight = p.weight && !(OPTIONS && p.weight_wide);
  auto load_weight = [&](int r, int i) {
    if (packed_weight && first + i * 32 < p.vectors)
      load_vector<true, false>(weight[own ? r : 0][i],
                               p.weight + weight_skip<OPTIONS>(p, row + r * teams) + (first + i * 32) * 16, V);
  };
  const bool several = OPTIONS && p.weight_inner != 0; /* sets of weights */
  if (early && !several) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      load_weight(0, i);
  }
  if (RESIDUAL) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (first + i * 32 >= p.vectors || row + r * teams >= p.rows) continue;
        const RowPlace place = place_of_row<OPTIONS>(p.inner, row + r * teams);
        Packed<T, V> residual;
        load_vector<true, true>(residual, row_at<OPTIONS>(p.residual, place) + (first + i * 32) * 16, V);
        add_vector(x[r][i], residual);
        if (p.sum.data) store_vector<true>(row_at<OPTIONS>(p.sum, place) + (first + i * 32) * 16, x[r][i], V);
      }
  }
  Statistic<float> st[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    st[r] = {0, 0, 0, 0, 1};
  measure_rows<LAYER, false, OPTIONS>(p, x, st, first);
  bool again = false;
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    again = again || !in_range(st[r].sum);
  if (__builtin_expect(!__any_sync(whole_warp, again), 1)) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      st[r].r = root_of<OPTIONS>(p, st[r].sum);
  } else {
    float a[ROWS][NV], most[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < NV; i++)
        a[r][i] = largest_of_vector<OPTIONS>(x[r][i], counted<OPTIONS, T>(p, first + i * 32));
    sum_rows<Max>(most, a, p.team);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (!in_range(st[r].sum)) st[r].scale = scale_for(most[r], p.eps_limit);
    measure_rows<LAYER, true, OPTIONS>(p, x, st, first);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      st[r].r = scaled_root_of<OPTIONS>(p, st[r].sum, st[r].scale);
  }
  if (NV < 4) let_next_start(); /* few rows at a time: later is better */
  if constexpr (own) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (several)
        load_weight(r, 0);
      else if (r > 0)
        weight[r][0] = weight[0][0];
  }
  auto finish_rows = [&](auto before) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (row + r * teams >= p.rows) continue;
      if (first == 0) write_statistic(p, row + r * teams, st[r]);
      const RowPlace place = place_of_row<OPTIONS>(p.inner, row + r * teams);
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (first + i * 32 >= p.vectors) continue;
        if (!own && (!early || several)) load_weight(r, i);
        Packed<T, V> out;
        finish_vector<LAYER, OPTIONS, before>(p, x[r][i], st[r], weight[own ? r : 0][i],
                                              weight_skip<OPTIONS>(p, row + r * teams), first + i * 32, out);
        store_vector<true>(row_at<OPTIONS>(p.y, place) + (first + i * 32) * 16, out, V);
      }
    }
  };
  if (OPTIONS && p.before)
    finish_rows(std::true_type());
  else
    finish_rows(std::false_type());
}

} // namespace rms_cuda

#endif
