/* SPDX-License-Identifier: MIT */
#include "models/layers.h"

#include <math.h>
#include <stdio.h>

static const char *joined(char *buffer, size_t size, const char *name, const char *part) {
  snprintf(buffer, size, "%.40s.%.20s", name, part);
  return buffer;
}

static double glorot_limit(int64_t in, int64_t out) {
  return sqrt(6.0 / (double)(in + out));
}

tensor *net_param(net *n, int64_t id) {
  return id < 0 ? NULL : tape_param(n->t, n->p, n->shard, id);
}

linear_layer declare_linear(params *p, const char *name, int64_t in, int64_t out) {
  char full[64];
  linear_layer layer;
  layer.w = params_uniform(p, joined(full, sizeof full, name, "weight"), in, out, glorot_limit(in, out));
  layer.b = params_constant(p, joined(full, sizeof full, name, "bias"), 1, out, 0, PARAM_TRAINED);
  return layer;
}

tensor *linear(net *n, const linear_layer *layer, tensor *x, activation act) {
  return op_linear(n->t, x, net_param(n, layer->w), net_param(n, layer->b), act);
}

norm_layer declare_norm(params *p, const char *name, const norm_config *config, int64_t cols) {
  char full[64];
  norm_layer layer = {-1, -1};
  if (config->kind == NORM_NONE) return layer;
  layer.gain = params_constant(p, joined(full, sizeof full, name, "gain"), 1, cols, 1, PARAM_TRAINED);
  if (config->kind == NORM_LAYER)
    layer.bias = params_constant(p, joined(full, sizeof full, name, "bias"), 1, cols, 0, PARAM_TRAINED);
  return layer;
}

tensor *norm(net *n, const norm_layer *layer, tensor *x) {
  return op_norm(n->t, n->norm, x, net_param(n, layer->gain), net_param(n, layer->bias), 0);
}

tensor *add_norm(net *n, const norm_layer *layer, tensor *x, tensor *f, tensor **sum) {
  return op_add_norm(n->t, n->norm, x, f, net_param(n, layer->gain), net_param(n, layer->bias), sum);
}

projection declare_projection(params *p, const char *name, const norm_config *config, int64_t in, int64_t out,
                              int64_t split, int with_bias) {
  char full[64];
  projection layer = {.gain = -1, .bias = -1, .split = split};
  layer.w = params_uniform(p, joined(full, sizeof full, name, "weight"), in, out, glorot_limit(in, out));
  if (config->kind != NORM_NONE)
    layer.gain = params_constant(p, joined(full, sizeof full, name, "gain"), 1, out, 1, PARAM_TRAINED);
  if (with_bias) layer.bias = params_constant(p, joined(full, sizeof full, name, "bias"), 1, out, 0, PARAM_TRAINED);
  return layer;
}

tensor *project(net *n, const projection *layer, tensor *x) {
  return op_project(n->t, n->norm, x, net_param(n, layer->w), net_param(n, layer->gain), net_param(n, layer->bias),
                    layer->split);
}

sequence make_sequence(tape *t, const int32_t *lengths, int64_t batch, int64_t steps) {
  unsigned char *active = tape_keep(t, (size_t)(batch * steps));
  int32_t *kept = tape_keep(t, (size_t)batch * sizeof *kept);
  for (int64_t b = 0; b < batch; b++)
    kept[b] = lengths[b];
  for (int64_t i = 0; i < steps; i++)
    for (int64_t b = 0; b < batch; b++)
      active[i * batch + b] = i < lengths[b];
  return (sequence){batch, steps, kept, active};
}

gru_layer declare_gru(params *p, const char *name, const norm_config *config, int64_t in, int64_t width) {
  char full[64];
  gru_layer layer = {.width = width};
  layer.input = declare_projection(p, joined(full, sizeof full, name, "input"), config, in, 3 * width, 2 * width, 1);
  layer.state = declare_projection(p, joined(full, sizeof full, name, "state"), config, width, 3 * width, 2 * width, 0);
  return layer;
}

void gru_step(net *n, const gru_layer *layer, tensor *x, tensor *h, const unsigned char *active, tensor *out) {
  op_gru(n->t, x, project(n, &layer->state, h), h, active, out);
}

void gru_run(net *n, const gru_layer *layer, tensor *x, const sequence *s, direction d, tensor *out) {
  tensor *projected = project(n, &layer->input, x);
  tensor *h = tape_zeros(n->t, s->batch, layer->width);
  for (int64_t i = 0; i < s->steps; i++) {
    int64_t row = (d == FORWARD ? i : s->steps - 1 - i) * s->batch;
    tensor *next = tape_view(n->t, out, row, s->batch, 0, layer->width);
    tensor *step = tape_view(n->t, projected, row, s->batch, 0, 3 * layer->width);
    gru_step(n, layer, step, h, s->active + row, next);
    h = next;
  }
}

lstm_layer declare_lstm(params *p, const char *name, const norm_config *config, int64_t in, int64_t width) {
  char full[64];
  lstm_layer layer = {.width = width};
  layer.input = declare_projection(p, joined(full, sizeof full, name, "input"), config, in, 4 * width, 0, 1);
  layer.state = declare_projection(p, joined(full, sizeof full, name, "state"), config, width, 4 * width, 0, 0);
  layer.cell = declare_norm(p, joined(full, sizeof full, name, "cell"), config, width);
  return layer;
}

void lstm_run(net *n, const lstm_layer *layer, tensor *x, const sequence *s, direction d, tensor *out) {
  tensor *projected = project(n, &layer->input, x);
  tensor *h = tape_zeros(n->t, s->batch, layer->width), *cell = tape_zeros(n->t, s->batch, layer->width);
  for (int64_t i = 0; i < s->steps; i++) {
    int64_t row = (d == FORWARD ? i : s->steps - 1 - i) * s->batch;
    tensor *next = tape_view(n->t, out, row, s->batch, 0, layer->width);
    tensor *step = tape_view(n->t, projected, row, s->batch, 0, 4 * layer->width);
    lstm_cell c = op_lstm_cell(n->t, step, project(n, &layer->state, h), cell, s->active + row);
    op_lstm_state(n->t, c.output_gate, norm(n, &layer->cell, c.cell), h, s->active + row, next);
    h = next;
    cell = c.cell;
  }
}

tensor *final_state(net *n, tensor *out, const sequence *s, direction d) {
  return tape_view(n->t, out, d == FORWARD ? (s->steps - 1) * s->batch : 0, s->batch, 0, out->cols);
}
