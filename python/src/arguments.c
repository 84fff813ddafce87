/* SPDX-License-Identifier: MIT */
#include "arguments.h"
#include "threads.h"

/* ---- errors ---- */

/* What the front end has not found itself. */
static PyObject *raise_status(rms_status status) {
  PyObject *type = PyExc_ValueError;
  const char *subject = "";
  switch (status) {
  case RMS_E_EPS:
    subject = "eps: ";
    break;
  case RMS_E_PARTIAL:
    subject = "partial, indices: ";
    break;
  case RMS_E_GROUPS:
    subject = "groups: ";
    break;
  case RMS_E_MODE:
    subject = "weight_offset: ";
    break;
  case RMS_E_SCALE:
    subject = "block, scale_least: ";
    break;
  case RMS_E_ALIAS:
    subject = "out: ";
    break;
  case RMS_E_DTYPE:
    type = PyExc_TypeError;
    break;
  case RMS_E_MEMORY:
    type = PyExc_MemoryError;
    break;
  case RMS_E_ISA:
    subject = "RMSNORM_ISA: ";
    type = PyExc_RuntimeError;
    break;
  case RMS_E_ENVIRONMENT:
    type = PyExc_RuntimeError;
    break;
  default:
    break;
  }
  PyErr_Format(type, "%s%s", subject, rms_status_string(status));
  return NULL;
}

PyObject *pn_finish(rms_status status) {
  return status == RMS_OK ? Py_NewRef(Py_None) : raise_status(status);
}

/* ---- arguments of a call ---- */

int pn_check_count(Py_ssize_t given, int wanted) {
  if (given == wanted) return 0;
  PyErr_Format(PyExc_TypeError, "%d arguments are wanted", wanted);
  return -1;
}

void pn_arguments_close(pn_arguments *a) {
  for (int i = 0; i < a->count; i++)
    pn_array_close(&a->arrays[i]);
  PyMem_Free(a->indices);
}

int pn_arguments_open(pn_arguments *a, const pn_parameter *parameters, int count, PyObject *const *args) {
  a->count = 0;
  a->indices = NULL;
  for (int i = 0; i < count; i++) {
    a->count++;
    if (pn_array_open(&a->arrays[i], parameters[i].name, args[i], parameters[i].writable) != 0) return -1;
  }
  return 0;
}

static int read_indices(PyObject *sequence, rms_spec *spec, pn_arguments *a) {
  if (sequence == Py_None) return 0;
  Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return -1;
  if (count == 0) {
    PyErr_SetString(PyExc_ValueError, "indices is empty");
    return -1;
  }
  a->indices = PyMem_Malloc((size_t)count * sizeof *a->indices);
  if (!a->indices) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PySequence_GetItem(sequence, i);
    PyObject *index = item ? PyNumber_Index(item) : NULL;
    if (index) a->indices[i] = PyLong_AsLongLong(index);
    Py_XDECREF(index);
    Py_XDECREF(item);
    if (PyErr_Occurred()) return -1;
  }
  pn_set_indices(spec, a->indices, count);
  return 0;
}

int pn_read_spec(rms_spec *spec, pn_arguments *a, PyObject *const *args) {
  const double eps = PyFloat_AsDouble(args[0]), weight_offset = PyFloat_AsDouble(args[1]);
  const int64_t partial = PyLong_AsLongLong(args[2]), groups = PyLong_AsLongLong(args[3]);
  const long mode = PyLong_AsLong(args[4]);
  a->threads = (int)PyLong_AsLong(args[6]);
  if (PyErr_Occurred()) return -1;
  a->mode = mode;
  *spec = pn_make_spec(eps, weight_offset, partial, groups, mode);
  return read_indices(args[5], spec, a);
}

/* ---- checks that name the argument ---- */

int pn_check_x(const pn_array *x) {
  if (!x->owner) {
    PyErr_Format(PyExc_TypeError, "%s must be an array", x->name);
    return -1;
  }
  if (x->tensor.ndim == 0) {
    PyErr_Format(PyExc_ValueError, "%s has no dimension to normalise over", x->name);
    return -1;
  }
  if (x->tensor.shape[x->tensor.ndim - 1] == 0) {
    PyErr_Format(PyExc_ValueError, "%s has an empty last dimension", x->name);
    return -1;
  }
  return 0;
}

int pn_check_shape(const pn_array *a, const pn_array *x) {
  const pn_tensor *t = &a->tensor, *like = &x->tensor;
  int same = !a->owner || t->ndim == like->ndim;
  for (int d = 0; a->owner && same && d < t->ndim; d++)
    same = t->shape[d] == like->shape[d];
  if (!same) PyErr_Format(PyExc_ValueError, "%s must have the shape of %s", a->name, x->name);
  return same ? 0 : -1;
}

int pn_check_dtype(const pn_array *a, const pn_array *x, int allowed) {
  const int or_f32 = allowed == PN_OR_F32 || (allowed == PN_WIDER && x->tensor.dtype != RMS_F64);
  if (!a->owner || a->tensor.dtype == x->tensor.dtype || (or_f32 && a->tensor.dtype == RMS_F32)) return 0;
  PyErr_Format(PyExc_TypeError, "%s has dtype %s; %s%s is wanted", a->name, pn_dtype_name(a->tensor.dtype),
               pn_dtype_name(x->tensor.dtype), or_f32 && x->tensor.dtype != RMS_F32 ? " or float32" : "");
  return -1;
}

int pn_check_same_dtype(const pn_array *a, const pn_array *b) {
  if (!a->owner || !b->owner || a->tensor.dtype == b->tensor.dtype) return 0;
  PyErr_Format(PyExc_TypeError, "%s has dtype %s and %s %s; they must be the same", a->name,
               pn_dtype_name(a->tensor.dtype), b->name, pn_dtype_name(b->tensor.dtype));
  return -1;
}

int pn_check_rows(const pn_array *a, const pn_array *x, int allowed) {
  return pn_check_shape(a, x) == 0 && pn_check_dtype(a, x, allowed) == 0 ? 0 : -1;
}

int pn_check_weight(const pn_array *w, const pn_array *x) {
  const pn_tensor *t = &w->tensor, *rows = &x->tensor;
  const int last = rows->ndim - 1;
  if (!w->owner) return 0;
  if (t->ndim == 1 && t->shape[0] == rows->shape[last]) return pn_check_dtype(w, x, PN_OR_F32);
  if (t->ndim == 2 && last > 0 && t->shape[1] == rows->shape[last] && t->shape[0] == rows->shape[last - 1])
    return pn_check_dtype(w, x, PN_OR_F32);
  PyErr_Format(PyExc_ValueError,
               "%s must have the shape (n,) or, with one weight per head, (heads, n), where n is the last "
               "dimension of %s and heads the one before it",
               w->name, x->name);
  return -1;
}

int pn_check_same_heads(const pn_array *w, const pn_array *b) {
  if (!w->owner || !b->owner || w->tensor.ndim == b->tensor.ndim) return 0;
  PyErr_Format(PyExc_ValueError, "%s and %s must have the same shape", w->name, b->name);
  return -1;
}

int pn_check_numbers(const pn_array *s, const pn_array *x, int64_t width, int32_t dtype) {
  const pn_tensor *t = &s->tensor, *rows = &x->tensor;
  int good = !s->owner || (t->ndim == rows->ndim && t->shape[t->ndim - 1] == width && t->dtype == dtype);
  for (int d = 0; s->owner && good && d < t->ndim - 1; d++)
    good = t->shape[d] == rows->shape[d];
  if (!good) PyErr_Format(PyExc_ValueError, "%s has a wrong shape or dtype", s->name);
  return good ? 0 : -1;
}

static int check_result(const pn_array *y, const pn_array *x, int64_t mode) {
  const int32_t wanted = pn_result_dtype(mode, x->tensor.dtype);
  if (pn_check_shape(y, x) != 0) return -1;
  if (!y->owner || y->tensor.dtype == wanted) return 0;
  PyErr_Format(PyExc_TypeError, "%s has dtype %s; %s is wanted", y->name, pn_dtype_name(y->tensor.dtype),
               pn_dtype_name(wanted));
  return -1;
}

int pn_check_forward(const pn_arguments *a) {
  const pn_array *x = &a->arrays[0], *residual = &a->arrays[1], *gate = &a->arrays[2], *weight = &a->arrays[3];
  const pn_array *bias = &a->arrays[4], *y = &a->arrays[5], *sum = &a->arrays[6];
  if (pn_check_x(x) || pn_check_rows(residual, x, PN_WIDER) || pn_check_rows(gate, x, PN_SAME)) return -1;
  if (pn_check_weight(weight, x) || pn_check_weight(bias, x)) return -1;
  if (pn_check_same_dtype(weight, bias) || pn_check_same_heads(weight, bias)) return -1;
  if (check_result(y, x, a->mode)) return -1;
  return pn_check_rows(sum, x, PN_WIDER) || pn_check_same_dtype(sum, residual) ? -1 : 0;
}

/* ---- the calls ---- */

static rms_status find_executor(int threads, rms_executor *executor, const rms_executor **found) {
  *found = NULL;
  if (threads == 0 || threads == 1 || threads == -1) return RMS_OK;
  *found = executor;
  if (threads > 0) return pn_pool_executor(threads, executor);
  *executor = pn_openmp_executor(-threads);
  return RMS_OK;
}

PyObject *pn_call_forward(const pn_forward *call, int threads) {
  rms_executor executor;
  const rms_executor *found;
  PyThreadState *state = PyEval_SaveThread();
  rms_status status = find_executor(threads, &executor, &found);
  const pn_backend cpu = pn_cpu(found);
  if (status == RMS_OK) status = pn_run_forward(call, &cpu);
  PyEval_RestoreThread(state);
  return pn_finish(status);
}

PyObject *pn_call_backward(const pn_backward *call, int threads) {
  rms_executor executor;
  const rms_executor *found;
  PyThreadState *state = PyEval_SaveThread();
  rms_status status = find_executor(threads, &executor, &found);
  const pn_backend cpu = pn_cpu(found);
  if (status == RMS_OK) status = pn_run_backward(call, &cpu);
  PyEval_RestoreThread(state);
  return pn_finish(status);
}
