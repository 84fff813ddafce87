/* SPDX-License-Identifier: MIT
 *
 * rmsnorm._core: what the Python side of the package calls. The functions take positional arguments only. */
#include "arrays.h"
#include "call.h"
#include "rows.h"
#include "threads.h"
#include "torch_kernels.h"
#include <string.h>

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

/* ---- arguments of a call ---- */

enum { MODE_LAYER = 1, MODE_EPS_OUTSIDE = 2, MODE_BEFORE_WEIGHT = 4, MODE_TORCH_SUMS = 8 };
enum { MAX_ARRAYS = 10 };

/* eps, weight_offset, partial, groups, mode, indices, threads: at the end of both calls. */
enum { SPEC_ARGUMENTS = 7 };

typedef struct {
  pn_array arrays[MAX_ARRAYS];
  int count;
  int64_t *indices;
  int threads; /* of a pool; negative: that many of OpenMP */
  bool torch_sums;
} arguments;

static void close_arguments(arguments *a) {
  for (int i = 0; i < a->count; i++)
    pn_array_close(&a->arrays[i]);
  PyMem_Free(a->indices);
}

typedef struct {
  const char *name;
  int writable;
} parameter;

static int open_arguments(arguments *a, const parameter *parameters, int count, PyObject *const *args) {
  a->count = 0;
  a->indices = NULL;
  for (int i = 0; i < count; i++) {
    a->count++;
    if (pn_array_open(&a->arrays[i], parameters[i].name, args[i], parameters[i].writable) != 0) return -1;
  }
  return 0;
}

static int read_indices(PyObject *sequence, rms_spec *spec, arguments *a) {
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
  spec->indices = a->indices;
  spec->partial = count;
  return 0;
}

static int read_spec(rms_spec *spec, arguments *a, PyObject *const *args) {
  memset(spec, 0, sizeof *spec);
  spec->eps = PyFloat_AsDouble(args[0]);
  spec->weight_offset = PyFloat_AsDouble(args[1]);
  spec->partial = PyLong_AsLongLong(args[2]);
  spec->groups = PyLong_AsLongLong(args[3]);
  long mode = PyLong_AsLong(args[4]);
  a->threads = (int)PyLong_AsLong(args[6]);
  if (PyErr_Occurred()) return -1;
  a->torch_sums = (mode & MODE_TORCH_SUMS) != 0;
  spec->kind = mode & MODE_LAYER ? RMS_KIND_LAYER : RMS_KIND_RMS;
  spec->eps_place = mode & MODE_EPS_OUTSIDE ? RMS_EPS_OUTSIDE : RMS_EPS_INSIDE;
  spec->rounding = mode & MODE_BEFORE_WEIGHT ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
  return read_indices(args[5], spec, a);
}

/* ---- checks that name the argument ---- */

static int check_x(const pn_array *x) {
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

static int check_shape(const pn_array *a, const pn_array *x) {
  const pn_tensor *t = &a->tensor, *like = &x->tensor;
  int same = !a->owner || t->ndim == like->ndim;
  for (int d = 0; a->owner && same && d < t->ndim; d++)
    same = t->shape[d] == like->shape[d];
  if (!same) PyErr_Format(PyExc_ValueError, "%s must have the shape of %s", a->name, x->name);
  return same ? 0 : -1;
}

/* SAME, or f32 as well, in WIDER only beside 16-bit data. */
enum { SAME, OR_F32, WIDER };

static int check_dtype(const pn_array *a, const pn_array *x, int allowed) {
  const int or_f32 = allowed == OR_F32 || (allowed == WIDER && x->tensor.dtype != RMS_F64);
  if (!a->owner || a->tensor.dtype == x->tensor.dtype || (or_f32 && a->tensor.dtype == RMS_F32)) return 0;
  PyErr_Format(PyExc_TypeError, "%s has dtype %s; %s%s is wanted", a->name, pn_dtype_name(a->tensor.dtype),
               pn_dtype_name(x->tensor.dtype), or_f32 ? " or float32" : "");
  return -1;
}

static int check_same_dtype(const pn_array *a, const pn_array *b) {
  if (!a->owner || !b->owner || a->tensor.dtype == b->tensor.dtype) return 0;
  PyErr_Format(PyExc_TypeError, "%s has dtype %s and %s %s; they must be the same", a->name,
               pn_dtype_name(a->tensor.dtype), b->name, pn_dtype_name(b->tensor.dtype));
  return -1;
}

static int check_rows(const pn_array *a, const pn_array *x, int allowed) {
  return check_shape(a, x) == 0 && check_dtype(a, x, allowed) == 0 ? 0 : -1;
}

/* (cols), or one for each of x.shape[-2] heads. */
static int check_weight(const pn_array *w, const pn_array *x) {
  const pn_tensor *t = &w->tensor, *rows = &x->tensor;
  const int last = rows->ndim - 1;
  if (!w->owner) return 0;
  if (t->ndim == 1 && t->shape[0] == rows->shape[last]) return check_dtype(w, x, OR_F32);
  if (t->ndim == 2 && last > 0 && t->shape[1] == rows->shape[last] && t->shape[0] == rows->shape[last - 1])
    return check_dtype(w, x, OR_F32);
  PyErr_Format(PyExc_ValueError,
               "%s must have the shape (n,) or, with one weight per head, (heads, n), where n is the last "
               "dimension of %s and heads the one before it",
               w->name, x->name);
  return -1;
}

static int check_same_heads(const pn_array *w, const pn_array *b) {
  if (!w->owner || !b->owner || w->tensor.ndim == b->tensor.ndim) return 0;
  PyErr_Format(PyExc_ValueError, "%s and %s must have the same shape", w->name, b->name);
  return -1;
}

/* x's leading dimensions, then the groups; float, or double for f64 data. */
static int check_statistic(const pn_array *s, const pn_array *x, int64_t groups) {
  const pn_tensor *t = &s->tensor, *rows = &x->tensor;
  int good = !s->owner || (t->ndim == rows->ndim && t->shape[t->ndim - 1] == (groups > 1 ? groups : 1) &&
                           t->dtype == (rows->dtype == RMS_F64 ? RMS_F64 : RMS_F32));
  for (int d = 0; s->owner && good && d < t->ndim - 1; d++)
    good = t->shape[d] == rows->shape[d];
  if (!good) PyErr_Format(PyExc_ValueError, "%s has a wrong shape or dtype", s->name);
  return good ? 0 : -1;
}

static int check_forward(const arguments *a, const rms_spec *spec) {
  const pn_array *x = &a->arrays[0], *residual = &a->arrays[1], *weight = &a->arrays[2], *bias = &a->arrays[3];
  const pn_array *y = &a->arrays[4], *sum = &a->arrays[5];
  if (check_x(x) || check_rows(residual, x, WIDER) || check_weight(weight, x) || check_weight(bias, x)) return -1;
  if (check_same_dtype(weight, bias) || check_same_heads(weight, bias)) return -1;
  if (check_rows(y, x, SAME) || check_rows(sum, x, WIDER) || check_same_dtype(sum, residual)) return -1;
  return check_statistic(&a->arrays[6], x, spec->groups) || check_statistic(&a->arrays[7], x, spec->groups) ? -1 : 0;
}

static int check_backward(const arguments *a, const rms_spec *spec) {
  const pn_array *dy = &a->arrays[0], *x = &a->arrays[1], *dresidual = &a->arrays[2], *weight = &a->arrays[3];
  const pn_array *dx = &a->arrays[6], *dresidual_out = &a->arrays[7], *dweight = &a->arrays[8], *dbias = &a->arrays[9];
  if (check_x(x) || check_x(dy) || check_shape(dy, x) || check_dtype(x, dy, WIDER)) return -1;
  if (check_rows(dresidual, dy, WIDER) || check_rows(dx, dy, SAME) || check_rows(dresidual_out, dy, WIDER)) return -1;
  if (check_same_dtype(dresidual, dresidual_out)) return -1;
  if (check_weight(weight, dy) || check_weight(dweight, dy) || check_weight(dbias, dy)) return -1;
  if (check_same_heads(weight, dweight) || check_same_heads(weight, dbias) || check_same_heads(dweight, dbias))
    return -1;
  return check_statistic(&a->arrays[4], dy, spec->groups) || check_statistic(&a->arrays[5], dy, spec->groups) ? -1 : 0;
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

static PyObject *finish(rms_status status) {
  return status == RMS_OK ? Py_NewRef(Py_None) : raise_status(status);
}

static int check_count(Py_ssize_t given, int wanted) {
  if (given == wanted) return 0;
  PyErr_Format(PyExc_TypeError, "%d arguments are wanted", wanted);
  return -1;
}

static rms_status run_forward(const pn_forward *call, int threads) {
  rms_executor executor;
  const rms_executor *found;
  rms_status status = find_executor(threads, &executor, &found);
  const pn_backend cpu = pn_cpu(found);
  return status == RMS_OK ? pn_run_forward(call, &cpu) : status;
}

static PyObject *core_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  static const parameter parameters[] = {{"x", 0},   {"residual", 0}, {"weight", 0}, {"bias", 0},
                                         {"out", 1}, {"out[1]", 1},   {"rstd", 1},   {"mean", 1}};
  enum { ARRAYS = sizeof parameters / sizeof *parameters };
  arguments a;
  pn_forward call;
  PyObject *result = NULL;
  (void)self;
  if (check_count(count, ARRAYS + SPEC_ARGUMENTS) != 0) return NULL;
  if (open_arguments(&a, parameters, ARRAYS, args) == 0 && read_spec(&call.spec, &a, args + ARRAYS) == 0 &&
      check_forward(&a, &call.spec) == 0) {
    const pn_tensor **places[] = {&call.x, &call.residual, &call.weight, &call.bias,
                                  &call.y, &call.sum,      &call.rstd,   &call.mean};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    call.torch_sums = a.torch_sums;
    PyThreadState *state = PyEval_SaveThread();
    rms_status status = run_forward(&call, a.threads);
    PyEval_RestoreThread(state);
    result = finish(status);
  }
  close_arguments(&a);
  return result;
}

static rms_status run_backward(const pn_backward *call, int threads) {
  rms_executor executor;
  const rms_executor *found;
  rms_status status = find_executor(threads, &executor, &found);
  const pn_backend cpu = pn_cpu(found);
  return status == RMS_OK ? pn_run_backward(call, &cpu) : status;
}

static PyObject *core_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  static const parameter parameters[] = {{"dy", 0},   {"x", 0},  {"dresidual", 0},     {"weight", 0},  {"rstd", 0},
                                         {"mean", 0}, {"dx", 1}, {"dresidual_out", 1}, {"dweight", 1}, {"dbias", 1}};
  enum { ARRAYS = sizeof parameters / sizeof *parameters };
  arguments a;
  pn_backward call;
  PyObject *result = NULL;
  (void)self;
  if (check_count(count, ARRAYS + SPEC_ARGUMENTS) != 0) return NULL;
  if (open_arguments(&a, parameters, ARRAYS, args) == 0 && read_spec(&call.spec, &a, args + ARRAYS) == 0 &&
      check_backward(&a, &call.spec) == 0) {
    const pn_tensor **places[] = {&call.dy,   &call.x,  &call.dresidual,     &call.weight,  &call.rstd,
                                  &call.mean, &call.dx, &call.dresidual_out, &call.dweight, &call.dbias};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    PyThreadState *state = PyEval_SaveThread();
    rms_status status = run_backward(&call, a.threads);
    PyEval_RestoreThread(state);
    result = finish(status);
  }
  close_arguments(&a);
  return result;
}

/* ---- the rest ---- */

static PyObject *core_describe(PyObject *self, PyObject *args) {
  PyObject *object;
  const char *name;
  pn_array array;
  (void)self;
  if (!PyArg_ParseTuple(args, "Os", &object, &name)) return NULL;
  if (pn_array_open(&array, name, object, 0) != 0 || check_x(&array) != 0) {
    pn_array_close(&array);
    return NULL;
  }
  PyObject *shape = PyTuple_New(array.tensor.ndim);
  for (int d = 0; shape && d < array.tensor.ndim; d++)
    PyTuple_SetItem(shape, d, PyLong_FromLongLong(array.tensor.shape[d]));
  PyObject *result = shape ? Py_BuildValue("sN", pn_dtype_name(array.tensor.dtype), shape) : NULL;
  pn_array_close(&array);
  return result;
}

static PyObject *core_partial_count(PyObject *self, PyObject *args) {
  long long cols;
  double p;
  (void)self;
  if (!PyArg_ParseTuple(args, "Ld", &cols, &p)) return NULL;
  int64_t count = rms_partial_count(cols, p);
  if (count < 1) {
    PyErr_SetString(PyExc_ValueError, "partial: a fraction must be above 0 and at most 1");
    return NULL;
  }
  return PyLong_FromLongLong(count);
}

static PyObject *core_info(PyObject *self, PyObject *ignored) {
  PyObject *sets = PyList_New(0);
  (void)self;
  (void)ignored;
  for (int i = 0; sets && i < rms_isa_count(); i++) {
    PyObject *set = Py_BuildValue("(sO)", rms_isa_name(i), rms_isa_usable(rms_isa_name(i)) ? Py_True : Py_False);
    if (!set || PyList_Append(sets, set) != 0) Py_CLEAR(sets);
    Py_XDECREF(set);
  }
  if (!sets) return NULL;
  return Py_BuildValue("{s:s,s:z,s:N,s:L}", "version", rms_version(), "active", rms_isa_active(), "instruction_sets",
                       sets, "stream_bytes", (long long)rms_stream_threshold());
}

static PyObject *core_copies(PyObject *self, PyObject *ignored) {
  (void)self;
  (void)ignored;
  return PyLong_FromLongLong(pn_rows_staged_ever());
}

static PyObject *core_force_isa(PyObject *self, PyObject *args) {
  const char *name;
  (void)self;
  if (!PyArg_ParseTuple(args, "z", &name)) return NULL;
  return finish(rms_isa_force(name));
}

static PyObject *core_set_openmp(PyObject *self, PyObject *args) {
  const char *path;
  (void)self;
  if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
  return PyBool_FromLong(pn_openmp_use(path));
}

static PyObject *core_register_torch(PyObject *self, PyObject *args) {
  const char *path;
  (void)self;
  if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
  const char *missing = pn_torch_register(path);
  if (missing) return PyUnicode_FromString(missing);
  Py_RETURN_NONE;
}

static PyObject *core_register_torch_cuda(PyObject *self, PyObject *args) {
  const char *torch, *library, *key;
  (void)self;
  if (!PyArg_ParseTuple(args, "zss", &torch, &library, &key)) return NULL;
  const char *missing = pn_torch_register_cuda(torch, library, key);
  if (missing) return PyUnicode_FromString(missing);
  Py_RETURN_NONE;
}

static PyObject *core_unregister_torch(PyObject *self, PyObject *ignored) {
  (void)self;
  (void)ignored;
  pn_torch_unregister();
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"forward", (PyCFunction)(void (*)(void))core_forward, METH_FASTCALL,
     "forward(x, residual, weight, bias, y, sum, rstd, mean, eps, weight_offset, partial, groups, mode, indices, "
     "threads)"},
    {"backward", (PyCFunction)(void (*)(void))core_backward, METH_FASTCALL,
     "backward(dy, x, dresidual, weight, rstd, mean, dx, dresidual_out, dweight, dbias, eps, weight_offset, partial, "
     "groups, "
     "mode, indices, threads)"},
    {"describe", core_describe, METH_VARARGS, "describe(array, name) -> (dtype name, shape)"},
    {"partial_count", core_partial_count, METH_VARARGS, "partial_count(cols, p) -> ceil(cols * p)"},
    {"info", core_info, METH_NOARGS, "info() -> what the library knows about itself and this machine"},
    {"copies", core_copies, METH_NOARGS,
     "copies() -> how many arrays were copied because no two strides describe their rows"},
    {"force_isa", core_force_isa, METH_VARARGS, "force_isa(name or None)"},
    {"set_openmp", core_set_openmp, METH_VARARGS,
     "set_openmp(path of a loaded OpenMP runtime) -> whether it can be used"},
    {"register_torch", core_register_torch, METH_VARARGS,
     "register_torch(path of the loaded libtorch_cpu) -> None, or what is missing there"},
    {"register_torch_cuda", core_register_torch_cuda, METH_VARARGS,
     "register_torch_cuda(path of the loaded libtorch_cuda, path of librmsnorm_cuda, key) -> None, or what is missing"},
    {"unregister_torch", core_unregister_torch, METH_NOARGS, "unregister_torch(): takes the kernels away again"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rmsnorm._core", "The C side of the package.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  return PyModuleDef_Init(&definition);
}
