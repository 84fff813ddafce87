/* SPDX-License-Identifier: MIT
 *
 * What the operators of torch share: checks and options of a call, and where it runs. */
#ifndef PN_TORCH_OPERANDS_H
#define PN_TORCH_OPERANDS_H

#include "call.h"
#include "torch_cuda.h"
#include "torch_shim.h"

namespace pn {

struct named_kernel {
  const char *name;
  kernel function;
};

/* ---- checks: an exception with the message ---- */

void check_x(const pn_tensor *x);
void check_rows(const pn_tensor *t, const pn_tensor *x, const char *message);
void check_gate(const pn_tensor *gate, const pn_tensor *x, int32_t dtype);
void check_weight(const pn_tensor *w, const pn_tensor *x, const char *message);
void check_weight_dtype(const pn_tensor *w, const pn_tensor *x, const char *message);
void finish(rms_status status);

/* ---- options: eps, weight_offset, partial, groups, mode; behind them indices ---- */

enum { SPEC_WORDS = 5 };

double as_double(word w);
void read_options(rms_spec *spec, index_list *indices, const word *stack, place *at);

/* ---- results ---- */

/* Which gradients are wanted, and the type and shape of a bias that has no weight beside it. */
enum {
  WANT_DX = 1,
  WANT_DWEIGHT = 2,
  WANT_DBIAS = 4,
  BIAS_F32 = 8,
  BIAS_PER_HEAD = 16,
  WANT_DRESIDUAL = 32,
  WANT_DGATE = 64
};

/* Those that are wanted; the others are absent. */
struct gradients {
  tensor dx, dweight, dbias;

  /* data: the rms_dtype T of the backward */
  void make(int32_t data, const tensor &x, const tensor &weight, int64_t wanted, const place &at);
};

/* An operator cannot leave a result out: one that is absent is given without elements. */
word give_or_empty(tensor &t, const place &at);

/* ---- where a call runs ---- */

/* torch's own threads. */
rms_executor make_executor();

/* On the CPU with torch's own threads, or on the device whose library is loaded. */
template <bool DEVICE> class backend {
public:
  explicit backend(const place &at) : device(at) {}
  operator const pn_backend *() const { return &device.backend; }

private:
  device_call device;
};

template <> class backend<false> {
public:
  explicit backend(const place &) : executor(make_executor()), cpu(pn_cpu(&executor)) {}
  operator const pn_backend *() const { return &cpu; }

private:
  rms_executor executor;
  pn_backend cpu;
};

template <bool DEVICE> place start() {
  return {DEVICE ? device_type() : shim.cpu, DEVICE ? -1 : 0};
}

} // namespace pn

#endif
