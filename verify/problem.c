/* SPDX-License-Identifier: MIT
 * Problem strings: read, checked and written. */
#include "problem.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "words.h"

static const char *const kind_words[] = {"rms", "prms", "layer", NULL};
static const char *const dir_words[] = {"fwd", "bwd", NULL};
static const char *const dtype_words[] = {"f32", "f64", "bf16", "f16", NULL}; /* from RMS_F32 on */
static const char *const data_words[] = {"normal",  "lognormal", "cauchy",    "hugemean", "small", "tiny",
                                         "huge",    "max",       "least",     "steps",    "exact", "zerorows",
                                         "nanrows", "mixed",     "faintrows", NULL};
static const char *const type_words[] = {"same", "f32", NULL};
static const char *const weight_words[] = {"same", "f32", "none", NULL};
static const char *const channels_words[] = {"first", NULL};
static const char *const steps_words[] = {"terms", "rstd", "all", NULL}; /* from RMS_STEPS_TERMS on */
static const char *const gate_words[] = {"after", "before", NULL};       /* from RMS_GATE_AFTER on */
static const char *const activation_words[] = {"silu", "sigmoid", NULL};
static const char *const quantised_words[] = {"i8", "e4m3", "e5m2", "q8_0", NULL}; /* from RMS_I8 on */
static const char *const output_words[] = {"y", "sum", "stats", "dx", "ds", "dw", "db", "dz", "q", NULL};
static const char *const option_words[] = {
    "w",        "bias",   "off",     "eps",       "epsout",   "round", "groups", "k",   "p",       "idx",
    "res",      "dres",   "perhead", "recompute", "acc",      "out",   "grad",   "pad", "inplace", "split",
    "data",     "dydata", "seed",    "isa",       "threads",  "gate",  "act",    "y",   "gain",    "wstride",
    "channels", "q",      "qblock",  "qleast",    "epsclamp", "steps", "of",     NULL};

enum { FORWARD_OUTPUTS = VERIFY_OUT_Y | VERIFY_OUT_SUM | VERIFY_OUT_STATS | VERIFY_OUT_Q };
enum { BLOCK_ABSENT = -2, BLOCK_ROW = -1, BLOCK_TENSOR = 0 };
enum { TYPE_ABSENT = -1, TYPE_SAME, TYPE_F32, TYPE_NONE }; /* as in type_words and weight_words */

/* What the options said, before the defaults that depend on one another are filled in. */
typedef struct draft {
  verify_problem problem;
  int kind_partial, weight_type, residual_type, grad_type, acc_given, dy_data_given, act_given, of_given;
  int64_t block; /* qblock=: elements, or one of the two below */
  double share;  /* p=, 0: not given */
  char *message;
  size_t message_size;
} draft;

const char *verify_dtype_name(rms_dtype dtype) {
  return dtype_words[dtype - RMS_F32];
}
const char *verify_data_name(verify_data data) {
  return data_words[data];
}

/* ---- Messages ---- */

__attribute__((format(printf, 2, 3))) static int fail(const draft *d, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(d->message, d->message_size, format, list);
  va_end(list);
  for (char *at = d->message; *at; at++)
    if (*at < ' ' || *at > '~') *at = '?'; /* the message quotes the text: one line, whatever is in it */
  return -1;
}

static int fail_word(const draft *d, const char *what, const char *text, const char *const *words) {
  char all[384] = "";
  const char *nearest = verify_nearest_word(text, words);
  if (nearest) return fail(d, "unknown %s '%s'; did you mean '%s'?", what, text, nearest);
  for (const char *const *w = words; *w; w++) {
    strcat(all, w == words ? "" : ", ");
    strcat(all, *w);
  }
  return fail(d, "unknown %s '%s'; one of: %s", what, text, all);
}

/* ---- Values ---- */

static int read_word(const draft *d, const char *what, const char *text, const char *const *words, int *index) {
  for (int i = 0; words[i]; i++)
    if (strcmp(text, words[i]) == 0) {
      *index = i;
      return 0;
    }
  return fail_word(d, what, text, words);
}

static int read_integer(const draft *d, const char *what, const char *text, int64_t lowest, int64_t highest,
                        int64_t *value) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || text[0] < '-' || text[0] > '9' || errno || number < lowest || number > highest)
    return fail(d, "bad %s '%s': need a whole number from %lld%s", what, text, (long long)lowest,
                highest == INT64_MAX ? "" : " within its range");
  *value = number;
  return 0;
}

static int read_real(const draft *d, const char *what, const char *text, double lowest, double *value) {
  char *end;
  double number = strtod(text, &end);
  if (end == text || *end || !isfinite(number) || number < lowest)
    return fail(d, "bad %s '%s': need a finite number%s", what, text, lowest == 0 ? " of at least 0" : "");
  *value = number;
  return 0;
}

/* "dx+dw" as bits of output_words. */
static int read_outputs(const draft *d, const char *what, char *text, unsigned *bits) {
  *bits = 0;
  for (char *next = text; text; text = next) {
    int index = 0;
    next = strchr(text, '+');
    if (next) *next++ = '\0';
    if (read_word(d, what, text, output_words, &index)) return -1;
    *bits |= 1u << index;
  }
  return 0;
}

static int read_shape(draft *d, char *text) {
  int64_t sizes[3];
  int count = 0;
  char whole[65];
  snprintf(whole, sizeof whole, "%.64s", text);
  for (char *next = text; text; text = next, count++) {
    next = strchr(text, 'x');
    if (next) *next++ = '\0';
    if (count == 3) return fail(d, "bad shape '%s': need ROWSxCOLS or OUTERxINNERxCOLS", whole);
    if (read_integer(d, "size", text, next ? 0 : 1, INT64_MAX, &sizes[count])) return -1;
  }
  if (count < 2) return fail(d, "bad shape '%s': need ROWSxCOLS or OUTERxINNERxCOLS", whole);
  d->problem.outer = sizes[0];
  d->problem.inner = count == 3 ? sizes[1] : 1;
  d->problem.spec.cols = sizes[count - 1];
  if (d->problem.inner < 1) return fail(d, "bad shape '%s': INNER is below 1", whole);
  return 0;
}

/* ---- Options ---- */

static int is_flag(const char *name) {
  static const char *const flags[] = {"bias",    "epsout",    "epsclamp", "idx",  "dres",
                                      "perhead", "recompute", "inplace",  "split"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (strcmp(name, flags[i]) == 0) return 1;
  return 0;
}

static void set_flag(draft *d, const char *name) {
  verify_problem *p = &d->problem;
  if (strcmp(name, "bias") == 0) p->has_bias = 1;
  if (strcmp(name, "epsout") == 0) p->spec.eps_place = RMS_EPS_OUTSIDE;
  if (strcmp(name, "epsclamp") == 0) p->spec.eps_place = RMS_EPS_CLAMP;
  if (strcmp(name, "idx") == 0) p->has_indices = 1;
  if (strcmp(name, "dres") == 0) p->has_dresidual = 1;
  if (strcmp(name, "perhead") == 0) p->spec.weight_per_inner = 1;
  if (strcmp(name, "recompute") == 0) p->recompute = 1;
  if (strcmp(name, "inplace") == 0) p->in_place = 1;
  if (strcmp(name, "split") == 0) p->split = 1;
}

static int read_accumulate(draft *d, char *value) {
  unsigned bits;
  if (read_outputs(d, "output in acc=", value, &bits)) return -1;
  if (bits & ~(unsigned)(VERIFY_OUT_DX | VERIFY_OUT_DW | VERIFY_OUT_DB))
    return fail(d, "acc= takes dx, dw and db only");
  d->problem.accumulate = (bits & VERIFY_OUT_DX ? RMS_ACCUMULATE_DX : 0) |
                          (bits & VERIFY_OUT_DW ? RMS_ACCUMULATE_DWEIGHT : 0) |
                          (bits & VERIFY_OUT_DB ? RMS_ACCUMULATE_DBIAS : 0);
  return 0;
}

static int read_block(draft *d, const char *value) {
  static const char *const words[] = {"tensor", "row", NULL};
  for (int i = 0; words[i]; i++)
    if (strcmp(value, words[i]) == 0) {
      d->block = i == 0 ? BLOCK_TENSOR : BLOCK_ROW;
      return 0;
    }
  return read_integer(d, "qblock (row, tensor or elements)", value, 1, INT64_MAX, &d->block);
}

static int read_value(draft *d, const char *name, char *value) {
  verify_problem *p = &d->problem;
  static const char *const before_words[] = {"before", NULL}, *const gain_words[] = {"weight", NULL};
  int64_t number = 0;
  int index = 0;
  if (strcmp(name, "w") == 0) return read_word(d, "weight type", value, weight_words, &d->weight_type);
  if (strcmp(name, "res") == 0) return read_word(d, "residual type", value, type_words, &d->residual_type);
  if (strcmp(name, "grad") == 0) return read_word(d, "gradient type", value, type_words, &d->grad_type);
  if (strcmp(name, "off") == 0) return read_real(d, "weight offset", value, -DBL_MAX, &p->spec.weight_offset);
  if (strcmp(name, "eps") == 0) return read_real(d, "eps", value, 0, &p->spec.eps);
  if (strcmp(name, "p") == 0) {
    if (read_real(d, "p", value, 0, &d->share)) return -1;
    return d->share > 0 && d->share <= 1 ? 0 : fail(d, "bad p '%s': need 0 < p <= 1", value);
  }
  if (strcmp(name, "k") == 0) return read_integer(d, "k", value, 1, INT64_MAX, &p->spec.partial);
  if (strcmp(name, "groups") == 0) return read_integer(d, "groups", value, 1, INT64_MAX, &p->spec.groups);
  if (strcmp(name, "channels") == 0) {
    p->channels_first = 1;
    return read_word(d, "place of the channels", value, channels_words, &index);
  }
  if (strcmp(name, "pad") == 0) return read_integer(d, "pad", value, 0, INT32_MAX, &p->pad);
  if (strcmp(name, "of") == 0) {
    if (read_outputs(d, "result in of=", value, &p->of)) return -1;
    if (p->of & ~(unsigned)(VERIFY_OUT_Y | VERIFY_OUT_STATS)) return fail(d, "of= takes y and stats only");
    d->of_given = 1;
    if (p->of == VERIFY_OUT_Y) p->of = 0;
    return 0;
  }
  if (strcmp(name, "out") == 0) return read_outputs(d, "output", value, &p->outputs);
  if (strcmp(name, "acc") == 0) return read_accumulate(d, value);
  if (strcmp(name, "isa") == 0) {
    if (!*value || strlen(value) >= sizeof p->isa) return fail(d, "bad instruction set '%s'", value);
    strcpy(p->isa, value);
    return 0;
  }
  if (strcmp(name, "round") == 0) {
    p->spec.rounding = RMS_ROUND_BEFORE_WEIGHT;
    return read_word(d, "rounding order", value, before_words, &index);
  }
  if (strcmp(name, "steps") == 0) {
    if (read_word(d, "steps", value, steps_words, &index)) return -1;
    p->spec.steps = (rms_steps)(RMS_STEPS_TERMS + index);
    return 0;
  }
  if (strcmp(name, "y") == 0) {
    if (read_word(d, "type of y", value, dtype_words, &index)) return -1;
    p->spec.y_dtype = (rms_dtype)(RMS_F32 + index);
    return 0;
  }
  if (strcmp(name, "gain") == 0) {
    p->spec.gain_rounding = RMS_GAIN_AS_WEIGHT;
    return read_word(d, "rounding of the gain", value, gain_words, &index);
  }
  if (strcmp(name, "wstride") == 0) return read_integer(d, "wstride", value, 1, INT32_MAX, &p->weight_stride);
  if (strcmp(name, "q") == 0) {
    if (read_word(d, "quantised type", value, quantised_words, &index)) return -1;
    p->spec.q_dtype = (rms_dtype)(RMS_I8 + index);
    return 0;
  }
  if (strcmp(name, "qblock") == 0) return read_block(d, value);
  if (strcmp(name, "qleast") == 0) return read_real(d, "least scale", value, 0, &p->spec.scale_least);
  if (strcmp(name, "gate") == 0) {
    if (read_word(d, "place of the gate", value, gate_words, &index)) return -1;
    p->spec.gate_place = (rms_gate_place)(RMS_GATE_AFTER + index);
    return 0;
  }
  if (strcmp(name, "act") == 0) {
    if (read_word(d, "activation", value, activation_words, &index)) return -1;
    p->spec.activation = (rms_activation)index;
    d->act_given = 1;
    return 0;
  }
  if (strcmp(name, "data") == 0) {
    if (read_word(d, "data", value, data_words, &index)) return -1;
    p->data = (verify_data)index;
    return 0;
  }
  if (strcmp(name, "dydata") == 0) {
    if (read_word(d, "data of dy", value, data_words, &index)) return -1;
    p->dy_data = (verify_data)index;
    d->dy_data_given = 1;
    return 0;
  }
  if (strcmp(name, "seed") == 0) {
    if (read_integer(d, "seed", value, 0, INT64_MAX, &number)) return -1;
    p->seed = (uint64_t)number;
    return 0;
  }
  if (read_integer(d, "threads", value, 1, 1024, &number)) return -1;
  p->threads = (int)number;
  return 0;
}

static int read_option(draft *d, char *text) {
  char *value = strchr(text, '=');
  int index;
  if (value) *value++ = '\0';
  if (read_word(d, "option", text, option_words, &index)) return -1;
  if (is_flag(text)) {
    if (value) return fail(d, "option '%s' takes no value", text);
    set_flag(d, text);
    return 0;
  }
  if (value) return read_value(d, text, value);
  if (strcmp(text, "res") == 0) {
    d->residual_type = TYPE_SAME;
    return 0;
  }
  if (strcmp(text, "acc") == 0) {
    d->acc_given = 1;
    return 0;
  }
  return fail(d, "option '%s' needs a value: %s=...", text, text);
}

/* ---- Defaults and contradictions ---- */

static unsigned default_outputs(const verify_problem *p) {
  if (!p->backward)
    return (p->spec.q_dtype ? (unsigned)VERIFY_OUT_Q : (unsigned)VERIFY_OUT_Y) |
           (p->has_residual ? (unsigned)VERIFY_OUT_SUM : 0u);
  if (p->of == VERIFY_OUT_STATS) return VERIFY_OUT_DX | (p->spec.gate_place == RMS_GATE_BEFORE ? VERIFY_OUT_DZ : 0u);
  return VERIFY_OUT_DX | (p->has_weight ? (unsigned)VERIFY_OUT_DW : 0u) | (p->has_bias ? (unsigned)VERIFY_OUT_DB : 0u) |
         (p->spec.gate_place ? (unsigned)VERIFY_OUT_DZ : 0u);
}

static verify_data default_dy_data(const verify_problem *p) {
  return p->data == VERIFY_LOGNORMAL || p->data == VERIFY_EXACT ? p->data : VERIFY_NORMAL;
}

/* A y, or dy, whose type is not that of x. */
static int check_own_type(const draft *d) {
  const verify_problem *p = &d->problem;
  const verify_spec *s = &p->spec;
  if (s->dtype == RMS_F64 || s->y_dtype == RMS_F64) return fail(d, "y=: f64 does not mix with other types");
  if (p->in_place && rms_dtype_size(s->dtype) != rms_dtype_size(s->y_dtype))
    return fail(d, "inplace needs a y whose elements have the size of those of x");
  if (p->backward && s->residual_dtype != s->dtype) return fail(d, "y= and res=f32 contradict each other in bwd");
  if (p->backward && s->dtype == RMS_F32 && p->outputs && !(p->outputs & VERIFY_OUT_DX))
    return fail(d, "y= beside an f32 x needs the output dx, which says that x is no residual sum");
  return 0;
}

static int check_weight_stride(const draft *d) {
  const verify_problem *p = &d->problem;
  if (p->weight_stride == 0) return 0;
  if (!p->spec.weight_per_inner) return fail(d, "wstride= needs perhead");
  if (p->weight_stride < p->spec.cols)
    return fail(d, "wstride=%lld is less than the columns", (long long)p->weight_stride);
  return 0;
}

static int fill_types(draft *d) {
  verify_problem *p = &d->problem;
  rms_dtype type = p->spec.dtype;
  p->has_weight = d->weight_type != TYPE_NONE;
  p->spec.weight_dtype = d->weight_type == TYPE_F32 ? RMS_F32 : type;
  p->has_residual = d->residual_type != TYPE_ABSENT;
  p->spec.residual_dtype = d->residual_type == TYPE_F32 ? RMS_F32 : type;
  p->spec.grad_dtype = d->grad_type == TYPE_ABSENT ? p->spec.weight_dtype : d->grad_type == TYPE_F32 ? RMS_F32 : type;
  if (type == RMS_F64 && p->spec.residual_dtype == RMS_F32) return fail(d, "res=f32 is not offered for f64 data");
  if (p->spec.y_dtype == type) p->spec.y_dtype = RMS_AS_X;
  return p->spec.y_dtype == RMS_AS_X ? 0 : check_own_type(d);
}

static int fill_partial(draft *d) {
  verify_spec *s = &d->problem.spec;
  int64_t groups = s->groups ? s->groups : 1;
  if (s->cols % groups)
    return fail(d, "groups=%lld does not divide %lld columns", (long long)groups, (long long)s->cols);
  if (d->share > 0 && s->partial > 0) return fail(d, "k= and p= contradict each other");
  if (d->share > 0) s->partial = rms_partial_count(s->cols / groups, d->share);
  if (d->kind_partial && s->partial == 0) return fail(d, "prms needs k=K or p=P");
  if (!d->kind_partial && (s->partial || d->problem.has_indices)) return fail(d, "k=, p= and idx belong to prms");
  if (s->partial > s->cols / groups)
    return fail(d, "k=%lld is more than the columns of a group", (long long)s->partial);
  if (s->groups == 1) s->groups = 0;
  return 0;
}

static int64_t group_width(const verify_spec *s) {
  return s->cols / (s->groups ? s->groups : 1);
}

static int fill_quantised(draft *d) {
  verify_problem *p = &d->problem;
  verify_spec *s = &p->spec;
  const int64_t width = group_width(s);
  if (!s->q_dtype) return d->block == BLOCK_ABSENT && s->scale_least == 0 ? 0 : fail(d, "qblock= and qleast= need q=");
  if (p->backward || p->split || s->dtype == RMS_F64) return fail(d, "q= belongs to fwd, without split, not of f64");
  if (s->q_dtype == RMS_Q8_0) {
    if (d->block != BLOCK_ABSENT) return fail(d, "q8_0 has blocks of its own: qblock= does not belong there");
    return width % 32 == 0 ? 0 : fail(d, "q8_0 needs groups of whole blocks of 32 columns");
  }
  s->scale_block = d->block == BLOCK_ABSENT || d->block == BLOCK_ROW ? width : d->block;
  if (s->scale_block && width % s->scale_block)
    return fail(d, "qblock=%lld does not divide the columns of a group", (long long)s->scale_block);
  return s->scale_least <= (double)FLT_MAX ? 0 : fail(d, "qleast= is beyond the range of f32");
}

static int check_direction(const draft *d) {
  const verify_problem *p = &d->problem;
  if (p->channels_first && p->spec.weight_per_inner) return fail(d, "channels=first and perhead exclude each other");
  if (d->act_given && !p->spec.gate_place) return fail(d, "act= needs gate=");
  if (p->outputs & VERIFY_OUT_DZ && !p->spec.gate_place) return fail(d, "out=dz needs gate=");
  if (!p->backward) {
    if (p->outputs & ~(unsigned)FORWARD_OUTPUTS) return fail(d, "out=: dx, ds, dw, db and dz belong to bwd");
    if (!(p->outputs & (VERIFY_OUT_Y | VERIFY_OUT_Q | VERIFY_OUT_STATS)))
      return fail(d, "out=: a forward writes y, q or stats");
    if (p->in_place && !(p->outputs & VERIFY_OUT_Y)) return fail(d, "inplace needs the output y");
    if (!(p->outputs & VERIFY_OUT_Q) != !p->spec.q_dtype) return fail(d, "q= and the output q need each other");
    if (p->channels_first && p->spec.q_dtype) return fail(d, "channels=first and q= exclude each other");
    if (p->outputs & VERIFY_OUT_SUM && !p->has_residual) return fail(d, "out=sum needs res");
    if (p->has_dresidual || p->recompute || p->accumulate || d->acc_given || d->grad_type != TYPE_ABSENT)
      return fail(d, "dres, recompute, acc and grad belong to bwd");
    if (d->dy_data_given || d->of_given) return fail(d, "dydata and of belong to bwd");
    return 0;
  }
  if (p->outputs & FORWARD_OUTPUTS) return fail(d, "out=: y, sum and stats belong to fwd");
  if (p->in_place && !(p->outputs & VERIFY_OUT_DX)) return fail(d, "inplace needs the output dx");
  if (p->in_place && p->accumulate & RMS_ACCUMULATE_DX) return fail(d, "inplace and acc of dx contradict each other");
  if (p->of && (p->split || p->spec.steps >= RMS_STEPS_RSTD))
    return fail(d, "of=stats excludes split, steps=rstd and steps=all");
  if (p->of == VERIFY_OUT_STATS && (p->in_place || d->dy_data_given))
    return fail(d, "of=stats has no dy: inplace and dydata= do not belong there");
  if (p->split && p->recompute) return fail(d, "split and recompute contradict each other");
  return 0;
}

/* The combinations that rms_steps has. */
static int check_steps(const draft *d) {
  const verify_problem *p = &d->problem;
  const verify_spec *s = &p->spec;
  const int inside = s->eps_place == RMS_EPS_INSIDE;
  if (s->steps == RMS_STEPS_WIDE) return 0;
  if (s->gate_place) return fail(d, "steps= and gate= exclude each other");
  if (s->kind == RMS_KIND_LAYER && (s->steps != RMS_STEPS_ALL || !inside))
    return fail(d, "a LayerNorm has steps=all alone, with eps under the root");
  if (s->steps == RMS_STEPS_TERMS) return 0;
  if (s->steps == RMS_STEPS_RSTD && !inside) return fail(d, "steps=rstd needs eps under the root");
  if (s->partial || p->split) return fail(d, "steps=rstd and steps=all have no partial and no split form");
  return 0;
}

static int finish(draft *d) {
  verify_problem *p = &d->problem;
  if (fill_types(d) || fill_partial(d) || fill_quantised(d) || check_weight_stride(d)) return -1;
  if (p->weight_stride == p->spec.cols) p->weight_stride = 0;
  if (p->outputs == 0) p->outputs = default_outputs(p);
  if (!d->dy_data_given) p->dy_data = default_dy_data(p);
  unsigned addable = (p->outputs & VERIFY_OUT_DX ? RMS_ACCUMULATE_DX : 0u) |
                     (p->outputs & VERIFY_OUT_DW ? RMS_ACCUMULATE_DWEIGHT : 0u) |
                     (p->outputs & VERIFY_OUT_DB ? RMS_ACCUMULATE_DBIAS : 0u);
  if (d->acc_given) p->accumulate = (int)addable;
  if ((unsigned)p->accumulate & ~addable) return fail(d, "acc= names an output that out= does not have");
  return check_direction(d) || check_steps(d) ? -1 : 0;
}

static int parse_parts(draft *d, char *text) {
  static const char *const names[] = {"kind", "direction", "data type", "shape"};
  int part = 0, index = 0;
  for (char *next = text; text; text = next, part++) {
    next = strchr(text, ':');
    if (next) *next++ = '\0';
    if (part == 0) {
      if (read_word(d, "kind", text, kind_words, &index)) return -1;
      d->kind_partial = index == 1;
      d->problem.spec.kind = index == 2 ? RMS_KIND_LAYER : RMS_KIND_RMS;
    } else if (part == 1) {
      if (read_word(d, "direction", text, dir_words, &d->problem.backward)) return -1;
    } else if (part == 2) {
      if (read_word(d, "data type", text, dtype_words, &index)) return -1;
      d->problem.spec.dtype = (rms_dtype)(RMS_F32 + index);
    } else if (part == 3 ? read_shape(d, text) : read_option(d, text)) {
      return -1;
    }
  }
  if (part < 4) return fail(d, "the %s is missing; a problem is KIND:DIR:DTYPE:SHAPE[:OPTION...]", names[part]);
  return finish(d);
}

int verify_problem_parse(const char *text, verify_problem *problem, char *message, size_t message_size) {
  char copy[VERIFY_TEXT_MAX];
  draft d = {.message = message, .message_size = message_size, .weight_type = TYPE_SAME};
  d.residual_type = d.grad_type = TYPE_ABSENT;
  d.block = BLOCK_ABSENT;
  d.problem.spec.eps = 1e-6;
  d.problem.seed = 1;
  d.problem.threads = 1;
  if (strlen(text) >= sizeof copy) return fail(&d, "the problem string is too long");
  strcpy(copy, text);
  if (parse_parts(&d, copy)) return -1;
  *problem = d.problem;
  return 0;
}

/* ---- Writing ---- */

typedef struct writer {
  char *text;
  size_t size, used;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int length =
      vsnprintf(w->used < w->size ? w->text + w->used : NULL, w->used < w->size ? w->size - w->used : 0, format, list);
  va_end(list);
  w->used += (size_t)(length > 0 ? length : 0);
}

/* The shortest decimal that reads back as the same double. */
static void put_real(writer *w, const char *name, double value) {
  char digits[40];
  for (int precision = 1; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value) break;
  }
  put(w, ":%s=%s", name, digits);
}

static void put_outputs(writer *w, const char *name, unsigned bits) {
  char separator = '=';
  put(w, ":%s", name);
  for (int i = 0; output_words[i]; i++)
    if (bits >> i & 1) {
      put(w, "%c%s", separator, output_words[i]);
      separator = '+';
    }
}

static void put_types(writer *w, const verify_problem *p) {
  const verify_spec *s = &p->spec;
  if (!p->has_weight)
    put(w, ":w=none");
  else if (s->weight_dtype != s->dtype)
    put(w, ":w=f32");
  if (s->y_dtype) put(w, ":y=%s", verify_dtype_name(s->y_dtype));
  if (p->has_bias) put(w, ":bias");
  if (p->has_residual) put(w, s->residual_dtype != s->dtype ? ":res=f32" : ":res");
  if (p->has_dresidual) put(w, ":dres");
  if (p->backward && s->grad_dtype != s->weight_dtype) put(w, s->grad_dtype == s->dtype ? ":grad=same" : ":grad=f32");
}

static void put_spec(writer *w, const verify_spec *s) {
  if (s->partial) put(w, ":k=%lld", (long long)s->partial);
  if (s->groups > 1) put(w, ":groups=%lld", (long long)s->groups);
  if (s->weight_offset != 0) put_real(w, "off", s->weight_offset);
  if (s->gain_rounding == RMS_GAIN_AS_WEIGHT) put(w, ":gain=weight");
  if (s->eps != 1e-6) put_real(w, "eps", s->eps);
  if (s->eps_place == RMS_EPS_OUTSIDE) put(w, ":epsout");
  if (s->eps_place == RMS_EPS_CLAMP) put(w, ":epsclamp");
  if (s->rounding == RMS_ROUND_BEFORE_WEIGHT) put(w, ":round=before");
  if (s->steps) put(w, ":steps=%s", steps_words[s->steps - RMS_STEPS_TERMS]);
  if (s->weight_per_inner) put(w, ":perhead");
  if (s->gate_place) put(w, ":gate=%s", gate_words[s->gate_place - RMS_GATE_AFTER]);
  if (s->activation) put(w, ":act=%s", activation_words[s->activation]);
}

static void put_quantised(writer *w, const verify_spec *s) {
  if (!s->q_dtype) return;
  put(w, ":q=%s", quantised_words[s->q_dtype - RMS_I8]);
  if (s->scale_block != group_width(s) && s->scale_block)
    put(w, ":qblock=%lld", (long long)s->scale_block);
  else if (!s->scale_block && s->q_dtype != RMS_Q8_0)
    put(w, ":qblock=tensor");
  if (s->scale_least != 0) put_real(w, "qleast", s->scale_least);
}

static void put_accumulate(writer *w, const verify_problem *p) {
  if (p->accumulate)
    put_outputs(w, "acc",
                (p->accumulate & RMS_ACCUMULATE_DX ? VERIFY_OUT_DX : 0u) |
                    (p->accumulate & RMS_ACCUMULATE_DWEIGHT ? VERIFY_OUT_DW : 0u) |
                    (p->accumulate & RMS_ACCUMULATE_DBIAS ? VERIFY_OUT_DB : 0u));
}

int verify_problem_print(const verify_problem *p, char *text, size_t text_size) {
  writer w = {text, text_size, 0};
  const verify_spec *s = &p->spec;
  put(&w, "%s:%s:%s:%lld",
      s->kind == RMS_KIND_LAYER ? "layer"
      : s->partial              ? "prms"
                                : "rms",
      dir_words[p->backward], verify_dtype_name(s->dtype), (long long)p->outer);
  if (p->inner != 1 || s->weight_per_inner) put(&w, "x%lld", (long long)p->inner);
  put(&w, "x%lld", (long long)s->cols);
  put_types(&w, p);
  put_spec(&w, s);
  if (p->weight_stride) put(&w, ":wstride=%lld", (long long)p->weight_stride);
  put_quantised(&w, s);
  if (p->has_indices) put(&w, ":idx");
  if (p->of) put_outputs(&w, "of", p->of);
  if (p->recompute) put(&w, ":recompute");
  if (p->outputs != default_outputs(p)) put_outputs(&w, "out", p->outputs);
  put_accumulate(&w, p);
  if (p->channels_first) put(&w, ":channels=first");
  if (p->pad) put(&w, ":pad=%lld", (long long)p->pad);
  if (p->in_place) put(&w, ":inplace");
  if (p->split) put(&w, ":split");
  if (p->data != VERIFY_NORMAL) put(&w, ":data=%s", verify_data_name(p->data));
  if (p->dy_data != default_dy_data(p)) put(&w, ":dydata=%s", verify_data_name(p->dy_data));
  if (p->seed != 1) put(&w, ":seed=%llu", (unsigned long long)p->seed);
  if (p->isa[0]) put(&w, ":isa=%s", p->isa);
  if (p->threads != 1) put(&w, ":threads=%d", p->threads);
  return (int)w.used;
}
