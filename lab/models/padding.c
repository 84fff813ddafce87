/* SPDX-License-Identifier: MIT */
#include "models/padding.h"

static int32_t id_at(const id_sequence *s, id_frame frame, int64_t place) {
  if (frame.first != NO_MARK && place-- == 0) return frame.first;
  if (place < s->length) return s->ids[place];
  return place == s->length && frame.last != NO_MARK ? frame.last : frame.pad;
}

padded_ids pad_ids(tape *t, const id_sequence *sequences, int64_t count, id_frame frame, id_layout layout) {
  padded_ids p = {.lengths = tape_keep(t, (size_t)count * sizeof *p.lengths), .batch = count};
  for (int64_t b = 0; b < count; b++) {
    p.lengths[b] = sequences[b].length + (frame.first != NO_MARK) + (frame.last != NO_MARK);
    if (p.lengths[b] > p.steps) p.steps = p.lengths[b];
  }
  p.ids = tape_keep(t, (size_t)(count * p.steps) * sizeof *p.ids);
  for (int64_t b = 0; b < count; b++)
    for (int64_t i = 0; i < p.steps; i++)
      p.ids[layout == TIME_MAJOR ? i * count + b : b * p.steps + i] = id_at(&sequences[b], frame, i);
  return p;
}
