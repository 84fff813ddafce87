/* SPDX-License-Identifier: MIT
 *
 * The ceiling: plain copies with a given mix of reads and writes, done as fast as this machine can. */
#ifndef RMSNORM_BENCH_COPY_H
#define RMSNORM_BENCH_COPY_H

#include <stddef.h>

#include "rmsnorm.h"

enum { COPY_READS_MAX = 12, COPY_WRITES_MAX = 12 }; /* three tensors of four times the narrowest width */

/* Buffers of `bytes` bytes each. Write i receives read i (or the last read); reads beyond the writes are only read. */
typedef struct copy_buffers {
  const void *reads[COPY_READS_MAX];
  void *writes[COPY_WRITES_MAX];
  int read_count, write_count;
  size_t bytes;
} copy_buffers;

/* Copies bytes begin..end-1 of every buffer; begin is a multiple of 64. */
typedef void copy_function(const copy_buffers *buffers, size_t begin, size_t end);

typedef struct copy_method {
  const char *name; /* "memcpy", "avx2", "avx2 non-temporal" */
  copy_function *run;
} copy_method;

/* The methods of this machine that can copy these buffers; at most COPY_METHODS_MAX. */
enum { COPY_METHODS_MAX = 6 };
int copy_methods(const copy_buffers *buffers, copy_method *methods);

/* One copy of all buffers, cut into one piece per thread; executor NULL: on the calling thread. */
void copy_run(copy_function *run, const copy_buffers *buffers, const rms_executor *executor);

/* Defined where the compiler knows the instruction set. */
copy_function copy_avx2, copy_avx2_stream, copy_avx512, copy_avx512_stream;

#endif
