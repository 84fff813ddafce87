/* SPDX-License-Identifier: MIT
 *
 * Stopping a run between two steps on Ctrl-C or SIGTERM.
 */
#ifndef LAB_STOP_H
#define LAB_STOP_H

/* Ctrl-C (SIGINT) or SIGTERM is noted; a second one ends the program at once. So is SIGUSR1 in a job of several
 * processes: mpirun passes it on, and kills the job soon after the other two. */
void stop_on_interrupt(void);
/* Together (base/cluster.h): the signal that came to any process, or 0. */
int stop_requested(void);
/* What stop_requested returned last. */
int stop_signal(void);
/* "Ctrl-C", "SIGTERM" or "SIGUSR1" */
const char *stop_reason(void);

#endif
