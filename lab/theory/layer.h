/* SPDX-License-Identifier: MIT
 *
 * One layer in double, y = norm(W z), for the measurements of invariance.c and rate.c.
 */
#ifndef LAB_THEORY_NET_H
#define LAB_THEORY_NET_H

#include "base/base.h"
#include "rmsnorm.h"

enum { NET_CASES = 16, NET_INPUTS = 32, NET_UNITS = 48 };

typedef enum net_norm { NET_BATCH, NET_WEIGHT, NET_LAYER, NET_RMS, NET_PRMS, NET_NONE, NET_NORMS } net_norm;

typedef struct net {
  double w[NET_UNITS][NET_INPUTS];
  double z[NET_CASES][NET_INPUTS];
} net;

typedef struct net_output {
  double y[NET_CASES][NET_UNITS];
} net_output;

typedef struct net_gradient {
  double w[NET_UNITS][NET_INPUTS], gain[NET_UNITS];
} net_gradient;

extern const char *const net_names[NET_NORMS];

/* Normal entries; the weights are off centre, so that no norm is given a mean of zero by chance. */
void net_fill(net *n, lab_rng *rng);

/* eps is 0: the paper's statements are exact without it. Gains are one. */
rms_status net_forward(const net *n, net_norm norm, net_output *out);

/* Gradients of sum(dy * y) for NET_LAYER, NET_RMS, NET_PRMS and NET_NONE. */
rms_status net_backward(const net *n, net_norm norm, const net_output *dy, net_gradient *out);

#endif
