/* SPDX-License-Identifier: MIT
 *
 * Column sums of the backward of aligned rows: dweight and dbias. They are summed over FLAT rows in registers, then
 * over at most DEEP such sums in shared memory, all in f32: no chain is longer than 64. */
#ifndef RMS_CUDA_COLUMNS_CUH
#define RMS_CUDA_COLUMNS_CUH

#include "sum.cuh"

namespace rms_cuda {

/* The sums of a thread's columns. `deep` has one cell of every four columns for each thread, `pitch` apart. */
template <int NV, int V> struct ColumnSums {
  float sum[NV][V];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < NV; i++)
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[i][j] = 0;
  }
  __device__ __forceinline__ void flush(float4 *deep, int pitch, bool add) {
#pragma unroll
    for (int i = 0; i < NV; i++)
#pragma unroll
      for (int c = 0; c < V / 4; c++) {
        float4 *cell = deep + (i * (V / 4) + c) * pitch;
        float4 s = make_float4(sum[i][4 * c], sum[i][4 * c + 1], sum[i][4 * c + 2], sum[i][4 * c + 3]);
        if (add) {
          float4 old = *cell;
          s.x += old.x, s.y += old.y, s.z += old.z, s.w += old.w;
        }
        *cell = s;
      }
    clear();
  }
};

/* The same in shared memory, of rows out of range: cells of a thread, `pitch` apart. */
template <int NV, int V> struct ColumnCells {
  float4 *cells;
  int pitch;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < NV * (V / 4); i++)
      cells[i * pitch] = make_float4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void get(int i, float (&sum)[V]) const {
#pragma unroll
    for (int c = 0; c < V / 4; c++) {
      const float4 s = cells[(i * (V / 4) + c) * pitch];
      sum[4 * c] = s.x, sum[4 * c + 1] = s.y, sum[4 * c + 2] = s.z, sum[4 * c + 3] = s.w;
    }
  }
  __device__ __forceinline__ void set(int i, const float (&sum)[V]) {
#pragma unroll
    for (int c = 0; c < V / 4; c++)
      cells[(i * (V / 4) + c) * pitch] = make_float4(sum[4 * c], sum[4 * c + 1], sum[4 * c + 2], sum[4 * c + 3]);
  }
  /* To the sums of all rows, if there are any yet. */
  __device__ __forceinline__ void flush(float4 *deep, bool add) {
#pragma unroll
    for (int i = 0; i < NV * (V / 4); i++) {
      float4 s = cells[i * pitch];
      if (add) {
        const float4 old = deep[i * pitch];
        s.x += old.x, s.y += old.y, s.z += old.z, s.w += old.w;
      }
      deep[i * pitch] = s;
    }
  }
};

/* Adds the teams of a block, whose cells are at all[.. + which*team + t], and writes the sums of `own` vectors. TAIL:
 * what is beyond a panel belongs to one more warp. */
template <int NV, int Q, bool TAIL>
__device__ __forceinline__ void write_columns(float *to, const float4 *all, int team, int teams, int own) {
  for (int at = (int)threadIdx.x; at < own * Q; at += (int)blockDim.x) {
    const int vector = at / Q, c = at % Q;
    int i = vector / (TAIL ? PANEL / NV : team), t = vector - i * (TAIL ? PANEL / NV : team);
    if (TAIL && vector >= PANEL) i = (vector - PANEL) / 32, t = PANEL / NV + (vector - PANEL) % 32;
    const float4 *cell = all + (i * Q + c) * (int)blockDim.x + t;
    float4 s = *cell;
    if (teams > 1) {
      double x = s.x, y = s.y, z = s.z, w = s.w;
      for (int g = 1; g < teams; g++) {
        s = cell[g * team];
        x += s.x, y += s.y, z += s.z, w += s.w;
      }
      s = make_float4((float)x, (float)y, (float)z, (float)w);
    }
    reinterpret_cast<float4 *>(to)[at] = s;
  }
}

} // namespace rms_cuda

#endif
