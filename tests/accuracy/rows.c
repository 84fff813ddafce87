/* SPDX-License-Identifier: MIT
 *
 * Many rows and long rows, where sums in the data type or in one f32 chain fail; rows that take the quick ways. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "harness.h"
#include "number.h"
#include "run.h"

static void check_everywhere(const char *text) {
  t_isas isas = t_usable_isas();
  verify_problem problem;
  char message[256];
  t_context("%s", text);
  if (!T_EQ_INT(0, verify_problem_parse(text, &problem, message, sizeof message))) return;
  for (int i = 0; i < isas.count; i++) {
    verify_result result;
    snprintf(problem.isa, sizeof problem.isa, "%s", isas.name[i]);
    verify_run(&problem, verify_backend_cpu(), &result);
    t_context("%s:isa=%s: %s", text, isas.name[i], result.message);
    T_EQ_INT(0, result.failed + result.refused);
    T_CHECK(result.elements > 0);
  }
}

/* 65536 rows of dy = 1 in bf16: dbias is 65536. Summed in bf16 it would stop at 256. */
static void ones(rms_kind kind) {
  enum { ROWS = 65536, COLS = 3 };
  static uint16_t x[ROWS * COLS], dy[ROWS * COLS], dbias[COLS];
  rms_spec spec = {.cols = COLS, .eps = 1e-6, .kind = (int32_t)kind};
  rms_backward_args args = {.outer = ROWS, .x = {x, RMS_BF16}, .dy.data = dy, .dbias = dbias};
  for (int64_t i = 0; i < ROWS * COLS; i++) {
    verify_store(RMS_BF16, x, i, (double)(i % 7) - 3);
    verify_store(RMS_BF16, dy, i, 1);
  }
  args.workspace_bytes = rms_backward_workspace(&spec, &args);
  args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
  if (!T_CHECK(args.workspace != NULL)) return;
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  for (int j = 0; j < COLS; j++)
    T_EQ_F64(65536.0, verify_load(RMS_BF16, dbias, j));
  free(args.workspace);
}

static void sums_of_ones(void) {
  ones(RMS_KIND_RMS);
  ones(RMS_KIND_LAYER);
}

static void many_rows(void) {
  check_everywhere("layer:bwd:bf16:65536x8:bias:out=dw+db");
  check_everywhere("rms:bwd:bf16:65536x8:bias:out=dw+db:grad=f32");
  check_everywhere("rms:bwd:f32:20000x9:bias:out=dw+db:threads=2");
  check_everywhere("rms:bwd:f64:5000x3x5:perhead:bias:out=dw+db:acc");
}

/* Rows of one element at the end of the range, whose variance is zero beside a bound of it: r is 1/eps. */
static void alike_and_huge(void) {
  check_everywhere("layer:bwd:f64:5x1:bias:epsclamp:recompute:data=huge");
  check_everywhere("layer:bwd:f32:5x1:bias:epsclamp:recompute:data=huge");
  check_everywhere("layer:fwd:f64:5x1:bias:epsout:data=huge:out=y+stats");
}

/* A term of dweight overflows and the sum does not; infinite terms of both signs. */
static void infinite_terms(void) {
  check_everywhere("rms:bwd:bf16:7x8200:w=f32:round=before:dydata=mixed");
  check_everywhere("rms:bwd:f32:7x200:dydata=max");
}

static void long_rows(void) {
  check_everywhere("rms:fwd:f32:1x16384:data=max:out=y+stats");
  check_everywhere("rms:fwd:f32:1x16385:data=max:out=y+stats");
  check_everywhere("rms:fwd:f32:1x1048576:data=max:out=y+stats");
  check_everywhere("rms:fwd:bf16:1x1048577:data=hugemean:res:out=y+stats");
  check_everywhere("prms:fwd:f32:1x300007:p=0.3:idx:data=max:out=y+stats");
  check_everywhere("rms:bwd:f32:1x1048576:data=hugemean:dydata=hugemean:w=none:out=dx:recompute");
  check_everywhere("layer:bwd:f64:1x300007:data=hugemean:dydata=hugemean:bias");
  check_everywhere("rms:fwd:f32:1x1000001:out=y+stats");
  check_everywhere("layer:fwd:f32:1x300007:data=hugemean:out=y+stats");
  check_everywhere("layer:bwd:bf16:1x300007:bias");
  check_everywhere("prms:bwd:f16:1x300007:p=0.0625:recompute");
  check_everywhere("rms:fwd:f32:1x40000:gate=before:out=y+stats");
  check_everywhere("rms:bwd:bf16:1x40000:gate=after:round=before");
  check_everywhere("rms:bwd:f32:1x40000:gate=before:recompute");
}

/* Rows whose elements lie apart, wider than the stack. */
static void wide_channels(void) {
  check_everywhere("layer:fwd:f32:2x3x20001:channels=first:bias:out=y+stats");
  check_everywhere("rms:fwd:f64:1x9x7001:channels=first:data=max:out=y+stats");
  check_everywhere("prms:fwd:bf16:1x3x40001:channels=first:p=0.3:idx:split:inplace");
  check_everywhere("rms:fwd:f16:1x2x26000:channels=first:res=f32:y=bf16:groups=4:out=y+sum+stats");
  check_everywhere("rms:bwd:f32:2x5x5001:channels=first:gate=after:bias:recompute");
  check_everywhere("layer:bwd:bf16:1x5x40001:channels=first:bias:dres:acc:threads=3");
  check_everywhere("layer:bwd:f64:1x3x9001:channels=first:bias:split:inplace");
}

/* Enough rows that the loops of common jobs take them: gains that are laid out, of the data's type and of f32, and
 * gains that are read as they are, because the rows are too wide for that. */
static void common_rows(void) {
  static const char *const types[] = {"f32", "bf16", "f16"};
  static const char *const shapes[] = {"9x100", "9x4200", "3x100", "1x257"};
  static const char *const options[] = {"", ":w=f32", ":off=1"};
  static const char *const forms[] = {"rms:fwd:%s:%s%s",
                                      "rms:fwd:%s:%s%s:round=before",
                                      "rms:fwd:%s:%s%s:round=before:res",
                                      "rms:fwd:%s:%s%s:gate=after",
                                      "rms:fwd:%s:%s%s:gate=after:round=before",
                                      "rms:fwd:%s:%s%s:gate=before:act=sigmoid:round=before",
                                      "layer:fwd:%s:%s%s:bias",
                                      "rms:bwd:%s:%s%s",
                                      "rms:bwd:%s:%s%s:round=before",
                                      "rms:bwd:%s:%s%s:round=before:out=dx",
                                      "rms:bwd:%s:%s%s:gate=after:round=before",
                                      "rms:bwd:%s:%s%s:gate=after:act=sigmoid",
                                      "rms:bwd:%s:%s%s:gate=before",
                                      "layer:bwd:%s:%s%s:bias"};
  for (size_t i = 0; i < T_COUNT(forms); i++)
    for (size_t k = 0; k < T_COUNT(types) * T_COUNT(shapes) * T_COUNT(options); k++) {
      char text[128];
      snprintf(text, sizeof text, forms[i], types[k % 3], shapes[k / 3 % 4], options[k / 12]);
      check_everywhere(text);
    }
}

/* Equal numbers, whose f32 sums lose digits in one direction: the error of r must not grow with the width. */
static void equal_numbers(void) {
  enum { MOST = 1 << 24 };
  float *x = malloc(MOST * sizeof *x), *y = malloc(MOST * sizeof *y);
  if (!T_CHECK(x != NULL && y != NULL)) return;
  for (int64_t i = 0; i < MOST; i++)
    x[i] = 0.1f;
  double exact = 1 / sqrt((double)x[0] * (double)x[0]), worst = 0;
  for (int64_t cols = 1 << 10; cols <= MOST; cols *= 4) {
    rms_spec spec = {.cols = cols};
    float rstd = 0;
    rms_forward_args args = {.outer = 1, .x = {x, RMS_F32}, .y = {.data = y}, .rstd = &rstd};
    T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
    worst = fmax(worst, fabs((double)rstd / exact - 1));
  }
  t_context("the largest relative error of r is %g", worst);
  T_CHECK(worst <= ((16384 / 64 + 7) / 2.0 + 3) * 0x1p-24); /* docs/error-bounds.md: (d/2 + 3) u */
  free(x);
  free(y);
}

/* Rows of zeros, with a NaN, and rows that need a scale, beside others. */
static void rows_of_all_kinds(void) {
  static const char *const problems[] = {"rms:fwd:f32:9x300:out=y+stats",
                                         "layer:fwd:bf16:9x300:bias",
                                         "rms:fwd:f16:9x77:res",
                                         "rms:bwd:f32:9x300",
                                         "layer:bwd:f16:9x300:bias",
                                         "rms:bwd:bf16:9x64:recompute",
                                         "prms:bwd:f32:8x128:p=0.25",
                                         "rms:bwd:f32:17x128",
                                         "rms:bwd:f32:17x100:recompute",
                                         "rms:bwd:bf16:17x128:round=before:recompute",
                                         "layer:bwd:f32:17x128",
                                         "rms:bwd:f64:9x64",
                                         "rms:fwd:bf16:9x300:gate=after",
                                         "rms:bwd:bf16:9x300:gate=after",
                                         "rms:bwd:bf16:9x5000:round=before"};
  static const char *const data[] = {"data=zerorows", "data=nanrows", "data=mixed", "data=faintrows"};
  for (size_t i = 0; i < T_COUNT(problems); i++)
    for (size_t j = 0; j < T_COUNT(data); j++) {
      char text[128];
      snprintf(text, sizeof text, "%s:%s", problems[i], data[j]);
      check_everywhere(text);
    }
  check_everywhere("rms:bwd:f32:9x300:dydata=zerorows");
  check_everywhere("rms:fwd:f32:9x300:data=faintrows:eps=0:out=y+stats");
  check_everywhere("rms:fwd:bf16:17x64:data=faintrows:eps=1e-20:w=none");
  check_everywhere("layer:fwd:f32:17x96:data=faintrows:eps=3:bias:out=y+stats");
  check_everywhere("rms:fwd:f64:9x300:data=faintrows:out=y+stats");
  check_everywhere("layer:bwd:f32:17x128:data=faintrows:dydata=faintrows:recompute");
  check_everywhere("rms:bwd:f32:17x128:dydata=zerorows:recompute");
  check_everywhere("rms:bwd:f32:17x128:dydata=nanrows");
  check_everywhere("rms:bwd:f32:17x128:data=zerorows:dydata=mixed");
  check_everywhere("prms:bwd:f32:17x128:p=0.25:dydata=mixed:recompute");
  check_everywhere("layer:bwd:bf16:9x300:dydata=nanrows");
  check_everywhere("rms:fwd:f32:9x300:gate=before:data=zerorows:out=y+stats");
  check_everywhere("rms:bwd:f32:9x300:gate=before:data=nanrows");
  check_everywhere("rms:bwd:bf16:9x300:gate=before:dydata=zerorows:data=zerorows:recompute");
}

/* Gradients of rstd and mean, of rows that are scaled where eps counts or not, and of heads and groups. */
static void with_drstd(void) {
  check_everywhere("rms:bwd:f32:9x64:w=none:of=stats:data=small:eps=1e-20");
  check_everywhere("rms:bwd:f32:9x64:w=none:of=stats:data=faintrows:eps=1e-30");
  check_everywhere("rms:bwd:f32:9x64:of=y+stats:data=small:dydata=tiny:eps=1e-20:epsout");
  check_everywhere("rms:bwd:f32:9x64:w=none:of=stats:data=tiny:eps=1e-3:epsout");
  check_everywhere("layer:bwd:bf16:9x7:bias:epsout:of=y+stats:recompute:data=faintrows:dydata=tiny");
  check_everywhere("layer:bwd:f32:9x64:of=y+stats:bias:dydata=zerorows");
  check_everywhere("layer:bwd:f16:9x3x33:of=y+stats:perhead:bias:groups=3");
  check_everywhere("prms:bwd:f64:3x128:k=1:of=y+stats:data=small:dydata=small");
}

static const t_case cases[] = {
    {"sums_of_ones", sums_of_ones},     {"many_rows", many_rows},         {"alike_and_huge", alike_and_huge},
    {"infinite_terms", infinite_terms}, {"long_rows", long_rows},         {"wide_channels", wide_channels},
    {"common_rows", common_rows},       {"equal_numbers", equal_numbers}, {"rows_of_all_kinds", rows_of_all_kinds},
    {"with_drstd", with_drstd}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
