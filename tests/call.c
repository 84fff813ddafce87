/* SPDX-License-Identifier: MIT
 * Calls: drawing, naming and comparing them. */
#include "call.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Comparing ---- */

int t_same_part(const t_result *expected, const t_result *actual, t_out out, int64_t from) {
  if (!T_CHECK((expected->data[out] == NULL) == (actual->data[out] == NULL))) return 0;
  if (!actual->data[out]) return 1;
  if (!T_EQ_INT(expected->dtype[out], actual->dtype[out])) return 0;
  if (!T_CHECK(from + actual->count[out] <= expected->count[out])) return 0;
  const unsigned char *part = (const unsigned char *)expected->data[out];
  return T_EQ_ELEMENTS(part + (size_t)from * rms_dtype_size(expected->dtype[out]), actual->data[out],
                       expected->dtype[out], actual->count[out]);
}

int t_same(const t_result *expected, const t_result *actual) {
  int same = T_EQ_STATUS(expected->forward, actual->forward);
  same &= T_EQ_STATUS(expected->backward, actual->backward);
  for (int out = 0; out < T_OUT_COUNT; out++) {
    static const char *const names[T_OUT_COUNT] = {"y",       "residual_out", "rstd",  "mean", "dx",   "dresidual_out",
                                                   "dweight", "dbias",        "dgate", "q",    "scale"};
    int equal = t_same_part(expected, actual, (t_out)out, 0);
    if (!equal) fprintf(stderr, "    output: %s\n", names[out]);
    same &= equal;
  }
  return same;
}

uint64_t t_digest(const t_result *result) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (int out = 0; out < T_OUT_COUNT; out++) {
    const unsigned char *p = result->data[out];
    size_t size = result->count[out] ? rms_dtype_size(result->dtype[out]) : 0;
    for (int64_t i = 0; i < result->count[out]; i++, p += size) {
      hash ^= t_element_bits(p, result->dtype[out]);
      hash *= UINT64_C(0x100000001b3);
      hash ^= hash >> 29;
    }
  }
  return hash;
}

/* ---- Drawing ---- */

static int one_in(t_rng *rng, int64_t n) {
  return t_random_below(rng, n) == 0;
}

/* Whether y can have another type than x, and the backward take such a dy. */
static int may_have_own_y(const t_call *call) {
  const verify_spec *spec = &call->spec;
  if (spec->dtype == RMS_F64 || spec->y_dtype == RMS_F64) return 0;
  if (!(call->parts & T_BACKWARD)) return 1;
  if (spec->dtype == RMS_F32) return (call->parts & T_DX) != 0;
  return spec->residual_dtype == spec->dtype || !(call->parts & (T_RESIDUAL | T_DRESIDUAL | T_DRESIDUAL_OUT));
}

/* Options that the steps do not have are dropped, but where a LayerNorm lacks the steps. */
static void repair_steps(verify_spec *spec) {
  if (spec->kind == RMS_KIND_LAYER && spec->steps != RMS_STEPS_ALL) spec->steps = RMS_STEPS_WIDE;
  if (spec->gate_place) spec->steps = RMS_STEPS_WIDE;
  if (spec->steps < RMS_STEPS_RSTD) return;
  if (spec->kind == RMS_KIND_LAYER || spec->steps == RMS_STEPS_RSTD) spec->eps_place = RMS_EPS_INSIDE;
  spec->partial = 0;
}

void t_call_repair(t_call *call) {
  verify_spec *spec = &call->spec;
  int narrow = spec->dtype == RMS_BF16 || spec->dtype == RMS_F16;
  if (spec->weight_dtype != spec->dtype) spec->weight_dtype = RMS_F32;
  if (!narrow || spec->residual_dtype != spec->dtype) spec->residual_dtype = narrow ? RMS_F32 : spec->dtype;
  if (spec->grad_dtype != spec->dtype && spec->grad_dtype != spec->weight_dtype) spec->grad_dtype = RMS_F32;
  if (spec->groups > 1 && spec->cols % spec->groups) spec->groups = 0;
  int64_t width = spec->groups > 1 ? spec->cols / spec->groups : spec->cols;
  repair_steps(spec);
  if (spec->kind == RMS_KIND_LAYER) spec->partial = 0;
  if (spec->partial > width) spec->partial = width;
  if (spec->partial == 0) call->indexed = 0;
  if (!(call->parts & T_RESIDUAL)) call->parts &= ~(unsigned)T_RESIDUAL_OUT;
  if (call->parts & T_RESIDUAL && call->parts & T_BACKWARD) call->parts |= T_RESIDUAL_OUT;
  if (!spec->gate_place) call->parts &= ~(unsigned)T_DGATE;
  if (!(call->parts & (T_DX | T_DRESIDUAL_OUT | T_DWEIGHT | T_DBIAS | T_DGATE))) call->parts |= T_DX;
  if (!(call->parts & T_DX)) call->accumulate &= ~RMS_ACCUMULATE_DX;
  if (!(call->parts & T_DWEIGHT)) call->accumulate &= ~RMS_ACCUMULATE_DWEIGHT;
  if (!(call->parts & T_DBIAS)) call->accumulate &= ~RMS_ACCUMULATE_DBIAS;
  if (!(call->parts & T_SAVE_STATS) && !call->spec.q_dtype) call->parts &= ~(unsigned)T_NO_Y;
  if (!spec->weight_per_inner) call->weight_gap = 0;
  if (!may_have_own_y(call) || spec->y_dtype == spec->dtype) spec->y_dtype = RMS_AS_X;
}

static int64_t draw_cols(t_rng *rng, int64_t most) {
  static const int64_t edges[] = {1, 8, 16, 32, 64, 128, 192, 256, 1000, 1024, 4096};
  int64_t edge = edges[t_random_below(rng, (int64_t)T_COUNT(edges))], near = t_random_below(rng, 3) - 1;
  int64_t any = 1 + t_random_below(rng, 300), cols = one_in(rng, 2) ? any : edge + near;
  return cols < 1 ? 1 : cols > most ? most : cols;
}

t_call t_call_draw(t_rng *rng, int64_t max_elements) {
  static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
  static const double eps[] = {1e-5, 1e-6, 0, 1};
  t_call call = {.seed = t_random(rng)}; /* one number per statement: the order must not depend on the compiler */
  call.data = (t_data)t_random_below(rng, T_DATA_COUNT);
  verify_spec *spec = &call.spec;
  spec->cols = draw_cols(rng, max_elements);
  spec->eps = eps[t_random_below(rng, 4)];
  spec->kind = one_in(rng, 3) ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec->partial = one_in(rng, 3) ? 1 + t_random_below(rng, spec->cols) : 0;
  call.indexed = one_in(rng, 2);
  spec->groups = one_in(rng, 4) ? 1 + t_random_below(rng, 8) : 0;
  spec->weight_offset = one_in(rng, 4) ? 1.0 : 0.0;
  spec->eps_place = one_in(rng, 4) ? RMS_EPS_OUTSIDE : RMS_EPS_INSIDE;
  spec->rounding = one_in(rng, 2) ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
  spec->dtype = dtypes[t_random_below(rng, 4)];
  spec->weight_dtype = one_in(rng, 2) ? spec->dtype : RMS_F32;
  spec->residual_dtype = one_in(rng, 2) ? spec->dtype : RMS_F32;
  spec->grad_dtype = one_in(rng, 2) ? spec->dtype : spec->weight_dtype;
  spec->weight_per_inner = one_in(rng, 4);
  int64_t rows = max_elements / spec->cols;
  call.inner = 1 + t_random_below(rng, rows < 4 ? rows : 4);
  call.outer = 1 + t_random_below(rng, rows / call.inner < 9 ? rows / call.inner : 9);
  call.parts = (unsigned)t_random_below(rng, T_EVERYTHING + 1);
  call.accumulate = one_in(rng, 2) ? (int)t_random_below(rng, 8) : 0;
  spec->gate_place = one_in(rng, 3) ? (rms_gate_place)(RMS_GATE_AFTER + t_random_below(rng, 2)) : RMS_GATE_NONE;
  spec->activation = spec->gate_place && one_in(rng, 2) ? RMS_ACT_SIGMOID : RMS_ACT_SILU;
  if (!one_in(rng, 4)) call.parts |= T_DGATE;
  spec->y_dtype = one_in(rng, 3) ? dtypes[t_random_below(rng, 4)] : RMS_AS_X;
  spec->gain_rounding = one_in(rng, 3) ? RMS_GAIN_AS_WEIGHT : RMS_GAIN_WIDE;
  call.weight_gap = one_in(rng, 2) ? t_random_below(rng, 70) : 0;
  if (one_in(rng, 10)) call.parts |= T_NO_Y;
  if (one_in(rng, 5)) spec->eps_place = RMS_EPS_CLAMP;
  spec->steps = one_in(rng, 2) ? (rms_steps)t_random_below(rng, RMS_STEPS_ALL + 1) : RMS_STEPS_WIDE;
  t_call_repair(&call);
  return call;
}

t_layout t_layout_draw(t_rng *rng) {
  t_layout layout = t_dense;
  if (one_in(rng, 2)) layout.inner_gap = t_random_below(rng, 70);
  if (one_in(rng, 2)) layout.outer_gap = t_random_below(rng, 70);
  layout.inner_major = one_in(rng, 3);
  layout.flush = one_in(rng, 2) ? T_FLUSH_START : T_FLUSH_END;
  if (one_in(rng, 2)) layout.offset = (size_t)t_random_below(rng, 64);
  if (one_in(rng, 3)) layout.in_place = (unsigned)t_random_below(rng, 2048);
  layout.stream_bytes = one_in(rng, 2) ? 0 : INT64_MAX;
  layout.channels_first = one_in(rng, 5);
  if (one_in(rng, 3)) layout.behind = 64 * (size_t)t_random_below(rng, 6);
  return layout;
}

t_call t_call_number(int64_t k, rms_kind kind, rms_dtype dtype, int64_t cols) {
  t_rng rng = {(uint64_t)k * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)cols};
  t_call call = t_call_draw(&rng, 12 * cols);
  call.spec.cols = cols;
  call.spec.kind = kind;
  if (call.spec.partial > 0) call.spec.partial = 1 + t_random_below(&rng, cols);
  call.spec.groups = k % 4 == 3 && cols % 3 == 0 ? 3 : k % 4 == 1 && cols % 2 == 0 ? 2 : 0;
  if (call.spec.dtype != dtype) {
    /* keep each "the data's own type" choice */
    call.spec.weight_dtype = call.spec.weight_dtype == call.spec.dtype ? dtype : RMS_F32;
    call.spec.residual_dtype = call.spec.residual_dtype == call.spec.dtype ? dtype : RMS_F32;
    call.spec.grad_dtype = call.spec.grad_dtype == call.spec.dtype ? dtype : RMS_F32;
    call.spec.dtype = dtype;
  }
  call.parts |= T_BACKWARD;
  if (k % 3 == 0) call.parts |= T_WEIGHT | T_DX | T_DWEIGHT;
  if (k % 3 == 1) call.data = T_NORMAL;
  call.outer = 1 + k % 3;
  call.inner = 1 + k % 2;
  t_call_repair(&call);
  return call;
}

void t_call_quantise(t_call *call, int64_t k) {
  static const rms_dtype types[] = {RMS_I8, RMS_F8E4M3, RMS_F8E5M2, RMS_Q8_0};
  static const double least[] = {0, 0, 0x1p-10, 1e-30};
  verify_spec *spec = &call->spec;
  int64_t width = spec->groups > 1 ? spec->cols / spec->groups : spec->cols, block = width;
  if (spec->dtype == RMS_F64) return;
  spec->q_dtype = types[k % 4];
  spec->scale_least = least[k / 4 % 4];
  if (k / 3 % 3 == 1) block = 0;
  if (k / 3 % 3 == 2)
    for (block = k % 100 < width ? 1 + k % 100 : width; width % block;)
      block++;
  if (spec->q_dtype == RMS_Q8_0 && width % 32 == 0)
    block = 0;
  else if (spec->q_dtype == RMS_Q8_0)
    spec->q_dtype = RMS_I8;
  spec->scale_block = block;
  if (k / 2 % 2) call->parts |= T_NO_Y;
}

/* ---- Naming ---- */

static const char *dtype_name(rms_dtype dtype) {
  static const char *const names[] = {"as x", "f32", "f64", "bf16", "f16"};
  return (unsigned)dtype < T_COUNT(names) ? names[dtype] : "?";
}

const char *t_describe(const t_call *call, const t_layout *layout) {
  static _Thread_local char text[480];
  const verify_spec *s = &call->spec;
  const char *isa = rms_isa_active();
  snprintf(text, sizeof text,
           "isa=%s kind=%d %s %" PRId64 "x%" PRId64 "x%" PRId64 " first=%" PRId64 " eps=%g@%d partial=%" PRId64
           "%s groups=%" PRId64
           " offset=%g round=%d steps=%d gate=%d,%d y=%s weight=%s residual=%s grad=%s gain=%d per_inner=%d+%" PRId64
           " parts=0x%x "
           "accumulate=%d q=%d,%" PRId64 ",%g data=%d seed=%" PRIu64 " | gaps %" PRId64 ",%" PRId64
           " major=%d channels_first=%d flush=%d+%zu+%zu in_place=0x%x split=%d stream=%" PRId64,
           isa ? isa : "none", (int)s->kind, dtype_name(s->dtype), call->outer, call->inner, s->cols, call->first_outer,
           s->eps, (int)s->eps_place, s->partial, call->indexed ? " indexed" : "", s->groups, s->weight_offset,
           (int)s->rounding, (int)s->steps, (int)s->gate_place, (int)s->activation, dtype_name(s->y_dtype),
           dtype_name(s->weight_dtype), dtype_name(s->residual_dtype), dtype_name(s->grad_dtype), (int)s->gain_rounding,
           s->weight_per_inner, call->weight_gap, call->parts, call->accumulate, (int)s->q_dtype, s->scale_block,
           s->scale_least, (int)call->data, call->seed, layout->outer_gap, layout->inner_gap, layout->inner_major,
           layout->channels_first, (int)layout->flush, layout->offset, layout->behind, layout->in_place, layout->split,
           layout->stream_bytes);
  return text;
}
