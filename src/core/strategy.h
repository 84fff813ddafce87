/* SPDX-License-Identifier: MIT
 *
 * Past the caches there are several ways to write rows: fetch the next row while one is written, with or without plain
 * stores between the non-temporal ones, leave that to the processor, or measure a batch of rows and write them
 * afterwards, so that phases of reading and of writing are long. Which one is quickest depends on the processor: some
 * forget prefetches while many non-temporal stores wait, some fetch by themselves what is needed (docs/performance.md).
 * So all that there are for a kind of rows are timed once in a process, for each instruction set, on the rows of the
 * first large calls. The bits are the same in every way. */
#ifndef RMS_CORE_STRATEGY_H
#define RMS_CORE_STRATEGY_H

#include "job.h"

typedef enum { RMS_FORWARD, RMS_BACKWARD, RMS_DIRECTIONS } rms_direction;

/* Rows for which one way is quickest, as far as was measured. A number below RMS_ROW_KINDS. */
typedef int rms_row_kind;
enum { RMS_ROW_KINDS = RMS_DIRECTIONS * 32, RMS_ONE_WAY = -1 };

/* RMS_ONE_WAY: rows of which there is only the usual way. */
rms_row_kind rms_row_kind_of(rms_direction direction, const rms_layout *lay);

/* The way of rows of which no other is known to be quicker. */
rms_way rms_usual_way(rms_direction direction, rms_dtype type);

/* Whether all ways have been timed. isa: the number of the instruction set, rms_isa_number. */
bool rms_strategy_known(int isa, rms_row_kind kind);

/* Runs run(arg, from, to, way) over first..last-1, each of which moves bytes_each bytes, in the quickest way; or, as
 * long as that is not known, its last pieces in all ways in turn. Any threads may do so at the same time. */
void rms_run_strategy(int isa, rms_row_kind kind, int64_t bytes_each, int64_t first, int64_t last,
                      void (*run)(const void *arg, int64_t from, int64_t to, rms_way way), const void *arg);

#endif
