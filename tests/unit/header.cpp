// SPDX-License-Identifier: MIT
// The header as C++ of every age: zero-initialised structs, enums and linkage.
#include "rmsnorm.h"

int main() {
  rms_spec spec = rms_spec();
  spec.cols = 4;
  spec.eps = 1e-5;
  spec.rounding = RMS_ROUND_BEFORE_WEIGHT;
  spec.partial = rms_partial_count(4, 0.5);
  float x[4] = {1, 2, 3, 4}, y[4];
  rms_forward_args args = rms_forward_args();
  args.outer = 1;
  args.x.data = x;
  args.x.dtype = RMS_F32;
  args.y.data = y;
  return rms_forward(&spec, &args, NULL) == RMS_OK ? 0 : 1;
}
