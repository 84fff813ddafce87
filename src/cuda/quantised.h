/* SPDX-License-Identifier: MIT
 *
 * Forward calls whose outputs the other kernels do not have: y quantised, y of another type than the data, or no y.
 * Aligned rows have kernels of their own (forward_quantised.cuh); q of any other rows comes from a general
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
  int blocks;        /* of a row, each with its scale; 0: one for the tensor, which is given            */
  int lanes;         /* threads next to each other that have a block; 0: all of the row have one        */
  int shift;         /* lanes = 2^shift                                                                 */
  int slots, staged; /* 16-byte cells of shared memory for the scales of blocks, and for a row of RMS_Q8_0 */
  float least;       /* of a computed scale                                                             */
  bool options;      /* of the forward's forms: something else than a weight and a bias in the data type */
  bool layer;        /* LayerNorm */
};

/* The kernels; the first line that fits is taken. */
struct QuantisedLine {
  bool warp;   /* a row is a warp's, else a block's                 */
  int vectors; /* the widest row                                    */
  int per_thread, threads;
  int blocks;  /* of an SM, that there must be registers for        */
  bool common; /* of q without options alone                        */
  bool full;   /* and where every thread has all of its vectors     */
};
/* clang-format off */
constexpr QuantisedLine quantised_table[] = {
    /* warp  vectors per thread threads blocks common full */
    {  true,  128,    4,         128,    8,     true,  false},
    {  false, 512,    8,         128,    6,     true,  true},
    {  false, 1024,   8,         128,    7,     true,  true},
    {  false, 2048,   8,         256,    3,     true,  true},
    {  false, 1024,   4,         256,    4,     false, false},
    {  false, 4096,   8,         512,    1,     false, false},
};
/* clang-format on */
constexpr int quantised_lines = sizeof quantised_table / sizeof quantised_table[0];
constexpr int most_quantised_vectors = quantised_table[quantised_lines - 1].vectors;

/* quantised.cu */
template <class T> cudaError_t launch_quantised(const QuantisedJob &job, const Device &device, cudaStream_t stream);
template <class T, bool GATED>
cudaError_t launch_general_quantised(const GeneralForward &g, const Grid &grid, const Device &device,
                                     cudaStream_t stream);

} // namespace rms_cuda

#endif
