/* SPDX-License-Identifier: MIT */
#include "module_quantised.h"

enum { Q = 7, SCALE = 8, ARRAYS = 9, NUMBERS = 3 };

/* The type of q, the block and the least scale: between the arrays and the spec. */
static int read_numbers(pn_forward *call, PyObject *const *args) {
  call->q_dtype = (int32_t)PyLong_AsLong(args[0]);
  call->spec.scale_block = PyLong_AsLongLong(args[1]);
  call->spec.scale_least = PyFloat_AsDouble(args[2]);
  return PyErr_Occurred() ? -1 : 0;
}

static int refuse(const char *message) {
  PyErr_SetString(PyExc_ValueError, message);
  return -1;
}

/* One given scale, or one for each block of a row. The block is the library's to check, but for a division by it. */
static int check_scale(const pn_array *scale, const pn_array *x, const pn_forward *call) {
  const int64_t cols = x->tensor.shape[x->tensor.ndim - 1], block = call->spec.scale_block;
  if (call->q_dtype == RMS_Q8_0) return scale->owner ? refuse("q8_0 has its scales inside") : 0;
  if (!scale->owner) return refuse("a scale is missing");
  if (block < 0) return refuse("block must be at least 1");
  if (block > 0) return pn_check_numbers(scale, x, cols / block, RMS_F32);
  const pn_tensor *t = &scale->tensor;
  return t->dtype == RMS_F32 && (t->ndim == 0 || (t->ndim == 1 && t->shape[0] == 1))
             ? 0
             : refuse("scale must be one number of float32");
}

static int check_quantised(const pn_arguments *a, const pn_forward *call) {
  const pn_array *x = &a->arrays[0];
  if (pn_check_forward(a) != 0) return -1;
  const int64_t bytes = pn_quantised_bytes(call->q_dtype, x->tensor.shape[x->tensor.ndim - 1]);
  if (!a->arrays[Q].owner) return refuse("q is missing");
  return pn_check_numbers(&a->arrays[Q], x, bytes, RMS_I8) || check_scale(&a->arrays[SCALE], x, call) ? -1 : 0;
}

PyObject *pn_core_forward_quantised(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  static const pn_parameter parameters[ARRAYS] = {{"x", 0}, {"residual", 0}, {"gate", 0}, {"weight", 0}, {"bias", 0},
                                                  {"y", 1}, {"sum", 1},      {"q", 1},    {"scale", 0}};
  pn_arguments a;
  pn_forward call = {.part = PN_WHOLE};
  PyObject *result = NULL;
  (void)self;
  if (pn_check_count(count, ARRAYS + NUMBERS + PN_SPEC_ARGUMENTS) != 0) return NULL;
  if (pn_arguments_open(&a, parameters, ARRAYS, args) == 0 &&
      pn_read_spec(&call.spec, &a, args + ARRAYS + NUMBERS) == 0 && read_numbers(&call, args + ARRAYS) == 0 &&
      check_quantised(&a, &call) == 0) {
    const pn_tensor **places[ARRAYS] = {&call.x, &call.residual, &call.gate, &call.weight, &call.bias,
                                        &call.y, &call.sum,      &call.q,    &call.scale};
    for (int i = 0; i < ARRAYS; i++)
      *places[i] = pn_array_tensor(&a.arrays[i]);
    call.y_dtype = pn_result_dtype(a.mode, call.x->dtype);
    result = pn_call_forward(&call, a.threads);
  }
  pn_arguments_close(&a);
  return result;
}
