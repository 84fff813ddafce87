/* SPDX-License-Identifier: MIT
 *
 * A program in C of a user of the installed CUDA library, who has no CUDA toolkit. Exits with the number of what is
 * wrong. On a machine without a GPU a valid call says so. */
#include <rmsnorm_cuda.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  static float x[4][8], y[4][8];
  rms_spec spec;
  rms_forward_args args;
  rms_backward_args backward;
  memset(&spec, 0, sizeof spec);
  memset(&args, 0, sizeof args);
  memset(&backward, 0, sizeof backward);
  spec.cols = 8;
  args.outer = 4;
  args.x.data = x;
  args.x.dtype = RMS_F32;
  if (rms_cuda_forward(&spec, &args, NULL) != RMS_E_ARGUMENT) return 1; /* there is no y */
  backward.x.dtype = RMS_F64;
  backward.outer = -1;
  if (rms_cuda_backward_workspace(&spec, &backward) != 0) return 2;
  rms_status status = rms_cuda_available();
  printf("%s\n", rms_status_string(status));
  if (status == RMS_OK) return 0; /* the arrays are not on the device */
  args.y.data = y;
  if (status != RMS_E_DEVICE || rms_cuda_forward(&spec, &args, NULL) != RMS_E_DEVICE) return 3;
  return 0;
}
