/* SPDX-License-Identifier: MIT
 *
 * A row of the backward of aligned rows within a block or across a cluster, in the registers of its threads. Template
 * parameters as in backward_block.cuh. */
#ifndef RMS_CUDA_BACKWARD_ROW_CUH
#define RMS_CUDA_BACKWARD_ROW_CUH

#include "backward_ring.cuh"

namespace rms_cuda {

/* What all threads of a warp load alike the compiler keeps in a uniform register, and waits for it at once; and
 * addresses that are the same for all it works out on the uniform data path, whose every step takes several times as
 * long as that of a thread. With this it does not know that they are. */
__device__ __forceinline__ unsigned always_zero() {
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread >= blockDim.x ? 1 : 0;
}

/* A row of a team, in registers: h, u and dy between the two passes over it, or x and dy, packed, to make room. */
template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM, bool PAIRED> struct RowInRegisters {
  using Block = BackwardBlock<T, LAYER, DBIAS, CLUSTER, FORM, PAIRED>;
  using S = sum_of<T, FORM>;
  using G = gradient_of<T, FORM>;
  static constexpr int NV = Block::NV, V = Block::V, SUMS = Block::SUMS;
  static constexpr bool options = Block::options;
  static constexpr bool h_again = FORM != Form::COMMON || PAIRED, u_again = h_again || DBIAS; /* computed twice */
  const BackwardJob &p;
  const Block &block;
  typename Block::Sums &sums;
  const float4 *gain;
  bool calm; /* gains_are_calm() */
  Packed<S, V> x[NV], added[NV];
  Packed<G, V> dy[NV];
  Packed<T, V> rounded[NV]; /* u of 16-bit types, which is kept */
  float h[NV][V], u[NV][V];

  __device__ __forceinline__ RowInRegisters(const BackwardJob &job, const Block &its_block, typename Block::Sums &over,
                                            const float4 *gains, bool gains_calm)
      : p(job), block(its_block), sums(over), gain(gains), calm(gains_calm) {}
  __device__ __forceinline__ unsigned mask(int i) const { return counted_mask<T, FORM>(p, block.vector(i)); }
  __device__ __forceinline__ bool counts_all() const { return p.whole; }
  __device__ __forceinline__ void load_x(int i, float (&f)[V]) const { unpack(x[i], f); }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      v[i] = of_vector(i);
      if (SUMS == 2) v[NV * (SUMS - 1) + i] = 0;
    }
    keep_packed(x);
    return sums.template of<Op>(v).x;
  }
  /* What is added stays in its stage where registers are short. */
  static constexpr bool adds_late = FORM == Form::F32_SUM;
  __device__ __forceinline__ void take_added(const char *stage) {
#pragma unroll
    for (int i = 0; i < NV; i++)
      block.take(added[i], stage + block.stream * 16 * (Block::wide + Block::of_dy), i, p.added_is_f32);
  }
  __device__ __forceinline__ void take_pair(const char *stage) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      block.take(x[i], stage, i, p.x_is_f32);
      take_cell(dy[i],
                reinterpret_cast<const uint4 *>(stage + block.stream * 16 * Block::wide) + block.cell(i) * Block::of_dy,
                1);
    }
  }
  __device__ __forceinline__ void take(const char *stage) {
    take_pair(stage);
    if (options && !adds_late && p.added.data) take_added(stage);
  }
  __device__ __forceinline__ void take_stream(Packed<T, V> (&v)[NV], const Rows &rows, const RowPlace &at,
                                              const char *stage, int stream, const char *end) const {
    block.take_shifted(p, v, stage + block.stream * stream * 16, row_at<options>(rows, at), end);
  }
  __device__ __forceinline__ void take_shifted(const char *stage, int64_t number) {
    const RowPlace at = place_in_slice<FORM>(p, number, block.slice);
    take_stream(x, p.x, at, stage, 0, p.x_end);
    take_stream(dy, p.dy, at, stage, 1, p.dy_end);
    if (options && p.added.data) take_stream(added, p.added, at, stage, 2, p.added_end);
  }
  static constexpr bool asks_late = CLUSTER || (FORM == Form::COMMON ? !DBIAS
                                                : is_rounded(FORM)   ? !std::is_same_v<T, __half>
                                                                     : !is_shifted(FORM));
  /* Where there is a register for what it needs to know, rows of zeros get a quicker test. With u at hand the whole one
   * is quick. */
  static constexpr bool asks_quickly = u_again && (CLUSTER || (asks_late && has_options(FORM)));
  /* Whether all gains of the thread lie within 2^-30 and 2^30. With such elements of dy, u is in range: its largest
   * element is within 2^-60 and 2^60. Rounded to f16 it may not be. */
  static __device__ __forceinline__ bool gains_are_calm(const BackwardJob &p, const Block &block, const float4 *gain) {
    static_assert(Limits<float>::sum >= (float)(1ll << 2 * calm_exponent), "u is in range");
    bool within = !(std::is_same_v<T, __half> && rounds_before<FORM>(p));
#pragma unroll
    for (int i = 0; i < NV * Block::Q; i++) {
      const float4 g = gain[i / Block::Q * block.step() + i % Block::Q * block.cells];
      const Packed<float, 1> four[4] = {
          {{__float_as_uint(g.x)}}, {{__float_as_uint(g.y)}}, {{__float_as_uint(g.z)}}, {{__float_as_uint(g.w)}}};
#pragma unroll
      for (int j = 0; j < 4; j++)
        within &= is_calm(four[j]) & !is_zero(four[j]);
    }
    return within;
  }
  /* Whether all vectors add exact zeros to the sum of u*h, by a test without branches that may miss some: it is for the
   * rows of zeros that there are. */
  __device__ __forceinline__ bool adds_zeros(float mean) const {
    const bool centred = !LAYER || mean == 0;
    bool zeros = true;
#pragma unroll
    for (int i = 0; i < NV; i++)
      zeros &= is_zero(dy[i]) | (calm & centred & is_zero(x[i]) & is_calm(dy[i]));
    return zeros;
  }
  /* What a vector adds to the sum of u*h, which is zero. */
  __device__ __forceinline__ float zero_of(int i, float mean) const {
    if constexpr (!u_again) /* no short cuts: they would be branches; and with zeros in x no sum of NaN is zero */
      return is_zero(dy[i]) | (is_zero(x[i]) & !(LAYER && mean != 0) & numbers_in_range(u[i])) ? exact_zero : 0.0f;
    if (is_zero(dy[i])) return exact_zero;
    if (!is_zero(x[i]) || (LAYER && mean != 0)) return 0.0f;
    /* u once more, from what the compiler does not know to be the same: it would keep all of it in registers until
     * here, for every row */
    Packed<G, V> same = dy[i];
#pragma unroll
    for (int j = 0; j < Packed<G, V>::words; j++)
      same.w[j] ^= always_zero();
    float again[V], g[V];
    unpack(same, again);
#pragma unroll
    for (int j = 0; j < V; j++) {
      g[j] = reinterpret_cast<const volatile float *>(gain + i * block.step() + j / 4 * block.cells)[j % 4];
      again[j] *= g[j];
    }
    if (rounds_before<FORM>(p)) round_to<T>(again);
    return u_in_range(again) ? exact_zero : 0.0f;
  }
  /* h and u, and the sums of u*h and u. A thread that adds nothing but exact zeros to the former adds -0 (sum.cuh).
   * Only threads whose sums are all zero have to look at their vectors: a sum that is not zero keeps that of the row
   * from being -0. They do so when all loads are under way, where there are registers for it: a branch between the
   * loads would have each of them waited for. */
  __device__ __forceinline__ void sum_up(float r, float mean, float (&v)[SUMS * NV]) {
    bool zeros = true;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0;
      unpack(x[i], h[i]);
      unpack(dy[i], u[i]);
      normalise<LAYER>(h[i], r, mean);
      weigh<T, is_rounded(FORM) ? Form::COMMON : FORM>(p, u[i], gain + i * block.step(), block.cells);
      if (is_rounded(FORM)) {
        pack(rounded[i], u[i]);
        unpack(rounded[i], u[i]);
      }
#pragma unroll
      for (int j = 0; j < V; j++) {
        a = fused(u[i][j], h[i][j], a);
        if (LAYER) b += u[i][j];
      }
      v[i] = a;
      zeros = zeros && a == 0;
      if (!asks_late && __builtin_expect(zeros, 0)) v[i] = zero_of(i, mean);
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    if (h_again) keep_packed(x);
    if (is_rounded(FORM)) keep_packed(rounded);
    keep_packed(dy);
    if (asks_late && __builtin_expect(zeros, 0)) {
      const bool quick = asks_quickly && adds_zeros(mean);
#pragma unroll
      for (int i = 0; i < NV; i++)
        v[i] = quick ? exact_zero : zero_of(i, mean);
    }
  }
  /* dx, to memory or to shared memory, and what the row adds to the column sums. */
  __device__ __forceinline__ void finish(const RowTargets &to, char *shared, float r, float mean, float c1, float c2,
                                         ColumnSums<NV, V> &dweight, ColumnSums<NV, V> &dbias) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int vector = block.vector(i);
      float d[V];
      unpack(dy[i], d);
      if (h_again) {
        unpack(x[i], h[i]);
        normalise<LAYER>(h[i], r, mean);
      }
      if (u_again) {
        if constexpr (is_rounded(FORM)) {
          unpack(rounded[i], u[i]);
        } else {
          unpack(dy[i], u[i]);
          weigh<T, FORM>(p, u[i], gain + i * block.step(), block.cells);
        }
      }
      add_dweight<T, FORM>(p, dweight.sum[i], dy[i], d, h[i]);
      if (DBIAS) {
#pragma unroll
        for (int j = 0; j < V; j++)
          dbias.sum[i][j] += d[j];
      }
      finish_dx<T, LAYER, FORM>(p, u[i], h[i], c1, c2, r, vector * V);
      if constexpr (is_shifted(FORM)) {
        Packed<T, V> packed;
        add_and_pack<FORM>(p, u[i], added[i], packed);
        block.keep(shared, 0, i, packed);
      } else {
        if (vector < p.stored) store_dx<T, FORM>(p, u[i], added[i], to, vector);
      }
      if (u_again) asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
    }
  }
};

} // namespace rms_cuda

#endif
