/* SPDX-License-Identifier: MIT
 *
 * Runs the cases of verify/ on the current CUDA device: buffers go over with their place modulo 256 kept, so that
 * alignment is that of the problem, and come back after the call. */
#include <cuda_runtime_api.h>
#include <cstdlib>
#include "rmsnorm_cuda.h"
extern "C" {
#include "backend.h"
}

namespace {

struct Arena {
  char *device = nullptr;
  size_t bytes = 0;
};

Arena arena;

/* The buffers of one call on the device. */
struct Mirror {
  const verify_memory *memory;
  char *at[VERIFY_BUFFERS];

  explicit Mirror(const verify_memory *from) : memory(from) {}

  bool send() {
    size_t total = 0, offset[VERIFY_BUFFERS];
    for (int i = 0; i < VERIFY_BUFFERS; i++) {
      offset[i] = total + (size_t)((uintptr_t)memory->buffer[i].base % 256);
      total = (offset[i] + memory->buffer[i].bytes + 255) / 256 * 256;
    }
    if (total > arena.bytes) {
      (void)cudaFree(arena.device);
      arena.bytes = 0;
      arena.device = nullptr;
      if (cudaMalloc(reinterpret_cast<void **>(&arena.device), total) != cudaSuccess) return false;
      /* between buffers: 16 aligned bytes with one of a tensor in them are read whole */
      if (cudaMemset(arena.device, 0xff, total) != cudaSuccess) return false;
      arena.bytes = total;
    }
    for (int i = 0; i < VERIFY_BUFFERS; i++)
      at[i] = arena.device + offset[i];
    return copy(cudaMemcpyHostToDevice);
  }

  bool fetch() { return cudaDeviceSynchronize() == cudaSuccess && copy(cudaMemcpyDeviceToHost); }

  bool copy(cudaMemcpyKind kind) {
    bool well = true;
    for (int i = 0; i < VERIFY_BUFFERS; i++) {
      const verify_buffer &b = memory->buffer[i];
      const bool back = kind == cudaMemcpyDeviceToHost;
      if (b.base) well = well && cudaMemcpy(back ? b.base : at[i], back ? at[i] : b.base, b.bytes, kind) == cudaSuccess;
    }
    return well;
  }

  template <class P> P *there(P *host) const {
    int i = host ? verify_buffer_of(memory, host) : -1;
    if (i < 0) return nullptr;
    return reinterpret_cast<P *>(at[i] + (reinterpret_cast<const char *>(host) - memory->buffer[i].base));
  }

  rms_spec translate(const rms_spec *spec) const {
    rms_spec out = *spec;
    out.indices = there(spec->indices);
    return out;
  }

  template <class View> void move(View &view) const {
    view.data = view.data ? there(static_cast<char *>(const_cast<void *>(view.data))) : nullptr;
  }
  void *move_array(const void *p) const { return p ? there(static_cast<char *>(const_cast<void *>(p))) : nullptr; }

  rms_forward_args translate(const rms_forward_args *args) const {
    rms_forward_args out = *args;
    move(out.x), move(out.residual), move(out.gate), move(out.y), move(out.residual_out);
    move(out.q);
    out.scale = move_array(args->scale);
    out.weight = move_array(args->weight);
    out.bias = move_array(args->bias);
    out.rstd = move_array(args->rstd);
    out.mean = move_array(args->mean);
    return out;
  }

  rms_backward_args translate(const rms_backward_args *args) const {
    rms_backward_args out = *args;
    move(out.dy), move(out.x), move(out.dresidual), move(out.gate);
    move(out.dx), move(out.dresidual_out), move(out.dgate);
    out.weight = move_array(args->weight);
    out.bias = move_array(args->bias);
    out.rstd = move_array(args->rstd);
    out.mean = move_array(args->mean);
    out.drstd = move_array(args->drstd);
    out.dmean = move_array(args->dmean);
    out.dweight = move_array(args->dweight);
    out.dbias = move_array(args->dbias);
    out.workspace = move_array(args->workspace);
    return out;
  }
};

/* Sends, calls, fetches. */
template <class Args, class Call>
rms_status run(const verify_memory *memory, const rms_spec *spec, const Args *args, Call call) {
  Mirror mirror(memory);
  if (!mirror.send()) return RMS_E_DEVICE;
  rms_spec there = mirror.translate(spec);
  Args moved = mirror.translate(args);
  rms_status status = call(mirror, &there, &moved);
  if (!mirror.fetch() && status == RMS_OK) status = RMS_E_DEVICE;
  return status;
}

int prepare(const verify_backend *, const verify_problem *problem, const char **why) {
  *why = problem->isa[0] ? "instruction sets belong to the CPU" : nullptr;
  return problem->isa[0] ? -1 : 0;
}

void finish(const verify_backend *) {}

/* The alignment of the buffers counts, not where they are. */
size_t backward_workspace(const verify_backend *, const rms_spec *spec, const rms_backward_args *args) {
  return rms_cuda_backward_workspace(spec, args);
}

rms_status forward(const verify_backend *, const verify_memory *memory, const rms_spec *spec,
                   const rms_forward_args *args) {
  return run(memory, spec, args, [](const Mirror &, const rms_spec *s, const rms_forward_args *a) {
    return rms_cuda_forward(s, a, nullptr);
  });
}

rms_status stats(const verify_backend *, const verify_memory *memory, const rms_spec *spec,
                 const rms_forward_args *args, rms_stat *result) {
  return run(memory, spec, args, [=](const Mirror &m, const rms_spec *s, const rms_forward_args *a) {
    return rms_cuda_stats(s, a, m.there(result), nullptr);
  });
}

rms_status apply(const verify_backend *, const verify_memory *memory, const rms_spec *spec,
                 const rms_forward_args *args, const rms_stat *reduced) {
  return run(memory, spec, args, [=](const Mirror &m, const rms_spec *s, const rms_forward_args *a) {
    return rms_cuda_apply(s, a, m.there(reduced), nullptr);
  });
}

rms_status backward(const verify_backend *, const verify_memory *memory, const rms_spec *spec,
                    const rms_backward_args *args) {
  return run(memory, spec, args, [](const Mirror &, const rms_spec *s, const rms_backward_args *a) {
    return rms_cuda_backward(s, a, nullptr);
  });
}

rms_status backward_stats(const verify_backend *, const verify_memory *memory, const rms_spec *spec,
                          const rms_backward_args *args, const rms_stat *reduced, rms_grad_sum *sums) {
  return run(memory, spec, args, [=](const Mirror &m, const rms_spec *s, const rms_backward_args *a) {
    return rms_cuda_backward_stats(s, a, m.there(reduced), m.there(sums), nullptr);
  });
}

rms_status backward_apply(const verify_backend *, const verify_memory *memory, const rms_spec *spec,
                          const rms_backward_args *args, const rms_stat *reduced, const rms_grad_sum *sums) {
  return run(memory, spec, args, [=](const Mirror &m, const rms_spec *s, const rms_backward_args *a) {
    return rms_cuda_backward_apply(s, a, m.there(reduced), m.there(sums), nullptr);
  });
}

const verify_backend backend = {"cuda", nullptr, prepare,  finish,         backward_workspace, forward,
                                stats,  apply,   backward, backward_stats, backward_apply};

} // namespace

extern "C" const verify_backend *verify_backend_cuda(const char **why) {
  if (rms_cuda_available() == RMS_OK) return &backend;
  *why = rms_status_string(RMS_E_DEVICE);
  return nullptr;
}
