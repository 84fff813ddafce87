/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command/experiment.h"
#include "command/lab.h"
#include "theory/theory.h"
#include "train/stop.h"

enum { BAD = 2, STOPPED = 130 };

static int complain(const lab_error *error) {
  fprintf(stderr, "rmsnorm: %s\n", error->text);
  return BAD;
}

/* The families to run: those named, or the default three. */
static int choose_families(const lab_options *o, lab_family *families, lab_error *error) {
  int count = 0;
  for (int i = 0; i < o->word_count; i++) {
    if (strcmp(o->words[i], "all") == 0) {
      for (int family = 0; family < FAMILIES; family++)
        families[family] = (lab_family)family;
      return FAMILIES;
    }
    int family = family_by_name(o->words[i]);
    if (family < 0) return lab_fail(error, "%s: unknown model; see rmsnorm lab --help", o->words[i]);
    families[count++] = (lab_family)family;
    if (count == FAMILIES) break;
  }
  if (count > 0) return count;
  families[0] = FAMILY_RNNSEARCH;
  families[1] = FAMILY_TRANSFORMER;
  families[2] = FAMILY_CONVPOOL;
  return 3;
}

static int run_families(lab_context *x, const lab_family *families, int count, lab_error *error) {
  int result = 0, done = 0;
  for (; result == 0 && done < count; done++)
    result = experiment_run(x, families[done], error);
  if (result == STOPPED)
    snprintf(x->report->note, sizeof x->report->note, "stopped by Ctrl-C in %s, model %d of %d: %lld runs in all",
             family_name(families[done - 1]), done, count, (long long)x->report->run_count);
  return result;
}

/* What the first word asks for; -1 with an error. */
static int run_subject(lab_context *x, lab_error *error) {
  const lab_options *o = x->options;
  const char *first = o->word_count > 0 ? o->words[0] : "";
  uint64_t seed = (uint64_t)(o->seed > 0 ? o->seed : 1);
  if (strcmp(first, "invariance") == 0) {
    int differ = lab_theory_invariance(x->report, seed, stdout, error);
    return differ > 0 ? 1 : differ;
  }
  if (strcmp(first, "rate") == 0) return lab_theory_rate(x->report, seed, stdout, error);
  if (strcmp(first, "psweep") == 0) return psweep_run(x, error);
  if (strcmp(first, "init") == 0) return init_run(x, error);
  lab_family families[FAMILIES];
  int count = choose_families(o, families, error);
  return count < 0 ? -1 : run_families(x, families, count, error);
}

static int finish(lab_report *report, const lab_options *o, lab_error *error) {
  const char *folder = o->out != NULL ? o->out : "lab-out";
  if (report->run_count == 0 && report->section_count == 0) {
    puts("stopped before the first step was done: no report");
    return 0;
  }
  if (report->run_count > 0) lab_report_print(report, stdout);
  if (lab_report_write(report, folder, error) < 0) return -1;
  printf("report: %s/report.html\n", folder);
  return 0;
}

static int64_t thread_count(const lab_options *o) {
  int64_t shards = o->shards > 0 ? o->shards : o->full ? 8 : 2;
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  if (o->threads > 0) return o->threads;
  return cpus < shards ? (cpus > 0 ? cpus : 1) : shards;
}

int lab_main(int argc, char **argv) {
  lab_options options;
  lab_error error = {""};
  if (options_parse(&options, argc, argv, &error) < 0) return complain(&error);
  if (options.help) {
    options_help();
    return 0;
  }
  int threads = (int)thread_count(&options);
  rms_pool *pool = NULL;
  rms_status status = rms_pool_create(&pool, threads);
  if (status != RMS_OK) {
    lab_fail(&error, "%d threads: %s", threads, rms_status_string(status));
    return complain(&error);
  }
  rms_executor executor = rms_pool_executor(pool);
  lab_report report = {0};
  lab_report_environment(&report, argc, argv, threads);
  stop_on_interrupt();
  lab_context x = {&options, &executor, &report};
  int result = run_subject(&x, &error);
  if (result >= 0 && finish(&report, &options, &error) < 0) result = -1;
  if (result < 0) result = complain(&error);
  lab_report_free(&report);
  rms_pool_destroy(pool);
  return result;
}
