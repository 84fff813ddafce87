/* SPDX-License-Identifier: MIT
 *
 * How rmsnorm_openmp.h and rmsnorm_openmp_loaded.h share the tasks of a call among a team of threads. Not for programs
 * to include.
 *
 * Each thread has the same range of tasks in every call of the same size, whose data its own cache may still hold, and
 * helps the others when it has done its own. */
#ifndef RMSNORM_OPENMP_TEAM_H
#define RMSNORM_OPENMP_TEAM_H

#include "rmsnorm.h"

enum { RMS_TEAM_SEATS_ = 64, RMS_TEAM_APART_ = 128 - 2 * sizeof(int64_t) };

typedef struct rms_team_seat_ {
  int64_t next, last;          /* the first task that nobody has taken yet; one past the last */
  char apart[RMS_TEAM_APART_]; /* seats in cache lines of their own                           */
} rms_team_seat_;

typedef struct rms_team_ {
  void (*task)(void *arg, int64_t i);
  void *arg;
  int64_t tasks;
  int seats;
  rms_team_seat_ seat[RMS_TEAM_SEATS_];
} rms_team_;

/* threads: how many are expected; any other number is right too. */
static inline void rms_team_begin_(rms_team_ *team, int threads, int64_t tasks, void (*task)(void *arg, int64_t i),
                                   void *arg) {
  const int64_t seats = threads < 1 ? 1 : threads < RMS_TEAM_SEATS_ ? threads : RMS_TEAM_SEATS_;
  const int64_t each = tasks / seats, more = tasks % seats; /* the first `more` seats have one more */
  int64_t i;
  team->task = task;
  team->arg = arg;
  team->tasks = tasks;
  team->seats = (int)seats;
  for (i = 0; i < seats; i++) {
    team->seat[i].next = each * i + (i < more ? i : more);
    team->seat[i].last = team->seat[i].next + each + (i < more);
  }
}

static inline void rms_team_take_(rms_team_ *team, rms_team_seat_ *of) {
  while (__atomic_load_n(&of->next, __ATOMIC_RELAXED) < of->last) {
    const int64_t i = __atomic_fetch_add(&of->next, 1, __ATOMIC_RELAXED);
    if (i < of->last) team->task(team->arg, i);
  }
}

/* The part of thread `own` of `threads`. Where every thread has at most one task, all come and there is none to help.
 */
static inline void rms_team_run_(rms_team_ *team, int own, int threads) {
  const int first = own % team->seats, all = team->tasks > team->seats || threads < team->seats;
  int i, at = first;
  for (i = 0; i < (all ? team->seats : 1); i++) {
    rms_team_take_(team, &team->seat[at]);
    at = at + 1 < team->seats ? at + 1 : 0;
  }
}

#endif
