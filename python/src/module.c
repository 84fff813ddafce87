/* SPDX-License-Identifier: MIT
 *
 * rmsnorm._core: what the Python side of the package calls. The functions take positional arguments only. */
#include "arguments.h"
#include "module_quantised.h"
#include "module_split.h"
#include "rows.h"
#include "threads.h"
#include "torch_kernels.h"

/* rstd and the mean behind it: x's leading dimensions, then the groups; float, or double for f64 data. */
static int check_statistics(const pn_array *rstd, const pn_array *x, const rms_spec *spec) {
  const int64_t groups = spec->groups > 1 ? spec->groups : 1;
  const int32_t dtype = x->tensor.dtype == RMS_F64 ? RMS_F64 : RMS_F32;
  return pn_check_numbers(&rstd[0], x, groups, dtype) || pn_check_numbers(&rstd[1], x, groups, dtype) ? -1 : 0;
}

static int check_backward(const pn_arguments *a, const rms_spec *spec) {
  const pn_array *dy = &a->arrays[0], *x = &a->arrays[1], *dresidual = &a->arrays[2], *gate = &a->arrays[3];
  const pn_array *weight = &a->arrays[4], *bias = &a->arrays[5], *dx = &a->arrays[8], *dresidual_out = &a->arrays[9];
  const pn_array *dgate = &a->arrays[10], *dweight = &a->arrays[11], *dbias = &a->arrays[12];
  const pn_array *data = a->mode >= PN_MODE_OUT ? x : dy; /* whose type is that of the data */
  if (pn_check_x(x) || pn_check_x(dy) || pn_check_shape(dy, x)) return -1;
  if (a->mode < PN_MODE_OUT && pn_check_dtype(x, dy, PN_WIDER)) return -1;
  if (pn_check_rows(dresidual, data, PN_WIDER) || pn_check_rows(dx, data, PN_SAME) ||
      pn_check_rows(dresidual_out, data, PN_WIDER))
    return -1;
  if (pn_check_rows(gate, data, PN_SAME) || pn_check_rows(dgate, data, PN_SAME)) return -1;
  if (pn_check_same_dtype(dresidual, dresidual_out)) return -1;
  if (pn_check_weight(bias, data) || pn_check_same_dtype(weight, bias) || pn_check_same_heads(weight, bias)) return -1;
  if (pn_check_weight(weight, data) || pn_check_weight(dweight, data) || pn_check_weight(dbias, data)) return -1;
  if (pn_check_same_heads(weight, dweight) || pn_check_same_heads(weight, dbias) || pn_check_same_heads(dweight, dbias))
    return -1;
  return check_statistics(&a->arrays[6], data, spec);
}

/* ---- the calls ---- */

static PyObject *core_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  static const pn_parameter parameters[] = {{"x", 0},   {"residual", 0}, {"gate", 0}, {"weight", 0}, {"bias", 0},
                                            {"out", 1}, {"out[1]", 1},   {"rstd", 1}, {"mean", 1}};
  enum { ARRAYS = sizeof parameters / sizeof *parameters };
  pn_arguments a;
  pn_forward call = {.part = PN_WHOLE};
  PyObject *result = NULL;
  (void)self;
  if (pn_check_count(count, ARRAYS + PN_SPEC_ARGUMENTS) != 0) return NULL;
  if (pn_arguments_open(&a, parameters, ARRAYS, args) == 0 && pn_read_spec(&call.spec, &a, args + ARRAYS) == 0 &&
      pn_check_forward(&a) == 0 && check_statistics(&a.arrays[7], &a.arrays[0], &call.spec) == 0) {
    const pn_tensor **places[] = {&call.x, &call.residual, &call.gate, &call.weight, &call.bias,
                                  &call.y, &call.sum,      &call.rstd, &call.mean};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    call.torch_sums = (a.mode & PN_MODE_TORCH_SUMS) != 0;
    result = pn_call_forward(&call, a.threads);
  }
  pn_arguments_close(&a);
  return result;
}

static PyObject *core_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  static const pn_parameter parameters[] = {
      {"dy", 0},   {"x", 0},  {"dresidual", 0},     {"gate", 0},  {"weight", 0},  {"bias", 0}, {"rstd", 0},
      {"mean", 0}, {"dx", 1}, {"dresidual_out", 1}, {"dgate", 1}, {"dweight", 1}, {"dbias", 1}};
  enum { ARRAYS = sizeof parameters / sizeof *parameters };
  pn_arguments a;
  pn_backward call = {.part = PN_WHOLE};
  PyObject *result = NULL;
  (void)self;
  if (pn_check_count(count, ARRAYS + PN_SPEC_ARGUMENTS) != 0) return NULL;
  if (pn_arguments_open(&a, parameters, ARRAYS, args) == 0 && pn_read_spec(&call.spec, &a, args + ARRAYS) == 0 &&
      check_backward(&a, &call.spec) == 0) {
    const pn_tensor **places[] = {&call.dy,    &call.x,       &call.dresidual, &call.gate, &call.weight,
                                  &call.bias,  &call.rstd,    &call.mean,      &call.dx,   &call.dresidual_out,
                                  &call.dgate, &call.dweight, &call.dbias};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    call.data_dtype = pn_data_dtype(a.mode, call.x->dtype, call.dy->dtype);
    result = pn_call_backward(&call, a.threads);
  }
  pn_arguments_close(&a);
  return result;
}

/* ---- the rest ---- */

static PyObject *core_describe(PyObject *self, PyObject *args) {
  PyObject *object;
  const char *name;
  pn_array array;
  (void)self;
  if (!PyArg_ParseTuple(args, "Os", &object, &name)) return NULL;
  if (pn_array_open(&array, name, object, 0) != 0 || pn_check_x(&array) != 0) {
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
  return pn_finish(rms_isa_force(name));
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
     "forward(x, residual, gate, weight, bias, y, sum, rstd, mean, eps, weight_offset, partial, groups, mode, indices, "
     "threads)"},
    {"backward", (PyCFunction)(void (*)(void))core_backward, METH_FASTCALL,
     "backward(dy, x, dresidual, gate, weight, bias, rstd, mean, dx, dresidual_out, dgate, dweight, dbias, eps, "
     "weight_offset, partial, groups, mode, indices, threads)"},
    {"forward_quantised", (PyCFunction)(void (*)(void))pn_core_forward_quantised, METH_FASTCALL,
     "forward_quantised(x, residual, gate, weight, bias, y, sum, q, scale, dtype, block, scale_least, eps, "
     "weight_offset, "
     "partial, groups, mode, indices, threads): q as bytes; dtype: its rms_dtype"},
    {"split_forward", (PyCFunction)(void (*)(void))pn_core_split_forward, METH_FASTCALL,
     "split_forward(x, stats, weight, bias, y, eps, weight_offset, partial, groups, mode, indices, threads): writes y "
     "from "
     "stats, or stats where y is None"},
    {"split_merge", pn_core_split_merge, METH_VARARGS,
     "split_merge(into, from): LayerNorm's statistics of both in into"},
    {"split_backward", (PyCFunction)(void (*)(void))pn_core_split_backward, METH_FASTCALL,
     "split_backward(dy, x, stats, weight, sums, dx, dweight, dbias, eps, weight_offset, partial, groups, mode, "
     "indices, "
     "threads): writes the gradients from sums, or sums where dx, dweight and dbias are None"},
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
