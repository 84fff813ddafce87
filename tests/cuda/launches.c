/* SPDX-License-Identifier: MIT
 *
 * What the library launches, and what it makes of errors, with a runtime and devices that are only described. */
#include <stdio.h>
#include <string.h>
#include "../../src/core/check.h"
#include "fake_runtime.h"
#include "hostile.h"

static int failures;

static void expect(int ok, const char *what) {
  if (ok) return;
  if (++failures <= 20) printf("FAILED %s\n", what);
}

static rms_status forward(void) {
  rms_spec spec = good_spec();
  rms_forward_args args = good_forward();
  return rms_cuda_forward(&spec, &args, NULL);
}

/* Of a backward with everything that is common, and its two halves. */
static rms_status backward(int half) {
  rms_spec spec = good_spec();
  rms_backward_args args = good_backward();
  args.rstd = at(4);
  args.weight = at(5);
  args.dweight = at(6);
  args.workspace = at(7);
  args.workspace_bytes = rms_cuda_backward_workspace(&spec, &args);
  return half == 0   ? rms_cuda_backward(&spec, &args, NULL)
         : half == 1 ? rms_cuda_backward_stats(&spec, &args, at(8), at(9), NULL)
                     : rms_cuda_backward_apply(&spec, &args, at(8), at(9), NULL);
}

/* ---- errors ---- */

static void test_errors(void) {
  fake_device(90, 90, 90);
  fake.last = cudaErrorInvalidValue; /* left by the caller's own work */
  expect(rms_cuda_available() == RMS_OK && forward() == RMS_OK && backward(0) == RMS_OK && backward(1) == RMS_OK &&
             backward(2) == RMS_OK,
         "calls after an error of the caller's");
  expect(cudaPeekAtLastError() == cudaErrorInvalidValue, "the caller's error is still there");

  fake.launch_error = cudaErrorLaunchOutOfResources, fake.bad_launch = 0;
  expect(forward() == RMS_E_DEVICE, "an error of a launch");
  expect(cudaGetLastError() != cudaSuccess, "there is still an error where the caller's was");
  expect(forward() == RMS_E_DEVICE && backward(0) == RMS_E_DEVICE && backward(1) == RMS_E_DEVICE &&
             backward(2) == RMS_E_DEVICE,
         "errors of launches");
  expect(cudaPeekAtLastError() == cudaSuccess, "the library's own error is gone");

  fake_device(0, 0, 0);
  expect(rms_cuda_available() == RMS_E_DEVICE && forward() == RMS_E_DEVICE, "no device");
  expect(cudaPeekAtLastError() == cudaSuccess, "no error is left behind without a device");
  fake_device(90, 0, 0);
  expect(rms_cuda_available() == RMS_E_DEVICE && forward() == RMS_E_DEVICE, "no code for the device");
  expect(cudaPeekAtLastError() == cudaSuccess, "no error is left behind without code");
}

/* ---- which kernels ---- */

static int launched(const char *kernel) {
  int count = 0;
  for (int i = 0; i < fake.launches && i < FAKE_LAUNCHES; i++)
    count += strstr(fake.launch[i].kernel, kernel) != NULL;
  return count;
}

static int hopper_launches(void) {
  int count = 0;
  for (int i = 0; i < fake.launches && i < FAKE_LAUNCHES; i++)
    count += fake.launch[i].early || fake.launch[i].cluster > 1;
  return count;
}

/* Clusters and early starts are asked for only where the code has them, whatever the device. */
static void test_code(void) {
  static const struct {
    int capability, code, binary, hopper;
  } cases[] = {{90, 90, 90, 1},   {90, 80, 90, 0},   {80, 80, 80, 0},
               {100, 90, 100, 1}, {100, 80, 100, 0}, {90, 80, 80, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fake_device(cases[i].capability, cases[i].code, cases[i].binary);
    expect(forward() == RMS_OK && backward(0) == RMS_OK && backward(2) == RMS_OK, "calls on a device");
    expect((hopper_launches() > 0) == cases[i].hopper, "clusters and early starts");
    expect(launched("backward_block_kernel") + launched("backward_warp_kernel") > 0 && launched("general_") == 1,
           "the kernels of aligned rows, and a general one for dx of the second half");
  }
  fake_device(90, 90, 90);
  fake.id = 3;
  for (int i = 0; i < 3; i++)
    expect(forward() == RMS_OK, "forward");
  expect(fake.probes == 1, "the code of a device is asked for once");
}

/* The column sums of the second half of a split call come from the kernel of the whole call, on the same blocks. */
static void test_halves(void) {
  fake_device(90, 90, 90);
  expect(backward(0) == RMS_OK && fake.launches == 2, "a backward takes two kernels");
  const fake_launch whole = fake.launch[0], finish = fake.launch[1];
  fake_device(90, 90, 90);
  expect(backward(2) == RMS_OK && fake.launches == 4, "its second half takes four");
  expect(strstr(fake.launch[0].kernel, "saved_kernel") != NULL, "first the statistics");
  expect(strcmp(fake.launch[1].kernel, whole.kernel) == 0 && fake.launch[1].blocks == whole.blocks &&
             fake.launch[1].threads == whole.threads,
         "then the column sums");
  expect(strstr(fake.launch[2].kernel, "backward_general_rows_kernel") != NULL, "then dx");
  expect(strcmp(fake.launch[3].kernel, finish.kernel) == 0 && fake.launch[3].blocks == finish.blocks, "then the end");
}

/* ---- which role ---- */

enum {
  ODD_ADDRESS = 1,
  F32_SUM = 2,
  PER_HEAD = 4,
  GROUPS = 8,
  OUTSIDE = 16,
  RESIDUAL = 32,
  DBIAS = 64,
  LAYER = 128,
  GATE_AFTER = 256,
  GATE_BEFORE = 512,
  OWN_TYPE = 1024, /* y of f32 beside 16-bit data and of bf16 beside f32; dy */
  NO_Y = 2048,
  Q_ROW = 4096,
  Q_BLOCK = 8192, /* of 128 */
  Q8_0 = 16384,
  CLAMP = 1 << 15,
  TERMS = 1 << 16,
  ROUND_RSTD = 1 << 17,
  ROUND_ALL = 1 << 18,
  CHANNELS_FIRST = 1 << 19,
  ROUND_BEFORE = 1 << 20,
  ONE_ROW = 1 << 21 /* of each inner index */
};

static const struct role {
  const char *kernel; /* that has the rows; * in front of it: across a cluster */
  int backward;
  rms_dtype type;
  int64_t cols;
  int what;
} roles[] = {
    {"forward_warp_kernel", 0, RMS_BF16, 128, 0},
    {"forward_warp_kernel", 0, RMS_BF16, 1024, LAYER},
    {"forward_block_kernel", 0, RMS_BF16, 4096, 0},
    {"forward_block_kernel", 0, RMS_F32, 32768, 0},
    {"forward_block_kernel", 0, RMS_BF16, 57344, 0},
    {"*forward_cluster_kernel", 0, RMS_BF16, 57352, 0},
    {"*forward_cluster_kernel", 0, RMS_BF16, 131072, LAYER},
    {"*forward_cluster_kernel", 0, RMS_BF16, 32768, F32_SUM},
    {"forward_block_kernel", 0, RMS_BF16, 4096, F32_SUM},
    {"forward_block_kernel", 0, RMS_F16, 4096, GROUPS},
    {"forward_warp_kernel", 0, RMS_F16, 128, PER_HEAD | OUTSIDE},
    {"forward_block_kernel", 0, RMS_BF16, 4096, ODD_ADDRESS},
    {"forward_flat_kernel", 0, RMS_F32, 127, 0},
    {"forward_flat_kernel", 0, RMS_BF16, 511, LAYER},
    {"forward_warp_kernel", 0, RMS_F32, 127, ODD_ADDRESS},
    {"forward_warp_kernel", 0, RMS_BF16, 127, OUTSIDE},
    {"forward_pieces_kernel", 0, RMS_BF16, 4097, 0},
    {"forward_pieces_kernel", 0, RMS_F16, 16375, LAYER},
    {"forward_block_kernel", 0, RMS_F16, 16383, LAYER},
    {"forward_block_kernel", 0, RMS_BF16, 4097, ODD_ADDRESS},
    {"forward_block_kernel", 0, RMS_F16, 16383, LAYER | ROUND_BEFORE},
    {"forward_general_kernel", 0, RMS_BF16, 32767, 0},
    {"forward_general_kernel", 0, RMS_BF16, 4095, F32_SUM},
    {"*forward_cluster_kernel", 0, RMS_BF16, 131080, 0},
    {"*forward_cluster_kernel", 0, RMS_BF16, 524288, LAYER},
    {"*forward_cluster_kernel", 0, RMS_BF16, 65536, LAYER},
    {"forward_block_kernel", 0, RMS_BF16, 49152, LAYER},
    {"*forward_cluster_kernel", 0, RMS_BF16, 262144, OUTSIDE},
    {"forward_general_kernel", 0, RMS_BF16, 262152, OUTSIDE},
    {"*forward_wide_kernel", 0, RMS_BF16, 524296, ONE_ROW},
    {"*forward_wide_kernel", 0, RMS_F32, 851968, LAYER | ONE_ROW},
    {"forward_general_kernel", 0, RMS_F32, 851972, ONE_ROW},
    {"forward_general_kernel", 0, RMS_F64, 4096, 0},
    {"forward_warp_kernel", 0, RMS_BF16, 128, GATE_AFTER},
    {"forward_warp_kernel", 0, RMS_F32, 256, GATE_BEFORE | LAYER},
    {"forward_block_kernel", 0, RMS_BF16, 4096, GATE_AFTER},
    {"forward_block_kernel", 0, RMS_F16, 4096, GATE_BEFORE | GROUPS},
    {"forward_block_kernel", 0, RMS_BF16, 16384, GATE_BEFORE | OUTSIDE},
    {"forward_general_kernel", 0, RMS_BF16, 16392, GATE_AFTER},
    {"forward_pieces_kernel", 0, RMS_BF16, 4095, GATE_BEFORE},
    {"forward_pieces_kernel", 0, RMS_F16, 16375, GATE_AFTER},
    {"forward_block_kernel", 0, RMS_F16, 16383, GATE_AFTER},
    {"forward_block_kernel", 0, RMS_BF16, 4095, GATE_AFTER | ROUND_BEFORE},
    {"forward_block_kernel", 0, RMS_BF16, 4096, GATE_BEFORE | ODD_ADDRESS},
    {"forward_warp_kernel", 0, RMS_BF16, 127, GATE_AFTER},
    {"forward_general_kernel", 0, RMS_BF16, 4095, GATE_BEFORE | LAYER},
    {"forward_general_kernel", 0, RMS_BF16, 4096, GATE_AFTER | F32_SUM},
    {"forward_general_kernel", 0, RMS_F64, 4096, GATE_BEFORE},
    {"backward_warp_kernel", 1, RMS_BF16, 128, GATE_AFTER | PER_HEAD},
    {"backward_warp_kernel", 1, RMS_F16, 64, GATE_BEFORE | ROUND_BEFORE},
    {"backward_block_kernel", 1, RMS_BF16, 4096, GATE_AFTER},
    {"backward_block_kernel", 1, RMS_F16, 4096, GATE_AFTER | GROUPS},
    {"backward_block_kernel", 1, RMS_F32, 4096, GATE_BEFORE | OUTSIDE},
    {"backward_general_rows_kernel", 1, RMS_BF16, 4096, GATE_BEFORE | DBIAS},
    {"backward_general_rows_kernel", 1, RMS_BF16, 4096, GATE_BEFORE | LAYER},
    {"backward_general_rows_kernel", 1, RMS_BF16, 4096, GATE_AFTER | RESIDUAL},
    {"backward_block_kernel", 1, RMS_BF16, 4096, GATE_AFTER | ODD_ADDRESS},
    {"backward_block_kernel", 1, RMS_F32, 1023, GATE_BEFORE | ROUND_BEFORE},
    {"backward_general_rows_kernel", 1, RMS_BF16, 127, GATE_AFTER},
    {"backward_general_rows_kernel", 1, RMS_BF16, 8200, GATE_AFTER},
    {"backward_general_rows_kernel", 1, RMS_F64, 4096, GATE_AFTER},
    {"backward_general_columns_kernel", 1, RMS_F32, 65536, GATE_AFTER},
    {"forward_samples_kernel", 0, RMS_BF16, 1152, PER_HEAD | LAYER},
    {"forward_samples_kernel", 0, RMS_F32, 768, PER_HEAD},
    {"forward_own_kernel", 0, RMS_BF16, 4096, PER_HEAD | LAYER},
    {"backward_samples_kernel", 1, RMS_BF16, 1152, PER_HEAD | LAYER | DBIAS},
    {"backward_samples_kernel", 1, RMS_F32, 768, PER_HEAD},
    {"backward_block_kernel", 1, RMS_BF16, 8192, PER_HEAD | LAYER},
    {"backward_own_kernel", 1, RMS_BF16, 4096, PER_HEAD | LAYER | DBIAS | ONE_ROW},
    {"backward_own_kernel", 1, RMS_F32, 128, PER_HEAD | RESIDUAL | ONE_ROW},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 4096, OWN_TYPE},
    {"quantised_forward_block_kernel", 0, RMS_F32, 128, OWN_TYPE | PER_HEAD | OUTSIDE},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 32768, NO_Y},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 4096, Q_ROW},
    {"quantised_forward_block_kernel", 0, RMS_F16, 32768, Q_ROW | NO_Y},
    {"quantised_forward_block_kernel", 0, RMS_F32, 16384, Q_BLOCK},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 8192, Q8_0 | NO_Y},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 4096, OWN_TYPE | LAYER},
    {"forward_general_kernel", 0, RMS_BF16, 4096, OWN_TYPE | F32_SUM},
    {"forward_general_kernel", 0, RMS_BF16, 4095, OWN_TYPE},
    {"forward_general_kernel", 0, RMS_BF16, 32776, NO_Y},
    {"forward_general_quantised_kernel", 0, RMS_BF16, 4096, Q_ROW | OWN_TYPE},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 1024, Q_ROW | NO_Y},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 4096, Q_ROW | LAYER},
    {"quantised_forward_block_kernel", 0, RMS_F16, 4104, Q_ROW | LAYER},
    {"forward_general_quantised_kernel", 0, RMS_F16, 4096, Q8_0 | GROUPS},
    {"forward_general_quantised_kernel", 0, RMS_F32, 16512, Q_BLOCK},
    {"forward_general_quantised_kernel", 0, RMS_BF16, 4095, Q_ROW},
    {"forward_general_quantised_kernel", 0, RMS_BF16, 4096, Q_ROW | GATE_AFTER},
    {"backward_block_kernel", 1, RMS_BF16, 4096, OWN_TYPE},
    {"backward_block_kernel", 1, RMS_F16, 1024, OWN_TYPE | LAYER | RESIDUAL},
    {"backward_general_rows_kernel", 1, RMS_BF16, 128, OWN_TYPE},
    {"backward_general_rows_kernel", 1, RMS_BF16, 16384, OWN_TYPE},
    {"backward_general_rows_kernel", 1, RMS_BF16, 4095, OWN_TYPE},
    {"backward_general_rows_kernel", 1, RMS_F32, 4096, OWN_TYPE | LAYER},
    {"backward_warp_kernel", 1, RMS_BF16, 128, 0},
    {"backward_warp_kernel", 1, RMS_BF16, 128, PER_HEAD},
    {"backward_warp_kernel", 1, RMS_F16, 128, F32_SUM | RESIDUAL | LAYER},
    {"backward_block_kernel", 1, RMS_BF16, 4096, 0},
    {"backward_block_kernel", 1, RMS_BF16, 4096, GROUPS},
    {"backward_block_kernel", 1, RMS_BF16, 4096, F32_SUM | RESIDUAL},
    {"backward_block_kernel", 1, RMS_F32, 4096, OUTSIDE | RESIDUAL},
    {"backward_block_kernel", 1, RMS_F32, 4096, DBIAS},
    {"*backward_block_kernel", 1, RMS_BF16, 16384, 0},
    {"*backward_block_kernel", 1, RMS_F32, 8192, LAYER | RESIDUAL | DBIAS},
    {"backward_block_kernel", 1, RMS_BF16, 4096, ODD_ADDRESS},
    {"backward_warp_kernel", 1, RMS_F32, 127, DBIAS},
    {"*backward_block_kernel", 1, RMS_F16, 16383, LAYER},
    {"backward_general_rows_kernel", 1, RMS_BF16, 4095, F32_SUM},
    {"backward_double_kernel", 1, RMS_F64, 4096, 0},
    {"backward_double_kernel", 1, RMS_F64, 514, LAYER | DBIAS},
    {"backward_general_rows_kernel", 1, RMS_F64, 4096, DBIAS},
    {"backward_general_rows_kernel", 1, RMS_F64, 4096, GROUPS},
    {"backward_general_rows_kernel", 1, RMS_F64, 512, 0},
    {"*backward_block_kernel", 1, RMS_BF16, 131072, 0},
    {"*backward_wide_kernel", 1, RMS_BF16, 131080, 0},
    {"*backward_wide_kernel", 1, RMS_F32, 262144, LAYER},
    {"*backward_wide_kernel", 1, RMS_F16, 262144, LAYER | DBIAS},
    {"backward_general_columns_kernel", 1, RMS_BF16, 262152, LAYER | DBIAS},
    {"backward_general_columns_kernel", 1, RMS_BF16, 524296, ONE_ROW},
    {"forward_block_kernel", 0, RMS_BF16, 4096, CLAMP},
    {"forward_warp_kernel", 0, RMS_F32, 128, CLAMP | LAYER},
    {"forward_general_kernel", 0, RMS_F64, 4096, CLAMP},
    {"quantised_forward_block_kernel", 0, RMS_BF16, 4096, CLAMP | Q_ROW},
    {"forward_apart_kernel", 0, RMS_BF16, 64, CLAMP | CHANNELS_FIRST},
    {"backward_block_kernel", 1, RMS_F32, 4096, CLAMP},
    {"backward_warp_kernel", 1, RMS_BF16, 128, CLAMP | LAYER},
    {"backward_apart_kernel", 1, RMS_BF16, 64, CLAMP | CHANNELS_FIRST},
    {"forward_block_kernel", 0, RMS_BF16, 4096, TERMS},
    {"backward_block_kernel", 1, RMS_BF16, 4096, TERMS},
    {"backward_block_kernel", 1, RMS_BF16, 4096, TERMS | ROUND_BEFORE | RESIDUAL},
    {"backward_block_kernel", 1, RMS_BF16, 4096, TERMS | OWN_TYPE},
    {"backward_general_rows_kernel", 1, RMS_BF16, 128, TERMS | OWN_TYPE},
    {"backward_warp_kernel", 1, RMS_F16, 128, TERMS | ROUND_BEFORE},
    {"backward_block_kernel", 1, RMS_BF16, 4096, TERMS | ROUND_BEFORE},
    {"*backward_block_kernel", 1, RMS_BF16, 16384, TERMS | ROUND_BEFORE},
    {"backward_apart_kernel", 1, RMS_F16, 64, TERMS | CHANNELS_FIRST},
    {"backward_block_kernel", 1, RMS_F32, 4096, TERMS}, /* f32 has no such steps */
    {"stepwise_forward_block_kernel", 0, RMS_BF16, 4096, ROUND_RSTD},
    {"stepwise_forward_block_kernel", 0, RMS_F16, 16384, ROUND_ALL | LAYER},
    {"stepwise_forward_warp_kernel", 0, RMS_BF16, 1024, ROUND_ALL | CLAMP | GROUPS},
    {"stepwise_forward_warp_kernel", 0, RMS_F16, 128, ROUND_ALL | OUTSIDE | PER_HEAD},
    {"forward_stepwise_kernel", 0, RMS_BF16, 16392, ROUND_RSTD},
    {"forward_stepwise_kernel", 0, RMS_BF16, 4095, ROUND_ALL},
    {"forward_stepwise_kernel", 0, RMS_BF16, 4096, ROUND_ALL | F32_SUM},
    {"forward_stepwise_kernel", 0, RMS_F16, 131080, ROUND_ALL | LAYER},
    {"forward_stepwise_kernel", 0, RMS_BF16, 128, ROUND_ALL | OUTSIDE | GROUPS | OWN_TYPE},
    {"forward_stepwise_kernel", 0, RMS_BF16, 4096, ROUND_ALL | CLAMP | Q_ROW},
    {"forward_stepwise_kernel", 0, RMS_BF16, 256, ROUND_ALL | LAYER | CHANNELS_FIRST},
    {"forward_block_kernel", 0, RMS_F32, 4096, ROUND_ALL},
    {"stepwise_backward_block_kernel", 1, RMS_BF16, 4096, ROUND_RSTD},
    {"stepwise_backward_block_kernel", 1, RMS_F16, 8192, ROUND_ALL | LAYER | DBIAS},
    {"*stepwise_backward_block_kernel", 1, RMS_BF16, 16384, ROUND_ALL},
    {"stepwise_backward_warp_kernel", 1, RMS_F16, 128, ROUND_ALL | CLAMP},
    {"stepwise_backward_warp_kernel", 1, RMS_BF16, 64, ROUND_ALL | OUTSIDE | DBIAS},
    {"backward_stepwise_kernel", 1, RMS_BF16, 4096, ROUND_ALL | GROUPS},
    {"backward_stepwise_kernel", 1, RMS_BF16, 4096, ROUND_RSTD | RESIDUAL},
    {"backward_stepwise_kernel", 1, RMS_BF16, 4095, ROUND_ALL},
    {"backward_stepwise_kernel", 1, RMS_F16, 131080, ROUND_ALL | LAYER | DBIAS},
    {"backward_stepwise_kernel", 1, RMS_BF16, 128, ROUND_ALL | OUTSIDE | PER_HEAD | RESIDUAL | F32_SUM},
    {"backward_stepwise_kernel", 1, RMS_BF16, 256, ROUND_ALL | LAYER | CHANNELS_FIRST},
    {"backward_block_kernel", 1, RMS_F32, 4096, ROUND_RSTD},
};

/* Images of 64 pixels. */
static void put_channels_first(rms_forward_args *f, rms_backward_args *b) {
  f->inner = b->inner = 64;
  f->x.col_stride = f->y.col_stride = b->x.col_stride = b->dy.col_stride = b->dx.col_stride = 64;
}

static rms_status call_of(const struct role *role) {
  rms_spec spec = good_spec();
  rms_forward_args f = good_forward();
  rms_backward_args b = good_backward();
  spec.cols = role->cols;
  spec.kind = role->what & LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec.eps_place = role->what & OUTSIDE ? RMS_EPS_OUTSIDE : role->what & CLAMP ? RMS_EPS_CLAMP : RMS_EPS_INSIDE;
  spec.steps = role->what & TERMS        ? RMS_STEPS_TERMS
               : role->what & ROUND_RSTD ? RMS_STEPS_RSTD
               : role->what & ROUND_ALL  ? RMS_STEPS_ALL
                                         : RMS_STEPS_WIDE;
  spec.rounding = role->what & ROUND_BEFORE ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
  spec.groups = role->what & GROUPS ? 4 : 0;
  spec.weight_per_inner = role->what & PER_HEAD ? 1 : 0;
  f.outer = b.outer = 4096;
  f.inner = b.inner = role->what & PER_HEAD ? 4 : 0;
  if (role->what & ONE_ROW) f.outer = b.outer = 1;
  f.x.dtype = b.x.dtype = b.dy.dtype = b.dx.dtype = f.weight_dtype = b.weight_dtype = (int32_t)role->type;
  b.dweight_dtype = b.dbias_dtype = role->type == RMS_F64 ? RMS_F64 : RMS_F32;
  f.weight = b.weight = at(5);
  if (role->what & CHANNELS_FIRST) put_channels_first(&f, &b);
  if (role->what & ODD_ADDRESS) f.y.data = (char *)at(2) + 8, b.dx.data = (char *)at(3) + 8;
  if (role->what & F32_SUM) {
    f.residual.data = at(6), f.residual.dtype = RMS_F32;
    b.x.dtype = RMS_F32;
  }
  if (role->what & RESIDUAL) {
    b.dresidual.data = at(7), b.dresidual_out.data = at(8);
    b.dresidual.dtype = b.dresidual_out.dtype = b.x.dtype;
  }
  if (role->what & (GATE_AFTER | GATE_BEFORE)) {
    spec.gate_place = role->what & GATE_AFTER ? RMS_GATE_AFTER : RMS_GATE_BEFORE;
    f.gate.data = b.gate.data = at(15), b.dgate.data = at(16);
    f.gate.dtype = b.gate.dtype = b.dgate.dtype = (int32_t)role->type;
  }
  if (role->what & OWN_TYPE) f.y.dtype = b.dy.dtype = role->type == RMS_F32 ? RMS_BF16 : RMS_F32;
  if (role->what & NO_Y) f.y.data = NULL, f.rstd = at(9);
  if (role->what & (Q_ROW | Q_BLOCK | Q8_0)) {
    f.q.data = at(17);
    f.q.dtype = role->what & Q8_0 ? RMS_Q8_0 : RMS_F8E4M3;
    spec.scale_block = role->what & Q_ROW ? role->cols : role->what & Q_BLOCK ? 128 : 0;
    if (!(role->what & Q8_0)) f.scale = at(18);
  }
  b.rstd = at(9), b.dweight = at(10), b.workspace = at(12);
  if (role->what & LAYER) b.mean = at(13);
  if (role->what & DBIAS) b.dbias = at(14);
  b.workspace_bytes = rms_cuda_backward_workspace(&spec, &b);
  return role->backward ? rms_cuda_backward(&spec, &b, NULL) : rms_cuda_forward(&spec, &f, NULL);
}

/* Rows within a warp, within a block, across a cluster, or by the general kernels. */
static void test_roles(void) {
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    const int cluster = roles[i].kernel[0] == '*';
    char what[100];
    snprintf(what, sizeof what, "%s of %d columns, type %d, %d", roles[i].kernel, (int)roles[i].cols,
             (int)roles[i].type, roles[i].what);
    fake_device(90, 90, 90);
    expect(call_of(&roles[i]) == RMS_OK && launched(roles[i].kernel + cluster) == 1, what);
    for (int l = 0; l < fake.launches && l < FAKE_LAUNCHES; l++)
      if (cluster && strstr(fake.launch[l].kernel, roles[i].kernel + 1)) expect(fake.launch[l].cluster > 1, what);
  }
}

/* What the runtime says of a device and its kernels is asked once. */
static void test_questions(void) {
  fake_device(90, 90, 90);
  fake.id = 5;
  for (int i = 0; i < 2; i++) {
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
      expect(call_of(&roles[r]) == RMS_OK, "a call");
    if (i == 0) fake.questions = 0;
  }
  expect(fake.questions == 0, "nothing is asked twice");
}

/* ---- at random ---- */

enum { MOST_LAUNCHES = 50 };

/* What is launched must be legal for any device; a call of more launches than anyone waits for is cut short. */
static void compare(const char *what, rms_status checked, rms_status got) {
  if (checked)
    expect(got == checked, what);
  else
    expect(got == RMS_OK || got == RMS_E_SIZE || (got == RMS_E_DEVICE && fake.launches >= MOST_LAUNCHES), what);
}

static void random_call(int device) {
  rms_spec spec;
  rms_forward_args f;
  rms_backward_args b;
  rms_forward_job forward_job;
  rms_backward_job backward_job;
  int64_t segments = 0;
  static const int devices[][3] = {{90, 90, 90}, {80, 80, 80}, {90, 80, 90}};
  hostile_call(&spec, &f, &b);
  fake_device(devices[device][0], devices[device][1], devices[device][2]);
  fake.launch_error = cudaErrorUnknown, fake.bad_launch = MOST_LAUNCHES;
  b.workspace = at(12);
  b.workspace_bytes = rms_cuda_backward_workspace(&spec, &b);
  for (int half = 0; half < 3; half++) {
    const int flags = (half ? RMS_CHECK_SPLIT : 0) | (half == 1 ? RMS_CHECK_STATS : 0) | RMS_CHECK_DEVICE;
    rms_stat *stats = half ? at(20) : NULL;
    rms_grad_sum *sums = half ? at(22) : NULL;
    fake.launches = 0;
    rms_status checked = rms_check_forward(&spec, &f, flags, half == 2 ? stats : NULL, half == 1 ? stats : NULL,
                                           &forward_job, &segments);
    compare("forward at random", checked,
            half == 0   ? rms_cuda_forward(&spec, &f, NULL)
            : half == 1 ? rms_cuda_stats(&spec, &f, stats, NULL)
                        : rms_cuda_apply(&spec, &f, stats, NULL));
    fake.launches = 0;
    checked = rms_check_backward(&spec, &b, flags, stats, half == 2 ? sums : NULL, half == 1 ? sums : NULL,
                                 &backward_job, &segments);
    if (!checked && half != 1 && b.workspace_bytes == 0 && segments > 0 && (b.dweight || b.dbias))
      checked = rms_cuda_backward(&spec, &b, NULL); /* no workspace can be had: RMS_E_SIZE, or RMS_E_PARTIAL by half */
    compare("backward at random", checked,
            half == 0   ? rms_cuda_backward(&spec, &b, NULL)
            : half == 1 ? rms_cuda_backward_stats(&spec, &b, stats, sums, NULL)
                        : rms_cuda_backward_apply(&spec, &b, stats, sums, NULL));
  }
}

int main(void) {
  test_errors();
  test_code();
  test_halves();
  test_roles();
  test_questions();
  for (int i = 0; i < 300000; i++)
    random_call(i % 3);
  printf(failures ? "%d failures\n" : "ok\n", failures);
  return failures ? 1 : 0;
}
