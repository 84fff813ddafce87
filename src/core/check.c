/* SPDX-License-Identifier: MIT */
#include "check.h"
#include <stddef.h>
#include "apart.h"
#include "check_types.h"
#include "operands.h"
#include "quantise.h"

#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    rms_status status_ = (call);                                                                                       \
    if (status_) return status_;                                                                                       \
  } while (0)

/* ---- types ---- */

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

/* A bias has the type of the weight; where there is no weight, the weight's type is the bias's. */
static rms_status check_bias(types *t, const void *weight, const void *bias, int32_t given) {
  rms_dtype type;
  if (!bias) return RMS_OK;
  TRY(check_wide_or_same(t, given, &type));
  if (!weight) t->weight = type;
  return type == t->weight ? RMS_OK : RMS_E_DTYPE;
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
  if (misaligned(spec->indices, sizeof(int64_t))) return RMS_E_ALIGNMENT; /* before they are read */
  if (!spec->indices || (flags & RMS_CHECK_DEVICE)) return RMS_OK;
  for (int64_t i = 0, last = -1; i < k; last = spec->indices[i++])
    if (spec->indices[i] <= last || spec->indices[i] >= width) return RMS_E_PARTIAL;
  return RMS_OK;
}

/* Numbers are compared by their bits: whatever the caller's floating-point settings are, a NaN raises nothing and a
 * subnormal is not a zero. Without its sign, the bits of a NaN are above those of every number. */
static bool exceeds(double value, double limit) {
  return rms_bits_of(value) << 1 > rms_bits_of(limit) << 1;
}

static bool is_below_zero(double value) {
  return rms_bits_of(value) > rms_bits_of(-0.0);
}

/* The forms that round where others do not, of which each has what its models have. */
static rms_status check_steps(const rms_spec *spec, int flags) {
  bool rms = spec->kind == RMS_KIND_RMS, inside = spec->eps_place == RMS_EPS_INSIDE;
  bool split = (flags & (RMS_CHECK_SPLIT | RMS_CHECK_STATS)) && !(flags & RMS_CHECK_QUERY);
  if (spec->steps < RMS_STEPS_WIDE || spec->steps > RMS_STEPS_ALL) return RMS_E_MODE;
  if (spec->steps == RMS_STEPS_WIDE) return RMS_OK;
  if (spec->gate_place != RMS_GATE_NONE) return RMS_E_UNSUPPORTED;
  if (spec->steps == RMS_STEPS_ALL ? !rms && !inside : !rms) return RMS_E_UNSUPPORTED;
  if (spec->steps == RMS_STEPS_TERMS) return RMS_OK;
  if (spec->steps == RMS_STEPS_RSTD && !inside) return RMS_E_UNSUPPORTED;
  return spec->partial || split ? RMS_E_UNSUPPORTED : RMS_OK;
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
  if (spec->eps_place < RMS_EPS_INSIDE || spec->eps_place > RMS_EPS_CLAMP) return RMS_E_MODE;
  if (spec->rounding != RMS_ROUND_AFTER_WEIGHT && spec->rounding != RMS_ROUND_BEFORE_WEIGHT) return RMS_E_MODE;
  if (exceeds(spec->weight_offset, limit)) return RMS_E_MODE;
  if (spec->gate_place < RMS_GATE_NONE || spec->gate_place > RMS_GATE_BEFORE) return RMS_E_MODE;
  if (spec->activation != RMS_ACT_SILU && spec->activation != RMS_ACT_SIGMOID) return RMS_E_MODE;
  if (spec->weight_per_inner != 0 && spec->weight_per_inner != 1) return RMS_E_MODE;
  if (spec->gain_rounding != RMS_GAIN_WIDE && spec->gain_rounding != RMS_GAIN_AS_WEIGHT) return RMS_E_MODE;
  TRY(check_steps(spec, flags));
  if (spec->scale_block < 0 || (spec->scale_block && width % spec->scale_block)) return RMS_E_SCALE;
  if (is_below_zero(spec->scale_least) || exceeds(spec->scale_least, 3.4028234663852886e38)) return RMS_E_SCALE;

  lay->groups = groups;
  lay->width = width;
  lay->k = spec->partial == RMS_PARTIAL_NONE ? 0 : spec->partial ? spec->partial : lay->width;
  lay->indices = spec->indices;
  lay->eps = spec->eps;
  lay->offset = spec->weight_offset;
  lay->dtype = dtype;
  lay->kind = (rms_kind)spec->kind;
  lay->eps_place = (rms_eps_place)spec->eps_place;
  lay->steps = dtype == RMS_F32 || dtype == RMS_F64 ? RMS_STEPS_WIDE : (rms_steps)spec->steps;
  lay->rounding = lay->steps >= RMS_STEPS_RSTD ? RMS_ROUND_BEFORE_WEIGHT : (rms_rounding)spec->rounding;
  lay->gate_place = (rms_gate_place)spec->gate_place;
  lay->activation = (rms_activation)spec->activation;
  lay->gain_as_weight = spec->gain_rounding == RMS_GAIN_AS_WEIGHT;
  lay->per_inner = spec->weight_per_inner == 1;
  return RMS_OK;
}

/* ---- whole calls ---- */

/* An output as an input: what is checked of both is the same. */
static rms_const_view seen(const rms_view *v) {
  rms_const_view w = {v->data, v->dtype, v->reserved, v->outer_stride, v->inner_stride, v->col_stride};
  return w;
}

static const rms_const_view nothing;

/* The weights of a call in elements: how many there are, those of one inner index after those of another, and what they
 * span in memory. */
typedef struct {
  int64_t count, span;
} weights;

static rms_status check_weights(const rms_spec *spec, int64_t inner, int64_t stride, rms_layout *lay, weights *w) {
  int64_t sets = spec->weight_per_inner ? inner : 1, bytes;
  if (stride < 0 || (stride > 0 && !spec->weight_per_inner)) return RMS_E_STRIDE;
  if (stride > 0 && stride < spec->cols && sets > 1) return RMS_E_STRIDE;
  if (stride == 0) stride = spec->cols;
  if (rms_mul_overflows(sets, spec->cols, &w->count) || rms_mul_overflows(sets - 1, stride, &w->span))
    return RMS_E_SIZE;
  if (__builtin_add_overflow(w->span, spec->cols, &w->span) || rms_mul_overflows(w->span, 8, &bytes)) return RMS_E_SIZE;
  if (rms_mul_overflows(stride, 8, &bytes)) return RMS_E_SIZE;
  lay->weight_inner = spec->weight_per_inner ? stride : 0; /* fill_layout makes bytes of it */
  return RMS_OK;
}

static rms_status check_shape(const rms_spec *spec, int64_t outer, int64_t inner, const rms_layout *lay, rms_shape *n,
                              int64_t *segments) {
  if (outer < 0 || inner < 0) return RMS_E_ARGUMENT;
  n->outer = outer;
  n->inner = inner ? inner : 1;
  n->cols = spec->cols;
  if (rms_mul_overflows(n->outer, n->inner, segments) || rms_mul_overflows(*segments, lay->groups, segments))
    return RMS_E_SIZE;
  int64_t bytes;
  return rms_mul_overflows(*segments, (int64_t)sizeof(rms_stat), &bytes) ? RMS_E_SIZE : RMS_OK;
}

/* What the layout takes from the arguments. */
static void fill_layout(const types *t, const void *weight, int64_t inner, rms_layout *lay) {
  lay->inner = inner;
  lay->weight_is_f32 = t->weight != t->data;
  lay->residual_is_f32 = t->residual != t->data;
  lay->weight = weight;
  lay->weight_inner *= rms_size_of(t->weight);
}

/* A gate is there if the spec has a place for it. */
static rms_status check_gate(const rms_spec *spec, const types *t, const rms_const_view *gate, int64_t outer) {
  if (gate->data ? spec->gate_place == RMS_GATE_NONE : spec->gate_place != RMS_GATE_NONE && outer > 0)
    return RMS_E_ARGUMENT;
  return check_same(t, gate);
}

/* The arrays of numbers that are read and written as such, but for the index list; tensors may lie anywhere. */
static rms_status check_alignment(const void *rstd, const void *mean, int64_t stat_size, const void *stats,
                                  const void *sums) {
  bool wrong = misaligned(rstd, (size_t)stat_size) || misaligned(mean, (size_t)stat_size) ||
               misaligned(stats, sizeof(double)) || misaligned(sums, sizeof(double));
  return wrong ? RMS_E_ALIGNMENT : RMS_OK;
}

/* ---- forward ---- */

/* f64 keeps to itself; the others mix. */
static bool types_mix(rms_dtype a, rms_dtype b) {
  return a == b || (a != RMS_F64 && b != RMS_F64);
}

static rms_status check_forward_types(const rms_forward_args *args, const rms_const_view *y,
                                      const rms_const_view *residual_out, types *t, rms_dtype *y_type) {
  bool known = false;
  if (!rms_is_dtype(args->x.dtype)) return RMS_E_DTYPE;
  t->data = t->as_x = t->residual = *y_type = (rms_dtype)args->x.dtype;
  if ((y->data || args->q.data) && y->dtype != RMS_AS_X) {
    if (!rms_is_dtype(y->dtype) || !types_mix(t->data, (rms_dtype)y->dtype)) return RMS_E_DTYPE;
    *y_type = (rms_dtype)y->dtype;
  }
  TRY(check_residual(t, &args->residual, &known));
  TRY(check_residual(t, residual_out, &known));
  TRY(check_weight(t, args->weight, args->weight_dtype));
  return check_bias(t, args->weight, args->bias, args->bias_dtype);
}

/* The types and scales of a quantised output, and its rows. */
static rms_status check_quantised(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_operands *o,
                                  const rms_layout *lay, rms_quantised *q, rms_tensor *rows) {
  static const rms_tensor absent;
  rms_const_view v = seen(&args->q);
  rms_shape shape = o->shape;
  int64_t bytes; /* of scales, if each element had one */
  *rows = absent;
  q->rows = absent.rows;
  if (!v.data) return args->scale ? RMS_E_ARGUMENT : RMS_OK;
  if (flags & (RMS_CHECK_SPLIT | RMS_CHECK_STATS)) return RMS_E_UNSUPPORTED;
  if (v.dtype < RMS_I8 || v.dtype > RMS_Q8_0 || lay->dtype == RMS_F64) return RMS_E_DTYPE;
  q->type = (rms_dtype)v.dtype;
  q->scale = args->scale;
  q->block = spec->scale_block;
  q->least = (float)spec->scale_least;
  q->stream = false;
  q->ahead = 0;
  if (v.dtype == RMS_Q8_0) {
    if (args->scale) return RMS_E_ARGUMENT;
    if (spec->scale_block || lay->width % RMS_Q8_0_ELEMENTS) return RMS_E_SCALE;
    if (v.outer_stride % RMS_Q8_0_ELEMENTS || v.inner_stride % RMS_Q8_0_ELEMENTS) return RMS_E_STRIDE;
    v.outer_stride /= RMS_Q8_0_ELEMENTS;
    v.inner_stride /= RMS_Q8_0_ELEMENTS;
    shape.cols /= RMS_Q8_0_ELEMENTS;
  } else if (!args->scale && shape.outer > 0) {
    return RMS_E_ARGUMENT;
  }
  if (misaligned(args->scale, sizeof(float))) return RMS_E_ALIGNMENT;
  if (rms_mul_overflows(shape.outer * shape.inner, shape.cols * (int64_t)sizeof(float), &bytes)) return RMS_E_SIZE;
  TRY(rms_resolve(&shape, &v, v.dtype == RMS_Q8_0 ? RMS_Q8_0_BYTES : 1, rows));
  q->rows = rows->rows;
  return RMS_OK;
}

/* Something must be written. */
static bool has_output(const rms_forward_args *args) {
  return args->y.data || args->q.data || args->rstd || args->mean;
}

/* What rows whose elements lie apart do not have: CUDA's with RMS_CHECK_DEVICE, the CPU's without. */
static bool lacks_apart(const rms_layout *lay, int flags) {
  bool split = (flags & (RMS_CHECK_SPLIT | RMS_CHECK_STATS)) && !(flags & RMS_CHECK_QUERY);
  if (!lay->apart) return false;
  if (flags & RMS_CHECK_DEVICE) return lay->per_inner || split || lay->dtype == RMS_F64 || lay->gain_as_weight;
  return lay->per_inner;
}

rms_status rms_check_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                             rms_stat *stats_out, rms_forward_job *job, int64_t *segments) {
  rms_operands o;
  types t;
  weights w;
  bool stats = flags & RMS_CHECK_STATS;
  const rms_const_view y = stats ? nothing : seen(&args->y);
  const rms_const_view residual_out = stats ? nothing : seen(&args->residual_out);
  const void *rstd = stats ? NULL : args->rstd, *mean = stats ? NULL : args->mean;
  TRY(check_forward_types(args, &y, &residual_out, &t, &job->y_type));
  TRY(rms_check_spec(spec, t.data, flags, &job->lay));
  TRY(check_shape(spec, args->outer, args->inner, &job->lay, &o.shape, segments));
  TRY(check_weights(spec, o.shape.inner, args->weight_stride, &job->lay, &w));
  TRY(check_gate(spec, &t, &args->gate, o.shape.outer));
  if (o.shape.outer > 0) {
    if (!args->x.data || (!stats && !has_output(args))) return RMS_E_ARGUMENT;
    if (residual_out.data && !args->residual.data) return RMS_E_ARGUMENT;
  }

  int64_t stat_size = t.data == RMS_F64 ? 8 : 4, weight_bytes = w.span * rms_size_of(t.weight);
  TRY(check_alignment(rstd, mean, stat_size, stats_in ? stats_in : stats_out, NULL));
  TRY(rms_resolve(&o.shape, &args->x, rms_size_of(t.data), &o.in[0]));
  TRY(rms_resolve(&o.shape, &args->residual, rms_size_of(t.residual), &o.in[1]));
  TRY(rms_resolve(&o.shape, &args->gate, rms_size_of(t.data), &o.in[2]));
  TRY(rms_resolve(&o.shape, &y, rms_size_of(job->y_type), &o.out[0]));
  TRY(rms_resolve(&o.shape, &residual_out, rms_size_of(t.residual), &o.out[1]));
  TRY(check_quantised(spec, args, flags, &o, &job->lay, &job->q, &o.out[2]));
  o.ins = 3;
  o.outs = 3;
  if (o.shape.outer > 0) {
    int64_t split_bytes = *segments * (int64_t)sizeof(rms_stat);
    int64_t scales = args->scale && spec->scale_block ? *segments * (job->lay.width / spec->scale_block) : 0;
    o.givens = o.mades = 0;
    rms_list_given(&o, args->weight, weight_bytes);
    rms_list_given(&o, args->bias, weight_bytes);
    rms_list_given(&o, spec->indices, spec->partial * (int64_t)sizeof(int64_t));
    rms_list_given(&o, stats_in, split_bytes);
    rms_list_made(&o, rstd, *segments * stat_size);
    rms_list_made(&o, mean, *segments * stat_size);
    rms_list_made(&o, stats_out, split_bytes);
    if (scales)
      rms_list_made(&o, args->scale, scales * (int64_t)sizeof(float));
    else
      rms_list_given(&o, args->scale, (int64_t)sizeof(float));
    TRY(rms_check_alias(&o));
  }
  fill_layout(&t, args->weight, o.shape.inner, &job->lay);
  job->x = o.in[0].rows;
  job->residual = o.in[1].rows;
  job->gate = o.in[2].rows;
  job->y = o.out[0].rows;
  job->residual_out = o.out[1].rows;
  job->bias = args->bias;
  job->rstd = args->rstd;
  job->mean = args->mean;
  job->stats_in = stats_in;
  job->stats_out = stats_out;
  job->fetch_ahead = job->stream_y = job->stream_residual = false;
  job->way = RMS_WAY_FETCH;
  job->lay.apart = rms_forward_apart_bytes(job);
  if (job->q.rows.data && (job->lay.apart || job->q.rows.col)) return RMS_E_UNSUPPORTED;
  return lacks_apart(&job->lay, flags) ? RMS_E_UNSUPPORTED : RMS_OK;
}

/* ---- backward ---- */

static rms_status check_backward_types(const rms_backward_args *args, const rms_const_view *dx,
                                       const rms_const_view *dresidual_out, const rms_const_view *dgate, bool stats,
                                       types *t, rms_backward_job *job) {
  bool known = false;
  if (!rms_is_dtype(args->x.dtype)) return RMS_E_DTYPE;
  const rms_dtype x = (rms_dtype)args->x.dtype, dy = args->dy.dtype == RMS_AS_X ? x : (rms_dtype)args->dy.dtype;
  if (!rms_is_dtype((int32_t)dy) || !types_mix(x, dy)) return RMS_E_DTYPE;
  t->data = t->as_x = t->residual = job->dy_type = dy;
  if (x != dy) {
    t->as_x = RMS_AS_X;
    known = true;
    /* both halves of the split form look at the dx of the arguments */
    if (x == RMS_F32 && !(args->dx.data && args->dx.dtype == RMS_F32))
      t->residual = RMS_F32; /* a sum in f32 beside 16-bit data */
    else
      t->data = t->residual = x; /* y had another type than x */
  }
  TRY(check_same(t, dx));
  TRY(check_same(t, dgate));
  TRY(check_residual(t, &args->dresidual, &known));
  TRY(check_residual(t, dresidual_out, &known));
  TRY(check_weight(t, args->weight, args->weight_dtype));
  TRY(check_bias(t, args->weight, args->bias, args->bias_dtype));
  job->dweight_type = job->dbias_type = t->data;
  if (!stats && args->dweight) TRY(check_wide_or_same(t, args->dweight_dtype, &job->dweight_type));
  if (!stats && args->dbias) TRY(check_wide_or_same(t, args->dbias_dtype, &job->dbias_type));
  return RMS_OK;
}

/* Gradients of the statistics: not in the forms whose statistics are rounded, nor in the halves, whose sums take them.
 */
static rms_status check_drstd(const rms_spec *spec, const rms_backward_args *args, int flags) {
  const bool split = (flags & (RMS_CHECK_SPLIT | RMS_CHECK_STATS)) && !(flags & RMS_CHECK_QUERY);
  if (!args->drstd && !args->dmean) return RMS_OK;
  return split || spec->steps >= RMS_STEPS_RSTD ? RMS_E_UNSUPPORTED : RMS_OK;
}

static rms_status check_backward_given(const rms_spec *spec, const rms_backward_args *args, int flags) {
  const int all = RMS_ACCUMULATE_DX | RMS_ACCUMULATE_DWEIGHT | RMS_ACCUMULATE_DBIAS;
  bool stats = flags & RMS_CHECK_STATS, split = flags & RMS_CHECK_SPLIT;
  if (args->reserved != 0) return RMS_E_VERSION;
  if (args->accumulate & ~all) return RMS_E_MODE;
  if (args->dgate.data && spec->gate_place == RMS_GATE_NONE) return RMS_E_ARGUMENT;
  if (!split && spec->kind == RMS_KIND_LAYER && !args->rstd != !args->mean) return RMS_E_ARGUMENT;
  if (args->dmean && spec->kind != RMS_KIND_LAYER) return RMS_E_ARGUMENT;
  TRY(check_drstd(spec, args, flags));
  if (args->outer > 0) {
    if (!args->x.data || (!args->dy.data && !args->drstd && !args->dmean)) return RMS_E_ARGUMENT;
    if (!stats && (args->accumulate & RMS_ACCUMULATE_DX) && !args->dx.data) return RMS_E_ARGUMENT;
  }
  return RMS_OK;
}

/* What may not overlap; the tensors of o are resolved, the job has the arrays. Without rows the sums alone are written.
 */
static rms_status check_backward_alias(const rms_spec *spec, const rms_backward_args *args, int flags,
                                       const rms_backward_job *job, int64_t segments, const weights *w,
                                       rms_operands *o) {
  bool stats = flags & RMS_CHECK_STATS, split = flags & RMS_CHECK_SPLIT;
  int64_t stat_bytes = segments * (job->lay.dtype == RMS_F64 ? 8 : 4);
  int64_t split_bytes = segments * (int64_t)sizeof(rms_stat), sums_bytes = segments * (int64_t)sizeof(rms_grad_sum);
  rms_dtype weight_type = job->lay.weight_is_f32 ? RMS_F32 : job->lay.dtype;
  o->givens = o->mades = 0;
  rms_list_made(o, stats ? NULL : args->dweight, w->count * rms_size_of(job->dweight_type));
  rms_list_made(o, stats ? NULL : args->dbias, w->count * rms_size_of(job->dbias_type));
  if (o->shape.outer == 0) return rms_check_made(o);
  if (o->mades > 0) rms_list_made(o, args->workspace, (int64_t)args->workspace_bytes);
  rms_list_made(o, job->sums_out, sums_bytes);
  rms_list_given(o, args->weight, w->span * rms_size_of(weight_type));
  rms_list_given(o, args->bias, w->span * rms_size_of(weight_type));
  rms_list_given(o, job->rstd, stat_bytes);
  rms_list_given(o, split ? NULL : args->mean, stat_bytes);
  rms_list_given(o, job->drstd, stat_bytes);
  rms_list_given(o, job->dmean, stat_bytes);
  rms_list_given(o, spec->indices, spec->partial * (int64_t)sizeof(int64_t));
  rms_list_given(o, job->stats_in, split_bytes);
  rms_list_given(o, job->sums_in, sums_bytes);
  return rms_check_alias(o);
}

rms_status rms_check_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                              const rms_grad_sum *sums_in, rms_grad_sum *sums_out, rms_backward_job *job,
                              int64_t *segments) {
  rms_operands o;
  types t;
  weights w;
  bool stats = flags & RMS_CHECK_STATS, split = flags & RMS_CHECK_SPLIT;
  const rms_const_view dx = stats ? nothing : seen(&args->dx);
  const rms_const_view dresidual_out = stats ? nothing : seen(&args->dresidual_out);
  const rms_const_view dgate = stats ? nothing : seen(&args->dgate);
  job->rstd = split ? NULL : args->rstd;
  job->mean = split || spec->kind != RMS_KIND_LAYER ? NULL : args->mean;
  job->drstd = args->drstd;
  job->dmean = args->dmean;
  job->stats_in = stats_in;
  job->sums_in = sums_in;
  job->sums_out = sums_out;
  TRY(check_backward_types(args, &dx, &dresidual_out, &dgate, stats, &t, job));
  TRY(rms_check_spec(spec, t.data, flags, &job->lay));
  TRY(check_shape(spec, args->outer, args->inner, &job->lay, &o.shape, segments));
  TRY(check_weights(spec, o.shape.inner, args->weight_stride, &job->lay, &w));
  TRY(check_backward_given(spec, args, flags));
  TRY(check_gate(spec, &t, &args->gate, o.shape.outer));

  int64_t stat_size = t.data == RMS_F64 ? 8 : 4;
  TRY(check_alignment(job->rstd, job->mean, stat_size, stats_in, sums_in ? sums_in : sums_out));
  TRY(check_alignment(job->drstd, job->dmean, stat_size, NULL, NULL));
  TRY(rms_resolve(&o.shape, &args->dy, rms_size_of(job->dy_type), &o.in[0]));
  TRY(rms_resolve(&o.shape, &args->x, rms_size_of((rms_dtype)args->x.dtype), &o.in[1]));
  TRY(rms_resolve(&o.shape, &args->dresidual, rms_size_of(t.residual), &o.in[2]));
  TRY(rms_resolve(&o.shape, &args->gate, rms_size_of(t.data), &o.in[3]));
  TRY(rms_resolve(&o.shape, &dx, rms_size_of(t.data), &o.out[0]));
  TRY(rms_resolve(&o.shape, &dresidual_out, rms_size_of(t.residual), &o.out[1]));
  TRY(rms_resolve(&o.shape, &dgate, rms_size_of(t.data), &o.out[2]));
  o.ins = 4;
  o.outs = 3;
  fill_layout(&t, args->weight, o.shape.inner, &job->lay);
  if (!(flags & RMS_CHECK_QUERY)) TRY(check_backward_alias(spec, args, flags, job, *segments, &w, &o));
  job->dy = o.in[0].rows;
  job->x = o.in[1].rows;
  job->dresidual = o.in[2].rows;
  job->gate = o.in[3].rows;
  job->dx = o.out[0].rows;
  job->dresidual_out = o.out[1].rows;
  job->dgate = o.out[2].rows;
  job->bias = args->bias;
  job->x_is_f32 = (rms_dtype)args->x.dtype != t.data;
  job->add_to_dx = (args->accumulate & RMS_ACCUMULATE_DX) != 0;
  job->row_step = 1;
  job->pitch = 0;
  job->go_on = false;
  job->fetch_ahead = job->stream_dx = job->stream_residual = job->stream_dgate = false;
  job->way = RMS_WAY_FETCH;
  job->lay.apart = rms_backward_apart_bytes(job);
  if ((flags & RMS_CHECK_DEVICE) && job->lay.apart && (job->drstd || job->dmean)) return RMS_E_UNSUPPORTED;
  return lacks_apart(&job->lay, flags) ? RMS_E_UNSUPPORTED : RMS_OK;
}

rms_status rms_check_workspace(const rms_backward_args *args, int64_t bytes) {
  if (!args->workspace || (uintptr_t)args->workspace % 64) return RMS_E_WORKSPACE;
  return args->workspace_bytes >= (size_t)bytes ? RMS_OK : RMS_E_WORKSPACE;
}
