/* SPDX-License-Identifier: MIT
 *
 * A case for timing: inputs filled, outputs touched, ready to run again and again. */
#ifndef RMSNORM_BENCH_CASE_H
#define RMSNORM_BENCH_CASE_H

#include <stddef.h>

#include "../../verify/case.h"
#include "copy.h"

typedef struct bench_case {
  verify_case base; /* mean is there for RMS problems as well, for the LayerNorm next to them */
  rms_spec spec;
  rms_forward_args forward;
  rms_backward_args backward;
  copy_buffers buffers; /* the tensors that grow with rows x cols: what the ceiling copies */
  double elements;      /* rows x cols                                                     */
  double bytes;         /* read and written, weights left out                              */
  void *arena;
  size_t arena_bytes, used;
  double *saved; /* forward without statistics: room for them, rstd and then mean; or NULL */
  int placed;    /* buffers in the arena              */
  int filled;    /* the inputs have their contents    */
} bench_case;

/* Returns 0, or -1 if memory is short. All buffers come from one mapping with huge pages asked for, and are touched. */
int case_create(bench_case *c, const verify_problem *problem);
void case_destroy(bench_case *c);

/* Fills the inputs again and wipes the outputs, so that what a run leaves unwritten shows. */
void case_reset(bench_case *c);

/* A hash of all outputs. */
uint64_t case_digest(const bench_case *c);

/* The bytes that one outer index has of this output; 0: not an output, or one that is not made of rows. */
size_t case_output_row_bytes(const bench_case *c, verify_role role);

#endif
