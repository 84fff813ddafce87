/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench --sweep: sizes across the threshold of non-temporal stores. */
#include <stdio.h>

#include "../cli.h"
#include "../machine.h"
#include "report.h"
#include "rmsnorm.h"
#include "walk.h"

#define LIMIT 1.05

static const judge_rule RULES[] = {{ROLE_SELF, ROLE_PLAIN, LIMIT}, {ROLE_SELF, ROLE_STREAM, LIMIT}};
enum { RULE_COUNT = sizeof RULES / sizeof RULES[0] };

typedef struct sweep {
  cli_json *json; /* NULL: a table */
  judge_timing timing;
  int problems, violations;
} sweep;

static void write_row(const sweep *s, const verify_problem *problem, const judge_finding *f, const char *text,
                      double bytes) {
  const double elements = (double)problem->outer * (double)problem->spec.cols;
  const judge_finding *most = f[0].ratio.median > f[1].ratio.median ? &f[0] : &f[1];
  const double ns[] = {f[0].engine_ns / elements, f[0].other_ns / elements, f[1].other_ns / elements};
  const int violated = f[0].violated || f[1].violated;
  if (!s->json) {
    printf("%-36s %9.2f %9.4f %9.4f %9.4f %8.3f %6.3f..%-6.3f%s\n", text, bytes / 1e6, ns[0], ns[1], ns[2],
           most->ratio.median, most->ratio.low, most->ratio.high, violated ? "  slower" : "");
    fflush(stdout);
    return;
  }
  cli_json_open(s->json, NULL, '{');
  cli_json_text(s->json, "problem", text);
  cli_json_int(s->json, "bytes", (int64_t)bytes);
  cli_json_real(s->json, "ns_per_element", ns[0]);
  cli_json_real(s->json, "plain_ns_per_element", ns[1]);
  cli_json_real(s->json, "stream_ns_per_element", ns[2]);
  cli_json_real(s->json, "ratio", most->ratio.median);
  cli_json_real(s->json, "ratio_low", most->ratio.low);
  cli_json_real(s->json, "ratio_high", most->ratio.high);
  cli_json_flag(s->json, "violation", violated);
  cli_json_close(s->json);
}

static int judge_size(sweep *s, const walk_shape *shape, int64_t bytes) {
  verify_problem problem;
  judge_finding findings[RULE_COUNT];
  char text[VERIFY_TEXT_MAX];
  if (walk_problem(shape, bytes, &problem)) return CLI_OK; /* not one row fits */
  int code = walk_judge(&problem, RULES, RULE_COUNT, &s->timing, findings);
  if (code != CLI_OK) return code;
  s->problems++;
  s->violations += findings[0].violated || findings[1].violated;
  verify_problem_print(&problem, text, sizeof text);
  write_row(s, &problem, findings, text, (double)bytes);
  return CLI_OK;
}

/* From half of the second level in steps of 1.5, or 2.25 in short, to well beyond the threshold. */
static int judge_sizes(sweep *s, const walk_shape *shape, int64_t second, int shorter) {
  const int64_t most = (int64_t)256 << 20, threshold = rms_stream_threshold();
  int64_t last = 8 * threshold < (int64_t)64 << 20 ? (int64_t)64 << 20 : 8 * threshold;
  if (threshold > most / 8 || last > most) last = most;
  for (double bytes = (double)second / 2; bytes <= (double)last; bytes *= shorter ? 2.25 : 1.5) {
    int code = judge_size(s, shape, (int64_t)bytes);
    if (code != CLI_OK) return code;
  }
  return CLI_OK;
}

static int judge_all(sweep *s, int shorter) {
  static const char *const directions[] = {"fwd", "bwd"}, *const types[] = {"f32", "bf16"};
  int64_t first, second, third;
  machine m;
  machine_read(&m);
  walk_caches(&first, &second, &third);
  for (int all = 0; all < (m.cores > 1 ? 2 : 1); all++)
    for (int direction = 0; direction < 2; direction++)
      for (int type = 0; type < 2; type++) {
        const walk_shape shape = {directions[direction], types[type], 4096, all ? m.cores : 1};
        int code = judge_sizes(s, &shape, second > 0 ? second : 1 << 20, shorter);
        if (code != CLI_OK) return code;
      }
  return CLI_OK;
}

int bench_sweep(const walk_options *options) {
  cli_json out = {.stream = stdout};
  sweep s = {.json = options->json ? &out : NULL, .timing = {MEASURE_STORES, options->shorter, options->rounds}};
  report_title(s.json);
  if (s.json) {
    cli_json_int(&out, "stream_threshold_bytes", rms_stream_threshold());
    cli_json_real(&out, "limit", LIMIT);
    cli_json_open(&out, "problems", '[');
  } else {
    printf(
        "ns per element as the library chooses its stores, with plain and with non-temporal ones; ratio: the first to "
        "the\nbetter of the others, with its 95 %% interval. Threshold: %lld bytes.\n%-36s %9s %9s %9s %9s %8s\n",
        (long long)rms_stream_threshold(), "problem", "MB", "chosen", "plain", "non-temp.", "ratio");
  }
  int code = judge_all(&s, options->shorter);
  if (code != CLI_OK) return code;
  if (s.json) {
    cli_json_close(&out);
    cli_json_int(&out, "violations", s.violations);
    cli_json_close(&out);
  } else {
    printf("\n%d of %d sizes take more than %.2f times as long as with the better stores\n", s.violations, s.problems,
           LIMIT);
  }
  return CLI_OK;
}
