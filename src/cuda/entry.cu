/* SPDX-License-Identifier: MIT
 *
 * The public functions. */
#include "../../include/rmsnorm_cuda.h"
#include "call.h"
#include "launch.h"
extern "C" {
#include "../core/sized.h"
}

using namespace rms_cuda;

rms_status rms_cuda_available(void) {
  LastError last;
  Device device;
  return last.settle(query_device(&device)) ? RMS_OK : RMS_E_DEVICE;
}

rms_status rms_cuda_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                  size_t args_size, rms_cuda_stream stream) {
  rms_forward_structs room;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  return status ? status : run_forward(spec, args, 0, nullptr, nullptr, stream);
}

rms_status rms_cuda_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                rms_stat *stats, rms_cuda_stream stream) {
  rms_forward_structs room;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats) return RMS_E_ARGUMENT;
  return run_forward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_STATS, nullptr, stats, stream);
}

rms_status rms_cuda_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                const rms_stat *stats, rms_cuda_stream stream) {
  rms_forward_structs room;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats) return RMS_E_ARGUMENT;
  return run_forward(spec, args, RMS_CHECK_SPLIT, stats, nullptr, stream);
}

rms_status rms_cuda_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                      const rms_stat *from, rms_cuda_stream stream) {
  rms_spec room;
  rms_layout lay;
  if (!spec) return RMS_E_ARGUMENT;
  spec = static_cast<const rms_spec *>(rms_sized(spec, spec_size, &room, sizeof room));
  if (!spec) return RMS_E_VERSION;
  rms_status status = rms_check_spec(spec, RMS_F64, RMS_CHECK_SPLIT | RMS_CHECK_DEVICE, &lay);
  if (status) return status;
  if (count < 0 || (count > 0 && (!into || !from))) return RMS_E_ARGUMENT;
  if (((uintptr_t)into | (uintptr_t)from) % sizeof(double)) return RMS_E_ALIGNMENT;
  if (count == 0) return RMS_OK;
  LastError last;
  Device device;
  cudaError_t error = query_device(&device);
  if (error == cudaSuccess) error = launch_merge(lay.kind == RMS_KIND_LAYER, count, into, from, device, stream);
  return last.settle(error) ? RMS_OK : RMS_E_DEVICE;
}

rms_status rms_cuda_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                   size_t args_size, rms_cuda_stream stream) {
  rms_backward_structs room;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  return status ? status : run_backward(spec, args, 0, nullptr, nullptr, nullptr, stream);
}

size_t rms_cuda_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size) {
  rms_backward_structs room;
  if (rms_take_backward(&spec, spec_size, &args, args_size, &room)) return 0;
  LastError last;
  Device device;
  return last.settle(query_device(&device)) ? backward_workspace(device, spec, args) : 0;
}

rms_status rms_cuda_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  rms_backward_structs room;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats || !sums) return RMS_E_ARGUMENT;
  return run_backward(spec, args, RMS_CHECK_SPLIT | RMS_CHECK_STATS, stats, nullptr, sums, stream);
}

rms_status rms_cuda_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                         rms_cuda_stream stream) {
  rms_backward_structs room;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats || !sums) return RMS_E_ARGUMENT;
  return run_backward(spec, args, RMS_CHECK_SPLIT, stats, sums, nullptr, stream);
}

rms_status rms_cuda_forward_check_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args,
                                        size_t args_size, const rms_stat *stats) {
  const int flags = RMS_CHECK_SPLIT | RMS_CHECK_DEVICE;
  rms_forward_structs room;
  rms_forward_job job;
  int64_t segments;
  rms_status status = rms_take_forward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats) return RMS_E_ARGUMENT;
  rms_stat *made = const_cast<rms_stat *>(stats); /* by the first half */
  status = rms_check_forward(spec, args, flags | RMS_CHECK_STATS, nullptr, made, &job, &segments);
  return status ? status : rms_check_forward(spec, args, flags, stats, nullptr, &job, &segments);
}

rms_status rms_cuda_backward_check_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                         size_t args_size, const rms_stat *stats, const rms_grad_sum *sums) {
  const int flags = RMS_CHECK_SPLIT | RMS_CHECK_DEVICE;
  rms_backward_structs room;
  rms_backward_job job;
  int64_t segments;
  rms_status status = rms_take_backward(&spec, spec_size, &args, args_size, &room);
  if (status) return status;
  if (!stats || !sums) return RMS_E_ARGUMENT;
  rms_grad_sum *made = const_cast<rms_grad_sum *>(sums);
  status = rms_check_backward(spec, args, flags | RMS_CHECK_STATS, stats, nullptr, made, &job, &segments);
  return status ? status : rms_check_backward(spec, args, flags, stats, sums, nullptr, &job, &segments);
}
