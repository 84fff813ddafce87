/* SPDX-License-Identifier: MIT */
#include "command/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cluster.h"
#include "base/file.h"
#include "cli.h"
#include "command/experiment.h"
#include "machine.h"
#include "tape/tape.h"
#include "theory/theory.h"
#include "train/stop.h"

/* ---- where the report goes ---- */

static int holds_report(const char *folder) {
  char path[1024];
  snprintf(path, sizeof path, "%.900s/report.json", folder);
  return access(path, F_OK) == 0;
}

/* An earlier report is never overwritten: without --out the first free name of lab-out, lab-out-2, ... is used. The
 * folder is created and tested for writing before anything is trained. */
static int choose_folder(const lab_options *o, char *folder, size_t size, lab_error *error) {
  if (o->out != NULL) {
    snprintf(folder, size, "%s", o->out);
    if (strlen(o->out) >= size) return lab_fail(error, "--out: the path is too long");
    if (holds_report(folder) && !o->replace)
      return lab_fail(error, "--out: %s holds a report already; --replace replaces it", folder);
  } else {
    snprintf(folder, size, "lab-out");
    for (int i = 2; holds_report(folder); i++)
      snprintf(folder, size, "lab-out-%d", i);
  }
  char path[1024];
  lab_file file;
  if (lab_make_folder(folder, error) < 0) return -1;
  snprintf(path, sizeof path, "%.900s/.try", folder);
  if (lab_file_open(&file, path, error) < 0) return -1;
  int result = lab_file_close(&file, fputc('.', file.stream) != EOF, error);
  remove(path);
  return result;
}

/* ---- the tasks ---- */

static int run_task(lab_context *x, lab_error *error) {
  uint64_t seed = settings_seed(x->options);
  switch (x->options->task) {
  case TASK_INVARIANCE:
    return lab_theory_invariance(x->report, seed, stdout, error);
  case TASK_RATE:
    return lab_theory_rate(x->report, seed, stdout, error);
  case TASK_PSWEEP:
    return psweep_run(x, error);
  case TASK_INIT:
    return init_run(x, error);
  case TASK_SCALING:
    return scaling_run(x, error);
  case TASK_TRAIN:
  case TASKS:
    break;
  }
  return experiment_run(x, error);
}

static int write_report(const lab_report *report, const char *folder, lab_error *error) {
  if (report->run_count == 0 && report->section_count == 0) {
    rmdir(folder); /* only if it is empty */
    puts("stopped before there was anything to report");
    return 0;
  }
  if (report->run_count > 0) lab_report_print(report, stdout);
  fflush(stdout);
  if (lab_report_write(report, folder, error) < 0) return -1;
  printf("\nreport: %s/report.html\n", folder);
  return 0;
}

/* The exit code for a task's result. Positive results are STOPPED or, from the theory, the number of disagreements. */
static int exit_code(const lab_options *o, int result) {
  if (result <= 0) return result < 0 ? CLI_BAD : CLI_OK;
  return o->task == TASK_INVARIANCE || o->task == TASK_RATE ? CLI_FAILED : 128 + stop_signal();
}

/* The code of a process that ends because another one fails, which says why. It becomes CLI_OK: mpirun ends a job with
 * the first process that fails, and what the others have printed by then may be lost. */
enum { HEARD = -1 };

/* The error of a process that only heard of another's is empty. */
static int report_error(const lab_error *error) {
  if (error->text[0] == 0) return HEARD;
  if (cluster_rank() == 0) return cli_error(NULL, "%s", error->text);
  return cli_error(NULL, "process %d: %s", cluster_rank(), error->text);
}

static int run_and_report(lab_context *x, lab_error *error) {
  char folder[900];
  if (experiment_prepare(x, error) < 0) return report_error(error);
  int chosen = cluster_rank() == 0 ? choose_folder(x->options, folder, sizeof folder, error) : 0;
  if (cluster_agree(chosen, error) < 0) return report_error(error);
  if (!x->options->quiet) experiment_announce(x);
  stop_on_interrupt();
  int result = run_task(x, error), code = exit_code(x->options, result);
  if (result < 0) code = report_error(error);
  if (cluster_rank() == 0 && write_report(x->report, folder, error) < 0) code = report_error(error);
  return code;
}

/* One for each shard that this process has. */
static int thread_count(const lab_options *o) {
  int shards = (settings_shards(o) + cluster_size() - 1) / cluster_size();
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  if (o->threads != UNSET) return (int)o->threads;
  return cpus < shards ? (cpus > 0 ? (int)cpus : 1) : shards;
}

/* ---- several processes ---- */

/* All processes read the same command line: one of them says what is wrong with it. */
static int parse_quietly(lab_options *options, int argc, char **argv) {
  fflush(stderr);
  int before = dup(STDERR_FILENO);
  if (before < 0 || freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
    return CLI_BAD;
  int code = options_parse(options, argc, argv);
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  return code;
}

static int join_cluster(lab_options *o) {
  if (cluster_start() < 0) {
    if (cluster_expected_rank() > 0) return HEARD;
    return cli_error(NULL, "started as several processes, but built without MPI (RMSNORM_MPI=on)");
  }
  if (cluster_rank() > 0) o->quiet = 1;
  if (o->family_count == 0 || settings_shards(o) >= cluster_size()) return CLI_OK;
  if (cluster_rank() > 0) return HEARD;
  return cli_error("--shards", "%d shards of a batch are too few for %d processes", settings_shards(o), cluster_size());
}

static int run_lab(lab_options *options, int argc, char **words) {
  lab_report report = {0};
  lab_error error = {""};
  rms_pool *pool = NULL;
  int threads = thread_count(options);
  rms_status status = rms_pool_create(&pool, threads);
  if (cluster_most(status != RMS_OK)) {
    rms_pool_destroy(pool);
    return status == RMS_OK ? HEARD : cli_error("--threads", "%d: %s", threads, rms_status_string(status));
  }
  machine m;
  machine_read(&m);
  lab_report_environment(&report, m.cpu, blas_kernels(), argc, words, threads);
  report.processes = cluster_size();
  rms_executor executor = rms_pool_executor(pool);
  lab_context x = {.options = options, .executor = &executor, .report = &report};
  int code = run_and_report(&x, &error);
  experiment_free(&x);
  rms_pool_destroy(pool);
  lab_report_free(&report);
  return code;
}

int lab_main(int argc, char **argv) {
  lab_options options;
  char **words = malloc((size_t)argc * sizeof *words); /* the parser moves argv's */
  if (words == NULL) return cli_error(NULL, "out of memory");
  memcpy(words, argv, (size_t)argc * sizeof *words);
  int first = cluster_expected_rank() == 0;
  int code = first ? options_parse(&options, argc, argv) : parse_quietly(&options, argc, argv);
  const int parsed = code < 0;
  if (!parsed && !first) code = HEARD;
  if (parsed) {
    blas_match_processor(argc, words); /* may start the program again, so before it joins a cluster */
    code = join_cluster(&options);
    if (code == CLI_OK) code = run_lab(&options, argc, words);
    cluster_end();
  }
  free(words);
  return code == HEARD ? CLI_OK : code;
}
