/* SPDX-License-Identifier: MIT
 *
 * A stack of Transformer layers: self-attention, attention to a memory (in a decoder), feed-forward.
 */
#ifndef LAB_STACK_H
#define LAB_STACK_H

#include "models/model.h"

typedef struct stack_layer {
  linear_layer qkv, self_out;
  linear_layer q, kv, cross_out; /* decoder only */
  linear_layer inner, outer;
} stack_layer;

typedef struct stack {
  int64_t layers, width;
  int cross, pre_norm;
  double dropout;
  stack_layer *layer;
  norm_layer *norms; /* one per sub-layer; with pre_norm one more, the last one's output */
} stack;

/* Keys and values of a memory for each layer. */
typedef struct cross_memory {
  tensor *kv;
} cross_memory;

stack declare_stack(params *p, const char *name, const norm_config *norm, const model_sizes *sizes, int cross);
void stack_free(stack *s);
cross_memory *stack_memory(net *n, const stack *s, tensor *memory);
/* x: embedded sequences, batch-major. cross and memory: for a decoder. */
tensor *stack_run(net *n, const stack *s, tensor *x, const attention_shape *self, const attention_shape *cross,
                  const cross_memory *memory);

/* Sinusoids, length x width; free it. */
real *position_table(int64_t length, int64_t width);

#endif
