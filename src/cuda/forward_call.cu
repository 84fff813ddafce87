/* SPDX-License-Identifier: MIT
 *
 * Forward and the two halves of it: check -> job -> plan -> launch. */
#include "apart.h"
#include "call.h"
#include "launch.h"
#include "own.h"
#include "quantised.h"
#include "samples.h"

namespace rms_cuda {

static bool is_aligned(const rms_forward_job &job, int64_t outer) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), residual_size = lay.residual_is_f32 ? 4 : size,
                weight_size = lay.weight_is_f32 ? 4 : size;
  return aligned_rows(lay, outer, job.x, size) && aligned_rows(lay, outer, job.y, element_size(job.y_type)) &&
         aligned_rows(lay, outer, job.gate, size) && aligned_rows(lay, outer, job.residual, residual_size) &&
         aligned_rows(lay, outer, job.residual_out, residual_size) && aligned_parameter(lay, lay.weight, weight_size) &&
         aligned_parameter(lay, job.bias, weight_size);
}

/* ---- other outputs than y in the data type ---- */

static bool has_other_outputs(const rms_forward_job &job) {
  return job.q.rows.data || !job.y.data || job.y_type != job.lay.dtype;
}

/* The blocks of q and the threads that share one, as far as the kernels of aligned rows have them. Rows are whole
 * vectors. */
static bool make_blocks(const rms_forward_job &job, int64_t outer, QuantisedJob *o) {
  const rms_layout &lay = job.lay;
  const int64_t in_vector = 16 / element_size(lay.dtype);
  const bool q8_0 = job.q.type == RMS_Q8_0;
  const int64_t block = q8_0 ? (int64_t)RMS_Q8_0_ELEMENTS : job.q.block, lanes = block / in_vector;
  if (job.y_type != lay.dtype || (q8_0 && lay.groups > 1)) return false;
  int64_t low = (int64_t)(uintptr_t)job.q.rows.data;
  if (outer > 1) low |= job.q.rows.outer;
  if (lay.inner > 1) low |= job.q.rows.inner;
  if (!q8_0 && low % in_vector != 0) return false;
  o->q_type = job.q.type, o->scale = job.q.scale, o->least = job.q.least;
  if (block == 0) return true;
  o->blocks = (int)(lay.width / block);
  const bool within_warp = block % in_vector == 0 && lanes <= 32 && (lanes & (lanes - 1)) == 0;
  if (within_warp) o->lanes = (int)lanes;
  while (1 << o->shift < o->lanes)
    o->shift++;
  return within_warp || block == lay.width;
}

/* Whether forward_quantised.cuh has a call, whose tensors are aligned. */
static bool takes_outputs(const rms_forward_job &job, int64_t outer, QuantisedJob *o) {
  const rms_layout &lay = job.lay;
  o->y_type = job.y_type;
  o->layer = lay.kind == RMS_KIND_LAYER;
  if (job.gate.data || (lay.residual_is_f32 && job.residual.data) || vectors_of(lay) > most_quantised_vectors ||
      outer * lay.inner * lay.groups > most_blocks)
    return false;
  if (job.q.rows.data) return make_blocks(job, outer, o);
  return !job.y.data || element_size(job.y_type) != element_size(lay.dtype);
}

/* ---- aligned rows ---- */

/* Whether rows of two tensors lie at the same places of 16 bytes. */
static bool lie_alike(const Rows &a, const Rows &b, int64_t rows) {
  return ((uintptr_t)a.data - (uintptr_t)b.data) % 16 == 0 && (rows <= 1 || (a.outer - b.outer) % 16 == 0);
}

/* Whether rows that are not aligned do in x, y and the gate; short rows, which have none, also lie one after the other,
 * from such a place on. */
static bool lie_alike(const ForwardJob &p) {
  const bool one = p.rows <= 1;
  if (p.vectors <= most_flat_vectors)
    return (uintptr_t)p.x.data % 16 == 0 && (uintptr_t)p.y.data % 16 == 0 &&
           (one || (p.x.outer == p.bytes && p.y.outer == p.bytes));
  return lie_alike(p.x, p.y, p.rows) && (!p.gate.data || lie_alike(p.x, p.gate, p.rows));
}

/* A job for the kernels of aligned rows, or false where it is not for them. */
static bool make_job(const rms_forward_job &job, int64_t outer, QuantisedJob *o, int *form) {
  const rms_layout &lay = job.lay;
  ForwardJob *p = &o->p;
  const bool f32_residual = lay.residual_is_f32 && job.residual.data, parameters = lay.weight || job.bias;
  const int64_t size = element_size(lay.dtype), residual_size = lay.residual_is_f32 ? 4 : size;
  if (lay.dtype == RMS_F64 || lay.indices || vectors_of(lay) > INT32_MAX / 16) return false;
  *o = {};
  const bool aligned = is_aligned(job, outer);
  if (has_other_outputs(job) && (!aligned || !takes_outputs(job, outer, o))) return false;
  if (job.gate.data && (job.residual.data || (!aligned && lay.kind == RMS_KIND_LAYER))) return false;
  if (!aligned &&
      (f32_residual || vectors_of(lay) < 2 || !can_shift(lay, outer, job.x, &p->x_end) ||
       !can_shift(lay, outer, job.residual, &p->residual_end) || !can_shift(lay, outer, job.gate, &p->gate_end) ||
       !can_shift(lay, outer, job.y, nullptr) || !can_shift(lay, outer, job.residual_out, nullptr)))
    return false;
  p->x = job.x, p->residual = job.residual, p->y = job.y, p->sum = job.residual_out;
  p->gate = job.gate, p->sigmoid = lay.activation == RMS_ACT_SIGMOID;
  o->q = job.q.rows;
  const Tensor tensors[] = {{&p->x, size},
                            {&p->y, element_size(job.y_type)},
                            {&p->residual, residual_size},
                            {&p->sum, residual_size},
                            {&p->gate, size},
                            {&o->q, 1}};
  const int64_t inner = lay_out(lay, outer, tensors, 6, parameters && lay.per_inner, &p->weight_inner);
  if (inner == 0 || inner > most_blocks) return false;
  if (!parameters) p->weight_inner = 0;
  p->rows = outer * lay.inner * lay.groups;
  p->inner = inner_of(inner);
  p->weight = lay.weight, p->bias = job.bias;
  p->rstd = static_cast<float *>(job.rstd), p->mean = static_cast<float *>(job.mean);
  p->eps = (float)lay.eps, p->wide_eps = (double)p->eps, p->offset = (float)lay.offset,
  p->eps_limit = eps_limit_of(lay);
  p->statistic = (int)lay.k, p->k = (float)lay.k, p->inverse_k = 1.0f / (float)lay.k;
  p->round_before = lay.rounding == RMS_ROUND_BEFORE_WEIGHT, p->eps_outside = lay.eps_place != RMS_EPS_INSIDE;
  p->eps_clamp = lay.eps_place == RMS_EPS_CLAMP;
  p->weight_is_f32 = lay.weight_is_f32 && parameters;
  p->vectors = (int)vectors_of(lay);
  p->width = (int)lay.width, p->bytes = (int)(lay.width * size);
  p->round_gain = rounds_gain(lay);
  /* with a gate either order of rounding is no option, nor are two distances between rows that have a block */
  const bool gated = job.gate.data && aligned && lay.kind == RMS_KIND_RMS && lay.weight && !job.bias && p->offset == 0;
  const bool options = (inner > 1 && !(gated && p->vectors > most_warp_gate_vectors)) || (p->round_before && !gated) ||
                       p->round_gain || p->eps_outside || p->weight_is_f32 || lay.k != lay.width ||
                       (job.bias && !lay.weight) || f32_residual || (job.gate.data && aligned && !gated) ||
                       (!aligned && (job.residual.data || !lie_alike(*p) || (uintptr_t)p->weight % 16 != 0 ||
                                     (uintptr_t)p->bias % 16 != 0));
  o->options = options;
  *form = (lay.kind == RMS_KIND_LAYER ? FORM_LAYER : 0) | (job.residual.data ? FORM_RESIDUAL : 0) |
          (options ? FORM_OPTIONS : 0) | (f32_residual ? FORM_F32_RESIDUAL : 0) | (aligned ? 0 : FORM_SHIFTED);
  if (job.gate.data) *form |= lay.gate_place == RMS_GATE_AFTER ? FORM_GATE_AFTER : FORM_GATE_BEFORE;
  return true;
}

static cudaError_t run_general(const Device &device, const rms_forward_job &job, int64_t outer, int64_t segments,
                               cudaStream_t stream) {
  const rms_layout &lay = job.lay;
  GeneralForward g = {};
  g.job = job;
  if (job.stats_out && lay.gate_place == RMS_GATE_AFTER) g.job.gate = {}; /* no part of the statistics */
  g.segments = segments;
  g.eps_limit = eps_limit_of(lay);
  g.aligned = is_aligned(job, outer);
  g.whole = !lay.indices && lay.k == lay.width;
  const bool f32 = lay.residual_is_f32 && job.residual.data;
  const int64_t vectors = vectors_of(lay),
                vector_bytes = (f32 ? 64 / element_size(lay.dtype) : 16) + (g.job.gate.data ? 16 : 0);
  const GeneralPlan plan = plan_general(device, vectors, vectors * vector_bytes, 0);
  g.team = plan.team;
  g.kept = plan.kept;
  const int64_t step = most_blocks * plan.teams();
  for (g.first = 0; g.first < segments; g.first += step) {
    const int64_t left = segments - g.first;
    const Grid grid = {((left < step ? left : step) + plan.teams() - 1) / plan.teams(), plan.threads, plan.shared};
    cudaError_t error = by_type<true>(lay.dtype, [&](auto type) -> cudaError_t {
      using T = decltype(type);
      if constexpr (sizeof(T) < 8) {
        if (g.job.q.rows.data)
          return g.job.gate.data ? launch_general_quantised<T, true>(g, grid, device, stream)
                                 : launch_general_quantised<T, false>(g, grid, device, stream);
      }
      return g.job.gate.data ? launch_general_forward<T, true>(g, grid, device, stream)
                             : launch_general_forward<T, false>(g, grid, device, stream);
    });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/* The forms that round at every step: of aligned rows, which the threads of a row keep, and of any. */
static bool make_stepwise_job(const rms_forward_job &job, int64_t outer, StepwiseForward *g) {
  QuantisedJob o;
  int form;
  if (job.lay.apart || has_other_outputs(job) || !make_job(job, outer, &o, &form) ||
      form & (FORM_SHIFTED | FORM_F32_RESIDUAL))
    return false;
  *g = {o.p, job.lay};
  return true;
}

static cudaError_t run_stepwise(const Device &device, const rms_forward_job &job, int64_t outer, int64_t segments,
                                cudaStream_t stream) {
  StepwiseForward rows;
  if (make_stepwise_job(job, outer, &rows)) {
    const StepwisePlan plan = plan_stepwise_forward(rows.p.vectors, rows.p.rows);
    if (plan.role != Role::GENERAL)
      return job.lay.dtype == RMS_BF16 ? launch_stepwise_rows<__nv_bfloat16>(rows, plan, device, stream)
                                       : launch_stepwise_rows<__half>(rows, plan, device, stream);
  }
  GeneralForward g = {};
  g.job = job;
  g.segments = segments;
  g.eps_limit = eps_limit_of(job.lay);
  const Grid grid = {segments < most_blocks ? segments : most_blocks, plan_stepwise(vectors_of(job.lay)).threads, 0};
  return job.lay.dtype == RMS_BF16 ? launch_stepwise<__nv_bfloat16>(g, grid, device, stream)
                                   : launch_stepwise<__half>(g, grid, device, stream);
}

static cudaError_t run(const Device &device, const rms_forward_job &job, int64_t outer, int64_t segments,
                       cudaStream_t stream) {
  QuantisedJob o;
  const ForwardJob &p = o.p;
  int form;
  if (is_stepwise(job.lay)) return run_stepwise(device, job, outer, segments, stream);
  if (job.lay.apart) return launch_apart(job, outer, device, stream);
  if (job.stats_in || job.stats_out || !make_job(job, outer, &o, &form))
    return run_general(device, job, outer, segments, stream);
  if (has_other_outputs(job))
    return by_type<false>(
        job.lay.dtype, [&](auto type) -> cudaError_t { return launch_quantised<decltype(type)>(o, device, stream); });
  if (job.lay.per_inner && job.lay.groups == 1 && takes_samples(p, form))
    return by_type<false>(job.lay.dtype, [&](auto type) -> cudaError_t {
      return launch_samples<decltype(type)>(p, (form & FORM_LAYER) != 0, device, stream);
    });
  if (job.lay.per_inner && job.lay.groups == 1 && takes_own(p, form))
    return by_type<false>(job.lay.dtype, [&](auto type) -> cudaError_t {
      return launch_own<decltype(type)>(p, (form & FORM_LAYER) != 0, device, stream);
    });
  const int parameters = p.bias ? 2 : p.weight ? 1 : 0, size = (int)element_size(job.lay.dtype);
  ForwardPlan plan = plan_forward(device, form, p.vectors, p.rows, p.inner.rows != 0, parameters, size);
  if (plan.role == Role::GENERAL && form & FORM_SHIFTED) {
    form |= FORM_OPTIONS;
    plan = plan_forward(device, form, p.vectors, p.rows, p.inner.rows != 0, parameters, size);
  }
  if (plan.role == Role::GENERAL) return run_general(device, job, outer, segments, stream);
  return by_type<false>(job.lay.dtype, [&](auto type) -> cudaError_t {
    using T = decltype(type);
    return form & FORM_GATED     ? launch_forward<T, Forms::GATED>(p, form, plan, device, stream)
           : form & FORM_SHIFTED ? launch_forward<T, Forms::SHIFTED>(p, form, plan, device, stream)
           : form & FORM_OPTIONS ? launch_forward<T, Forms::OPTIONS>(p, form, plan, device, stream)
                                 : launch_forward<T, Forms::COMMON>(p, form, plan, device, stream);
  });
}

rms_status run_forward(const rms_spec *spec, const rms_forward_args *args, int flags, const rms_stat *stats_in,
                       rms_stat *stats_out, cudaStream_t stream) {
  rms_forward_job job;
  int64_t segments;
  rms_status status = rms_check_forward(spec, args, flags | RMS_CHECK_DEVICE, stats_in, stats_out, &job, &segments);
  if (status) return status;
  if (segments == 0) return RMS_OK;
  LastError last;
  Device device;
  cudaError_t error = query_device(&device);
  if (error == cudaSuccess) error = run(device, job, args->outer, segments, stream);
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

} // namespace rms_cuda
