/* SPDX-License-Identifier: MIT
 *
 * Calls with weights for each inner index and enough rows of it to share them (forward_samples.cuh,
 * backward_samples.cuh). */
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

/* Rows of a backward that are worked on at once, the widest of them, and the threads of an SM that there are registers
 * for: at 80 for each, every quarter of an SM has room for six warps. */
enum { SAMPLE_ROWS = 4, MOST_SAMPLE_THREADS = 512, SAMPLE_SM_THREADS = 768 };

/* Shared memory of a block of the backward, in bytes from its start; values: sums over the rows of a batch. */
struct SamplesShared {
  int ring, chunk, barrier, noted, total;
};
__host__ __device__ constexpr SamplesShared samples_shared(int vectors, int stages, int values) {
  SamplesShared s = {};
  s.ring = 0;
  s.chunk = stages * 2 * SAMPLE_ROWS * vectors * 16;
  s.barrier = s.chunk + 2 * values * 32 * 4;
  s.noted = s.barrier + stages * 8;
  s.total = s.noted + (DEEP + 1) * 4;
  return s;
}

/* Whether a backward of the kernels of aligned rows is for them: what they know of every call is that statistics were
 * saved, the whole row is in them, and there is one rounding. */
inline bool takes_samples(const Device &device, const BackwardJob &p, const BackwardQuestion &q, bool saved) {
  return q.form == Form::OPTIONS && p.slices > 1 && p.rows >= 2 * SAMPLE_ROWS && p.vectors > 32 &&
         p.vectors <= MOST_SAMPLE_THREADS && saved && p.whole && !p.eps_outside && !p.round_before && !p.terms &&
         device.clusters && (size_t)device.shared_per_block >= 220 * 1024;
}
BackwardPlan plan_samples(const Device &device, const BackwardQuestion &q);

/* samples.cu */
template <class T>
cudaError_t launch_samples(const BackwardJob &p, const BackwardPlan &plan, const Device &device, cudaStream_t stream);
template <class T>
cudaError_t launch_samples(const ForwardJob &p, bool layer, const Device &device, cudaStream_t stream);

} // namespace rms_cuda

#endif
