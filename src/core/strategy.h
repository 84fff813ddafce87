/* SPDX-License-Identifier: MIT
 *
 * Past the caches there are two ways to write wide rows: fetch the next row while one is written, or measure a large
 * batch of rows and write them afterwards, so that phases of reading and of writing are long. Which one is quicker
 * depends on the processor: some forget prefetches while non-temporal stores wait (docs/performance.md). So both are
 * timed once in a process, for each direction, on the rows of its first large calls. The bits are the same either way.
 */
#ifndef RMS_CORE_STRATEGY_H
#define RMS_CORE_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { RMS_FORWARD, RMS_BACKWARD, RMS_DIRECTIONS } rms_direction;

/* Whether both ways have been timed. */
bool rms_strategy_known(rms_direction direction);

/* Runs run(arg, from, to, large_batches) over first..last-1, each of which moves bytes_each bytes, in the quicker way;
 * or, as long as that is not known, piece by piece in both ways in turn. Any threads may do so at the same time. */
void rms_run_strategy(rms_direction direction, int64_t bytes_each, int64_t first, int64_t last,
                      void (*run)(const void *arg, int64_t from, int64_t to, bool large_batches), const void *arg);

#endif
