/* SPDX-License-Identifier: MIT
 *
 * ConvPool-CNN-C as Salimans & Kingma and the paper use it. Every convolution is normalised over each channel's pixels,
 * with a gain and a bias per channel, before the leaky ReLU; the last layer's ten sums are normalised too.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/model.h"

enum { CONVOLUTIONS = 9 };

static const real LEAK = (real)0.1;

typedef struct conv_layer {
  int64_t w, gain, bias, running; /* running: batch normalization's mean and variance; -1 otherwise */
  int64_t size, pad;
} conv_layer;

typedef struct convpool {
  const lab_images *train, *test;
  conv_layer conv[CONVOLUTIONS];
  conv_layer dense; /* gain, bias, running and the weights, channels x classes */
  real mean, scale; /* of the training pixels */
} convpool;

static void copy_image(const convpool *s, const lab_images *set, int64_t index, real *to) {
  int64_t n = (int64_t)set->channels * set->height * set->width;
  for (int64_t i = 0; i < n; i++)
    to[i] = ((real)set->pixels[index * n + i] - s->mean) * s->scale;
}

static tensor *conv(net *n, const conv_layer *layer, tensor *x, image_shape *shape) {
  tensor *y = op_conv(n->t, x, shape, net_param(n, layer->w), layer->size, layer->pad);
  return op_channel_norm(n->t, n->norm, y, shape, net_param(n, layer->gain), net_param(n, layer->bias),
                         net_param(n, layer->running), LEAK);
}

static tensor *dense(net *n, const conv_layer *layer, tensor *x) {
  tensor *w = net_param(n, layer->w), *gain = net_param(n, layer->gain), *bias = net_param(n, layer->bias);
  if (n->norm->kind != NORM_BATCH) return op_project(n->t, n->norm, x, w, gain, bias, 0);
  tensor *y = op_linear(n->t, x, w, NULL, ACT_NONE);
  image_shape shape = {y->cols, 1, 1};
  return op_channel_norm(n->t, n->norm, y, &shape, gain, bias, net_param(n, layer->running), 1);
}

static tensor *logits(model *m, net *n, tensor *x, image_shape shape) {
  convpool *s = m->state;
  add_noise(n->t, x, m->config.sizes.noise);
  for (int i = 0; i < CONVOLUTIONS; i++) {
    if (i == 3 || i == 6) x = op_dropout(n->t, op_max_pool(n->t, x, &shape), m->config.sizes.dropout);
    x = conv(n, &s->conv[i], x, &shape);
  }
  return dense(n, &s->dense, op_channel_mean(n->t, x, &shape));
}

static image_shape shape_of(const lab_images *set) {
  return (image_shape){set->channels, set->height, set->width};
}

static tensor *loss(model *m, tape *t, int shard) {
  convpool *s = m->state;
  net n = model_net(m, t, shard);
  image_shape shape = shape_of(s->train);
  int64_t size = shape.channels * shape.height * shape.width;
  int64_t first = m->batches.batch * shard / m->config.shards, last = m->batches.batch * (shard + 1) / m->config.shards;
  tensor *x = tape_constant(t, last - first, size);
  int32_t *labels = tape_keep(t, (size_t)(last - first) * sizeof *labels);
  for (int64_t i = first; i < last; i++) {
    copy_image(s, s->train, m->examples[i], x->v + (i - first) * size);
    labels[i - first] = s->train->labels[m->examples[i]];
  }
  return op_cross_entropy(t, logits(m, &n, x, shape), labels, 0, 1 / (double)m->batches.batch);
}

/* ---- test error ---- */

static int64_t count_right(model *m, tape *t, int shard, int64_t first, int64_t count) {
  convpool *s = m->state;
  net n = model_net(m, t, shard);
  image_shape shape = shape_of(s->test);
  int64_t size = shape.channels * shape.height * shape.width, right = 0;
  first += model_first_tested(m, s->test->count);
  tensor *x = tape_constant(t, count, size);
  for (int64_t i = 0; i < count; i++)
    copy_image(s, s->test, first + i, x->v + i * size);
  tensor *y = logits(m, &n, x, shape);
  for (int64_t i = 0; i < count; i++)
    right += best_column(y, i) == s->test->labels[first + i];
  return right;
}

static model_score evaluate(model *m, tape **tapes, const rms_executor *executor) {
  convpool *s = m->state;
  int64_t count = s->test->count - model_first_tested(m, s->test->count);
  int64_t wrong = count - count_in_chunks(m, tapes, executor, count, count_right);
  model_score score = {.quality = 100.0 * (double)wrong / (double)count, .chance = 100 - 100.0 / s->test->classes};
  snprintf(score.details, sizeof score.details, "%lld of %lld test images wrong", (long long)wrong, (long long)count);
  return score;
}

/* ---- building ---- */

static void declare_scales(params *p, conv_layer *layer, const char *name, const norm_config *config, int64_t outputs) {
  char full[64];
  layer->gain = layer->running = -1;
  snprintf(full, sizeof full, "%s.bias", name);
  layer->bias = params_constant(p, full, 1, outputs, 0, PARAM_TRAINED);
  if (config->kind == NORM_NONE) return;
  snprintf(full, sizeof full, "%s.gain", name);
  layer->gain = params_constant(p, full, 1, outputs, 1, PARAM_TRAINED);
  if (config->kind != NORM_BATCH) return;
  snprintf(full, sizeof full, "%s.running", name);
  layer->running = params_constant(p, full, 2, outputs, 0, PARAM_RUNNING);
}

static conv_layer declare_conv(params *p, int index, const norm_config *config, int64_t in, int64_t out, int64_t size,
                               int64_t pad) {
  char name[32], full[64];
  conv_layer layer = {.size = size, .pad = pad};
  snprintf(name, sizeof name, "conv.%d", index);
  snprintf(full, sizeof full, "%s.weight", name);
  int64_t fan_in = in * size * size;
  layer.w = params_uniform(p, full, out, fan_in, sqrt(6.0 / (double)fan_in)); /* He et al., for ReLUs */
  declare_scales(p, &layer, name, config, out);
  return layer;
}

static void measure_pixels(convpool *s) {
  double sum = 0, squares = 0;
  int64_t n = s->train->count * s->train->channels * s->train->height * s->train->width;
  for (int64_t i = 0; i < n; i++) {
    sum += s->train->pixels[i];
    squares += (double)s->train->pixels[i] * s->train->pixels[i];
  }
  double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
  s->mean = (real)mean;
  s->scale = (real)(1 / sqrt(variance + 1e-6));
}

static const model_kind convpool_kind = {.family = "convpool",
                                         .metric = "test error %",
                                         .higher_is_better = 0,
                                         .state_bytes = sizeof(convpool),
                                         .loss = loss,
                                         .evaluate = evaluate};

model *convpool_create(const model_config *config, const lab_images *train, const lab_images *test) {
  model *m = model_start(&convpool_kind, config);
  convpool *s = m->state;
  s->train = train;
  s->test = test;
  model_batches(m, train->count, NULL);
  measure_pixels(s);
  int64_t narrow = config->sizes.embed, wide = 2 * narrow, in = train->channels;
  for (int i = 0; i < CONVOLUTIONS; i++) {
    int64_t out = i < 3 ? narrow : wide, size = i < 7 ? 3 : 1, pad = i < 6 ? 1 : 0;
    s->conv[i] = declare_conv(&m->params, i, &config->norm, in, out, size, pad);
    in = out;
  }
  s->dense.w = params_uniform(&m->params, "dense.weight", wide, train->classes, sqrt(6.0 / (double)wide));
  declare_scales(&m->params, &s->dense, "dense", &config->norm, train->classes);
  return model_finish(m);
}
