/* SPDX-License-Identifier: MIT
 *
 * Gradients against finite differences, in double.
 */
#ifndef RMSNORM_TESTS_LAB_GRADIENT_H
#define RMSNORM_TESTS_LAB_GRADIENT_H

#include "models/layers.h"

/* Builds a result from the parameters; called again and again with changed values. */
typedef tensor *(*build_fn)(net *n, void *arg);

/* Checks the gradient of a fixed random combination of the result's elements with respect to every parameter element,
 * or every `stride`-th one. */
void check_gradients(params *p, const norm_config *norm, build_fn build, void *arg, int64_t stride);

#endif
