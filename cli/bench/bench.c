/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench: a list of common problems, or the problems given. */
#include "../cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../machine.h"
#include "report.h"
#include "scaling.h"
#include "walk.h"
#ifdef RMSNORM_HAVE_CUDA
#include "cuda.h"
#endif

typedef struct bench_options {
  int json, shorter, list, verbose, targets, order, sweep;
  const char *device, *threads_text;
  int64_t threads, rounds; /* UNSET: as the problem says; as many as its time allows */
  int all_threads;
} bench_options;

#define UNSET INT64_MIN

static const char EXAMPLES[] =
    "  rmsnorm bench                                  common problems: less than a minute\n"
    "  rmsnorm bench --targets                        what the library aims at, and what is met\n"
    "  rmsnorm bench --short --json > bench.json\n"
    "  rmsnorm bench rms:fwd:bf16:512x4096            one problem; --verbose: all engines\n"
    "  rmsnorm bench layer:bwd:f32:8192x4096 --threads 2\n"
    "  rmsnorm bench --threads all                    a table over numbers of threads\n"
    "  rmsnorm bench --order --short                  is pRMSNorm <= RMSNorm <= LayerNorm?\n";

static const char NOTES[] =
    "A problem is KIND:DIR:DTYPE:SHAPE[:OPTION...]: rms, prms or layer; fwd or bwd; f32, f64, bf16 or f16;\n"
    "ROWSxCOLS or OUTERxINNERxCOLS. Options: w=none|f32 bias off=V gain=weight eps=V epsout epsclamp\n"
    "round=before steps=terms|rstd|all groups=G perhead wstride=N k=K p=P idx gate=after|before\n"
    "act=silu|sigmoid y=f32|bf16|f16 q=i8|e4m3|e5m2|q8_0 qblock=row|tensor|N qleast=V res[=f32] dres\n"
    "recompute acc out=A+B grad=same|f32 channels=first pad=N inplace seed=N isa=NAME threads=N data=NAME\n"
    "dydata=NAME (see check --help). 'rmsnorm check' reads the same strings.\n"
    "Exit code 1: a result differed from the scalar kernel's. A target that is not met is no error.\n";

static report_form form_of(const bench_options *options) {
  return options->json ? REPORT_JSON : options->verbose ? REPORT_VERBOSE : REPORT_TABLE;
}

/* ---- One problem ---- */

static int measure_text(const char *text, const bench_options *options, const measure_options *how,
                        bench_result *result) {
  verify_problem problem;
  char reason[512];
  if (verify_problem_parse(text, &problem, reason, sizeof reason)) return cli_error(text, "%s", reason);
  if (options->threads != UNSET) problem.threads = (int)options->threads;
  cli_progress(text);
  int code = measure(&problem, how, result, reason, sizeof reason);
  cli_progress(NULL);
  if (code == 0) return CLI_OK;
  (void)cli_error(text, "%s", reason);
  return code > 0 ? CLI_FAILED : CLI_BAD;
}

/* Before anything is timed. */
static int check_problems(char **problems, int count) {
  for (int i = 0; i < count; i++) {
    verify_problem problem;
    char reason[512];
    if (verify_problem_parse(problems[i], &problem, reason, sizeof reason) ||
        measure_check(&problem, reason, sizeof reason))
      return cli_error(problems[i], "%s", reason);
  }
  return CLI_OK;
}

static int bench_problems(char **problems, int count, const bench_options *options) {
  measure_options how = {.seconds = options->shorter ? 0.4 : 1.5,
                         .rounds = options->rounds == UNSET ? 0 : options->rounds};
  report r;
  report_begin(&r, form_of(options));
  for (int i = 0; i < count; i++) {
    bench_result result;
    int code = measure_text(problems[i], options, &how, &result);
    if (code != CLI_OK) return code;
    report_problem(&r, &result);
    measure_free(&result);
  }
  report_end(&r);
  return CLI_OK;
}

/* ---- The default list ---- */

static int has_cores_for(const char *text, const machine *m) {
  verify_problem problem;
  char reason[512];
  return verify_problem_parse(text, &problem, reason, sizeof reason) || problem.threads <= m->cores;
}

static int bench_list(const bench_options *options, report *r) {
  const double seconds = options->shorter ? 0.2 : options->targets ? 1.2 : 0.5;
  measure_options how = {.rounds = options->rounds == UNSET ? 0 : options->rounds};
  machine m;
  machine_read(&m);
  for (int i = 0; i < BENCH_TARGET_COUNT;) {
    const char *problem = BENCH_TARGETS[i].problem;
    bench_result result;
    if (!has_cores_for(problem, &m)) {
      i++;
      continue;
    }
    how.set = BENCH_TARGETS[i].set;
    how.seconds = how.set == MEASURE_ALL ? seconds : seconds / 2; /* fewer engines */
    int code = measure_text(problem, options, &how, &result);
    if (code != CLI_OK) return code;
    report_problem(r, &result);
    for (; i < BENCH_TARGET_COUNT && strcmp(problem, BENCH_TARGETS[i].problem) == 0; i++) {
      if (!options->targets || BENCH_TARGETS[i].measure == TARGET_NONE) continue;
      char description[REPORT_TARGET_TEXT];
      target_describe(&BENCH_TARGETS[i], description, sizeof description);
      double value = target_value(&BENCH_TARGETS[i], &result);
      report_target(r, problem, description, value, BENCH_TARGETS[i].limit, target_met(&BENCH_TARGETS[i], value));
    }
    measure_free(&result);
  }
  return CLI_OK;
}

static int bench_flatness(const bench_options *options, report *r) {
  measure_options how = {.seconds = options->shorter ? 0.05 : 0.25,
                         .rounds = options->rounds == UNSET ? 0 : options->rounds,
                         .set = MEASURE_ESSENTIAL};
  for (int i = 0; i < FLAT_LEVEL_COUNT; i++) {
    const flat_level *level = &FLAT_LEVELS[i];
    double cost[FLAT_WIDTH_COUNT], cheapest = 0, dearest = 0;
    int count = 0;
    for (; count < FLAT_WIDTH_COUNT && FLAT_WIDTHS[count] <= level->elements; count++) {
      char text[VERIFY_TEXT_MAX];
      bench_result result;
      snprintf(text, sizeof text, "rms:fwd:f32:%lldx%lld", (long long)(level->elements / FLAT_WIDTHS[count]),
               (long long)FLAT_WIDTHS[count]);
      int code = measure_text(text, options, &how, &result);
      if (code != CLI_OK) return code;
      cost[count] = result_engine(&result, ROLE_SELF)->median / result.elements;
      measure_free(&result);
      if (count == 0 || cost[count] < cheapest) cheapest = cost[count];
      if (count == 0 || cost[count] > dearest) dearest = cost[count];
    }
    report_flat(r, level, cost, count);
    report_target(r, level->name, "dearest width at most 1.50 of the cheapest", dearest / cheapest, FLAT_LIMIT,
                  dearest <= FLAT_LIMIT * cheapest);
  }
  return CLI_OK;
}

static void bench_workspace(report *r) {
  size_t few, many;
  workspace_sizes(&few, &many);
  report_target(r, "backward workspace, 4096 columns", "2^40 rows at most 1 x that of 2^20 rows",
                few ? (double)many / (double)few : 0, 1, few > 0 && many > 0 && many <= few);
}

static int bench_default(const bench_options *options) {
  report r;
  report_begin(&r, form_of(options));
  int code = bench_list(options, &r);
  if (code == CLI_OK && options->targets) code = bench_flatness(options, &r);
  if (code != CLI_OK) return code;
  if (options->targets) bench_workspace(&r);
  report_end(&r);
  return CLI_OK;
}

static void list_targets(void) {
  for (int i = 0; i < BENCH_TARGET_COUNT; i++) {
    char description[REPORT_TARGET_TEXT];
    target_describe(&BENCH_TARGETS[i], description, sizeof description);
    printf("%-38s %s\n", BENCH_TARGETS[i].problem, description);
  }
}

static int bench_all_threads(char **problems, int count, const bench_options *options) {
  const measure_options how = {.seconds = options->shorter ? 0.4 : 1.2,
                               .rounds = options->rounds == UNSET ? 0 : options->rounds};
  return bench_scaling(problems, count, &how, options->shorter, options->json);
}

/* The walks have problems and numbers of threads of their own. */
static int bench_walk(int problem_count, const bench_options *options) {
  const char *name = options->order ? "--order" : "--sweep";
  const walk_options how = {options->shorter, options->json, options->rounds == UNSET ? 0 : options->rounds};
  if (options->order && options->sweep) return cli_error("--order", "--sweep is another list; take one of them");
  if (problem_count > 0) return cli_error(name, "has its own list of problems");
  if (options->threads_text) return cli_error(name, "runs on one thread and on all; --threads is not for it");
  if (options->targets) return cli_error(name, "has no targets");
  return options->order ? bench_order(&how) : bench_sweep(&how);
}

/* --threads N|all */
static int read_threads(bench_options *options) {
  const char *text = options->threads_text;
  char *end = NULL;
  if (!text) return CLI_OK;
  options->all_threads = strcmp(text, "all") == 0;
  if (options->all_threads) return CLI_OK;
  errno = 0;
  options->threads = strtoll(text, &end, 10);
  if (end == text || *end || errno) return cli_error("--threads", "'%s' is neither a whole number nor 'all'", text);
  if (options->threads < 1 || options->threads > 1024)
    return cli_error("--threads", "%lld is outside 1..1024", (long long)options->threads);
  return CLI_OK;
}

int cmd_bench(int argc, char **argv) {
  bench_options options = {.device = "cpu", .threads = UNSET, .rounds = UNSET};
  const cli_option table[] = {
      {"json", 0, CLI_FLAG, &options.json, NULL, "one JSON document instead of tables"},
      {"short", 0, CLI_FLAG, &options.shorter, NULL, "fewer rounds: a third of the time, more noise"},
      {"device", 0, CLI_STRING, &options.device, "D", "cpu (default) or cuda"},
      {"threads", 0, CLI_STRING, &options.threads_text, "N|all",
       "run every problem on N threads, the copies too; all: a table over\n1, 2, 4, ... threads, of a list of its own "
       "where no problem is given"},
      {"rounds", 0, CLI_INT, &options.rounds, "N", "N rounds a problem (default: as many as its time allows)"},
      {"list", 0, CLI_FLAG, &options.list, NULL, "print the problems and targets of the default list, time nothing"},
      {"verbose", 'v', CLI_FLAG, &options.verbose, NULL, "every engine of a problem, with quantiles"},
      {"targets", 0, CLI_FLAG, &options.targets, NULL,
       "say what the library aims at on each problem and whether it is met; also\nhow flat the cost is over widths: "
       "another half minute"},
      {"order", 0, CLI_FLAG, &options.order, NULL,
       "walk over a grid of shapes and print where pRMSNorm takes longer than\nRMSNorm, or RMSNorm longer than "
       "LayerNorm: "
       "minutes; --short: less"},
      {"sweep", 0, CLI_FLAG, &options.sweep, NULL,
       "sizes across the threshold of non-temporal stores, with both kinds\nof stores: a minute"},
      {0}};
  const cli_command command = {
      "bench",
      "[PROBLEM...] [OPTION...]",
      "Times the operations against the fastest plain copy of the same bytes with the same mix of reads and\n"
      "writes on the same buffers. Without problems: a list of common ones, a row each.",
      EXAMPLES,
      table,
      NOTES};
  int code = cli_parse(&command, &argc, argv);
  if (code >= 0) return code;
  if ((code = read_threads(&options)) != CLI_OK) return code;
  if (options.rounds != UNSET && (options.rounds < 1 || options.rounds > ROUNDS_MAX))
    return cli_error("--rounds", "%lld is outside 1..%d", (long long)options.rounds, ROUNDS_MAX);
  if (strcmp(options.device, "cuda") == 0) {
#ifdef RMSNORM_HAVE_CUDA
    return bench_cuda(argv, argc, options.json);
#else
    return cli_error("--device", "cuda: this build has no CUDA library");
#endif
  }
  if (strcmp(options.device, "cpu") != 0) return cli_error("--device", "'%s' is neither cpu nor cuda", options.device);
  code = cli_check_environment();
  if (code >= 0) return code;
  if (options.list) {
    list_targets();
    return CLI_OK;
  }
  if (options.order || options.sweep) return bench_walk(argc, &options);
  if (options.targets && argc > 0) return cli_error("--targets", "belongs to the default list, without problems");
  if ((code = check_problems(argv, argc)) != CLI_OK) return code;
  if (options.all_threads) return bench_all_threads(argv, argc, &options);
  return argc > 0 ? bench_problems(argv, argc, &options) : bench_default(&options);
}
