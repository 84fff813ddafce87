/* SPDX-License-Identifier: MIT
 *
 * Turns between the runs of a contest, Ctrl-C, and the line of progress.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  static const char text[] = "\nstopping after this step; a second Ctrl-C ends at once\n";
  interrupted = 1;
  signal(signal_number, SIG_DFL);
  ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  (void)written; /* nothing can be done without a stderr */
}

void stop_on_interrupt(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  interrupted = 0;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

int stop_requested(void) {
  return interrupted;
}

/* ---- progress ---- */

typedef struct progress {
  const char *title;
  int quiet, terminal;
  double start, shown; /* when it began, when it was last shown */
  double seconds_between;
  int64_t last_done; /* steps done when it was last shown */
} progress;

static progress progress_start(const char *title, int quiet) {
  progress p = {.title = title, .quiet = quiet, .start = lab_seconds()};
  p.terminal = isatty(STDERR_FILENO);
  p.seconds_between = p.terminal ? 0.2 : 15; /* a log needs few lines */
  return p;
}

static void count_steps(const contest *c, int64_t *done, int64_t *all) {
  *done = *all = 0;
  for (int i = 0; i < c->count; i++) {
    const trainer *t = c->trainers[i];
    *done += t->step;
    *all += t->diverged >= 0 ? t->step : t->config.steps;
  }
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
static void progress_show(progress *p, const contest *c, int last) {
  double now = lab_seconds();
  if (p->quiet || (!last && p->shown > 0 && now - p->shown < p->seconds_between)) return;
  p->shown = now;
  int64_t done, all;
  count_steps(c, &done, &all);
  if (!p->terminal && done == p->last_done) return;
  p->last_done = done;
  double speed = (double)(done - c->started) / (now - p->start + 1e-9);
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

/* ---- the contest ---- */

static int take_turn(contest *c, int index, int64_t every, checkpoint_fn checkpoint, void *arg) {
  trainer *t = c->trainers[index];
  if (trainer_done(t) || interrupted) return 0;
  trainer_step(t);
  int due = checkpoint != NULL && every > 0 && t->diverged < 0 && t->step % every == 0;
  return due ? checkpoint(arg, index) : 0;
}

static int all_done(const contest *c) {
  for (int i = 0; i < c->count; i++)
    if (!trainer_done(c->trainers[i])) return 0;
  return 1;
}

int contest_run(contest *c, const char *title, int quiet, int64_t every, checkpoint_fn checkpoint, void *arg) {
  progress p = progress_start(title, quiet);
  int64_t all;
  count_steps(c, &c->started, &all);
  int result = 0;
  for (int round = 0; result == 0 && !all_done(c) && !interrupted; round++) {
    for (int i = 0; result == 0 && i < c->count; i++) {
      result = take_turn(c, (round + i) % c->count, every, checkpoint, arg); /* nobody always follows the same one */
      progress_show(&p, c, 0);
    }
  }
  progress_show(&p, c, 1);
  return result < 0 || !all_done(c) ? -1 : 0;
}
