/* SPDX-License-Identifier: MIT
 *
 * The forward with a quantised result, for rmsnorm._core. */
#ifndef PN_MODULE_QUANTISED_H
#define PN_MODULE_QUANTISED_H

#include "arguments.h"

PyObject *pn_core_forward_quantised(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
