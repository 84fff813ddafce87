/* SPDX-License-Identifier: MIT */
#include "column_sums.h"
#include <string.h>
#include "convert.h"

enum {
  ROWS_PER_CHUNK = 32, /* at least, so that a chunk's fixed cost is small beside its rows  */
  MOST_CHUNKS = 64,    /* enough for as many threads                                       */
  MANY_INNER = 32      /* inner indices with weights of their own: one thread takes all rows of one */
};
static const int64_t most_workspace = (int64_t)256 << 20; /* fewer chunks for very wide rows */

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

/* The number of chunks decides the bits, so it follows from the shape alone. What a chunk keeps is what the call asks
 * for. */
bool rms_plan_sums(const rms_layout *lay, int64_t rows, bool dweight, bool dbias, rms_sums_plan *p) {
  int64_t pieces, both, bytes;
  if (lay->width > INT64_MAX / 2) return false;
  p->rows = rows;
  p->dweight = dweight;
  p->dbias = dbias;
  p->pitch = round_up(lay->width, RMS_STRIP);
  p->real = lay->dtype == RMS_F64 ? 8 : 4;
  if (__builtin_mul_overflow(lay->per_inner ? lay->inner : 1, lay->groups, &pieces)) return false;
  if (__builtin_mul_overflow(pieces, p->pitch, &p->elements)) return false;
  if (__builtin_mul_overflow(p->elements, 2 * (8 + p->real), &both)) return false;
  p->chunk_bytes = both / 2 * ((int64_t)dweight + (int64_t)dbias);
  p->chunks = rows / ROWS_PER_CHUNK + (rows % ROWS_PER_CHUNK != 0);
  if (p->chunks > MOST_CHUNKS) p->chunks = MOST_CHUNKS;
  if (p->chunks > most_workspace / both) p->chunks = most_workspace / both;
  if (p->chunks < 1) p->chunks = 1;
  p->slots = lay->per_inner && lay->inner >= MANY_INNER ? lay->inner : 0;
  if (p->slots > MOST_CHUNKS) p->slots = MOST_CHUNKS;
  p->slot_bytes = lay->groups * p->pitch * (16 + p->real) * ((int64_t)dweight + (int64_t)dbias);
  return !__builtin_mul_overflow(p->chunks, p->chunk_bytes, &bytes);
}

int64_t rms_chunk_start(const rms_sums_plan *p, int64_t chunk) {
  int64_t base = p->rows / p->chunks, extra = p->rows % p->chunks;
  return chunk * base + (chunk < extra ? chunk : extra);
}

int64_t rms_chunk_of(const rms_sums_plan *p, int64_t row) {
  int64_t base = p->rows / p->chunks, extra = p->rows % p->chunks, longer = extra * (base + 1);
  return row < longer ? row / (base + 1) : extra + (row - longer) / base;
}

rms_sums_plan rms_plan_inner(const rms_sums_plan *p, const rms_layout *lay) {
  rms_sums_plan one = *p;
  one.chunks = 1;
  one.elements = lay->groups * p->pitch;
  one.chunk_bytes = one.elements * (8 + p->real) * ((int64_t)p->dweight + (int64_t)p->dbias);
  return one;
}

rms_column_sums rms_chunk_sums(const rms_sums_plan *p, char *workspace, int64_t chunk) {
  char *at = workspace + chunk * p->chunk_bytes;
  int64_t totals = p->elements * 8, blocks = p->elements * p->real;
  rms_column_sums s = {NULL, NULL, NULL, NULL};
  if (p->dweight) {
    s.dweight_total = (double *)(void *)at;
    s.dweight_block = at + totals;
    at += totals + blocks;
  }
  if (p->dbias) {
    s.dbias_total = (double *)(void *)at;
    s.dbias_block = at + totals;
  }
  return s;
}

static double read_gradient(const char *p, int64_t i, rms_dtype type) {
  uint16_t h;
  float f;
  double d;
  switch (type) {
  case RMS_F32:
    memcpy(&f, p + 4 * i, 4);
    return (double)f;
  case RMS_F64:
    memcpy(&d, p + 8 * i, 8);
    return d;
  default:
    memcpy(&h, p + 2 * i, 2);
    return (double)(type == RMS_BF16 ? rms_f32_from_bf16(h) : rms_f32_from_f16(h));
  }
}

static void write_gradients(char *p, const double *value, int64_t count, rms_dtype type) {
  if (type == RMS_F64) {
    memcpy(p, value, (size_t)count * 8);
  } else if (type == RMS_F32) {
    for (int64_t i = 0; i < count; i++) {
      float f = (float)value[i];
      memcpy(p + 4 * i, &f, 4);
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      float odd = rms_f32_odd_from_f64(value[i]);
      uint16_t h = type == RMS_BF16 ? rms_bf16_from_f32(odd) : rms_f16_from_f32(odd);
      memcpy(p + 2 * i, &h, 2);
    }
  }
}

void rms_finish_strip(const rms_sums_plan *p, const rms_layout *lay, char *workspace, const rms_gradient *out,
                      bool bias, int64_t strip) {
  double sum[RMS_STRIP] = {0};
  int64_t first = strip * RMS_STRIP, piece = first / p->pitch, at = first % p->pitch, width = lay->width;
  int64_t count = width - at < RMS_STRIP ? width - at : RMS_STRIP;
  for (int64_t c = 0; c < p->chunks; c++) {
    rms_column_sums s = rms_chunk_sums(p, workspace, c);
    const double *total = (bias ? s.dbias_total : s.dweight_total) + first;
    for (int64_t i = 0; i < RMS_STRIP; i++)
      sum[i] += total[i];
  }
  char *to = (char *)out->data + (piece * width + at) * (int64_t)rms_dtype_size(out->type);
  if (out->accumulate)
    for (int64_t i = 0; i < count; i++)
      sum[i] = read_gradient(to, i, out->type) + sum[i];
  write_gradients(to, sum, count, out->type);
}
