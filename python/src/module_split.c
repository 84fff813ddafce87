/* SPDX-License-Identifier: MIT */
#include "module_split.h"

/* Numbers of the two halves are doubles. */
static int check_doubles(const pn_array *t, const pn_array *x, const rms_spec *spec, int64_t doubles) {
  if (!t->owner) return PyErr_Format(PyExc_TypeError, "%s must be an array", t->name), -1;
  return pn_check_numbers(t, x, doubles * (spec->groups > 1 ? spec->groups : 1), RMS_F64);
}

static int check_forward(const pn_arguments *a, const rms_spec *spec) {
  const pn_array *x = &a->arrays[0], *stats = &a->arrays[1], *weight = &a->arrays[2], *bias = &a->arrays[3];
  if (pn_check_x(x) || check_doubles(stats, x, spec, PN_STAT_DOUBLES)) return -1;
  if (pn_check_weight(weight, x) || pn_check_weight(bias, x)) return -1;
  if (pn_check_same_dtype(weight, bias) || pn_check_same_heads(weight, bias)) return -1;
  return pn_check_rows(&a->arrays[4], x, PN_SAME);
}

PyObject *pn_core_split_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  pn_parameter parameters[] = {{"x", 0}, {"stats", 0}, {"weight", 0}, {"bias", 0}, {"y", 1}};
  enum { ARRAYS = sizeof parameters / sizeof *parameters };
  pn_arguments a;
  pn_forward call = {.part = PN_APPLY};
  PyObject *result = NULL;
  (void)self;
  if (pn_check_count(count, ARRAYS + PN_SPEC_ARGUMENTS) != 0) return NULL;
  if (args[4] == Py_None) {
    call.part = PN_STATS;
    parameters[1].writable = 1;
  }
  if (pn_arguments_open(&a, parameters, ARRAYS, args) == 0 && pn_read_spec(&call.spec, &a, args + ARRAYS) == 0 &&
      check_forward(&a, &call.spec) == 0) {
    const pn_tensor **places[] = {&call.x, &call.stats, &call.weight, &call.bias, &call.y};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    result = pn_call_forward(&call, a.threads);
  }
  pn_arguments_close(&a);
  return result;
}

static bool is_dense(const pn_tensor *t) {
  int64_t expected = (int64_t)rms_dtype_size((rms_dtype)t->dtype);
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->shape[d] != 1 && t->stride[d] != expected) return false;
    expected *= t->shape[d];
  }
  return true;
}

static int check_merge(const pn_array *into, const pn_array *from) {
  const rms_spec spec = {0};
  if (pn_check_x(into) || check_doubles(into, into, &spec, PN_STAT_DOUBLES)) return -1;
  if (check_doubles(from, into, &spec, PN_STAT_DOUBLES)) return -1;
  if (is_dense(&into->tensor) && is_dense(&from->tensor)) return 0;
  return PyErr_SetString(PyExc_ValueError, "into and from must be dense"), -1;
}

PyObject *pn_core_split_merge(PyObject *self, PyObject *args) {
  static const pn_parameter parameters[] = {{"into", 1}, {"from", 0}};
  PyObject *given[2], *result = NULL;
  pn_arguments a;
  (void)self;
  if (!PyArg_ParseTuple(args, "OO", &given[0], &given[1])) return NULL;
  if (pn_arguments_open(&a, parameters, 2, given) == 0 && check_merge(&a.arrays[0], &a.arrays[1]) == 0) {
    const pn_backend cpu = pn_cpu(NULL);
    result = pn_finish(pn_run_merge(&a.arrays[0].tensor, &a.arrays[1].tensor, &cpu));
  }
  pn_arguments_close(&a);
  return result;
}

static int check_backward(const pn_arguments *a, const rms_spec *spec) {
  const pn_array *dy = &a->arrays[0], *x = &a->arrays[1], *weight = &a->arrays[3];
  const pn_array *dweight = &a->arrays[6], *dbias = &a->arrays[7];
  if (pn_check_x(x) || pn_check_x(dy) || pn_check_rows(dy, x, PN_SAME)) return -1;
  if (check_doubles(&a->arrays[2], x, spec, PN_STAT_DOUBLES)) return -1;
  if (check_doubles(&a->arrays[4], x, spec, PN_SUM_DOUBLES)) return -1;
  if (pn_check_rows(&a->arrays[5], dy, PN_SAME)) return -1;
  if (pn_check_weight(weight, dy) || pn_check_weight(dweight, dy) || pn_check_weight(dbias, dy)) return -1;
  return pn_check_same_heads(weight, dweight) || pn_check_same_heads(weight, dbias) ||
                 pn_check_same_heads(dweight, dbias)
             ? -1
             : 0;
}

PyObject *pn_core_split_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  pn_parameter parameters[] = {{"dy", 0},   {"x", 0},  {"stats", 0},   {"weight", 0},
                               {"sums", 0}, {"dx", 1}, {"dweight", 1}, {"dbias", 1}};
  enum { ARRAYS = sizeof parameters / sizeof *parameters };
  pn_arguments a;
  pn_backward call = {.part = PN_APPLY};
  PyObject *result = NULL;
  (void)self;
  if (pn_check_count(count, ARRAYS + PN_SPEC_ARGUMENTS) != 0) return NULL;
  if (args[5] == Py_None && args[6] == Py_None && args[7] == Py_None) {
    call.part = PN_STATS;
    parameters[4].writable = 1;
  }
  if (pn_arguments_open(&a, parameters, ARRAYS, args) == 0 && pn_read_spec(&call.spec, &a, args + ARRAYS) == 0 &&
      check_backward(&a, &call.spec) == 0) {
    const pn_tensor **places[] = {&call.dy,   &call.x,  &call.stats,   &call.weight,
                                  &call.sums, &call.dx, &call.dweight, &call.dbias};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    result = pn_call_backward(&call, a.threads);
  }
  pn_arguments_close(&a);
  return result;
}
