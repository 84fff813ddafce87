/* SPDX-License-Identifier: MIT
 * Every field of every argument, spoiled: the right status from every function, and nothing written. */
#include "world.h"

#include <math.h>
#include <string.h>

/* What the other cases start from is legal for every function. */
static void legal(void) {
  for (int function = 1; function <= W_BACKWARD_APPLY; function *= 2)
    w_expect(w_fresh(), function, RMS_OK);
  world *w = w_fresh();
  T_CHECK(rms_backward_workspace(&w->spec, &w->backward) > 0);
  T_CHECK(rms_backward_workspace(&w->spec, &w->backward) <= sizeof w->workspace);
}

/* Every function refuses the spec, and no workspace is offered for it. */
static void refused(world *w, rms_status expected) {
  w_expect(w, W_ALL, expected);
  T_EQ_INT(0, rms_backward_workspace(&w->spec, &w->backward));
}

static void spec_numbers(void) {
  static const int64_t bad_cols[] = {0, -1, INT64_MIN};
  for (size_t i = 0; i < T_COUNT(bad_cols); i++) {
    world *w = w_fresh();
    w->spec.cols = bad_cols[i];
    refused(w, RMS_E_COLS);
  }
  static const double bad_eps[] = {-1e-300, -1, (double)NAN, (double)INFINITY, -(double)INFINITY};
  for (size_t i = 0; i < T_COUNT(bad_eps); i++) {
    world *w = w_fresh();
    w->spec.eps = bad_eps[i];
    refused(w, RMS_E_EPS);
  }
  static const int64_t bad_groups[] = {-1, 3, 5, 7, 9, 16, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < T_COUNT(bad_groups); i++) {
    world *w = w_fresh();
    w->spec.groups = bad_groups[i];
    refused(w, RMS_E_GROUPS);
  }
  static const double bad_offset[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (size_t i = 0; i < T_COUNT(bad_offset); i++) {
    world *w = w_fresh();
    w->spec.weight_offset = bad_offset[i];
    refused(w, RMS_E_MODE);
  }
}

static void spec_partial(void) {
  static const int64_t bad[] = {W_COLS + 1, INT64_MAX, -2, INT64_MIN};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->spec.kind = RMS_KIND_RMS;
    w->forward.mean = NULL;
    w->spec.partial = bad[i];
    refused(w, RMS_E_PARTIAL);
    w->spec.partial = 5; /* of groups of 4 */
    w->spec.groups = 2;
    refused(w, RMS_E_PARTIAL);
  }
  static const int64_t bad_lists[][3] = {{0, 0, 1}, {1, 0, 2}, {0, 1, W_COLS}, {-1, 0, 1}, {2, 5, 5}};
  for (size_t i = 0; i < T_COUNT(bad_lists); i++) {
    world *w = w_fresh();
    w->spec.kind = RMS_KIND_RMS;
    w->forward.mean = NULL;
    w->spec.partial = 3;
    w->spec.indices = bad_lists[i];
    refused(w, RMS_E_PARTIAL);
  }
  static const int64_t beyond_group[] = {1, 2, 4};
  world *w = w_fresh();
  w->spec.kind = RMS_KIND_RMS;
  w->forward.mean = NULL;
  w->spec.partial = 3;
  w->spec.indices = beyond_group;
  w_expect(w, W_ALL, RMS_OK);
  w->spec.groups = 2;
  refused(w, RMS_E_PARTIAL);

  /* A shard without any element of the statistic exists in the split functions alone. */
  w = w_fresh();
  w->spec.kind = RMS_KIND_RMS;
  w->forward.mean = NULL;
  w->spec.partial = RMS_PARTIAL_NONE;
  w_expect(w, W_FORWARD | W_BACKWARD, RMS_E_PARTIAL);
  w_expect(w, W_SPLIT, RMS_OK);
  /* LayerNorm has no partial form. */
  w = w_fresh();
  w->spec.partial = 4;
  w_expect(w, W_ALL, RMS_E_PARTIAL);
}

static void spec_enums(void) {
  static const int bad[] = {-1, 2, 77};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->spec.kind = bad[i];
    refused(w, RMS_E_KIND);
    w = w_fresh();
    w->spec.eps_place = bad[i] == 2 ? 3 : bad[i];
    refused(w, RMS_E_MODE);
    w = w_fresh();
    w->spec.steps = bad[i] == 2 ? 4 : bad[i];
    refused(w, RMS_E_MODE);
    w = w_fresh();
    w->spec.rounding = bad[i];
    refused(w, RMS_E_MODE);
  }
}

/* What each of the forms that round at other steps has, of every data type. */
static void steps(void) {
  static const rms_dtype types[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
  enum { WHOLE = W_FORWARD | W_BACKWARD };
  for (size_t t = 0; t < T_COUNT(types); t++)
    for (int kind = RMS_KIND_RMS; kind <= RMS_KIND_LAYER; kind++)
      for (int place = RMS_EPS_INSIDE; place <= RMS_EPS_CLAMP; place++)
        for (int form = RMS_STEPS_WIDE; form <= RMS_STEPS_ALL; form++) {
          const int rms = kind == RMS_KIND_RMS, inside = place == RMS_EPS_INSIDE;
          const int offered = form == RMS_STEPS_WIDE    ? 1
                              : form == RMS_STEPS_TERMS ? rms
                              : form == RMS_STEPS_RSTD  ? rms && inside
                                                        : rms || inside;
          const int narrowed = form >= RMS_STEPS_RSTD; /* neither split nor partial */
          world *w = w_fresh();
          w_set_types(w, types[t], types[t], types[t], types[t]);
          w->spec.kind = kind;
          w->spec.eps_place = place;
          w->spec.steps = form;
          if (rms) w->forward.mean = NULL;
          w_expect(w, WHOLE, offered ? RMS_OK : RMS_E_UNSUPPORTED);
          w_expect(w, W_SPLIT, offered && !narrowed ? RMS_OK : RMS_E_UNSUPPORTED);
          T_EQ_INT(offered, rms_backward_workspace(&w->spec, &w->backward) > 0);
          T_EQ_STATUS(offered && !narrowed ? RMS_OK : RMS_E_UNSUPPORTED,
                      rms_stats_merge(&w->spec, 1, w->stats, w->stats + 1));
          if (rms) {
            w->spec.partial = 4;
            w_expect(w, WHOLE, offered && !narrowed ? RMS_OK : RMS_E_UNSUPPORTED);
            w->spec.partial = 0;
          }
          w_add_gate(w, RMS_GATE_AFTER);
          w_expect(w, WHOLE, form == RMS_STEPS_WIDE ? RMS_OK : RMS_E_UNSUPPORTED);
        }
}

/* A gate and a place for it go together; its types are the data's, and those of the bias beside it the weight's. */
static void gates(void) {
  static const int bad[] = {-1, 3, 77};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->spec.gate_place = bad[i];
    refused(w, RMS_E_MODE);
    w = w_fresh();
    w->spec.activation = bad[i] == 3 ? 2 : bad[i];
    refused(w, RMS_E_MODE);
  }
  for (int place = RMS_GATE_AFTER; place <= RMS_GATE_BEFORE; place++) {
    world *w = w_fresh();
    w_add_gate(w, (rms_gate_place)place);
    w_expect(w, W_ALL, RMS_OK);
    w->backward.dgate.data = NULL; /* optional, and so is the bias beside it */
    w->backward.bias = NULL;
    w_expect(w, W_BACKWARDS, RMS_OK);
    w->forward.gate.data = w->backward.gate.data = NULL;
    w_expect(w, W_ALL, RMS_E_ARGUMENT);
    w = w_fresh();
    w_add_gate(w, (rms_gate_place)place);
    w->spec.gate_place = RMS_GATE_NONE;
    w_expect(w, W_ALL, RMS_E_ARGUMENT);
    w->backward.gate.data = NULL;
    w_expect(w, W_BACKWARDS | W_BACKWARD_STATS, RMS_E_ARGUMENT); /* a gradient of nothing */
    w = w_fresh();
    w_add_gate(w, (rms_gate_place)place);
    w->forward.gate.dtype = w->backward.gate.dtype = RMS_BF16;
    w_expect(w, W_ALL, RMS_E_DTYPE);
    w->backward.gate.dtype = RMS_AS_X;
    w->backward.dgate.dtype = RMS_F64;
    w_expect(w, W_BACKWARDS, RMS_E_DTYPE);
    w->backward.dgate.dtype = RMS_AS_X;
    w->backward.bias_dtype = RMS_BF16;
    w_expect(w, W_BACKWARDS, RMS_E_DTYPE);
    w->backward.bias_dtype = RMS_AS_X;
    w->backward.reserved = 1;
    w_expect(w, W_BACKWARDS, RMS_E_VERSION);
    w = w_fresh();
    w_add_gate(w, (rms_gate_place)place);
    w->forward.gate.outer_stride = w->backward.dgate.outer_stride = W_COLS; /* rows overlap */
    w_expect(w, W_FORWARD | W_BACKWARDS, RMS_E_STRIDE);
    w = w_fresh();
    w_add_gate(w, (rms_gate_place)place);
    w_set_types(w, RMS_BF16, RMS_F32, RMS_F32, RMS_F32);
    w_expect(w, W_ALL, RMS_OK);
  }
}

/* The types of a call with everything in it: each tensor spelled out. */
static void dtypes(void) {
  static const int32_t bad[] = {-1, RMS_F16 + 1, 99};
  for (size_t i = 0; i < T_COUNT(bad); i++)
    for (int field = 0; field < 12; field++) {
      world *w = w_fresh();
      int32_t *forwards[] = {&w->forward.x.dtype,      &w->forward.residual.dtype,     &w->forward.y.dtype,
                             &w->forward.weight_dtype, &w->forward.residual_out.dtype, &w->forward.bias_dtype};
      int32_t *backwards[] = {&w->backward.x.dtype,      &w->backward.dy.dtype,        &w->backward.dx.dtype,
                              &w->backward.weight_dtype, &w->backward.dresidual.dtype, &w->backward.dweight_dtype};
      *(field < 6 ? forwards : backwards)[field % 6] = bad[i];
      w_expect(w, field < 6 ? W_FORWARDS : W_BACKWARDS, RMS_E_DTYPE);
    }
  /* Every combination of the four types, against the rule in the header. */
  for (int code = 0; code < 256; code++) {
    rms_dtype d = (rms_dtype)(RMS_F32 + (code & 3)), weight = (rms_dtype)(RMS_F32 + (code >> 2 & 3)),
              residual = (rms_dtype)(RMS_F32 + (code >> 4 & 3)), grad = (rms_dtype)(RMS_F32 + (code >> 6));
    int narrow = d == RMS_BF16 || d == RMS_F16;
    int fine = (weight == d || weight == RMS_F32) && (residual == d || (narrow && residual == RMS_F32));
    world *w = w_fresh();
    w_set_types(w, d, weight, residual, grad);
    t_context("code=%d", code);
    w_expect(w, W_FORWARDS, fine ? RMS_OK : RMS_E_DTYPE);
    fine = fine && (grad == d || grad == RMS_F32);
    w_expect(w, W_BACKWARDS, fine ? RMS_OK : RMS_E_DTYPE);
  }
}

/* x must say its type; everything else is then of that type: no more memory is touched than such tensors have. */
static void as_x(void) {
  world *w = w_fresh();
  w->forward.x.dtype = w->backward.x.dtype = RMS_AS_X;
  refused(w, RMS_E_DTYPE);
  for (int type = RMS_F32; type <= RMS_F16; type++) {
    size_t size = rms_dtype_size((rms_dtype)type), rows = W_ELEMENTS * size, weights = W_COLS * size;
    w = w_fresh();
    w->forward.x.dtype = w->backward.x.dtype = type;
    double *all[] = {w->y, w->residual_out, w->dx, w->dresidual_out, w->dweight, w->dbias};
    for (size_t i = 0; i < T_COUNT(all); i++)
      memset(all[i], 0x5a, sizeof w->y);
    w_expect(w, W_FORWARD | W_BACKWARD, RMS_OK);
    unsigned char rest[sizeof w->y];
    memset(rest, 0x5a, sizeof rest);
    for (size_t i = 0; i < T_COUNT(all); i++) {
      size_t own = i < 4 ? rows : weights;
      t_context("type=%d output=%d", type, (int)i);
      T_CHECK(memcmp(all[i], rest, own) != 0);
      T_EQ_BYTES(rest, (unsigned char *)all[i] + own, sizeof rest - own);
    }
    /* The same, spelled out. */
    world before = *w;
    w_set_types(w, (rms_dtype)type, (rms_dtype)type, (rms_dtype)type, (rms_dtype)type);
    w_expect(w, W_FORWARD | W_BACKWARD, RMS_OK);
    T_EQ_BYTES(before.y, w->y, sizeof w->y);
    T_EQ_BYTES(before.dx, w->dx, sizeof w->dx);
    T_EQ_BYTES(before.dweight, w->dweight, sizeof w->dweight);
  }
}

/* Tensors that share a stream or a rounding have one type. */
static void unequal_types(void) {
  world *w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_BF16, RMS_F32, RMS_F32);
  w->forward.residual_out.dtype = RMS_AS_X; /* the residual is f32 */
  w->backward.dresidual_out.dtype = RMS_BF16;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_DTYPE);
  w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_F32, RMS_BF16, RMS_F32);
  w->forward.bias_dtype = RMS_BF16;
  w_expect(w, W_FORWARDS, RMS_E_DTYPE);
  w->forward.weight = NULL; /* the bias alone may have either */
  w_expect(w, W_FORWARDS, RMS_OK);
  w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_F32, RMS_BF16, RMS_F32);
  w->forward.y.dtype = RMS_F64;
  w->backward.dx.dtype = RMS_F32;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_DTYPE);
  w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_F32, RMS_BF16, RMS_F32);
  w->backward.dbias_dtype = RMS_BF16; /* gradients may differ */
  w_expect(w, W_BACKWARDS, RMS_OK);
}

/* x is an f32 sum beside 16-bit gradients: "as x" would be a trap, so each tensor must say what it is. */
static void sum_says_nothing(void) {
  for (int field = 0; field <= 6; field++) {
    world *w = w_fresh();
    w_set_types(w, RMS_F16, RMS_F16, RMS_F32, RMS_F32);
    w->backward.x.dtype = RMS_F32;
    int32_t *fields[] = {&w->backward.dx.dtype,        &w->backward.weight_dtype,
                         &w->backward.dresidual.dtype, &w->backward.dresidual_out.dtype,
                         &w->backward.dweight_dtype,   &w->backward.dbias_dtype};
    if (field < 6) *fields[field] = RMS_AS_X;
    t_context("field=%d", field);
    w_expect(w, W_BACKWARDS, field < 6 ? RMS_E_DTYPE : RMS_OK);
  }
  world *w = w_fresh();
  w_set_types(w, RMS_F16, RMS_F16, RMS_F16, RMS_F32);
  w->backward.x.dtype = RMS_F32; /* the stream of an f32 sum is f32 */
  w_expect(w, W_BACKWARDS, RMS_E_DTYPE);
  w->backward.dresidual.data = w->backward.dresidual_out.data = NULL;
  w_expect(w, W_BACKWARDS, RMS_OK);
  w->backward.x.dtype = RMS_BF16;
  w_expect(w, W_BACKWARDS, RMS_E_DTYPE);
  w->backward.x.dtype = RMS_F64;
  w_expect(w, W_BACKWARDS, RMS_E_DTYPE);
}

/* y and dy of a type of their own: any but f64 beside any but f64. */
static void own_y_types(void) {
  for (int code = 0; code < 16; code++) {
    rms_dtype x = (rms_dtype)(RMS_F32 + (code & 3)), y = (rms_dtype)(RMS_F32 + (code >> 2));
    int fine = x == y || (x != RMS_F64 && y != RMS_F64);
    world *w = w_fresh();
    w_set_types(w, x, x, x, x);
    w->forward.y.dtype = w->backward.dy.dtype = (int32_t)y;
    t_context("code=%d", code);
    w_expect(w, W_FORWARDS | W_BACKWARDS | W_BACKWARD_STATS, fine ? RMS_OK : RMS_E_DTYPE);
  }
  world *w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_BF16, RMS_F32, RMS_F32);
  w->forward.y.dtype = w->backward.dy.dtype = RMS_F32;
  w_expect(w, W_FORWARDS, RMS_OK);
  w_expect(w, W_BACKWARDS, RMS_E_DTYPE); /* no residual tensors in f32 there */
  w->backward.dresidual.data = w->backward.dresidual_out.data = NULL;
  w_expect(w, W_BACKWARDS, RMS_OK);
  w->backward.dx.dtype = RMS_AS_X; /* ambiguous where x and dy differ */
  w_expect(w, W_BACKWARDS, RMS_E_DTYPE);
  w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_BF16, RMS_BF16, RMS_BF16);
  w->forward.y.dtype = RMS_F32;
  w->forward.y.data = w->x; /* in place needs elements of one size */
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w->forward.y.dtype = RMS_F16;
  w_expect(w, W_FORWARDS, RMS_OK);
}

/* Statistics without y, and nothing at all. */
static void no_y(void) {
  world *w = w_fresh();
  w->forward.y.data = NULL;
  w_expect(w, W_FORWARDS, RMS_OK);
  w->forward.mean = NULL;
  w_expect(w, W_FORWARDS, RMS_OK);
  w->forward.rstd = NULL; /* the residual sum alone is no result of a norm */
  w_expect(w, W_FORWARDS, RMS_E_ARGUMENT);
}

/* Weights of the inner indices at a stride. */
static void weight_strides(void) {
  world *w = w_fresh();
  w->forward.weight_stride = w->backward.weight_stride = W_COLS;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_STRIDE);
  w->spec.weight_per_inner = 1;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_OK);
  w->forward.weight_stride = w->backward.weight_stride = W_COLS + 3;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_OK);
  w->forward.weight_stride = w->backward.weight_stride = W_COLS - 1;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_STRIDE);
  w->forward.weight_stride = w->backward.weight_stride = -W_COLS;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_STRIDE);
  w->forward.weight_stride = w->backward.weight_stride = INT64_MAX / 8;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_SIZE);
  w->forward.weight_stride = w->backward.weight_stride = W_ELEMENTS - W_COLS;
  w->forward.y.data = w->weight + W_COLS; /* between the two weights: within what they span */
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w = w_fresh();
  for (int rounding = -1; rounding < 4; rounding++) {
    w->spec.gain_rounding = rounding;
    w_expect(w, W_FORWARDS | W_BACKWARDS, rounding == 0 || rounding == 1 ? RMS_OK : RMS_E_MODE);
  }
}

/* Gradients of the statistics, with which dy may be absent. */
static void drstd(void) {
  world *w = w_fresh();
  w->spec.kind = RMS_KIND_RMS;
  w->backward.drstd = w->rstd;
  w_expect(w, W_BACKWARD, RMS_OK);
  w_expect(w, W_BACKWARD_STATS | W_BACKWARD_APPLY, RMS_E_UNSUPPORTED);
  T_CHECK(rms_backward_workspace(&w->spec, &w->backward) > 0);
  w->backward.dy.data = NULL;
  w_expect(w, W_BACKWARD, RMS_OK);
  w->spec.steps = RMS_STEPS_RSTD;
  w_expect(w, W_BACKWARD, RMS_E_UNSUPPORTED);
  w->spec.steps = RMS_STEPS_TERMS;
  w_expect(w, W_BACKWARD, RMS_OK);
  w->backward.drstd = (const char *)w->rstd + 2;
  w_expect(w, W_BACKWARD, RMS_E_ALIGNMENT);
  w->backward.drstd = w->dx + 1;
  w_expect(w, W_BACKWARD, RMS_E_ALIAS);
  w->backward.drstd = NULL;
  w_expect(w, W_BACKWARD, RMS_E_ARGUMENT); /* no gradient of anything */
  w->backward.dmean = w->mean;
  w_expect(w, W_BACKWARD, RMS_E_ARGUMENT); /* RMS has no mean */
  w->spec.steps = RMS_STEPS_WIDE;
  w->spec.kind = RMS_KIND_LAYER;
  w_expect(w, W_BACKWARD, RMS_OK);
  w_expect(w, W_BACKWARD_STATS | W_BACKWARD_APPLY, RMS_E_UNSUPPORTED);
  w->backward.dmean = w->dweight;
  w_expect(w, W_BACKWARD, RMS_E_ALIAS);
  w->backward.dmean = (const char *)w->mean + 1;
  w_expect(w, W_BACKWARD, RMS_E_ALIGNMENT);
  w->backward.dmean = w->mean;
  w->backward.dy.dtype = RMS_BF16; /* an absent dy says that the data are bf16, and x a residual sum */
  w_expect(w, W_BACKWARD, RMS_E_DTYPE);
}

/* What a view holds for later versions. */
static void views(void) {
  for (int field = 0; field < 2; field++)
    for (int which = 0; which < 9; which++) {
      world *w = w_fresh();
      rms_const_view *inputs[] = {&w->forward.x, &w->forward.residual, &w->backward.dy, &w->backward.x,
                                  &w->backward.dresidual};
      rms_view *outputs[] = {&w->forward.y, &w->forward.residual_out, &w->backward.dx, &w->backward.dresidual_out};
      int forward = which < 2 || (which >= 5 && which < 7);
      int32_t *reserved = which < 5 ? &inputs[which]->reserved : &outputs[which - 5]->reserved;
      int64_t *col_stride = which < 5 ? &inputs[which]->col_stride : &outputs[which - 5]->col_stride;
      *col_stride = 1; /* spelled out */
      w_expect(w, forward ? W_FORWARDS : W_BACKWARDS, RMS_OK);
      if (field == 0) *reserved = 1;
      if (field == 1) *col_stride = -1;
      t_context("field=%d which=%d", field, which);
      w_expect(w, forward ? W_FORWARDS : W_BACKWARDS, field == 0 ? RMS_E_VERSION : RMS_E_STRIDE);
    }
}

/* Rows whose elements lie apart: strides that follow, that overlap, that overflow; what such rows do not have. */
static void elements_apart(void) {
  world *w = w_fresh();
  w->forward.x.col_stride = W_INNER; /* images of W_INNER pixels */
  w->backward.dx.col_stride = W_INNER;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_OK);
  w->spec.weight_per_inner = 1;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_UNSUPPORTED);
  static const int64_t strides[][4] = {/* outer, inner, col, fits */
                                       {0, 0, W_INNER, 1},
                                       {W_INNER * W_COLS - 1, 1, W_INNER, 0},
                                       {W_INNER * W_COLS, 1, W_INNER, 1},
                                       {1, W_OUTER, W_OUTER * W_INNER, 1},
                                       {1, W_OUTER - 1, W_OUTER * W_INNER, 0},
                                       {1, W_OUTER, W_OUTER, 0},
                                       {2, W_COLS * W_OUTER * 2, 2 * W_OUTER, 1}};
  for (size_t i = 0; i < T_COUNT(strides); i++) {
    w = w_fresh();
    w->forward.x.outer_stride = w->backward.dy.outer_stride = strides[i][0];
    w->forward.x.inner_stride = w->backward.dy.inner_stride = strides[i][1];
    w->forward.x.col_stride = w->backward.dy.col_stride = strides[i][2];
    t_context("i=%zu", i);
    w_expect(w, W_FORWARDS | W_BACKWARDS, strides[i][3] ? RMS_OK : RMS_E_STRIDE);
  }
  w = w_fresh();
  w->forward.x.col_stride = w->backward.dy.col_stride = INT64_MAX / 8;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_SIZE);
}

/* Rows of any width are taken; those for which no memory can be had are refused before anything is written. */
static void wide_elements_apart(void) {
  static float wide[2 * 12801];
  float rstd[2] = {5, 5};
  rms_spec spec = {.cols = 12801, .eps = 1};
  rms_forward_args args = {.outer = 1, .inner = 2, .x = {.data = wide, .dtype = RMS_F32, .col_stride = 2}};
  args.y.data = wide;
  args.y.col_stride = 2;
  args.rstd = rstd;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
  T_CHECK(rstd[0] == 1 && rstd[1] == 1);
#if UINTPTR_MAX == UINT64_MAX
  /* the upper half of all addresses, twice */
  static rms_stat stats;
  spec.cols = ((int64_t)1 << 60) - 1;
  args.inner = 1;
  args.x.data = (const void *)((uintptr_t)1 << 63);
  args.residual = args.x;
  args.y.data = NULL;
  T_EQ_STATUS(RMS_E_MEMORY, rms_forward(&spec, &args, NULL));
  T_EQ_STATUS(RMS_E_MEMORY, rms_stats(&spec, &args, &stats, NULL));
  T_CHECK(rstd[0] == 1 && stats.count == 0);
  rms_backward_args back = {.outer = 1, .inner = 1, .x = args.x, .dy = args.x, .dresidual = args.x};
  back.dy.dtype = RMS_BF16;
  T_EQ_STATUS(RMS_E_MEMORY, rms_backward(&spec, &back, NULL));
#endif
}

/* Arrays of numbers lie at multiples of their size; tensors may lie anywhere. */
static void alignment(void) {
  static int64_t room[9];
  static const int64_t indices[3] = {1, 2, 4};
  for (int which = 0; which < 4; which++) {
    world *w = w_fresh();
    if (which == 0) w->forward.rstd = (char *)w->rstd + 1;
    if (which == 1) w->forward.mean = (char *)w->mean + 2;
    if (which == 2) w->backward.rstd = (char *)w->rstd + 2, w->backward.mean = w->mean;
    if (which == 3) w->backward.rstd = w->rstd, w->backward.mean = (char *)w->mean + 1;
    w_expect(w, which < 2 ? W_FORWARDS : W_BACKWARD, RMS_E_ALIGNMENT);
    w = w_fresh();
    w_set_types(w, RMS_F64, RMS_F64, RMS_F64, RMS_F64);
    if (which == 0) w->forward.rstd = (char *)w->rstd + 4;
    if (which == 1) w->forward.mean = (char *)w->mean + 4;
    if (which == 2) w->backward.rstd = (char *)w->rstd + 4, w->backward.mean = w->mean;
    if (which == 3) w->backward.rstd = w->rstd, w->backward.mean = (char *)w->mean + 4;
    w_expect(w, which < 2 ? W_FORWARDS : W_BACKWARD, RMS_E_ALIGNMENT);
  }
  world *w = w_fresh();
  rms_stat *stats = (rms_stat *)(void *)((char *)w->stats + 4);
  rms_grad_sum *sums = (rms_grad_sum *)(void *)((char *)w->sums + 4);
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_stats(&w->spec, &w->forward, stats, NULL));
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_apply(&w->spec, &w->forward, stats, NULL));
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_backward_stats(&w->spec, &w->backward, w->stats, sums, NULL));
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_backward_stats(&w->spec, &w->backward, stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_backward_apply(&w->spec, &w->backward, w->stats, sums, NULL));
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_stats_merge(&w->spec, 1, stats, w->stats + 4));
  T_EQ_STATUS(RMS_E_ALIGNMENT, rms_stats_merge(&w->spec, 1, w->stats + 4, stats));
  w->spec.kind = RMS_KIND_RMS;
  w->spec.partial = 3;
  memcpy((char *)room + 4, indices, sizeof indices);
  w->spec.indices = (const int64_t *)(const void *)((char *)room + 4);
  refused(w, RMS_E_ALIGNMENT);
}

static void pointers(void) {
  world *w = w_fresh();
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward(NULL, &w->forward, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward(&w->spec, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward(NULL, &w->backward, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward(&w->spec, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats(NULL, &w->forward, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats(&w->spec, NULL, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats(&w->spec, &w->forward, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_apply(NULL, &w->forward, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_apply(&w->spec, NULL, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_apply(&w->spec, &w->forward, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(NULL, &w->backward, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(&w->spec, NULL, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(&w->spec, &w->backward, NULL, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_stats(&w->spec, &w->backward, w->stats, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(NULL, &w->backward, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(&w->spec, NULL, w->stats, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(&w->spec, &w->backward, NULL, w->sums, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_backward_apply(&w->spec, &w->backward, w->stats, NULL, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(NULL, 1, w->stats, w->stats));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(&w->spec, 1, NULL, w->stats));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(&w->spec, 1, w->stats, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_stats_merge(&w->spec, -1, w->stats, w->stats + 1));
  T_EQ_INT(0, rms_backward_workspace(NULL, &w->backward));
  T_EQ_INT(0, rms_backward_workspace(&w->spec, NULL));
  w->forward.x.data = NULL;
  w_expect(w, W_FORWARD | W_STATS | W_APPLY, RMS_E_ARGUMENT);
  w = w_fresh();
  w->forward.y.data = w->forward.rstd = w->forward.mean = NULL;
  w_expect(w, W_FORWARDS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->forward.residual.data = NULL; /* residual_out without residual */
  w_expect(w, W_FORWARDS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.x.data = NULL;
  w_expect(w, W_BACKWARDS | W_BACKWARD_STATS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.dy.data = NULL;
  w_expect(w, W_BACKWARDS | W_BACKWARD_STATS, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.rstd = w->rstd; /* LayerNorm: both or neither */
  w_expect(w, W_BACKWARD, RMS_E_ARGUMENT);
  w = w_fresh();
  w->backward.mean = w->mean;
  w_expect(w, W_BACKWARD, RMS_E_ARGUMENT);
}

static void counts(void) {
  world *w = w_fresh();
  w->forward.outer = w->backward.outer = -1;
  w_expect(w, W_ALL, RMS_E_ARGUMENT);
  w = w_fresh();
  w->forward.inner = w->backward.inner = -1;
  w_expect(w, W_ALL, RMS_E_ARGUMENT);
}

static void accumulate_flags(void) {
  static const int bad[] = {8, 16, -1, 1 << 20};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->backward.accumulate = bad[i];
    w_expect(w, W_BACKWARDS, RMS_E_MODE);
  }
}

/* Strides of each view: negative, or so small that rows overlap. */
static void strides(void) {
  static const int64_t bad[][2] = {{-16, 8}, {16, -8}, {0, -1}, {-1, 0}, {15, 8}, {16, 7}, {8, 8}, {1, 8}, {3, 0}};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    for (int which = 0; which < 4; which++) {
      world *w = w_fresh();
      if (which == 0) w->forward.x = (rms_const_view){w->x, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 1) w->forward.residual = (rms_const_view){w->residual, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 2) w->forward.y = (rms_view){w->y, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 3) w->forward.residual_out = (rms_view){w->residual_out, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      w_expect(w, W_FORWARDS | (which < 2 ? W_STATS : 0), RMS_E_STRIDE);
    }
    for (int which = 0; which < 5; which++) {
      world *w = w_fresh();
      if (which == 0) w->backward.dy = (rms_const_view){w->dy, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 1) w->backward.x = (rms_const_view){w->x, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 2) w->backward.dresidual = (rms_const_view){w->dresidual, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 3) w->backward.dx = (rms_view){w->dx, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      if (which == 4) w->backward.dresidual_out = (rms_view){w->dresidual_out, RMS_F32, 0, bad[i][0], bad[i][1], 0};
      w_expect(w, W_BACKWARDS | (which < 2 ? W_BACKWARD_STATS : 0), RMS_E_STRIDE);
    }
  }
}

/* Products and sums that leave 64 bits are refused before any address is formed. */
static void sizes(void) {
  world *w = w_fresh();
  w->spec.cols = INT64_MAX;
  refused(w, RMS_E_SIZE);
  w = w_fresh();
  w->forward.outer = w->backward.outer = INT64_MAX;
  refused(w, RMS_E_SIZE);
  w = w_fresh();
  w->forward.inner = w->backward.inner = INT64_MAX / 4;
  refused(w, RMS_E_SIZE);
  w = w_fresh();
  w->forward.x.outer_stride = w->backward.dy.outer_stride = INT64_MAX / 2;
  w_expect(w, W_ALL, RMS_E_SIZE);
  w = w_fresh();
  w->forward.y.inner_stride = w->backward.dx.inner_stride = INT64_MAX / 4; /* fits alone, not with the rest */
  w->forward.y.outer_stride = w->backward.dx.outer_stride = 8;
  w_expect(w, W_FORWARDS | W_BACKWARDS, RMS_E_SIZE);
}

static void run_serially(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  for (int64_t i = 0; i < tasks; i++)
    task(arg, i);
}

static void executors(void) {
  static const rms_executor bad[] = {{NULL, 2, NULL}, {NULL, 0, run_serially}, {NULL, -1, run_serially}};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    world *w = w_fresh();
    w->executor = &bad[i];
    w_expect(w, W_ALL, RMS_E_EXECUTOR);
  }
  static const rms_executor good = {NULL, 1, run_serially};
  world *w = w_fresh();
  w->executor = &good;
  w_expect(w, W_ALL, RMS_OK);
}

static void workspace(void) {
  world *w = w_fresh();
  size_t need = rms_backward_workspace(&w->spec, &w->backward);
  w->backward.workspace_bytes = need;
  w_expect(w, W_BACKWARDS, RMS_OK);
  w = w_fresh();
  w->backward.workspace_bytes = need - 1;
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  w->backward.workspace_bytes = 0;
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  for (int by = 1; by < 64; by += by < 8 ? 1 : 8) {
    w = w_fresh();
    w->backward.workspace = w->workspace + by;
    w->backward.workspace_bytes = sizeof w->workspace - 64;
    w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  }
  w = w_fresh();
  w->backward.workspace = NULL;
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  w->backward.dweight = NULL; /* dbias alone needs it too */
  w_expect(w, W_BACKWARDS, RMS_E_WORKSPACE);
  w->backward.dbias = NULL;
  w->backward.workspace_bytes = 0;
  w_expect(w, W_BACKWARDS, RMS_OK);
  T_EQ_INT(0, rms_backward_workspace(&w->spec, &w->backward));
  /* The call's own needs: half of it for one of the two sums; overlapping tensors do not matter to the question. */
  w = w_fresh();
  w->backward.dweight = NULL;
  T_EQ_INT((int64_t)need, (int64_t)(2 * rms_backward_workspace(&w->spec, &w->backward)));
  w = w_fresh();
  w->backward.dbias = w->backward.dweight = w->backward.dx.data = w->x;
  T_EQ_INT((int64_t)need, (int64_t)rms_backward_workspace(&w->spec, &w->backward));
  /* Bounded: more rows do not need more and more. */
  w = w_fresh();
  w->spec.cols = 4096;
  w->backward.outer = 100000;
  size_t few = rms_backward_workspace(&w->spec, &w->backward);
  w->backward.outer = INT64_C(1) << 30;
  size_t many = rms_backward_workspace(&w->spec, &w->backward);
  T_CHECK(few > 0 && many > 0 && many <= 2 * few);
  /* No number of rows makes the sizes wrap. */
  w->backward.outer = INT64_MAX;
  T_EQ_INT(0, rms_backward_workspace(&w->spec, &w->backward));
  w->backward.outer = 0;
  T_EQ_INT(0, rms_backward_workspace(&w->spec, &w->backward));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"legal", legal},
                                 {"spec_numbers", spec_numbers},
                                 {"spec_partial", spec_partial},
                                 {"spec_enums", spec_enums},
                                 {"steps", steps},
                                 {"gates", gates},
                                 {"dtypes", dtypes},
                                 {"as_x", as_x},
                                 {"unequal_types", unequal_types},
                                 {"sum_says_nothing", sum_says_nothing},
                                 {"own_y_types", own_y_types},
                                 {"no_y", no_y},
                                 {"weight_strides", weight_strides},
                                 {"drstd", drstd},
                                 {"views", views},
                                 {"elements_apart", elements_apart},
                                 {"wide_elements_apart", wide_elements_apart},
                                 {"alignment", alignment},
                                 {"pointers", pointers},
                                 {"counts", counts},
                                 {"accumulate_flags", accumulate_flags},
                                 {"strides", strides},
                                 {"sizes", sizes},
                                 {"executors", executors},
                                 {"workspace", workspace}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
