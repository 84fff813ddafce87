/* SPDX-License-Identifier: MIT
 *
 * dweight and dbias from the partial sums, in f64 and in a fixed order: each thread adds every ROWS-th partial sum of
 * its column, then the threads of a column are combined as a tree. */
#include "element.cuh"
#include "launch.cuh"

namespace rms_cuda {

enum { FINISH_THREADS = 256 };

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

/* Column j of VECTOR columns from `at` on, of one partial sum. */
template <int VECTOR>
__device__ __forceinline__ void add_columns(double (&sum)[VECTOR], const FinishJob &job, int64_t at) {
  if (job.partial_is_f64) {
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
      sum[j] += static_cast<const double *>(job.partial)[at + j];
  } else if (VECTOR == 4) {
    const float4 v = *reinterpret_cast<const float4 *>(static_cast<const float *>(job.partial) + at);
    sum[0] += (double)v.x, sum[1 % VECTOR] += (double)v.y, sum[2 % VECTOR] += (double)v.z,
        sum[3 % VECTOR] += (double)v.w;
  } else {
    sum[0] += (double)static_cast<const float *>(job.partial)[at];
  }
}

/* Blocks of `columns` x FINISH_THREADS/columns threads; a thread has VECTOR columns. */
template <int VECTOR>
__global__ void __launch_bounds__(FINISH_THREADS) finish_kernel(const __grid_constant__ FinishJob job) {
  __shared__ double sums[VECTOR][FINISH_THREADS];
  const int columns = job.columns, column = (int)threadIdx.x % columns, row = (int)threadIdx.x / columns;
  const int rows = FINISH_THREADS / columns;
  const int64_t tiles = (job.width + columns * VECTOR - 1) / (columns * VECTOR);
  int64_t block = blockIdx.x;
  const int64_t tile = block % tiles;
  block /= tiles;
  const int64_t slice = block % job.slices, plane = block / job.slices;
  const int64_t at = (tile * columns + column) * VECTOR;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  double sum[VECTOR] = {};
  if (at < job.width) {
    const int64_t base = (plane * job.slices + slice) * job.shares * job.width + at;
#pragma unroll 8
    for (int64_t share = row; share < job.shares; share += rows)
      add_columns(sum, job, base + share * job.width);
  }
#pragma unroll
  for (int j = 0; j < VECTOR; j++)
    sums[j][threadIdx.x] = sum[j];
  __syncthreads();
  for (int half = rows / 2; half >= 1; half /= 2) {
    if (row < half) {
#pragma unroll
      for (int j = 0; j < VECTOR; j++)
        sums[j][threadIdx.x] += sums[j][(int)threadIdx.x + half * columns];
    }
    __syncthreads();
  }
  if (row != 0 || at >= job.width) return;
#pragma unroll
  for (int j = 0; j < VECTOR; j++) {
    const int64_t to = slice * job.width + at + j;
    double total = sums[j][threadIdx.x];
    if (job.add[plane]) total += read_gradient(job.out[plane], to, job.type);
    write_gradient(job.out[plane], to, job.type, total);
  }
}

cudaError_t launch_finish(const FinishJob &given, bool overlap, cudaStream_t stream) {
  FinishJob job = given;
  const int vector = job.width % 4 == 0 ? 4 : 1;
  const int64_t groups = (job.width + vector - 1) / vector;
  /* at most eight partial sums a thread, as far as there are threads, and enough blocks to fill the device */
  job.columns = FINISH_THREADS / 2;
  while (job.columns > 4 && FINISH_THREADS / job.columns * 8 < job.shares)
    job.columns /= 2;
  while (job.columns > 4 && (groups + job.columns - 1) / job.columns * job.slices < 128 &&
         FINISH_THREADS / job.columns < job.shares)
    job.columns /= 2;
  Grid grid = {(groups + job.columns - 1) / job.columns * job.slices * job.planes, FINISH_THREADS, 0};
  return launch(vector == 4 ? finish_kernel<4> : finish_kernel<1>, job, grid, 1, overlap, stream);
}

} // namespace rms_cuda
