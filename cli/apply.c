/* SPDX-License-Identifier: MIT
 *
 * rmsnorm apply: read NumPy files -> check them against each other -> run the operation -> write NumPy files. */
#include "cli.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"
#include "npy.h"
#include "problem.h"
#include "words.h"
#include "rmsnorm.h"

typedef struct apply_options {
  const char *input, *output;
  const char *kind, *rounding, *y_type;
  const char *weight, *bias, *residual, *residual_out, *rstd, *mean;
  const char *dy, *drstd, *dmean, *dweight, *dbias, *dresidual;
  const char *gate, *gate_place, *activation, *dgate;
  const char *quantised, *quantised_type, *scale, *scale_block;
  double eps, p, weight_offset, scale_least;
  int64_t k, groups, threads, axis;
  int eps_outside, eps_clamp, round_gain;
  const char *steps;
} apply_options;

typedef struct apply_job {
  const apply_options *options;
  npy_array x, weight, bias, residual, dy, dresidual, gate;         /* inputs; data = NULL: not given   */
  npy_array drstd, dmean;                                           /* these too                        */
  npy_array y, residual_out, rstd, mean, dx, dweight, dbias, dgate; /* outputs; data = NULL: not wanted */
  npy_array q, scale;                                               /* a scale that is given is an input  */
  rms_spec spec;
  rms_dtype q_dtype;
  rms_dtype dtype, weight_dtype, residual_dtype; /* of the data, of weight and bias, of the residual stream */
  rms_dtype y_dtype;                             /* of y, as --y-type names it; RMS_AS_X: not named         */
  int axis;                                      /* of x, that is normalised              */
  const npy_array *params;                       /* the weight, or the bias alone; or NULL */
  layout rows;                                   /* of all tensors of x's shape           */
  void *workspace;
  size_t workspace_bytes;
} apply_job;

static const double UNSET = -1e308; /* no option value may be this */

static const char EXAMPLES[] =
    "  rmsnorm apply x.npy -o y.npy --weight w.npy --eps 1e-6\n"
    "  rmsnorm apply x.npy -o y.npy --kind layer --weight w.npy --bias b.npy --eps 1e-5\n"
    "  rmsnorm apply x.npy -o y.npy --weight w.npy --weight-offset 1                      Gemma\n"
    "  rmsnorm apply x.npy -o y.npy --weight w.npy --rounding before                      Llama\n"
    "  rmsnorm apply x.npy -o y.npy --p 0.0625                                            pRMSNorm\n"
    "  rmsnorm apply x.npy -o y.npy --residual r.npy --residual-out s.npy\n"
    "  rmsnorm apply x.npy -o y.npy --weight w.npy --rounding before --y-type f32         Llama with f32 weights\n"
    "  rmsnorm apply x.npy -o y.npy --kind layer --weight scale.npy --weight-offset 1 --bias shift.npy   adaLN\n"
    "  rmsnorm apply images.npy -o y.npy --kind layer --axis 1 --weight w.npy --bias b.npy   ConvNeXt: channels first\n"
    "  rmsnorm apply x.npy --rstd r.npy                                                   r alone\n"
    "  rmsnorm apply x.npy -o y.npy --weight w.npy --gate z.npy --gate-place before       Mamba2\n"
    "  rmsnorm apply x.npy --quantised q.npy --quantised-type e4m3 --scale s.npy --weight w.npy\n"
    "  rmsnorm apply x.npy --backward dy.npy -o dx.npy --weight w.npy --dweight dw.npy\n"
    "  rmsnorm apply x.npy --drstd dr.npy -o dx.npy                                       backward of r alone\n";

static const char NOTES[] =
    "The last axis is normalised; any axes may stand before it. --axis names another, as 1 of images (N, C, H, W):\n"
    "not with --quantised.\n"
    "Types: float32, float64, float16 and bfloat16 as ml_dtypes stores it (read it back with\n"
    "numpy.load(f).view(ml_dtypes.bfloat16)). Outputs have the type of IN.npy; rstd and mean are float32, for\n"
    "float64 data float64; dweight and dbias have the type of the weight. With --backward dx has the type of DY.npy\n"
    "where IN.npy is a residual sum in float32, which --y-type rules out.\n"
    "The weight has the shape of the axis, and may be float32 for any data. There may also be many: with IN (B, T, n)\n"
    "those of the heads are (T, n), those of the samples (B, n) or (B, 1, n), as scale and shift of adaLN, and those\n"
    "of the rows (B, T, n). Where B is T, (B, n) means heads.\n"
    "With --backward, IN.npy is what was normalised: the forward's input or its residual sum. --drstd and --dmean "
    "have\n"
    "the shape and type of rstd and mean, and may stand without it: then nothing was made of y.\n"
    "eps defaults to 1e-6 for rms and 1e-5 for layer: give the one that your model was trained with.\n"
    "--quantised writes int8, 8-bit floats as uint8, and q8_0 as uint8 blocks of 34; scales are float32.\n"
    "'-' is standard input or output. An output may be one of the inputs. Outputs are written whole or not at all.\n";

/* ---- Options ---- */

static int is_backward(const apply_options *o) {
  return o->dy || o->drstd || o->dmean;
}

static int read_kind(const apply_options *o, rms_spec *spec) {
  static const char *const words[] = {"rms", "layer", NULL};
  if (strcmp(o->kind, "rms") == 0) return CLI_OK;
  if (strcmp(o->kind, "layer") != 0) {
    const char *near = verify_nearest_word(o->kind, words);
    return cli_error("--kind", "'%s' is neither rms nor layer%s%s%s", o->kind, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
  }
  spec->kind = RMS_KIND_LAYER;
  if (o->p != UNSET) return cli_error("--p", "belongs to --kind rms");
  if (o->k != INT64_MIN) return cli_error("--k", "belongs to --kind rms");
  return CLI_OK;
}

static int read_numbers(const apply_options *o, rms_spec *spec) {
  spec->eps = o->eps != UNSET ? o->eps : spec->kind == RMS_KIND_LAYER ? 1e-5 : 1e-6;
  if (!(spec->eps >= 0) || isinf(spec->eps))
    return cli_error("--eps", "%g is not a finite number of at least 0", o->eps);
  if (!isfinite(o->weight_offset)) return cli_error("--weight-offset", "%g is not a finite number", o->weight_offset);
  if (o->p != UNSET && !(o->p > 0 && o->p <= 1)) return cli_error("--p", "%g is outside (0, 1]", o->p);
  if (o->p != UNSET && o->k != INT64_MIN) return cli_error("--p", "contradicts --k");
  if (o->k != INT64_MIN && o->k < 1) return cli_error("--k", "%lld is below 1", (long long)o->k);
  if (o->groups < 1) return cli_error("--groups", "%lld is below 1", (long long)o->groups);
  if (o->threads < 1 || o->threads > 1024)
    return cli_error("--threads", "%lld is outside 1..1024", (long long)o->threads);
  spec->weight_offset = o->weight_offset;
  spec->groups = o->groups;
  if (o->eps_outside && o->eps_clamp) return cli_error("--eps-clamp", "contradicts --eps-outside");
  spec->eps_place = o->eps_outside ? RMS_EPS_OUTSIDE : o->eps_clamp ? RMS_EPS_CLAMP : RMS_EPS_INSIDE;
  if (strcmp(o->rounding, "before") == 0)
    spec->rounding = RMS_ROUND_BEFORE_WEIGHT;
  else if (strcmp(o->rounding, "after") != 0)
    return cli_error("--rounding", "'%s' is neither after nor before", o->rounding);
  return CLI_OK;
}

/* What is rounded besides, and what that excludes. */
static int read_steps(const apply_options *o, rms_spec *spec) {
  static const char *const words[] = {"wide", "terms", "rstd", "all", NULL}; /* from RMS_STEPS_WIDE on */
  const int inside = spec->eps_place == RMS_EPS_INSIDE;
  int steps = 0;
  if (!o->steps) return CLI_OK;
  while (words[steps] && strcmp(o->steps, words[steps]) != 0)
    steps++;
  if (!words[steps]) return cli_error("--steps", "'%s' is none of wide, terms, rstd and all", o->steps);
  spec->steps = steps;
  if (steps == RMS_STEPS_WIDE) return CLI_OK;
  if (o->gate) return cli_error("--steps", "excludes --gate");
  if (spec->kind == RMS_KIND_LAYER && (steps != RMS_STEPS_ALL || !inside))
    return cli_error("--steps", "a LayerNorm has all alone, with eps under the root");
  if (steps == RMS_STEPS_RSTD && !inside) return cli_error("--steps", "rstd needs eps under the root");
  if (steps != RMS_STEPS_TERMS && (o->p != UNSET || o->k != INT64_MIN))
    return cli_error("--steps", "rstd and all have no pRMSNorm");
  return CLI_OK;
}

/* The gate's place and activation; both have a default once there is a gate. */
static int read_gate(const apply_options *o, rms_spec *spec) {
  const char *name = o->gate_place ? "--gate-place" : o->activation ? "--activation" : o->dgate ? "--dgate" : NULL;
  if (!o->gate) return name ? cli_error(name, "needs --gate Z.npy") : CLI_OK;
  spec->gate_place = RMS_GATE_AFTER;
  if (o->gate_place && strcmp(o->gate_place, "before") == 0)
    spec->gate_place = RMS_GATE_BEFORE;
  else if (o->gate_place && strcmp(o->gate_place, "after") != 0)
    return cli_error("--gate-place", "'%s' is neither after nor before", o->gate_place);
  if (o->activation && strcmp(o->activation, "sigmoid") == 0)
    spec->activation = RMS_ACT_SIGMOID;
  else if (o->activation && strcmp(o->activation, "silu") != 0)
    return cli_error("--activation", "'%s' is neither silu nor sigmoid", o->activation);
  return CLI_OK;
}

/* The type and what is known of the scales without the width. */
static int read_quantised(const apply_options *o, rms_spec *spec, rms_dtype *type) {
  static const char *const words[] = {"i8", "e4m3", "e5m2", "q8_0"};
  const char *name = o->quantised_type ? "--quantised-type"
                     : o->scale        ? "--scale"
                     : o->scale_block  ? "--scale-block"
                     : o->scale_least  ? "--scale-least"
                                       : NULL;
  if (!o->quantised) return name ? cli_error(name, "needs --quantised Q.npy") : CLI_OK;
  if (is_backward(o)) return cli_error("--quantised", "is an output of the forward");
  *type = RMS_I8;
  for (int i = 1; o->quantised_type && i < 4; i++)
    if (strcmp(o->quantised_type, words[i]) == 0) *type = (rms_dtype)(RMS_I8 + i);
  if (*type == RMS_I8 && o->quantised_type && strcmp(o->quantised_type, "i8") != 0)
    return cli_error("--quantised-type", "'%s' is none of i8, e4m3, e5m2 and q8_0", o->quantised_type);
  if (*type == RMS_Q8_0 && o->scale) return cli_error("--scale", "q8_0 has its scales among its elements");
  if (*type == RMS_Q8_0 && o->scale_block) return cli_error("--scale-block", "q8_0 has blocks of 32");
  if (*type != RMS_Q8_0 && !o->scale) return cli_error("--quantised", "needs --scale S.npy");
  if (!(o->scale_least >= 0) || o->scale_least > (double)FLT_MAX)
    return cli_error("--scale-least", "%g is not a number of f32 of at least 0", o->scale_least);
  spec->scale_least = o->scale_least;
  return CLI_OK;
}

static int scale_is_given(const apply_options *o) {
  return o->scale && o->scale_block && strcmp(o->scale_block, "tensor") == 0;
}

static int read_types(const apply_options *o, apply_job *job) {
  static const char *const words[] = {"f32", "bf16", "f16", NULL};
  static const rms_dtype types[] = {RMS_F32, RMS_BF16, RMS_F16};
  if (o->round_gain) job->spec.gain_rounding = RMS_GAIN_AS_WEIGHT;
  if (o->round_gain && !o->weight) return cli_error("--round-gain", "needs --weight W.npy");
  if (!o->y_type) return CLI_OK;
  for (int i = 0; words[i]; i++)
    if (strcmp(o->y_type, words[i]) == 0) job->y_dtype = types[i];
  if (job->y_dtype == RMS_AS_X) return cli_error("--y-type", "'%s' is not one of f32, bf16 and f16", o->y_type);
  return CLI_OK;
}

static int check_combination(const apply_options *o, const rms_spec *spec) {
  if (o->mean && spec->kind != RMS_KIND_LAYER) return cli_error("--mean", "belongs to --kind layer");
  if (o->dmean && spec->kind != RMS_KIND_LAYER) return cli_error("--dmean", "belongs to --kind layer");
  if (spec->steps >= RMS_STEPS_RSTD && (o->drstd || o->dmean))
    return cli_error(o->drstd ? "--drstd" : "--dmean", "excludes --steps rstd and all");
  if (o->residual_out && !o->residual) return cli_error("--residual-out", "needs --residual");
  if (!is_backward(o)) {
    if (!o->output && !o->quantised && !o->rstd && !o->mean)
      return cli_error(NULL, "apply needs -o OUT.npy; see 'rmsnorm apply --help'");
    const char *name = o->dweight     ? "--dweight"
                       : o->dbias     ? "--dbias"
                       : o->dresidual ? "--dresidual"
                       : o->dgate     ? "--dgate"
                                      : NULL;
    return name ? cli_error(name, "needs --backward DY.npy") : CLI_OK;
  }
  if (!o->output && !o->dweight && !o->dbias && !o->dgate)
    return cli_error(NULL, "a backward needs an output: -o DX.npy, --dweight DW.npy, --dbias DB.npy or --dgate DZ.npy");
  if (o->residual) return cli_error("--residual", "contradicts --backward: give the residual sum as IN.npy");
  if (o->bias && !(o->dgate && spec->gate_place == RMS_GATE_AFTER))
    return cli_error("--bias", "has no part in --backward but for --dgate of a gate after the norm;"
                               " --dbias DB.npy is its gradient");
  const char *name = o->rstd ? "--rstd" : o->mean ? "--mean" : NULL;
  return name ? cli_error(name, "is an output of the forward") : CLI_OK;
}

/* ---- Inputs ---- */

static int read_array(const char *path, npy_array *array) {
  char reason[256];
  if (!path || npy_read(path, array, reason, sizeof reason) == 0) return CLI_OK;
  return cli_error(strcmp(path, "-") == 0 ? "standard input" : path, "%s", reason);
}

static int read_inputs(apply_job *job) {
  const apply_options *o = job->options;
  const char *paths[] = {o->input,     o->weight, o->bias,  o->residual, o->dy,
                         o->dresidual, o->gate,   o->drstd, o->dmean,    scale_is_given(o) ? o->scale : NULL};
  npy_array *arrays[] = {&job->x,         &job->weight, &job->bias,  &job->residual, &job->dy,
                         &job->dresidual, &job->gate,   &job->drstd, &job->dmean,    &job->scale};
  const size_t count = sizeof paths / sizeof paths[0];
  int standard = 0;
  for (size_t i = 0; i < count; i++)
    standard += paths[i] && strcmp(paths[i], "-") == 0;
  if (standard > 1) return cli_error("standard input", "named for two inputs");
  for (size_t i = 0; i < count; i++)
    if (read_array(paths[i], arrays[i]) != CLI_OK) return CLI_BAD;
  return CLI_OK;
}

static int same_shape(const npy_array *a, const npy_array *b) {
  return a->dims == b->dims && memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) == 0;
}

/* A tensor of the shape of x, of the type `own` or `other`. */
static int check_tensor(const apply_job *job, const char *path, const npy_array *array, rms_dtype own,
                        rms_dtype other) {
  char shape[512], wanted[512];
  if (!path) return CLI_OK;
  if (!same_shape(array, &job->x)) {
    npy_shape_text(array, shape, sizeof shape);
    npy_shape_text(&job->x, wanted, sizeof wanted);
    return cli_error(path, "its shape is %s, that of %s is %s", shape, job->options->input, wanted);
  }
  if (array->dtype == own || array->dtype == other) return CLI_OK;
  return cli_error(path, "its type is %s, it must be %s%s%s", verify_dtype_name(array->dtype), verify_dtype_name(own),
                   own == other ? "" : " or ", own == other ? "" : verify_dtype_name(other));
}

/* The shape of rstd and mean: that of x without the axis, and with the groups last. Returns the dimensions. */
static int shape_statistics(const apply_job *job, int64_t shape[NPY_DIMS_MAX]) {
  const npy_array *x = &job->x;
  int dims = x->dims - 1;
  memcpy(shape, x->shape, sizeof x->shape);
  memcpy(shape + job->axis, x->shape + job->axis + 1, (size_t)(dims - job->axis) * sizeof *shape);
  if (job->spec.groups > 1) shape[dims++] = job->spec.groups;
  return dims;
}

static rms_dtype statistic_type(const apply_job *job) {
  return job->dtype == RMS_F64 ? RMS_F64 : RMS_F32;
}

/* A gradient of a statistic. */
static int check_statistic(const apply_job *job, const char *path, const npy_array *array) {
  npy_array like = {.dtype = statistic_type(job)};
  char shape[512], wanted[512];
  if (!path) return CLI_OK;
  like.dims = shape_statistics(job, like.shape);
  npy_shape_text(array, shape, sizeof shape);
  npy_shape_text(&like, wanted, sizeof wanted);
  if (!same_shape(array, &like)) return cli_error(path, "its shape is %s, that of the statistics is %s", shape, wanted);
  if (array->dtype == like.dtype) return CLI_OK;
  return cli_error(path, "its type is %s, that of the statistics is %s", verify_dtype_name(array->dtype),
                   verify_dtype_name(like.dtype));
}

/* The weight or bias, and the rows by it. */
static int check_params(apply_job *job, const char *path, const npy_array *array) {
  const npy_array *x = &job->x;
  char shape[512], wanted[512];
  if (!path) return CLI_OK;
  if (layout_make(x, job->axis, array, &job->rows)) {
    npy_shape_text(array, shape, sizeof shape);
    npy_shape_text(x, wanted, sizeof wanted);
    if (job->axis < x->dims - 1)
      return cli_error(path, "its shape is %s, not (%lld,) as axis %d of %s %s", shape, (long long)job->spec.cols,
                       job->axis, job->options->input, wanted);
    return cli_error(path, "its shape is %s: neither the last axes of %s %s, nor the first ones and the last", shape,
                     job->options->input, wanted);
  }
  if (array->dtype != job->dtype && array->dtype != RMS_F32)
    return cli_error(path, "its type is %s, it must be %s%s", verify_dtype_name(array->dtype),
                     verify_dtype_name(job->dtype), job->dtype == RMS_F32 ? "" : " or f32");
  job->params = array;
  job->spec.weight_per_inner = job->rows.weight_per_inner;
  job->weight_dtype = array->dtype;
  return CLI_OK;
}

static int check_width(apply_job *job) {
  const apply_options *o = job->options;
  const npy_array *x = &job->x;
  rms_spec *spec = &job->spec;
  if (x->dims == 0) return cli_error(o->input, "a single number has no axis to normalise");
  if (o->axis < -x->dims || o->axis >= x->dims)
    return cli_error("--axis", "%lld is no axis of %s, which has %d", (long long)o->axis, o->input, x->dims);
  job->axis = (int)(o->axis < 0 ? o->axis + x->dims : o->axis);
  spec->cols = x->shape[job->axis];
  if (spec->cols == 0)
    return job->axis == x->dims - 1 ? cli_error(o->input, "the last axis has width 0")
                                    : cli_error(o->input, "axis %d has width 0", job->axis);
  if (spec->cols % spec->groups)
    return cli_error(o->input, "its width of %lld does not divide into %lld groups", (long long)spec->cols,
                     (long long)spec->groups);
  int64_t width = spec->cols / spec->groups;
  if (o->k > width)
    return cli_error(o->input, "k = %lld is more than its width of %lld", (long long)o->k, (long long)width);
  if (o->k != INT64_MIN) spec->partial = o->k;
  if (o->p != UNSET) spec->partial = rms_partial_count(width, o->p);
  return CLI_OK;
}

/* The blocks of scales. */
static int check_quantised(apply_job *job) {
  const apply_options *o = job->options;
  rms_spec *spec = &job->spec;
  const int64_t width = spec->cols / spec->groups;
  if (!o->quantised) return CLI_OK;
  if (job->x.dtype == RMS_F64) return cli_error("--quantised", "is not offered for float64");
  if (job->axis < job->x.dims - 1) return cli_error("--quantised", "is offered for the last axis alone");
  if (job->q_dtype == RMS_Q8_0)
    return width % 32 == 0 ? CLI_OK : cli_error(o->input, "q8_0 needs a width of whole blocks of 32");
  if (scale_is_given(o)) {
    if (job->scale.dtype == RMS_F32 && job->scale.count == 1) return CLI_OK;
    return cli_error(o->scale, "a scale of the tensor is one float32 number");
  }
  spec->scale_block = width;
  if (!o->scale_block || strcmp(o->scale_block, "row") == 0) return CLI_OK;
  char *end;
  const long long block = strtoll(o->scale_block, &end, 10);
  if (end == o->scale_block || *end || block < 1)
    return cli_error("--scale-block", "'%s' is none of row, tensor and a number of elements", o->scale_block);
  if (width % block)
    return cli_error("--scale-block", "%lld does not divide the width of %lld", block, (long long)width);
  spec->scale_block = block;
  return CLI_OK;
}

/* Wider residuals go with 16-bit data only. */
static rms_dtype residual_choice(rms_dtype dtype) {
  return dtype == RMS_F64 ? RMS_F64 : RMS_F32;
}

/* Whether y, or dy, has a type of its own: any but f64 beside any but f64. An f32 IN.npy beside a 16-bit DY.npy is a
 * residual sum unless --y-type says otherwise. */
static int check_y_type(const apply_job *job, int *own) {
  const apply_options *o = job->options;
  const rms_dtype x = job->x.dtype, y = o->dy ? job->dy.dtype : job->y_dtype;
  if (o->dy && o->y_type && y != job->y_dtype)
    return cli_error(o->dy, "its type is %s, not %s as --y-type says", verify_dtype_name(y), o->y_type);
  if (o->y_type && !o->dy && is_backward(o)) return cli_error("--y-type", "needs --backward DY.npy or a forward");
  if (o->y_type && x == RMS_F64) return cli_error("--y-type", "f64 data have an f64 y");
  *own = y != RMS_AS_X && y != x && x != RMS_F64 && y != RMS_F64 && (o->y_type || x != RMS_F32);
  if (*own && o->dy && x == RMS_F32 && !o->output)
    return cli_error("--y-type", "needs -o DX.npy beside an f32 %s", o->input);
  return CLI_OK;
}

static int check_inputs(apply_job *job) {
  const apply_options *o = job->options;
  rms_spec *spec = &job->spec;
  int own = 0;
  if (check_width(job) != CLI_OK || check_quantised(job) != CLI_OK || check_y_type(job, &own) != CLI_OK) return CLI_BAD;
  rms_dtype type = o->dy && !own ? job->dy.dtype : job->x.dtype, wide = o->dy && own ? type : residual_choice(type);
  if (type != RMS_F64 && spec->eps > (double)FLT_MAX)
    return cli_error("--eps", "%g is beyond f32, in which %s data are computed", spec->eps, verify_dtype_name(type));
  if (type != RMS_F64 && fabs(spec->weight_offset) > (double)FLT_MAX)
    return cli_error("--weight-offset", "%g is beyond f32, in which %s data are computed", spec->weight_offset,
                     verify_dtype_name(type));
  job->dtype = job->weight_dtype = job->residual_dtype = type;
  if (check_tensor(job, o->dy, &job->dy, job->dy.dtype, job->dy.dtype) != CLI_OK) return CLI_BAD;
  if (check_tensor(job, o->gate, &job->gate, type, type) != CLI_OK) return CLI_BAD;
  if (check_tensor(job, o->residual, &job->residual, type, wide) != CLI_OK) return CLI_BAD;
  if (o->residual) job->residual_dtype = job->residual.dtype;
  if (o->dy && check_tensor(job, o->input, &job->x, type, wide) != CLI_OK) return CLI_BAD;
  if (o->dy && job->x.dtype != type) job->residual_dtype = wide;
  rms_dtype sum_type = job->residual_dtype;
  if (check_tensor(job, o->dresidual, &job->dresidual, sum_type, job->x.dtype == type ? wide : sum_type) != CLI_OK)
    return CLI_BAD;
  if (o->dresidual) job->residual_dtype = job->dresidual.dtype;
  (void)layout_make(&job->x, job->axis, NULL, &job->rows);
  if (check_statistic(job, o->drstd, &job->drstd) || check_statistic(job, o->dmean, &job->dmean)) return CLI_BAD;
  if (check_params(job, o->weight, &job->weight) != CLI_OK) return CLI_BAD;
  if (check_params(job, o->bias, &job->bias) != CLI_OK) return CLI_BAD;
  if (o->weight && o->bias && (job->weight.dtype != job->bias.dtype || !same_shape(&job->weight, &job->bias)))
    return cli_error(o->bias, "its type or shape is not that of %s", o->weight);
  return CLI_OK;
}

/* ---- Arguments of the library ---- */

static rms_const_view input(const apply_job *job, const npy_array *array) {
  return (rms_const_view){.data = array->data,
                          .dtype = (int32_t)array->dtype,
                          .outer_stride = job->rows.outer_stride,
                          .inner_stride = job->rows.inner_stride,
                          .col_stride = job->rows.col_stride};
}

static rms_view output(const apply_job *job, const npy_array *array) {
  return (rms_view){.data = array->data,
                    .dtype = (int32_t)array->dtype,
                    .outer_stride = job->rows.outer_stride,
                    .inner_stride = job->rows.inner_stride,
                    .col_stride = job->rows.col_stride};
}

static rms_backward_args backward_args(const apply_job *job) {
  return (rms_backward_args){.outer = job->rows.outer,
                             .inner = job->rows.inner,
                             .dy = input(job, &job->dy),
                             .x = input(job, &job->x),
                             .dresidual = input(job, &job->dresidual),
                             .weight = job->weight.data,
                             .dx = output(job, &job->dx),
                             .dweight = job->dweight.data,
                             .dbias = job->dbias.data,
                             .workspace = job->workspace,
                             .workspace_bytes = job->workspace_bytes,
                             .weight_dtype = (int32_t)job->weight_dtype,
                             .dweight_dtype = (int32_t)job->weight_dtype,
                             .dbias_dtype = (int32_t)job->weight_dtype,
                             .gate = input(job, &job->gate),
                             .dgate = output(job, &job->dgate),
                             .bias = job->bias.data,
                             .bias_dtype = (int32_t)job->weight_dtype,
                             .drstd = job->drstd.data,
                             .dmean = job->dmean.data};
}

/* ---- Outputs ---- */

static int create_quantised(apply_job *job) {
  const npy_array *x = &job->x;
  int64_t shape[NPY_DIMS_MAX + 1];
  const int last = x->dims - 1;
  memcpy(shape, x->shape, sizeof x->shape);
  if (job->q_dtype == RMS_Q8_0) {
    shape[last] /= 32;
    shape[last + 1] = 34;
    return last + 2 > NPY_DIMS_MAX || npy_create(&job->q, RMS_F8E4M3, last + 2, shape);
  }
  if (npy_create(&job->q, job->q_dtype, x->dims, x->shape)) return 1;
  if (job->spec.scale_block == 0) return 0;
  shape[last] = job->spec.cols / job->spec.scale_block;
  return npy_create(&job->scale, RMS_F32, shape[last] > 1 ? x->dims : last, shape);
}

static int create_outputs(apply_job *job) {
  const apply_options *o = job->options;
  const npy_array *x = &job->x;
  rms_dtype type = job->dtype, stat_type = statistic_type(job);
  int64_t stat_shape[NPY_DIMS_MAX];
  int stat_dims = shape_statistics(job, stat_shape), param_dims = job->params ? job->params->dims : 1;
  const int64_t *param_shape = job->params ? job->params->shape : &job->spec.cols;
  int failed = 0;
  if (o->output && is_backward(o)) failed |= npy_create(&job->dx, type, x->dims, x->shape);
  if (o->output && !is_backward(o))
    failed |= npy_create(&job->y, job->y_dtype ? job->y_dtype : type, x->dims, x->shape);
  if (o->quantised) failed |= create_quantised(job);
  if (o->dgate) failed |= npy_create(&job->dgate, type, x->dims, x->shape);
  if (o->residual_out) failed |= npy_create(&job->residual_out, job->residual_dtype, x->dims, x->shape);
  if (o->rstd) failed |= npy_create(&job->rstd, stat_type, stat_dims, stat_shape);
  if (o->mean) failed |= npy_create(&job->mean, stat_type, stat_dims, stat_shape);
  if (o->dweight) failed |= npy_create(&job->dweight, job->weight_dtype, param_dims, param_shape);
  if (o->dbias) failed |= npy_create(&job->dbias, job->weight_dtype, param_dims, param_shape);
  if (!failed && (o->dweight || o->dbias)) {
    const rms_backward_args args = backward_args(job);
    job->workspace_bytes = rms_backward_workspace(&job->spec, &args);
    job->workspace = aligned_alloc(64, (job->workspace_bytes + 63) / 64 * 64);
    failed |= !job->workspace;
  }
  return failed ? cli_error(o->input, "not enough memory") : CLI_OK;
}

static int order_inputs(apply_job *job) {
  int failed = layout_order(&job->rows, &job->drstd, 0) | layout_order(&job->rows, &job->dmean, 0);
  return failed ? cli_error(job->options->input, "not enough memory") : CLI_OK;
}

static int order_outputs(apply_job *job) {
  int failed = layout_order(&job->rows, &job->rstd, 1) | layout_order(&job->rows, &job->mean, 1);
  if (!scale_is_given(job->options)) failed |= layout_order(&job->rows, &job->scale, 1);
  return failed ? cli_error(job->options->input, "not enough memory") : CLI_OK;
}

static int write_outputs(const apply_job *job) {
  const apply_options *o = job->options;
  const npy_output all[] = {{o->output, is_backward(o) ? &job->dx : &job->y},
                            {o->residual_out, &job->residual_out},
                            {o->rstd, &job->rstd},
                            {o->mean, &job->mean},
                            {o->dweight, &job->dweight},
                            {o->dbias, &job->dbias},
                            {o->dgate, &job->dgate},
                            {o->quantised, &job->q},
                            {scale_is_given(o) ? NULL : o->scale, &job->scale}};
  npy_output wanted[NPY_OUTPUTS_MAX];
  int count = 0;
  char reason[256];
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i].path) wanted[count++] = all[i];
  int failed = npy_write_all(wanted, count, reason, sizeof reason);
  if (failed < 0) return CLI_OK;
  return cli_error(strcmp(wanted[failed].path, "-") == 0 ? "standard output" : wanted[failed].path, "%s", reason);
}

static rms_status run_forward(const apply_job *job, const rms_executor *executor) {
  rms_forward_args args = {.outer = job->rows.outer,
                           .inner = job->rows.inner,
                           .x = input(job, &job->x),
                           .residual = input(job, &job->residual),
                           .weight = job->weight.data,
                           .bias = job->bias.data,
                           .y = output(job, &job->y),
                           .residual_out = output(job, &job->residual_out),
                           .rstd = job->rstd.data,
                           .mean = job->mean.data,
                           .weight_dtype = (int32_t)job->weight_dtype,
                           .bias_dtype = (int32_t)job->weight_dtype,
                           .gate = input(job, &job->gate),
                           .q = output(job, &job->q),
                           .scale = job->scale.data};
  args.q.dtype = (int32_t)job->q_dtype;
  return rms_forward(&job->spec, &args, executor);
}

static rms_status run_backward(const apply_job *job, const rms_executor *executor) {
  const rms_backward_args args = backward_args(job);
  return rms_backward(&job->spec, &args, executor);
}

static int run_operation(const apply_job *job) {
  const apply_options *o = job->options;
  int code = cli_check_environment();
  if (code >= 0) return code;
  rms_pool *pool = NULL;
  rms_executor executor = {0};
  if (o->threads > 1) {
    if (rms_pool_create(&pool, (int)o->threads) != RMS_OK)
      return cli_error("--threads", "cannot start %lld threads", (long long)o->threads);
    executor = rms_pool_executor(pool);
  }
  const rms_executor *threads = pool ? &executor : NULL;
  rms_status status = is_backward(o) ? run_backward(job, threads) : run_forward(job, threads);
  rms_pool_destroy(pool);
  return status == RMS_OK ? CLI_OK : cli_error(o->input, "%s", rms_status_string(status));
}

/* ---- The command ---- */

static int run_job(apply_job *job) {
  int code = read_inputs(job);
  if (code == CLI_OK) code = check_inputs(job);
  if (code == CLI_OK) code = create_outputs(job);
  if (code == CLI_OK) code = order_inputs(job);
  if (code == CLI_OK) code = run_operation(job);
  if (code == CLI_OK) code = order_outputs(job);
  if (code == CLI_OK) code = write_outputs(job);
  return code;
}

static void free_job(apply_job *job) {
  npy_array *arrays[] = {&job->x,         &job->weight,  &job->bias,  &job->residual,     &job->dy,
                         &job->dresidual, &job->gate,    &job->y,     &job->dx,           &job->rstd,
                         &job->mean,      &job->dweight, &job->dbias, &job->residual_out, &job->dgate,
                         &job->q,         &job->scale,   &job->drstd, &job->dmean};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
    npy_free(arrays[i]);
  free(job->workspace);
}

int cmd_apply(int argc, char **argv) {
  apply_options o = {.kind = "rms",
                     .rounding = "after",
                     .eps = UNSET,
                     .p = UNSET,
                     .k = INT64_MIN,
                     .groups = 1,
                     .threads = 1,
                     .axis = -1};
  const cli_option table[] = {
      {"output", 'o', CLI_STRING, &o.output, "OUT.npy", "y; with --backward dx"},
      {"kind", 0, CLI_STRING, &o.kind, "rms|layer", "RMSNorm (default) or LayerNorm"},
      {"axis", 0, CLI_INT, &o.axis, "A", "the axis that is normalised; default -1, the last"},
      {"weight", 0, CLI_STRING, &o.weight, "W.npy", "multiply by this weight"},
      {"bias", 0, CLI_STRING, &o.bias, "B.npy", "add this bias"},
      {"eps", 0, CLI_REAL, &o.eps, "E", "default 1e-6 for rms, 1e-5 for layer"},
      {"eps-outside", 0, CLI_FLAG, &o.eps_outside, NULL, "add eps to the root instead of under it"},
      {"eps-clamp", 0, CLI_FLAG, &o.eps_clamp, NULL, "eps is the least root mean square instead"},
      {"p", 0, CLI_REAL, &o.p, "P", "pRMSNorm: the first P of a row, 0 < P <= 1, enter the statistic"},
      {"k", 0, CLI_INT, &o.k, "K", "pRMSNorm: the first K elements enter the statistic"},
      {"groups", 0, CLI_INT, &o.groups, "G", "normalise each row as G independent groups"},
      {"weight-offset", 0, CLI_REAL, &o.weight_offset, "O", "multiply by weight + O"},
      {"rounding", 0, CLI_STRING, &o.rounding, "after|before",
       "round once, after the weight (default), or also before it"},
      {"steps", 0, CLI_STRING, &o.steps, "wide|terms|rstd|all",
       "bf16, f16: round the two terms of dx, r, or every step too"},
      {"round-gain", 0, CLI_FLAG, &o.round_gain, NULL, "round weight + O to the type of the weight"},
      {"y-type", 0, CLI_STRING, &o.y_type, "f32|bf16|f16", "the type of y; default: that of IN"},
      {"residual", 0, CLI_STRING, &o.residual, "R.npy", "normalise IN + R"},
      {"residual-out", 0, CLI_STRING, &o.residual_out, "S.npy", "write IN + R"},
      {"gate", 0, CLI_STRING, &o.gate, "Z.npy", "multiply by an activation of Z"},
      {"gate-place", 0, CLI_STRING, &o.gate_place, "after|before",
       "multiply the result (default), or IN before the norm"},
      {"activation", 0, CLI_STRING, &o.activation, "silu|sigmoid", "of the gate; default silu"},
      {"quantised", 0, CLI_STRING, &o.quantised, "Q.npy", "write y in an 8-bit type"},
      {"quantised-type", 0, CLI_STRING, &o.quantised_type, "i8|e4m3|e5m2|q8_0", "that type; default i8"},
      {"scale", 0, CLI_STRING, &o.scale, "S.npy", "write its scales; with --scale-block tensor read the one scale"},
      {"scale-block", 0, CLI_STRING, &o.scale_block, "row|tensor|N",
       "a scale for each row or group (default), for all, for N elements"},
      {"scale-least", 0, CLI_REAL, &o.scale_least, "S", "scales that are written are at least S"},
      {"rstd", 0, CLI_STRING, &o.rstd, "R.npy", "write 1/sqrt(mean square + eps) of each row"},
      {"mean", 0, CLI_STRING, &o.mean, "M.npy", "layer: write the mean of each row"},
      {"backward", 0, CLI_STRING, &o.dy, "DY.npy", "compute gradients: DY is that of the output"},
      {"drstd", 0, CLI_STRING, &o.drstd, "DR.npy", "backward: add the gradient that reaches rstd"},
      {"dmean", 0, CLI_STRING, &o.dmean, "DM.npy", "backward, layer: add the gradient that reaches mean"},
      {"dresidual", 0, CLI_STRING, &o.dresidual, "D.npy", "backward: add this gradient of the residual sum to dx"},
      {"dweight", 0, CLI_STRING, &o.dweight, "DW.npy", "backward: write the gradient of the weight"},
      {"dbias", 0, CLI_STRING, &o.dbias, "DB.npy", "backward: write the gradient of the bias"},
      {"dgate", 0, CLI_STRING, &o.dgate, "DZ.npy", "backward: write the gradient of the gate"},
      {"threads", 0, CLI_INT, &o.threads, "N", "default 1; the result does not depend on it"},
      {0}};
  const cli_command command = {"apply",
                               "IN.npy -o OUT.npy [OPTION...]",
                               "Runs RMSNorm, pRMSNorm or LayerNorm, forward or backward, on NumPy files.",
                               EXAMPLES,
                               table,
                               NOTES};
  int code = cli_parse(&command, &argc, argv);
  if (code >= 0) return code;
  if (argc == 0) return cli_error(NULL, "apply needs an input file; see 'rmsnorm apply --help'");
  if (argc > 1) return cli_error(NULL, "apply takes one input file: '%s' is one too many", argv[1]);
  o.input = argv[0];
  apply_job job = {.options = &o};
  if (read_kind(&o, &job.spec) != CLI_OK || read_numbers(&o, &job.spec) != CLI_OK) return CLI_BAD;
  if (read_quantised(&o, &job.spec, &job.q_dtype) != CLI_OK || read_types(&o, &job) != CLI_OK) return CLI_BAD;
  if (read_steps(&o, &job.spec) != CLI_OK) return CLI_BAD;
  if (read_gate(&o, &job.spec) != CLI_OK || check_combination(&o, &job.spec) != CLI_OK) return CLI_BAD;
  code = run_job(&job);
  free_job(&job);
  return code;
}
