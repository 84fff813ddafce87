/* SPDX-License-Identifier: MIT
 *
 * Rows that are not aligned: they begin at any element. A piece is sixteen aligned bytes of memory; the pieces of a row
 * are counted from the one that holds its first byte, which lies `shift` bytes into it. Vector n is put together from
 * pieces n and n + 1. Pieces are read whole, with bytes of other rows in them, but never beyond the end of the tensor;
 * no byte is written that is not of the row. */
#ifndef RMS_CUDA_SHIFTED_CUH
#define RMS_CUDA_SHIFTED_CUH

#include "sum.cuh"

namespace rms_cuda {

__device__ __forceinline__ int shift_of(const char *row) {
  return (int)((uintptr_t)row & 15);
}

struct Sixteen {
  uint4 low, high;
};

/* Sixteen bytes from byte `shift` < 16 of two pieces on. */
__device__ __forceinline__ void put_together(uint32_t (&w)[4], const Sixteen &s, unsigned shift) {
  uint32_t words[8] = {s.low.x, s.low.y, s.low.z, s.low.w, s.high.x, s.high.y, s.high.z, s.high.w};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; i++)
      words[i] = words[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; i++)
      words[i] = words[i + 1];
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    w[i] = __funnelshift_r(words[i], words[i + 1], (shift & 3) * 8);
}

/* The same of several vectors at once, where all lanes of a warp have the same shift: a branch chooses the words. */
template <int WORD, class T, int V, int NV>
__device__ __forceinline__ void put_together_from(Packed<T, V> (&v)[NV], const Sixteen (&s)[NV], unsigned bits) {
#pragma unroll
  for (int n = 0; n < NV; n++) {
    const uint32_t words[8] = {s[n].low.x,  s[n].low.y,  s[n].low.z,  s[n].low.w,
                               s[n].high.x, s[n].high.y, s[n].high.z, s[n].high.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
      v[n].w[i] = __funnelshift_r(words[WORD + i], words[WORD + i + 1], bits);
  }
}
template <class T, int V, int NV>
__device__ __forceinline__ void put_together(Packed<T, V> (&v)[NV], const Sixteen (&s)[NV], unsigned shift) {
  const unsigned bits = (shift & 3) * 8;
  switch (shift >> 2) {
  case 0:
    put_together_from<0>(v, s, bits);
    break;
  case 1:
    put_together_from<1>(v, s, bits);
    break;
  case 2:
    put_together_from<2>(v, s, bits);
    break;
  default:
    put_together_from<3>(v, s, bits);
  }
}

/* Bytes of a vector beyond the row become zeros. left: bytes of the row from the vector on. */
__device__ __forceinline__ void cut_off(uint32_t (&w)[4], int left) {
  if (left >= 16) return;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t mask;
    asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(mask) : "r"(left > 4 * i ? 8 * (left - 4 * i) : 0));
    w[i] &= mask;
  }
}

/* ---- from memory ---- */

/* A row of `bytes` bytes of a tensor that ends at `end`. First all vectors are fetched, then they are taken. */
struct ShiftedRow {
  const char *row, *end;
  int bytes;

  __device__ __forceinline__ bool at_end(int vector) const { return row + vector * 16 + 32 > end; }
  __device__ __forceinline__ Sixteen fetch(int vector) const {
    Sixteen s;
    s.low = s.high = make_uint4(0, 0, 0, 0);
    if (vector * 16 < bytes && !at_end(vector)) {
      const char *low = row - shift_of(row) + vector * 16;
      s.low = load_piece(low);
      s.high = load_piece(low + 16);
    }
    return s;
  }
  __device__ __forceinline__ void take(uint32_t (&w)[4], const Sixteen &s, int vector) const {
    const int left = bytes - vector * 16;
    if (__builtin_expect(left > 0 && at_end(vector), 0))
      load_narrow(w, row + vector * 16, left < 16 ? left : 16);
    else
      put_together(w, s, (unsigned)shift_of(row));
    cut_off(w, left);
  }
};

/* Vector of a row of parameters, of which there are `bytes` bytes. They are mostly aligned. */
template <class T, int V>
__device__ __forceinline__ void load_parameter_vector(Packed<T, V> &v, const char *row, int vector, int bytes) {
  const int left = bytes - vector * 16;
  const char *at = row + vector * 16;
  if (left >= 16 && shift_of(row) == 0)
    load_vector<true, false>(v, at, V);
  else
    load_narrow(v.w, at, left < 16 ? left : 16);
}

/* ---- to memory ---- */

/* Predicated, not skipped: a branch for each element would cost more. */
template <class T> __device__ __forceinline__ void store_if(char *to, uint32_t bits, unsigned wanted) {
  if constexpr (sizeof(T) == 2)
    asm volatile("{\n .reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w st.global.u16 [%0], %1;\n}" ::"l"(to),
                 "h"((unsigned short)bits), "r"(wanted)
                 : "memory");
  else
    asm volatile("{\n .reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w st.global.u32 [%0], %1;\n}" ::"l"(to), "r"(bits),
                 "r"(wanted)
                 : "memory");
}

/* The vectors of a row, one after the other in the lanes of a warp, which all call it; begins, ends: this lane has the
 * first or last one of those that the warp has of the row. A piece that two lanes have parts of is stored whole by the
 * second; what is not in such a piece goes element by element. bytes: of the row; 0: nothing is stored. */
template <class T, int V>
__device__ __forceinline__ void store_shifted(char *row, int vector, const Packed<T, V> &v, int bytes, bool begins,
                                              bool ends) {
  constexpr int size = (int)sizeof(T);
  const int shift = shift_of(row), left = bytes - vector * 16;
  const Sixteen s = {make_uint4(__shfl_up_sync(whole_warp, v.w[0], 1), __shfl_up_sync(whole_warp, v.w[1], 1),
                                __shfl_up_sync(whole_warp, v.w[2], 1), __shfl_up_sync(whole_warp, v.w[3], 1)),
                     make_uint4(v.w[0], v.w[1], v.w[2], v.w[3])};
  uint32_t w[4];
  put_together(w, shift == 0 ? Sixteen{s.high, s.high} : s, (unsigned)(16 - shift) & 15);
  char *at = row + vector * 16;
  const bool whole = !begins && left + shift >= 16, next_is_whole = !ends && left + shift >= 32;
  if (whole) __stcs(reinterpret_cast<uint4 *>(at - shift), make_uint4(w[0], w[1], w[2], w[3]));
  if (whole && (next_is_whole || shift == 0)) return;
  /* bit j: element j */
  const int first = (16 - shift) / size, there = left < 16 ? left / size : V;
  unsigned wanted = 0;
  if (!whole) wanted |= (1u << first) - 1;
  if (!next_is_whole) wanted |= ~((1u << first) - 1);
  if (there < V) wanted &= there > 0 ? (1u << there) - 1 : 0;
#pragma unroll
  for (int j = 0; j < V; j++)
    store_if<T>(at + j * size, size == 2 ? v.w[j / 2] >> 16 * (j & 1) : v.w[j % 4], wanted >> j & 1);
}

} // namespace rms_cuda

#endif
