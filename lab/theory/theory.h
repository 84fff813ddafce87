/* SPDX-License-Identifier: MIT
 *
 * The paper's theory, measured: each adds a section to the report and prints its table.
 */
#ifndef LAB_THEORY_H
#define LAB_THEORY_H

#include "report/report.h"

/* Table 1 of the paper: which norm is invariant to what. Every cell is found by experiment in double.
 * Returns the number of cells that differ from the paper (0 expected), -1 on an error. */
int lab_theory_invariance(lab_report *report, uint64_t seed, FILE *out, lab_error *error);

/* Implicit learning-rate adaptation: gradient norm against weight scale and input scale. Returns 0 if the fitted slopes
 * are -1 and 0 to within rounding, 1 if not, -1 on an error. */
int lab_theory_rate(lab_report *report, uint64_t seed, FILE *out, lab_error *error);

#endif
