/* SPDX-License-Identifier: MIT
 *
 * The operations. Each returns its result; see tape.h for what the tape does with it. "Dense" arguments
 * have ld = cols. */
#ifndef LAB_OPS_H
#define LAB_OPS_H

#include "tape/tape.h"

/* ---- Basic (tape/basic.c) ---- */

typedef enum activation { ACT_NONE = 0, ACT_RELU = 1, ACT_TANH = 2 } activation;

/* act(x w + b): x rows x in (a window is fine), w in x out, b 1 x out or NULL. */
tensor *op_linear(tape *t, tensor *x, tensor *w, tensor *b, activation act);
/* x w^T: w is out x in; the output layer that shares the embedding. Its gradient takes the place of its values, which
 * suits op_cross_entropy and nothing else. */
tensor *op_logits(tape *t, tensor *x, tensor *w);
/* Rows of a table, times scale. */
tensor *op_embed(tape *t, tensor *table, const int32_t *ids, int64_t count, real scale);
/* x + the rows of `table` (length x cols, a constant) over and over: positions of batch-major sequences. */
tensor *op_add_positions(tape *t, tensor *x, const real *table, int64_t length);
tensor *op_add(tape *t, tensor *a, tensor *b); /* dense, same size */
tensor *op_tanh(tape *t, tensor *x);           /* dense */
/* The rows of all parts, one after the other; the parts are dense and alike. */
tensor *op_stack_rows(tape *t, tensor **parts, int64_t count);
/* a's columns, then b's. */
tensor *op_concat(tape *t, tensor *a, tensor *b);
/* Each element is dropped with this probability and the others scaled up; x itself when not training. Dense. */
tensor *op_dropout(tape *t, tensor *x, double probability);
/* Adds normal noise to a dense constant; nothing when not training. */
void add_noise(tape *t, tensor *x, double deviation);

/* y += x, y += scale * x */
void add_to(real *restrict y, const real *restrict x, int64_t n);
void add_scaled(real *restrict y, const real *restrict x, real scale, int64_t n);

/* ---- Losses (tape/loss.c): 1 x 1 results ---- */

/* Sum over rows with target >= 0 of -log softmax(logits)[target], label smoothing mixed in, times scale. Dense;
 * the logits are overwritten and must have no other use. */
tensor *op_cross_entropy(tape *t, tensor *logits, const int32_t *targets, double smoothing, double scale);
/* log softmax of dense rows, in place; no gradient. */
void log_softmax_rows(real *x, int64_t rows, int64_t cols);

/* Order-embedding loss of Vendrov et al.: rows i of a and b belong together, error(a, b) = |max(0, b - a)|^2; a pair
 * must be better than each wrong pairing by the margin. Dense, times scale. */
tensor *op_order_loss(tape *t, tensor *a, tensor *b, double margin, double scale);
/* error(a_i, b_j) for all i, j: rows_a x rows_b; no gradient. */
void order_errors(const real *a, int64_t rows_a, const real *b, int64_t rows_b, int64_t cols, real *errors);
/* |x_row| / |x_row|_2; dense. The embeddings of the order experiment are non-negative and of unit length. */
tensor *op_unit_abs(tape *t, tensor *x);

/* ---- Normalization (tape/norm.c, tape/norm_textbook.c, tape/channel_norm.c) ---- */

typedef enum norm_kind { NORM_NONE = 0, NORM_LAYER, NORM_RMS, NORM_PRMS, NORM_L2, NORM_BATCH, NORM_PRMS_LOCAL, NORM_KINDS } norm_kind;
typedef enum norm_engine { ENGINE_LIBRARY = 0, ENGINE_TEXTBOOK = 1 } norm_engine;

typedef struct norm_config {
  norm_kind kind;
  norm_engine engine;
  double p;  /* NORM_PRMS: share of the row that enters the statistic; NORM_PRMS_LOCAL: share of each shard of it */
  int ranks; /* NORM_PRMS_LOCAL: shards of the columns, each with a statistic of its own; library engine only */
  double eps;
  int spread; /* NORM_PRMS: 0: the first elements, as in the paper; 1: elements spread evenly over the row */
} norm_config;

const char *norm_name(norm_kind kind);

/* norm(x) * gain + bias, where columns [0, split) and [split, cols) are normalised each on their own; split = 0: the
 * whole row. gain and bias are 1 x cols or NULL. NORM_NONE: x + bias. x may be a window. */
tensor *op_norm(tape *t, const norm_config *config, tensor *x, tensor *gain, tensor *bias, int64_t split);
/* norm(x w) * gain + bias. */
tensor *op_project(tape *t, const norm_config *config, tensor *x, tensor *w, tensor *gain, tensor *bias, int64_t split);
/* s = x + f and y = norm(s) * gain + bias: the residual sum and its norm in one. *sum is s. Dense. The three share one
 * gradient: f must have no other use, and all other uses of x must have come before f. */
tensor *op_add_norm(tape *t, const norm_config *config, tensor *x, tensor *f, tensor *gain, tensor *bias, tensor **sum);

/* ---- Attention (tape/attention.c) ---- */

/* Multi-head attention over batch-major sequences: q has batch*q_length rows, k and v batch*k_length rows of
 * heads*head columns (windows are fine). Keys at and beyond k_lengths[b] are not seen (NULL: all are); with causal
 * nothing to the right is. */
typedef struct attention_shape {
  int64_t batch, q_length, k_length, heads;
  const int32_t *k_lengths;
  int causal;
} attention_shape;
tensor *op_attention(tape *t, const attention_shape *shape, tensor *q, tensor *k, tensor *v);

/* Bahdanau's attention over time-major sequences: weights = softmax over t of score . tanh(keys[t,b] + query[b]);
 * the result is the weighted sum of values, batch rows. `score` is 1 x width. */
tensor *op_additive_attention(tape *t, tensor *query, tensor *keys, tensor *values, tensor *score,
                              const int32_t *lengths);
/* Mean over the first lengths[b] steps of time-major x (steps*batch rows). */
tensor *op_mean_steps(tape *t, tensor *x, int64_t batch, const int32_t *lengths);

/* ---- Recurrent cells (tape/recurrent.c): one step; rows at and beyond their length keep their state ---- */

/* x and u: batch x 3d, the input's and the state's projections of reset, update, candidate; h: batch x d.
 *   r = sigmoid(x_r + u_r), z = sigmoid(x_z + u_z), c = tanh(x_c + r*u_c), out = z*h + (1-z)*c
 * active[b] = 0 copies h. out is a window to be written. */
void op_gru(tape *t, tensor *x, tensor *u, tensor *h, const unsigned char *active, tensor *out);
/* x and u: batch x 4d projections of input, forget, output gate and candidate. Writes the cell; the state follows
 * from the (normalised) cell by op_lstm_state. */
typedef struct lstm_cell {
  tensor *cell, *output_gate;
} lstm_cell;
lstm_cell op_lstm_cell(tape *t, tensor *x, tensor *u, tensor *cell, const unsigned char *active);
/* out = output_gate * tanh(normed cell), or h where not active. */
void op_lstm_state(tape *t, tensor *output_gate, tensor *normed, tensor *h, const unsigned char *active, tensor *out);

/* ---- Images (tape/conv.c): a row is an image, channels x height x width ---- */

typedef struct image_shape {
  int64_t channels, height, width;
} image_shape;

/* size x size convolution (1 or 3), zero padding `pad`; w: outputs x (channels*size*size). */
tensor *op_conv(tape *t, tensor *x, image_shape *shape, tensor *w, int64_t size, int64_t pad);
tensor *op_max_pool(tape *t, tensor *x, image_shape *shape); /* 2 x 2; an odd last row or column is dropped */
/* Mean over each channel's pixels. */
tensor *op_channel_mean(tape *t, tensor *x, const image_shape *shape);
/* lrelu(norm(x)*gain + bias): statistics over height x width per image and channel (NORM_BATCH: per channel over the
 * shard's images; running holds mean and variance, 2 x channels); gain and bias 1 x channels. slope 1: no lrelu. x must
 * have no other use. */
tensor *op_channel_norm(tape *t, const norm_config *config, tensor *x, const image_shape *shape, tensor *gain,
                        tensor *bias, tensor *running, real slope);

#endif
