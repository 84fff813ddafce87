/* SPDX-License-Identifier: MIT
 *
 * Calls on the CPU. */
#include "call.h"
#include "torch_sums.h"

static rms_status forward_on_cpu(const void *executor, const rms_spec *spec, const rms_forward_args *args) {
  return rms_forward(spec, args, executor);
}

static rms_status torch_sums_on_cpu(const void *executor, const rms_spec *spec, const rms_forward_args *args,
                                    rms_stat *stats) {
  return pn_forward_torch_sums(spec, args, stats, executor);
}

static rms_status backward_on_cpu(const void *executor, const rms_spec *spec, const rms_backward_args *args) {
  return rms_backward(spec, args, executor);
}

static rms_status stats_on_cpu(const void *executor, const rms_spec *spec, const rms_forward_args *args,
                               rms_stat *stats) {
  return rms_stats(spec, args, stats, executor);
}

static rms_status merge_on_cpu(const void *executor, const rms_spec *spec, int64_t count, rms_stat *into,
                               const rms_stat *from) {
  (void)executor;
  return rms_stats_merge(spec, count, into, from);
}

static rms_status apply_on_cpu(const void *executor, const rms_spec *spec, const rms_forward_args *args,
                               const rms_stat *stats) {
  return rms_apply(spec, args, stats, executor);
}

static rms_status backward_stats_on_cpu(const void *executor, const rms_spec *spec, const rms_backward_args *args,
                                        const rms_stat *stats, rms_grad_sum *sums) {
  return rms_backward_stats(spec, args, stats, sums, executor);
}

static rms_status backward_apply_on_cpu(const void *executor, const rms_spec *spec, const rms_backward_args *args,
                                        const rms_stat *stats, const rms_grad_sum *sums) {
  return rms_backward_apply(spec, args, stats, sums, executor);
}

pn_backend pn_cpu(const rms_executor *executor) {
  return (pn_backend){.memory = pn_host_memory,
                      .forward = forward_on_cpu,
                      .backward = backward_on_cpu,
                      .workspace = rms_backward_workspace,
                      .stats = stats_on_cpu,
                      .merge = merge_on_cpu,
                      .apply = apply_on_cpu,
                      .backward_stats = backward_stats_on_cpu,
                      .backward_apply = backward_apply_on_cpu,
                      .forward_torch_sums = torch_sums_on_cpu,
                      .context = executor};
}
