/* SPDX-License-Identifier: MIT */
#include "train/contest.h"

#include "train/progress.h"
#include "train/stop.h"

static int take_turn(contest *c, int index, int64_t every, checkpoint_fn checkpoint, void *arg) {
  trainer *t = c->trainers[index];
  if (trainer_done(t) || stop_requested()) return 0;
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
  progress p = progress_start(c, title, quiet);
  int result = 0;
  for (int round = 0; result == 0 && !all_done(c) && !stop_signal(); round++) {
    for (int i = 0; result == 0 && i < c->count; i++) {
      result = take_turn(c, (round + i) % c->count, every, checkpoint, arg); /* the order rotates */
      progress_show(&p, c, 0);
    }
  }
  progress_show(&p, c, 1);
  if (result < 0) return -1;
  return all_done(c) ? 0 : 1;
}
