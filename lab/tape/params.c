/* SPDX-License-Identifier: MIT */
#include "tape/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cluster.h"

enum { GAP = 16 }; /* every parameter starts at a multiple of 64 bytes */

static int64_t declare(params *p, const char *name, param item) {
  p->items = lab_grow(p->items, &p->capacity, p->count + 1, sizeof *p->items);
  item.offset = p->size;
  snprintf(item.name, sizeof item.name, "%s", name);
  p->items[p->count] = item;
  p->size += (item.rows * item.cols + GAP - 1) / GAP * GAP;
  return p->count++;
}

int64_t params_constant(params *p, const char *name, int64_t rows, int64_t cols, double start, param_kind kind) {
  return declare(p, name, (param){.rows = rows, .cols = cols, .start = start, .kind = kind});
}

int64_t params_uniform(params *p, const char *name, int64_t rows, int64_t cols, double limit) {
  return declare(p, name, (param){.rows = rows, .cols = cols, .limit = limit, .kind = PARAM_TRAINED});
}

static real *zeros(int64_t count) {
  size_t bytes = (size_t)count * sizeof(real);
  real *block = lab_aligned(bytes);
  memset(block, 0, bytes);
  return block;
}

static uint64_t name_hash(const char *name) {
  uint64_t hash = 1469598103934665603u;
  for (; *name != '\0'; name++)
    hash = (hash ^ (uint8_t)*name) * 1099511628211u;
  return hash;
}

static void initialise(params *p, const param *item, uint64_t seed, double centre) {
  lab_rng rng = lab_rng_make(seed, name_hash(item->name));
  real *value = p->value + item->offset;
  for (int64_t i = 0; i < item->rows * item->cols; i++)
    value[i] = (real)(item->limit > 0 ? centre + item->limit * (2 * lab_rng_unit(&rng) - 1) : item->start);
}

void params_allocate(params *p, int shards, uint64_t seed, double centre) {
  p->shards = shards;
  p->first = (int)cluster_start_of(shards, cluster_rank());
  p->own = (int)cluster_start_of(shards, cluster_rank() + 1) - p->first;
  p->blocks = (p->size + PARAM_BLOCK - 1) / PARAM_BLOCK;
  p->part = cluster_start_of(p->blocks, cluster_rank()) * PARAM_BLOCK;
  p->end = cluster_start_of(p->blocks, cluster_rank() + 1) * PARAM_BLOCK;
  if (p->end > p->size) p->end = p->size;
  p->value = zeros(p->blocks * PARAM_BLOCK);
  p->m = zeros(p->blocks * PARAM_BLOCK);
  p->v = zeros(p->blocks * PARAM_BLOCK);
  p->grads = zeros(p->size * p->own);
  for (int64_t i = 0; i < p->count; i++)
    initialise(p, &p->items[i], seed, centre);
}

void params_collect_moments(params *p) {
  cluster_collect(p->m, p->blocks, PARAM_BLOCK * sizeof(real));
  cluster_collect(p->v, p->blocks, PARAM_BLOCK * sizeof(real));
}

void params_free(params *p) {
  free(p->items);
  free(p->value);
  free(p->m);
  free(p->v);
  free(p->grads);
  *p = (params){0};
}

int64_t params_trained(const params *p) {
  int64_t sum = 0;
  for (int64_t i = 0; i < p->count; i++)
    if (p->items[i].kind == PARAM_TRAINED) sum += p->items[i].rows * p->items[i].cols;
  return sum;
}

tensor *tape_param(tape *t, const params *p, int shard, int64_t id) {
  const param *item = &p->items[id];
  const int at = shard >= p->first && shard < p->first + p->own ? shard - p->first : 0;
  tensor *x = tape_keep(t, sizeof *x);
  *x = (tensor){p->value + item->offset, p->grads + at * p->size + item->offset, item->rows, item->cols, item->cols};
  return x;
}
