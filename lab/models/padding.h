/* SPDX-License-Identifier: MIT
 *
 * Sequences of ids of different lengths as one block: the longest sets the number of steps, the others are
 * padded. */
#ifndef LAB_PADDING_H
#define LAB_PADDING_H

#include "tape/tape.h"

typedef struct id_sequence {
  const int32_t *ids;
  int32_t length;
} id_sequence;

typedef enum id_layout {
  TIME_MAJOR, /* element t*batch + b: recurrent models */
  BATCH_MAJOR /* element b*steps + t: attention        */
} id_layout;

enum { NO_MARK = -1 };

typedef struct id_frame {
  int32_t first, last; /* ids put before and after each sequence; NO_MARK: nothing */
  int32_t pad;
} id_frame;

typedef struct padded_ids {
  int32_t *ids;     /* batch x steps in the chosen layout */
  int32_t *lengths; /* of each sequence, marks counted    */
  int64_t batch, steps;
} padded_ids;

/* The memory is the tape's. */
padded_ids pad_ids(tape *t, const id_sequence *sequences, int64_t count, id_frame frame, id_layout layout);

#endif
