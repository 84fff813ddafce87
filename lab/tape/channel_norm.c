/* SPDX-License-Identifier: MIT
 *
 * Normalization of images: a row of the library is one channel of one image. The gain and the bias are one number per
 * row, so they are applied together with the leaky ReLU in a pass of their own while the image is in the
 * cache. */
#include "tape/norm_internal.h"

#include <string.h>

#include "tape/vecmath.h"

typedef struct channel_op {
  norm_config config;
  tensor *x, *y, *gain, *bias, *running;
  int64_t planes, channels, pixels;
  real slope;
  rms_spec spec;
  real *rstd, *mean;
  textbook_norm *textbook; /* ENGINE_TEXTBOOK: on rows of pixels, without a gain  */
  tensor rows;             /* x as planes x pixels                                */
  tensor normed;           /* the result before gain and bias                     */
} channel_op;

LAB_VECTOR static void leaky_relu(real *y, int64_t n, real slope) {
  for (int64_t i = 0; i < n; i++)
    y[i] = y[i] > 0 ? y[i] : slope * y[i];
}

/* A positive slope keeps the sign, so y tells which side its argument was on. */
LAB_VECTOR static void leaky_relu_backward(real *dy, const real *y, int64_t n, real slope) {
  for (int64_t i = 0; i < n; i++)
    dy[i] = y[i] > 0 ? dy[i] : slope * dy[i];
}

LAB_VECTOR static void scale_plane(real *y, const real *x, real gain, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] * gain;
}

LAB_VECTOR static void shift_plane(real *y, const real *x, real bias, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] + bias;
}

LAB_VECTOR static real plane_sum(const real *x, int64_t n) {
  return vec_sum(x, n);
}

LAB_VECTOR static real plane_dot(const real *a, const real *b, int64_t n) {
  return vec_dot(a, b, n);
}

/* ---- the library, image by image: what it leaves in the cache is scaled, shifted and bent at once ---- */

/* L2-norm is RMSNorm with its gain divided by the square root of the width. */
static real gain_factor(const channel_op *op) {
  return op->config.kind == NORM_L2 ? 1 / REAL_SQRT((real)op->pixels) : 1;
}

LAB_VECTOR static void bend_plane(real *restrict y, const real *restrict h, real gain, real bias, real slope,
                                  int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    real a = h[i] * gain + bias;
    y[i] = a > 0 ? a : slope * a;
  }
}

/* dy becomes the gradient of h; adds to those of the gain and the bias. */
LAB_VECTOR static void bend_plane_backward(real *restrict dy, const real *restrict y, const real *restrict h, real gain,
                                           real slope, int64_t n, real *dgain, real *dbias) {
  for (int64_t i = 0; i < n; i++)
    dy[i] = y[i] > 0 ? dy[i] : slope * dy[i];
  *dbias += vec_sum(dy, n);
  *dgain += vec_dot(dy, h, n);
  for (int64_t i = 0; i < n; i++)
    dy[i] *= gain;
}

static void library_forward(tape *t, channel_op *op) {
  int64_t size = op->channels * op->pixels;
  op->spec = norm_spec(t, &op->config, op->pixels);
  op->rstd = tape_keep(t, (size_t)op->planes * sizeof(real));
  if (op->config.kind == NORM_LAYER) op->mean = tape_keep(t, (size_t)op->planes * sizeof(real));
  for (int64_t i = 0; i < op->x->rows; i++) {
    rms_forward_args args = {.outer = op->channels,
                             .x = {op->x->v + i * size, REAL_DTYPE},
                             .y = {.data = op->normed.v + i * size},
                             .rstd = op->rstd + i * op->channels,
                             .mean = op->mean == NULL ? NULL : op->mean + i * op->channels};
    norm_must(rms_forward(&op->spec, &args, NULL));
    for (int64_t c = 0; c < op->channels; c++) {
      int64_t at = i * size + c * op->pixels;
      bend_plane(op->y->v + at, op->normed.v + at, op->gain->v[c] * gain_factor(op), op->bias->v[c], op->slope,
                 op->pixels);
    }
  }
}

static void library_backward(channel_op *op) {
  int64_t size = op->channels * op->pixels;
  real factor = gain_factor(op);
  for (int64_t i = 0; i < op->x->rows; i++) {
    for (int64_t c = 0; c < op->channels; c++) {
      int64_t at = i * size + c * op->pixels;
      real dgain = 0;
      bend_plane_backward(op->y->g + at, op->y->v + at, op->normed.v + at, op->gain->v[c] * factor, op->slope,
                          op->pixels, &dgain, &op->bias->g[c]);
      op->gain->g[c] += dgain * factor;
    }
    rms_backward_args args = {.outer = op->channels,
                              .dy = {.data = op->y->g + i * size},
                              .x = {op->x->v + i * size, REAL_DTYPE},
                              .rstd = op->rstd + i * op->channels,
                              .mean = op->mean == NULL ? NULL : op->mean + i * op->channels,
                              .dx = {.data = op->x->g + i * size}};
    norm_must(rms_backward(&op->spec, &args, NULL));
  }
}

/* ---- the gain and the bias as passes of their own, for the textbook and for batch normalization ---- */

static void affine_forward(tape *t, channel_op *op) {
  real *scaled = tape_keep(t, (size_t)(op->planes * op->pixels) * sizeof(real));
  for (int64_t i = 0; i < op->planes; i++) {
    int64_t at = i * op->pixels, c = i % op->channels;
    scale_plane(scaled + at, op->normed.v + at, op->gain->v[c], op->pixels);
  }
  for (int64_t i = 0; i < op->planes; i++)
    shift_plane(op->y->v + i * op->pixels, scaled + i * op->pixels, op->bias->v[i % op->channels], op->pixels);
}

/* Makes the gradient of the normalised values, normed.g. */
static void affine_backward(tape *t, channel_op *op) {
  op->normed.g = tape_keep(t, (size_t)(op->planes * op->pixels) * sizeof(real));
  for (int64_t i = 0; i < op->planes; i++)
    op->bias->g[i % op->channels] += plane_sum(op->y->g + i * op->pixels, op->pixels);
  for (int64_t i = 0; i < op->planes; i++) {
    int64_t at = i * op->pixels;
    op->gain->g[i % op->channels] += plane_dot(op->y->g + at, op->normed.v + at, op->pixels);
  }
  for (int64_t i = 0; i < op->planes; i++) {
    int64_t at = i * op->pixels;
    scale_plane(op->normed.g + at, op->y->g + at, op->gain->v[i % op->channels], op->pixels);
  }
}

/* ---- batch normalization: statistics of a channel over all images of the shard ---- */

static void batch_statistics(channel_op *op, real *mean, real *variance) {
  real count = (real)(op->x->rows * op->pixels);
  for (int64_t c = 0; c < op->channels; c++)
    mean[c] = variance[c] = 0;
  for (int64_t i = 0; i < op->planes; i++)
    mean[i % op->channels] += plane_sum(op->x->v + i * op->pixels, op->pixels) / count;
  for (int64_t i = 0; i < op->planes; i++) {
    real *centred = op->normed.v + i * op->pixels;
    shift_plane(centred, op->x->v + i * op->pixels, -mean[i % op->channels], op->pixels);
    variance[i % op->channels] += plane_dot(centred, centred, op->pixels) / count;
  }
}

static void batch_forward(tape *t, channel_op *op) {
  int64_t channels = op->channels;
  real *mean = op->running->v, *variance = op->running->v + channels;
  if (t->training) {
    mean = op->running->g;
    variance = op->running->g + channels;
    batch_statistics(op, mean, variance);
  }
  op->rstd = tape_keep(t, (size_t)channels * sizeof(real));
  for (int64_t c = 0; c < channels; c++)
    op->rstd[c] = 1 / REAL_SQRT(variance[c] + (real)op->config.eps);
  for (int64_t i = 0; i < op->planes; i++) {
    real *h = op->normed.v + i * op->pixels;
    shift_plane(h, op->x->v + i * op->pixels, -mean[i % channels], op->pixels);
    scale_plane(h, h, op->rstd[i % channels], op->pixels);
  }
}

LAB_VECTOR static void batch_plane_backward(real *restrict dx, const real *restrict dh, const real *restrict h, real r,
                                            real mean, real along, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    dx[i] += r * (dh[i] - mean - h[i] * along);
}

static void batch_backward(tape *t, channel_op *op) {
  real count = (real)(op->x->rows * op->pixels);
  size_t bytes = (size_t)op->channels * sizeof(real);
  real *mean = tape_keep(t, 2 * bytes), *along = mean + op->channels;
  memset(mean, 0, 2 * bytes);
  for (int64_t i = 0; i < op->planes; i++) {
    const real *dh = op->normed.g + i * op->pixels, *h = op->normed.v + i * op->pixels;
    mean[i % op->channels] += plane_sum(dh, op->pixels) / count;
    along[i % op->channels] += plane_dot(dh, h, op->pixels) / count;
  }
  for (int64_t i = 0; i < op->planes; i++) {
    int64_t at = i * op->pixels, c = i % op->channels;
    batch_plane_backward(op->x->g + at, op->normed.g + at, op->normed.v + at, op->rstd[c], mean[c], along[c],
                         op->pixels);
  }
}

/* ---- the operation ---- */

static int uses_library(const channel_op *op) {
  return op->config.kind != NORM_NONE && op->config.kind != NORM_BATCH && op->config.engine == ENGINE_LIBRARY;
}

static void forward(tape *t, channel_op *op) {
  if (uses_library(op)) {
    library_forward(t, op);
    return;
  }
  if (op->config.kind == NORM_BATCH)
    batch_forward(t, op);
  else
    op->textbook = textbook_forward(t, &op->config, &op->rows, &op->normed, NULL, NULL);
  affine_forward(t, op);
}

static void backward(tape *t, channel_op *op) {
  if (uses_library(op)) {
    library_backward(op);
    return;
  }
  affine_backward(t, op);
  if (op->config.kind == NORM_BATCH)
    batch_backward(t, op);
  else
    textbook_backward(t, op->textbook, &op->rows, &op->normed, NULL, NULL, NULL);
}

static void bias_only_forward(channel_op *op) {
  for (int64_t i = 0; i < op->planes; i++)
    shift_plane(op->y->v + i * op->pixels, op->x->v + i * op->pixels, op->bias->v[i % op->channels], op->pixels);
}

static void bias_only_backward(channel_op *op) {
  for (int64_t i = 0; i < op->planes; i++)
    op->bias->g[i % op->channels] += plane_sum(op->y->g + i * op->pixels, op->pixels);
  add_to(op->x->g, op->y->g, op->planes * op->pixels);
}

static void channel_norm_backward(tape *t, void *arg) {
  channel_op *op = arg;
  if (!uses_library(op)) leaky_relu_backward(op->y->g, op->y->v, op->planes * op->pixels, op->slope);
  if (op->config.kind == NORM_NONE) {
    bias_only_backward(op);
    return;
  }
  double start = lab_seconds();
  backward(t, op);
  t->times.norm += lab_seconds() - start;
}

tensor *op_channel_norm(tape *t, const norm_config *config, tensor *x, const image_shape *shape, tensor *gain,
                        tensor *bias, tensor *running, real slope) {
  channel_op *op = tape_keep(t, sizeof *op);
  *op = (channel_op){.config = *config, .x = x, .gain = gain, .bias = bias, .running = running, .slope = slope};
  op->channels = shape->channels;
  op->pixels = shape->height * shape->width;
  op->planes = x->rows * op->channels;
  op->y = tape_tensor(t, x->rows, x->cols);
  op->rows = (tensor){x->v, x->g, op->planes, op->pixels, op->pixels};
  if (config->kind == NORM_NONE) {
    bias_only_forward(op);
  } else {
    op->normed = *tape_constant(t, op->planes, op->pixels);
    double start = lab_seconds();
    forward(t, op);
    t->times.norm += lab_seconds() - start;
  }
  if (!uses_library(op) && slope < 1) leaky_relu(op->y->v, op->planes * op->pixels, slope);
  tape_push(t, channel_norm_backward, op);
  return op->y;
}
