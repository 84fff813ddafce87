/* SPDX-License-Identifier: MIT
 *
 * Every operation of the training engine against finite differences, in double.
 */
#include <math.h>
#include <string.h>

#include "gradient.h"
#include "harness.h"

static const norm_config no_norm = {.kind = NORM_NONE, .eps = 1e-5};

/* Up to four random matrices as parameters, in order. */
typedef struct inputs {
  params p;
} inputs;

static inputs make_inputs(const int64_t (*sizes)[2], int count) {
  inputs in = {{0}};
  for (int i = 0; i < count; i++) {
    char name[16];
    memset(name, 0, sizeof name);
    name[0] = (char)('a' + i);
    params_uniform(&in.p, name, sizes[i][0], sizes[i][1], 1.0);
  }
  params_allocate(&in.p, 1, t_seed(), 0);
  return in;
}

#define SIZES(...) ((const int64_t[][2]){__VA_ARGS__})

static void check(const int64_t (*sizes)[2], int count, const norm_config *norm, build_fn build, void *arg) {
  inputs in = make_inputs(sizes, count);
  check_gradients(&in.p, norm, build, arg, 1);
  params_free(&in.p);
}

/* ---- basic ---- */

static tensor *build_linear(net *n, void *arg) {
  return op_linear(n->t, net_param(n, 0), net_param(n, 1), net_param(n, 2), *(activation *)arg);
}

static void linear_layers(void) {
  for (activation act = ACT_NONE; act <= ACT_TANH; act++) {
    t_context("activation %d", (int)act);
    check(SIZES({3, 5}, {5, 4}, {1, 4}), 3, &no_norm, build_linear, &act);
  }
}

static tensor *build_linear_window(net *n, void *arg) {
  (void)arg;
  tensor *x = tape_view(n->t, net_param(n, 0), 1, 3, 2, 4);
  return op_linear(n->t, x, net_param(n, 1), NULL, ACT_NONE);
}

static void linear_of_windows(void) {
  check(SIZES({5, 7}, {4, 3}), 2, &no_norm, build_linear_window, NULL);
}

static tensor *build_embed(net *n, void *arg) {
  (void)arg;
  static const int32_t ids[] = {2, 0, 2, 3};
  static const real table[] = {1, 2, 3, 4, 5, 6};
  return op_add_positions(n->t, op_embed(n->t, net_param(n, 0), ids, 4, 2), table, 2);
}

static void embeddings_and_positions(void) {
  check(SIZES({4, 3}), 1, &no_norm, build_embed, NULL);
}

static tensor *build_joins(net *n, void *arg) {
  (void)arg;
  tensor *a = net_param(n, 0), *b = net_param(n, 1);
  tensor *sum = op_tanh(n->t, op_add(n->t, a, b));
  tensor *parts[] = {sum, a, b};
  return op_concat(n->t, op_stack_rows(n->t, parts, 3), op_stack_rows(n->t, (tensor *[]){b, sum, a}, 3));
}

static void sums_stacks_and_concatenation(void) {
  check(SIZES({3, 4}, {3, 4}), 2, &no_norm, build_joins, NULL);
}

static tensor *build_dropout(net *n, void *arg) {
  (void)arg;
  return op_tanh(n->t, op_dropout(n->t, net_param(n, 0), 0.4));
}

static void dropout(void) {
  check(SIZES({6, 7}), 1, &no_norm, build_dropout, NULL);
}

/* Five standard errors: the mean's is deviation/sqrt(n), the variance's below deviation^2*sqrt(2/n). */
static void noise(void) {
  enum { N = 10000 };
  const double deviation = 0.3;
  tape *t = tape_create();
  tape_reset(t, 1, t_seed());
  tensor *x = tape_constant(t, 1, N);
  memset(x->v, 0, N * sizeof(real));
  add_noise(t, x, deviation);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < N; i++) {
    sum += (double)x->v[i];
    squares += (double)x->v[i] * (double)x->v[i];
  }
  T_CHECK(fabs(sum / N) < 5 * deviation / sqrt(N));
  T_CHECK(fabs(squares / N - deviation * deviation) < 5 * deviation * deviation * sqrt(2.0 / N));
  tape_free(t);
}

/* ---- losses ---- */

static tensor *build_cross_entropy(net *n, void *arg) {
  static const int32_t targets[] = {1, -1, 4, 0};
  tensor *logits = op_add(n->t, net_param(n, 0), tape_zeros(n->t, 4, 11)); /* a copy: the loss overwrites it */
  return op_cross_entropy(n->t, logits, targets, *(double *)arg, 0.25);
}

static tensor *build_logits(net *n, void *arg) {
  static const int32_t targets[] = {3, -1, 5};
  return op_cross_entropy(n->t, op_logits(n->t, net_param(n, 0), net_param(n, 1)), targets, *(double *)arg, 0.25);
}

static void cross_entropy(void) {
  for (double smoothing = 0; smoothing < 0.2; smoothing += 0.1) {
    check(SIZES({4, 11}), 1, &no_norm, build_cross_entropy, &smoothing);
    check(SIZES({3, 5}, {6, 5}), 2, &no_norm, build_logits, &smoothing);
  }
}

static tensor *build_order(net *n, void *arg) {
  (void)arg;
  tensor *a = op_unit_abs(n->t, net_param(n, 0)), *b = op_unit_abs(n->t, net_param(n, 1));
  return op_order_loss(n->t, a, b, 0.3, 0.5);
}

static void order_loss(void) {
  check(SIZES({5, 9}, {5, 9}), 2, &no_norm, build_order, NULL);
}

/* ---- norms ---- */

typedef struct norm_case {
  norm_config config;
  int64_t split;
  int with_gain, with_bias;
} norm_case;

static tensor *build_norm(net *n, void *arg) {
  norm_case *c = arg;
  tensor *x = tape_view(n->t, net_param(n, 0), 0, 4, 1, 12);
  return op_norm(n->t, &c->config, x, c->with_gain ? net_param(n, 1) : NULL, c->with_bias ? net_param(n, 2) : NULL,
                 c->split);
}

static tensor *build_add_norm(net *n, void *arg) {
  norm_case *c = arg;
  tensor *sum, *x = op_tanh(n->t, net_param(n, 0));
  tensor *before = op_tanh(n->t, x); /* an earlier use of the stream, as the norm before a sub-layer is */
  tensor *f = op_tanh(n->t, net_param(n, 3));
  tensor *y = op_add_norm(n->t, &c->config, x, f, net_param(n, 1), net_param(n, 2), &sum);
  y = op_add(n->t, y, op_tanh(n->t, sum)); /* the sum goes on as a residual stream does */
  return op_add(n->t, y, before);
}

static void each_norm(void (*use)(norm_case *c)) {
  for (norm_kind kind = NORM_NONE; kind <= NORM_L2; kind++)
    for (norm_engine engine = ENGINE_LIBRARY; engine <= ENGINE_TEXTBOOK; engine++)
      for (int spread = 0; spread <= (kind == NORM_PRMS); spread++) {
        norm_case c = {.config = {.kind = kind, .engine = engine, .p = 0.4, .eps = 1e-3, .spread = spread}};
        use(&c);
      }
  for (int spread = 0; spread <= 1; spread++) {
    norm_case c = {.config = {.kind = NORM_PRMS_LOCAL, .p = 0.4, .eps = 1e-3, .spread = spread, .ranks = 2}};
    use(&c);
  }
}

static void use_norm(norm_case *c) {
  for (c->split = 0; c->split <= 8; c->split += 8)
    for (int parts = 0; parts < 4; parts++) {
      c->with_gain = parts & 1;
      c->with_bias = parts / 2;
      check(SIZES({4, 14}, {1, 12}, {1, 12}), 3, &no_norm, build_norm, c);
    }
}

static void use_add_norm(norm_case *c) {
  check(SIZES({3, 8}, {1, 8}, {1, 8}, {3, 8}), 4, &no_norm, build_add_norm, c);
}

static void norms(void) {
  each_norm(use_norm);
}

static void norms_of_residual_sums(void) {
  each_norm(use_add_norm);
}

/* ---- attention ---- */

static tensor *build_attention(net *n, void *arg) {
  static const int32_t lengths[] = {3, 5};
  attention_shape shape = {2, 5, 5, 2, lengths, *(int *)arg};
  tensor *qkv = net_param(n, 0);
  return op_attention(n->t, &shape, tape_view(n->t, qkv, 0, 10, 0, 6), tape_view(n->t, qkv, 0, 10, 6, 6),
                      tape_view(n->t, qkv, 0, 10, 12, 6));
}

static void multi_head_attention(void) {
  for (int causal = 0; causal < 2; causal++)
    check(SIZES({10, 18}), 1, &no_norm, build_attention, &causal);
}

static tensor *build_additive(net *n, void *arg) {
  (void)arg;
  static const int32_t lengths[] = {4, 1, 3};
  return op_additive_attention(n->t, net_param(n, 0), net_param(n, 1), net_param(n, 2), net_param(n, 3), lengths);
}

static tensor *build_mean(net *n, void *arg) {
  (void)arg;
  static const int32_t lengths[] = {4, 1, 3};
  return op_mean_steps(n->t, net_param(n, 0), 3, lengths);
}

static void additive_attention_and_means(void) {
  check(SIZES({3, 5}, {12, 5}, {12, 6}, {1, 5}), 4, &no_norm, build_additive, NULL);
  check(SIZES({12, 5}), 1, &no_norm, build_mean, NULL);
}

/* ---- recurrent layers, both directions, sequences of different lengths ---- */

typedef struct recurrent {
  gru_layer gru;
  lstm_layer lstm;
  int use_lstm;
  direction d;
} recurrent;

static tensor *build_recurrent(net *n, void *arg) {
  recurrent *r = arg;
  static const int32_t lengths[] = {4, 2, 3};
  sequence s = make_sequence(n->t, lengths, 3, 4);
  tensor *x = net_param(n, 0), *out = tape_tensor(n->t, 12, 5);
  if (r->use_lstm)
    lstm_run(n, &r->lstm, x, &s, r->d, out);
  else
    gru_run(n, &r->gru, x, &s, r->d, out);
  tensor *parts[] = {final_state(n, out, &s, r->d), tape_view(n->t, out, 3, 3, 0, 5)};
  return op_stack_rows(n->t, parts, 2);
}

static void recurrent_layers(void) {
  for (int use_lstm = 0; use_lstm < 2; use_lstm++)
    for (norm_kind kind = NORM_NONE; kind <= NORM_PRMS; kind++)
      for (int d = 0; d < 2; d++) {
        norm_config norm_of_layer = {.kind = kind, .p = 0.3, .eps = 1e-3};
        recurrent r = {.use_lstm = use_lstm, .d = d ? FORWARD : BACKWARD};
        params p = {0};
        params_uniform(&p, "x", 12, 4, 1.0);
        if (use_lstm)
          r.lstm = declare_lstm(&p, "lstm", &norm_of_layer, 4, 5);
        else
          r.gru = declare_gru(&p, "gru", &norm_of_layer, 4, 5);
        params_allocate(&p, 1, t_seed(), 0);
        check_gradients(&p, &norm_of_layer, build_recurrent, &r, 1);
        params_free(&p);
      }
}

/* ---- images ---- */

typedef struct image_case {
  norm_config config;
  int64_t size, pad;
} image_case;

static tensor *build_conv(net *n, void *arg) {
  image_case *c = arg;
  image_shape shape = {2, 5, 4};
  tensor *y = op_conv(n->t, net_param(n, 0), &shape, net_param(n, 1), c->size, c->pad);
  y = op_max_pool(n->t, y, &shape);
  tensor *means = op_channel_mean(n->t, y, &shape);
  return op_concat(n->t, y, means);
}

/* Each output straight from the definition. */
static real convolved(const tensor *x, image_shape in, const tensor *w, const image_case *c, int64_t out, int64_t y,
                      int64_t at) {
  real sum = 0;
  for (int64_t k = 0; k < in.channels * c->size * c->size; k++) {
    int64_t row = y + k / c->size % c->size - c->pad, col = at + k % c->size - c->pad;
    if (row < 0 || row >= in.height || col < 0 || col >= in.width) continue;
    sum += w->v[out * w->cols + k] * x->v[(k / (c->size * c->size) * in.height + row) * in.width + col];
  }
  return sum;
}

static void fill(tensor *x, uint64_t stream) {
  lab_rng rng = lab_rng_make(t_seed(), stream);
  for (int64_t i = 0; i < x->rows * x->cols; i++)
    x->v[i] = (real)(2 * lab_rng_unit(&rng) - 1);
}

/* Sizes down to one pixel, where a window is mostly border. */
static void convolution_by_definition(void) {
  static const int64_t sizes[][4] = {{5, 4, 3, 1}, {1, 1, 3, 1}, {1, 2, 3, 1},
                                     {2, 1, 3, 1}, {3, 5, 3, 0}, {2, 3, 1, 0}};
  for (size_t i = 0; i < T_COUNT(sizes); i++) {
    image_case c = {.size = sizes[i][2], .pad = sizes[i][3]};
    image_shape in = {2, sizes[i][0], sizes[i][1]}, out = in;
    tape *t = tape_create();
    tensor *x = tape_tensor(t, 1, 2 * in.height * in.width), *w = tape_tensor(t, 3, 2 * c.size * c.size);
    fill(x, 1);
    fill(w, 2);
    tensor *y = op_conv(t, x, &out, w, c.size, c.pad);
    t_context("%d x %d, window %d", (int)in.height, (int)in.width, (int)c.size);
    T_EQ_INT(3 * out.height * out.width, y->cols);
    for (int64_t j = 0; j < y->cols; j++) { /* at most 18 products of at most 1: rounding stays below 18*18*2^-53 */
      real wanted = convolved(x, in, w, &c, j / (out.height * out.width), j / out.width % out.height, j % out.width);
      T_CHECK(fabs((double)(y->v[j] - wanted)) <= 18 * 18 * 0x1p-53);
    }
    tape_free(t);
  }
}

static void convolution_and_pooling(void) {
  static const int64_t shapes[][2] = {{3, 1}, {3, 0}, {1, 0}};
  for (size_t i = 0; i < T_COUNT(shapes); i++) {
    image_case c = {.size = shapes[i][0], .pad = shapes[i][1]};
    check(SIZES({3, 40}, {3, 2 * c.size * c.size}), 2, &no_norm, build_conv, &c);
  }
}

static tensor *build_channel_norm(net *n, void *arg) {
  image_case *c = arg;
  image_shape shape = {2, 3, 4};
  tensor *running = tape_zeros(n->t, 2, 2);
  return op_channel_norm(n->t, &c->config, net_param(n, 0), &shape, net_param(n, 1), net_param(n, 2), running,
                         (real)0.1);
}

static void channel_norms(void) {
  for (norm_kind kind = NORM_NONE; kind <= NORM_BATCH; kind++)
    for (norm_engine engine = ENGINE_LIBRARY; engine <= ENGINE_TEXTBOOK; engine++)
      for (int spread = 0; spread <= (kind == NORM_PRMS); spread++) {
        image_case c = {.config = {.kind = kind, .engine = engine, .p = 0.4, .eps = 1e-3, .spread = spread}};
        check(SIZES({3, 24}, {1, 2}, {1, 2}), 3, &no_norm, build_channel_norm, &c);
      }
}

static const t_case cases[] = {
    {"linear_layers", linear_layers},
    {"linear_of_windows", linear_of_windows},
    {"embeddings_and_positions", embeddings_and_positions},
    {"sums_stacks_and_concatenation", sums_stacks_and_concatenation},
    {"dropout", dropout},
    {"noise", noise},
    {"cross_entropy", cross_entropy},
    {"order_loss", order_loss},
    {"norms", norms},
    {"norms_of_residual_sums", norms_of_residual_sums},
    {"multi_head_attention", multi_head_attention},
    {"additive_attention_and_means", additive_attention_and_means},
    {"recurrent_layers", recurrent_layers},
    {"convolution_by_definition", convolution_by_definition},
    {"convolution_and_pooling", convolution_and_pooling},
    {"channel_norms", channel_norms},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
