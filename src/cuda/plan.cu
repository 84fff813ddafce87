/* SPDX-License-Identifier: MIT */
#include "plan.h"

namespace rms_cuda {

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int power_above(int64_t n) {
  int p = 1;
  while (p < n)
    p *= 2;
  return p;
}

int64_t vectors_of(const Layout &lay) {
  return divide_up(lay.width, 16 / element_size(lay.dtype));
}

/* A block, or a cluster of blocks, of whole warps with per_thread vectors each. */
static void plan_blocks(const Device &device, int64_t vectors, int most, Plan *plan) {
  const int64_t capacity = (int64_t)most * plan->per_thread;
  plan->tuned = vectors <= capacity * MAX_CLUSTER;
  if (!plan->tuned) return;
  plan->cluster = power_above(divide_up(vectors, capacity));
  plan->team = plan->threads = (int)(divide_up(divide_up(vectors, plan->cluster * plan->per_thread), 32) * 32);
  plan->tuned = plan->cluster == 1 || device.clusters;
}

Plan plan_forward(const Device &device, const Layout &lay) {
  const int64_t vectors = vectors_of(lay);
  Plan plan = {false, 4, 1, 1, 128};
  if (lay.dtype == RMS_F64 || lay.indices) return plan;
  plan.tuned = true;
  if (vectors <= 32)
    plan.team = power_above(divide_up(vectors, plan.per_thread));
  else if (vectors <= 32 * plan.per_thread)
    plan.team = 32;
  else
    plan_blocks(device, vectors, FORWARD_TEAM, &plan);
  return plan;
}

bool has_rings(const Device &device) {
  return device.clusters && device.shared_per_block >= LEAN_SHARED;
}

bool plan_lean_forward(const Device &device, int vectors, bool residual, bool options) {
  return vectors <= (has_rings(device) ? MAX_CLUSTER * 2048 : residual ? 2048 : options ? 4096 : 8192);
}

LeanShares plan_lean_backward(const Device &device, const Layout &lay, int64_t rows, int threads) {
  const int64_t vectors = vectors_of(lay);
  LeanShares plan = {32, 1, SHORT_THREADS, 1, 0, 0};
  if (!has_rings(device) || vectors > MAX_CLUSTER * 2 * BACKWARD_TEAM || rows == 0) return plan;
  plan.shares = device.multiprocessors;
  if (vectors <= 32) {
    plan.team = power_above(vectors);
    plan.shares *= SHORT_BLOCKS;
  } else if (vectors <= 2 * BACKWARD_TEAM) {
    plan.team = (int)divide_up(vectors, 64) * 32;
    /* a second team where there is room for one; more than two gain nothing */
    plan.threads = (plan.team > BACKWARD_TEAM / 2 ? threads : (int)BACKWARD_TEAM) / plan.team * plan.team;
    if (!lay.layer && plan.team <= BACKWARD_TEAM / 2) plan.placed = MAX_CLUSTER;
  } else {
    plan.cluster = (int)divide_up(vectors, 2 * BACKWARD_TEAM);
    plan.team = plan.threads = BACKWARD_TEAM;
  }
  const int64_t teams = plan.threads / plan.team;
  plan.shares /= plan.cluster;
  if (plan.shares < 1) plan.shares = 1;
  /* No more than do something in every round; where a few rounds more or less count, no SM is left out. */
  int64_t rounds = divide_up(rows, teams * plan.shares);
  plan.shares = divide_up(rows, teams * rounds);
  if (rounds < 64) plan.placed = 1;
  plan.least = divide_up(rows, teams * FLAT * DEEP);
  if (plan.shares < plan.least) plan.shares = plan.least;
  plan.shares = divide_up(plan.shares, plan.placed) * plan.placed;
  return plan;
}

Plan plan_backward(const Device &device, const Layout &lay, bool aligned, bool wide) {
  const int64_t vectors = vectors_of(lay);
  Plan plan = {false, BACKWARD_VECTORS, 1, 1, 256};
  if (lay.dtype == RMS_F64 || lay.indices || lay.k == 0) return plan;
  plan.tuned = true;
  if (vectors <= 32)
    plan.team = power_above(divide_up(vectors, plan.per_thread));
  else if (vectors <= 32 * plan.per_thread)
    plan.team = 32;
  else
    plan_blocks(device, vectors, aligned && !wide ? BACKWARD_TEAM : BACKWARD_TEAM_WIDE, &plan);
  return plan;
}

Plan plan_plain(const Layout &lay) {
  const int64_t vectors = vectors_of(lay), chunks = divide_up(vectors, 32);
  Plan plan = {false, 0, 0, 1, 128};
  if (vectors <= 16) {
    plan.team = power_above(vectors);
  } else {
    int warps = 1;
    while (warps < 16 && warps * 2 <= chunks)
      warps *= 2;
    plan.team = plan.threads = 32 * warps;
  }
  return plan;
}

/* Threads of an SM that the backward kernel has registers for. */
static int threads_per_multiprocessor(bool wide) {
  return wide ? BACKWARD_TEAM_WIDE : BACKWARD_TEAM;
}

static size_t shared_bytes(const Plan &plan, const Layout &lay, bool wide, bool dresidual, int stages) {
  const int v = 16 / (int)element_size(lay.dtype), cells_x = wide ? v * 4 / 16 : 1, cells_g = v / 4;
  const size_t cells = (size_t)plan.per_thread * (size_t)(cells_x + 1 + (dresidual ? cells_x : 0));
  const size_t ring = cells * (size_t)stages * 16, gains = (size_t)(plan.per_thread * cells_g) * 16;
  size_t bytes = (ring + gains) * (size_t)plan.threads;
  if (plan.team > 32)
    bytes += 16 + 4 * sizeof(float) * (size_t)(plan.team / 32 * plan.cluster * plan.per_thread);
  else
    bytes += 16 + sizeof(float) * (4 * (size_t)(plan.team / 32 * plan.per_thread) +
                                   (size_t)(plan.threads / 32) * (size_t)(plan.team * plan.per_thread * v));
  return bytes;
}

/* The deepest ring that does not cost residency. */
size_t plan_ring(const Device &device, const Plan &plan, const Layout &lay, bool wide, bool dresidual, int *stages) {
  const size_t blocks = (size_t)(threads_per_multiprocessor(wide) / plan.threads), reserved = 1024;
  for (*stages = 4; *stages > 2; --*stages) {
    size_t bytes = shared_bytes(plan, lay, wide, dresidual, *stages);
    if (bytes <= (size_t)device.shared_per_block &&
        (bytes + reserved) * blocks <= (size_t)device.shared_per_multiprocessor)
      break;
  }
  return shared_bytes(plan, lay, wide, dresidual, *stages);
}

int64_t resident(const Device &device, const Plan &plan, bool wide) {
  int64_t blocks = (int64_t)device.multiprocessors * (threads_per_multiprocessor(wide) / plan.threads);
  return blocks / plan.cluster > 0 ? blocks / plan.cluster : 1;
}

Sums plan_sums(const Device &device, const Plan &plan, const Layout &lay, bool wide) {
  Sums sums;
  const bool per_inner = lay.weight_inner != 0;
  sums.slices = (per_inner ? lay.inner : 1) * lay.groups;
  sums.slice_rows = per_inner ? lay.outer : lay.outer * lay.inner;
  const int64_t rows = sums.slice_rows > 0 ? sums.slice_rows : 1;
  int64_t most;
  if (plan.tuned) {
    sums.batch = rows;
    sums.shares = resident(device, plan, wide) / sums.slices;
    most = divide_up(rows, plan.team <= 32 ? plan.threads / plan.team : 1);
  } else {
    sums.batch = 65536 / sums.slices > 0 ? 65536 / sums.slices : 1;
    if (sums.batch > rows) sums.batch = rows;
    sums.shares = device.multiprocessors * 8 / (divide_up(vectors_of(lay), 128) * sums.slices);
    most = sums.batch;
  }
  if (sums.shares > most) sums.shares = most;
  if (sums.shares < 1) sums.shares = 1;
  return sums;
}

} // namespace rms_cuda
