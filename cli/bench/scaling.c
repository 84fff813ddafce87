/* SPDX-License-Identifier: MIT */
#include "scaling.h"

#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../machine.h"
#include "report.h"

static const double MOST_OF_FEWER = 1.05;

/* Every shape in both directions, as f32 and, in the long list, as bf16. */
static const char *const SHAPES[] = {"1x64",    "1x4096",   "4x4096",   "16x4096",   "64x1024",
                                     "512x768", "512x1024", "4096x128", "2048x4096", "8192x4096"};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof SHAPES[0] };

int scaling_counts(int cores, int *counts) {
  int count = 0;
  for (int threads = 1; threads < cores && count < THREAD_COUNTS_MAX - 1; threads *= 2)
    counts[count++] = threads;
  counts[count++] = cores < 1 ? 1 : cores;
  return count;
}

double scaling_of_fewer(const bench_result *result, const int *counts, int at) {
  const bench_engine *self = result_engine_on(result, ROLE_SELF, counts[at]);
  double most = 0;
  for (int i = 0; i < at; i++) {
    double ratio = engine_ratio(result_engine_on(result, ROLE_SELF, counts[i]), self);
    if (ratio > most) most = ratio;
  }
  return most;
}

/* ---- output ---- */

typedef struct scaling {
  cli_json *json; /* NULL: a table */
  int counts[THREAD_COUNTS_MAX];
  int count;
  int problems, slower;
  double worst; /* of all problems, with where it was */
  int worst_threads;
  char worst_problem[VERIFY_TEXT_MAX];
} scaling;

static void print_heading(const scaling *s) {
  printf("a call, and its speed as a share of the fastest copy on as many threads; of fewer: the longest time as a "
         "multiple of\nthat with fewer threads, compared in the same rounds.\n%-28s",
         "problem, threads");
  for (int i = 0; i < s->count; i++)
    printf(" %14d", s->counts[i]);
  printf(" %9s\n", "of fewer");
}

static void print_row(const scaling *s, const bench_result *result, const char *text, double most) {
  printf("%-28s", text);
  for (int i = 0; i < s->count; i++) {
    const bench_engine *self = result_engine_on(result, ROLE_SELF, s->counts[i]);
    char time[32];
    report_time(self->median, time, sizeof time);
    printf(" %9s %4.2f", time, self->of_ceiling);
  }
  printf(" %9.2f\n", most);
  fflush(stdout);
}

static void write_row(const scaling *s, const bench_result *result, const char *text) {
  cli_json *j = s->json;
  cli_json_open(j, NULL, '{');
  cli_json_text(j, "problem", text);
  cli_json_int(j, "elements", (int64_t)result->elements);
  cli_json_int(j, "bytes", (int64_t)result->bytes);
  cli_json_open(j, "threads", '[');
  for (int i = 0; i < s->count; i++) {
    const bench_engine *self = result_engine_on(result, ROLE_SELF, s->counts[i]);
    cli_json_open(j, NULL, '{');
    cli_json_int(j, "threads", s->counts[i]);
    cli_json_real(j, "ns_per_call", self->median);
    cli_json_real(j, "ns_per_call_20", self->low);
    cli_json_real(j, "ns_per_call_80", self->high);
    cli_json_real(j, "gb_per_s", result->bytes / self->median);
    cli_json_real(j, "of_ceiling", self->of_ceiling);
    cli_json_real(j, "of_fewer", scaling_of_fewer(result, s->counts, i));
    cli_json_close(j);
  }
  cli_json_close(j);
  cli_json_close(j);
}

static void add_result(scaling *s, const bench_result *result) {
  double most = 0;
  char text[VERIFY_TEXT_MAX];
  verify_problem_print(&result->problem, text, sizeof text);
  for (int i = 1; i < s->count; i++) {
    double ratio = scaling_of_fewer(result, s->counts, i);
    if (ratio > most) most = ratio;
    if (ratio <= s->worst) continue;
    s->worst = ratio;
    s->worst_threads = s->counts[i];
    memcpy(s->worst_problem, text, sizeof text);
  }
  s->problems++;
  s->slower += most > MOST_OF_FEWER;
  if (s->json)
    write_row(s, result, text);
  else
    print_row(s, result, text, most);
}

static void finish(const scaling *s) {
  if (s->json) {
    cli_json_close(s->json);
    cli_json_int(s->json, "slower", s->slower);
    cli_json_close(s->json);
    return;
  }
  printf("\n%d of %d problems take more than %.2f times as long as with fewer threads", s->slower, s->problems,
         MOST_OF_FEWER);
  if (s->worst > 0) printf("; most: %.2f, %s on %d threads", s->worst, s->worst_problem, s->worst_threads);
  putchar('\n');
}

/* ---- the walk ---- */

static int time_problem(scaling *s, const char *text, measure_options how) {
  verify_problem problem;
  bench_result result;
  char reason[256];
  if (verify_problem_parse(text, &problem, reason, sizeof reason)) return cli_error(text, "%s", reason);
  how.set = MEASURE_ESSENTIAL;
  how.threads = s->counts;
  how.thread_count = s->count;
  cli_progress(text);
  int code = measure(&problem, &how, &result, reason, sizeof reason);
  cli_progress(NULL);
  if (code) {
    (void)cli_error(text, "%s", reason);
    return code > 0 ? CLI_FAILED : CLI_BAD;
  }
  add_result(s, &result);
  measure_free(&result);
  return CLI_OK;
}

static int time_list(scaling *s, const measure_options *how, int shorter) {
  static const char *const types[] = {"f32", "bf16"}, *const directions[] = {"fwd", "bwd"};
  int code = CLI_OK;
  for (int type = 0; type < (shorter ? 1 : 2); type++)
    for (int direction = 0; direction < 2; direction++)
      for (int i = 0; i < SHAPE_COUNT && code == CLI_OK; i++) {
        char text[VERIFY_TEXT_MAX];
        snprintf(text, sizeof text, "rms:%s:%s:%s", directions[direction], types[type], SHAPES[i]);
        code = time_problem(s, text, *how);
      }
  return code;
}

int bench_scaling(char **problems, int count, const measure_options *how, int shorter, int json) {
  machine m;
  cli_json out = {.stream = stdout};
  scaling s = {.json = json ? &out : NULL};
  machine_read(&m);
  s.count = scaling_counts(m.cores, s.counts);
  report_title(s.json);
  if (json)
    cli_json_open(&out, "problems", '[');
  else
    print_heading(&s);
  int code = CLI_OK;
  for (int i = 0; i < count && code == CLI_OK; i++)
    code = time_problem(&s, problems[i], *how);
  if (count == 0) code = time_list(&s, how, shorter);
  if (code == CLI_OK) finish(&s);
  return code;
}
