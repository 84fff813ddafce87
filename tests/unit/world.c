/* SPDX-License-Identifier: MIT */
#include "world.h"
#include "call.h"

#include <string.h>

static world the_world;

static void fill(double *data, uint64_t stream) {
  t_fill(data, RMS_F32, 2 * W_ELEMENTS, T_NORMAL, 1, stream, 0);
}

world *w_fresh(void) {
  world *w = &the_world;
  memset(w, 0, sizeof *w);
  fill(w->x, 1);
  fill(w->residual, 2);
  fill(w->weight, 3);
  fill(w->bias, 4);
  fill(w->dy, 5);
  fill(w->dresidual, 6);
  fill(w->gate, 7);
  w->spec.cols = W_COLS;
  w->spec.eps = 1e-5;
  w->spec.kind = RMS_KIND_LAYER;
  for (size_t i = 0; i < T_COUNT(w->stats); i++)
    w->stats[i] = (rms_stat){W_COLS, 0.25, 3.0};
  w->forward = (rms_forward_args){.outer = W_OUTER,
                                  .inner = W_INNER,
                                  .x = {.data = w->x, .dtype = RMS_F32},
                                  .residual = {.data = w->residual},
                                  .weight = w->weight,
                                  .bias = w->bias,
                                  .y = {.data = w->y},
                                  .residual_out = {.data = w->residual_out},
                                  .rstd = w->rstd,
                                  .mean = w->mean};
  w->backward = (rms_backward_args){.outer = W_OUTER,
                                    .inner = W_INNER,
                                    .dy = {.data = w->dy},
                                    .x = {.data = w->x, .dtype = RMS_F32},
                                    .dresidual = {.data = w->dresidual},
                                    .weight = w->weight,
                                    .dx = {.data = w->dx},
                                    .dresidual_out = {.data = w->dresidual_out},
                                    .dweight = w->dweight,
                                    .dbias = w->dbias,
                                    .workspace = w->workspace,
                                    .workspace_bytes = sizeof w->workspace};
  return w;
}

void w_add_gate(world *w, rms_gate_place place) {
  w->spec.gate_place = place;
  w->forward.gate.data = w->backward.gate.data = w->gate;
  w->backward.dgate.data = w->dgate;
  w->backward.bias = w->bias;
}

void w_set_types(world *w, rms_dtype data, rms_dtype weight, rms_dtype residual, rms_dtype grad) {
  rms_forward_args *f = &w->forward;
  rms_backward_args *b = &w->backward;
  f->x.dtype = f->y.dtype = b->dy.dtype = b->x.dtype = b->dx.dtype = (int32_t)data;
  f->gate.dtype = b->gate.dtype = b->dgate.dtype = (int32_t)data;
  f->residual.dtype = f->residual_out.dtype = b->dresidual.dtype = b->dresidual_out.dtype = (int32_t)residual;
  f->weight_dtype = f->bias_dtype = b->weight_dtype = b->bias_dtype = (int32_t)weight;
  b->dweight_dtype = b->dbias_dtype = (int32_t)grad;
}

static rms_status call(world *w, int function) {
  switch (function) {
  case W_FORWARD:
    return rms_forward(&w->spec, &w->forward, w->executor);
  case W_STATS:
    return rms_stats(&w->spec, &w->forward, w->stats, w->executor);
  case W_APPLY:
    return rms_apply(&w->spec, &w->forward, w->stats, w->executor);
  case W_BACKWARD:
    return rms_backward(&w->spec, &w->backward, w->executor);
  case W_BACKWARD_STATS:
    return rms_backward_stats(&w->spec, &w->backward, w->stats, w->sums, w->executor);
  default:
    return rms_backward_apply(&w->spec, &w->backward, w->stats, w->sums, w->executor);
  }
}

void w_expect(world *w, int functions, rms_status expected) {
  static const char *const names[] = {"forward", "stats", "apply", "backward", "backward_stats", "backward_apply"};
  static world before;
  for (int i = 0; i < 6; i++) {
    if (!(functions & 1 << i)) continue;
    t_context("rms_%s", names[i]);
    memcpy(&before, w, sizeof before);
    T_EQ_STATUS(expected, call(w, 1 << i));
    if (expected != RMS_OK) T_EQ_BYTES(&before, w, sizeof before);
  }
}
