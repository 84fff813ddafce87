/* SPDX-License-Identifier: MIT
 *
 * From the normalised row to y: weight and bias in one of the two rounding orders. */
#ifndef RMS_CUDA_AFFINE_CUH
#define RMS_CUDA_AFFINE_CUH

#include "statistic.cuh"

namespace rms_cuda {

struct Affine {
  bool weight, bias;     /* there is one                                  */
  bool round_before;     /* h is rounded to the data type first           */
  bool is_f32;           /* weight and bias are f32 and the data is not   */
  bool own_type = false; /* y has another type than the data              */
};

/* h that is rounded to y, but for the last rounding. */
template <class T, int V, class R>
__device__ __forceinline__ void affine_rounded(R (&h)[V], const R (&g)[V], const R (&b)[V], const Affine &form) {
  if (form.weight) {
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] *= g[j];
    /* where y has the data type and there is no bias, the last rounding is this one */
    if (!form.is_f32 && (form.bias || form.own_type)) round_to<T>(h);
  }
  if (form.bias) {
#pragma unroll
    for (int j = 0; j < V; j++)
      h[j] += b[j];
  }
}

/* h to y, but for the last rounding. g holds the weight plus its offset. */
template <class T, int V, class R>
__device__ __forceinline__ void affine(R (&h)[V], const R (&g)[V], const R (&b)[V], const Affine &form) {
  if (form.round_before) {
    round_to<T>(h);
    affine_rounded<T>(h, g, b, form);
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

/* From weights to gains. rounded: to T, that of the weights. */
template <class T, int V, class R, class Offset>
__device__ __forceinline__ void add_offset(R (&g)[V], Offset offset, bool rounded) {
  if (offset != 0) {
#pragma unroll
    for (int j = 0; j < V; j++)
      g[j] += (R)offset;
    if (rounded) round_to<T>(g);
  }
}

} // namespace rms_cuda

#endif
