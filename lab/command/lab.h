/* SPDX-License-Identifier: MIT
 *
 * `rmsnorm lab`: the paper's experiments, as the command calls them.
 */
#ifndef LAB_LAB_H
#define LAB_LAB_H

/* argv[0] is "lab". Exit codes: 0 done, 1 an experiment's answer is no, 2 bad usage, bad input or too little memory,
 * 130 stopped by Ctrl-C, 143 by SIGTERM (what was done by then is in the report). */
int lab_main(int argc, char **argv);

#endif
