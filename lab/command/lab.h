/* SPDX-License-Identifier: MIT
 *
 * `rmsnorm lab`: the paper's experiments, as the command calls them.
 */
#ifndef LAB_LAB_H
#define LAB_LAB_H

/* argv[0] is "lab". Exit codes: 0 done, 1 an experiment's answer is no, 2 bad usage or bad input, 130 stopped by
 * Ctrl-C (what was done by then is in the report). */
int lab_main(int argc, char **argv);

#endif
