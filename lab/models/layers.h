/* SPDX-License-Identifier: MIT
 *
 * Layers: parameters by id and the operations that use them. `declare_...` builds a layer, the others run
 * it. */
#ifndef LAB_LAYERS_H
#define LAB_LAYERS_H

#include "tape/ops.h"
#include "tape/params.h"

/* What a layer needs to run on one shard. */
typedef struct net {
  tape *t;
  const params *p;
  int shard;
  const norm_config *norm;
} net;

tensor *net_param(net *n, int64_t id); /* NULL for id -1 */

/* act(x w + b) */
typedef struct linear_layer {
  int64_t w, b;
} linear_layer;
linear_layer declare_linear(params *p, const char *name, int64_t in, int64_t out);
tensor *linear(net *n, const linear_layer *layer, tensor *x, activation act);

/* A norm of its own: LayerNorm has a gain and a bias, the others a gain; no norm has neither. */
typedef struct norm_layer {
  int64_t gain, bias;
} norm_layer;
norm_layer declare_norm(params *p, const char *name, const norm_config *norm, int64_t cols);
tensor *norm(net *n, const norm_layer *layer, tensor *x);
tensor *add_norm(net *n, const norm_layer *layer, tensor *x, tensor *f, tensor **sum);

/* The paper's general form: norm(x w) * gain + bias. The bias belongs to the neuron: it is there without a norm too. */
typedef struct projection {
  int64_t w, gain, bias;
  int64_t split; /* columns [0, split) have a statistic of their own; 0: one statistic */
} projection;
projection declare_projection(params *p, const char *name, const norm_config *norm, int64_t in, int64_t out,
                              int64_t split, int with_bias);
tensor *project(net *n, const projection *layer, tensor *x);

/* Sequences by time: row t*batch + b. active[t*batch + b] = 0 beyond a sequence's end. */
typedef struct sequence {
  int64_t batch, steps;
  const int32_t *lengths;
  const unsigned char *active;
} sequence;
sequence make_sequence(tape *t, const int32_t *lengths, int64_t batch, int64_t steps);

typedef enum direction { FORWARD = 1, BACKWARD = -1 } direction;

/* One statistic over the concatenated gates, one over the candidate, for the input's and the state's
 * projection each. */
typedef struct gru_layer {
  projection input, state;
  int64_t width;
} gru_layer;
gru_layer declare_gru(params *p, const char *name, const norm_config *norm, int64_t in, int64_t width);
/* One step; writes `out`. x is the input's projection. */
void gru_step(net *n, const gru_layer *layer, tensor *x, tensor *h, const unsigned char *active, tensor *out);
/* All steps from a zero state; `out` has steps*batch rows. The state after step t is in its rows. */
void gru_run(net *n, const gru_layer *layer, tensor *x, const sequence *s, direction d, tensor *out);

/* One statistic over all four gates of the input's and of the state's projection, one over the cell. */
typedef struct lstm_layer {
  projection input, state;
  norm_layer cell;
  int64_t width;
} lstm_layer;
lstm_layer declare_lstm(params *p, const char *name, const norm_config *norm, int64_t in, int64_t width);
void lstm_run(net *n, const lstm_layer *layer, tensor *x, const sequence *s, direction d, tensor *out);

/* Rows of time-major x at each sequence's last (FORWARD) or first (BACKWARD) step are states: x's state after the whole
 * sequence, batch rows. States stay put beyond the end, so it is the last or the first block of rows. */
tensor *final_state(net *n, tensor *out, const sequence *s, direction d);

#endif
