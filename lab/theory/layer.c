/* SPDX-License-Identifier: MIT */
#include "theory/layer.h"

#include <math.h>
#include <string.h>

const char *const net_names[NET_NORMS] = {"BatchNorm", "WeightNorm",      "LayerNorm",
                                          "RMSNorm",   "pRMSNorm 6.25 %", "no norm"};

void net_fill(net *n, lab_rng *rng) {
  for (int i = 0; i < NET_UNITS; i++)
    for (int j = 0; j < NET_INPUTS; j++)
      n->w[i][j] = 0.2 + lab_rng_normal(rng);
  for (int i = 0; i < NET_CASES; i++)
    for (int j = 0; j < NET_INPUTS; j++)
      n->z[i][j] = 0.3 + lab_rng_normal(rng);
}

static rms_spec spec_of(net_norm norm, int64_t cols) {
  rms_spec spec = {.cols = cols};
  spec.kind = norm == NET_LAYER || norm == NET_BATCH ? RMS_KIND_LAYER : RMS_KIND_RMS;
  if (norm == NET_PRMS) spec.partial = rms_partial_count(cols, 0.0625);
  return spec;
}

static rms_status normalise(net_norm norm, double *rows, int64_t count, int64_t cols) {
  rms_spec spec = spec_of(norm, cols);
  rms_forward_args args = {.outer = count, .x = {rows, RMS_F64}, .y = {.data = rows}};
  return rms_forward(&spec, &args, NULL);
}

static void multiply(const net *n, net_output *x) {
  for (int i = 0; i < NET_CASES; i++)
    for (int u = 0; u < NET_UNITS; u++) {
      double sum = 0;
      for (int j = 0; j < NET_INPUTS; j++)
        sum += n->w[u][j] * n->z[i][j];
      x->y[i][u] = sum;
    }
}

/* Each unit over the cases: LayerNorm of the transposed matrix. */
static rms_status batch_norm(net_output *x) {
  double turned[NET_UNITS][NET_CASES];
  for (int i = 0; i < NET_CASES; i++)
    for (int u = 0; u < NET_UNITS; u++)
      turned[u][i] = x->y[i][u];
  rms_status status = normalise(NET_BATCH, turned[0], NET_UNITS, NET_CASES);
  for (int i = 0; i < NET_CASES; i++)
    for (int u = 0; u < NET_UNITS; u++)
      x->y[i][u] = turned[u][i];
  return status;
}

/* w / |w| for each unit: RMSNorm of its weights, but for the constant factor sqrt(inputs), which the gain
 * would carry. */
static rms_status weight_norm(const net *n, net_output *out) {
  net normed = *n;
  rms_status status = normalise(NET_WEIGHT, normed.w[0], NET_UNITS, NET_INPUTS);
  multiply(&normed, out);
  return status;
}

rms_status net_forward(const net *n, net_norm norm, net_output *out) {
  if (norm == NET_WEIGHT) return weight_norm(n, out);
  multiply(n, out);
  if (norm == NET_NONE) return RMS_OK;
  if (norm == NET_BATCH) return batch_norm(out);
  return normalise(norm, out->y[0], NET_CASES, NET_UNITS);
}

/* dW = sum over cases of dx z^T. */
static void weight_gradient(const net *n, const net_output *dx, net_gradient *out) {
  for (int u = 0; u < NET_UNITS; u++)
    for (int j = 0; j < NET_INPUTS; j++) {
      double sum = 0;
      for (int i = 0; i < NET_CASES; i++)
        sum += dx->y[i][u] * n->z[i][j];
      out->w[u][j] = sum;
    }
}

rms_status net_backward(const net *n, net_norm norm, const net_output *dy, net_gradient *out) {
  memset(out, 0, sizeof *out);
  if (norm == NET_NONE) {
    weight_gradient(n, dy, out);
    return RMS_OK;
  }
  net_output x, dx;
  double gain[NET_UNITS];
  for (int u = 0; u < NET_UNITS; u++)
    gain[u] = 1;
  multiply(n, &x);
  rms_spec spec = spec_of(norm, NET_UNITS);
  _Alignas(64) unsigned char workspace[1 << 16];
  rms_backward_args args = {.outer = NET_CASES,
                            .dy = {.data = dy->y},
                            .x = {x.y, RMS_F64},
                            .weight = gain,
                            .dx = {.data = dx.y},
                            .dweight = out->gain,
                            .workspace = workspace,
                            .workspace_bytes = sizeof workspace};
  if (rms_backward_workspace(&spec, &args) > sizeof workspace) return RMS_E_WORKSPACE;
  rms_status status = rms_backward(&spec, &args, NULL);
  if (status == RMS_OK) weight_gradient(n, &dx, out);
  return status;
}
