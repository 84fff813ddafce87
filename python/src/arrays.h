/* SPDX-License-Identifier: MIT
 *
 * Arrays of Python as pn_tensor: NumPy's, anything with __dlpack__, and tuples (address, dtype, shape, strides). */
#ifndef PN_ARRAYS_H
#define PN_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include "tensor.h"
#include <Python.h>

/* An array that is in use by a call. */
typedef struct {
  const char *name; /* of the argument, for messages */
  PyObject *owner;  /* keeps the memory alive; NULL: the argument was None */
  pn_tensor tensor;
} pn_array;

/* None gives an absent array. 0, or -1 with an exception that names the argument. */
int pn_array_open(pn_array *array, const char *name, PyObject *object, int writable);
void pn_array_close(pn_array *array);

/* The tensor, or NULL if it is absent. */
const pn_tensor *pn_array_tensor(const pn_array *array);

/* "float32" and so on. */
const char *pn_dtype_name(int32_t dtype);

#endif
