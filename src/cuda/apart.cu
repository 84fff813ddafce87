/* SPDX-License-Identifier: MIT
 *
 * Launches of the kernels for rows whose elements lie apart. */
#include <type_traits>
#include "apart.cuh"
#include "apart_backward.cuh"
#include "apart_forward.cuh"
#include "launch.h"
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

/* ---- the fast kernels ---- */

/* What the fast kernels know of every layout: rows next to each other, and none of the options. */
static bool is_plain(const rms_layout &lay, const char *bias, int64_t most_width) {
  return lay.groups == 1 && lay.width <= most_width && lay.k == lay.width && !lay.indices &&
         lay.eps_place == RMS_EPS_INSIDE && lay.rounding == RMS_ROUND_AFTER_WEIGHT && lay.dtype != RMS_F64 &&
         !lay.per_inner && parameters_aligned(lay, bias);
}

static bool is_plane(const Rows &rows, int64_t size) {
  return !rows.data || (rows.inner == size && rows.col != 0 && is_aligned(rows, size));
}

static bool is_paired(const rms_layout &lay, const Rows &rows) {
  return !rows.data || (lay.inner % 2 == 0 && ((int64_t)(uintptr_t)rows.data | rows.outer | rows.col) % 4 == 0);
}

/* What both jobs have. False: there are too many tiles. */
template <class Job> static bool make_tiles(Job &a, const rms_layout &lay, int64_t outer) {
  const int64_t pixels = lay.dtype == RMS_F32 ? tile_pixels<float> : tile_pixels<__half>;
  const int64_t tiles = (lay.inner + pixels - 1) / pixels, most = INT32_MAX;
  if (tiles < 1 || lay.inner > most - pixels || outer > most / tiles) return false;
  a.tiles = (unsigned)tiles, a.count = (unsigned)(tiles * outer);
  a.width = {(double)lay.width, 1 / (double)lay.width};
  a.eps = (float)lay.eps;
  return true;
}

/* Channels of a thread: of those that the kernels are there for, as many as fill the machine best. */
static int channels_of(int64_t width) {
  return width <= 64 ? 8 : width <= 256 ? 16 : width <= 512 ? 32 : 64;
}
template <class F> static cudaError_t by_channels(int64_t width, F f) {
  switch (channels_of(width)) {
  case 8:
    return f(std::integral_constant<int, 8>());
  case 16:
    return f(std::integral_constant<int, 16>());
  case 32:
    return f(std::integral_constant<int, 32>());
  default:
    return f(std::integral_constant<int, 64>());
  }
}

enum { TILE_MOST = 768 }; /* channels */

static bool is_fast(const rms_forward_job &job) {
  const int64_t size = element_size(job.lay.dtype);
  return is_plain(job.lay, job.bias, TILE_MOST) && !job.residual.data && !job.residual_out.data && !job.gate.data &&
         !job.q.rows.data && !job.stats_in && !job.stats_out && job.y_type == job.lay.dtype && is_plane(job.x, size) &&
         is_plane(job.y, size);
}

template <class T, bool LAYER>
static cudaError_t launch_tiles(const TileForward &a, const Device &device, cudaStream_t stream) {
  return by_channels(a.job.lay.width, [&](auto channels) -> cudaError_t {
    constexpr int each = decltype(channels)::value;
    const int warps = (int)((a.job.lay.width + each - 1) / each), fit = 32 / warps;
    const int64_t most = (int64_t)device.multiprocessors * fit * 4;
    const Grid grid = {a.count < most ? a.count : most, 32 * warps,
                       room_bytes<T>(warps, 2) + 2 * sizeof(float) * warps * each};
    return launch(forward_tile_kernel<T, LAYER, each>, a, grid, 1, false, device, stream);
  });
}

static cudaError_t launch_fast(const TileForward &a, const Device &device, cudaStream_t stream) {
  return by_type<false>(a.job.lay.dtype, [&](auto type) -> cudaError_t {
    using T = decltype(type);
    return a.job.lay.kind == RMS_KIND_LAYER ? launch_tiles<T, true>(a, device, stream)
                                            : launch_tiles<T, false>(a, device, stream);
  });
}

static bool is_fast(const rms_backward_job &job) {
  const int64_t size = element_size(job.lay.dtype);
  return is_plain(job.lay, nullptr, TILE_MOST) && !job.dresidual.data && !job.dresidual_out.data && !job.gate.data &&
         !job.dgate.data && !job.stats_in && !job.sums_in && !job.sums_out && !job.x_is_f32 &&
         job.lay.steps == RMS_STEPS_WIDE && job.dy_type == job.lay.dtype && is_plane(job.x, size) &&
         is_plane(job.dy, size) && is_plane(job.dx, size);
}

/* Shared memory of a block of a backward whose threads have `each` channels. */
static size_t backward_room(const rms_layout &lay, int each, int stages) {
  const int warps = (int)((lay.width + each - 1) / each), columns = warps * each;
  const size_t room =
      lay.dtype == RMS_F32 ? room_bytes<float>(warps, TILE_PLANES) : room_bytes<__half>(warps, TILE_PLANES);
  return room + (2 * sizeof(double) + sizeof(float)) * columns + (size_t)stages * 2 * 32 * sizeof(uint32_t) * columns;
}

template <class T, bool LAYER>
static cudaError_t launch_tiles(const TileBackward &given, const Device &device, cudaStream_t stream) {
  const rms_layout &lay = given.job.lay;
  return by_channels(lay.width, [&](auto channels) -> cudaError_t {
    constexpr int each = decltype(channels)::value;
    TileBackward a = given;
    const int threads = (int)((lay.width + each - 1) / each) * 32;
    const int fit = BACKWARD_TILE_THREADS(each) * BACKWARD_TILE_BLOCKS(each) / threads; /* by registers */
    auto blocks_of = [&](int stages) {
      const int room = (int)((size_t)device.shared_per_block / (backward_room(lay, each, stages) + 1024));
      return room < fit ? room : fit;
    };
    a.stages = blocks_of(2) >= 3 ? 2 : 1;
    int64_t blocks = (int64_t)device.multiprocessors * (blocks_of(a.stages) > 0 ? blocks_of(a.stages) : 1);
    if (blocks > a.count) blocks = a.count;
    if (a.shares > 0 && blocks > a.shares) blocks = a.shares;
    const Grid grid = {blocks, threads, backward_room(lay, each, a.stages)};
    return launch(backward_tile_kernel<T, LAYER, each>, a, grid, 1, false, device, stream);
  });
}

/* Whether there is room for a tile. */
static bool has_room(const rms_layout &lay, const Device &device) {
  return backward_room(lay, channels_of(lay.width), 1) <= (size_t)device.shared_per_block;
}

static cudaError_t launch_fast(const TileBackward &a, const Device &device, cudaStream_t stream) {
  return by_type<false>(a.job.lay.dtype, [&](auto type) -> cudaError_t {
    using T = decltype(type);
    return a.job.lay.kind == RMS_KIND_LAYER ? launch_tiles<T, true>(a, device, stream)
                                            : launch_tiles<T, false>(a, device, stream);
  });
}

/* ---- any layout ---- */

cudaError_t launch_apart(const rms_forward_job &job, int64_t outer, const Device &device, cudaStream_t stream) {
  const rms_layout &lay = job.lay;
  TileForward fast = {};
  fast.paired = is_paired(lay, job.x) && is_paired(lay, job.y);
  if (is_fast(job) && make_tiles(fast, lay, outer)) {
    fast.job = job;
    return launch_fast(fast, device, stream);
  }
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
  TileBackward fast = {};
  fast.paired = is_paired(lay, job.x) && is_paired(lay, job.dy) && is_paired(lay, job.dx);
  if (is_fast(job) && has_room(lay, device) && make_tiles(fast, lay, outer)) {
    fast.job = job;
    fast.saved = job.rstd && (lay.kind != RMS_KIND_LAYER || job.mean);
    fast.want_dweight = want_dweight, fast.want_dbias = want_dbias;
    fast.partial = static_cast<double *>(workspace);
    fast.shares = want_dweight || want_dbias ? (int)apart_shares(lay, outer) : 0;
    return launch_fast(fast, device, stream);
  }
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
