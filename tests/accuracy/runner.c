/* SPDX-License-Identifier: MIT
 *
 * The runner must see errors: a backend that runs the library and then spoils one thing must be caught, each time. It
 * shows that the bounds are tight enough to fail and that the canaries work. */
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "harness.h"
#include "number.h"

typedef enum fault {
  NO_FAULT,
  ULPS,           /* one element off by `amount` ulp                                  */
  GAP,            /* a byte behind a row                                              */
  INPUT,          /* the weight changed                                               */
  STALE_ROW,      /* a row not written                                                */
  SHIFTED,        /* one row's values one column to the right                         */
  OTHER_BACKWARD, /* RMSNorm's backward less the mean of u*r, as LayerNorm's has   */
  FULL_BACKWARD,  /* pRMSNorm's backward with the correction over all columns      */
  STATUS
} fault;

static struct {
  fault kind;
  double amount;
} plan;

static void add_ulps(rms_dtype dtype, void *data, int64_t at, double amount) {
  double value = verify_load(dtype, data, at);
  verify_store(dtype, data, at, value + amount * verify_ulp(dtype, value));
}

static void shift_row(char *row, int64_t cols, size_t element) {
  memmove(row + element, row, (size_t)(cols - 1) * element);
}

static void spoil(const verify_memory *memory, const rms_spec *spec, rms_view out, const void *weight, int64_t row) {
  rms_dtype dtype = (rms_dtype)out.dtype;
  size_t element = rms_dtype_size(dtype);
  char *start = (char *)out.data + row * out.outer_stride * (int64_t)element;
  if (plan.kind == ULPS) add_ulps(dtype, start, spec->cols / 2, plan.amount);
  if (plan.kind == GAP) start[(size_t)spec->cols * element] ^= 1;
  if (plan.kind == INPUT) memory->buffer[verify_buffer_of(memory, weight)].base[300] ^= 1;
  if (plan.kind == STALE_ROW) memset(start, 0xa5, (size_t)spec->cols * element);
  if (plan.kind == SHIFTED) shift_row(start, spec->cols, element);
}

static rms_status spoilt_forward(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                                 const rms_forward_args *args) {
  (void)self;
  if (plan.kind == STATUS) return RMS_E_MODE;
  rms_status status = rms_forward(spec, args, NULL);
  spoil(memory, spec, args->y, args->weight, 1);
  return status;
}

/* Both wrong formulas are real: the first was shipped by a well-known library, whose oracle shared it. */
static void wrong_formula(const rms_spec *spec, const rms_backward_args *args) {
  for (int64_t i = 0; i < args->outer; i++) {
    float *dx = (float *)args->dx.data + i * args->dx.outer_stride;
    const float *x = (const float *)args->x.data + i * args->x.outer_stride;
    const float *dy = (const float *)args->dy.data + i * args->dy.outer_stride;
    const float *weight = args->weight;
    double r = (double)((const float *)args->rstd)[i], mean = 0, sum = 0;
    for (int64_t j = 0; j < spec->cols; j++) {
      double u = (double)dy[j] * (double)weight[j];
      mean += u * r / (double)spec->cols;
      sum += u * (double)x[j];
    }
    for (int64_t j = 0; j < spec->cols; j++)
      if (plan.kind == OTHER_BACKWARD)
        dx[j] = (float)((double)dx[j] - mean);
      else if (j >= spec->partial)
        dx[j] = (float)((double)dx[j] - (double)x[j] * sum * r * r * r / (double)spec->partial);
  }
}

static rms_status spoilt_backward(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                                  const rms_backward_args *args) {
  (void)self;
  rms_status status = rms_backward(spec, args, NULL);
  if (plan.kind == OTHER_BACKWARD || plan.kind == FULL_BACKWARD)
    wrong_formula(spec, args);
  else if (args->dx.data)
    spoil(memory, spec, args->dx, args->weight, 1);
  else if (plan.kind == ULPS)
    add_ulps((rms_dtype)args->dweight_dtype, args->dweight, spec->cols / 2, plan.amount);
  return status;
}

static verify_result run(const char *text, fault kind, double amount) {
  verify_backend backend = *verify_backend_cpu();
  verify_problem problem;
  verify_result result = {0};
  char message[256];
  backend.forward = spoilt_forward;
  backend.backward = spoilt_backward;
  plan.kind = kind;
  plan.amount = amount;
  t_context("%s with fault %d, amount %g", text, (int)kind, amount);
  if (T_EQ_INT(0, verify_problem_parse(text, &problem, message, sizeof message)))
    verify_run(&problem, &backend, &result);
  return result;
}

static void caught(const char *text, fault kind, double amount) {
  T_EQ_INT(0, run(text, NO_FAULT, 0).failed);
  verify_result result = run(text, kind, amount);
  T_EQ_INT(1, result.failed);
  T_CHECK(result.message[0] != '\0');
}

/* The share of the bound that a sum over 128 columns takes is small: a few ulp off are seen in every type. */
static void wrong_elements(void) {
  static const char *const types[] = {"f32", "f64", "bf16", "f16"};
  for (size_t i = 0; i < T_COUNT(types); i++)
    for (int sign = -1; sign <= 1; sign += 2) {
      char text[64];
      double few = i < 2 ? 12 : 2; /* the 16-bit types: their own rounding is all there is */
      snprintf(text, sizeof text, "rms:fwd:%s:3x128", types[i]);
      caught(text, ULPS, sign * few);
      snprintf(text, sizeof text, "layer:fwd:%s:3x128:bias", types[i]);
      caught(text, ULPS, sign * 2 * few);
      snprintf(text, sizeof text, "rms:bwd:%s:3x128:out=dx", types[i]);
      caught(text, ULPS, sign * 4 * few);
      snprintf(text, sizeof text, "rms:bwd:%s:3x128:out=dw", types[i]);
      caught(text, ULPS, sign * 16 * few); /* the three terms may cancel */
    }
}

static void wrong_memory(void) {
  caught("rms:fwd:f32:3x65:pad=2", GAP, 0);
  caught("layer:bwd:bf16:3x65:pad=2:out=dx", GAP, 0);
  caught("rms:fwd:f16:3x65", INPUT, 0);
  caught("rms:fwd:f64:3x65", STALE_ROW, 0);
  caught("rms:bwd:f32:3x65:out=dx", STALE_ROW, 0);
  caught("layer:fwd:bf16:3x65", SHIFTED, 0);
  T_EQ_INT(VERIFY_WEIGHT, run("rms:fwd:f16:3x65", INPUT, 0).spoiled);
  T_EQ_INT(VERIFY_Y, run("rms:fwd:f32:3x65:pad=2", GAP, 0).spoiled);
}

static void wrong_formulas(void) {
  caught("rms:bwd:f32:3x256:out=dx", OTHER_BACKWARD, 0);
  caught("prms:bwd:f32:3x256:out=dx:p=0.25", FULL_BACKWARD, 0);
}

static void wrong_status(void) {
  verify_result result = run("rms:fwd:f32:3x64", STATUS, 0);
  T_EQ_INT(1, result.failed);
  T_EQ_STATUS(RMS_E_MODE, result.status);
}

static void where_it_is(void) {
  verify_result result = run("rms:fwd:f32:3x128", ULPS, 5000);
  T_EQ_INT(1, result.misses);
  T_EQ_INT(VERIFY_Y, result.worst.role);
  T_EQ_INT(1, result.worst.outer);
  T_EQ_INT(64, result.worst.column);
  T_NEAR(5000, result.ulp, 50);
}

static const t_case cases[] = {{"wrong_elements", wrong_elements},
                               {"wrong_memory", wrong_memory},
                               {"wrong_formulas", wrong_formulas},
                               {"wrong_status", wrong_status},
                               {"where_it_is", where_it_is}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
