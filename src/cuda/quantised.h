/* SPDX-License-Identifier: MIT
 *
 * Forward calls whose outputs the other kernels do not have: y quantised, y of another type than the data, or no y.
 * Aligned rows of RMSNorm have kernels of their own (forward_quantised.cuh); q of any other rows comes from a general
 * kernel (quantised_general.cuh), and what is not q from those of everything else. */
#ifndef RMS_CUDA_QUANTISED_H
#define RMS_CUDA_QUANTISED_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "plan.h"

namespace rms_cuda {

struct QuantisedJob {
  ForwardJob p;
  rms_dtype y_type; /* where there is no q, another one than the data type */
  Rows q;
  rms_dtype q_type;
  float *scale;
  int blocks;   /* of a row, each with its scale; 0: one for the tensor, which is given            */
  int lanes;    /* threads next to each other that have a block; 0: all of the row have one        */
  int shift;    /* lanes = 2^shift                                                                 */
  float least;  /* of a computed scale                                                             */
  bool options; /* of the forward's forms: something else than a weight and a bias in the data type */
};

/* Vectors and threads of a block of one of these kernels; the first line is taken that is wide enough. */
struct QuantisedLine {
  int per_thread, threads;
};
constexpr QuantisedLine quantised_table[] = {{4, 256}, {4, 512}, {8, 512}};
constexpr int quantised_lines = sizeof quantised_table / sizeof quantised_table[0];
constexpr int most_quantised_vectors =
    quantised_table[quantised_lines - 1].per_thread * quantised_table[quantised_lines - 1].threads;

/* quantised.cu */
template <class T> cudaError_t launch_quantised(const QuantisedJob &job, const Device &device, cudaStream_t stream);
template <class T, bool GATED>
cudaError_t launch_general_quantised(const GeneralForward &g, const Grid &grid, const Device &device,
                                     cudaStream_t stream);

} // namespace rms_cuda

#endif
