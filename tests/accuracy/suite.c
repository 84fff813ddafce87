/* SPDX-License-Identifier: MIT
 *
 * Every operation, option, data type and size of the suite that `rmsnorm check` runs, on every usable instruction set,
 * element by element within the derived bounds. */
#include <stdio.h>
#include <string.h>
#include "harness.h"
#include "run.h"
#include "suite.h"

static void check_problem(const verify_problem *problem) {
  char text[VERIFY_TEXT_MAX];
  verify_result result;
  int well = verify_run(problem, verify_backend_cpu(), &result);
  verify_problem_print(problem, text, sizeof text);
  t_context("%s\n    %s\n    repeat: rmsnorm check %s", text, result.message, text);
  T_CHECK(well);
  T_CHECK(result.elements > 0);
}

static void check_suite(int full, int first_type, int last_type) {
  t_isas isas = t_usable_isas();
  int templates, sizes;
  const verify_template *t = verify_suite_templates(&templates);
  const int64_t *size = verify_suite_sizes(full, &sizes);
  for (int isa = 0; isa < isas.count; isa++)
    for (int i = 0; i < templates; i++)
      for (int dtype = first_type; dtype <= last_type; dtype++)
        for (int s = 0; s < sizes; s++) {
          verify_problem problem;
          if (!verify_suite_problem(&t[i], (rms_dtype)dtype, size[s], &problem)) continue;
          snprintf(problem.isa, sizeof problem.isa, "%s", isas.name[isa]);
          problem.seed += t_seed() - 1;
          check_problem(&problem);
        }
}

static void short_all(void) {
  check_suite(0, RMS_F32, RMS_F16);
}
static void full_f32(void) {
  check_suite(1, RMS_F32, RMS_F32);
}
static void full_f64(void) {
  check_suite(1, RMS_F64, RMS_F64);
}
static void full_bf16(void) {
  check_suite(1, RMS_BF16, RMS_BF16);
}
static void full_f16(void) {
  check_suite(1, RMS_F16, RMS_F16);
}

static const t_case cases[] = {{"short", short_all},
                               {"full_f32", full_f32},
                               {"full_f64", full_f64},
                               {"full_bf16", full_bf16},
                               {"full_f16", full_f16}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
