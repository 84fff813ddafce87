/* SPDX-License-Identifier: MIT
 *
 * From the normalised row to y: weight and bias in one of the two rounding orders. */
#ifndef RMS_CUDA_AFFINE_CUH
#define RMS_CUDA_AFFINE_CUH

#include "statistic.cuh"

namespace rms_cuda {

struct Affine {
  bool weight, bias; /* there is one                                  */
  bool round_before; /* h is rounded to the data type first           */
  bool is_f32;       /* weight and bias are f32 and the data is not   */
};

/* h to y, but for the last rounding. g holds the weight plus its offset. */
template <class T, int V, class R>
__device__ __forceinline__ void affine(R (&h)[V], const R (&g)[V], const R (&b)[V], const Affine &form) {
  if (form.round_before) {
    round_to<T>(h);
    if (form.weight) {
#pragma unroll
      for (int j = 0; j < V; j++)
        h[j] *= g[j];
      if (!form.is_f32 && form.bias) round_to<T>(h); /* without a bias the last rounding is this one */
    }
    if (form.bias) {
#pragma unroll
      for (int j = 0; j < V; j++)
        h[j] += b[j];
    }
  } else if (form.bias) {
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] = form.weight ? fused(h[j], g[j], b[j]) : h[j] + b[j];
  } else if (form.weight) {
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] *= g[j];
  }
}

template <int V, class R, class Offset> __device__ __forceinline__ void add_offset(R (&g)[V], Offset offset) {
  if (offset != 0) {
#pragma unroll
    for (int j = 0; j < V; j++)
      g[j] += (R)offset;
  }
}

} // namespace rms_cuda

#endif
