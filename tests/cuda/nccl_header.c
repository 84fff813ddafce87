/* SPDX-License-Identifier: MIT
 *
 * The header as C99: first and alone in its file, used as its first lines say. */
#include "rmsnorm_nccl.h"

rms_status rms_use_nccl_header(ncclComm_t comm, const rms_spec *spec, const rms_forward_args *f,
                               const rms_backward_args *b, rms_stat *stats);

rms_status rms_use_nccl_header(ncclComm_t comm, const rms_spec *spec, const rms_forward_args *f,
                               const rms_backward_args *b, rms_stat *stats) {
  rms_nccl nccl = {comm};
  nccl.scratch_bytes = rms_nccl_scratch(&nccl, spec, f->outer, f->inner);
  rms_status status = rms_nccl_forward(&nccl, spec, f, stats, NULL);
  return status == RMS_OK ? rms_nccl_backward(&nccl, spec, b, stats, NULL) : status;
}
