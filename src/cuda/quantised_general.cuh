/* SPDX-License-Identifier: MIT
 *
 * Forward of any rows with y quantised: the general kernel (forward_general.cuh), with the codes before y. They are
 * made from y as it is rounded, which is formed again for each use: once for the largest of a block, once for its
 * codes, and once more where y itself is wanted. */
#ifndef RMS_CUDA_QUANTISED_GENERAL_CUH
#define RMS_CUDA_QUANTISED_GENERAL_CUH

#include "forward_general.cuh"
#include "quantise.cuh"

namespace rms_cuda {

/* Who shares a block of elements with one scale: the team, or a warp of it where blocks are short. */
struct BlockTeam {
  const Team &team;
  bool by_warps;

  __device__ __forceinline__ int first() const { return by_warps ? team.warp : 0; }
  __device__ __forceinline__ int step() const { return by_warps ? team.warps : 1; }
  __device__ __forceinline__ int lane() const { return by_warps ? team.lane : team.thread(); }
  __device__ __forceinline__ int lanes() const { return by_warps ? team.lanes : team.threads(); }
  __device__ __forceinline__ float largest(float most) const {
    most = butterfly<Max>(most, team.lanes / 2, 1);
    if (by_warps || team.warps == 1) return most;
    __syncthreads(); /* what was there before has been read */
    if (team.lane == 0) team.slots[team.warp] = (double)most;
    __syncthreads();
    for (int w = 0; w < team.warps; w++)
      most = Max::of(most, (float)team.slots[w]);
    return most;
  }
};

/* The scale of a block and the codes of its elements, of any type. */
struct AnyQuantiser {
  rms_dtype type;
  bool divides;
  Scale scale;

  __device__ __forceinline__ AnyQuantiser(const rms_quantised &q, bool given, float largest) : type(q.type) {
    divides = type == RMS_I8 ? given : type != RMS_Q8_0 && !given;
    if (given)
      scale = {*q.scale, divides ? *q.scale : __frcp_rn(*q.scale)};
    else if (type == RMS_Q8_0)
      scale = q8_0_scale(largest, q.least);
    else if (type == RMS_I8)
      scale = block_scale<Codes::I8>(largest, q.least);
    else if (type == RMS_F8E4M3)
      scale = block_scale<Codes::E4M3>(largest, q.least);
    else
      scale = block_scale<Codes::E5M2>(largest, q.least);
  }
  template <int V> __device__ __forceinline__ void of(float (&y)[V], uint32_t (&codes)[V / 4]) const {
#pragma unroll
    for (int j = 0; j < V; j++)
      y[j] = divides ? __fdiv_rn(y[j], scale.factor) : y[j] * scale.factor;
#pragma unroll
    for (int j = 0; j < V; j += 4)
      codes[j / 4] = type == RMS_F8E4M3   ? four_codes<Codes::E4M3>(y[j], y[j + 1], y[j + 2], y[j + 3])
                     : type == RMS_F8E5M2 ? four_codes<Codes::E5M2>(y[j], y[j + 1], y[j + 2], y[j + 3])
                                          : four_codes<Codes::I8>(y[j], y[j + 1], y[j + 2], y[j + 3]);
  }
};

/* The last rounding of y. */
template <int V> __device__ __forceinline__ void round_y(float (&y)[V], rms_dtype type) {
  if (type == RMS_BF16)
    round_to<__nv_bfloat16>(y);
  else if (type == RMS_F16)
    round_to<__half>(y);
}

/* The codes of elements first.. of a vector, `count` of them. */
template <int V>
__device__ __forceinline__ void store_codes(char *to, const uint32_t (&codes)[V / 4], int first, int count) {
  if (count == V) {
    store_narrow(to, codes, V);
  } else {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j >= first && j < first + count) to[j] = (char)(codes[j / 4] >> 8 * (j % 4));
  }
}

/* q and its scales of a segment. make_y(v, y): y of vector v but for its last rounding, by any thread of the team: the
 * vectors of a block are shared out anew, whoever brought them. */
template <int V, class F>
__device__ __forceinline__ void quantise_segment(const rms_forward_job &job, const Team &team, const Place &at,
                                                 int64_t index, bool active, F make_y) {
  const rms_layout &lay = job.lay;
  const rms_quantised &q = job.q;
  const bool q8_0 = q.type == RMS_Q8_0, given = !q8_0 && q.block == 0;
  const int64_t block = q8_0 ? 32 : given ? lay.width : q.block, blocks = lay.width / block;
  const BlockTeam by = {team, team.warps > 1 && block <= 128 * V};
  char *row = q.rows.data + at.outer * q.rows.outer + at.inner * q.rows.inner +
              at.group * (q8_0 ? lay.width / 32 * 34 : lay.width);
  auto each = [&](int64_t b, auto f) { /* f(v, first, count): elements first.. of vector v are in block b */
                                       const int64_t begin = b * block, end = begin + block;
                                       for (int64_t v = begin / V + by.lane(); v * V < end; v += by.lanes()) {
                                         const int first = begin > v * V ? (int)(begin - v * V) : 0;
                                         f(v, first, (int)(end - v * V < V ? end - v * V : V) - first);
                                       }
  };
  team.sync();
  for (int64_t b = by.first(); b < blocks; b += by.step()) {
    float most = 0;
    if (!given) {
      each(b, [&](int64_t v, int first, int count) {
        float y[V];
        make_y(v, y);
        round_y(y, job.y_type);
#pragma unroll
        for (int j = 0; j < V; j++)
          if (j >= first && j < first + count) most = Max::of(most, size_for_scale(y[j]));
      });
      most = by.largest(most);
    }
    const AnyQuantiser quantiser(q, given, most);
    char *to = q8_0 ? row + b * 34 + 2 - b * block : row;
    if (active && by.lane() == 0) {
      if (q8_0) {
        const uint16_t bits = q8_0_bits(quantiser.scale.written);
        row[b * 34] = (char)bits, row[b * 34 + 1] = (char)(bits >> 8);
      } else if (!given) {
        q.scale[index * blocks + b] = quantiser.scale.written;
      }
    }
    if (!active) continue;
    each(b, [&](int64_t v, int first, int count) {
      float y[V];
      uint32_t codes[V / 4];
      make_y(v, y);
      round_y(y, job.y_type);
      quantiser.of(y, codes);
      store_codes<V>(to + v * V, codes, first, count);
    });
  }
  team.sync();
}

template <class T, bool GATED>
__global__ void __launch_bounds__(GENERAL_THREADS, 2)
    forward_general_quantised_kernel(const __grid_constant__ GeneralForward g) {
  constexpr int V = vector_of<T>;
  forward_general_rows<T, false, GATED>(g, [&](const ForwardSegment<T, false, GATED> &segment, const Place &at,
                                               int64_t index, bool active, const Statistic<float> &st) {
    const MakeY<T, false, GATED> make(g, at);
    quantise_segment<V>(g.job, segment.team, at, index, active, [&](int64_t v, float(&y)[V]) {
      float act[V];
      segment.load_source(v, y);
      if constexpr (GATED) segment.load_act(v, act);
      make.of(st, v, y, act);
    });
  });
}

} // namespace rms_cuda

#endif
