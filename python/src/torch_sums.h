/* SPDX-License-Identifier: MIT
 *
 * Sums of squares in the order in which torch's CPU kernels add them, for models that must keep the bits of their own
 * norms. The library's order is another one (docs/numerics.md). */
#ifndef PN_TORCH_SUMS_H
#define PN_TORCH_SUMS_H

#include "rmsnorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rms_forward with these sums. RMSNorm over whole rows of f32, bf16 or f16, without a residual; otherwise RMS_E_MODE.
 * stats: memory for one element a row. */
rms_status pn_forward_torch_sums(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats,
                                 const rms_executor *executor);

#ifdef __cplusplus
}
#endif

#endif
