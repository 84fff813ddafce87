/* SPDX-License-Identifier: MIT
 *
 * The functions of rmsnorm._core for an operation in two halves: rows whose columns are spread over processes. */
#ifndef PN_MODULE_SPLIT_H
#define PN_MODULE_SPLIT_H

#include "arguments.h"

PyObject *pn_core_split_forward(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *pn_core_split_merge(PyObject *self, PyObject *args);
PyObject *pn_core_split_backward(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
