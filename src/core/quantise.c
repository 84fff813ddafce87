/* SPDX-License-Identifier: MIT */
#include "quantise.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../cpu/kernels/cursor.h"
#include "check_types.h"

enum {
  STEP_BYTES = 16 * 1024, /* of y of several segments: stays in the first-level cache                   */
  PART = 4096,            /* elements of q that are put together before they are copied past the caches */
  SHORTEST = 512,         /* elements of a segment that goes straight from x to q: others gain by batches */
  SOME = 16               /* segments that leave that way together                                      */
};

typedef struct {
  const rms_kernels *kernels;
  const rms_forward_job *job;
  int64_t size; /* of an element of y */
  char *room;
  rms_quantised q; /* the job's, with what should be fetched early */
} quantise_run;

/* ---- outputs ---- */

static void put_y(const quantise_run *r, char *to, const char *from, int64_t bytes) {
  if (r->job->stream_y)
    r->kernels->copy(to, from, bytes);
  else
    memcpy(to, from, (size_t)bytes);
}

/* Elements with one scale; 0: all. */
static int64_t block_of(const rms_quantised *q) {
  return q->type == RMS_Q8_0 ? RMS_Q8_0_ELEMENTS : q->block;
}

/* `step` elements at a time, past the caches. */
static void put_parts(const quantise_run *r, char *to, float *scale, const char *y, int64_t n, const float *largest,
                      int64_t step) {
  const rms_quantised *q = &r->q;
  const int64_t scales = !largest && q->block ? step / q->block : 0;
  char part[PART / RMS_Q8_0_ELEMENTS * RMS_Q8_0_BYTES];
  for (int64_t j = 0; j < n; j += step) {
    const int64_t count = n - j < step ? n - j : step;
    r->kernels->quantise[r->job->y_type](q, part, scale, y + j * r->size, count, largest);
    r->kernels->copy(to + rms_quantised_bytes(q->type, j), part, rms_quantised_bytes(q->type, count));
    if (scale) scale += scales;
  }
}

/* n elements: whole blocks, or a part of one whose largest magnitude is given. */
static void put_quantised(const quantise_run *r, char *to, float *scale, const char *y, int64_t n,
                          const float *largest) {
  const rms_quantised *q = &r->q;
  const int64_t block = block_of(q);
  if (!q->stream) {
    r->kernels->quantise[r->job->y_type](q, to, scale, y, n, largest);
  } else if (largest || block == 0) {
    put_parts(r, to, scale, y, n, largest, PART);
  } else if (block <= PART) {
    put_parts(r, to, scale, y, n, NULL, PART / block * block);
  } else {
    for (int64_t j = 0; j < n; j += block, scale++) {
      const float most = r->kernels->largest[r->job->y_type](y + j * r->size, block);
      put_parts(r, to + j, scale, y + j * r->size, block, &most, PART);
    }
  }
}

static char *quantised_segment(const quantise_run *r, const rms_cursor *at) {
  const rms_quantised *q = &r->q;
  return q->rows.data + at->outer * q->rows.outer + at->inner * q->rows.inner +
         at->group * rms_quantised_bytes(q->type, r->job->lay.width);
}

/* The scales from segment i on; NULL where none are computed, or where they stand among the elements. */
static float *segment_scales(const quantise_run *r, int64_t i) {
  const rms_quantised *q = &r->q;
  return q->scale && q->block ? q->scale + i * (r->job->lay.width / q->block) : NULL;
}

/* ---- segments that fit in the room ---- */

/* Whether the rows of q follow each other without a gap. */
static bool is_dense(const quantise_run *r) {
  const rms_layout *lay = &r->job->lay;
  const rms_rows *q = &r->q.rows;
  const int64_t row = rms_quantised_bytes(r->q.type, lay->width * lay->groups);
  return (lay->inner == 1 || q->inner == row) && q->outer == lay->inner * row;
}

/* The segments from i on that lie in the room. */
static void put_segments(const quantise_run *r, int64_t i, int64_t count, bool dense) {
  const rms_layout *lay = &r->job->lay;
  const int64_t width = lay->width, bytes = width * r->size;
  rms_cursor at = rms_cursor_at(lay, i);
  if (dense) put_quantised(r, quantised_segment(r, &at), segment_scales(r, i), r->room, count * width, NULL);
  for (int64_t s = 0; s < count; s++, rms_cursor_next(&at, lay)) {
    const char *y = r->room + s * bytes;
    if (!dense) put_quantised(r, quantised_segment(r, &at), segment_scales(r, i + s), y, width, NULL);
    if (r->job->y.data) put_y(r, rms_segment(&r->job->y, &at, lay, r->size), y, bytes);
  }
}

/* Whether the rows of x follow each other without a gap, so that one distance leads to those of the next step. */
static bool is_x_dense(const rms_forward_job *job) {
  const rms_layout *lay = &job->lay;
  const int64_t row = lay->width * lay->groups * rms_size_of(lay->dtype);
  return (lay->inner == 1 || job->x.inner == row) && job->x.outer == lay->inner * row;
}

static void run_segments(quantise_run *r, int64_t first, int64_t last) {
  const rms_forward_job *job = r->job;
  const int64_t bytes = job->lay.width * r->size, step = bytes < STEP_BYTES ? STEP_BYTES / bytes : 1;
  const int64_t size = rms_size_of(job->lay.dtype);
  const bool dense = is_dense(r), fetch = job->fetch_ahead && size == r->size && is_x_dense(job);
  rms_forward_job inside = *job;
  inside.q.rows.data = NULL;
  inside.stream_y = false;
  inside.y.inner = bytes * job->lay.groups;
  inside.y.outer = inside.y.inner * job->lay.inner;
  for (int64_t i = first; i < last; i += step) {
    const int64_t count = last - i < step ? last - i : step;
    inside.y.data = (char *)((uintptr_t)r->room - (uintptr_t)(i * bytes)); /* segment i comes first there */
    r->kernels->forward[job->lay.dtype](&inside, i, i + count);
    r->q.ahead = 0;
    if (fetch && i + count < last) {
      const rms_cursor next = rms_cursor_at(&job->lay, i + count);
      r->q.ahead = (int64_t)((uintptr_t)rms_segment(&job->x, &next, &job->lay, size) - (uintptr_t)r->room);
    }
    put_segments(r, i, count, dense);
  }
}

/* ---- wider segments: by their statistic, some columns at a time ---- */

typedef struct {
  const quantise_run *run;
  rms_forward_job job; /* of the whole segment, as number 0; y is the room */
  rms_stat stat;
  char *y, *q;
} wide_segment;

static char *moved(char *data, int64_t bytes) {
  return data ? data + bytes : NULL;
}

/* Columns from..from+n-1 of y to the room. last: what else is written of them, is written. */
static void apply_columns(const wide_segment *w, int64_t from, int64_t n, bool last) {
  const int64_t size = rms_size_of(w->job.lay.dtype), weight = w->job.lay.weight_is_f32 ? 4 : size;
  const int64_t residual = w->job.lay.residual_is_f32 ? 4 : size;
  rms_forward_job job = w->job;
  job.lay.width = n;
  job.lay.weight = job.lay.weight ? job.lay.weight + from * weight : NULL;
  job.bias = job.bias ? job.bias + from * weight : NULL;
  job.x.data += from * size;
  job.residual.data = moved(job.residual.data, from * residual);
  job.residual_out.data = last ? moved(job.residual_out.data, from * residual) : NULL;
  job.gate.data = moved(job.gate.data, from * size);
  if (!last || from > 0) job.rstd = job.mean = NULL;
  w->run->kernels->forward[job.lay.dtype](&job, 0, 1);
}

static void put_columns(const wide_segment *w, float *scale, int64_t from, int64_t n, const float *largest) {
  const quantise_run *r = w->run;
  apply_columns(w, from, n, true);
  put_quantised(r, w->q + rms_quantised_bytes(r->q.type, from), scale, r->room, n, largest);
  if (w->y) put_y(r, w->y + from * r->size, r->room, n * r->size);
}

/* Of a block that does not fit in the room. */
static float largest_of_columns(const wide_segment *w, int64_t from, int64_t n, int64_t step) {
  float most = 0;
  for (int64_t j = 0; j < n && most == most; j += step) {
    const int64_t count = n - j < step ? n - j : step;
    apply_columns(w, from + j, count, false);
    const float more = w->run->kernels->largest[w->run->job->y_type](w->run->room, count);
    if (!(more <= most)) most = more;
  }
  return most;
}

static void put_wide(const wide_segment *w, float *scale) {
  const quantise_run *r = w->run;
  const int64_t width = r->job->lay.width, block = block_of(&r->q), room = RMS_QUANTISE_ROOM / r->size;
  if (block <= room) {
    const int64_t step = block ? room / block * block : room;
    for (int64_t j = 0; j < width; j += step) {
      put_columns(w, scale, j, width - j < step ? width - j : step, NULL);
      if (scale) scale += step / block;
    }
    return;
  }
  for (int64_t b = 0; b < width; b += block, scale++) {
    const float most = largest_of_columns(w, b, block, room);
    for (int64_t j = 0; j < block; j += room)
      put_columns(w, scale, b + j, block - j < room ? block - j : room, &most);
  }
}

/* Segment i of the job as number 0 of another, with its rows where the cursor stands. */
static void open_wide(const quantise_run *r, const rms_cursor *at, int64_t i, wide_segment *w) {
  const rms_forward_job *job = r->job;
  const rms_layout *lay = &job->lay;
  const int64_t size = rms_size_of(lay->dtype), residual = lay->residual_is_f32 ? 4 : size;
  const int64_t weight = at->inner * lay->weight_inner + at->group * lay->width * (lay->weight_is_f32 ? 4 : size);
  w->run = r;
  w->job = *job;
  w->job.q.rows.data = NULL;
  w->job.lay.inner = w->job.lay.groups = 1;
  w->job.lay.weight_inner = 0;
  w->job.lay.per_inner = false;
  w->job.lay.weight = lay->weight ? lay->weight + weight : NULL;
  w->job.bias = job->bias ? job->bias + weight : NULL;
  w->job.x.data = rms_segment(&job->x, at, lay, size);
  if (job->residual.data) w->job.residual.data = rms_segment(&job->residual, at, lay, residual);
  if (job->residual_out.data) w->job.residual_out.data = rms_segment(&job->residual_out, at, lay, residual);
  if (job->gate.data) w->job.gate.data = rms_segment(&job->gate, at, lay, size);
  if (job->rstd) w->job.rstd = (float *)job->rstd + i;
  if (job->mean) w->job.mean = (float *)job->mean + i;
  w->y = job->y.data ? rms_segment(&job->y, at, lay, r->size) : NULL;
  w->q = quantised_segment(r, at);
  w->job.y.data = r->room;
  w->job.stream_y = false;
}

static void run_wide(const quantise_run *r, int64_t first, int64_t last) {
  const rms_layout *lay = &r->job->lay;
  rms_cursor at = rms_cursor_at(lay, first);
  for (int64_t i = first; i < last; i++, rms_cursor_next(&at, lay)) {
    wide_segment w;
    open_wide(r, &at, i, &w);
    w.job.stats_out = &w.stat;
    r->kernels->stats[lay->dtype](&w.job, 0, 1);
    w.job.stats_out = NULL;
    w.job.stats_in = &w.stat;
    put_wide(&w, segment_scales(r, i));
  }
}

/* ---- jobs ---- */

static void run_ordinary(const rms_kernels *kernels, const rms_forward_job *job, int64_t first, int64_t last) {
  _Alignas(64) char room[RMS_QUANTISE_ROOM];
  quantise_run r = {kernels, job, rms_size_of(job->y_type), room, job->q};
  if (job->lay.width * r.size <= RMS_QUANTISE_ROOM)
    run_segments(&r, first, last);
  else
    run_wide(&r, first, last);
}

/* Whether kernels->quantise_rows takes the job. */
static bool goes_straight(const rms_kernels *kernels, const rms_forward_job *job) {
  const rms_layout *lay = &job->lay;
  const int64_t block = block_of(&job->q);
  return kernels->quantise_rows[lay->dtype] && job->y_type == lay->dtype && !job->y.data && !job->residual.data &&
         !job->gate.data && !job->stats_in && lay->k > 0 && lay->steps <= RMS_STEPS_TERMS &&
         lay->eps_place != RMS_EPS_CLAMP && lay->width >= SHORTEST && block <= RMS_LARGEST_BLOCK &&
         (block % 32 == 0 || block == lay->width);
}

/* A segment that needs the ordinary way takes some others with it, so that a job with many of them is not slower than
 * one that goes the ordinary way alone. */
static void run_straight(const rms_kernels *kernels, const rms_forward_job *job, int64_t first, int64_t last) {
  const rms_dtype dtype = job->lay.dtype;
  while (first < last) {
    first = kernels->quantise_rows[dtype](job, kernels->stats[dtype], first, last);
    const int64_t end = last - first < SOME ? last : first + SOME;
    if (first < end) run_ordinary(kernels, job, first, end);
    first = end;
  }
}

void rms_forward_quantised(const rms_kernels *kernels, const rms_forward_job *job, int64_t first, int64_t last) {
  if (goes_straight(kernels, job))
    run_straight(kernels, job, first, last);
  else
    run_ordinary(kernels, job, first, last);
  if (job->stream_y || job->q.stream) kernels->fence();
}
