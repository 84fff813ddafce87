/* SPDX-License-Identifier: MIT
 *
 * The fast forward of rows whose elements lie apart. */
#ifndef RMS_CUDA_APART_FORWARD_CUH
#define RMS_CUDA_APART_FORWARD_CUH

#include "apart_tile.cuh"

namespace rms_cuda {

/* y of a thread's channels, but for wild pixels. */
template <class T, bool LAYER, int CHANNELS>
__device__ __forceinline__ void write_y(RegisterWords<CHANNELS> &x, const Centre<T, LAYER> &centre,
                                        const float (&r)[Word<T>::pixels], const float *gains, const float *biases,
                                        const Rows &y, const TilePlace<T, CHANNELS> &at, bool paired, unsigned wild) {
  constexpr int pixels = Word<T>::pixels;
#pragma unroll
  for (int first = 0; first < CHANNELS; first += 4) {
    __syncwarp(); /* gains are loaded when they are needed: all at once would take twice the registers */
    x.keep(first);
    const Four g(gains + first), b(biases + first);
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float v[pixels];
#pragma unroll
      for (int p = 0; p < pixels; p++)
        v[p] = fused(centre.of(x[first + i], p) * r[p], g.of[i], b.of[i]);
      w[i] = Word<T>::put(v);
    }
    store_words(w, y, at, first, paired, wild);
  }
}

/* y of wild pixels, in place or not: nothing of them has been written. */
template <class T, int CHANNELS>
__device__ __forceinline__ void write_wild(const Rows &x, const Rows &y, const TilePlace<T, CHANNELS> &at,
                                           unsigned wild, const TileRoom<tile_pixels<T>> &room, const float *gains,
                                           const float *biases) {
#pragma unroll 1
  for (int p = 0; p < at.pixels; p++) {
    const double2 exact = room.exact[pixel_of<T>(p)];
#pragma unroll 1
    for (int i = 0; i < at.channels && (wild >> p & 1); i++) {
      const float h = (float)(((double)(float)*element_at(x, at, i, p) - exact.x) * exact.y);
      *element_at(y, at, i, p) = (T)fused(h, gains[i], biases[i]);
    }
  }
}

template <class T, bool LAYER, int CHANNELS>
__global__ void __launch_bounds__(FORWARD_TILE_THREADS(CHANNELS), CHANNELS == 8    ? 4
                                                                  : CHANNELS == 16 ? 2
                                                                                   : 1)
    forward_tile_kernel(const __grid_constant__ TileForward a) {
  extern __shared__ double2 dynamic[];
  using Room = TileRoom<tile_pixels<T>>;
  Room &room = *reinterpret_cast<Room *>(dynamic);
  const rms_forward_job &job = a.job;
  const rms_layout &lay = job.lay;
  const int warps = (int)blockDim.x / 32;
  float *const staged = reinterpret_cast<float *>(reinterpret_cast<char *>(dynamic) + room_bytes<T>(warps, 2));
  stage_gains<T>(staged, lay, warps * CHANNELS);
  stage_bias(staged + warps * CHANNELS, lay, job.bias, warps * CHANNELS);
  const float *const gains = staged + threadIdx.x / 32 * CHANNELS, *const biases = gains + warps * CHANNELS;
  for (unsigned tile = blockIdx.x; tile < a.count; tile += gridDim.x) {
    const TilePlace<T, CHANNELS> at(lay, a.tiles, tile);
    const int start = at.pixel - pixel_of<T>(0), left = (int)lay.inner - start;
    const int64_t statistic = at.outer * lay.inner + start;
    auto save = [&](int pixel, double mean, double r) {
      if (pixel >= left) return;
      if (job.rstd) static_cast<float *>(job.rstd)[statistic + pixel] = (float)r;
      if (job.mean) static_cast<float *>(job.mean)[statistic + pixel] = (float)mean;
    };
    RegisterWords<CHANNELS> x;
    load_words(x.w, job.x, at, 0, a.paired);
    Centre<T, LAYER> centre;
    const bool some_wild =
        measure_tile(centre, x, at.channels, room, a.width, a.eps, save); /* its barriers follow the staging */
    float r[Word<T>::pixels];
    unsigned wild = 0;
#pragma unroll
    for (int p = 0; p < Word<T>::pixels; p++) {
      r[p] = room.r[pixel_of<T>(p)];
      if (!(r[p] == r[p])) wild |= 1u << p;
    }
    if (job.y.data) write_y(x, centre, r, gains, biases, job.y, at, a.paired, wild);
    if (!some_wild) continue;
    measure_wild<T, LAYER>(job.x, at, wild, room, a.width, a.eps, [&](int pixel, double mean, double of_pixel) {
      if (!(room.r[pixel] == room.r[pixel])) save(pixel, mean, of_pixel);
    });
    if (job.y.data) write_wild(job.x, job.y, at, wild, room, gains, biases);
  }
}

} // namespace rms_cuda

#endif
