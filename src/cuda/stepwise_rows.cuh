/* SPDX-License-Identifier: MIT
 *
 * The forward of stepwise.cuh for aligned rows, which stay in registers from the first step to y: a row per block, or
 * for some lanes of a warp. What differs from call to call is asked at run time, once for a row or a vector. */
#ifndef RMS_CUDA_STEPWISE_ROWS_CUH
#define RMS_CUDA_STEPWISE_ROWS_CUH

#include "forward_steps.cuh"
#include "start.cuh"
#include "stepwise.cuh"
#include "team_sums.cuh"

namespace rms_cuda {

/* ---- a row in registers ---- */

/* As StepSource: x, or for LayerNorm e once the mean is known. The thread has vectors first + i*distance of the row.
 * Sums: of<Op>(a) over the a[..] of all threads of the row; any(yes) as in Team. */
template <class T, int NV, class Sums, bool LAYERS = true> struct StepRegisters {
  static constexpr int V = vector_of<T>;
  static constexpr bool narrow = true, layers = LAYERS;
  using Index = int;
  const rms_layout &lay;
  Sums &team;
  Packed<T, V> (&x)[NV];
  int first, distance, vectors;

  __device__ __forceinline__ int vector(int i) const { return first + i * distance; }
  __device__ __forceinline__ bool has(int i) const { return vector(i) < vectors; }
  __device__ __forceinline__ unsigned mask(int i) const { return has(i) ? (1u << V) - 1 : 0; }
  __device__ __forceinline__ bool counts_all() const { return true; }
  __device__ __forceinline__ void load_x(int i, float (&f)[V]) const { unpack(x[i], f); }
  __device__ __forceinline__ void load(int i, float (&f)[V]) const { unpack(x[i], f); }
  __device__ __forceinline__ void centre(float mean) const {
    const Packed<T, V> means = repeated<T, V>(mean);
#pragma unroll
    for (int i = 0; i < NV; i++)
      subtract_packed(x[i], means);
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) const {
    float a[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[i] = of_vector(i);
    keep_packed(x);
    return team.template of<Op>(a);
  }
  /* The sum of the elements of a vector. */
  static __device__ __forceinline__ float chain(const float (&f)[V]) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < V; j++)
      sum += f[j];
    return sum;
  }
  template <class F> __device__ __forceinline__ float sum(F term) const {
    return over<Add>([&](int i) -> float {
      float f[V];
      term(i, f);
      return has(i) ? chain(f) : 0.0f;
    });
  }
};

/* Sums over the `lanes` of a row. */
template <int NV> struct StepLanes {
  int lanes;

  __device__ __forceinline__ bool any(bool yes) const { return __any_sync(whole_warp, yes) != 0; }
  template <class Op> __device__ __forceinline__ float of(float (&a)[NV]) const {
    if constexpr (NV == 1) {
      over_lanes<Op>(a, lanes);
      return a[0];
    } else { /* each lane has the sum of one of its vectors, and adds the others in the order of the chunks */
      float sum = fold<Op>(a);
#pragma unroll
      for (int o = 16; o >= 32 / NV; o /= 2)
        sum = Op::of(sum, __shfl_xor_sync(whole_warp, sum, o));
      return sum;
    }
  }
  /* Two sums at once. */
  __device__ __forceinline__ float2 two(float (&a)[NV], float (&b)[NV]) const {
    static_assert(NV == 1, "of a backward");
    float both[2] = {a[0], b[0]};
    over_lanes<Add>(both, lanes);
    return make_float2(both[0], both[1]);
  }
};

/* Sums over the threads of a block. */
template <int NV, int PANELS> struct StepBlock {
  TeamSums<NV, 1, PANELS, false> sums;

  /* chunk: of two sums in turn; what no thread writes is zero from the first barrier on. */
  __device__ __forceinline__ explicit StepBlock(float (&chunk)[2 * PANELS * 32]) {
    const int warps = (int)blockDim.x / 32;
    for (int i = warps * NV + (int)threadIdx.x; i < PANELS * 32; i += (int)blockDim.x)
      chunk[chunk_place(i)] = chunk[PANELS * 32 + chunk_place(i)] = 0;
    sums = {chunk, nullptr, nullptr, place_of_lane<1, PANELS, NV>((int)threadIdx.x / 32, warps), 0, (int)blockDim.x, 1,
            0,     0,       0};
  }
  __device__ __forceinline__ bool any(bool yes) const { return yes; }
  template <class Op> __device__ __forceinline__ float of(float (&a)[NV]) { return sums.template of<Op>(a).x; }
};

/* ---- forward ---- */

/* The vectors of a row that a thread has of a tensor; zeros where there are none. */
template <class T, int V, int NV>
__device__ __forceinline__ void load_step_row(const Rows &rows, const RowPlace &at, int first, int distance, int there,
                                              Packed<T, V> (&to)[NV]) {
  const char *from = row_at<true>(rows, at) + first * 16;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    clear(to[i]);
    if (first + i * distance < there) load_vector<true, true, true>(to[i], from + i * distance * 16, V);
  }
}

/* What follows the loading of a row that there is: its sum with the residual, statistics and y. x may be changed. */
template <class T, int NV, class Sums, int V>
__device__ __forceinline__ void finish_step_row(const StepwiseForward &g, int64_t row, Sums &sums,
                                                Packed<T, V> (&x)[NV], int first, int distance, bool there) {
  const ForwardJob &p = g.p;
  const RowPlace at = place_of_row<true>(p.inner, there ? row : 0);
  const int vectors = there ? p.vectors : 0;
  if (p.residual.data) {
    Packed<T, V> more[NV];
    load_step_row(p.residual, at, first, distance, vectors, more);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      add_residual(x[i], x[i], more[i]);
      if (p.sum.data && first + i * distance < vectors)
        store_vector<true>(row_at<true>(p.sum, at) + (first + i * distance) * 16, x[i], V);
    }
  }
  StepRegisters<T, NV, Sums> source = {g.lay, sums, x, first, distance, vectors};
  const Steps<T> st = steps_of<T>(source, p.eps_limit, nullptr);
  if (first == 0 && there && p.rstd) p.rstd[row] = st.rstd(g.lay);
  if (first == 0 && there && p.mean) p.mean[row] = st.mean;
  const int64_t skip = weight_skip<true>(p, there ? row : 0);
  const Affine form = {p.weight != nullptr, p.bias != nullptr, true, p.weight_is_f32};
  char *y = row_at<true>(p.y, at);
#pragma unroll
  for (int i = 0; i < NV; i++) {
    const int v = source.vector(i);
    if (v >= vectors) continue;
    float h[V], gain[V], bias[V];
    if (p.weight) {
      load_parameter<true, T>(gain, p.weight + skip, (int64_t)v * V, V, p.weight_is_f32);
      add_offset<T>(gain, p.offset, p.round_gain);
    }
    if (p.bias) load_parameter<true, T>(bias, p.bias + skip, (int64_t)v * V, V, p.weight_is_f32);
    unpack(x[i], h);
    st.scale.apply(h);
    affine_rounded<T>(h, gain, bias, form);
    Packed<T, V> out;
    pack(out, h);
    store_vector<true>(y + v * 16, out, V);
  }
}

/* Blocks of an SM that there must be registers for; f16 takes a few more than bf16. */
template <class T, int MOST> constexpr int stepwise_block_blocks = (std::is_same<T, __half>::value ? 768 : 1024) / MOST;
template <int NV> constexpr int stepwise_warp_blocks = NV == 1 ? 8 : NV == 2 ? 5 : 4;

/* A row per block. */
template <class T, int NV, int MOST>
__global__ void __launch_bounds__(MOST, (stepwise_block_blocks<T, MOST>))
    stepwise_forward_block_kernel(const __grid_constant__ StepwiseForward g) {
  constexpr int V = vector_of<T>, PANELS = NV * MOST > PANEL ? NV * MOST / PANEL : 1;
  __shared__ __align__(16) float chunk[2 * PANELS * 32];
  const int first = (int)threadIdx.x, distance = (int)blockDim.x;
  StepBlock<NV, PANELS> sums(chunk);
  Packed<T, V> x[NV];
  wait_for_previous();
  let_next_start();
  load_step_row(g.p.x, place_of_row<true>(g.p.inner, blockIdx.x), first, distance, g.p.vectors, x);
  finish_step_row(g, blockIdx.x, sums, x, first, distance, true);
}

/* `team` lanes share a row; each team has STEPWISE_TURNS of them, and asks for the next one before it works on this. */
template <class T, int NV>
__global__ void __launch_bounds__(WARP_FORWARD_THREADS, stepwise_warp_blocks<NV>)
    stepwise_forward_warp_kernel(const __grid_constant__ StepwiseForward g) {
  constexpr int V = vector_of<T>;
  const ForwardJob &p = g.p;
  const int first = (int)threadIdx.x & (p.team - 1), teams = WARP_FORWARD_THREADS / p.team;
  int64_t row = (int64_t)blockIdx.x * (teams * STEPWISE_TURNS) + threadIdx.x / (unsigned)p.team;
  StepLanes<NV> sums = {p.team};
  Packed<T, V> next[NV];
  auto load = [&](int64_t of) {
    const bool there = of < p.rows;
    load_step_row(p.x, place_of_row<true>(p.inner, there ? of : 0), first, 32, there ? p.vectors : 0, next);
  };
  wait_for_previous();
  let_next_start();
  load(row);
#pragma unroll 1
  for (int turn = 0; turn < STEPWISE_TURNS; turn++, row += teams) {
    Packed<T, V> x[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      x[i] = next[i];
    if (turn + 1 < STEPWISE_TURNS) load(row + teams);
    finish_step_row(g, row, sums, x, first, 32, row < p.rows);
  }
}

} // namespace rms_cuda

#endif
