/* SPDX-License-Identifier: MIT
 *
 * The operands of a call in memory: tensors of rows and arrays beside them, what they span, and which may overlap. For
 * check.c alone. */
#ifndef RMS_CORE_OPERANDS_H
#define RMS_CORE_OPERANDS_H

#include "job.h"

/* One tensor of the call: its rows, what a row spans, and what all of them do. */
typedef struct {
  rms_rows rows;
  int64_t row_bytes, span;
} rms_tensor;

typedef struct {
  int64_t outer, inner, cols;
} rms_shape;

/* An array beside the tensors. */
typedef struct {
  const void *data;
  int64_t bytes;
} rms_array;

enum { RMS_TENSORS_IN = 4, RMS_TENSORS_OUT = 3, RMS_ARRAYS_IN = 9, RMS_ARRAYS_OUT = 4 };

typedef struct {
  rms_shape shape;
  rms_tensor in[RMS_TENSORS_IN], out[RMS_TENSORS_OUT];
  rms_array given[RMS_ARRAYS_IN], made[RMS_ARRAYS_OUT];
  int ins, outs, givens, mades;
} rms_operands;

/* Resolves a view that is there: strides in bytes. RMS_OK, or what is wrong with it. */
rms_status rms_resolve_given(const rms_shape *n, const rms_const_view *v, int64_t size, rms_tensor *t);

static inline rms_status rms_resolve(const rms_shape *n, const rms_const_view *v, int64_t size, rms_tensor *t) {
  static const rms_tensor absent;
  if (v->data) return rms_resolve_given(n, v, size, t);
  *t = absent;
  return RMS_OK;
}

/* Arrays that are read, and that are written; NULL: none. */
static inline void rms_list_given(rms_operands *o, const void *data, int64_t bytes) {
  if (!data) return;
  o->given[o->givens].data = data;
  o->given[o->givens++].bytes = bytes;
}
static inline void rms_list_made(rms_operands *o, const void *data, int64_t bytes) {
  if (!data) return;
  o->made[o->mades].data = data;
  o->made[o->mades++].bytes = bytes;
}

/* Outputs against everything else: rows against rows, rows against arrays, arrays against arrays. An output may be
 * exactly a tensor that is read. */
rms_status rms_check_alias(const rms_operands *o);
/* The arrays that are written against each other. */
rms_status rms_check_made(const rms_operands *o);

static inline bool rms_spans_touch(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
  return p < q + (uintptr_t)b_bytes && q < p + (uintptr_t)a_bytes;
}

static inline bool rms_mul_overflows(int64_t a, int64_t b, int64_t *out) {
  return __builtin_mul_overflow(a, b, out);
}

#endif
