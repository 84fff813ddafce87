/* SPDX-License-Identifier: MIT */
#include "train/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "base/cluster.h"
#include "tape/ops.h"

enum { UNIT = 16 }; /* elements that messages are counted in; the parameters are a multiple of it */

static int64_t part_start(const params *p, int rank) {
  int64_t start = cluster_start_of(p->blocks, rank) * PARAM_BLOCK;
  return start < p->size ? start : p->size;
}

/* Every other process gets its part of this one's shards; theirs of this process's part go into `parts`, a row per
 * shard. */
static void swap_parts(params *p, real *parts, int64_t length) {
  const int size = cluster_size(), rank = cluster_rank();
  cluster_block *sent = lab_alloc((size_t)size * (size_t)p->own, sizeof *sent);
  cluster_block *received = lab_alloc((size_t)p->shards, sizeof *received);
  int64_t sends = 0, receives = 0;
  for (int other = 0; other < size; other++) {
    const int64_t start = part_start(p, other), end = part_start(p, other + 1);
    for (int shard = 0; other != rank && shard < p->own; shard++)
      sent[sends++] = (cluster_block){p->grads + shard * p->size + start, (end - start) / UNIT, other};
    for (int64_t shard = cluster_start_of(p->shards, other); shard < cluster_start_of(p->shards, other + 1); shard++) {
      real *to = parts + shard * length;
      if (other == rank)
        memcpy(to, p->grads + (shard - p->first) * p->size + p->part, (size_t)length * sizeof *to);
      else
        received[receives++] = (cluster_block){to, length / UNIT, other};
    }
  }
  cluster_swap(sent, sends, received, receives, UNIT * sizeof(real));
  free(sent);
  free(received);
}

void gradients_add_up(params *p) {
  if (cluster_size() == 1) return;
  const int64_t length = p->end > p->part ? p->end - p->part : 0;
  real *parts = lab_alloc((size_t)(p->shards * length), sizeof *parts);
  swap_parts(p, parts, length);
  for (int shard = 1; shard < p->shards; shard++)
    add_to(parts, parts + shard * length, length);
  if (length > 0) memcpy(p->grads + p->part, parts, (size_t)length * sizeof *parts);
  free(parts);
  p->added_up = 1;
}
