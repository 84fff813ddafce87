/* SPDX-License-Identifier: MIT
 *
 * Stopping between two steps.
 */
#ifndef LAB_STOP_H
#define LAB_STOP_H

/* Ctrl-C (SIGINT) or SIGTERM sets a flag; a second one ends the program at once. */
void stop_on_interrupt(void);
int stop_requested(void);

#endif
