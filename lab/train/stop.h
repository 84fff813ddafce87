/* SPDX-License-Identifier: MIT
 *
 * Stopping a run between two steps on Ctrl-C or SIGTERM.
 */
#ifndef LAB_STOP_H
#define LAB_STOP_H

/* Ctrl-C (SIGINT) or SIGTERM is noted; a second one ends the program at once. */
void stop_on_interrupt(void);
/* The signal that came, or 0. */
int stop_requested(void);
/* "Ctrl-C" or "SIGTERM" */
const char *stop_reason(void);

#endif
