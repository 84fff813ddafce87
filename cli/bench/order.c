/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench --order: pRMSNorm <= RMSNorm <= LayerNorm over a grid of shapes. */
#include <stdio.h>

#include "../cli.h"
#include "../machine.h"
#include "report.h"
#include "walk.h"

#define LIMIT 1.02

static const judge_rule RULES[] = {
    {ROLE_PARTIAL, ROLE_RMS, LIMIT}, {ROLE_QUARTER, ROLE_RMS, LIMIT}, {ROLE_RMS, ROLE_LAYER, LIMIT}};
enum { RULE_COUNT = sizeof RULES / sizeof RULES[0] };

typedef struct order {
  cli_json *json; /* NULL: text */
  judge_timing timing;
  int problems, violations;
  double worst;
  char worst_problem[VERIFY_TEXT_MAX];
} order;

static void write_finding(cli_json *j, const judge_finding *f, const char *text, const char *level, double elements) {
  cli_json_open(j, NULL, '{');
  cli_json_text(j, "problem", text);
  cli_json_text(j, "level", level);
  cli_json_text(j, "norm", f->engine);
  cli_json_text(j, "other", f->other);
  cli_json_real(j, "ns_per_element", f->engine_ns / elements);
  cli_json_real(j, "other_ns_per_element", f->other_ns / elements);
  cli_json_real(j, "ratio", f->ratio.median);
  cli_json_real(j, "ratio_low", f->ratio.low);
  cli_json_real(j, "ratio_high", f->ratio.high);
  cli_json_int(j, "rounds", f->ratio.rounds);
  cli_json_flag(j, "violation", f->violated);
  cli_json_close(j);
}

static void print_finding(const judge_finding *f, const char *text, const char *level, double elements) {
  printf("%-36s %-7s %-13s / %-9s %6.3f %6.3f..%-6.3f %9.4f %9.4f\n", text, level, f->engine, f->other, f->ratio.median,
         f->ratio.low, f->ratio.high, f->engine_ns / elements, f->other_ns / elements);
  fflush(stdout);
}

static int judge_shape(order *o, const walk_shape *shape, const walk_level *level) {
  verify_problem problem;
  judge_finding findings[RULE_COUNT];
  char text[VERIFY_TEXT_MAX];
  if (walk_problem(shape, level->bytes, &problem)) return CLI_OK; /* not one row fits */
  int code = walk_judge(&problem, RULES, RULE_COUNT, &o->timing, findings);
  if (code != CLI_OK) return code;
  const double elements = (double)problem.outer * (double)shape->cols;
  verify_problem_print(&problem, text, sizeof text);
  o->problems++;
  for (int i = 0; i < RULE_COUNT; i++) {
    o->violations += findings[i].violated;
    if (o->json)
      write_finding(o->json, &findings[i], text, level->name, elements);
    else if (findings[i].violated)
      print_finding(&findings[i], text, level->name, elements);
    if (!findings[i].violated || findings[i].ratio.median <= o->worst) continue;
    o->worst = findings[i].ratio.median;
    snprintf(o->worst_problem, sizeof o->worst_problem, "%s", text);
  }
  return CLI_OK;
}

/* All widths and types at one level on some threads. A call in L1 is too small for more than one thread. */
static int judge_level(order *o, const walk_level *level, int threads, int shorter) {
  static const char *const directions[] = {"fwd", "bwd"}, *const types[] = {"f32", "bf16", "f16", "f64"};
  static const int64_t widths[] = {128, 768, 4096, 65536, 64, 96, 256, 1024, 16384}; /* the short grid's first */
  const int type_count = shorter ? 2 : 4, width_count = shorter ? 4 : 9;
  for (int type = 0; type < type_count; type++)
    for (int direction = 0; direction < 2; direction++)
      for (int i = 0; i < width_count; i++) {
        const walk_shape shape = {directions[direction], types[type], widths[i], threads};
        int code = judge_shape(o, &shape, level);
        if (code != CLI_OK) return code;
      }
  return CLI_OK;
}

static int judge_grid(order *o, int shorter) {
  int64_t first, second, third;
  walk_level levels[WALK_LEVELS];
  machine m;
  machine_read(&m);
  walk_caches(&first, &second, &third);
  walk_levels(first, second, third, shorter, levels);
  for (int all = 0; all < (m.cores > 1 ? 2 : 1); all++)
    for (int i = all ? 1 : 0; i < WALK_LEVELS; i++) {
      int code = judge_level(o, &levels[i], all ? m.cores : 1, shorter);
      if (code != CLI_OK) return code;
    }
  return CLI_OK;
}

static void finish(const order *o) {
  if (o->json) {
    cli_json_close(o->json);
    cli_json_int(o->json, "problem_count", o->problems);
    cli_json_int(o->json, "violations", o->violations);
    cli_json_close(o->json);
    return;
  }
  printf("%d violation%s in %d comparisons of %d problems", o->violations, o->violations == 1 ? "" : "s",
         RULE_COUNT * o->problems, o->problems);
  if (o->violations) printf("; worst: %.3f, %s", o->worst, o->worst_problem);
  putchar('\n');
}

int bench_order(const walk_options *options) {
  cli_json out = {.stream = stdout};
  order o = {.json = options->json ? &out : NULL, .timing = {MEASURE_NORMS, options->shorter, options->rounds}};
  report_title(o.json);
  if (o.json) {
    cli_json_real(&out, "limit", LIMIT);
    cli_json_open(&out, "comparisons", '[');
  } else {
    printf("pRMSNorm takes at most %.2f of RMSNorm's time, RMSNorm at most %.2f of LayerNorm's, except:\n"
           "%-36s %-7s %-25s %6s %14s %9s %9s\n",
           LIMIT, LIMIT, "problem", "data in", "norms", "ratio", "95 % interval", "ns/elem", "ns/elem");
  }
  int code = judge_grid(&o, options->shorter);
  if (code == CLI_OK) finish(&o);
  return code;
}
