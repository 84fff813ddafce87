/* SPDX-License-Identifier: MIT */
#include "models/stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static linear_layer declare_part(params *p, const char *name, int64_t layer, const char *part, int64_t in,
                                 int64_t out) {
  char full[48];
  snprintf(full, sizeof full, "%s.%lld.%s", name, (long long)layer, part);
  return declare_linear(p, full, in, out);
}

static int64_t norm_count(const stack *s) {
  return s->layers * (s->cross ? 3 : 2) + (s->pre_norm ? 1 : 0);
}

stack declare_stack(params *p, const char *name, const norm_config *config, const model_sizes *sizes, int cross) {
  stack s = {.layers = sizes->layers, .width = sizes->width, .cross = cross, .pre_norm = sizes->pre_norm};
  s.dropout = sizes->dropout;
  s.layer = lab_alloc((size_t)s.layers, sizeof *s.layer);
  for (int64_t i = 0; i < s.layers; i++) {
    stack_layer *l = &s.layer[i];
    l->qkv = declare_part(p, name, i, "qkv", s.width, 3 * s.width);
    l->self_out = declare_part(p, name, i, "self_out", s.width, s.width);
    if (cross) {
      l->q = declare_part(p, name, i, "q", s.width, s.width);
      l->kv = declare_part(p, name, i, "kv", s.width, 2 * s.width);
      l->cross_out = declare_part(p, name, i, "cross_out", s.width, s.width);
    }
    l->inner = declare_part(p, name, i, "inner", s.width, sizes->hidden);
    l->outer = declare_part(p, name, i, "outer", sizes->hidden, s.width);
  }
  s.norms = lab_alloc((size_t)norm_count(&s), sizeof *s.norms);
  for (int64_t i = 0; i < norm_count(&s); i++) {
    char full[48];
    snprintf(full, sizeof full, "%s.norm.%lld", name, (long long)i);
    s.norms[i] = declare_norm(p, full, config, s.width);
  }
  return s;
}

void stack_free(stack *s) {
  free(s->layer);
  free(s->norms);
}

cross_memory *stack_memory(net *n, const stack *s, tensor *memory) {
  cross_memory *kept = tape_keep(n->t, (size_t)s->layers * sizeof *kept);
  for (int64_t i = 0; i < s->layers; i++)
    kept[i].kv = linear(n, &s->layer[i].kv, memory, ACT_NONE);
  return kept;
}

/* Where the residual stream stands between two sub-layers. */
typedef struct place {
  tensor *stream; /* what the next residual sum adds to */
  tensor *input;  /* of the next sub-layer              */
  const norm_layer *next;
} place;

static void add_sublayer(net *n, const stack *s, place *at, tensor *f) {
  f = op_dropout(n->t, f, s->dropout);
  at->input = add_norm(n, at->next++, at->stream, f, &at->stream);
  if (!s->pre_norm) at->stream = at->input;
}

static tensor *self_attention(net *n, const stack_layer *l, tensor *x, const attention_shape *shape) {
  tensor *qkv = linear(n, &l->qkv, x, ACT_NONE);
  int64_t width = x->cols;
  tensor *y = op_attention(n->t, shape, tape_view(n->t, qkv, 0, qkv->rows, 0, width),
                           tape_view(n->t, qkv, 0, qkv->rows, width, width),
                           tape_view(n->t, qkv, 0, qkv->rows, 2 * width, width));
  return linear(n, &l->self_out, y, ACT_NONE);
}

static tensor *cross_attention(net *n, const stack_layer *l, tensor *x, const attention_shape *shape, tensor *kv) {
  int64_t width = x->cols;
  tensor *q = linear(n, &l->q, x, ACT_NONE);
  tensor *y = op_attention(n->t, shape, q, tape_view(n->t, kv, 0, kv->rows, 0, width),
                           tape_view(n->t, kv, 0, kv->rows, width, width));
  return linear(n, &l->cross_out, y, ACT_NONE);
}

tensor *stack_run(net *n, const stack *s, tensor *x, const attention_shape *self, const attention_shape *cross,
                  const cross_memory *memory) {
  place at = {x, x, s->norms};
  if (s->pre_norm) at.input = norm(n, at.next++, x);
  for (int64_t i = 0; i < s->layers; i++) {
    const stack_layer *l = &s->layer[i];
    add_sublayer(n, s, &at, self_attention(n, l, at.input, self));
    if (s->cross) add_sublayer(n, s, &at, cross_attention(n, l, at.input, cross, memory[i].kv));
    add_sublayer(n, s, &at, linear(n, &l->outer, linear(n, &l->inner, at.input, ACT_RELU), ACT_NONE));
  }
  return at.input;
}

real *position_table(int64_t length, int64_t width) {
  real *table = lab_alloc((size_t)(length * width), sizeof *table);
  for (int64_t i = 0; i < length; i++)
    for (int64_t j = 0; j < width; j++) {
      double angle = (double)i / pow(10000.0, (double)(j / 2 * 2) / (double)width);
      table[i * width + j] = (real)(j % 2 == 0 ? sin(angle) : cos(angle));
    }
  return table;
}
