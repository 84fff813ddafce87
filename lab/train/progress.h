/* SPDX-License-Identifier: MIT
 *
 * The line of progress of the runs of a contest.
 */
#ifndef LAB_PROGRESS_H
#define LAB_PROGRESS_H

#include "train/contest.h"

typedef struct progress {
  const char *title;
  int quiet, terminal;
  double start, shown; /* when it began, when it was last shown */
  double seconds_between;
  int64_t first;     /* steps that were done before it began */
  int64_t last_done; /* steps done when it was last shown */
} progress;

progress progress_start(const contest *c, const char *title, int quiet);
/* At most a few times a second on a terminal, rarely in a log; the last line always. */
void progress_show(progress *p, const contest *c, int last);

#endif
