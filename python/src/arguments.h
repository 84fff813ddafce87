/* SPDX-License-Identifier: MIT
 *
 * The arguments of a call from Python: arrays, options and threads, and checks that name what is wrong. Functions that
 * return an int give -1 with a Python exception set, or 0. */
#ifndef PN_ARGUMENTS_H
#define PN_ARGUMENTS_H

#include "arrays.h"
#include "call.h"

enum { PN_MAX_ARRAYS = 13 };

/* eps, weight_offset, partial, groups, mode, indices, threads: at the end of every call. */
enum { PN_SPEC_ARGUMENTS = 7 };

typedef struct {
  pn_array arrays[PN_MAX_ARRAYS];
  int count;
  int64_t *indices;
  int threads; /* of a pool; negative: that many of OpenMP */
  int64_t mode;
} pn_arguments;

typedef struct {
  const char *name;
  int writable;
} pn_parameter;

int pn_check_count(Py_ssize_t given, int wanted);
int pn_arguments_open(pn_arguments *a, const pn_parameter *parameters, int count, PyObject *const *args);
void pn_arguments_close(pn_arguments *a);
int pn_read_spec(rms_spec *spec, pn_arguments *a, PyObject *const *args);

/* None, or NULL and an exception for the status. */
PyObject *pn_finish(rms_status status);

/* Runs the call on so many threads without the GIL; None, or NULL and an exception. */
PyObject *pn_call_forward(const pn_forward *call, int threads);
PyObject *pn_call_backward(const pn_backward *call, int threads);

/* ---- checks ---- */

/* SAME, or f32 as well, in WIDER only beside 16-bit data. */
enum { PN_SAME, PN_OR_F32, PN_WIDER };

int pn_check_x(const pn_array *x);
int pn_check_shape(const pn_array *a, const pn_array *x);
int pn_check_dtype(const pn_array *a, const pn_array *x, int allowed);
int pn_check_same_dtype(const pn_array *a, const pn_array *b);
int pn_check_rows(const pn_array *a, const pn_array *x, int allowed);
/* (cols), or one for each of x.shape[-2] heads. */
int pn_check_weight(const pn_array *w, const pn_array *x);
int pn_check_same_heads(const pn_array *w, const pn_array *b);
/* The first arrays of a forward: x, residual, gate, weight, bias, y and the sum. */
int pn_check_forward(const pn_arguments *a);
/* x's leading dimensions, then `width` numbers of that type. */
int pn_check_numbers(const pn_array *s, const pn_array *x, int64_t width, int32_t dtype);

#endif
