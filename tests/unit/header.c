/* SPDX-License-Identifier: MIT
 * The header alone, twice, as strict C11. */
#include "rmsnorm.h"
#include "rmsnorm.h"

int main(void) {
  rms_spec spec = {0};
  spec.cols = 4;
  spec.eps = 1e-5;
  float x[4] = {1, 2, 3, 4}, y[4];
  rms_forward_args args = {0};
  args.outer = 1;
  args.x.data = x;
  args.x.dtype = RMS_F32;
  args.y.data = y;
  return rms_forward(&spec, &args, NULL) == RMS_OK ? 0 : 1;
}
