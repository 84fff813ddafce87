/* SPDX-License-Identifier: MIT
 *
 * The launches, one for each kind of job; the return value is the runtime's. T: data type. */
#ifndef RMS_CUDA_LAUNCH_H
#define RMS_CUDA_LAUNCH_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "plan.h"

namespace rms_cuda {

/* forward.cu. FORMS_OF: the kind of the form. */
template <class T, Forms FORMS_OF>
cudaError_t launch_forward(const ForwardJob &p, int form, const ForwardPlan &plan, const Device &device,
                           cudaStream_t stream);

/* backward.cu. Lowers the plan's shares to what the device holds at once. */
template <class T, bool GATED>
cudaError_t launch_backward(const BackwardJob &p, const BackwardQuestion &q, BackwardPlan &plan, const Device &device,
                            cudaStream_t stream);

/* general.cu */
template <class T, bool GATED>
cudaError_t launch_general_forward(const GeneralForward &g, const Grid &grid, const Device &device,
                                   cudaStream_t stream);
template <class T, bool GATED>
cudaError_t launch_general_rows(const GeneralBackward &g, const Grid &grid, const Device &device, cudaStream_t stream);
template <class T, bool GATED>
cudaError_t launch_general_columns(const GeneralBackward &g, const Grid &grid, const Device &device,
                                   cudaStream_t stream);

/* stepwise.cu: the forms that round at every step, of 16-bit types. */
template <class T>
cudaError_t launch_stepwise(const GeneralForward &g, const Grid &grid, const Device &device, cudaStream_t stream);
template <class T>
cudaError_t launch_stepwise(const GeneralBackward &g, const Grid &grid, const Device &device, cudaStream_t stream);

/* steps.cu: of aligned rows. A backward lowers the plan's shares as launch_backward() does. */
template <class T>
cudaError_t launch_stepwise_rows(const StepwiseForward &g, const StepwisePlan &plan, const Device &device,
                                 cudaStream_t stream);

template <class T>
cudaError_t launch_stepwise_rows(const StepwiseBackward &g, const BackwardQuestion &q, BackwardPlan &plan,
                                 const Device &device, cudaStream_t stream);

/* stats.cu: rstd and mean (LayerNorm) of `segments` rows as a forward saves them, from their statistics; and what two
 * shards have together. */
cudaError_t launch_saved(const rms_layout &lay, int eps_limit, const rms_stat *stats, int64_t segments, float *rstd,
                         float *mean, const Device &device, cudaStream_t stream);
cudaError_t launch_merge(bool layer, int64_t count, rms_stat *into, const rms_stat *from, const Device &device,
                         cudaStream_t stream);

/* finish.cu */
cudaError_t launch_finish(const FinishJob &job, const Device &device, bool overlap, cudaStream_t stream);

/* f(T()) for the type of the data; f64 only with F64. */
template <bool F64, class F> cudaError_t by_type(rms_dtype type, F f) {
  switch (type) {
  case RMS_BF16:
    return f(__nv_bfloat16());
  case RMS_F16:
    return f(__half());
  case RMS_F64:
    if constexpr (F64) return f(double());
    [[fallthrough]];
  default:
    return f(float());
  }
}

} // namespace rms_cuda

#endif
