/* SPDX-License-Identifier: MIT
 *
 * What the entry points share: the active kernels, running a job's segments on the executor, and when to bypass the
 * caches. */
#ifndef RMS_CORE_RUN_H
#define RMS_CORE_RUN_H

#include "../cpu/kernels.h"

/* The kernels in use; NULL if RMSNORM_ISA names none that can run. */
const rms_kernels *rms_active_kernels(void);

/* The kernels for a type: the active ones, or those for registers of another width, or with the processor's own
 * rounding, where these are quicker with the type and nobody has named an instruction set. Those for f16 serve a
 * forward, and not one with a gate or with q. */
const rms_kernels *rms_kernels_of_type(const rms_kernels *active, rms_dtype type);

/* Instruction sets of a build, at most. */
enum { RMS_MOST_ISAS = 5 };

/* Which of them these kernels are for, from 0 on. */
int rms_isa_number(const rms_kernels *kernels);

/* Work below this stays on the calling thread: handing it over costs more. */
enum { RMS_SERIAL_BYTES = 256 * 1024 };

/* Calls run(arg, first, last) over 0..count-1, in tasks on the executor's threads, or all in one on the calling thread
 * where there is no executor or too little to do. How it is cut depends on count, bytes_each and the concurrency, and
 * must not show in results. */
void rms_run_tasks(const rms_executor *executor, int64_t count, int64_t bytes_each,
                   void (*run)(const void *arg, int64_t first, int64_t last), const void *arg);

/* How many of these tasks may run at once. */
int64_t rms_tasks_at_once(const rms_executor *executor, int64_t count, int64_t bytes_each);

/* Whether a call over `count` segments (or whatever its tasks count) moves more than its caches hold: all of them
 * together, and one part in `parts` of those of each thread, if there are several. */
bool rms_streams(int64_t count, int64_t bytes_each, int64_t parts, const rms_executor *executor);

/* Whether rows can be written by non-temporal stores with profit: whole cache lines from aligned addresses, to memory
 * that has been touched before. Of rows whose elements lie apart: the lines of an element of neighbouring rows. */
bool rms_can_stream(const rms_rows *out, const rms_layout *lay, int64_t segment_bytes, int64_t segments);

/* Whether two tensors of rows are one: in place. */
static inline bool rms_same_rows(const rms_rows *a, const rms_rows *b) {
  return a->data == b->data;
}

#endif
