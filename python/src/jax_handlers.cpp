/* SPDX-License-Identifier: MIT
 *
 * Handlers for XLA's foreign function interface on the CPU: rmsnorm/jax.py registers them. A library of its own, built
 * only when it is asked for, because it needs the headers of jaxlib.
 *
 * Arrays are dense. x is (batches..., rows, n); stats is (batches..., 1 or 2, rows, groups) and tells how many batches
 * there are; weight and bias are (batches..., n), or have no elements. */
#include "call.h"
#include "xla/ffi/api/ffi.h"
#include <cstring>

namespace ffi = xla::ffi;

namespace {

int32_t dtype_of(ffi::DataType type) {
  switch (type) {
  case ffi::DataType::F32:
    return RMS_F32;
  case ffi::DataType::F64:
    return RMS_F64;
  case ffi::DataType::BF16:
    return RMS_BF16;
  case ffi::DataType::F16:
    return RMS_F16;
  default:
    return 0;
  }
}

/* Batch i of a dense array of `batches` equal parts, as rows x cols (or as cols alone). False: absent. */
bool part(ffi::AnyBuffer buffer, int64_t batches, int64_t i, int64_t rows, int64_t cols, pn_tensor *t) {
  const int64_t count = (int64_t)buffer.element_count();
  if (count == 0) return false;
  t->dtype = dtype_of(buffer.element_type());
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)t->dtype);
  t->data = static_cast<char *>(buffer.untyped_data()) + i * (count / batches) * size;
  t->ndim = rows ? 2 : 1;
  t->shape[0] = rows ? rows : cols;
  t->stride[0] = rows ? cols * size : size;
  t->shape[1] = cols;
  t->stride[1] = size;
  return true;
}

struct options {
  double eps, weight_offset;
  int64_t partial, groups, mode;

  rms_spec spec() const { return pn_make_spec(eps, weight_offset, partial, groups, mode); }
};

struct shape {
  int64_t batches, statistics, rows, groups, cols;
};

shape shape_of(ffi::AnyBuffer x, ffi::AnyBuffer stats) {
  auto d = stats.dimensions();
  shape s = {1, d[d.size() - 3], d[d.size() - 2], d[d.size() - 1], x.dimensions().back()};
  for (size_t i = 0; i + 3 < d.size(); i++)
    s.batches *= d[i];
  return s;
}

/* rstd and mean of a batch. */
void statistics(ffi::AnyBuffer stats, const shape &s, int64_t i, pn_tensor *rstd, pn_tensor *mean) {
  part(stats, s.batches * s.statistics, i * s.statistics, s.rows, s.groups, rstd);
  part(stats, s.batches * s.statistics, i * s.statistics + s.statistics - 1, s.rows, s.groups, mean);
}

ffi::Error finish(rms_status status) {
  return status == RMS_OK ? ffi::Error::Success() : ffi::Error::InvalidArgument(rms_status_string(status));
}

ffi::Error forward(ffi::AnyBuffer x, ffi::AnyBuffer weight, ffi::AnyBuffer bias, ffi::Result<ffi::AnyBuffer> y,
                   ffi::Result<ffi::AnyBuffer> stats, double eps, double weight_offset, int64_t partial, int64_t groups,
                   int64_t mode) {
  const options o = {eps, weight_offset, partial, groups, mode};
  const shape s = shape_of(x, *stats);
  rms_status status = RMS_OK;
  for (int64_t i = 0; i < s.batches && s.rows && status == RMS_OK; i++) {
    pn_tensor tx, tw, tb, ty, rstd, mean;
    pn_forward call = {};
    call.spec = o.spec();
    part(x, s.batches, i, s.rows, s.cols, &tx);
    part(*y, s.batches, i, s.rows, s.cols, &ty);
    statistics(*stats, s, i, &rstd, &mean);
    call.x = &tx;
    call.y = &ty;
    call.rstd = &rstd;
    if (mode & PN_MODE_LAYER) call.mean = &mean;
    if (part(weight, s.batches, i, 0, s.cols, &tw)) call.weight = &tw;
    if (part(bias, s.batches, i, 0, s.cols, &tb)) call.bias = &tb;
    const pn_backend cpu = pn_cpu(nullptr);
    status = pn_run_forward(&call, &cpu);
  }
  return finish(status);
}

ffi::Error backward(ffi::AnyBuffer dy, ffi::AnyBuffer x, ffi::AnyBuffer weight, ffi::AnyBuffer stats,
                    ffi::Result<ffi::AnyBuffer> dx, ffi::Result<ffi::AnyBuffer> dweight,
                    ffi::Result<ffi::AnyBuffer> dbias, double eps, double weight_offset, int64_t partial,
                    int64_t groups, int64_t mode) {
  const options o = {eps, weight_offset, partial, groups, mode};
  const shape s = shape_of(x, stats);
  rms_status status = RMS_OK;
  if (s.rows == 0) {
    std::memset(dweight->untyped_data(), 0, dweight->size_bytes());
    std::memset(dbias->untyped_data(), 0, dbias->size_bytes());
    return ffi::Error::Success();
  }
  for (int64_t i = 0; i < s.batches && status == RMS_OK; i++) {
    pn_tensor tdy, tx, tw, tdx, tdw, tdb, rstd, mean;
    pn_backward call = {};
    call.spec = o.spec();
    part(dy, s.batches, i, s.rows, s.cols, &tdy);
    part(x, s.batches, i, s.rows, s.cols, &tx);
    part(*dx, s.batches, i, s.rows, s.cols, &tdx);
    statistics(stats, s, i, &rstd, &mean);
    call.dy = &tdy;
    call.x = &tx;
    call.dx = &tdx;
    call.rstd = &rstd;
    if (mode & PN_MODE_LAYER) call.mean = &mean;
    if (part(weight, s.batches, i, 0, s.cols, &tw)) call.weight = &tw;
    if (part(*dweight, s.batches, i, 0, s.cols, &tdw)) call.dweight = &tdw;
    if (part(*dbias, s.batches, i, 0, s.cols, &tdb)) call.dbias = &tdb;
    const pn_backend cpu = pn_cpu(nullptr);
    status = pn_run_backward(&call, &cpu);
  }
  return finish(status);
}

} // namespace

#define PN_OPTIONS                                                                                                     \
  .Attr<double>("eps")                                                                                                 \
      .Attr<double>("weight_offset")                                                                                   \
      .Attr<int64_t>("partial")                                                                                        \
      .Attr<int64_t>("groups")                                                                                         \
      .Attr<int64_t>("mode")

/* clang-format off */
extern "C" __attribute__((visibility("default"))) XLA_FFI_Error *pn_jax_forward(XLA_FFI_CallFrame *frame) {
  static auto *handler = ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>()
      PN_OPTIONS.To(forward).release();
  return handler->Call(frame);
}

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error *pn_jax_backward(XLA_FFI_CallFrame *frame) {
  static auto *handler = ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>()
      PN_OPTIONS.To(backward).release();
  return handler->Call(frame);
}
/* clang-format on */
