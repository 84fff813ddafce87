/* SPDX-License-Identifier: MIT
 *
 * What the CUDA entry points refuse, each with its own status, before they look for a device; and, on a machine without
 * one, that a valid call says so. No pointer here is ever followed. */
#include <stdio.h>
#include <string.h>
#include "rmsnorm_cuda.h"

static int failures;

static void expect(const char *what, rms_status got, rms_status want) {
  if (got == want) return;
  failures++;
  printf("FAILED %s: got %d (%s), want %d\n", what, (int)got, rms_status_string(got), (int)want);
}

/* Addresses that are far apart, aligned, and not to be touched. */
static void *at(int i) {
  return (void *)((uintptr_t)1 << 40 | (uintptr_t)i << 32);
}

static rms_spec good_spec(void) {
  rms_spec spec = {0};
  spec.cols = 64;
  spec.eps = 1e-6;
  return spec;
}

static rms_forward_args good_forward(void) {
  rms_forward_args args = {0};
  args.outer = 4;
  args.x.data = at(1);
  args.y.data = at(2);
  return args;
}

static rms_backward_args good_backward(void) {
  rms_backward_args args = {0};
  args.outer = 4;
  args.x.data = at(1);
  args.dy.data = at(2);
  args.dx.data = at(3);
  return args;
}

static void test_specs(void) {
  rms_forward_args args = good_forward();
  rms_spec spec = good_spec();
#define BAD(field, value, status)                                                                                      \
  spec = good_spec();                                                                                                  \
  spec.field = value;                                                                                                  \
  expect(#field " = " #value, rms_cuda_forward(&spec, &args, NULL), status)
  BAD(cols, 0, RMS_E_COLS);
  BAD(eps, -1, RMS_E_EPS);
  BAD(kind, (rms_kind)9, RMS_E_KIND);
  BAD(dtype, (rms_dtype)9, RMS_E_DTYPE);
  BAD(weight_dtype, RMS_BF16, RMS_E_DTYPE);
  BAD(partial, 65, RMS_E_PARTIAL);
  BAD(groups, 3, RMS_E_GROUPS);
  BAD(rounding, (rms_rounding)9, RMS_E_MODE);
  BAD(eps_place, (rms_eps_place)9, RMS_E_MODE);
  BAD(partial, RMS_PARTIAL_NONE, RMS_E_PARTIAL);
#undef BAD
  expect("no spec", rms_cuda_forward(NULL, &args, NULL), RMS_E_ARGUMENT);
  spec = good_spec();
  expect("no arguments", rms_cuda_forward(&spec, NULL, NULL), RMS_E_ARGUMENT);
  expect("no statistics", rms_cuda_stats(&spec, &args, NULL, NULL), RMS_E_ARGUMENT);
  expect("no statistics to apply", rms_cuda_apply(&spec, &args, NULL, NULL), RMS_E_ARGUMENT);
  expect("nothing to merge", rms_cuda_stats_merge(&spec, 3, NULL, NULL, NULL), RMS_E_ARGUMENT);
}

static void test_calls(void) {
  rms_spec spec = good_spec();
  rms_forward_args f = good_forward();
  f.outer = -1;
  expect("rows below 0", rms_cuda_forward(&spec, &f, NULL), RMS_E_ARGUMENT);
  f = good_forward();
  f.y.data = NULL;
  expect("no y", rms_cuda_forward(&spec, &f, NULL), RMS_E_ARGUMENT);
  f = good_forward();
  f.x.outer_stride = 63;
  expect("rows that overlap", rms_cuda_forward(&spec, &f, NULL), RMS_E_STRIDE);
  f = good_forward();
  f.y.data = (char *)at(1) + 4;
  expect("y over x", rms_cuda_forward(&spec, &f, NULL), RMS_E_ALIAS);
  f = good_forward();
  f.outer = INT64_MAX / 2;
  expect("too many rows", rms_cuda_forward(&spec, &f, NULL), RMS_E_SIZE);
  f = good_forward();
  f.outer = 0;
  expect("no rows", rms_cuda_forward(&spec, &f, NULL), RMS_OK);

  rms_backward_args b = good_backward();
  b.accumulate = 64;
  expect("unknown flag", rms_cuda_backward(&spec, &b, NULL), RMS_E_MODE);
  b = good_backward();
  b.dweight = at(4);
  expect("no workspace", rms_cuda_backward(&spec, &b, NULL), RMS_E_WORKSPACE);
  b.workspace = (char *)at(5) + 8;
  b.workspace_bytes = 1 << 20;
  expect("workspace not aligned", rms_cuda_backward(&spec, &b, NULL), RMS_E_WORKSPACE);
  b = good_backward();
  expect("no sums", rms_cuda_backward_stats(&spec, &b, at(6), NULL, NULL), RMS_E_ARGUMENT);
  expect("no sums to apply", rms_cuda_backward_apply(&spec, &b, at(6), NULL, NULL), RMS_E_ARGUMENT);
}

static void test_no_device(void) {
  rms_spec spec = good_spec();
  rms_forward_args f = good_forward();
  rms_backward_args b = good_backward();
  expect("forward without a device", rms_cuda_forward(&spec, &f, NULL), RMS_E_DEVICE);
  expect("stats without a device", rms_cuda_stats(&spec, &f, at(6), NULL), RMS_E_DEVICE);
  expect("backward without a device", rms_cuda_backward(&spec, &b, NULL), RMS_E_DEVICE);
  expect("merge without a device", rms_cuda_stats_merge(&spec, 3, at(6), at(7), NULL), RMS_E_DEVICE);
  expect("workspace without a device", rms_cuda_backward_workspace(&spec, 4, 1) == 0 ? RMS_OK : RMS_E_WORKSPACE,
         RMS_OK);
}

int main(void) {
  test_specs();
  test_calls();
  if (rms_cuda_available() == RMS_OK)
    printf("there is a device: calls without one were not tested\n");
  else
    test_no_device();
  if (failures == 0) printf("ok\n");
  return failures ? 1 : 0;
}
