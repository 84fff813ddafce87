/* SPDX-License-Identifier: MIT
 *
 * Walks the segments of a job: which row, which inner index, which group; and where a tensor's segment starts. */
#ifndef RMS_KERNELS_CURSOR_H
#define RMS_KERNELS_CURSOR_H

#include "../kernels.h"

typedef struct {
  int64_t outer, inner, group;
} rms_cursor;

static inline rms_cursor rms_cursor_at(const rms_layout *lay, int64_t segment) {
  rms_cursor c = {0, 0, 0};
  if (segment == 0) return c; /* most calls start here: three divisions saved */
  int64_t row = segment / lay->groups;
  c.outer = row / lay->inner;
  c.inner = row % lay->inner;
  c.group = segment % lay->groups;
  return c;
}

static inline void rms_cursor_next(rms_cursor *c, const rms_layout *lay) {
  if (++c->group < lay->groups) return;
  c->group = 0;
  if (++c->inner < lay->inner) return;
  c->inner = 0;
  c->outer++;
}

static inline char *rms_segment(const rms_rows *t, const rms_cursor *c, const rms_layout *lay, int64_t size) {
  return t->data + c->outer * t->outer + c->inner * t->inner + c->group * lay->width * size;
}

#endif
