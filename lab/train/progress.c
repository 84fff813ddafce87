/* SPDX-License-Identifier: MIT */
#include "train/progress.h"

#include <stdio.h>
#include <unistd.h>

static void count_steps(const contest *c, int64_t *done, int64_t *all) {
  *done = *all = 0;
  for (int i = 0; i < c->count; i++) {
    const trainer *t = c->trainers[i];
    *done += t->step;
    *all += t->diverged >= 0 ? t->step : t->config.steps;
  }
}

progress progress_start(const contest *c, const char *title, int quiet) {
  progress p = {.title = title, .quiet = quiet, .start = lab_seconds()};
  int64_t all;
  count_steps(c, &p.first, &all);
  p.terminal = isatty(STDERR_FILENO);
  p.seconds_between = p.terminal ? 0.2 : 15; /* a log needs few lines */
  return p;
}

/* The loss over the last steps is steadier than the last one. */
static double recent_loss(const trainer *t) {
  double sum = 0;
  int64_t count = t->step < 10 ? t->step : 10;
  for (int64_t i = t->step - count; i < t->step; i++)
    sum += t->curve[i].loss;
  return count == 0 ? 0 : sum / (double)count;
}

static void format_left(double seconds, char *text, size_t size) {
  long long s = (long long)seconds;
  if (s < 3600)
    snprintf(text, size, "%lld:%02lld", s / 60, s % 60);
  else if (s < 2 * 86400)
    snprintf(text, size, "%lld h %02lld min", s / 3600, s / 60 % 60);
  else
    snprintf(text, size, "%lld days", (s + 43200) / 86400);
}

/* The first step is shown as soon as it is done: at the paper's sizes it takes a while. */
void progress_show(progress *p, const contest *c, int last) {
  double now = lab_seconds();
  if (p->quiet || (!last && p->shown > 0 && now - p->shown < p->seconds_between)) return;
  p->shown = now;
  int64_t done, all;
  count_steps(c, &done, &all);
  if (!p->terminal && done == p->last_done) return;
  p->last_done = done;
  double speed = (double)(done - p->first) / (now - p->start + 1e-9);
  char line[256], left[32] = "0:00";
  if (speed > 0) format_left((double)(all - done) / speed, left, sizeof left);
  int n = snprintf(line, sizeof line, "%s: step %lld/%lld, loss", p->title, (long long)c->trainers[0]->step,
                   (long long)c->trainers[0]->config.steps);
  for (int i = 0; i < c->count && n > 0 && n < (int)sizeof line; i++) {
    const trainer *t = c->trainers[i];
    if (t->step == 0) continue;
    if (t->diverged >= 0)
      n += snprintf(line + n, sizeof line - (size_t)n, " %s diverged", c->labels[i]);
    else
      n += snprintf(line + n, sizeof line - (size_t)n, " %s %.3f", c->labels[i], recent_loss(t));
  }
  if (n > 0 && n < (int)sizeof line)
    snprintf(line + n, sizeof line - (size_t)n, ", %.3g steps/s, %s left", speed, left);
  if (p->terminal)
    fprintf(stderr, "\r\033[K%s%s", line, last ? "\n" : "");
  else
    fprintf(stderr, "%s\n", line);
}
