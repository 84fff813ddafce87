/* SPDX-License-Identifier: MIT
 *
 * Handlers for XLA's foreign function interface on the CPU: rmsnorm/_jax_calls.py registers them. A library of its own,
 * built only when it is asked for, because it needs the headers of jaxlib.
 *
 * Arrays are dense, and one without elements is absent. x is (batches..., outer, heads, n) or, with heads_first,
 * (batches..., heads, outer, n), and so are the others that have rows. weight and bias are (batches..., heads, n),
 * stats (batches..., 1 or 2, outer, heads, groups). */
#include "call.h"
#include "xla/ffi/api/ffi.h"
#include <cstring>
#include <initializer_list>
#include <utility>

namespace ffi = xla::ffi;

namespace {

/* The attributes of a call. indices is empty where the first `partial` elements, or all, enter the statistic. */
struct options {
  double eps, weight_offset;
  int64_t partial, groups, mode;
  ffi::Span<const int64_t> indices;
  bool heads_first;
  int64_t q_dtype, scale_block; /* of a quantised result */
  double scale_least;

  rms_spec spec() const {
    rms_spec s = pn_make_spec(eps, weight_offset, partial, groups, mode);
    if (indices.size()) pn_set_indices(&s, indices.begin(), (int64_t)indices.size());
    s.scale_block = scale_block;
    s.scale_least = scale_least;
    return s;
  }
};

} // namespace

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(options, StructMember<double>("eps"), StructMember<double>("weight_offset"),
                                      StructMember<int64_t>("partial"), StructMember<int64_t>("groups"),
                                      StructMember<int64_t>("mode"), StructMember<Span<const int64_t>>("indices"),
                                      StructMember<bool>("heads_first"), StructMember<int64_t>("q_dtype"),
                                      StructMember<int64_t>("scale_block"), StructMember<double>("scale_least"));

namespace {

/* Quantised results are bytes, whatever their type. */
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
    return RMS_I8;
  }
}

/* One of `parts` equal parts of a dense array, with a shape of its own; transposed: the first two dimensions are then
 * exchanged. */
class operand {
public:
  operand() : present_(false) {}

  operand(ffi::AnyBuffer buffer, int64_t parts, int64_t i, std::initializer_list<int64_t> shape,
          bool transposed = false)
      : present_(buffer.element_count() > 0) {
    if (!present_) return;
    tensor_.dtype = dtype_of(buffer.element_type());
    int64_t stride = (int64_t)rms_dtype_size((rms_dtype)tensor_.dtype);
    tensor_.data = static_cast<char *>(buffer.untyped_data()) + i * ((int64_t)buffer.element_count() / parts) * stride;
    tensor_.ndim = (int32_t)shape.size();
    for (int d = tensor_.ndim - 1; d >= 0; d--) {
      tensor_.shape[d] = shape.begin()[d];
      tensor_.stride[d] = stride;
      stride *= tensor_.shape[d];
    }
    if (transposed) {
      std::swap(tensor_.shape[0], tensor_.shape[1]);
      std::swap(tensor_.stride[0], tensor_.stride[1]);
    }
  }

  /* NULL: it is absent. */
  const pn_tensor *get() const { return present_ ? &tensor_ : nullptr; }

private:
  pn_tensor tensor_;
  bool present_;
};

/* What a call is repeated for: the dimensions in front of the last three. */
struct batch {
  int64_t count, outer, heads, cols, i;

  bool heads_first;

  batch(ffi::AnyBuffer x, const options &o) : count(1), i(0), heads_first(o.heads_first) {
    auto d = x.dimensions();
    const size_t front = d.size() - 3;
    outer = d[front + (heads_first ? 1 : 0)];
    heads = d[front + (heads_first ? 0 : 1)];
    cols = d[front + 2];
    for (size_t k = 0; k < front; k++)
      count *= d[k];
  }

  bool has_rows() const { return outer > 0 && heads > 0; }

  operand rows(ffi::AnyBuffer buffer, int64_t width) const {
    if (heads_first) return {buffer, count, i, {heads, outer, width}, true};
    return {buffer, count, i, {outer, heads, width}};
  }

  operand rows(ffi::AnyBuffer buffer) const { return rows(buffer, cols); }

  operand parameter(ffi::AnyBuffer buffer) const {
    if (heads == 1) return {buffer, count, i, {cols}};
    return {buffer, count, i, {heads, cols}};
  }

  operand rstd(ffi::AnyBuffer stats, const rms_spec &spec) const { return statistic(stats, spec, 0); }
  operand mean(ffi::AnyBuffer stats, const rms_spec &spec) const { return statistic(stats, spec, 1); }

private:
  operand statistic(ffi::AnyBuffer stats, const rms_spec &spec, int64_t which) const {
    const int64_t each = spec.kind == RMS_KIND_LAYER ? 2 : 1;
    if (which >= each) return {};
    return {stats, count * each, i * each + which, {outer, heads, spec.groups > 1 ? spec.groups : 1}};
  }
};

ffi::Error finish(rms_status status) {
  return status == RMS_OK ? ffi::Error::Success() : ffi::Error::InvalidArgument(rms_status_string(status));
}

rms_status forward_batch(const batch &b, const options &o, ffi::AnyBuffer x, ffi::AnyBuffer residual,
                         ffi::AnyBuffer gate, ffi::AnyBuffer weight, ffi::AnyBuffer bias, ffi::AnyBuffer given_scale,
                         ffi::AnyBuffer y, ffi::AnyBuffer sum, ffi::AnyBuffer stats, ffi::AnyBuffer q,
                         ffi::AnyBuffer scale) {
  pn_forward call = {};
  call.spec = o.spec();
  const operand tx = b.rows(x), tresidual = b.rows(residual), tgate = b.rows(gate), ty = b.rows(y), tsum = b.rows(sum);
  const operand tweight = b.parameter(weight), tbias = b.parameter(bias);
  const operand rstd = b.rstd(stats, call.spec), mean = b.mean(stats, call.spec);
  const operand tq = b.rows(q, pn_quantised_bytes((int32_t)o.q_dtype, b.cols));
  const operand tscale =
      o.scale_block ? b.rows(scale, b.cols / o.scale_block) : operand(given_scale, b.count, b.i, {1});
  call.x = tx.get();
  call.residual = tresidual.get();
  call.gate = tgate.get();
  call.weight = tweight.get();
  call.bias = tbias.get();
  call.y = ty.get();
  call.sum = tsum.get();
  call.rstd = rstd.get();
  call.mean = mean.get();
  call.q = tq.get();
  call.scale = tscale.get();
  call.q_dtype = (int32_t)o.q_dtype;
  call.y_dtype = pn_result_dtype(o.mode, call.x->dtype);
  const pn_backend cpu = pn_cpu(nullptr);
  return pn_run_forward(&call, &cpu);
}

ffi::Error forward(ffi::AnyBuffer x, ffi::AnyBuffer residual, ffi::AnyBuffer gate, ffi::AnyBuffer weight,
                   ffi::AnyBuffer bias, ffi::AnyBuffer given_scale, ffi::Result<ffi::AnyBuffer> y,
                   ffi::Result<ffi::AnyBuffer> sum, ffi::Result<ffi::AnyBuffer> stats, ffi::Result<ffi::AnyBuffer> q,
                   ffi::Result<ffi::AnyBuffer> scale, options o) {
  rms_status status = RMS_OK;
  batch b(x, o);
  for (; b.has_rows() && b.i < b.count && status == RMS_OK; b.i++)
    status = forward_batch(b, o, x, residual, gate, weight, bias, given_scale, *y, *sum, *stats, *q, *scale);
  return finish(status);
}

rms_status backward_batch(const batch &b, const options &o, ffi::AnyBuffer dy, ffi::AnyBuffer x, ffi::AnyBuffer dsum,
                          ffi::AnyBuffer gate, ffi::AnyBuffer weight, ffi::AnyBuffer bias, ffi::AnyBuffer stats,
                          ffi::AnyBuffer dx, ffi::AnyBuffer dresidual, ffi::AnyBuffer dgate, ffi::AnyBuffer dweight,
                          ffi::AnyBuffer dbias) {
  pn_backward call = {};
  call.spec = o.spec();
  const operand tdy = b.rows(dy), tx = b.rows(x), tdsum = b.rows(dsum), tgate = b.rows(gate), tdx = b.rows(dx);
  const operand tdresidual = b.rows(dresidual), tdgate = b.rows(dgate);
  const operand tweight = b.parameter(weight), tbias = b.parameter(bias);
  const operand tdweight = b.parameter(dweight), tdbias = b.parameter(dbias);
  const operand rstd = b.rstd(stats, call.spec), mean = b.mean(stats, call.spec);
  call.dy = tdy.get();
  call.x = tx.get();
  call.dresidual = tdsum.get();
  call.gate = tgate.get();
  call.weight = tweight.get();
  call.bias = tbias.get();
  call.rstd = rstd.get();
  call.mean = mean.get();
  call.dx = tdx.get();
  call.dresidual_out = tdresidual.get();
  call.dgate = tdgate.get();
  call.dweight = tdweight.get();
  call.dbias = tdbias.get();
  call.data_dtype = pn_data_dtype(o.mode, call.x->dtype, call.dy->dtype);
  const pn_backend cpu = pn_cpu(nullptr);
  return pn_run_backward(&call, &cpu);
}

ffi::Error backward(ffi::AnyBuffer dy, ffi::AnyBuffer x, ffi::AnyBuffer dsum, ffi::AnyBuffer gate,
                    ffi::AnyBuffer weight, ffi::AnyBuffer bias, ffi::AnyBuffer stats, ffi::Result<ffi::AnyBuffer> dx,
                    ffi::Result<ffi::AnyBuffer> dresidual, ffi::Result<ffi::AnyBuffer> dgate,
                    ffi::Result<ffi::AnyBuffer> dweight, ffi::Result<ffi::AnyBuffer> dbias, options o) {
  rms_status status = RMS_OK;
  batch b(x, o);
  if (!b.has_rows()) {
    std::memset(dweight->untyped_data(), 0, dweight->size_bytes());
    std::memset(dbias->untyped_data(), 0, dbias->size_bytes());
  }
  for (; b.has_rows() && b.i < b.count && status == RMS_OK; b.i++)
    status = backward_batch(b, o, dy, x, dsum, gate, weight, bias, stats, *dx, *dresidual, *dgate, *dweight, *dbias);
  return finish(status);
}

} // namespace

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error *pn_jax_forward(XLA_FFI_CallFrame *frame) {
  static auto *handler = ffi::Ffi::BindTo(forward).release();
  return handler->Call(frame);
}

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error *pn_jax_backward(XLA_FFI_CallFrame *frame) {
  static auto *handler = ffi::Ffi::BindTo(backward).release();
  return handler->Call(frame);
}
