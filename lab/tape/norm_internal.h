/* SPDX-License-Identifier: MIT
 *
 * Shared by norm.c, norm_textbook.c and channel_norm.c.
 */
#ifndef LAB_NORM_INTERNAL_H
#define LAB_NORM_INTERNAL_H

#include "tape/ops.h"
#include "rmsnorm.h"

/* The library's description of a norm over cols columns. Indices live as long as the tape's memory. */
rms_spec norm_spec(tape *t, const norm_config *config, int64_t cols);
/* Ends the program with the library's message: the library refused arguments that the lab made itself. */
void norm_must(rms_status status);

/* Un-fused, each step a pass over memory of its own. The record is the backward's. */
typedef struct textbook_norm textbook_norm;
textbook_norm *textbook_forward(tape *t, const norm_config *config, tensor *x, tensor *y, const real *gain,
                                const real *bias);
void textbook_backward(tape *t, textbook_norm *record, tensor *x, tensor *y, const real *gain, real *dgain,
                       real *dbias);

#endif
