/* SPDX-License-Identifier: MIT
 *
 * rmsnorm check: every operation on this machine against the oracle, on every usable instruction set. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "suite.h"

enum { DTYPES = 4, MOST_ISAS = 8, MOST_FAILURES = 20 };

/* One cell of the table: an operation for a data type. */
typedef struct cell {
  int64_t problems, elements, failures;
  double ulp, share;
} cell;

typedef struct failure {
  char problem[VERIFY_TEXT_MAX], message[256];
} failure;

typedef struct check {
  const verify_backend *backend;
  const char *isas[MOST_ISAS]; /* "" alone: a device without a choice */
  int isa_count;
  int64_t problems, elements, failure_count;
  int64_t left_out;                /* of the suite: what the device does not offer */
  double ulp;                      /* largest error of all */
  failure failures[MOST_FAILURES]; /* the first ones */
  int is_short, as_json, quiet, verbose;
  cli_json out; /* with as_json */
} check;

/* ---- What to run ---- */

static int choose_isas(check *c, const char *isa) {
  int code = cli_check_environment();
  if (code >= 0) return code;
  if (isa && !rms_isa_usable(isa))
    return cli_error("--isa", "'%s' is not an instruction set that this CPU can run", isa);
  if (isa) {
    c->isas[c->isa_count++] = isa;
    return -1;
  }
  const char *forced = getenv("RMSNORM_ISA");
  if (forced && *forced) {
    c->isas[c->isa_count++] = rms_isa_active();
    return -1;
  }
  for (int i = 0; i < rms_isa_count() && c->isa_count < MOST_ISAS; i++)
    if (rms_isa_usable(rms_isa_name(i))) c->isas[c->isa_count++] = rms_isa_name(i);
  return -1;
}

static int choose_device(check *c, const char *device, const char *isa) {
  if (strcmp(device, "cpu") == 0) {
    c->backend = verify_backend_cpu();
    return choose_isas(c, isa);
  }
  if (strcmp(device, "cuda") != 0) return cli_error("--device", "'%s' is neither cpu nor cuda", device);
  if (isa) return cli_error("--isa", "belongs to the device cpu");
  const char *why = "this build has no CUDA library";
#ifdef RMSNORM_HAVE_CUDA
  c->backend = verify_backend_cuda(&why);
#endif
  if (!c->backend) return cli_error("--device", "cuda: %s", why);
  c->isas[c->isa_count++] = "";
  return -1;
}

/* ---- Running ---- */

static void keep_failure(check *c, const verify_problem *problem, const char *message) {
  if (c->failure_count < MOST_FAILURES) {
    failure *f = &c->failures[c->failure_count];
    verify_problem_print(problem, f->problem, sizeof f->problem);
    snprintf(f->message, sizeof f->message, "%s", message);
  }
  c->failure_count++;
}

/* Runs the problem on one instruction set and counts it. */
static verify_result run_one(check *c, const verify_problem *problem, cell *into) {
  verify_result result;
  int well = verify_run(problem, c->backend, &result);
  if (result.refused && c->isas[0][0] == '\0') return result; /* a device may lack what a CPU has */
  into->problems++;
  into->elements += result.elements;
  if (result.ulp > into->ulp) into->ulp = result.ulp;
  if (result.share > into->share) into->share = result.share;
  if (!well) {
    into->failures++;
    keep_failure(c, problem, result.message);
  }
  c->problems++;
  c->elements += result.elements;
  if (result.ulp > c->ulp) c->ulp = result.ulp;
  return result;
}

static void run_template(check *c, const verify_template *t, int full, cell *row) {
  int size_count;
  const int64_t *sizes = verify_suite_sizes(full, &size_count);
  for (int isa = 0; isa < c->isa_count; isa++)
    for (int dtype = 0; dtype < DTYPES; dtype++)
      for (int s = 0; s < size_count; s++) {
        verify_problem problem;
        if (!verify_suite_problem(t, (rms_dtype)(RMS_F32 + dtype), sizes[s], &problem)) continue;
        strcpy(problem.isa, c->isas[isa]);
        const int64_t before = c->problems;
        (void)run_one(c, &problem, &row[dtype]);
        c->left_out += c->problems == before;
      }
}

/* ---- Reports ---- */

static void print_cell(const cell *cells) {
  for (int i = 0; i < DTYPES; i++) {
    char text[32] = "-";
    if (cells[i].problems) snprintf(text, sizeof text, "%.3g (%.0f%%)", cells[i].ulp, 100 * cells[i].share);
    printf("  %14s%s", text, cells[i].failures ? "!" : " ");
  }
  putchar('\n');
}

static void print_heading(const check *c) {
  if (c->isas[0][0]) {
    printf("Instruction sets:");
    for (int i = 0; i < c->isa_count; i++)
      printf(" %s", c->isas[i]);
    for (int i = 0; i < rms_isa_count(); i++)
      if (!rms_isa_usable(rms_isa_name(i))) printf(" (%s: not on this CPU)", rms_isa_name(i));
    putchar('\n');
  }
  printf(
      "Largest error in ulp and, in brackets, as a share of the bound that is derived for its element. Rounding to a\n"
      "16-bit type alone takes a share of nearly 100%%; more than 100%% is a miss (!).\n%-29s",
      "");
  for (int i = 0; i < DTYPES; i++)
    printf("  %14s ", verify_dtype_name((rms_dtype)(RMS_F32 + i)));
  putchar('\n');
}

static void print_json_cell(cli_json *j, const char *operation, rms_dtype dtype, const cell *x) {
  if (!x->problems) return;
  cli_json_open(j, NULL, '{');
  cli_json_text(j, "operation", operation);
  cli_json_text(j, "dtype", verify_dtype_name(dtype));
  cli_json_int(j, "problems", x->problems);
  cli_json_int(j, "elements", x->elements);
  cli_json_int(j, "failures", x->failures);
  cli_json_real(j, "max_ulp", x->ulp < 1e300 ? x->ulp : 1e300);
  cli_json_real(j, "max_share", x->share < 1e300 ? x->share : 1e300);
  cli_json_close(j);
}

static void print_json_start(check *c) {
  cli_json *j = &c->out;
  j->stream = stdout;
  cli_json_open(j, NULL, '{');
  cli_json_text(j, "device", c->backend->name);
  cli_json_open(j, "isas", '[');
  for (int i = 0; i < c->isa_count && c->isas[i][0]; i++)
    cli_json_text(j, NULL, c->isas[i]);
  cli_json_close(j);
  cli_json_open(j, "results", '[');
}

static void print_json_end(check *c) {
  cli_json *j = &c->out;
  cli_json_close(j);
  cli_json_int(j, "problems", c->problems);
  cli_json_int(j, "elements", c->elements);
  cli_json_int(j, "left_out", c->left_out);
  cli_json_open(j, "failures", '[');
  for (int64_t i = 0; i < c->failure_count && i < MOST_FAILURES; i++) {
    cli_json_open(j, NULL, '{');
    cli_json_text(j, "problem", c->failures[i].problem);
    cli_json_text(j, "message", c->failures[i].message);
    cli_json_close(j);
  }
  cli_json_close(j);
  cli_json_flag(j, "passed", c->failure_count == 0);
  cli_json_close(j);
}

static void print_failures(const check *c) {
  const char *device = c->isas[0][0] ? "" : "--device cuda ";
  for (int64_t i = 0; i < c->failure_count && i < MOST_FAILURES; i++)
    printf("MISS %s\n  %s\n  repeat: rmsnorm check %s%s\n", c->failures[i].problem, c->failures[i].message, device,
           c->failures[i].problem);
  if (c->failure_count > MOST_FAILURES) printf("and %" PRId64 " more\n", c->failure_count - MOST_FAILURES);
}

static void print_verdict(const check *c) {
  printf("%" PRId64 " problem%s, %" PRId64 " elements, largest error %.3g ulp, ", c->problems,
         c->problems == 1 ? "" : "s", c->elements, c->ulp);
  if (c->failure_count)
    printf("%" PRId64 " problem%s outside the bounds\n", c->failure_count, c->failure_count == 1 ? "" : "s");
  else
    printf("all within their bounds\n");
  if (c->left_out) printf("%" PRId64 " problems left out: this device does not offer them\n", c->left_out);
}

/* ---- The two ways to be called ---- */

static void check_suite(check *c) {
  int count;
  const verify_template *templates = verify_suite_templates(&count);
  if (c->as_json)
    print_json_start(c);
  else if (c->verbose)
    print_heading(c);
  for (int i = 0; i < count;) {
    const char *operation = templates[i].operation;
    cell row[DTYPES] = {{0}};
    cli_progress(operation);
    for (; i < count && strcmp(templates[i].operation, operation) == 0; i++)
      run_template(c, &templates[i], !c->is_short, row);
    cli_progress(NULL);
    if (!c->as_json && c->verbose) {
      printf("%-29s", operation);
      print_cell(row);
    }
    for (int dtype = 0; c->as_json && dtype < DTYPES; dtype++)
      print_json_cell(&c->out, operation, (rms_dtype)(RMS_F32 + dtype), &row[dtype]);
  }
}

/* Returns CLI_BAD, reported, for a problem that cannot be run here: too big, or not offered by the device. */
static int check_problem(check *c, verify_problem problem) {
  int chosen = problem.isa[0] != '\0' || c->isas[0][0] == '\0';
  for (int i = 0; i < (chosen ? 1 : c->isa_count); i++) {
    cell one = {0};
    char text[VERIFY_TEXT_MAX];
    if (!chosen) strcpy(problem.isa, c->isas[i]);
    verify_problem_print(&problem, text, sizeof text);
    verify_result result = run_one(c, &problem, &one);
    if (result.refused && !c->as_json) return cli_error(text, "%s", result.message);
    if (result.refused && one.problems == 0) keep_failure(c, &problem, result.message);
    if (c->as_json)
      print_json_cell(&c->out, text, problem.spec.dtype, &one);
    else if (!c->quiet)
      printf("%-4s %s  %.3g ulp, %.3g of the bound (worst: %s)\n", result.failed || result.refused ? "MISS" : "ok",
             text, result.ulp, result.share,
             result.worst.role < VERIFY_ROLES ? verify_role_name(result.worst.role) : "nothing");
  }
  return CLI_OK;
}

/* All problems are read before the first one runs. */
static int check_named(check *c, int count, char **texts) {
  int code = CLI_OK;
  verify_problem *problems = calloc((size_t)count, sizeof *problems);
  if (!problems) return cli_error(NULL, "out of memory");
  for (int i = 0; i < count; i++) {
    char message[512];
    int bad = verify_problem_parse(texts[i], &problems[i], message, sizeof message);
    if (!bad && problems[i].isa[0] && !rms_isa_usable(problems[i].isa)) {
      snprintf(message, sizeof message, "'%s' is not an instruction set that this CPU can run", problems[i].isa);
      bad = 1;
    }
    if (bad) {
      free(problems);
      return cli_error(texts[i], "%s", message);
    }
  }
  if (c->as_json) print_json_start(c);
  for (int i = 0; i < count && code == CLI_OK; i++)
    code = check_problem(c, problems[i]);
  free(problems);
  return code;
}

/* c: zeros, but for the options */
static int run_check(check *c, int argc, char **argv) {
  const char *isa = NULL, *device = "cpu";
  const cli_option options[] = {
      {"short", 0, CLI_FLAG, &c->is_short, NULL, "fewer sizes: about a second"},
      {"json", 0, CLI_FLAG, &c->as_json, NULL, "the results as one JSON object"},
      {"isa", 0, CLI_STRING, &isa, "NAME", "this instruction set only (default: RMSNORM_ISA, or every usable one)"},
      {"device", 0, CLI_STRING, &device, "cpu|cuda", "where to run (default: cpu)"},
      {"verbose", 'v', CLI_FLAG, &c->verbose, NULL, "a table of the largest errors: operations and data types"},
      {"quiet", 'q', CLI_FLAG, &c->quiet, NULL, "print misses only"},
      {NULL, 0, CLI_FLAG, NULL, NULL, NULL}};
  const cli_command command = {
      .name = "check",
      .usage = "[PROBLEM...] [OPTION...]",
      .summary =
          "Runs operations on this machine and compares every output element with a double-double oracle and the\n"
          "error bound derived for it. Without a PROBLEM: every operation, data type and many sizes.",
      .examples = "  rmsnorm check --short\n"
                  "  rmsnorm check --verbose\n"
                  "  rmsnorm check rms:bwd:bf16:512x4096:bias layer:fwd:f32:7x1000:data=hugemean\n"
                  "  rmsnorm check --isa scalar --json > check.json\n",
      .options = options,
      .notes =
          "A PROBLEM is KIND:DIR:DTYPE:SHAPE[:OPTION...], e.g. rms:fwd:f32:8192x4096:w=f32:bias\n"
          "  KIND rms, prms, layer   DIR fwd, bwd   DTYPE f32, f64, bf16, f16   SHAPE ROWSxCOLS, OUTERxINNERxCOLS\n"
          "  options: w=none|same|f32 bias off=V gain=weight eps=V epsout epsclamp round=before\n"
          "           steps=terms|rstd|all groups=G k=K p=P idx perhead wstride=N y=f32|bf16|f16\n"
          "           gate=after|before act=silu|sigmoid\n"
          "           q=i8|e4m3|e5m2|q8_0 qblock=row|tensor|N qleast=V\n"
          "           res[=same|f32] dres recompute of=y+stats acc[=dx+dw+db] out=y+sum+stats+q|dx+ds+dw+db+dz "
          "grad=same|f32\n"
          "           channels=first pad=N inplace split seed=N isa=NAME threads=N\n"
          "           data=NAME dydata=NAME: the inputs and dy, each of\n"
          "           normal lognormal cauchy hugemean small tiny huge max least steps exact zerorows nanrows\n"
          "           mixed faintrows\n"
          "Errors are told in ulp of the output's type at the size of the terms summed, and as a share of the bound.\n"
          "Exit codes: 0 all within their bounds, 1 a miss, 2 bad usage.\n"};
  int code = cli_parse(&command, &argc, argv);
  if (code >= 0) return code;
  if (c->quiet && c->verbose) return cli_error(NULL, "--quiet and --verbose exclude each other");
  code = choose_device(c, device, isa);
  if (code >= 0) return code;
  if (argc > 0)
    code = check_named(c, argc, argv);
  else
    check_suite(c);
  if (argc > 0 && code != CLI_OK) return code;
  if (c->as_json)
    print_json_end(c);
  else
    print_failures(c);
  if (!c->as_json && !c->quiet) print_verdict(c);
  return c->failure_count ? CLI_FAILED : CLI_OK;
}

int cmd_check(int argc, char **argv) {
  check *c = calloc(1, sizeof *c);
  if (!c) return cli_error(NULL, "out of memory");
  int code = run_check(c, argc, argv);
  free(c);
  return code;
}
