/* SPDX-License-Identifier: MIT
 *
 * What the CUDA entry points refuse, each with its own status, before they look for a device; and, on a machine without
 * one, that a valid call says so. First spelled out, then at random: every field of a call gets hostile values, and the
 * status must be that of the checks which the CPU library makes. No pointer here is ever followed. */
#include <stdio.h>
#include "../../src/core/check.h"
#include "hostile.h"

static int failures, has_device;

static void expect(const char *what, rms_status got, rms_status want) {
  if (got == want) return;
  if (++failures <= 20) printf("FAILED %s: got %d (%s), want %d\n", what, (int)got, rms_status_string(got), (int)want);
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
  BAD(kind, 9, RMS_E_KIND);
  BAD(partial, 65, RMS_E_PARTIAL);
  BAD(groups, 3, RMS_E_GROUPS);
  BAD(rounding, 9, RMS_E_MODE);
  BAD(eps_place, 9, RMS_E_MODE);
  BAD(eps_place, 3, RMS_E_MODE);
  BAD(steps, 4, RMS_E_MODE);
  BAD(steps, -1, RMS_E_MODE);
  BAD(gate_place, 9, RMS_E_MODE);
  BAD(gate_place, RMS_GATE_AFTER, RMS_E_ARGUMENT); /* and no gate */
  BAD(activation, 9, RMS_E_MODE);
  BAD(partial, RMS_PARTIAL_NONE, RMS_E_PARTIAL);
#undef BAD
  expect("no spec", rms_cuda_forward(NULL, &args, NULL), RMS_E_ARGUMENT);
  spec = good_spec();
  expect("no arguments", rms_cuda_forward(&spec, NULL, NULL), RMS_E_ARGUMENT);
  expect("no statistics", rms_cuda_stats(&spec, &args, NULL, NULL), RMS_E_ARGUMENT);
  expect("no statistics to apply", rms_cuda_apply(&spec, &args, NULL, NULL), RMS_E_ARGUMENT);
  expect("nothing to merge", rms_cuda_stats_merge(&spec, 3, NULL, NULL, NULL), RMS_E_ARGUMENT);
  expect("merge of odd addresses", rms_cuda_stats_merge(&spec, 3, (rms_stat *)(void *)((char *)at(6) + 4), at(7), NULL),
         RMS_E_ALIGNMENT);
  args.x.dtype = 0;
  expect("x without a type", rms_cuda_forward(&spec, &args, NULL), RMS_E_DTYPE);
}

/* The forms that round where others do not: what each of them has, and has not. */
static void test_steps(void) {
  static const struct {
    int steps, kind, eps_place, partial;
    rms_status whole, split;
  } cases[] = {{RMS_STEPS_WIDE, RMS_KIND_RMS, RMS_EPS_CLAMP, 0, RMS_OK, RMS_OK},
               {RMS_STEPS_WIDE, RMS_KIND_LAYER, RMS_EPS_CLAMP, 0, RMS_OK, RMS_OK},
               {RMS_STEPS_TERMS, RMS_KIND_RMS, RMS_EPS_INSIDE, 0, RMS_OK, RMS_OK},
               {RMS_STEPS_TERMS, RMS_KIND_RMS, RMS_EPS_CLAMP, 16, RMS_OK, RMS_OK},
               {RMS_STEPS_TERMS, RMS_KIND_LAYER, RMS_EPS_INSIDE, 0, RMS_E_UNSUPPORTED, RMS_E_UNSUPPORTED},
               {RMS_STEPS_RSTD, RMS_KIND_RMS, RMS_EPS_INSIDE, 0, RMS_OK, RMS_E_UNSUPPORTED},
               {RMS_STEPS_RSTD, RMS_KIND_RMS, RMS_EPS_OUTSIDE, 0, RMS_E_UNSUPPORTED, RMS_E_UNSUPPORTED},
               {RMS_STEPS_RSTD, RMS_KIND_RMS, RMS_EPS_INSIDE, 16, RMS_E_UNSUPPORTED, RMS_E_UNSUPPORTED},
               {RMS_STEPS_ALL, RMS_KIND_RMS, RMS_EPS_OUTSIDE, 0, RMS_OK, RMS_E_UNSUPPORTED},
               {RMS_STEPS_ALL, RMS_KIND_RMS, RMS_EPS_CLAMP, 0, RMS_OK, RMS_E_UNSUPPORTED},
               {RMS_STEPS_ALL, RMS_KIND_LAYER, RMS_EPS_INSIDE, 0, RMS_OK, RMS_E_UNSUPPORTED},
               {RMS_STEPS_ALL, RMS_KIND_LAYER, RMS_EPS_CLAMP, 0, RMS_E_UNSUPPORTED, RMS_E_UNSUPPORTED}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rms_spec spec = good_spec();
    rms_forward_args f = good_forward();
    rms_backward_args b = good_backward();
    spec.steps = cases[i].steps, spec.kind = cases[i].kind, spec.eps_place = cases[i].eps_place;
    spec.partial = cases[i].partial;
    f.x.dtype = b.x.dtype = RMS_BF16;
    expect("steps of the halves of a forward", rms_cuda_forward_check(&spec, &f, at(20)), cases[i].split);
    expect("steps of the halves of a backward", rms_cuda_backward_check(&spec, &b, at(20), at(22)), cases[i].split);
    f.outer = b.outer = 0;
    expect("steps of a forward", rms_cuda_forward(&spec, &f, NULL), cases[i].whole);
    expect("steps of a backward", rms_cuda_backward(&spec, &b, NULL), cases[i].whole);
  }
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
  f.rstd = (char *)at(4) + 2;
  expect("rstd not aligned", rms_cuda_forward(&spec, &f, NULL), RMS_E_ALIGNMENT);
  f = good_forward();
  f.mean = (char *)at(4) + 1;
  expect("mean not aligned", rms_cuda_forward(&spec, &f, NULL), RMS_E_ALIGNMENT);
  f = good_forward();
  f.outer = 0;
  expect("no rows", rms_cuda_forward(&spec, &f, NULL), RMS_OK);

  rms_backward_args b = good_backward();
  b.accumulate = 64;
  expect("unknown flag", rms_cuda_backward(&spec, &b, NULL), RMS_E_MODE);
  b = good_backward();
  b.rstd = (char *)at(4) + 2;
  expect("saved rstd not aligned", rms_cuda_backward(&spec, &b, NULL), RMS_E_ALIGNMENT);
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

/* ---- structs of other sizes ---- */

static void test_sizes(void) {
  struct {
    rms_spec spec;
    int64_t more;
  } longer = {good_spec(), 0};
  rms_forward_args f = good_forward();
  const rms_status good = has_device ? RMS_OK : RMS_E_DEVICE;
  f.outer = has_device ? 0 : 4; /* nothing may be launched with these addresses */
  expect("a longer spec", rms_cuda_forward_sized(&longer.spec, sizeof longer, &f, sizeof f, NULL), good);
  expect("a shorter spec", rms_cuda_forward_sized(&longer.spec, 48, &f, sizeof f, NULL), good);
  longer.more = 1;
  expect("a spec that asks for more", rms_cuda_forward_sized(&longer.spec, sizeof longer, &f, sizeof f, NULL),
         RMS_E_VERSION);
}

/* ---- at random ---- */

/* A call that the checks let pass goes on to a device, unless it has nothing to do. */
static void compare(const char *what, rms_status checked, int nothing, int workspace, rms_status got) {
  if (checked)
    expect(what, got, checked);
  else if (nothing)
    expect(what, got, RMS_OK);
  else
    expect(what, got, workspace ? RMS_E_WORKSPACE : RMS_E_DEVICE);
}

/* Statistics and sums are where nothing else is. */
static void random_forward(const rms_spec *spec, const rms_forward_args *a) {
  static const int flags[] = {0, RMS_CHECK_SPLIT | RMS_CHECK_STATS, RMS_CHECK_SPLIT};
  for (int i = 0; i < 3; i++) {
    rms_forward_job job;
    int64_t segments = 0;
    rms_stat *stats = at(20);
    rms_status checked = rms_check_forward(spec, a, flags[i] | RMS_CHECK_DEVICE, i == 2 ? stats : NULL,
                                           i == 1 ? stats : NULL, &job, &segments);
    if (has_device && !checked) continue; /* nothing may be launched with these addresses */
    compare("forward at random", checked, segments == 0, 0,
            i == 0   ? rms_cuda_forward(spec, a, NULL)
            : i == 1 ? rms_cuda_stats(spec, a, stats, NULL)
                     : rms_cuda_apply(spec, a, stats, NULL));
  }
}

static void random_backward(const rms_spec *spec, const rms_backward_args *a) {
  static const int flags[] = {0, RMS_CHECK_SPLIT | RMS_CHECK_STATS, RMS_CHECK_SPLIT};
  (void)rms_cuda_backward_workspace(spec, a);
  for (int i = 0; i < 3; i++) {
    rms_backward_job job;
    int64_t segments = 0;
    rms_stat *stats = i ? at(20) : NULL;
    rms_grad_sum *sums = at(22);
    rms_status checked = rms_check_backward(spec, a, flags[i] | RMS_CHECK_DEVICE, stats, i == 2 ? sums : NULL,
                                            i == 1 ? sums : NULL, &job, &segments);
    if (has_device && !checked) continue;
    int columns = i != 1 && (a->dweight || a->dbias);
    int nothing = !columns && (segments == 0 || (i != 1 && !job.dx.data && !job.dresidual_out.data));
    int workspace = columns && segments > 0 && (!a->workspace || (uintptr_t)a->workspace % 64);
    compare("backward at random", checked, nothing, workspace,
            i == 0   ? rms_cuda_backward(spec, a, NULL)
            : i == 1 ? rms_cuda_backward_stats(spec, a, stats, sums, NULL)
                     : rms_cuda_backward_apply(spec, a, stats, sums, NULL));
  }
}

/* The checks of a split call say what the first half refuses, and then what the second does. */
static void random_checks(const rms_spec *spec, const rms_forward_args *f, const rms_backward_args *b) {
  const int second = RMS_CHECK_SPLIT | RMS_CHECK_DEVICE, first = second | RMS_CHECK_STATS;
  rms_forward_job forward;
  rms_backward_job backward;
  int64_t segments;
  rms_stat *stats = at(20);
  rms_grad_sum *sums = at(22);
  rms_status status = rms_check_forward(spec, f, first, NULL, stats, &forward, &segments);
  if (!status) status = rms_check_forward(spec, f, second, stats, NULL, &forward, &segments);
  expect("check of a forward at random", rms_cuda_forward_check(spec, f, stats), status);
  status = rms_check_backward(spec, b, first, stats, NULL, sums, &backward, &segments);
  if (!status) status = rms_check_backward(spec, b, second, stats, sums, NULL, &backward, &segments);
  expect("check of a backward at random", rms_cuda_backward_check(spec, b, stats, sums), status);
}

static void test_checks(void) {
  rms_spec spec = good_spec();
  rms_forward_args f = good_forward();
  rms_backward_args b = good_backward();
  expect("a good forward", rms_cuda_forward_check(&spec, &f, at(20)), RMS_OK);
  expect("a good backward", rms_cuda_backward_check(&spec, &b, at(20), at(22)), RMS_OK);
  expect("check without statistics", rms_cuda_forward_check(&spec, &f, NULL), RMS_E_ARGUMENT);
  expect("check without sums", rms_cuda_backward_check(&spec, &b, at(20), NULL), RMS_E_ARGUMENT);
  expect("statistics over x", rms_cuda_forward_check(&spec, &f, f.x.data), RMS_E_ALIAS);
  expect("sums over x", rms_cuda_backward_check(&spec, &b, at(20), b.x.data), RMS_E_ALIAS);
  f.y.data = NULL;
  expect("check without y", rms_cuda_forward_check(&spec, &f, at(20)), RMS_E_ARGUMENT);
  b.dx.data = (char *)at(1) + 4;
  expect("dx over dy or x", rms_cuda_backward_check(&spec, &b, at(20), at(22)), RMS_E_ALIAS);
}

static void test_random(void) {
  for (int i = 0; i < 300000; i++) {
    rms_spec spec;
    rms_forward_args f;
    rms_backward_args b;
    hostile_call(&spec, &f, &b);
    random_forward(&spec, &f);
    random_backward(&spec, &b);
    random_checks(&spec, &f, &b);
  }
}

static void test_no_device(void) {
  rms_spec spec = good_spec();
  rms_forward_args f = good_forward();
  rms_backward_args b = good_backward();
  expect("forward without a device", rms_cuda_forward(&spec, &f, NULL), RMS_E_DEVICE);
  expect("stats without a device", rms_cuda_stats(&spec, &f, at(6), NULL), RMS_E_DEVICE);
  expect("backward without a device", rms_cuda_backward(&spec, &b, NULL), RMS_E_DEVICE);
  expect("merge without a device", rms_cuda_stats_merge(&spec, 3, at(6), at(7), NULL), RMS_E_DEVICE);
  b.dweight = at(4);
  expect("workspace without a device", rms_cuda_backward_workspace(&spec, &b) == 0 ? RMS_OK : RMS_E_WORKSPACE, RMS_OK);
}

int main(void) {
  has_device = rms_cuda_available() == RMS_OK;
  test_specs();
  test_steps();
  test_calls();
  test_sizes();
  test_checks();
  test_random();
  if (has_device)
    printf("there is a device: calls without one were not tested\n");
  else
    test_no_device();
  if (failures == 0) printf("ok\n");
  return failures ? 1 : 0;
}
