/* SPDX-License-Identifier: MIT */
#include "check.h"
#include <stddef.h>
#include <string.h>

#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    rms_status status_ = (call);                                                                                       \
    if (status_) return status_;                                                                                       \
  } while (0)

/* ---- types ---- */

static bool is_dtype(int32_t t) {
  return t >= RMS_F32 && t <= RMS_F16;
}

/* Of a checked type. */
static int64_t size_of(rms_dtype t) {
  static const unsigned char size[] = {0, 4, 8, 2, 2};
  return size[t];
}

/* The types of a call. as_x is what RMS_AS_X stands for; RMS_AS_X itself where it stands for nothing. */
typedef struct {
  rms_dtype data, as_x, residual, weight;
} types;

/* T itself or f32. */
static rms_status check_wide_or_same(const types *t, int32_t given, rms_dtype *type) {
  rms_dtype own = given == RMS_AS_X ? t->as_x : (rms_dtype)given;
  if (own != t->data && own != RMS_F32) return RMS_E_DTYPE;
  *type = own;
  return RMS_OK;
}

static rms_status check_same(const types *t, const rms_const_view *v) {
  rms_dtype own = v->dtype == RMS_AS_X ? t->as_x : (rms_dtype)v->dtype;
  return !v->data || own == t->data ? RMS_OK : RMS_E_DTYPE;
}

/* A tensor of the residual stream: T, or f32 beside 16-bit data. All of a call have one type. */
static rms_status check_residual(types *t, const rms_const_view *v, bool *known) {
  rms_dtype type;
  if (!v->data) return RMS_OK;
  TRY(check_wide_or_same(t, v->dtype, &type));
  if ((*known && type != t->residual) || (type != t->data && t->data == RMS_F64)) return RMS_E_DTYPE;
  t->residual = type;
  *known = true;
  return RMS_OK;
}

/* A weight that is absent has a type too: it decides how products are rounded. */
static rms_status check_weight(types *t, const void *weight, int32_t given) {
  if (!weight && given == RMS_AS_X) given = (int32_t)t->data;
  return check_wide_or_same(t, given, &t->weight);
}

/* ---- the spec ---- */

static bool misaligned(const void *p, size_t size) {
  return (uintptr_t)p % size != 0;
}

static rms_status check_partial(const rms_spec *spec, int flags, int64_t width) {
  int64_t k = spec->partial;
  if (k == 0) return spec->indices ? RMS_E_PARTIAL : RMS_OK;
  if (spec->kind != RMS_KIND_RMS) return RMS_E_PARTIAL;
  if ((flags & RMS_CHECK_SPLIT) && k == RMS_PARTIAL_NONE) return spec->indices ? RMS_E_PARTIAL : RMS_OK;
  if (k < 1 || k > width) return RMS_E_PARTIAL;
  if (!spec->indices || (flags & RMS_CHECK_DEVICE)) return RMS_OK;
  if (misaligned(spec->indices, sizeof(int64_t))) return RMS_E_ALIGNMENT; /* before they are read */
  for (int64_t i = 0, last = -1; i < k; last = spec->indices[i++])
    if (spec->indices[i] <= last || spec->indices[i] >= width) return RMS_E_PARTIAL;
  return RMS_OK;
}

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Numbers are compared by their bits: whatever the caller's floating-point settings are, a NaN raises nothing and a
 * subnormal is not a zero. Without its sign, the bits of a NaN are above those of every number. */
static bool exceeds(double value, double limit) {
  return bits_of(value) << 1 > bits_of(limit) << 1;
}

static bool is_below_zero(double value) {
  return bits_of(value) > bits_of(-0.0);
}

rms_status rms_check_spec(const rms_spec *spec, rms_dtype dtype, int flags, rms_layout *lay) {
  /* eps and the offset in the arithmetic of the data: they may vanish there, but not become infinite */
  const double limit = dtype == RMS_F64 ? 1.7976931348623157e308 : 3.4028234663852886e38;
  if (spec->kind != RMS_KIND_RMS && spec->kind != RMS_KIND_LAYER) return RMS_E_KIND;
  if (spec->cols < 1) return RMS_E_COLS;
  if (is_below_zero(spec->eps) || exceeds(spec->eps, limit)) return RMS_E_EPS;
  if (spec->groups < 0 || (spec->groups > 1 && spec->cols % spec->groups)) return RMS_E_GROUPS;
  int64_t groups = spec->groups ? spec->groups : 1;
  int64_t width = groups > 1 ? spec->cols / groups : spec->cols;
  if (spec->partial || spec->indices) TRY(check_partial(spec, flags, width));
  if (spec->eps_place != RMS_EPS_INSIDE && spec->eps_place != RMS_EPS_OUTSIDE) return RMS_E_MODE;
  if (spec->rounding != RMS_ROUND_AFTER_WEIGHT && spec->rounding != RMS_ROUND_BEFORE_WEIGHT) return RMS_E_MODE;
  if (exceeds(spec->weight_offset, limit)) return RMS_E_MODE;
  if (spec->weight_per_inner != 0 && spec->weight_per_inner != 1) return RMS_E_MODE;

  lay->groups = groups;
  lay->width = width;
  lay->k = spec->partial == RMS_PARTIAL_NONE ? 0 : spec->partial ? spec->partial : lay->width;
  lay->indices = spec->indices;
  lay->eps = spec->eps;
  lay->offset = spec->weight_offset;
  lay->dtype = dtype;
  lay->kind = (rms_kind)spec->kind;
  lay->eps_place = (rms_eps_place)spec->eps_place;
  lay->rounding = (rms_rounding)spec->rounding;
  lay->per_inner = spec->weight_per_inner == 1;
  return RMS_OK;
}

/* ---- rows and strides ---- */

/* One tensor of the call: its rows, and the bytes it spans from its first to behind its last. */
typedef struct {
  rms_rows rows;
  int64_t row_bytes, span;
} tensor;

typedef struct {
  int64_t outer, inner, cols;
} shape;

static int mul_overflows(int64_t a, int64_t b, int64_t *out) {
  return __builtin_mul_overflow(a, b, out);
}

static rms_status resolve_given(const shape *n, const rms_const_view *v, int64_t size, tensor *t) {
  int64_t inner_span, outer_span, outer_stride = v->outer_stride, inner_stride = v->inner_stride;
  t->rows.data = (char *)(uintptr_t)v->data;
  t->span = 0;
  if (v->reserved != 0) return RMS_E_VERSION;
  if (v->col_stride != 0 && v->col_stride != 1) return RMS_E_UNSUPPORTED;
  if (outer_stride < 0 || inner_stride < 0) return RMS_E_STRIDE;
  if (inner_stride == 0) inner_stride = n->cols;
  if (outer_stride == 0 && mul_overflows(n->inner, inner_stride, &outer_stride)) return RMS_E_SIZE;
  if (mul_overflows(n->cols, size, &t->row_bytes)) return RMS_E_SIZE;
  if (mul_overflows(inner_stride, size, &t->rows.inner)) return RMS_E_SIZE;
  if (mul_overflows(outer_stride, size, &t->rows.outer)) return RMS_E_SIZE;
  if (n->outer == 0) return RMS_OK;
  if (mul_overflows(n->inner - 1, t->rows.inner, &inner_span)) return RMS_E_SIZE;
  if (mul_overflows(n->outer - 1, t->rows.outer, &outer_span)) return RMS_E_SIZE;
  if (__builtin_add_overflow(inner_span, outer_span, &t->span)) return RMS_E_SIZE;
  if (__builtin_add_overflow(t->span, t->row_bytes, &t->span)) return RMS_E_SIZE;
  if (t->span > (int64_t)PTRDIFF_MAX) return RMS_E_SIZE;
  /* Rows must not overlap: the smaller of the two strides steps over a row, the larger over all its steps. */
  int outer_first = n->outer > 1 && (n->inner == 1 || t->rows.outer < t->rows.inner);
  int64_t small = outer_first ? t->rows.outer : t->rows.inner, steps = outer_first ? outer_span : inner_span;
  int64_t large = outer_first ? t->rows.inner : t->rows.outer;
  if ((outer_first ? n->outer : n->inner) > 1 && small < t->row_bytes) return RMS_E_STRIDE;
  if ((outer_first ? n->inner : n->outer) > 1 && large - t->row_bytes < steps) return RMS_E_STRIDE;
  return RMS_OK;
}

static inline rms_status resolve(const shape *n, const rms_const_view *v, int64_t size, tensor *t) {
  static const tensor absent;
  if (v->data) return resolve_given(n, v, size, t);
  *t = absent;
  return RMS_OK;
}

/* ---- aliasing ---- */

static int spans_touch(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
  return p < q + (uintptr_t)b_bytes && q < p + (uintptr_t)a_bytes;
}

/* Whether two tensors of rows with the same strides have rows that touch: rows of one start d bytes after rows of the
 * other, plus any i*large + h*small; only the steps next to the one that cancels d matter. */
static int rows_touch(const shape *n, const tensor *a, const tensor *b) {
  int outer_large = n->inner == 1 || (n->outer > 1 && a->rows.outer >= a->rows.inner);
  int64_t large = outer_large ? a->rows.outer : a->rows.inner, small = outer_large ? a->rows.inner : a->rows.outer;
  int64_t i_most = (outer_large ? n->outer : n->inner) - 1, h_most = (outer_large ? n->inner : n->outer) - 1;
  int64_t d = (int64_t)((uintptr_t)b->rows.data - (uintptr_t)a->rows.data);
  int64_t i_near = i_most ? -d / large : 0;
  for (int64_t i = i_near - 1; i <= i_near + 1; i++) {
    if (i < -i_most || i > i_most) continue;
    int64_t rest = d + i * large, h_near = h_most ? -rest / small : 0;
    for (int64_t h = h_near - 1; h <= h_near + 1; h++) {
      if (h < -h_most || h > h_most) continue;
      int64_t gap = rest + h * small;
      if (gap > -b->row_bytes && gap < a->row_bytes) return 1;
    }
  }
  return 0;
}

static int same_rows(const tensor *a, const tensor *b) {
  return a->rows.data == b->rows.data && a->rows.outer == b->rows.outer && a->rows.inner == b->rows.inner &&
         a->row_bytes == b->row_bytes;
}

/* An output against another tensor of rows. in_place: it may be exactly that tensor. */
static int rows_clash(const shape *n, const tensor *out, const tensor *other, int in_place) {
  if (!out->rows.data || !other->rows.data) return 0;
  if (!spans_touch(out->rows.data, out->span, other->rows.data, other->span)) return 0;
  if (same_rows(out, other)) return !in_place;
  if (out->rows.outer == other->rows.outer && out->rows.inner == other->rows.inner) return rows_touch(n, out, other);
  return 1;
}

/* An array beside the tensors. */
typedef struct {
  const void *data;
  int64_t bytes;
} array;

static void list(array *arrays, int *count, const void *data, int64_t bytes) {
  if (!data) return;
  arrays[*count].data = data;
  arrays[(*count)++].bytes = bytes;
}

static int array_clash(const void *out, int64_t bytes, const array *others, int count) {
  for (int i = 0; i < count; i++)
    if (spans_touch(out, bytes, others[i].data, others[i].bytes)) return 1;
  return 0;
}

/* Outputs against everything else: rows against rows, rows against arrays, arrays against arrays. */
static rms_status check_alias(const shape *n, const tensor *inputs, int input_count, const tensor *outputs,
                              int output_count, const array *in_arrays, int in_count, const array *out_arrays,
                              int out_count) {
  for (int o = 0; o < output_count; o++) {
    const tensor *out = &outputs[o];
    if (!out->rows.data) continue;
    for (int i = 0; i < input_count; i++)
      if (rows_clash(n, out, &inputs[i], 1)) return RMS_E_ALIAS;
    for (int i = o + 1; i < output_count; i++)
      if (rows_clash(n, out, &outputs[i], 0)) return RMS_E_ALIAS;
    if (array_clash(out->rows.data, out->span, in_arrays, in_count)) return RMS_E_ALIAS;
    if (array_clash(out->rows.data, out->span, out_arrays, out_count)) return RMS_E_ALIAS;
  }
  for (int o = 0; o < out_count; o++) {
    for (int i = 0; i < input_count; i++)
      if (inputs[i].rows.data &&
          spans_touch(out_arrays[o].data, out_arrays[o].bytes, inputs[i].rows.data, inputs[i].span))
        return RMS_E_ALIAS;
    if (array_clash(out_arrays[o].data, out_arrays[o].bytes, in_arrays, in_count)) return RMS_E_ALIAS;
    if (array_clash(out_arrays[o].data, out_arrays[o].bytes, out_arrays + o + 1, out_count - o - 1)) return RMS_E_ALIAS;
  }
  return RMS_OK;
}

/* ---- whole calls ---- */

/* An output as an input: what is checked of both is the same. */
static rms_const_view seen(const rms_view *v) {
  rms_const_view w = {v->data, v->dtype, v->reserved, v->outer_stride, v->inner_stride, v->col_stride};
  return w;
}

static const rms_const_view nothing;

static rms_status check_shape(const rms_spec *spec, int64_t outer, int64_t inner, const rms_layout *lay, shape *n,
                              int64_t *segments, int64_t *weights) {
  if (outer < 0 || inner < 0) return RMS_E_ARGUMENT;
  n->outer = outer;
  n->inner = inner ? inner : 1;
  n->cols = spec->cols;
  if (mul_overflows(n->outer, n->inner, segments) || mul_overflows(*segments, lay->groups, segments)) return RMS_E_SIZE;
  if (mul_overflows(spec->weight_per_inner ? n->inner : 1, spec->cols, weights)) return RMS_E_SIZE;
  int64_t bytes;
  if (mul_overflows(*segments, (int64_t)sizeof(rms_stat), &bytes) || mul_overflows(*weights, 8, &bytes))
    return RMS_E_SIZE;
  return RMS_OK;
}

static void place(const types *t, const rms_spec *spec, const void *weight, int64_t inner, rms_layout *lay) {
  lay->inner = inner;
  lay->weight_is_f32 = t->weight != t->data;
  lay->residual_is_f32 = t->residual != t->data;
  lay->weight = weight;
  lay->weight_inner = spec->weight_per_inner ? spec->cols * size_of(t->weight) : 0;
}

/* The arrays of numbers that are read and written as such; tensors may lie anywhere. */
static rms_status check_alignment(const rms_spec *spec, const void *rstd, const void *mean, int64_t stat_size,
                                  const void *stats, const void *sums) {
  bool wrong = misaligned(rstd, (size_t)stat_size) || misaligned(mean, (size_t)stat_size) ||
               misaligned(spec->indices, sizeof(int64_t)) || misaligned(stats, sizeof(double)) ||
               misaligned(sums, sizeof(double));
  return wrong ? RMS_E_ALIGNMENT : RMS_OK;
}

/* ---- forward ---- */

/* Strides of rows that follow each other, spelled out or not; inner is 1. */
static bool dense(int64_t outer_stride, int64_t inner_stride, int64_t cols) {
  return (outer_stride == 0 || outer_stride == cols) && (inner_stride == 0 || inner_stride == cols);
}

int64_t rms_check_common_forward(const rms_spec *spec, const rms_forward_args *args) {
  const int64_t limit = 1 << 24; /* no product of sizes below it overflows */
  const uint64_t one = 0x3ff0000000000000u;
  int32_t t = args->x.dtype, w = args->weight_dtype;
  uint32_t modes = (uint32_t)(spec->kind | spec->eps_place | spec->rounding | spec->weight_per_inner |
                              args->x.reserved | args->y.reserved);
  uint64_t unusual =
      modes | (uint64_t)spec->partial | (uintptr_t)spec->indices | bits_of(spec->weight_offset) |
      (((uint64_t)spec->groups | (uint64_t)args->inner | (uint64_t)args->x.col_stride | (uint64_t)args->y.col_stride) &
       ~1ull) |
      (uintptr_t)args->residual.data | (uintptr_t)args->residual_out.data | (uintptr_t)args->bias |
      (uintptr_t)args->rstd | (uintptr_t)args->mean;
  if (unusual || !is_dtype(t)) return 0;
  if ((args->y.dtype != t && args->y.dtype != RMS_AS_X) || (w != t && w != RMS_F32 && w != RMS_AS_X)) return 0;
  if (!dense(args->x.outer_stride, args->x.inner_stride, spec->cols) ||
      !dense(args->y.outer_stride, args->y.inner_stride, spec->cols))
    return 0;
  if ((uint64_t)spec->cols - 1 >= (uint64_t)limit || (uint64_t)args->outer - 1 >= (uint64_t)limit) return 0;
  /* the bits of -0, of numbers below zero and of NaN are above those of 1 */
  if (bits_of(spec->eps) > one || !args->x.data || !args->y.data) return 0;
  int64_t bytes = args->outer * spec->cols * size_of((rms_dtype)t);
  if (args->y.data != args->x.data && spans_touch(args->y.data, bytes, args->x.data, bytes)) return 0;
  /* 8 bytes an element: no weight takes more */
  if (args->weight && spans_touch(args->y.data, bytes, args->weight, spec->cols * 8)) return 0;
  return bytes;
}

/* Member by member: compilers clear a struct of this size by a string instruction that costs more than all the rest. */
void rms_fill_common_forward(const rms_spec *spec, const rms_forward_args *args, rms_forward_job *job) {
  rms_dtype dtype = (rms_dtype)args->x.dtype;
  job->lay.indices = NULL;
  job->lay.offset = 0;
  job->lay.dtype = dtype;
  job->lay.kind = RMS_KIND_RMS;
  job->lay.eps_place = RMS_EPS_INSIDE;
  job->lay.rounding = RMS_ROUND_AFTER_WEIGHT;
  job->lay.residual_is_f32 = job->lay.per_inner = false;
  job->lay.weight_inner = 0;
  job->residual.data = job->residual_out.data = NULL;
  job->bias = NULL;
  job->rstd = job->mean = NULL;
  job->stats_in = NULL;
  job->stats_out = NULL;
  job->fetch_ahead = job->large_batches = job->stream_y = job->stream_residual = false;
  job->lay.inner = job->lay.groups = 1;
  job->lay.width = job->lay.k = spec->cols;
  job->lay.eps = spec->eps;
  job->lay.weight_is_f32 = args->weight_dtype != RMS_AS_X && args->weight_dtype != args->x.dtype;
  job->lay.weight = args->weight;
  job->x.data = (char *)(uintptr_t)args->x.data;
  job->y.data = args->y.data;
  job->x.outer = job->x.inner = job->y.outer = job->y.inner = spec->cols * size_of(dtype);
}

static rms_status check_forward_types(const rms_forward_args *args, const rms_const_view *y,
                                      const rms_const_view *residual_out, types *t) {
  bool known = false;
  if (!is_dtype(args->x.dtype)) return RMS_E_DTYPE;
  t->data = t->as_x = t->residual = (rms_dtype)args->x.dtype;
  TRY(check_same(t, y));
  TRY(check_residual(t, &args->residual, &known));
  TRY(check_residual(t, residual_out, &known));
  TRY(check_weight(t, args->weight, args->weight_dtype));
  if (args->bias) {
    rms_dtype bias;
    TRY(check_wide_or_same(t, args->bias_dtype, &bias));
    if (!args->weight) t->weight = bias;
    if (bias != t->weight) return RMS_E_DTYPE;
  }
  return RMS_OK;
}

rms_status rms_check_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                             rms_stat *stats_out, rms_forward_job *job, int64_t *segments) {
  shape n;
  types t;
  int64_t weights;
  bool stats = flags & RMS_CHECK_STATS;
  const rms_const_view y = stats ? nothing : seen(&args->y);
  const rms_const_view residual_out = stats ? nothing : seen(&args->residual_out);
  const void *rstd = stats ? NULL : args->rstd, *mean = stats ? NULL : args->mean;
  TRY(check_forward_types(args, &y, &residual_out, &t));
  TRY(rms_check_spec(spec, t.data, flags, &job->lay));
  TRY(check_shape(spec, args->outer, args->inner, &job->lay, &n, segments, &weights));
  if (n.outer > 0) {
    if (!args->x.data || (!stats && !y.data)) return RMS_E_ARGUMENT;
    if (residual_out.data && !args->residual.data) return RMS_E_ARGUMENT;
  }

  int64_t stat_size = t.data == RMS_F64 ? 8 : 4, weight_bytes = weights * size_of(t.weight);
  tensor in[2], out[2];
  TRY(check_alignment(spec, rstd, mean, stat_size, stats_in ? stats_in : stats_out, NULL));
  TRY(resolve(&n, &args->x, size_of(t.data), &in[0]));
  TRY(resolve(&n, &args->residual, size_of(t.residual), &in[1]));
  TRY(resolve(&n, &y, size_of(t.data), &out[0]));
  TRY(resolve(&n, &residual_out, size_of(t.residual), &out[1]));
  if (n.outer > 0) {
    int64_t split_bytes = *segments * (int64_t)sizeof(rms_stat);
    array given[4], made[3];
    int givens = 0, mades = 0;
    list(given, &givens, args->weight, weight_bytes);
    list(given, &givens, args->bias, weight_bytes);
    list(given, &givens, spec->indices, spec->partial * (int64_t)sizeof(int64_t));
    list(given, &givens, stats_in, split_bytes);
    list(made, &mades, rstd, *segments * stat_size);
    list(made, &mades, mean, *segments * stat_size);
    list(made, &mades, stats_out, split_bytes);
    TRY(check_alias(&n, in, 2, out, 2, given, givens, made, mades));
  }
  place(&t, spec, args->weight, n.inner, &job->lay);
  job->x = in[0].rows;
  job->residual = in[1].rows;
  job->y = out[0].rows;
  job->residual_out = out[1].rows;
  job->bias = args->bias;
  job->rstd = args->rstd;
  job->mean = args->mean;
  job->stats_in = stats_in;
  job->stats_out = stats_out;
  job->fetch_ahead = job->large_batches = job->stream_y = job->stream_residual = false;
  return RMS_OK;
}

/* ---- backward ---- */

static rms_status check_backward_types(const rms_backward_args *args, const rms_const_view *dx,
                                       const rms_const_view *dresidual_out, bool stats, types *t, rms_dtype *dweight,
                                       rms_dtype *dbias) {
  bool known = false;
  if (!is_dtype(args->x.dtype)) return RMS_E_DTYPE;
  t->data = t->as_x = (rms_dtype)(args->dy.dtype == RMS_AS_X ? args->x.dtype : args->dy.dtype);
  if (!is_dtype((int32_t)t->data)) return RMS_E_DTYPE;
  t->residual = t->data;
  if ((rms_dtype)args->x.dtype != t->data) { /* a sum in f32 beside 16-bit data */
    if (args->x.dtype != RMS_F32 || t->data == RMS_F64) return RMS_E_DTYPE;
    t->as_x = RMS_AS_X;
    t->residual = RMS_F32;
    known = true;
  }
  TRY(check_same(t, dx));
  TRY(check_residual(t, &args->dresidual, &known));
  TRY(check_residual(t, dresidual_out, &known));
  TRY(check_weight(t, args->weight, args->weight_dtype));
  *dweight = *dbias = t->data;
  if (!stats && args->dweight) TRY(check_wide_or_same(t, args->dweight_dtype, dweight));
  if (!stats && args->dbias) TRY(check_wide_or_same(t, args->dbias_dtype, dbias));
  return RMS_OK;
}

static rms_status check_backward_given(const rms_spec *spec, const rms_backward_args *args, int flags) {
  const int all = RMS_ACCUMULATE_DX | RMS_ACCUMULATE_DWEIGHT | RMS_ACCUMULATE_DBIAS;
  bool stats = flags & RMS_CHECK_STATS, split = flags & RMS_CHECK_SPLIT;
  if (args->accumulate & ~all) return RMS_E_MODE;
  if (!split && spec->kind == RMS_KIND_LAYER && !args->rstd != !args->mean) return RMS_E_ARGUMENT;
  if (args->outer > 0) {
    if (!args->dy.data || !args->x.data) return RMS_E_ARGUMENT;
    if (!stats && (args->accumulate & RMS_ACCUMULATE_DX) && !args->dx.data) return RMS_E_ARGUMENT;
  }
  return RMS_OK;
}

rms_status rms_check_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                              const rms_grad_sum *sums_in, rms_grad_sum *sums_out, rms_backward_job *job,
                              int64_t *segments) {
  shape n;
  types t;
  int64_t weights;
  bool stats = flags & RMS_CHECK_STATS, split = flags & RMS_CHECK_SPLIT;
  const rms_const_view dx = stats ? nothing : seen(&args->dx);
  const rms_const_view dresidual_out = stats ? nothing : seen(&args->dresidual_out);
  const void *rstd = split ? NULL : args->rstd;
  const void *mean = split || spec->kind != RMS_KIND_LAYER ? NULL : args->mean;
  TRY(check_backward_types(args, &dx, &dresidual_out, stats, &t, &job->dweight_type, &job->dbias_type));
  TRY(rms_check_spec(spec, t.data, flags, &job->lay));
  TRY(check_shape(spec, args->outer, args->inner, &job->lay, &n, segments, &weights));
  TRY(check_backward_given(spec, args, flags));

  int64_t stat_size = t.data == RMS_F64 ? 8 : 4;
  tensor in[3], out[2];
  TRY(check_alignment(spec, rstd, mean, stat_size, stats_in, sums_in ? sums_in : sums_out));
  TRY(resolve(&n, &args->dy, size_of(t.data), &in[0]));
  TRY(resolve(&n, &args->x, size_of((rms_dtype)args->x.dtype), &in[1]));
  TRY(resolve(&n, &args->dresidual, size_of(t.residual), &in[2]));
  TRY(resolve(&n, &dx, size_of(t.data), &out[0]));
  TRY(resolve(&n, &dresidual_out, size_of(t.residual), &out[1]));
  if (!(flags & RMS_CHECK_QUERY)) {
    bool wants_sums = !stats && (args->dweight || args->dbias);
    int64_t split_bytes = *segments * (int64_t)sizeof(rms_stat), sums_bytes = *segments * (int64_t)sizeof(rms_grad_sum);
    array given[6], made[4];
    int givens = 0, mades = 0;
    list(given, &givens, args->weight, weights * size_of(t.weight));
    list(given, &givens, rstd, *segments * stat_size);
    list(given, &givens, split ? NULL : args->mean, *segments * stat_size);
    list(given, &givens, spec->indices, spec->partial * (int64_t)sizeof(int64_t));
    list(given, &givens, stats_in, split_bytes);
    list(given, &givens, sums_in, sums_bytes);
    list(made, &mades, stats ? NULL : args->dweight, weights * size_of(job->dweight_type));
    list(made, &mades, stats ? NULL : args->dbias, weights * size_of(job->dbias_type));
    if (n.outer > 0) {
      list(made, &mades, wants_sums ? args->workspace : NULL, (int64_t)args->workspace_bytes);
      list(made, &mades, sums_out, sums_bytes);
      TRY(check_alias(&n, in, 3, out, 2, given, givens, made, mades));
    } else if (mades == 2 && array_clash(made[0].data, made[0].bytes, made + 1, 1)) {
      return RMS_E_ALIAS;
    }
  }
  place(&t, spec, args->weight, n.inner, &job->lay);
  job->dy = in[0].rows;
  job->x = in[1].rows;
  job->dresidual = in[2].rows;
  job->dx = out[0].rows;
  job->dresidual_out = out[1].rows;
  job->x_is_f32 = (rms_dtype)args->x.dtype != t.data;
  job->add_to_dx = (args->accumulate & RMS_ACCUMULATE_DX) != 0;
  job->rstd = rstd;
  job->mean = mean;
  job->stats_in = stats_in;
  job->sums_in = sums_in;
  job->sums_out = sums_out;
  job->pitch = 0;
  job->fetch_ahead = job->large_batches = job->stream_dx = job->stream_residual = false;
  return RMS_OK;
}

rms_status rms_check_workspace(const rms_backward_args *args, int64_t bytes) {
  if (!args->workspace || (uintptr_t)args->workspace % 64) return RMS_E_WORKSPACE;
  return args->workspace_bytes >= (size_t)bytes ? RMS_OK : RMS_E_WORKSPACE;
}
