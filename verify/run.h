/* SPDX-License-Identifier: MIT
 *
 * Runs one problem and compares every output element with the oracle. */
#ifndef RMSNORM_VERIFY_RUN_H
#define RMSNORM_VERIFY_RUN_H

#include "backend.h"

/* The element that came nearest to its bound, or crossed it. */
typedef struct verify_worst {
  verify_role role; /* VERIFY_ROLES: nothing was compared */
  int64_t outer, inner, column;
  double expected, got;
} verify_worst;

typedef struct verify_result {
  int failed;          /* an element outside its bound, a spoiled canary or input, or a status */
  int refused;         /* the backend cannot take this problem (an instruction set, a data type); nothing ran */
  rms_status status;   /* what the library returned */
  verify_role spoiled; /* VERIFY_ROLES: none */
  double ulp;       /* largest error in units in the last place of the output's type, at the size of the terms summed */
  double share;     /* largest error / bound; at most 1 unless failed */
  int64_t elements; /* compared */
  int64_t misses;   /* outside their bounds */
  verify_worst worst; /* where share is largest */
  char message[256];  /* one line when failed or refused */
} verify_result;

/* Returns 1 when all is well. */
int verify_run(const verify_problem *problem, const verify_backend *backend, verify_result *result);

#endif
