/* SPDX-License-Identifier: MIT
 *
 * The fast kernels for rows whose elements lie apart: what forward and backward share. They take the common call:
 * images with channels first, one type for all tensors, at most a weight and a bias.
 *
 * A block has a tile of pixels that lie next to each other. A lane has one pixel of f32, or two neighbours of a 16-bit
 * type, which are one word; a warp has CHANNELS neighbouring channels, and keeps their words in registers. Sums over
 * the channels are f32 within a thread, in a tree, and f64 across the warps.
 *
 * A pixel whose sums may leave the range of f32 is wild. It is left out, and done in f64 from memory after the others
 * of its tile: the bits of a pixel do not depend on what lies beside it. */
#ifndef RMS_CUDA_APART_TILE_CUH
#define RMS_CUDA_APART_TILE_CUH

#include "apart.h"
#include "copies.cuh"
#include "statistic.cuh"

namespace rms_cuda {

/* ---- words ---- */

/* A word of a channel: `pixels` neighbours. */
template <class T> struct Word;
template <> struct Word<float> {
  static constexpr int pixels = 1;
  static __device__ __forceinline__ float get(uint32_t w, int) { return __uint_as_float(w); }
  static __device__ __forceinline__ uint32_t put(const float (&v)[1]) { return __float_as_uint(v[0]); }
};
template <> struct Word<__nv_bfloat16> {
  static constexpr int pixels = 2;
  static __device__ __forceinline__ float get(uint32_t w, int p) {
    return __uint_as_float(p == 0 ? w << 16 : w & 0xffff0000u);
  }
  static __device__ __forceinline__ uint32_t put(const float (&v)[2]) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(v[0])) | (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(v[1]))
                                                                 << 16;
  }
};
template <> struct Word<__half> {
  static constexpr int pixels = 2;
  static __device__ __forceinline__ float get(uint32_t w, int p) {
    return __half2float(__ushort_as_half((unsigned short)(p == 0 ? w : w >> 16)));
  }
  static __device__ __forceinline__ uint32_t put(const float (&v)[2]) {
    return __half_as_ushort(__float2half_rn(v[0])) | (uint32_t)__half_as_ushort(__float2half_rn(v[1])) << 16;
  }
};

template <class T> constexpr int tile_pixels = 32 * Word<T>::pixels;

/* ---- where things are ---- */

/* What a thread has of a tile. */
template <class T, int CHANNELS> struct TilePlace {
  int outer, pixel, channel; /* the first that it has                          */
  int channels, pixels;      /* of them that there are: both are 0, or neither */

  __device__ __forceinline__ TilePlace(const rms_layout &lay, unsigned tiles, unsigned tile) {
    const unsigned image = tile / tiles, lane = threadIdx.x % 32;
    outer = (int)image;
    pixel = (int)((tile - image * tiles) * tile_pixels<T> + lane * Word<T>::pixels);
    channel = (int)(threadIdx.x / 32) * CHANNELS;
    const int left = (int)lay.inner - pixel, below = (int)lay.width - channel;
    pixels = left <= 0 || below <= 0 ? 0 : left < Word<T>::pixels ? left : Word<T>::pixels;
    channels = pixels == 0 ? 0 : below < CHANNELS ? below : CHANNELS;
  }
  __device__ __forceinline__ char *at(const Rows &rows) const {
    return rows.data + outer * rows.outer + (int64_t)pixel * (int)sizeof(T) + channel * rows.col;
  }
};

/* A distance that the compiler makes no tables of: they would take the registers of the words. */
__device__ __forceinline__ int64_t plain_step(int64_t step) {
  asm volatile("" : "+l"(step));
  return step;
}

/* COUNT words from channel `first` of the thread on, all asked for before the first is used; zeros where there is
 * nothing. `paired`: two pixels are one aligned word, and both are there or none. */
template <int COUNT, class T, int CHANNELS>
__device__ __forceinline__ void load_words(uint32_t (&w)[COUNT], const Rows &rows, const TilePlace<T, CHANNELS> &at,
                                           int first, bool paired) {
  const int64_t step = plain_step(rows.col);
  const char *p = at.at(rows) + first * step;
  if (Word<T>::pixels == 1 || paired) {
#pragma unroll
    for (int i = 0; i < COUNT; i++, p += step)
      w[i] = first + i < at.channels ? __ldcs(reinterpret_cast<const uint32_t *>(p)) : 0;
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++, p += step) {
      const bool there = first + i < at.channels;
      const uint32_t low = there ? reinterpret_cast<const uint16_t *>(p)[0] : 0;
      const uint32_t high = there && at.pixels == 2 ? reinterpret_cast<const uint16_t *>(p)[1] : 0;
      w[i] = low | high << 16;
      if (i % 4 == 3) asm volatile("" ::: "memory"); /* all at once would take twice the registers */
    }
  }
}

/* The same of stores. wild: bits of the pixels that are left out. */
template <int COUNT, class T, int CHANNELS>
__device__ __forceinline__ void store_words(const uint32_t (&w)[COUNT], const Rows &rows,
                                            const TilePlace<T, CHANNELS> &at, int first, bool paired, unsigned wild) {
  const int64_t step = plain_step(rows.col);
  char *p = at.at(rows) + first * step;
  if (Word<T>::pixels == 1 || (paired && wild == 0)) {
#pragma unroll
    for (int i = 0; i < COUNT; i++, p += step)
      if (first + i < at.channels && wild == 0) __stcs(reinterpret_cast<uint32_t *>(p), w[i]);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++, p += step) {
      if (first + i >= at.channels) continue;
      if ((wild & 1) == 0) reinterpret_cast<uint16_t *>(p)[0] = (uint16_t)w[i];
      if (at.pixels == 2 && (wild & 2) == 0) reinterpret_cast<uint16_t *>(p)[1] = (uint16_t)(w[i] >> 16);
    }
  }
}

/* One element: pixel p of channel i of the thread. */
template <class T, int CHANNELS>
__device__ __forceinline__ T *element_at(const Rows &rows, const TilePlace<T, CHANNELS> &at, int i, int p) {
  return reinterpret_cast<T *>(at.at(rows) + i * rows.col) + p;
}

/* The words of a thread's channels, in registers. */
template <int CHANNELS> struct RegisterWords {
  uint32_t w[CHANNELS];
  __device__ __forceinline__ uint32_t operator[](int i) const { return w[i]; }
  /* Keeps the compiler from unpacking four words before they are needed, or once for all their uses: that would double
   * the registers they take. */
  __device__ __forceinline__ void keep(int first) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      asm volatile("" : "+r"(w[first + i]));
  }
};

/* The same in shared memory: cells that nobody else touches, side by side with those of the other threads. */
template <int CHANNELS> struct SharedWords {
  uint32_t *cells;
  __device__ __forceinline__ uint32_t &cell(int i) const { return cells[i * (int)blockDim.x]; }
  __device__ __forceinline__ uint32_t operator[](int i) const { return cell(i); }
  __device__ __forceinline__ void keep(int) {}
};

/* Asks for the words of a tile; two pixels that are not one aligned word have to be waited for. */
template <class T, int CHANNELS>
__device__ __forceinline__ void request_words(const SharedWords<CHANNELS> &to, const Rows &rows,
                                              const TilePlace<T, CHANNELS> &at, bool paired) {
  if (Word<T>::pixels == 1 || paired) {
    const int64_t step = plain_step(rows.col);
    const char *p = at.channels > 0 ? at.at(rows) : rows.data;
#pragma unroll 4
    for (int i = 0; i < CHANNELS; i++) {
      copy_word_ahead(reinterpret_cast<float *>(&to.cell(i)), reinterpret_cast<const float *>(p),
                      i < at.channels ? 4 : 0);
      if (i + 1 < at.channels) p += step;
    }
  } else {
#pragma unroll 1
    for (int first = 0; first < CHANNELS; first += 8) {
      uint32_t w[8];
      load_words(w, rows, at, first, false);
#pragma unroll
      for (int i = 0; i < 8; i++)
        to.cell(first + i) = w[i];
    }
  }
}

/* Brings what a warp will have of another tile to L2, a channel for each lane. */
template <class T, int CHANNELS>
__device__ __forceinline__ void prefetch_words(const Rows &rows, const rms_layout &lay, unsigned tiles, unsigned tile) {
  const unsigned image = tile / tiles;
  const int pixel = (int)((tile - image * tiles) * tile_pixels<T>), left = (int)lay.inner - pixel;
  const int channel = (int)(threadIdx.x / 32) * CHANNELS;
  const char *p = rows.data + image * rows.outer + (int64_t)pixel * (int)sizeof(T);
#pragma unroll
  for (int i = (int)(threadIdx.x % 32); i < CHANNELS; i += 32) {
    if (channel + i >= lay.width) continue;
    const char *line = p + (channel + i) * rows.col; /* the first pixel and the last may lie in two lines */
    prefetch_line(line);
    prefetch_line(line + ((left < tile_pixels<T> ? left : tile_pixels<T>)-1) * (int)sizeof(T));
  }
}

/* ---- weight and bias ---- */

__device__ __forceinline__ float parameter_of(const char *p, int64_t j, rms_dtype type) {
  if (type == RMS_F32) return reinterpret_cast<const float *>(p)[j];
  const uint16_t bits = reinterpret_cast<const uint16_t *>(p)[j];
  return type == RMS_BF16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}

/* Weight + offset in f32, 1 where there is none, and 0 beyond the channels. */
template <class T> __device__ __forceinline__ void stage_gains(float *to, const rms_layout &lay, int count) {
  const rms_dtype type = lay.weight_is_f32 ? RMS_F32 : lay.dtype;
  for (int j = (int)threadIdx.x; j < count; j += (int)blockDim.x) {
    float g[1] = {j < lay.width ? 1.0f : 0.0f};
    if (lay.weight && j < lay.width) {
      g[0] = parameter_of(lay.weight, j, type);
      if (lay.offset != 0) g[0] += (float)lay.offset;
      if (lay.gain_as_weight && !lay.weight_is_f32) {
        const float both[Word<T>::pixels] = {g[0]};
        g[0] = Word<T>::get(Word<T>::put(both), 0);
      }
    }
    to[j] = g[0];
  }
}

/* The bias, or -0, which changes nothing that it is added to. */
__device__ __forceinline__ void stage_bias(float *to, const rms_layout &lay, const char *bias, int count) {
  const rms_dtype type = lay.weight_is_f32 ? RMS_F32 : lay.dtype;
  for (int j = (int)threadIdx.x; j < count; j += (int)blockDim.x)
    to[j] = bias && j < lay.width ? parameter_of(bias, j, type) : -0.0f;
}

/* Four neighbours of a staged array. */
struct Four {
  float of[4];
  __device__ __forceinline__ explicit Four(const float *from) {
    const float4 v = *reinterpret_cast<const float4 *>(from);
    of[0] = v.x, of[1] = v.y, of[2] = v.z, of[3] = v.w;
  }
};

/* ---- sums ---- */

/* The sum of what leaf(first) makes of four channels each, as a tree. */
template <class R, int CHANNELS, class F> __device__ __forceinline__ R tree_sum(F leaf, int first = 0) {
  if constexpr (CHANNELS == 4)
    return leaf(first);
  else
    return tree_sum<R, CHANNELS / 2>(leaf, first) + tree_sum<R, CHANNELS / 2>(leaf, first + CHANNELS / 2);
}

/* The sum over the warps of what they left for a pixel. */
template <int PIXELS, class R> __device__ __forceinline__ double across_warps(const R *left, int pixel) {
  const int warps = (int)blockDim.x / 32;
  double sum[4] = {};
  int w = 0;
#pragma unroll 1
  for (; w + 4 <= warps; w += 4)
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[i] += (double)left[(w + i) * PIXELS + pixel];
#pragma unroll 1
  for (; w < warps; w++)
    sum[0] += (double)left[w * PIXELS + pixel];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Zero, or so far from both ends of the range that squares, products and their sums have all their digits. */
__device__ __forceinline__ bool is_tame(double size) {
  return size == 0 || (size >= 0x1p-60 && size <= 0x1p60);
}

/* 1/sqrt(m), 0 for m = 0, good to a unit or two of f64. m is not subnormal. Without a call, as sqrt would be: one costs
 * the registers of the words. */
__device__ __forceinline__ double inverse_root(double m) {
  if (!(m <= 0x1p1000)) return m > 0 ? 0 : m;
  if (m == 0) return 0;
  const int e = exponent_of(m) & ~1;
  const double f = m * power_of_two(-e); /* in [1, 4) */
  double y = (double)rsqrtf((float)f);
#pragma unroll
  for (int i = 0; i < 2; i++)
    y *= fused(-0.5 * f * y, y, 1.5);
  return y * power_of_two(-e / 2);
}

/* ---- the statistic ---- */

/* In shared memory. `left` has a plane of [warp][pixel] for each sum. */
template <int PIXELS> struct TileRoom {
  double2 exact[PIXELS];   /* mean, r of wild pixels             */
  double2 factors[PIXELS]; /* of a backward, of wild pixels      */
  float2 mean[PIXELS];     /* high and low part                  */
  float2 factor[PIXELS];   /* of a backward                      */
  float r[PIXELS];         /* NaN: the pixel is wild             */

  __device__ __forceinline__ float *left(int plane) {
    return reinterpret_cast<float *>(this + 1) + plane * (int)(blockDim.x / 32) * PIXELS;
  }
  __device__ __forceinline__ double *left_exactly(int plane) {
    return reinterpret_cast<double *>(this + 1) + plane * (int)(blockDim.x / 32) * PIXELS;
  }
};

/* Bytes of the room before the staged arrays: `planes` of f32, or half as many of f64. */
template <class T> __host__ __device__ constexpr size_t room_bytes(int warps, int planes) {
  return sizeof(TileRoom<tile_pixels<T>>) + (size_t)planes * warps * tile_pixels<T> * sizeof(float);
}

/* x - mean of the pixels of a thread. RMSNorm has no mean. */
template <class T, bool LAYER> struct Centre {
  float high[Word<T>::pixels], low[Word<T>::pixels];
  __device__ __forceinline__ float of(uint32_t w, int p) const {
    const float v = Word<T>::get(w, p);
    return LAYER ? (v - high[p]) - low[p] : v;
  }
};

template <int PIXELS, class F> __device__ __forceinline__ void each_pixel(F f) {
#pragma unroll 1
  for (int pixel = (int)threadIdx.x; pixel < PIXELS; pixel += (int)blockDim.x)
    f(pixel);
}

/* Place of a thread's pixel in a plane of sums, and in the tile. */
template <class T> __device__ __forceinline__ int pixel_of(int p) {
  return (int)(threadIdx.x % 32) * Word<T>::pixels + p;
}
template <class T> __device__ __forceinline__ int slot_of(int p) {
  return (int)(threadIdx.x / 32) * tile_pixels<T> + pixel_of<T>(p);
}

template <class T, template <int> class Words, int CHANNELS>
__device__ __forceinline__ void find_mean(Centre<T, true> &centre, Words<CHANNELS> &x, TileRoom<tile_pixels<T>> &room,
                                          const Width &width) {
  constexpr int pixels = Word<T>::pixels;
#pragma unroll
  for (int p = 0; p < pixels; p++) {
    room.left(0)[slot_of<T>(p)] = tree_sum<float, CHANNELS>([&](int first) {
      x.keep(first);
      return ((Word<T>::get(x[first], p) + Word<T>::get(x[first + 1], p)) + Word<T>::get(x[first + 2], p)) +
             Word<T>::get(x[first + 3], p);
    });
  }
  __syncthreads();
  each_pixel<tile_pixels<T>>([&](int pixel) {
    const double mean = width.divided(across_warps<tile_pixels<T>>(room.left(0), pixel));
    const float high = (float)mean;
    room.mean[pixel] = make_float2(high, (float)(mean - high));
  });
  __syncthreads();
#pragma unroll
  for (int p = 0; p < pixels; p++) {
    const float2 mean = room.mean[pixel_of<T>(p)];
    centre.high[p] = mean.x, centre.low[p] = mean.y;
  }
}

/* The sum of squares of a thread's channels. One that vanished though its terms are not zero is the smallest normal
 * number: enough to tell, and nothing beside a sum that is tame. */
template <class T, bool LAYER, template <int> class Words, int CHANNELS>
__device__ __forceinline__ float squares_of(const Centre<T, LAYER> &centre, Words<CHANNELS> &x, int channels, int p) {
  const float sum = tree_sum<float, CHANNELS>([&](int first) {
    float leaf = 0;
    x.keep(first);
#pragma unroll
    for (int i = first; i < first + 4; i++) {
      const float e = centre.of(x[i], p);
      if (!LAYER || i < channels) leaf = fused(e, e, leaf);
    }
    return leaf;
  });
  if (sum != 0) return sum;
  float most = 0;
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) {
    if (i % 4 == 0) x.keep(i);
    if (!LAYER || i < channels) most = fmaxf(most, fabsf(centre.of(x[i], p)));
  }
  return most == 0 ? 0 : 0x1p-126f;
}

/* Mean and r of the pixels of a tile, in `room` and, the mean, in `centre`. True for all threads if some pixel is wild.
 * done(pixel, mean, r): called once for each pixel that is not. */
template <class T, bool LAYER, template <int> class Words, int CHANNELS, class F>
__device__ __forceinline__ bool measure_tile(Centre<T, LAYER> &centre, Words<CHANNELS> &x, int channels,
                                             TileRoom<tile_pixels<T>> &room, const Width &width, float eps, F done) {
  if constexpr (LAYER) find_mean(centre, x, room, width);
#pragma unroll
  for (int p = 0; p < Word<T>::pixels; p++)
    room.left(0)[slot_of<T>(p)] = squares_of(centre, x, channels, p);
  __syncthreads();
  bool wild = false;
  each_pixel<tile_pixels<T>>([&](int pixel) {
    const double sum = across_warps<tile_pixels<T>>(room.left(0), pixel);
    const float r = is_tame(sum) ? (float)inverse_root(width.divided(sum) + (double)eps) : NAN;
    room.r[pixel] = r;
    if (is_tame(sum))
      done(pixel, LAYER ? room.mean[pixel].x : 0.0f, r);
    else
      wild = true;
  });
  return __syncthreads_or(wild);
}

/* The same in f64 from memory, of the thread's pixels with a bit in `wild`, in room.exact. done(pixel, mean, r): called
 * once for each pixel of the tile, wild or not. */
template <class T, bool LAYER, int CHANNELS, class F>
__device__ __forceinline__ void measure_wild(const Rows &x, const TilePlace<T, CHANNELS> &at, unsigned wild,
                                             TileRoom<tile_pixels<T>> &room, const Width &width, float eps, F done) {
#pragma unroll 1
  for (int squares = LAYER ? 0 : 1; squares < 2; squares++) {
#pragma unroll 1
    for (int p = 0; p < Word<T>::pixels; p++) {
      const double mean = LAYER && squares ? room.exact[pixel_of<T>(p)].x : 0;
      double sum = 0;
#pragma unroll 1
      for (int i = 0; i < at.channels && (wild >> p & 1); i++) {
        const double e = (double)(float)*element_at(x, at, i, p) - mean;
        sum += squares ? e * e : e;
      }
      room.left_exactly(0)[slot_of<T>(p)] = sum;
    }
    __syncthreads();
    each_pixel<tile_pixels<T>>([&](int pixel) {
      const double sum = width.divided(across_warps<tile_pixels<T>>(room.left_exactly(0), pixel));
      if (!squares) {
        room.exact[pixel].x = sum;
        return;
      }
      const double mean = LAYER ? room.exact[pixel].x : 0, r = inverse_root(sum + (double)eps);
      room.exact[pixel] = make_double2(mean, r);
      done(pixel, mean, r);
    });
    __syncthreads();
  }
}

} // namespace rms_cuda

#endif
