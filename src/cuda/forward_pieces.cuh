/* SPDX-License-Identifier: MIT
 *
 * Forward of rows that are not aligned, a row per block, where x, y and the gate, if there is one, lie alike: byte for
 * byte at the same place of their pieces (shifted.cuh). The common case alone, as in forward_steps.cuh.
 *
 * Each thread has whole pieces, from memory to memory; only the parameters are put together from two. A vector begins
 * in one piece and ends in the next, which the next lane has: the chain of its sum goes on there, and its end comes
 * back. The pieces of a warp lie one after the other; lane 0 has, beside its own, the one that follows them all. */
#ifndef RMS_CUDA_FORWARD_PIECES_CUH
#define RMS_CUDA_FORWARD_PIECES_CUH

#include "forward_block.cuh"

namespace rms_cuda {

/* The pieces of a row that a thread has: first + i*32, for i < NV. */
template <class T> struct RowPieces {
  static constexpr int V = vector_of<T>, size = (int)sizeof(T);
  int shift; /* bytes of the first piece before the row */
  int count, first;

  __device__ __forceinline__ RowPieces(const ForwardJob &p, const char *row, int nv) {
    shift = shift_of(row);
    count = (shift + p.bytes + 15) / 16;
    first = ((int)threadIdx.x & ~31) * nv + ((int)threadIdx.x & 31);
  }
  /* Elements of piece `piece` that are in the row: from begin() to before end(), which may lie beyond the piece. */
  __device__ __forceinline__ int begin(int piece) const { return piece == 0 ? shift / size : 0; }
  __device__ __forceinline__ int end(const ForwardJob &p, int piece) const {
    return shift / size + p.width - piece * V;
  }
};

/* The first `count` < V elements of 16 bytes; predicated, not skipped: all loads are under way at once. */
template <class T, int V> __device__ __forceinline__ void load_first(Packed<T, V> &v, const char *from, int count) {
  clear(v);
#pragma unroll
  for (int j = 0; j < V; j++) {
    if constexpr (sizeof(T) == 2) {
      unsigned short bits = 0;
      asm volatile("{\n .reg .pred w;\n setp.lt.s32 w, %2, %3;\n @w ld.global.u16 %0, [%1];\n}"
                   : "+h"(bits)
                   : "l"(from + j * 2), "r"(j), "r"(count)
                   : "memory");
      v.w[j / 2] |= (uint32_t)bits << 16 * (j & 1);
    } else {
      asm volatile("{\n .reg .pred w;\n setp.lt.s32 w, %2, %3;\n @w ld.global.u32 %0, [%1];\n}"
                   : "+r"(v.w[j])
                   : "l"(from + j * 4), "r"(j), "r"(count)
                   : "memory");
    }
  }
}

/* The same where it is rare: one after the other, in few registers. */
template <class T, int V> __device__ __forceinline__ void load_rest(Packed<T, V> &v, const char *from, int count) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  uint64_t low = 0, high = 0;
#pragma unroll 1
  for (int at = 0; at < count * (int)sizeof(T); at += (int)sizeof(T)) {
    const uint64_t element = *reinterpret_cast<const volatile Bits *>(from + at);
    if (at < 8)
      low |= element << 8 * at;
    else
      high |= element << 8 * (at - 8);
  }
  v.w[0] = (uint32_t)low, v.w[1] = (uint32_t)(low >> 32), v.w[2] = (uint32_t)high, v.w[3] = (uint32_t)(high >> 32);
}

/* A vector of `bytes` bytes of parameters, aligned. */
template <class T, int V>
__device__ __forceinline__ void load_first_or_all(Packed<T, V> &v, const char *from, int vector, int bytes) {
  const int left = bytes - vector * 16;
  if (__builtin_expect(left >= 16, 1))
    load_vector<true, false>(v, from + vector * 16, V);
  else
    load_first(v, from + vector * 16, left / (int)sizeof(T));
}

/* All pieces of a tensor that a thread has are fetched before any is trimmed, for to trim one is to wait for it. */
template <class T, int V>
__device__ __forceinline__ void fetch_piece(const RowPieces<T> &row, const char *at, const char *end, int piece,
                                            Packed<T, V> &v) {
  clear(v);
  if (piece < row.count && at + 16 <= end) load_vector<true, true, true>(v, at, V);
}

/* What is not of the row becomes zeros; what was not fetched, because it does not lie in 16 bytes of the tensor, is. */
template <class T, int V>
__device__ __forceinline__ void trim_piece(const ForwardJob &p, const RowPieces<T> &row, const char *at,
                                           const char *end, int piece, Packed<T, V> &v) {
  if (__builtin_expect(piece != 0 && piece < row.count - 1, 1)) return;
  if (piece < row.count && at + 16 > end) load_rest(v, at, row.end(p, piece));
  if (piece == 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int out = row.shift - 4 * i; /* bytes of this word, and of those after it, that are not of the row */
      if (out > 0) v.w[i] &= out >= 4 ? 0 : ~0u << 8 * out;
    }
  }
  if (piece == row.count - 1) cut_off(v.w, row.end(p, piece) * (int)sizeof(T));
}

/* The NV pieces of a row of a tensor, and the one after those of the warp, which only lane 0 has. */
template <class T, int V, int NV>
__device__ __forceinline__ void load_pieces(const ForwardJob &p, const RowPieces<T> &pieces, const char *row,
                                            const char *end, Packed<T, V> (&v)[NV], Packed<T, V> &next) {
  const char *at = row - pieces.shift + pieces.first * 16;
  const bool leads = ((int)threadIdx.x & 31) == 0;
#pragma unroll
  for (int i = 0; i < NV; i++)
    fetch_piece(pieces, at + i * 512, end, pieces.first + i * 32, v[i]);
  fetch_piece(pieces, at + NV * 512, end, leads ? pieces.first + NV * 32 : pieces.count, next);
#pragma unroll
  for (int i = 0; i < NV; i++)
    trim_piece(p, pieces, at + i * 512, end, pieces.first + i * 32, v[i]);
  if (leads) trim_piece(p, pieces, at + NV * 512, end, pieces.first + NV * 32, next);
}

/* Sixteen bytes at `from` where they are wanted, otherwise zeros. Predicated, as in load_first(). */
__device__ __forceinline__ uint4 load_if(const char *from, bool wanted) {
  uint4 v = make_uint4(0, 0, 0, 0);
  asm volatile("{\n .reg .pred w;\n setp.ne.u32 w, %5, 0;\n @w ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(from), "r"((unsigned)wanted)
               : "memory");
  return v;
}

/* What of weight and bias does not fill 16 bytes, with zeros behind it. Lanes of the first warp bring it; it is there
 * after the next barrier. */
template <class T> struct LastParameters {
  uint4 weight, bias;

  __device__ __forceinline__ void bring(const ForwardJob &p) {
    const int j = (int)threadIdx.x & 15, at = (p.bytes & ~15) + j * (int)sizeof(T);
    if (threadIdx.x >= 32 || j >= vector_of<T>) return;
    const char *from = threadIdx.x < 16 ? p.weight : p.bias;
    set(threadIdx.x < 16 ? weight : bias, j, from && at < p.bytes ? from + at : nullptr);
  }
  __device__ __forceinline__ void set(uint4 &to, int j, const char *from) {
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
    reinterpret_cast<volatile Bits *>(&to)[j] = from ? *reinterpret_cast<const volatile Bits *>(from) : (Bits)0;
  }
};

/* The elements of weight or bias that belong to those of a piece: from the two pieces of it that have them. A row may
 * end in a piece more than they do. */
template <class T, int V>
__device__ __forceinline__ void load_parameters_of_piece(const ForwardJob &p, const char *from, const uint4 &last,
                                                         int shift, int piece, Packed<T, V> &v) {
  const char *at = from + piece * 16;
  const int left = p.bytes - piece * 16;
  Sixteen s = {load_if(at - 16, piece > 0 && left >= 0), load_if(at, left >= 16)};
  if (left < 16 && left > 0) s.high = last;
  if (left < 0) s.low = last;
  put_together(v.w, shift == 0 ? Sixteen{s.high, s.high} : s, (unsigned)(16 - shift) & 15);
}

/* ---- sums ---- */

/* Calls f with a number below V as a type: there is code for each place at which vectors begin. All threads of a block
 * have the same one. */
template <int V, int N = 0, class F> __device__ __forceinline__ void with_constant(int n, F f) {
  if (N + 1 == V || n == N)
    f(std::integral_constant<int, N>());
  else if constexpr (N + 1 < V)
    with_constant<V, N + 1>(n, f);
}

template <class T, class S, int NV, int PANELS> struct PieceSums {
  static constexpr int V = vector_of<T>;
  static constexpr bool cuts = false; /* what is missing is zeros, or left out below */
  static constexpr bool shares_roots = false;
  float (&chunk)[USES][PANELS * 32];
  RowPieces<T> row;
  Packed<S, V> next; /* lane 0: the piece after those of the warp */

  __device__ __forceinline__ int vector(int i) const { return row.first + i * 32; }
  __device__ __forceinline__ bool any(bool yes) const { return yes; }
  __device__ __forceinline__ void some(bool (&yes)[1]) const { yes[0] = __syncthreads_or(yes[0]) != 0; }
  template <class Op, int USE> __device__ __forceinline__ void of(float (&sum)[1], float (&a)[1][NV]) {
    constexpr int copies = 32 / NV;
    const int lane = (int)threadIdx.x & 31,
              place = lane % copies == 0 ? chunk_place((int)threadIdx.x / 32 * NV + lane / copies) : -1;
    sum[0] = block_sum<Op, NV, PANELS>(chunk[USE], place, fold<Op>(a[0]));
  }

  /* Of each vector that begins in a piece of the warp, at element `begins`, which is BEGINS unless that is negative:
   * add(sum, f, piece, j) adds element j of a piece. */
  template <int BEGINS, class Step>
  __device__ __forceinline__ void chains(const Packed<S, V> (&x)[NV], float (&a)[NV], int begins, Step add) const {
    const int lane = (int)threadIdx.x & 31;
    if (BEGINS >= 0) begins = BEGINS;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float f[V], sum = 0;
      unpack(x[i], f);
#pragma unroll
      for (int j = 0; j < V; j++)
        if (j >= begins) sum = add(sum, f[j], vector(i), j);
      if (BEGINS != 0) {
        Packed<S, V> last = x[i];
        if (lane == 0) last = i + 1 < NV ? x[i + 1 < NV ? i + 1 : i] : next;
        unpack(last, f);
        sum = __shfl_sync(whole_warp, sum, (lane + 31) & 31);
#pragma unroll
        for (int j = 0; j < V - 1; j++)
          if (j < begins) sum = add(sum, f[j], vector(lane == 0 ? i + 1 : i), j);
        sum = __shfl_sync(whole_warp, sum, (lane + 1) & 31);
      }
      a[i] = sum;
    }
  }
  template <bool SQUARES, bool LAYER, bool SCALED, bool OPTIONS, class Data>
  __device__ __forceinline__ void sums(const ForwardJob &p, const Packed<S, V> (&x)[1][NV],
                                       const Statistic<float> (&st)[1], float (&a)[1][NV]) const {
    const int begins = row.shift / (int)sizeof(T);
    const Statistic<float> &s = st[0];
    auto add = [&s](float sum, float f) {
      const float d = SCALED ? fused(f, s.scale, SQUARES ? -s.mean : 0.0f) : SQUARES && LAYER ? f - s.mean : f;
      return SQUARES ? fused(d, d, sum) : sum + d;
    };
    /* zeros add nothing, unless a mean is taken from them: then a warp at the end of the row looks at each element */
    const int last = ((int)threadIdx.x & ~31) * NV + NV * 32; /* the piece after those of the warp */
    if (SCALED || (SQUARES && LAYER && row.end(p, last) < V))
      chains<-1>(x[0], a[0], begins,
                 [&](float sum, float f, int piece, int j) { return j < row.end(p, piece) ? add(sum, f) : sum; });
    else
      with_constant<V>(begins, [&](auto n) {
        chains<decltype(n)::value>(x[0], a[0], 0, [&](float sum, float f, int, int) { return add(sum, f); });
      });
  }
};

/* ---- the kernel ---- */

/* Element by element where the row does not fill a piece. */
template <class T, int V>
__device__ __forceinline__ void store_piece(char *at, const Packed<T, V> &v, int begin, int end) {
  if (__builtin_expect(begin == 0 && end >= V, 1)) {
    store_vector<true>(at, v, V);
    return;
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    store_if<T>(at + j * (int)sizeof(T), sizeof(T) == 2 ? v.w[j / 2] >> 16 * (j & 1) : v.w[j % 4],
                j >= begin && j < end);
}

/* Blocks of an SM that there must be registers for. */
template <int MOST, rms_gate_place GATE>
constexpr int forward_pieces_blocks = (GATE != RMS_GATE_NONE ? 768 : 1024) / MOST;

/* MOST: threads of a block. */
template <class T, class S, int NV, bool LAYER, int MOST, rms_gate_place GATE>
__global__ void __launch_bounds__(MOST, (forward_pieces_blocks<MOST, GATE>))
    forward_pieces_kernel(const __grid_constant__ ForwardJob p) {
  constexpr int V = vector_of<T>, PANELS = (NV * MOST + PANEL - 1) / PANEL;
  __shared__ __align__(16) float chunk[USES][PANELS * 32];
  __shared__ LastParameters<T> last;
  const int64_t row = blockIdx.x;
  const RowPlace place = {row, 0};
  wait_for_previous();
  let_next_start();
  const char *x_row = row_at<false>(p.x, place);
  const RowPieces<T> pieces(p, x_row, NV);
  Packed<S, V> x[1][NV];
  Packed<T, V> gate[NV];
  PieceSums<T, S, NV, PANELS> over = {chunk, pieces, {}};
  if constexpr (GATE == RMS_GATE_BEFORE) {
    Packed<T, V> in[NV], next, next_gate;
    load_pieces(p, pieces, x_row, p.x_end, in, next);
    load_pieces(p, pieces, row_at<false>(p.gate, place), p.gate_end, gate, next_gate);
    open_gates(p, x[0], in, gate);
    open_gate(over.next, next, next_gate, p.sigmoid);
  } else {
    Packed<T, V> unused;
    load_pieces(p, pieces, x_row, p.x_end, x[0], over.next);
    if (GATE == RMS_GATE_AFTER) load_pieces(p, pieces, row_at<false>(p.gate, place), p.gate_end, gate, unused);
  }
  last.bring(p);

  Statistic<float> st[1];
  measure_rows<LAYER, false, T>(p, x, st, over);
  if (threadIdx.x == 0) write_statistic(p, row, st[0]);

  char *y_at = row_at<false>(p.y, place) - pieces.shift + pieces.first * 16;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    const int piece = pieces.first + i * 32;
    if (piece >= pieces.count) continue;
    Packed<T, V> weight, bias, out;
    if (p.weight) load_parameters_of_piece(p, p.weight, last.weight, pieces.shift, piece, weight);
    if (p.bias) load_parameters_of_piece(p, p.bias, last.bias, pieces.shift, piece, bias);
    finish_common<LAYER, GATE>(p, x[0][i], st[0], weight, bias, gate[i], out);
    store_piece(y_at + i * 512, out, pieces.begin(piece), pieces.end(p, piece));
  }
}

} // namespace rms_cuda

#endif
