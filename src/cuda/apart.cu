/* SPDX-License-Identifier: MIT
 *
 * Launches of the kernels for rows whose elements lie apart. */
#include "apart.cuh"
#include "launcher.h"

namespace rms_cuda {

static int64_t tiles_of(const rms_layout &lay) {
  return (lay.inner + APART_ROWS - 1) / APART_ROWS;
}

/* Whether every element of a tensor is aligned to its size. */
static bool is_aligned(const Rows &rows, int64_t size) {
  return !rows.data || ((int64_t)(uintptr_t)rows.data | rows.outer | rows.inner | rows.col) % size == 0;
}

static bool parameters_aligned(const rms_layout &lay, const char *bias) {
  const uintptr_t size = lay.weight_is_f32 ? 4 : (uintptr_t)element_size(lay.dtype);
  return ((uintptr_t)lay.weight | (uintptr_t)bias) % size == 0;
}

/* Shared memory for `tensors` tensors of a tile; 0: there is too little for two blocks on a multiprocessor. */
static size_t room_for(const rms_layout &lay, int tensors, const Device &device) {
  const int64_t each = (lay.width + APART_WARPS - 1) / APART_WARPS;
  const int64_t bytes = each * APART_THREADS * (int64_t)sizeof(float) * tensors, statics = 8192;
  return each < 4096 && bytes <= device.shared_per_block / 2 - statics ? (size_t)bytes : 0;
}

cudaError_t launch_apart(const rms_forward_job &job, int64_t outer, const Device &device, cudaStream_t stream) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), residual = lay.residual_is_f32 ? 4 : size;
  ApartForward a = {};
  a.job = job;
  a.tiles = tiles_of(lay);
  a.count = a.tiles * outer * lay.groups;
  a.bytewise = !is_aligned(job.x, size) || !is_aligned(job.residual, residual) || !is_aligned(job.gate, size) ||
               !is_aligned(job.y, element_size(job.y_type)) || !is_aligned(job.residual_out, residual) ||
               !parameters_aligned(lay, job.bias);
  const size_t room = room_for(lay, 1, device);
  a.kept = room > 0;
  const Grid grid = {a.count < most_blocks ? a.count : most_blocks, APART_THREADS, room};
  return launch(forward_apart_kernel, a, grid, 1, false, device, stream);
}

int64_t apart_shares(const rms_layout &lay, int64_t outer) {
  const int64_t tiles = tiles_of(lay) * outer, most = APART_SHARES;
  return tiles < most ? tiles : most;
}

int64_t apart_sums(const rms_layout &lay, int64_t outer, int planes) {
  int64_t bytes = apart_shares(lay, outer) * planes * 8;
  if (__builtin_mul_overflow(bytes, lay.width * lay.groups, &bytes)) return INT64_MAX;
  return bytes;
}

cudaError_t launch_apart(const rms_backward_job &job, int64_t outer, bool want_dweight, bool want_dbias,
                         void *workspace, const Device &device, cudaStream_t stream) {
  const rms_layout &lay = job.lay;
  const int64_t size = element_size(lay.dtype), residual = lay.residual_is_f32 ? 4 : size;
  ApartBackward a = {};
  a.job = job;
  a.tiles = tiles_of(lay);
  a.count = a.tiles * outer;
  a.want_dweight = want_dweight, a.want_dbias = want_dbias;
  a.planes = want_dweight + want_dbias;
  a.shares = a.planes ? apart_shares(lay, outer) : a.count < most_blocks / lay.groups ? a.count : 65536;
  a.partial = static_cast<double *>(workspace);
  a.bytewise = !is_aligned(job.dy, element_size(job.dy_type)) || !is_aligned(job.x, job.x_is_f32 ? 4 : size) ||
               !is_aligned(job.gate, size) || !is_aligned(job.dx, size) || !is_aligned(job.dresidual, residual) ||
               !is_aligned(job.dresidual_out, residual) || !is_aligned(job.dgate, size) ||
               !parameters_aligned(lay, job.bias);
  const size_t room = room_for(lay, 2, device);
  a.kept = room > 0;
  const Grid grid = {a.shares * lay.groups, APART_THREADS, room};
  return launch(backward_apart_kernel, a, grid, 1, false, device, stream);
}

} // namespace rms_cuda
