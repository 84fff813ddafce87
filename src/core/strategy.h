/* SPDX-License-Identifier: MIT
 *
 * Past the caches there are several ways to write wide rows: fetch the next row while one is written, with or without
 * plain stores between the non-temporal ones, or measure a large batch of rows and write them afterwards, so that
 * phases of reading and of writing are long. Which one is quickest depends on the processor: some forget prefetches
 * while many non-temporal stores wait (docs/performance.md). So all are timed once in a process, for each direction and
 * instruction set, on the rows of its first large calls. The bits are the same in every way.
 * The backward has two of them: there, spaced stores are the same as none. */
#ifndef RMS_CORE_STRATEGY_H
#define RMS_CORE_STRATEGY_H

#include "job.h"

typedef enum { RMS_FORWARD, RMS_BACKWARD, RMS_DIRECTIONS } rms_direction;

/* Whether all ways have been timed. isa: the number of the instruction set, rms_isa_number. */
bool rms_strategy_known(int isa, rms_direction direction);

/* Runs run(arg, from, to, way) over first..last-1, each of which moves bytes_each bytes, in the quickest way; or, as
 * long as that is not known, its last pieces in all ways in turn. Any threads may do so at the same time. */
void rms_run_strategy(int isa, rms_direction direction, int64_t bytes_each, int64_t first, int64_t last,
                      void (*run)(const void *arg, int64_t from, int64_t to, rms_way way), const void *arg);

#endif
