/* SPDX-License-Identifier: MIT */
#include "plan.h"
#include "samples.h"

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
  case When::FEWEST_ROWS:
    return rows <= (int64_t)device.multiprocessors;
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

/* The clusters of WIDE rows. Eight blocks are in more SMs than sixteen (15 clusters of 8, 7 of 16), as long as a block
 * has room for the weights of its panels, and for panels to come beside those that it works on; few rows are shared by
 * as many blocks as there may be. False: no cluster has room for a row. */
static bool plan_wide(const Device &device, int vectors, int64_t rows, int parameters, ForwardPlan *plan) {
  const int panels = (int)divide_up(vectors, WIDE_THREADS * WIDE_VECTORS),
            most = device.wide_clusters ? WIDE_CLUSTER : MAX_CLUSTER;
  const bool few = rows * MAX_CLUSTER <= device.multiprocessors;
  plan->panels = (int)divide_up(panels, !few && panels <= MAX_CLUSTER * 4 ? (int)MAX_CLUSTER : most);
  if (plan->panels > WIDE_PANELS) return false;
  plan->cluster = (int)divide_up(panels, plan->panels);
  plan->panels = (int)divide_up(panels, plan->cluster);
  plan->kept = parameters;
  while (plan->kept > 0 && (plan->kept + 1) * plan->panels + 2 > WIDE_PANELS)
    plan->kept--;
  plan->stages = WIDE_PANELS - plan->kept * plan->panels;
  return true;
}

/* Whether a line has a row of so many vectors, in clusters that the device has. A row that fits a block takes several
 * of them where all have enough to do; RMSNorm of f32 is quicker in one. */
static bool has_blocks(const Device &device, const ForwardLine &line, int vectors, int element_size) {
  if (vectors > line.vectors) return false;
  if (line.takes == layer_alone && line.role == Role::CLUSTER && vectors <= 3 * 2048) return false;
  if (line.takes == rms_alone && (vectors <= 7 * 1024 || element_size > 2)) return false;
  const int most = device.wide_clusters ? WIDE_CLUSTER : MAX_CLUSTER;
  return line.role != Role::CLUSTER || vectors <= most * line.threads * line.per_thread;
}

ForwardPlan plan_forward(const Device &device, int form, int vectors, int64_t rows, bool inner, int parameters,
                         int element_size) {
  ForwardPlan plan = {Role::GENERAL, 0, 32, 1, 1, 0, 0, 0, device.clusters, 0, 0, 0};
  while (plan.line < forward_lines && !(forward_table[plan.line].takes(form) &&
                                        has_blocks(device, forward_table[plan.line], vectors, element_size) &&
                                        holds(forward_table[plan.line].when, device, rows)))
    plan.line++;
  if (plan.line == forward_lines) return plan;
  const ForwardLine &line = forward_table[plan.line];
  /* a warp has several of them; and 544 threads would leave an SM with one block, which is slower than whole vectors */
  if (line.role == Role::PIECES && (vectors <= most_flat_vectors || vectors == 2048)) return plan;
  if (line.role == Role::CLUSTER && inner && rows > most_blocks) return plan; /* one launch has all rows */
  if (line.role == Role::WIDE && !plan_wide(device, vectors, rows, parameters, &plan)) return plan;
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
  } else if (line.role == Role::CLUSTER) {
    plan.cluster = (int)divide_up(vectors, line.per_thread * line.threads);
    plan.stages = form & (FORM_LAYER | FORM_RESIDUAL) || line.per_thread == 8 ? 2 : 3;
  }
  return plan;
}

StepwisePlan plan_stepwise_forward(int64_t vectors, int64_t rows) {
  StepwisePlan plan = {Role::GENERAL, 4, 32, 1, WARP_FORWARD_THREADS};
  if (vectors > most_stepwise_vectors || rows > most_blocks) return plan;
  plan.role = vectors <= 128 ? Role::WARP : Role::BLOCK;
  if (plan.role == Role::BLOCK) {
    plan.threads = (int)divide_up(vectors, plan.per_thread * 32) * 32;
    return plan;
  }
  plan.per_thread = vectors <= 32 ? 1 : vectors <= 64 ? 2 : 4;
  if (vectors <= 32) plan.team = power_above(vectors);
  plan.block_rows = plan.threads / plan.team * STEPWISE_TURNS;
  return plan;
}

/* ---- backward ---- */

/* Aligned rows without options. Others have the same plans, with options or without. */
static bool is_common(const BackwardQuestion &q) {
  return !has_options(q.form) && !is_shifted(q.form);
}

/* Bytes of a vector in a stage: x and dy, and what is added. */
static int cell_bytes(const BackwardQuestion &q) {
  const int wide = q.form == Form::F32_SUM ? 32 : 16;
  return (q.form == Form::F32_DY ? 32 : 16) + wide + (q.added ? wide : 0);
}

bool has_tail(const Device &device, int vectors) {
  const int panel = BACKWARD_TEAM * BACKWARD_VECTORS, cluster = vectors / panel, tail = vectors % panel;
  /* with more than 8 blocks two panels of each would be more than a portion has, and sums would be cut elsewhere */
  return has_clusters(device) && cluster >= 2 && cluster <= MAX_CLUSTER && tail > 0 && tail <= 32 * BACKWARD_VECTORS;
}

/* The widest row of each role. */
static Role backward_role(const Device &device, const BackwardQuestion &q) {
  if (is_shifted(q.form) && (!device.clusters || q.vectors < 2)) return Role::GENERAL;
  if (is_shifted(q.form) && is_gated(q.form) && q.vectors <= 32) return Role::GENERAL;
  /* the warp kernel of LayerNorm has 107 KB of shared memory there, more than some devices */
  if (is_shifted(q.form) && q.vectors <= 32 && q.layer && device.shared_per_block < 112 * 1024) return Role::GENERAL;
  if (q.form == Form::SHIFTED_TAIL) return Role::CLUSTER;
  if (is_gated(q.form) && q.vectors > BACKWARD_TEAM * BACKWARD_VECTORS) return Role::GENERAL;
  if (q.form == Form::F32_DY && (q.vectors <= 32 || q.vectors > BACKWARD_TEAM * BACKWARD_VECTORS)) return Role::GENERAL;
  if (q.vectors <= 32) return Role::WARP;
  if (q.vectors <= BACKWARD_TEAM * BACKWARD_VECTORS) return Role::BLOCK;
  const int most = device.wide_clusters ? WIDE_CLUSTER : MAX_CLUSTER;
  const int panels = (int)divide_up(q.vectors, BACKWARD_TEAM * BACKWARD_VECTORS);
  if (!has_clusters(device)) return Role::GENERAL;
  if (panels <= most) return Role::CLUSTER;
  return q.form == Form::COMMON && panels <= most * wide_backward_panels(q.dbias) ? Role::WIDE : Role::GENERAL;
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
    if (q.form == Form::SHIFTED_TAIL) plan->cluster--, plan->team = plan->threads = TAILED_TEAM;
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
                            (q.form == Form::F32_SUM ? 48
                             : is_gated(q.form)      ? 48
                             : is_shifted(q.form)    ? 64
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
               (is_common(q) || q.added) && !is_rounded(q.form);
  if (q.form == Form::F32_SUM && q.added) plan->late = true; /* it stays in its stage until it is added */
  return true;
}

/* The clusters of WIDE rows, and places for two panels (x and dy) in a ring. The launch lowers the shares to those of
 * the clusters that fit the device. */
static void plan_wide(const Device &device, const BackwardQuestion &q, BackwardPlan *plan) {
  const int panels = (int)divide_up(q.vectors, WIDE_THREADS * WIDE_VECTORS),
            most = device.wide_clusters ? WIDE_CLUSTER : MAX_CLUSTER;
  plan->threads = WIDE_THREADS;
  plan->panels = (int)divide_up(panels, most);
  plan->cluster = (int)divide_up(panels, plan->panels);
  plan->panels = (int)divide_up(panels, plan->cluster);
  plan->kept = 3 * plan->panels + 2 <= WIDE_PANELS ? 1 : 0;
  plan->stages = (WIDE_PANELS - plan->kept * plan->panels) / 2;
  plan->shares = divide_up(q.rows, WIDE_FLAT) + device.multiprocessors / plan->cluster;
}

/* Blocks, or clusters, that are left out of `resident` where there are enough rows: of two SMs at least, so that a call
 * does not take twice as long because an SM is busy with another one (docs/log/cuda.md). The memory keeps up with fewer
 * SMs than there are, and is faster with fewer where rows are short or teams are two of more than 256 threads: plans
 * that wait for it leave out more. LayerNorm, every step rounded, blocks with one team of less than a panel, and pairs
 * of blocks that are not full do not wait for it. */
static int64_t spare_blocks(const BackwardQuestion &q, const BackwardPlan &plan, int64_t resident) {
  const int64_t least = plan.cluster <= 2 ? resident / 66 : 0; /* larger clusters leave SMs over as they are */
  if (q.form == Form::STEPS) return least;
  const int panel = BACKWARD_TEAM * BACKWARD_VECTORS;
  if (plan.role == Role::CLUSTER) {
    const bool waits = plan.team < plan.threads || (!q.layer && is_common(q) && q.vectors > panel * 7 / 4);
    return plan.cluster == 2 && waits ? resident / 33 : least;
  }
  if (plan.role != Role::BLOCK || q.layer) return least;
  const bool two = plan.team < plan.threads, common = is_common(q);
  if (common && (plan.team <= BACKWARD_TEAM / 4 || (plan.team > BACKWARD_TEAM / 2 && two))) return resident * 5 / 33;
  if (plan.team <= BACKWARD_TEAM / 2) return resident * 2 / 33;
  return common && plan.team == BACKWARD_TEAM ? resident / 33 : least;
}

BackwardPlan plan_backward(const Device &device, const BackwardQuestion &q) {
  BackwardPlan plan = {backward_role(device, q), 32, 1, 0, 0, 0, false, 1, 1, 0, 0, 0};
  if (plan.role == Role::GENERAL || q.rows == 0) return plan;
  if (plan.role == Role::WIDE) {
    plan_wide(device, q, &plan);
    if (plan.shares > most_blocks) plan.role = Role::GENERAL;
    return plan;
  }
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

/* Blocks of one team, as many in an SM as there are registers and shared memory for; then a third stage where it takes
 * the place of none of them. */
BackwardPlan plan_samples(const Device &device, const BackwardQuestion &q) {
  BackwardPlan plan = {Role::BLOCK, 0, 1, 0, 2, 0, false, 1, 1, 0, 0, 0};
  plan.team = plan.threads = (int)divide_up(q.vectors, 32) * 32;
  auto shared_of = [&](int stages) {
    return (size_t)samples_shared(q.vectors, stages, SAMPLE_ROWS * (q.layer ? 2 : 1)).total;
  };
  auto blocks_of = [&](int stages) {
    const int64_t fit = (int64_t)(paired_shared / (shared_of(stages) + 1024)), most = SAMPLE_SM_THREADS / plan.threads;
    return fit < most ? fit : most;
  };
  const int64_t blocks = blocks_of(2);
  if (blocks_of(3) == blocks) plan.stages = 3;
  plan.shared = shared_of(plan.stages);
  const int64_t batches = divide_up(q.rows, SAMPLE_ROWS);
  int64_t resident = (int64_t)device.multiprocessors * blocks / q.slices;
  if (resident < 1) resident = 1;
  /* no more shares than do something in every round */
  plan.shares = divide_up(batches, divide_up(batches, resident));
  plan.least = divide_up(batches, FLAT * DEEP / SAMPLE_ROWS);
  if (plan.shares < plan.least) plan.shares = plan.least;
  if (plan.shares > most_blocks / q.slices) plan.role = Role::GENERAL;
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

bool plan_doubles(const Device &device, int64_t vectors, int sums, GeneralPlan *plan) {
  int threads = DOUBLE_THREADS;
  if (!device.clusters || vectors > threads * DOUBLE_VECTORS || vectors <= threads * DOUBLE_VECTORS / 8) return false;
  while (threads / 2 * DOUBLE_VECTORS >= vectors)
    threads /= 2;
  /* two stages of dy and x, gains, two buffers of chunk sums */
  const size_t shared = (size_t)vectors * 16 * 5 + (size_t)sums * 2 * 64 * sizeof(double);
  if (shared + 1024 > (size_t)device.shared_per_block) return false;
  *plan = {threads, threads, true, true, shared};
  return true;
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
