/* SPDX-License-Identifier: MIT
 *
 * What a problem must read and write: its tensors of rows, and weights of which each row has its own. The copies that a
 * timing is compared with move the same. */
#ifndef RMSNORM_BENCH_TRAFFIC_H
#define RMSNORM_BENCH_TRAFFIC_H

#include "../../verify/case.h"

enum { TRAFFIC_MAX = 8 };

typedef struct traffic {
  verify_role reads[TRAFFIC_MAX], writes[TRAFFIC_MAX];
  int read_count, write_count;
  double bytes; /* gaps between rows, shared weights and statistics left out */
} traffic;

traffic traffic_of(const verify_case *c);

#endif
