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

/* Bytes of shared memory that a block may ask for; with two teams of a cluster it needs all that there is. */
constexpr size_t most_shared = 220 * 1024, paired_shared = 226 * 1024;

/* Clusters that share rows need room for their rings. */
static bool has_clusters(const Device &device) {
  return device.clusters && (size_t)device.shared_per_block >= most_shared;
}

/* ---- forward ---- */

static bool holds(When when, const Device &device, int64_t rows) {
  switch (when) {
  case When::FEW_ROWS:
    return rows <= 4 * (int64_t)device.multiprocessors;
  case When::CLUSTERS:
    return has_clusters(device);
  case When::NO_CLUSTERS:
    return !has_clusters(device);
  default:
    return true;
  }
}

ForwardPlan plan_forward(const Device &device, int form, int vectors, int64_t rows, bool inner) {
  ForwardPlan plan = {Role::GENERAL, 0, 32, 1, 1, 0, 0, 0, device.clusters, 0};
  while (plan.line < forward_lines &&
         !(forward_table[plan.line].takes(form) && vectors <= forward_table[plan.line].vectors &&
           holds(forward_table[plan.line].when, device, rows)))
    plan.line++;
  if (plan.line == forward_lines) return plan;
  const ForwardLine &line = forward_table[plan.line];
  /* a warp has several of them; and 544 threads would leave an SM with one block, which is slower than whole vectors */
  if (line.role == Role::PIECES && (vectors <= most_flat_vectors || vectors == 2048)) return plan;
  if (line.role == Role::CLUSTER && inner && rows > most_blocks) return plan; /* one launch has all rows */
  plan.role = line.role;
  plan.threads = line.threads;
  if (line.role == Role::WARP || line.role == Role::FLAT) {
    plan.team = line.per_thread > 1 ? 32 : power_above(vectors);
    plan.block_rows = line.threads / plan.team * line.rows;
    if (line.role == Role::FLAT)
      plan.shared = (size_t)(plan.block_rows * vectors + 1) * 16; /* a vector may be read beyond its end */
    else if (device.clusters)
      plan.ahead = (unsigned)device.multiprocessors * 8; /* about as many as are there at once */
  } else if (line.role == Role::BLOCK) {
    plan.threads = (int)divide_up(vectors, line.per_thread * 32) * 32;
  } else if (line.role == Role::PIECES) {
    plan.threads = (int)divide_up(vectors + 1, line.per_thread * 32) * 32;
  } else {
    plan.cluster = (int)divide_up(vectors, line.per_thread * line.threads);
    plan.stages = form & (FORM_LAYER | FORM_RESIDUAL) ? 2 : 3;
  }
  return plan;
}

/* ---- backward ---- */

/* Bytes of a vector in a stage: x and dy, and what is added. */
static int cell_bytes(const BackwardQuestion &q) {
  const int wide = q.form == Form::F32_SUM ? 32 : 16;
  return (q.form == Form::F32_DY ? 32 : 16) + wide + (q.added ? wide : 0);
}

/* The widest row of each role. */
static Role backward_role(const Device &device, const BackwardQuestion &q) {
  if (q.form == Form::SHIFTED && (!device.clusters || q.vectors < 2)) return Role::GENERAL;
  /* the warp kernel of LayerNorm has 107 KB of shared memory there, more than some devices */
  if (q.form == Form::SHIFTED && q.vectors <= 32 && q.layer && device.shared_per_block < 112 * 1024)
    return Role::GENERAL;
  if (is_gated(q.form) && q.vectors > BACKWARD_TEAM * BACKWARD_VECTORS) return Role::GENERAL;
  if (q.form == Form::F32_DY && (q.vectors <= 32 || q.vectors > BACKWARD_TEAM * BACKWARD_VECTORS)) return Role::GENERAL;
  if (q.vectors <= 32) return Role::WARP;
  if (q.vectors <= BACKWARD_TEAM * BACKWARD_VECTORS) return Role::BLOCK;
  const int most = device.wide_clusters ? WIDE_CLUSTER : MAX_CLUSTER;
  const bool fits = q.vectors <= most * BACKWARD_TEAM * BACKWARD_VECTORS && has_clusters(device);
  return fits ? Role::CLUSTER : Role::GENERAL;
}

/* Whether a row takes a cluster longer than the memory: where there is little of it in a block, and the more the more
 * blocks have to hear of each other; sooner with two sums. */
static bool waits_for_sums(const BackwardQuestion &q, int cluster) {
  return q.vectors * 4 <= cluster * 3 * BACKWARD_TEAM * BACKWARD_VECTORS || cluster > (q.layer ? 2 : MAX_CLUSTER);
}

static void plan_teams(const Device &device, const BackwardQuestion &q, BackwardPlan *plan) {
  switch (plan->role) {
  case Role::WARP:
    plan->team = power_above(q.vectors);
    plan->threads = warp_backward_threads(q.form);
    break;
  case Role::BLOCK:
    plan->team = (int)divide_up(q.vectors, 32 * BACKWARD_VECTORS) * 32;
    /* a second team where there is room for one; more than two gain nothing */
    plan->threads = most_backward_threads(q.layer, q.dbias, false, q.form, q.f16, device.clusters);
    if (plan->team <= BACKWARD_TEAM / 2 && plan->threads > BACKWARD_TEAM) plan->threads = BACKWARD_TEAM;
    plan->threads -= plan->threads % plan->team;
    break;
  default:
    plan->cluster = (int)divide_up(q.vectors, BACKWARD_TEAM * BACKWARD_VECTORS);
    plan->team = plan->threads = BACKWARD_TEAM;
    if (has_paired_teams(q.dbias, q.form) && waits_for_sums(q, plan->cluster) &&
        (size_t)device.shared_per_block >= paired_shared)
      plan->team /= 2;
  }
}

/* More rows on their way than the memory can keep in order are slower than fewer; LayerNorm, with more to do for each
 * row, asks for them more slowly. False: there is no room for two stages. */
static bool plan_ring(const Device &device, const BackwardQuestion &q, BackwardPlan *plan) {
  const int V = 16 / q.element_size;
  if (plan->role == Role::WARP) {
    plan->ahead = plan->stages = warp_stages(q.form);
    plan->shared = (size_t)(plan->stages * warp_backward_threads(q.form) *
                            (q.form == Form::F32_SUM   ? 48
                             : is_gated(q.form)        ? 48
                             : q.form == Form::SHIFTED ? 64
                                                       : 32));
    return true;
  }
  const int row = plan->threads / plan->team * q.vectors * cell_bytes(q) / plan->cluster; /* bytes, of all teams */
  plan->ahead = plan->team <= BACKWARD_TEAM / 8 ? 4 : 2;
  const bool paired = plan->role == Role::CLUSTER && plan->team < BACKWARD_TEAM;
  plan->stages = !paired && (q.layer || plan->cluster > 2 || 2 * row < 64 * 1024) ? 3 : 2;
  size_t most = (size_t)device.shared_per_block < most_shared ? (size_t)device.shared_per_block : most_shared;
  if (paired) most = paired_shared;
  for (;; plan->stages--) {
    if (plan->stages < 2) return false;
    plan->shared = (size_t)backward_shared(q.form, V, q.layer ? 2 : 1, q.dbias, plan->threads, plan->team,
                                           paired ? 2 * BACKWARD_VECTORS : BACKWARD_VECTORS, plan->stages,
                                           cell_bytes(q), plan->role == Role::CLUSTER)
                       .total;
    if (plan->shared <= most) break;
  }
  plan->late = !q.layer && plan->cluster <= (paired ? 2 : 1) && plan->team > BACKWARD_TEAM / 4 && plan->stages == 2 &&
               (!has_options(q.form) || q.added) && !is_rounded(q.form);
  if (q.form == Form::F32_SUM && q.added) plan->late = true; /* it stays in its stage until it is added */
  return true;
}

/* Blocks, or clusters, that are left out of `resident` where there are enough rows. The memory keeps up with fewer SMs
 * than there are, and is faster with fewer where rows are short or teams are two of more than 256 threads; and a call
 * does not take twice as long because a few SMs are busy with another one. What does not wait for the memory has all of
 * them: LayerNorm, blocks with one team of less than a panel, and pairs of blocks that are not full. */
static int64_t spare_blocks(const BackwardQuestion &q, const BackwardPlan &plan, int64_t resident) {
  const int panel = BACKWARD_TEAM * BACKWARD_VECTORS;
  if (plan.role == Role::CLUSTER) {
    const bool waits = plan.team < plan.threads || (!q.layer && !has_options(q.form) && q.vectors > panel * 7 / 4);
    return plan.cluster == 2 && waits ? resident / 33 : 0;
  }
  if (plan.role != Role::BLOCK || q.layer) return 0;
  const bool two = plan.team < plan.threads, common = !has_options(q.form);
  if (common && (plan.team <= BACKWARD_TEAM / 4 || (plan.team > BACKWARD_TEAM / 2 && two))) return resident * 5 / 33;
  if (plan.team <= BACKWARD_TEAM / 2) return resident * 2 / 33;
  return common && plan.team == BACKWARD_TEAM ? resident / 33 : 0;
}

BackwardPlan plan_backward(const Device &device, const BackwardQuestion &q) {
  BackwardPlan plan = {backward_role(device, q), 32, 1, 0, 0, 0, false, 1, 1, 0};
  if (plan.role == Role::GENERAL || q.rows == 0) return plan;
  plan_teams(device, q, &plan);
  if (plan.threads == 0 || !plan_ring(device, q, &plan)) {
    plan.role = Role::GENERAL;
    return plan;
  }
  const int64_t teams = plan.threads / plan.team;
  int64_t resident = (int64_t)device.multiprocessors * (plan.role == Role::WARP ? 2 : 1) / plan.cluster / q.slices;
  if (resident < 1) resident = 1;
  int64_t rounds = divide_up(q.rows, teams * resident);
  if (rounds >= 64 && device.clusters && q.slices == 1) {
    resident -= spare_blocks(q, plan, resident);
    rounds = divide_up(q.rows, teams * resident);
  }
  /* no more shares than do something in every round */
  plan.shares = divide_up(q.rows, teams * rounds);
  plan.least = divide_up(q.rows, teams * FLAT * DEEP);
  if (plan.shares < plan.least) plan.shares = plan.least;
  if (plan.shares > most_blocks / plan.cluster / q.slices) plan.role = Role::GENERAL;
  return plan;
}

/* ---- general ---- */

/* Four to eight vectors for each thread, so that many rows are on their way. */
GeneralPlan plan_general(const Device &device, int64_t vectors, int64_t row_bytes, int64_t column_bytes) {
  GeneralPlan plan = {32, COLUMN_THREADS, false, false, 0};
  if (vectors <= 16) {
    plan.team = power_above(vectors);
  } else {
    while (plan.team < GENERAL_THREADS && plan.team * 6 < vectors)
      plan.team *= 2;
    if (plan.team > 32) plan.threads = plan.team; /* warps of one team have a block of their own */
  }
  const int64_t most = (device.shared_per_block - 1024) / plan.teams();
  plan.kept = row_bytes <= most;
  plan.columns_kept = plan.kept && column_bytes > 0 && column_bytes <= most - row_bytes;
  if (plan.kept) plan.shared = (size_t)((row_bytes + (plan.columns_kept ? column_bytes : 0)) * plan.teams());
  return plan;
}

GeneralPlan plan_stepwise(int64_t vectors) {
  GeneralPlan plan = {32, 32, false, true, 0};
  while (plan.team < GENERAL_THREADS && plan.team < vectors)
    plan.team *= 2;
  plan.threads = plan.team;
  return plan;
}

GeneralSums plan_general_sums(const Device &device, const GeneralPlan &plan, const rms_layout &lay, int64_t outer) {
  GeneralSums sums;
  sums.slices = (lay.per_inner ? lay.inner : 1) * lay.groups;
  sums.slice_rows = lay.per_inner ? outer : outer * lay.inner;
  sums.tiles = divide_up(divide_up(lay.width, 16 / element_size(lay.dtype)), COLUMN_THREADS);
  const int64_t rows = sums.slice_rows > 0 ? sums.slice_rows : 1;
  if (plan.columns_kept) {
    /* as many blocks as an SM has registers and shared memory for */
    int64_t blocks = 512 / plan.threads, fit = device.shared_per_block / ((int64_t)plan.shared + 1024);
    if (blocks > fit) blocks = fit;
    if (blocks < 1) blocks = 1;
    sums.batch = rows;
    sums.shares = (int64_t)device.multiprocessors * blocks / sums.slices;
    if (sums.shares > divide_up(rows, plan.teams())) sums.shares = divide_up(rows, plan.teams());
  } else {
    sums.batch = 65536 / sums.slices > 0 ? 65536 / sums.slices : 1;
    if (sums.batch > rows) sums.batch = rows;
    sums.shares = (int64_t)device.multiprocessors * 8 / sums.tiles / sums.slices;
    if (sums.shares > sums.batch) sums.shares = sums.batch;
  }
  if (sums.shares < 1) sums.shares = 1;
  return sums;
}

} // namespace rms_cuda
