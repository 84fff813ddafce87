/* SPDX-License-Identifier: MIT
 *
 * Backward and the two halves of it: check -> job -> plan -> launch. */
#include "apart.h"
#include "call.h"
#include "launch.h"
#include "own.h"
#include "samples.h"

namespace rms_cuda {

/* ---- the plan ---- */

/* How a call is done: by the kernels of aligned rows (p, q, plan), or by the general ones (g, general, sums). A
 * function of the arguments and the device that is the same for a call and for the second half of a split one, so that
 * both have the same column sums. */
struct Choice {
  bool is_general;
  bool own;     /* the kernels of rows that have weights of their own (own.h): there are no sums of columns */
  bool samples; /* those of rows that share the weights of an inner index (samples.h)                        */
  BackwardJob p;
  BackwardQuestion q;
  BackwardPlan plan;
  GeneralBackward g;
  GeneralPlan general;
  GeneralSums sums;
  int64_t planes; /* sums that are wanted */

  int64_t slices() const { return is_general ? sums.slices : p.slices; }
  int64_t shares() const { return is_general ? sums.shares : own ? 0 : plan.shares; }
  /* Columns of a partial sum: of the kernels of rows in vectors, whole ones. */
  int64_t pitch(const rms_layout &lay) const {
    return is_general ? lay.width : vectors_of(lay) * (16 / element_size(lay.dtype));
  }
};

/* What is wanted of the column sums. */
struct Wanted {
  bool dweight, dbias;
  bool saved; /* statistics were saved */
};

static bool is_aligned(const rms_backward_job &job, int64_t outer) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), residual_size = lay.residual_is_f32 ? 4 : size;
  return aligned_rows(lay, outer, job.dy, element_size(job.dy_type)) &&
         aligned_rows(lay, outer, job.x, job.x_is_f32 ? 4 : size) &&
         aligned_rows(lay, outer, job.dresidual, residual_size) && aligned_rows(lay, outer, job.dx, size) &&
         aligned_rows(lay, outer, job.dresidual_out, residual_size) && aligned_rows(lay, outer, job.gate, size) &&
         aligned_rows(lay, outer, job.dgate, size) &&
         aligned_parameter(lay, lay.weight, lay.weight_is_f32 ? 4 : size) &&
         aligned_parameter(lay, job.bias, lay.weight_is_f32 ? 4 : size);
}

/* The tensors of the kernels of aligned rows, as at most two distances between rows; false: they are not for them. */
static bool make_rows(const rms_backward_job &job, int64_t outer, bool parameters, BackwardJob *p) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), residual_size = lay.residual_is_f32 ? 4 : size;
  p->x_is_f32 = job.x_is_f32;
  p->added_is_f32 = lay.residual_is_f32 && !job.add_to_dx, p->copy_is_f32 = lay.residual_is_f32;
  p->dy = job.dy, p->x = job.x, p->dx = job.dx, p->copy = job.dresidual_out;
  p->added = job.add_to_dx ? job.dx : job.dresidual;
  if (job.gate.data) {
    p->added = job.gate, p->copy = job.dgate;
    p->gate_before = lay.gate_place == RMS_GATE_BEFORE, p->sigmoid = lay.activation == RMS_ACT_SIGMOID;
  } else if (!job.dx.data && !p->copy_is_f32) { /* one place alone */
    p->dx = job.dresidual_out;
    p->copy = {};
  }
  const Tensor tensors[] = {{&p->dy, element_size(job.dy_type)},
                            {&p->x, p->x_is_f32 ? 4 : size},
                            {&p->dx, size},
                            {&p->added, p->added_is_f32 ? 4 : size},
                            {&p->copy, p->copy_is_f32 ? residual_size : size}};
  const bool separate = parameters && lay.per_inner;
  const int64_t inner = lay_out(lay, outer, tensors, 5, separate, &p->weight_inner);
  const int64_t rows = outer * lay.inner * lay.groups;
  if (inner == 0 || (inner > 1 && (rows > 0x7fffffff || inner > 0x7fffffff))) return false;
  const bool slices = inner > 1 && (separate || lay.groups > 1);
  p->slices = slices ? (int)inner : 1;
  p->rows = rows / p->slices;
  p->inner = inner_of(slices ? 1 : inner);
  return true;
}

/* The ends of the tensors that are read, of rows that are not aligned; false: such rows are not for these kernels. */
static bool find_ends(const rms_backward_job &job, int64_t outer, BackwardJob *p) {
  const rms_layout &lay = job.lay;
  if (job.x_is_f32 || lay.residual_is_f32) return false;
  const Rows &added = job.gate.data ? job.gate : job.add_to_dx ? job.dx : job.dresidual;
  return can_shift(lay, outer, job.x, &p->x_end) && can_shift(lay, outer, job.dy, &p->dy_end) &&
         can_shift(lay, outer, added, &p->added_end) && can_shift(lay, outer, job.dx, nullptr) &&
         can_shift(lay, outer, job.dresidual_out, nullptr) && can_shift(lay, outer, job.dgate, nullptr);
}

static Form form_of(const rms_backward_job &job, const BackwardJob &p, const Wanted &wanted, bool aligned) {
  const rms_layout &lay = job.lay;
  if (job.gate.data) {
    const Form form = p.gate_before    ? p.round_before ? Form::GATED_BEFORE_ROUNDED : Form::GATED_BEFORE
                      : p.round_before ? Form::GATED_AFTER_ROUNDED
                                       : Form::GATED_AFTER;
    return aligned ? form : shifted(form);
  }
  if (job.dy_type != lay.dtype) return Form::F32_DY;
  const bool added = p.added.data || p.copy.data, layer = lay.kind == RMS_KIND_LAYER;
  if (p.x_is_f32 || (p.added.data && p.added_is_f32) || (p.copy.data && p.copy_is_f32)) return Form::F32_SUM;
  const bool options = p.slices > 1 || p.inner.rows != 0 || p.round_gain || !wanted.saved || added || !p.whole ||
                       p.eps_outside || (wanted.dbias && !layer) || (lay.steps == RMS_STEPS_TERMS && !p.round_before);
  const int widest = layer ? 32 : BACKWARD_TEAM * BACKWARD_VECTORS; /* LayerNorm has no registers for it in a block */
  if (!aligned) return options || p.round_before || p.vectors > widest ? Form::SHIFTED : Form::SHIFTED_COMMON;
  if (options) return Form::OPTIONS;
  if (!p.round_before) return Form::COMMON;
  return element_size(lay.dtype) == 2 && !layer && p.dx.data ? Form::ROUNDED : Form::OPTIONS;
}

/* Whether the kernels of aligned rows have a call that rounds at every step. */
static bool takes_steps(const rms_backward_job &job, const BackwardJob &p, bool aligned) {
  return aligned && !job.x_is_f32 && job.dx.data && !p.added.data && !p.copy.data && p.slices == 1 &&
         p.inner.rows == 0 && !p.round_gain;
}

/* Whether the kernels of aligned rows have a call whose dy has another type than the data. */
static bool takes_dy(const rms_backward_job &job) {
  return job.dy_type == RMS_F32 && element_size(job.lay.dtype) == 2 && !job.gate.data && !job.x_is_f32 &&
         !job.lay.residual_is_f32;
}

/* Whether the kernels of aligned rows have a call with a gate. */
static bool takes_gate(const rms_backward_job &job, const Wanted &wanted) {
  return job.lay.kind == RMS_KIND_RMS && !wanted.dbias && !job.bias && !job.x_is_f32 && !job.dresidual.data &&
         !job.dresidual_out.data && !job.add_to_dx;
}

static bool choose_aligned(const Device &device, const rms_backward_job &job, int64_t outer, const Wanted &wanted,
                           Choice *c) {
  const rms_layout &lay = job.lay;
  const bool layer = lay.kind == RMS_KIND_LAYER;
  if (outer == 0 || lay.dtype == RMS_F64 || job.drstd || job.dmean || lay.indices || lay.apart || lay.k == 0 ||
      (job.dresidual.data && job.add_to_dx) || vectors_of(lay) > INT32_MAX / 16)
    return false;
  BackwardJob &p = c->p;
  const bool aligned = is_aligned(job, outer);
  if (job.dy_type != lay.dtype && (!aligned || is_stepwise(lay) || !takes_dy(job))) return false;
  if (job.gate.data && !takes_gate(job, wanted)) return false;
  if (!aligned && !find_ends(job, outer, &p)) return false;
  if (!make_rows(job, outer, lay.weight || wanted.dweight || wanted.dbias, &p)) return false;
  p.weight = lay.weight, p.weight_is_f32 = lay.weight_is_f32;
  p.eps = (float)lay.eps, p.wide_eps = (double)p.eps, p.offset = (float)lay.offset, p.eps_limit = eps_limit_of(lay);
  p.k = (float)lay.k, p.inverse_k = 1.0f / (float)lay.k;
  p.vectors = (int)vectors_of(lay);
  p.stored = p.dx.data || p.copy.data ? p.vectors : 0;
  p.want_dweight = wanted.dweight, p.want_dbias = wanted.dbias;
  p.bytes = (int)(lay.width * element_size(lay.dtype));
  p.leading = (int)lay.k, p.whole = lay.k == lay.width;
  p.round_gain = rounds_gain(lay);
  p.layer = layer, p.eps_outside = lay.eps_place != RMS_EPS_INSIDE, p.eps_clamp = lay.eps_place == RMS_EPS_CLAMP;
  p.round_before = lay.rounding == RMS_ROUND_BEFORE_WEIGHT, p.round_product = p.round_before && !lay.weight_is_f32;
  Form form = form_of(job, p, wanted, aligned);
  p.terms = lay.steps == RMS_STEPS_TERMS;
  if (p.terms && form == Form::ROUNDED) form = Form::TERMS;
  if (is_stepwise(lay)) {
    if (!takes_steps(job, p, aligned)) return false;
    form = Form::STEPS;
  }
  const bool both = layer || wanted.dbias;
  if (form == Form::SHIFTED && !both && has_tail(device, p.vectors)) form = Form::SHIFTED_TAIL;
  c->q = {form,
          both,
          both && (wanted.dbias || has_options(form) || is_shifted(form) || form == Form::STEPS),
          (int)element_size(lay.dtype),
          p.vectors,
          p.rows,
          p.slices,
          p.added.data != nullptr,
          lay.dtype == RMS_F16};
  const bool separate = lay.per_inner && lay.groups == 1; /* inner indices have weights of their own */
  c->own = separate && takes_own(p, form);
  if (c->own) return true;
  c->samples = separate && takes_samples(device, p, c->q, wanted.saved);
  c->plan = c->samples ? plan_samples(device, c->q) : plan_backward(device, c->q);
  return c->plan.role != Role::GENERAL;
}

/* Whether f64 rows can come ahead: backward_double.cuh. Not a question of saved statistics, which a call has and the
 * second half of a split one has not. */
static bool can_come_ahead(const rms_backward_job &job, const GeneralBackward &g) {
  const rms_layout &lay = job.lay;
  return lay.dtype == RMS_F64 && job.dy_type == RMS_F64 && g.aligned && g.whole && lay.inner <= 1 && lay.groups == 1 &&
         lay.rounding != RMS_ROUND_BEFORE_WEIGHT && lay.eps_place == RMS_EPS_INSIDE && lay.steps == RMS_STEPS_WIDE &&
         !job.gate.data && !job.dresidual.data && !job.dresidual_out.data && !job.add_to_dx && !job.drstd &&
         !job.dmean && (g.want_dweight || g.want_dbias) && (lay.kind == RMS_KIND_LAYER || !g.want_dbias);
}

static void choose_general(const Device &device, const rms_backward_job &job, int64_t outer, const Wanted &wanted,
                           Choice *c) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), vectors = vectors_of(lay);
  GeneralBackward &g = c->g;
  g.job = job;
  g.eps_limit = eps_limit_of(lay);
  g.aligned = is_aligned(job, outer);
  g.whole = !lay.indices && lay.k == lay.width;
  g.round_product = lay.rounding == RMS_ROUND_BEFORE_WEIGHT && !lay.weight_is_f32;
  g.want_dweight = wanted.dweight, g.want_dbias = wanted.dbias;
  const int64_t vector_bytes =
      (job.dy_type != lay.dtype ? 64 / size : 16) + (job.x_is_f32 ? 64 / size : 16) + (job.gate.data ? 16 : 0);
  c->general = is_stepwise(lay) ? plan_stepwise(vectors)
                                : plan_general(device, vectors, vectors * vector_bytes,
                                               c->planes * vectors * (16 / size) * (int64_t)sizeof(double));
  g.ahead = can_come_ahead(job, g) && plan_doubles(device, vectors, lay.kind == RMS_KIND_LAYER ? 2 : 1, &c->general);
  c->sums = plan_general_sums(device, c->general, lay, outer);
  g.slices = c->sums.slices;
  g.team = c->general.team, g.kept = c->general.kept;
}

static Choice choose(const Device &device, const rms_backward_job &job, int64_t outer, const Wanted &wanted) {
  Choice c = {};
  c.planes = (int64_t)wanted.dweight + (int64_t)wanted.dbias;
  choose_general(device, job, outer, wanted, &c);
  c.is_general = !choose_aligned(device, job, outer, wanted, &c);
  return c;
}

/* ---- workspace ---- */

/* a*b, at most INT64_MAX. */
static int64_t product(int64_t a, int64_t b) {
  return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

static int64_t sum(int64_t a, int64_t b) {
  return b > INT64_MAX - a ? INT64_MAX : a + b;
}

static int64_t round_up(int64_t bytes) {
  return bytes > INT64_MAX - 63 ? INT64_MAX : (bytes + 63) / 64 * 64;
}

/* Where the parts of the workspace begin; INT64_MAX stands for what no address can reach. First the partial sums, then
 * what the general kernels keep of a batch of rows, or what the second half of a split call keeps for the others. */
struct Workspace {
  int64_t scalars, rstd, mean, total;
};

static Workspace workspace_of(const Choice &c, const rms_layout &lay, bool split) {
  Workspace w = {};
  const int64_t partial = product(product(c.planes, c.slices()), product(c.shares(), c.pitch(lay)));
  w.total = round_up(product(partial, c.is_general ? sizeof(double) : sizeof(float)));
  if (c.is_general) {
    w.scalars = w.total;
    if (!c.general.columns_kept)
      w.total = sum(w.total, product(product(c.sums.slices, c.sums.batch), sizeof(RowScalars)));
  } else if (split) {
    const int64_t bytes = round_up(product(product(c.p.rows, c.p.slices), sizeof(float)));
    w.rstd = w.total;
    w.mean = w.total = sum(w.total, bytes);
    if (lay.kind == RMS_KIND_LAYER) w.total = sum(w.total, bytes);
  }
  return w;
}

/* Rows can be worked on in turns; columns, and pieces that have weights of their own, cannot. */
static bool too_many_blocks(const Choice &c) {
  const int64_t tiles = c.general.columns_kept ? 1 : c.sums.tiles;
  return c.is_general && product(product(c.sums.slices, c.sums.shares), tiles) > most_blocks;
}

/* ---- launches ---- */

static cudaError_t launch_rows(const Device &device, const GeneralPlan &plan, const GeneralBackward &g,
                               cudaStream_t stream) {
  const Grid grid = {g.slices * g.shares, plan.threads, plan.shared};
  if (is_stepwise(g.job.lay))
    return g.job.lay.dtype == RMS_BF16 ? launch_stepwise<__nv_bfloat16>(g, grid, device, stream)
                                       : launch_stepwise<__half>(g, grid, device, stream);
  return by_type<true>(g.job.lay.dtype, [&](auto type) -> cudaError_t {
    using T = decltype(type);
    return g.job.gate.data ? launch_general_rows<T, true>(g, grid, device, stream)
                           : launch_general_rows<T, false>(g, grid, device, stream);
  });
}

/* Rows `first` and so on of every slice, a row for each team. */
static cudaError_t run_batch(const Device &device, const Choice &c, GeneralBackward &g, int64_t first, int64_t batch,
                             cudaStream_t stream) {
  g.first = first;
  g.count = c.sums.slice_rows - first < batch ? c.sums.slice_rows - first : batch;
  g.shares = (g.count + c.general.teams() - 1) / c.general.teams();
  return launch_rows(device, c.general, g, stream);
}

/* dx and dresidual_out alone, or the sums of the split form. */
static cudaError_t run_rows(const Device &device, const Choice &c, cudaStream_t stream) {
  GeneralBackward g = c.g;
  const int64_t batch = most_blocks / g.slices > 0 ? most_blocks / g.slices : 1;
  cudaError_t error = cudaSuccess;
  for (int64_t first = 0; error == cudaSuccess && first < c.sums.slice_rows; first += batch)
    error = run_batch(device, c, g, first, batch, stream);
  return error;
}

/* With column sums: all at once, or in two steps over batches of rows. */
static cudaError_t run_general(const Device &device, const Choice &c, const Workspace &w, char *workspace,
                               cudaStream_t stream) {
  if (c.planes == 0) return run_rows(device, c, stream);
  GeneralBackward g = c.g;
  g.partial = reinterpret_cast<double *>(workspace);
  if (c.general.columns_kept) {
    g.columns_kept = true;
    g.first = 0, g.count = c.sums.slice_rows, g.shares = c.sums.shares;
    return launch_rows(device, c.general, g, stream);
  }
  g.scalars = reinterpret_cast<RowScalars *>(workspace + w.scalars);
  for (int64_t first = 0; first < c.sums.slice_rows; first += c.sums.batch) {
    cudaError_t error = run_batch(device, c, g, first, c.sums.batch, stream);
    if (error != cudaSuccess) return error;
    g.shares = c.sums.shares;
    error = by_type<true>(g.job.lay.dtype, [&](auto type) -> cudaError_t {
      using T = decltype(type);
      const Grid grid = {c.sums.tiles * g.shares * g.slices, COLUMN_THREADS, 0};
      return g.job.gate.data ? launch_general_columns<T, true>(g, grid, device, stream)
                             : launch_general_columns<T, false>(g, grid, device, stream);
    });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/* Rows that have weights of their own, and where their gradients go. */
static OwnBackward own_job(const rms_backward_args *args, const Choice &c) {
  const rms_backward_job &job = c.g.job;
  auto gradient = [&](void *data, bool wanted, rms_dtype type, int flag) -> Gradient {
    return {wanted ? static_cast<char *>(data) : nullptr, type == RMS_F32 && job.lay.dtype != RMS_F32,
            (args->accumulate & flag) != 0, (uintptr_t)data % 16 == 0};
  };
  return {c.p, gradient(args->dweight, c.p.want_dweight, job.dweight_type, RMS_ACCUMULATE_DWEIGHT),
          gradient(args->dbias, c.p.want_dbias, job.dbias_type, RMS_ACCUMULATE_DBIAS)};
}

static cudaError_t run_aligned(const rms_backward_args *args, const Device &device, Choice &c, const Workspace &w,
                               char *workspace, cudaStream_t stream) {
  const rms_backward_job &job = c.g.job;
  BackwardJob &p = c.p;
  p.partial = reinterpret_cast<float *>(workspace);
  p.rstd = static_cast<const float *>(job.rstd), p.mean = static_cast<const float *>(job.mean);
  p.stats = job.stats_in;
  if (job.stats_in) {
    float *rstd = reinterpret_cast<float *>(workspace + w.rstd), *mean = reinterpret_cast<float *>(workspace + w.mean);
    cudaError_t error = launch_saved(job.lay, p.eps_limit, job.stats_in, p.rows * p.slices, rstd,
                                     p.layer ? mean : nullptr, device, stream);
    if (error != cudaSuccess) return error;
    p.rstd = rstd, p.mean = mean;
    p.stored = 0; /* dx comes after it */
  }
  p.saved = p.rstd && (!p.eps_outside || p.stats); /* beside eps outside the root rms counts too */
  return by_type<false>(job.lay.dtype, [&](auto type) -> cudaError_t {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      if (c.q.form == Form::STEPS) return launch_stepwise_rows<T>({p, job.lay}, c.q, c.plan, device, stream);
    }
    if (c.own) return launch_own<T>(own_job(args, c), device, stream);
    if (c.samples) return launch_samples<T>(p, c.plan, device, stream);
    return job.gate.data ? launch_backward<T, true>(p, c.q, c.plan, device, stream) /* with fewer shares perhaps */
                         : launch_backward<T, false>(p, c.q, c.plan, device, stream);
  });
}

/* Everything that a call asks for, but for the end of dweight and dbias. The column sums of the second half of a split
 * call come from the kernels of the whole call, which give them the same bits, and dx after them from those that know
 * the sums over all shards: it may be written over what both read. */
static cudaError_t run(const rms_backward_args *args, const Device &device, Choice &c, const Workspace &w,
                       char *workspace, cudaStream_t stream) {
  const rms_backward_job &job = c.g.job;
  if (c.is_general) return run_general(device, c, w, workspace, stream);
  if (!job.stats_in) return run_aligned(args, device, c, w, workspace, stream);
  if (c.planes > 0) {
    cudaError_t error = run_aligned(args, device, c, w, workspace, stream);
    if (error != cudaSuccess) return error;
  }
  const bool rows = job.dx.data || job.dresidual_out.data || job.dgate.data || job.sums_out;
  return rows ? run_rows(device, c, stream) : cudaSuccess;
}

/* Where the sums over rows go. */
static void list_gradients(const rms_backward_args *args, const rms_backward_job &job, FinishJob *finish) {
  auto add = [&](void *out, rms_dtype type, int flag) {
    if (!out) return;
    finish->out[finish->planes] = out;
    finish->type[finish->planes] = type;
    finish->add[finish->planes++] = (args->accumulate & flag) != 0;
  };
  add(args->dweight, job.dweight_type, RMS_ACCUMULATE_DWEIGHT);
  add(args->dbias, job.dbias_type, RMS_ACCUMULATE_DBIAS);
}

static FinishJob finish_job(const rms_backward_args *args, const Choice &c, const char *workspace) {
  const rms_backward_job &job = c.g.job;
  FinishJob finish = {};
  finish.partial = workspace;
  finish.partial_is_f64 = c.is_general;
  finish.slices = c.slices();
  finish.shares = c.sums.slice_rows > 0 ? c.shares() : 0;
  finish.width = job.lay.width, finish.pitch = c.pitch(job.lay);
  list_gradients(args, job, &finish);
  return finish;
}

/* ---- a call ---- */

/* Rows whose elements lie apart. */
static rms_status run_apart(const rms_backward_args *args, const rms_backward_job &job, const Wanted &wanted,
                            const Device &device, cudaStream_t stream) {
  const rms_layout &lay = job.lay;
  FinishJob finish = {};
  finish.partial = args->workspace;
  finish.partial_is_f64 = true;
  finish.slices = lay.groups;
  finish.shares = args->outer > 0 ? apart_shares(lay, args->outer) : 0;
  finish.width = finish.pitch = lay.width;
  list_gradients(args, job, &finish);
  if (args->outer > 0) {
    const int64_t bytes = apart_sums(lay, args->outer, finish.planes);
    if (bytes == INT64_MAX) return RMS_E_SIZE;
    if (finish.planes && args->workspace_bytes < (size_t)bytes) return RMS_E_WORKSPACE;
  }
  LastError last;
  cudaError_t error = cudaSuccess;
  if (args->outer > 0)
    error = launch_apart(job, args->outer, wanted.dweight, wanted.dbias, args->workspace, device, stream);
  if (error == cudaSuccess && finish.planes) error = launch_finish(finish, device, false, stream);
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

static Wanted wanted_of(const rms_backward_args *args, const rms_backward_job &job) {
  const bool saved = args->rstd && (job.lay.kind != RMS_KIND_LAYER || args->mean);
  return {args->dweight && !job.sums_out, args->dbias && !job.sums_out, saved};
}

rms_status run_backward(const rms_spec *spec, const rms_backward_args *args, int flags, const rms_stat *stats_in,
                        const rms_grad_sum *sums_in, rms_grad_sum *sums_out, cudaStream_t stream) {
  rms_backward_job job;
  int64_t segments;
  rms_status status =
      rms_check_backward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, sums_in, sums_out, &job, &segments);
  if (status) return status;
  if (sums_out) job.add_to_dx = false;
  const Wanted wanted = wanted_of(args, job);
  const bool columns = wanted.dweight || wanted.dbias,
             rows = job.dx.data || job.dresidual_out.data || job.dgate.data || sums_out;
  if ((segments == 0 && !columns) || (!columns && !rows)) return RMS_OK;
  const bool workspace_needed = columns && segments > 0;
  if (workspace_needed && (!args->workspace || (uintptr_t)args->workspace % 64 != 0)) return RMS_E_WORKSPACE;
  LastError last;
  Device device;
  cudaError_t error = query_device(&device);
  if (!last.settle(error)) return RMS_E_DEVICE;
  if (job.lay.apart && !is_stepwise(job.lay)) return run_apart(args, job, wanted, device, stream);

  Choice choice = choose(device, job, args->outer, wanted);
  const Workspace w = workspace_of(choice, job.lay, stats_in != nullptr);
  if (workspace_needed && w.total == INT64_MAX) return RMS_E_SIZE;
  if (workspace_needed && args->workspace_bytes < (size_t)w.total) return RMS_E_WORKSPACE;
  if (too_many_blocks(choice)) return RMS_E_SIZE;
  char *workspace = static_cast<char *>(args->workspace);
  if (segments > 0) error = run(args, device, choice, w, workspace, stream);
  const bool overlap = segments > 0 && device.clusters && !choice.is_general;
  if (error == cudaSuccess && columns && !choice.own)
    error = launch_finish(finish_job(args, choice, workspace), device, overlap, stream);
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

size_t backward_workspace(const Device &device, const rms_spec *spec, const rms_backward_args *args) {
  rms_backward_job job;
  int64_t segments;
  const int flags = RMS_CHECK_SPLIT | RMS_CHECK_DEVICE | RMS_CHECK_QUERY;
  if (rms_check_backward(spec, args, flags, nullptr, nullptr, nullptr, &job, &segments)) return 0;
  const Wanted wanted = wanted_of(args, job);
  if (segments == 0 || !(wanted.dweight || wanted.dbias)) return 0;
  if (job.lay.apart && !is_stepwise(job.lay)) {
    const int64_t bytes = apart_sums(job.lay, args->outer, wanted.dweight + wanted.dbias);
    return bytes == INT64_MAX ? 0 : (size_t)bytes;
  }
  const Choice choice = choose(device, job, args->outer, wanted);
  const Workspace w = workspace_of(choice, job.lay, true); /* a call, or the second half of a split one */
  return w.total == INT64_MAX || too_many_blocks(choice) ? 0 : (size_t)w.total;
}

} // namespace rms_cuda
