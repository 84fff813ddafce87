/* SPDX-License-Identifier: MIT
 *
 * Forward calls with weights for each inner index and enough rows of it to share them (forward_samples.cuh). */
#ifndef RMS_CUDA_SAMPLES_H
#define RMS_CUDA_SAMPLES_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "plan.h"

namespace rms_cuda {

enum { SAMPLE_THREADS = 256, MOST_SAMPLE_VECTORS = 256 };

/* Whether they have a job of the kernels of aligned rows. */
inline bool takes_samples(const ForwardJob &p, int form) {
  const int64_t outer = p.inner.rows ? p.rows / p.inner.rows : 0;
  return (form & ~FORM_LAYER) == FORM_OPTIONS && p.weight_inner != 0 && p.weight && !p.eps_outside &&
         p.statistic == p.width && p.vectors > 64 && p.vectors <= MOST_SAMPLE_VECTORS &&
         outer >= 2 * (SAMPLE_THREADS / 32) && p.rows <= most_blocks;
}

/* samples.cu */
template <class T>
cudaError_t launch_samples(const ForwardJob &p, bool layer, const Device &device, cudaStream_t stream);

} // namespace rms_cuda

#endif
