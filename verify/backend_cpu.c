/* SPDX-License-Identifier: MIT
 * The library on the calling machine. */
#include "backend.h"

typedef struct cpu {
  rms_pool *pool; /* NULL: the calling thread */
  rms_executor executor;
} cpu;

static const rms_executor *executor_of(const verify_backend *self) {
  const cpu *c = self->ctx;
  return c->pool ? &c->executor : NULL;
}

static int prepare(const verify_backend *self, const verify_problem *problem, const char **why) {
  cpu *c = self->ctx;
  *why = NULL;
  if (problem->isa[0] && rms_isa_force(problem->isa) != RMS_OK) {
    *why = "unknown instruction set, or one that this CPU or this build cannot run";
    return -1;
  }
  if (problem->threads > 1) {
    if (rms_pool_create(&c->pool, problem->threads) != RMS_OK) {
      *why = "cannot start the threads";
      return -1;
    }
    c->executor = rms_pool_executor(c->pool);
  }
  return 0;
}

static void finish(const verify_backend *self) {
  cpu *c = self->ctx;
  rms_pool_destroy(c->pool);
  c->pool = NULL;
  rms_isa_force(NULL);
}

static size_t backward_workspace(const verify_backend *self, const rms_spec *spec, const rms_backward_args *args) {
  (void)self;
  return rms_backward_workspace(spec, args);
}

static rms_status forward(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                          const rms_forward_args *args) {
  (void)memory;
  return rms_forward(spec, args, executor_of(self));
}

static rms_status stats(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                        const rms_forward_args *args, rms_stat *result) {
  (void)memory;
  return rms_stats(spec, args, result, executor_of(self));
}

static rms_status apply(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                        const rms_forward_args *args, const rms_stat *reduced) {
  (void)memory;
  return rms_apply(spec, args, reduced, executor_of(self));
}

static rms_status backward(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                           const rms_backward_args *args) {
  (void)memory;
  return rms_backward(spec, args, executor_of(self));
}

static rms_status backward_stats(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                                 const rms_backward_args *args, const rms_stat *reduced, rms_grad_sum *sums) {
  (void)memory;
  return rms_backward_stats(spec, args, reduced, sums, executor_of(self));
}

static rms_status backward_apply(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                                 const rms_backward_args *args, const rms_stat *reduced, const rms_grad_sum *sums) {
  (void)memory;
  return rms_backward_apply(spec, args, reduced, sums, executor_of(self));
}

const verify_backend *verify_backend_cpu(void) {
  static cpu state;
  static const verify_backend backend = {.name = "cpu",
                                         .ctx = &state,
                                         .prepare = prepare,
                                         .finish = finish,
                                         .backward_workspace = backward_workspace,
                                         .forward = forward,
                                         .stats = stats,
                                         .apply = apply,
                                         .backward = backward,
                                         .backward_stats = backward_stats,
                                         .backward_apply = backward_apply};
  return &backend;
}
