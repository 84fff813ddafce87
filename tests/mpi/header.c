/* SPDX-License-Identifier: MIT
 *
 * The header as C99: first and alone in its file, used as its first lines say. */
#include "rmsnorm_mpi.h"

rms_status rms_use_mpi_header(const rms_spec *spec, const rms_forward_args *f, const rms_backward_args *b,
                              rms_stat *stats);

rms_status rms_use_mpi_header(const rms_spec *spec, const rms_forward_args *f, const rms_backward_args *b,
                              rms_stat *stats) {
  rms_mpi mpi = {MPI_COMM_WORLD};
  mpi.scratch_bytes = rms_mpi_scratch(&mpi, spec, f->outer, f->inner);
  rms_status status = rms_mpi_forward(&mpi, spec, f, stats, NULL);
  return status == RMS_OK ? rms_mpi_backward(&mpi, spec, b, stats, NULL) : status;
}
