/* SPDX-License-Identifier: MIT
 *
 * A problem with its buffers: inputs filled, outputs touched, ready to run again and again. */
#ifndef RMSNORM_BENCH_CASE_H
#define RMSNORM_BENCH_CASE_H

#include <stddef.h>

#include "copy.h"
#include "problem.h"

enum { CASE_BUFFERS_MAX = 16 };

typedef struct case_buffer {
  void *data;
  size_t bytes;
  rms_dtype dtype;
  int input, output; /* both: in place                            */
  int per_row;       /* grows with the rows: tensors, statistics */
} case_buffer;

typedef struct bench_case {
  verify_problem problem;
  rms_spec spec;
  rms_forward_args forward; /* mean is there for RMS problems as well, for the LayerNorm next to them */
  rms_backward_args backward;
  int64_t *indices;
  case_buffer buffers[CASE_BUFFERS_MAX];
  int buffer_count;
  copy_streams streams; /* the tensors that grow with rows x cols: what the ceiling copies */
  double elements;      /* rows x cols                                                     */
  double bytes;         /* read and written, weights left out                              */
  void *arena;
  size_t arena_bytes;
  int filled; /* the inputs have their contents */
} bench_case;

/* Returns 0, or -1 if memory is short. All buffers come from one mapping with huge pages asked for, and are touched. */
int case_create(bench_case *c, const verify_problem *problem);
void case_destroy(bench_case *c);

/* Fills the inputs again and wipes the outputs, so that what a run leaves unwritten shows. */
void case_reset(bench_case *c);

/* A hash of all outputs. */
uint64_t case_digest(const bench_case *c);

#endif
