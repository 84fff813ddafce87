/* SPDX-License-Identifier: MIT
 *
 * `lab init`: the paper's robustness experiment. Weights start around 0.2 instead of 0. In the paper LayerNorm then
 * becomes unstable, and RMSNorm less so.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "command/experiment.h"

enum { CENTRES = 2 };
static const double centres[CENTRES] = {0.0, 0.2};

enum { MOST = CENTRES * NORM_KINDS };

typedef struct starts {
  trainer *trainers[MOST];
  const char *labels[MOST];
  char names[MOST][24];
  contest contest;
} starts;

static int make_trainers(starts *s, lab_context *x, lab_family family, lab_error *error) {
  norm_kind norms[NORM_KINDS];
  int count = options_norms(x->options, "layer,rms,prms", norms, error);
  for (int c = 0; c < CENTRES; c++)
    for (int i = 0; i < count; i++) {
      int at = s->contest.count++;
      model_config config;
      train_config train;
      settings_of_family(x->options, family, &config, &train);
      config.norm.kind = norms[i];
      config.centre = centres[c];
      config.seed = settings_seed(x->options);
      s->trainers[at] = make_trainer(x, family, &config, &train);
      snprintf(s->names[at], sizeof s->names[at], "%s %.1f", norm_name(norms[i]), centres[c]);
      s->labels[at] = s->names[at];
    }
  return count < 0 ? -1 : 0;
}

/* The roughness of the loss: root mean square of its changes over the second half of the steps. */
static double roughness(const trainer *t) {
  double sum = 0;
  int64_t first = t->step / 2 + 1;
  for (int64_t i = first; i < t->step; i++)
    sum += pow(t->curve[i].loss - t->curve[i - 1].loss, 2);
  return t->step > first ? sqrt(sum / (double)(t->step - first)) : (double)NAN;
}

static void report_starts(starts *s, lab_report *report, const char *family) {
  static const char *const head[] = {"norm", "weights start around", "final loss", "roughness", "quality"};
  enum { COLUMNS = sizeof head / sizeof head[0] };
  char title[96];
  snprintf(title, sizeof title, "Robustness to the initialisation (%s, quality: %s)", family,
           s->trainers[0]->m->kind->metric);
  lab_section *section = lab_report_add_section(
      report, "init", title,
      "Every random weight is drawn around 0.2 instead of 0. The paper found LayerNorm very unstable then and RMSNorm "
      "more robust, both worse than usual. Roughness is the root mean square of the loss's changes from step to step "
      "over the second half of training.");
  lab_section_row(section, COLUMNS, head);
  printf("%-8s  %21s  %12s  %12s  %20s\n", head[0], head[1], head[2], head[3], s->trainers[0]->m->kind->metric);
  lab_section_axes(section, "step", "loss", 0, 0);
  for (int i = 0; i < s->contest.count; i++) {
    trainer *t = s->trainers[i];
    char cells[COLUMNS][32];
    const char *row[COLUMNS];
    snprintf(cells[0], sizeof cells[0], "%s", norm_name(t->m->config.norm.kind));
    snprintf(cells[1], sizeof cells[1], "%.1f", t->m->config.centre);
    snprintf(cells[2], sizeof cells[2], "%.3f", t->curve[t->step - 1].loss);
    snprintf(cells[3], sizeof cells[3], "%.3f", roughness(t));
    if (t->diverged >= 0)
      snprintf(cells[4], sizeof cells[4], "diverged at %lld", (long long)t->diverged);
    else
      snprintf(cells[4], sizeof cells[4], "%.2f", trainer_evaluate(t).quality);
    for (int j = 0; j < COLUMNS; j++)
      row[j] = cells[j];
    lab_section_row(section, COLUMNS, row);
    printf("%-8s  %21s  %12s  %12s  %20s\n", row[0], row[1], row[2], row[3], row[4]);
    double *steps = lab_alloc((size_t)t->step, sizeof *steps), *losses = lab_alloc((size_t)t->step, sizeof *losses);
    for (int64_t j = 0; j < t->step; j++) {
      steps[j] = t->curve[j].step;
      losses[j] = t->curve[j].loss;
    }
    lab_section_series(section, s->names[i], steps, losses, t->step, 1);
    free(steps);
    free(losses);
  }
}

int init_run(lab_context *x, lab_error *error) {
  lab_family family = x->options->families[0];
  starts s = {.contest = {.count = 0}};
  s.contest.trainers = s.trainers;
  s.contest.labels = s.labels;
  int result = make_trainers(&s, x, family, error);
  if (result == 0) result = contest_run(&s.contest, "init", x->options->quiet, 0, NULL, NULL);
  if (result == 0) report_starts(&s, x->report, family_name(family));
  for (int i = 0; i < s.contest.count; i++)
    trainer_free(s.trainers[i]);
  return result;
}
