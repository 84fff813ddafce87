/* SPDX-License-Identifier: MIT
 *
 * The fast backward of rows whose elements lie apart. With u = dy*gain, e = x - mean and h = e*r:
 * RMSNorm:   dx = u*r - e*c,                  c = sum(u*e)*r^3/width;
 * LayerNorm: dx = r*((u - mean(u)) - h*mean(u*h)). */
#ifndef RMS_CUDA_APART_BACKWARD_CUH
#define RMS_CUDA_APART_BACKWARD_CUH

#include "apart_tile.cuh"

namespace rms_cuda {

/* What a pixel has, in registers. */
template <class T, bool LAYER> struct TilePixels {
  Centre<T, LAYER> centre;
  float r[Word<T>::pixels];
};

/* Sums over channels: of u*e or u*h, of u, and the largest of |u|, |dy| and |e|; for each pixel of a word. */
template <int PIXELS> struct TileSums {
  float ue[PIXELS], u[PIXELS], most_u[PIXELS], most_dy[PIXELS], most_e[PIXELS];
  __device__ __forceinline__ TileSums operator+(const TileSums &b) const {
    TileSums sum;
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
      sum.ue[p] = ue[p] + b.ue[p], sum.u[p] = u[p] + b.u[p];
      sum.most_u[p] = fmaxf(most_u[p], b.most_u[p]), sum.most_dy[p] = fmaxf(most_dy[p], b.most_dy[p]);
      sum.most_e[p] = fmaxf(most_e[p], b.most_e[p]);
    }
    return sum;
  }
};

/* ---- sums over the pixels ---- */

/* v[i] summed over the warp, in the lanes i*4 .. i*4+3. Each step halves the channels that a lane has. */
__device__ __forceinline__ float sum_pixels(float (&v)[8]) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int half = 4, step = 16; half >= 1; half /= 2, step /= 2)
#pragma unroll
    for (int i = 0; i < half; i++) {
      const bool upper = (lane & step) != 0;
      const float sent = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
      v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, step);
    }
  v[0] += __shfl_xor_sync(0xffffffffu, v[0], 2);
  return v[0] + __shfl_xor_sync(0xffffffffu, v[0], 1);
}

__device__ __forceinline__ double sum_pixels_exactly(double v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

/* ---- the factors ---- */

template <class T, bool LAYER, int CHANNELS>
__device__ __forceinline__ void leave_sums(const SharedWords<CHANNELS> &dy, const SharedWords<CHANNELS> &x,
                                           const TilePixels<T, LAYER> &of, const float *gains,
                                           TileRoom<tile_pixels<T>> &room) {
  constexpr int pixels = Word<T>::pixels;
  const TileSums<pixels> sums = tree_sum<TileSums<pixels>, CHANNELS>([&](int first) {
    __syncwarp(); /* words and gains are loaded when they are needed: all at once would take too many registers */
    const Four g(gains + first);
    TileSums<pixels> leaf = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t of_dy = dy[first + i], of_x = x[first + i];
#pragma unroll
      for (int p = 0; p < pixels; p++) {
        const float d = Word<T>::get(of_dy, p), u = d * g.of[i];
        const float e = of.centre.of(of_x, p), z = LAYER ? e * of.r[p] : e;
        leaf.ue[p] = fused(u, z, leaf.ue[p]);
        if (LAYER) leaf.u[p] += u;
        leaf.most_u[p] = fmaxf(leaf.most_u[p], fabsf(u));
        leaf.most_dy[p] = fmaxf(leaf.most_dy[p], fabsf(d));
        if (LAYER) leaf.most_e[p] = fmaxf(leaf.most_e[p], fabsf(e));
      }
    }
    return leaf;
  });
#pragma unroll
  for (int p = 0; p < pixels; p++) {
    const int slot = slot_of<T>(p);
    room.left(0)[slot] = sums.ue[p];
    if (LAYER) room.left(1)[slot] = sums.u[p];
    room.left(2)[slot] = sums.most_u[p];
    room.left(3)[slot] = sums.most_dy[p];
    if (LAYER) room.left(4)[slot] = sums.most_e[p];
  }
}

/* The sums over the warps of what they left for a pixel: in the order of across_warps(), all planes at once. */
template <int PIXELS, bool LAYER> struct SumsOfWarps {
  double ue, u;
  float most[3];

  __device__ __forceinline__ SumsOfWarps(TileRoom<PIXELS> &room, int pixel) : most{0, 0, 0} {
    const int warps = (int)blockDim.x / 32;
    double of_ue[4] = {}, of_u[4] = {};
    auto add = [&](int w, int i) {
      const int slot = w * PIXELS + pixel;
      of_ue[i] += (double)room.left(0)[slot];
      if (LAYER) of_u[i] += (double)room.left(1)[slot];
#pragma unroll
      for (int m = 0; m < (LAYER ? 3 : 2); m++)
        most[m] = fmaxf(most[m], room.left(2 + m)[slot]);
    };
    int w = 0;
#pragma unroll 1
    for (; w + 4 <= warps; w += 4)
#pragma unroll
      for (int i = 0; i < 4; i++)
        add(w + i, i);
#pragma unroll 1
    for (; w < warps; w++)
      add(w, 0);
    ue = (of_ue[0] + of_ue[1]) + (of_ue[2] + of_ue[3]);
    u = (of_u[0] + of_u[1]) + (of_u[2] + of_u[3]);
  }
};

/* room.factor from the sums; NaN where the pixel is wild. True if some pixel of the thread is. */
template <int PIXELS, bool LAYER>
__device__ __forceinline__ bool find_factors(TileRoom<PIXELS> &room, const Width &width) {
  bool wild = false;
  each_pixel<PIXELS>([&](int pixel) {
    const SumsOfWarps<PIXELS, LAYER> sums(room, pixel);
    const double ue = sums.ue, us = sums.u, r = room.r[pixel];
    const bool tame = (r == 0 || (r >= 0x1p-32 && r <= 0x1p32)) && fabs(ue) <= 0x1p120 && fabs(us) <= 0x1p120 &&
                      is_tame(sums.most[0]) && is_tame(sums.most[1]) && is_tame(sums.most[2]);
    float2 factor = make_float2((float)width.divided(ue), (float)width.divided(us));
    if (!LAYER) factor.x = (float)width.divided(ue * (r * r * r));
    if (!tame) factor.x = NAN;
    room.factor[pixel] = factor;
    wild = wild || !tame;
  });
  return wild;
}

/* room.factors in f64 from memory: dx = u*r - y - e*x. */
template <class T, bool LAYER, int CHANNELS>
__device__ __forceinline__ void find_wild_factors(const TileBackward &a, const TilePlace<T, CHANNELS> &at,
                                                  unsigned wild, const float *gains, TileRoom<tile_pixels<T>> &room) {
  constexpr int pixels = tile_pixels<T>;
  const rms_backward_job &job = a.job;
  const Width &width = a.width;
#pragma unroll 1
  for (int p = 0; p < Word<T>::pixels; p++) {
    const double mean = room.exact[pixel_of<T>(p)].x;
    double ue = 0, us = 0;
#pragma unroll 1
    for (int i = 0; i < at.channels && (wild >> p & 1); i++) {
      const double u = (double)(float)*element_at(job.dy, at, i, p) * (double)gains[i];
      ue += u * ((double)(float)*element_at(job.x, at, i, p) - mean), us += u;
    }
    room.left_exactly(0)[slot_of<T>(p)] = ue;
    room.left_exactly(1)[slot_of<T>(p)] = us;
  }
  __syncthreads();
  each_pixel<pixels>([&](int pixel) {
    const double ue = across_warps<pixels>(room.left_exactly(0), pixel), r = room.exact[pixel].y;
    const double us = LAYER ? across_warps<pixels>(room.left_exactly(1), pixel) : 0;
    room.factors[pixel] = make_double2(width.divided(ue * (r * r * r)), LAYER ? width.divided(r * us) : 0);
  });
  __syncthreads();
}

/* ---- the gradients ---- */

/* dx of a thread's channels, and the column sums of the tile, which are added to `sums`: dweight's, then dbias's. A
 * place there belongs to one lane. Wild pixels have been made zeros. */
template <class T, bool LAYER, int CHANNELS>
__device__ __forceinline__ void write_gradients(const TileBackward &a, const SharedWords<CHANNELS> &dy,
                                                const SharedWords<CHANNELS> &x, const TilePixels<T, LAYER> &of,
                                                const float2 (&factor)[Word<T>::pixels], const float *gains,
                                                double *sums, const TilePlace<T, CHANNELS> &at, unsigned wild) {
  constexpr int pixels = Word<T>::pixels;
  const int lane = (int)threadIdx.x % 32, plane = (int)blockDim.x / 32 * CHANNELS;
#pragma unroll 1
  for (int first = 0; first < CHANNELS; first += 8) {
    float to_weight[8], to_bias[8];
    uint32_t w[8];
    if (a.job.add_to_dx) load_words(w, a.job.dx, at, first, a.paired);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const uint32_t of_dy = dy[first + i], of_x = x[first + i];
      const float g = gains[first + i];
      float v[pixels];
      to_weight[i] = to_bias[i] = 0;
#pragma unroll
      for (int p = 0; p < pixels; p++) {
        const float d = Word<T>::get(of_dy, p), u = d * g, e = of.centre.of(of_x, p), h = e * of.r[p];
        v[p] = LAYER ? of.r[p] * fused(-h, factor[p].x, u - factor[p].y) : fused(-e, factor[p].x, u * of.r[p]);
        if (a.job.add_to_dx) v[p] += Word<T>::get(w[i], p);
        to_weight[i] += d * h, to_bias[i] += d;
      }
      w[i] = Word<T>::put(v);
    }
    if (a.job.dx.data) store_words(w, a.job.dx, at, first, a.paired, wild);
    double *const column = sums + at.channel + first + lane / 4;
    if (a.want_dweight) {
      const float sum = sum_pixels(to_weight);
      if (lane % 4 == 0) column[0] += (double)sum;
    }
    if (a.want_dbias) {
      const float sum = sum_pixels(to_bias);
      if (lane % 4 == 0) column[plane] += (double)sum;
    }
  }
}

/* The same of wild pixels, in place or not: nothing of them has been written. All lanes of a warp come along. */
template <class T, int CHANNELS>
__device__ __forceinline__ void write_wild(const TileBackward &a, const TilePlace<T, CHANNELS> &at, unsigned wild,
                                           const TileRoom<tile_pixels<T>> &room, const float *gains, double *sums) {
  const int lane = (int)threadIdx.x % 32, plane = (int)blockDim.x / 32 * CHANNELS;
#pragma unroll 1
  for (int i = 0; i < CHANNELS; i++) {
    double to_weight = 0, to_bias = 0;
#pragma unroll 1
    for (int p = 0; p < at.pixels; p++) {
      if (i >= at.channels || !(wild >> p & 1)) continue;
      const double2 exact = room.exact[pixel_of<T>(p)], factors = room.factors[pixel_of<T>(p)];
      const double d = (double)(float)*element_at(a.job.dy, at, i, p);
      const double e = (double)(float)*element_at(a.job.x, at, i, p) - exact.x;
      double dx = d * (double)gains[i] * exact.y - factors.y - e * factors.x;
      to_weight += d * (double)(float)(e * exact.y), to_bias += d;
      if (a.job.add_to_dx) dx += (double)(float)*element_at(a.job.dx, at, i, p);
      if (a.job.dx.data) *element_at(a.job.dx, at, i, p) = (T)(float)dx;
    }
    to_weight = sum_pixels_exactly(to_weight), to_bias = sum_pixels_exactly(to_bias);
    if (lane != i % 8 * 4) continue; /* the lane that has the channel in write_gradients */
    sums[at.channel + i] += to_weight;
    sums[plane + at.channel + i] += to_bias;
  }
}

/* ---- the kernel ---- */

/* The factors of the thread's pixels. Wild ones become zeros in everything; their bits are returned. */
template <class T, bool LAYER, int CHANNELS>
__device__ __forceinline__ unsigned leave_out_wild(const SharedWords<CHANNELS> &dy, const SharedWords<CHANNELS> &x,
                                                   TilePixels<T, LAYER> &of, float2 (&factor)[Word<T>::pixels],
                                                   const TileRoom<tile_pixels<T>> &room) {
  unsigned wild = 0;
#pragma unroll
  for (int p = 0; p < Word<T>::pixels; p++) {
    factor[p] = room.factor[pixel_of<T>(p)];
    if (factor[p].x == factor[p].x) continue;
    wild |= 1u << p;
    factor[p] = make_float2(0, 0);
    of.r[p] = of.centre.high[p] = of.centre.low[p] = 0;
    const uint32_t others = Word<T>::pixels == 1 ? 0 : p == 0 ? 0xffff0000u : 0x0000ffffu;
#pragma unroll 1
    for (int i = 0; i < CHANNELS; i++)
      dy.cell(i) &= others, x.cell(i) &= others;
  }
  return wild;
}

/* The statistic of a tile's pixels, as it was saved. */
template <class T, bool LAYER, int CHANNELS>
__device__ __forceinline__ void load_statistic(TilePixels<T, LAYER> &of, const rms_backward_job &job,
                                               const TilePlace<T, CHANNELS> &at, TileRoom<tile_pixels<T>> &room) {
  const int64_t statistic = at.outer * job.lay.inner + at.pixel;
#pragma unroll
  for (int p = 0; p < Word<T>::pixels; p++) {
    of.r[p] = p < at.pixels ? static_cast<const float *>(job.rstd)[statistic + p] : 0;
    of.centre.high[p] = LAYER && p < at.pixels ? static_cast<const float *>(job.mean)[statistic + p] : 0;
    of.centre.low[p] = 0;
    if (threadIdx.x < 32) {
      room.r[pixel_of<T>(p)] = of.r[p];
    }
  }
}

/* The next tile is asked for before a tile is worked on where there is room for two, and afterwards otherwise. */
template <class T, bool LAYER, int CHANNELS>
__global__ void __launch_bounds__(BACKWARD_TILE_THREADS(CHANNELS), BACKWARD_TILE_BLOCKS(CHANNELS))
    backward_tile_kernel(const __grid_constant__ TileBackward a) {
  extern __shared__ double2 dynamic[];
  using Room = TileRoom<tile_pixels<T>>;
  Room &room = *reinterpret_cast<Room *>(dynamic);
  const rms_backward_job &job = a.job;
  const rms_layout &lay = job.lay;
  const int warps = (int)blockDim.x / 32, columns = warps * CHANNELS;
  double *const sums =
      reinterpret_cast<double *>(reinterpret_cast<char *>(dynamic) + room_bytes<T>(warps, TILE_PLANES));
  float *const all_gains = reinterpret_cast<float *>(sums + 2 * columns);
  const float *const gains = all_gains + threadIdx.x / 32 * CHANNELS;
  uint32_t *const cells = reinterpret_cast<uint32_t *>(all_gains + columns) + threadIdx.x;
  auto words = [&](int stage, int stream) -> SharedWords<CHANNELS> {
    return {cells + (stage * 2 + stream) * CHANNELS * (int)blockDim.x};
  };
  const unsigned first = (unsigned)((uint64_t)a.count * blockIdx.x / gridDim.x);
  const unsigned last = (unsigned)((uint64_t)a.count * (blockIdx.x + 1) / gridDim.x);
  auto request = [&](unsigned tile, int stage) {
    if (tile < last) {
      const TilePlace<T, CHANNELS> at(lay, a.tiles, tile);
      request_words(words(stage, 0), job.x, at, a.paired);
      request_words(words(stage, 1), job.dy, at, a.paired);
    }
    end_of_copies();
  };
  request(first, 0);
  stage_gains<T>(all_gains, lay, columns);
  for (int j = (int)threadIdx.x; j < 2 * columns; j += (int)blockDim.x)
    sums[j] = 0;
  __syncthreads();
  int stage = 0;
  for (unsigned tile = first; tile < last; tile++) {
    const TilePlace<T, CHANNELS> at(lay, a.tiles, tile);
    SharedWords<CHANNELS> x = words(stage, 0), dy = words(stage, 1);
    if (a.stages == 2) {
      request(tile + 1, stage ^ 1);
      wait_for_stage(2);
    } else {
      if (tile + 1 < last) {
        prefetch_words<T, CHANNELS>(job.x, lay, a.tiles, tile + 1);
        prefetch_words<T, CHANNELS>(job.dy, lay, a.tiles, tile + 1);
      }
      wait_for_all_copies();
    }
    TilePixels<T, LAYER> of;
    if (a.saved) {
      load_statistic(of, job, at, room);
    } else {
      measure_tile(of.centre, x, at.channels, room, a.width, a.eps, [](int, float, float) {});
#pragma unroll
      for (int p = 0; p < Word<T>::pixels; p++)
        of.r[p] = room.r[pixel_of<T>(p)];
    }
    leave_sums(dy, x, of, gains, room);
    __syncthreads();
    const bool some_wild = __syncthreads_or(find_factors<tile_pixels<T>, LAYER>(room, a.width));
    float2 factor[Word<T>::pixels];
    /* of pixels that there are: a tiny eps makes the r of a missing one too large */
    const unsigned wild = leave_out_wild(dy, x, of, factor, room) & ((1u << at.pixels) - 1);
    write_gradients(a, dy, x, of, factor, gains, sums, at, wild);
    if (some_wild) {
      /* also where they were saved: small numbers have lost digits there */
      measure_wild<T, LAYER>(job.x, at, wild, room, a.width, a.eps, [](int, double, double) {});
      find_wild_factors<T, LAYER>(a, at, wild, gains, room);
      write_wild(a, at, wild, room, gains, sums);
      __syncthreads(); /* the next tile's saved statistics go where these are read */
    }
    if (a.stages == 2)
      stage ^= 1;
    else
      request(tile + 1, 0);
  }
  __syncthreads();
  double *to = a.partial + (int64_t)blockIdx.x * lay.width;
  const int64_t plane = (int64_t)a.shares * lay.width;
  for (int share = (int)blockIdx.x; share < a.shares; share += (int)gridDim.x) { /* zeros where there is no block */
    const bool own = share == (int)blockIdx.x;
    for (int j = (int)threadIdx.x; j < lay.width; j += (int)blockDim.x) {
      if (a.want_dweight) to[j] = own ? sums[j] : 0;
      if (a.want_dbias) to[(a.want_dweight ? plane : 0) + j] = own ? sums[columns + j] : 0;
    }
    to += gridDim.x * lay.width;
  }
}

} // namespace rms_cuda

#endif
