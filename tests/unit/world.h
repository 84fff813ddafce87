/* SPDX-License-Identifier: MIT
 *
 * A small legal call of every operation on buffers of its own, to be spoiled in one place and refused. */
#ifndef RMSNORM_TESTS_WORLD_H
#define RMSNORM_TESTS_WORLD_H

#include "harness.h"

enum { W_OUTER = 3, W_INNER = 2, W_COLS = 8, W_ROWS = W_OUTER * W_INNER, W_ELEMENTS = W_ROWS * W_COLS };

/* Buffers are doubles so that any data type fits and is aligned. */
typedef struct world {
  rms_spec spec;
  rms_forward_args forward;
  rms_backward_args backward;
  rms_stat stats[W_ROWS * W_COLS];
  rms_grad_sum sums[W_ROWS * W_COLS];
  const rms_executor *executor;
  double x[W_ELEMENTS], residual[W_ELEMENTS], weight[W_ELEMENTS], bias[W_ELEMENTS], dy[W_ELEMENTS],
      dresidual[W_ELEMENTS], gate[W_ELEMENTS];
  double y[W_ELEMENTS], residual_out[W_ELEMENTS], rstd[W_ELEMENTS], mean[W_ELEMENTS], dx[W_ELEMENTS],
      dresidual_out[W_ELEMENTS], dweight[W_ELEMENTS], dbias[W_ELEMENTS], dgate[W_ELEMENTS];
  _Alignas(64) unsigned char workspace[1 << 16];
} world;

/* The one world, made legal again: f32, every part present, nothing aliased. Only x says its type. */
world *w_fresh(void);

/* Gives the calls a gate, and the backward its gradient. */
void w_add_gate(world *w, rms_gate_place place);

/* Every tensor says its type. The x of the backward has the data's. */
void w_set_types(world *w, rms_dtype data, rms_dtype weight, rms_dtype residual, rms_dtype grad);

/* The functions that take a spec, as bits. */
enum {
  W_FORWARD = 1,
  W_STATS = 2,
  W_APPLY = 4,
  W_BACKWARD = 8,
  W_BACKWARD_STATS = 16,
  W_BACKWARD_APPLY = 32,
  W_FORWARDS = W_FORWARD | W_APPLY,
  W_BACKWARDS = W_BACKWARD | W_BACKWARD_APPLY,
  W_SPLIT = W_STATS | W_APPLY | W_BACKWARD_STATS | W_BACKWARD_APPLY,
  W_ALL = 63
};

/* Checks that each of the functions returns `expected` and, unless that is RMS_OK, changes nothing. */
void w_expect(world *w, int functions, rms_status expected);

#endif
