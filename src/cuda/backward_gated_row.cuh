/* SPDX-License-Identifier: MIT
 *
 * A row with a gate of the backward within a block: what differs from RowInRegisters. Template
 * parameters as in backward_block.cuh. */
#ifndef RMS_CUDA_BACKWARD_GATED_ROW_CUH
#define RMS_CUDA_BACKWARD_GATED_ROW_CUH

#include "backward_gated.cuh"
#include "backward_row.cuh"

namespace rms_cuda {

template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM>
struct GatedRow : RowInRegisters<T, LAYER, DBIAS, CLUSTER, FORM, false> {
  using Base = RowInRegisters<T, LAYER, DBIAS, CLUSTER, FORM, false>;
  using Base::added;
  using Base::block;
  using Base::dy;
  using Base::gain;
  using Base::p;
  using Base::RowInRegisters;
  using Base::x;
  static constexpr int NV = Base::NV, V = Base::V, Q = Base::Block::Q, SUMS = Base::SUMS;
  static constexpr bool asks_quickly = false; /* zeros times an activation may be NaN */
  float act[NV][V], slope[NV][V];

  __device__ __forceinline__ void take(const char *stage) {
    this->take_added(stage); /* the gate */
    open();
    this->take_pair(stage);
  }
  __device__ __forceinline__ void take_shifted(const char *stage, int64_t number) {
    const RowPlace at = place_in_slice<FORM>(p, number, block.slice);
    this->take_stream(added, p.added, at, stage, 2, p.added_end); /* the gate */
    open();
    this->take_stream(x, p.x, at, stage, 0, p.x_end);
    this->take_stream(dy, p.dy, at, stage, 1, p.dy_end);
  }
  __device__ __forceinline__ void open() {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      activate(added[i], p.sigmoid, act[i], slope[i]);
      asm volatile("" ::: "memory"); /* one vector after the other: fewer registers */
    }
  }
  __device__ __forceinline__ void load_x(int i, float (&f)[V]) const {
    opened_x<T, FORM>(x[i], act[i], f);
  }
  __device__ __forceinline__ void weigh(int i, float (&u)[V]) const {
    rms_cuda::weigh<T, FORM>(p, u, gain + i * block.step(), block.cells);
  }
  /* What a vector adds to the sum of u*h, which is zero. */
  __device__ __forceinline__ float zero_of(int i, float mean) const {
    float u[V];
    if (has_zero_dy<T, FORM>(dy[i], act[i])) return exact_zero;
    if (!has_zero_x<T, FORM>(x[i], act[i], LAYER ? mean : 0.0f)) return 0.0f;
    asm volatile("" ::: "memory"); /* u once more: the compiler would keep it until here, for every row */
    opened_dy<T, FORM>(dy[i], act[i], u);
    weigh(i, u);
    return u_in_range(u) ? exact_zero : 0.0f;
  }
  __device__ __forceinline__ void sum_up(float r, float mean, float (&v)[SUMS * NV]) {
    bool zeros = true;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float h[V], u[V], a = 0, b = 0;
      open_gate<T, FORM>(p, dy[i], act[i]);
      load_x(i, h);
      normalise<LAYER>(h, r, mean);
      opened_dy<T, FORM>(dy[i], act[i], u);
      weigh(i, u);
#pragma unroll
      for (int j = 0; j < V; j++) {
        a = fused(u[j], h[j], a);
        if (LAYER) b += u[j];
      }
      v[i] = a;
      zeros = zeros && a == 0;
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    keep_packed(x), keep_packed(dy);
    if (__builtin_expect(zeros, 0)) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        v[i] = zero_of(i, mean);
    }
  }
  __device__ __forceinline__ void finish(const RowTargets &to, char *shared, float r, float mean, float c1, float c2,
                                         ColumnSums<NV, V> &dweight, ColumnSums<NV, V> &dbias) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int vector = block.vector(i);
      Packed<T, V> dx, dgate;
#pragma unroll
      for (int c = 0; c < Q; c++)
        finish_gated_four<T, LAYER, DBIAS, FORM>(p, c, x[i], dy[i], act[i], slope[i],
                                                 gain[i * block.step() + c * block.cells], r, mean, c1, c2, vector * V,
                                                 dweight.sum[i], dbias.sum[i], dx, dgate);
      if constexpr (is_shifted(FORM)) {
        block.keep(shared, 0, i, dx);
        block.keep(shared, 1, i, dgate);
      } else {
        if (vector < p.stored) store_gated<FORM>(p, dx, dgate, to, vector);
      }
    }
  }
};

} // namespace rms_cuda

#endif
