/* SPDX-License-Identifier: MIT
 *
 * The problems that `rmsnorm check` runs when none is named: every operation, option and input distribution, for every
 * data type, at sizes around each vector length. */
#ifndef RMSNORM_VERIFY_SUITE_H
#define RMSNORM_VERIFY_SUITE_H

#include "problem.h"

/* What is repeated for every data type and size. */
typedef struct verify_template {
  const char *operation; /* the line of the table it counts for; templates of one operation stand together */
  const char *text;      /* %s: data type; %s: columns */
  int64_t multiple;      /* the columns are multiplied by this (groups); 0: the text has its own */
  unsigned types;        /* bit per rms_dtype */
} verify_template;

const verify_template *verify_suite_templates(int *count);

/* Column counts; the short list is for a run of seconds. */
const int64_t *verify_suite_sizes(int full, int *count);

/* One problem of the suite. Returns 0 if the template does not cover the type, or has columns of its own and the size
 * is not 1. Exits on a template that does not parse: that is a defect of the suite. */
int verify_suite_problem(const verify_template *t, rms_dtype dtype, int64_t cols, verify_problem *problem);

#endif
