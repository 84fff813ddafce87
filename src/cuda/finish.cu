/* SPDX-License-Identifier: MIT
 *
 * dweight and dbias from the partial sums, in f64 and in a fixed order: each thread adds every ROWS-th partial sum of
 * its columns, then the lanes of a warp that have the same columns are combined as a tree, then the warps in order.
 *
 * All of its time is latency. It starts as soon as the kernel before it has started, and goes through its code once
 * with no partial sums, so that instructions and arguments are at hand when that kernel ends. */
#include "launch.h"
#include "launcher.h"
#include "start.cuh"
#include "sum.cuh"

namespace rms_cuda {

/* BATCH: partial sums that a thread asks for at once. SPREAD: bytes of shared memory that keep blocks from crowding on
 * the SMs that are idle when they start; beside it there is room for a block of a backward kernel. */
enum { FINISH_THREADS = 256, FINISH_WARPS = FINISH_THREADS / 32, FINISH_BATCH = 8, FINISH_COLUMNS = 32 };
enum { FINISH_SPREAD = 56 * 1024 };

__device__ __forceinline__ double read_gradient(const void *p, int64_t i, rms_dtype type) {
  uint32_t w[2];
  const int size = type == RMS_F64 ? 8 : type == RMS_F32 ? 4 : 2;
  load_narrow(w, static_cast<const char *>(p) + i * size, size);
  switch (type) {
  case RMS_F64:
    return __hiloint2double((int)w[1], (int)w[0]);
  case RMS_F32:
    return (double)__uint_as_float(w[0]);
  case RMS_BF16:
    return (double)__uint_as_float(w[0] << 16);
  default:
    return (double)__half2float(__ushort_as_half((unsigned short)w[0]));
  }
}

/* f64 to a 16-bit type with one rounding: to odd in f32 first, which keeps what the second step needs to know. */
__device__ __forceinline__ float to_odd(double value) {
  float toward = __double2float_rz(value);
  if ((double)toward != value) toward = __uint_as_float(__float_as_uint(toward) | 1u);
  return toward;
}

__device__ __forceinline__ void write_gradient(void *p, int64_t i, rms_dtype type, double value) {
  uint32_t w[2] = {0, 0};
  const int size = type == RMS_F64 ? 8 : type == RMS_F32 ? 4 : 2;
  switch (type) {
  case RMS_F64:
    w[0] = (uint32_t)__double2loint(value), w[1] = (uint32_t)__double2hiint(value);
    break;
  case RMS_F32:
    w[0] = __float_as_uint(__double2float_rn(value));
    break;
  case RMS_BF16:
    w[0] = __bfloat16_as_ushort(__float2bfloat16_rn(to_odd(value)));
    break;
  default:
    w[0] = __half_as_ushort(__float2half_rn(to_odd(value)));
  }
  store_narrow(static_cast<char *>(p) + i * size, w, size);
}

/* VECTOR columns of one partial sum, or zeros where it is not wanted. Predicated, not skipped: the instructions are
 * fetched either way. Past L1, which may hold what an earlier kernel left there. */
template <int VECTOR> __device__ __forceinline__ void load_partial(float (&v)[VECTOR], const float *p, bool wanted) {
  if constexpr (VECTOR == 4) {
    asm volatile("{\n .reg .pred w;\n setp.ne.u32 w, %5, 0;\n mov.f32 %0, 0f00000000;\n mov.f32 %1, 0f00000000;\n"
                 " mov.f32 %2, 0f00000000;\n mov.f32 %3, 0f00000000;\n"
                 " @w ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&f"(v[0]), "=&f"(v[1]), "=&f"(v[2]), "=&f"(v[3])
                 : "l"(p), "r"((unsigned)wanted)
                 : "memory");
  } else {
    asm volatile("{\n .reg .pred w;\n setp.ne.u32 w, %2, 0;\n mov.f32 %0, 0f00000000;\n"
                 " @w ld.global.cg.f32 %0, [%1];\n}"
                 : "=&f"(v[0])
                 : "l"(p), "r"((unsigned)wanted)
                 : "memory");
  }
}
template <int VECTOR> __device__ __forceinline__ void load_partial(double (&v)[VECTOR], const double *p, bool wanted) {
  static_assert(VECTOR == 1, "f64 sums come one by one");
  asm volatile("{\n .reg .pred w;\n setp.ne.u32 w, %2, 0;\n mov.f64 %0, 0d0000000000000000;\n"
               " @w ld.global.cg.f64 %0, [%1];\n}"
               : "=&d"(v[0])
               : "l"(p), "r"((unsigned)wanted)
               : "memory");
}

/* Which columns of which slice and plane a tile has. */
struct Tile {
  int64_t slice, first;
  int plane;

  __device__ __forceinline__ void set(const FinishJob &job, int64_t tile, int width) {
    const int64_t row = tile / job.tiles;
    plane = row >= job.slices ? 1 : 0;
    slice = row - plane * job.slices;
    first = (tile - row * job.tiles) * width;
  }
};

/* P: type of the partial sums. Blocks of `columns` x FINISH_THREADS/columns threads; a thread has VECTOR columns. */
template <class P, int VECTOR>
__global__ void __launch_bounds__(FINISH_THREADS, 4) finish_kernel(const __grid_constant__ FinishJob job) {
  __shared__ double sums[FINISH_WARPS][FINISH_COLUMNS * VECTOR];
  const int columns = job.columns, column = (int)threadIdx.x % columns, row = (int)threadIdx.x / columns;
  const int rows = FINISH_THREADS / columns, thread = (int)threadIdx.x, lane = thread & 31;
  const int64_t all = job.tiles * job.slices * job.planes;
  int64_t number = blockIdx.x;
  bool trial = true; /* the first time, without partial sums */
  let_next_start();  /* not after the wait: see start.cuh */
  Tile tile;
  tile.set(job, number, columns * VECTOR);
#pragma unroll 1
  for (;;) {
    const int64_t at = tile.first + column * VECTOR;
    const int64_t shares = trial || at >= job.width ? 0 : job.shares;
    const P *from = static_cast<const P *>(job.partial) +
                    ((tile.plane * job.slices + tile.slice) * job.shares + row) * job.pitch + at;
    double sum[VECTOR] = {};
    int64_t share = row;
#pragma unroll 1
    do {
      P v[FINISH_BATCH][VECTOR];
#pragma unroll
      for (int i = 0; i < FINISH_BATCH; i++) {
        load_partial(v[i], from, share < shares);
        share += rows, from += rows * job.pitch;
      }
#pragma unroll
      for (int i = 0; i < FINISH_BATCH; i++)
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
          sum[j] += (double)v[i][j];
    } while (share < shares);
#pragma unroll
    for (int o = 16; o >= 1; o /= 2)
      if (o >= columns) {
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
          sum[j] += __shfl_xor_sync(whole_warp, sum[j], o);
      }
    if (lane < columns) {
#pragma unroll
      for (int j = 0; j < VECTOR; j++)
        sums[thread / 32][column * VECTOR + j] = sum[j];
    }
    __syncthreads();
    if (thread < columns * VECTOR) {
      double total = 0;
#pragma unroll
      for (int w = 0; w < FINISH_WARPS; w++)
        total += sums[w][thread];
      if (!trial && tile.first + thread < job.width) {
        const int64_t to = tile.slice * job.width + tile.first + thread;
        const rms_dtype type = job.type[tile.plane];
        if (job.add[tile.plane]) total += read_gradient(job.out[tile.plane], to, type);
        write_gradient(job.out[tile.plane], to, type, total);
      }
    }
    if (trial) {
      trial = false;
      wait_for_previous();
    } else {
      number += gridDim.x;
      if (number >= all) break;
      tile.set(job, number, columns * VECTOR);
    }
    __syncthreads();
  }
}

cudaError_t launch_finish(const FinishJob &given, const Device &device, bool overlap, cudaStream_t stream) {
  FinishJob job = given;
  const int vector = job.pitch % 4 == 0 && !job.partial_is_f64 ? 4 : 1;
  const int64_t vectors = (job.width + vector - 1) / vector;
  /* enough blocks to fill the device, as far as there are columns */
  job.columns = FINISH_COLUMNS;
  while (job.columns > 1 && (vectors + job.columns - 1) / job.columns * job.slices * job.planes < 128)
    job.columns /= 2;
  job.tiles = (vectors + job.columns - 1) / job.columns;
  const int64_t tiles = job.tiles * job.slices * job.planes, most = 65536;
  Grid grid = {tiles < most ? tiles : most, FINISH_THREADS, overlap ? (size_t)FINISH_SPREAD : 0};
  void (*kernel)(const FinishJob) = job.partial_is_f64 ? finish_kernel<double, 1>
                                    : vector == 4      ? finish_kernel<float, 4>
                                                       : finish_kernel<float, 1>;
  return launch(kernel, job, grid, 1, overlap, device, stream);
}

} // namespace rms_cuda
