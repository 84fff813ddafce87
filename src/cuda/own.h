/* SPDX-License-Identifier: MIT
 *
 * Calls whose rows have weights of their own (scale and shift of rows, adaLN): forward_own.cuh, backward_own.cuh. */
#ifndef RMS_CUDA_OWN_H
#define RMS_CUDA_OWN_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "plan.h"

namespace rms_cuda {

/* The most threads of a block, and the vectors of each: a row is at most a panel. */
enum { OWN_THREADS = 512, OWN_VECTORS = 2, MOST_OWN_VECTORS = OWN_THREADS * OWN_VECTORS };
/* Rows of a block where each has a warp. */
enum { OWN_TEAMS = 4 };

/* Threads of a row of so many vectors. */
inline int own_team(int vectors) {
  return (vectors + OWN_VECTORS * 32 - 1) / (OWN_VECTORS * 32) * 32;
}

/* dweight or dbias, dense: a row of it for each row. */
struct Gradient {
  char *data;
  bool is_f32, add; /* f32 beside 16-bit data; added to what is there */
  bool aligned;     /* to 16 bytes                                    */
};

/* A slice has one row. */
struct OwnBackward {
  BackwardJob p;
  Gradient dweight, dbias;
};

/* Whether they have a job of the kernels of aligned rows. Forward: rows of a weight are many enough for
 * forward_samples.cuh sooner, and short ones are left to the kernel of rows within a warp. */
inline bool takes_own(const ForwardJob &p, int form) {
  return (form & ~FORM_LAYER) == FORM_OPTIONS && p.weight_inner != 0 && p.weight && !p.eps_outside &&
         p.statistic == p.width && p.vectors > 64 && p.vectors <= MOST_OWN_VECTORS && p.rows <= most_blocks;
}
inline bool takes_own(const BackwardJob &p, Form form) {
  return form == Form::OPTIONS && p.slices > 1 && p.slices <= most_blocks && p.rows == 1 &&
         p.vectors <= MOST_OWN_VECTORS;
}

/* own.cu */
template <class T> cudaError_t launch_own(const ForwardJob &p, bool layer, const Device &device, cudaStream_t stream);
template <class T> cudaError_t launch_own(const OwnBackward &job, const Device &device, cudaStream_t stream);

} // namespace rms_cuda

#endif
