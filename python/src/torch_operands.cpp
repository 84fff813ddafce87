/* SPDX-License-Identifier: MIT */
#include "torch_operands.h"
#include "threads.h"
#include <cstring>

namespace pn {

/* ---- threads: torch's own ---- */

namespace {

struct region {
  void (*task)(void *arg, int64_t i);
  void *arg;
};

void run_range(int64_t begin, int64_t end, void *data) {
  region *r = static_cast<region *>(data);
  for (int64_t i = begin; i < end; i++)
    r->task(r->arg, i);
}

void run_on_torch(void *, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  region r = {task, arg};
  shim.torch_parallel_for(0, tasks, 1, run_range, &r);
}

} // namespace

rms_executor make_executor() {
  uint32_t threads = 1;
  if (shim.torch_parallel_for) {
    shim.torch_get_num_threads(&threads);
    return {nullptr, threads > 0 ? (int32_t)threads : 1, run_on_torch};
  }
  if (shim.get_num_threads && pn_openmp_known()) return pn_openmp_executor(shim.get_num_threads());
  return pn_openmp_executor(1);
}

/* ---- checks ---- */

void check_rows(const pn_tensor *t, const pn_tensor *x, const char *message) {
  if (!t) return;
  require(t->ndim == x->ndim && std::memcmp(t->shape, x->shape, sizeof *t->shape * (size_t)t->ndim) == 0, message);
}

void check_gate(const pn_tensor *gate, const pn_tensor *x, int32_t dtype) {
  check_rows(gate, x, "gate must have the shape of x");
  require(!gate || gate->dtype == dtype, "gate must have the dtype of x");
}

void check_weight(const pn_tensor *w, const pn_tensor *x, const char *message) {
  if (!w) return;
  const int last = x->ndim - 1;
  const bool plain = w->ndim == 1 && w->shape[0] == x->shape[last];
  const bool heads = w->ndim == 2 && last > 0 && w->shape[1] == x->shape[last] && w->shape[0] == x->shape[last - 1];
  require(plain || heads, message);
}

void check_weight_dtype(const pn_tensor *w, const pn_tensor *x, const char *message) {
  require(!w || w->dtype == x->dtype || w->dtype == RMS_F32, message);
}

void check_x(const pn_tensor *x) {
  require(x->ndim > 0 && x->shape[x->ndim - 1] > 0, "x needs a last dimension that is not empty");
}

void finish(rms_status status) {
  if (status != RMS_OK) throw std::runtime_error(std::string("rmsnorm: ") + rms_status_string(status));
}

/* ---- options ---- */

double as_double(word w) {
  double d;
  std::memcpy(&d, &w, sizeof d);
  return d;
}

void read_options(rms_spec *spec, index_list *indices, const word *stack, place *at) {
  *spec =
      pn_make_spec(as_double(stack[0]), as_double(stack[1]), (int64_t)stack[2], (int64_t)stack[3], (int64_t)stack[4]);
  indices->read(at);
  if (indices->data) pn_set_indices(spec, indices->data, indices->count);
}

/* ---- results ---- */

static void make_like_weight(tensor &t, const tensor &x, bool heads, int32_t dtype, const place &at) {
  const int last = x.view.ndim - 1;
  require(!heads || last > 0, "x has no dimension for the heads");
  if (heads)
    t.make_dense(dtype, 2, x.view.shape + last - 1, at);
  else
    t.make_dense(dtype, 1, x.view.shape + last, at);
}

void gradients::make(int32_t data, const tensor &x, const tensor &weight, int64_t wanted, const place &at) {
  const bool heads = weight.get() ? weight.view.ndim == 2 : (wanted & BIAS_PER_HEAD) != 0;
  const int32_t bias_dtype = wanted & BIAS_F32 ? (int32_t)RMS_F32 : data;
  if (wanted & WANT_DX) dx.make_like(x, data, at);
  if (wanted & WANT_DWEIGHT) make_like_weight(dweight, x, heads, weight.get() ? weight.view.dtype : data, at);
  if (wanted & WANT_DBIAS) make_like_weight(dbias, x, heads, bias_dtype, at);
}

word give_or_empty(tensor &t, const place &at) {
  const int64_t zero = 0;
  if (!t.get()) t.make_dense(RMS_F32, 1, &zero, at);
  return t.give();
}

} // namespace pn
