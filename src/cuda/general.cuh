/* SPDX-License-Identifier: MIT
 *
 * What the general kernels share. They can do everything: any alignment and distance, f64, index lists, groups, the
 * split operations, rows of any width.
 *
 * A team of threads has a segment. It brings the segment to shared memory where there is room for it, in pieces as wide
 * as the addresses allow, each thread its own vectors and several at once; whatever comes after that reads them from
 * there. Wider segments are read from memory each time. The order of the sums is that of sum.cuh. */
#ifndef RMS_CUDA_GENERAL_CUH
#define RMS_CUDA_GENERAL_CUH

#include "affine.cuh"
#include "guard.cuh"
#include "plan.h"

namespace rms_cuda {

/* ---- where things are ---- */

struct Place {
  int64_t outer, inner, group;
};

__device__ __forceinline__ Place place_of(const rms_layout &lay, int64_t segment) {
  Place at = {segment, 0, 0};
  if (lay.groups > 1 || lay.inner > 1) {
    if (segment <= 0xffffffffLL && lay.groups <= 0xffffffffLL && lay.inner <= 0xffffffffLL) {
      uint32_t s = (uint32_t)segment, row = s / (uint32_t)lay.groups, o = row / (uint32_t)lay.inner;
      at.group = s - row * (uint32_t)lay.groups;
      at.inner = row - o * (uint32_t)lay.inner;
      at.outer = o;
    } else {
      int64_t row = segment / lay.groups;
      at.group = segment - row * lay.groups;
      at.outer = row / lay.inner;
      at.inner = row - at.outer * lay.inner;
    }
  }
  return at;
}

__device__ __forceinline__ char *segment_at(const Rows &rows, const rms_layout &lay, const Place &at, int size) {
  return rows.data + at.outer * rows.outer + at.inner * rows.inner + at.group * lay.width * size;
}

__device__ __forceinline__ const char *parameter_at(const char *base, const rms_layout &lay, const Place &at,
                                                    int size) {
  return base + at.inner * lay.weight_inner + at.group * lay.width * size;
}

/* Elements of a vector that there are. */
template <int V> __device__ __forceinline__ int count_at(const rms_layout &lay, int64_t vector) {
  return (int)(lay.width - vector * V < V ? lay.width - vector * V : V);
}

/* Bit i: element i of the vector is in the statistic. Lists are searched for the first entry that is not below. */
template <int V> __device__ __forceinline__ unsigned statistic_mask(const rms_layout &lay, int64_t vector) {
  constexpr unsigned all = (1u << V) - 1;
  const int64_t first = vector * V;
  if (lay.indices == nullptr) {
    if (first + V <= lay.k) return all;
    return first < lay.k ? (1u << (int)(lay.k - first)) - 1 : 0;
  }
  int64_t low = 0, high = lay.k;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (lay.indices[middle] < first)
      low = middle + 1;
    else
      high = middle;
  }
  unsigned mask = 0;
  for (int i = 0; i < V && low + i < lay.k && lay.indices[low + i] < first + V; i++)
    mask |= 1u << (int)(lay.indices[low + i] - first);
  return mask;
}

template <class R> __device__ __forceinline__ Norm<R> norm_of(const rms_layout &lay, int eps_limit) {
  return {lay.eps,
          (R)lay.k,
          eps_limit,
          lay.kind == RMS_KIND_LAYER,
          lay.eps_place == RMS_EPS_OUTSIDE,
          lay.rounding == RMS_ROUND_BEFORE_WEIGHT};
}

/* ---- pieces of a row at any address ---- */

/* Sixteen bytes of a row: two aligned pieces of memory, put together later. No byte outside the row is read: where a
 * piece would hold one, the bytes are at the edge of the row and come one by one. */
struct Sixteen {
  uint4 low, high;
};

/* Bytes of the first piece that come before. */
__device__ __forceinline__ unsigned shift_at(const char *p) {
  return (unsigned)(uintptr_t)p & 15;
}
__device__ __forceinline__ bool at_edge(unsigned shift, int64_t bytes, int64_t row_bytes) {
  return shift == 0 ? bytes + 16 > row_bytes : bytes < shift || bytes - shift + 32 > row_bytes;
}

/* Those that begin `bytes` after the start of the row. */
__device__ __forceinline__ Sixteen fetch(const char *row, int64_t bytes, int64_t row_bytes) {
  Sixteen s;
  const unsigned shift = shift_at(row + bytes);
  const char *low = row + bytes - shift;
  const bool edge = at_edge(shift, bytes, row_bytes);
  s.low = s.high = make_uint4(0, 0, 0, 0);
  if (!edge) s.low = load_shared_by_rows(low);
  if (!edge && shift != 0) s.high = load_shared_by_rows(low + 16);
  return s;
}

/* Bytes beyond the row are zeros. */
__device__ __forceinline__ void put_together(uint32_t (&w)[4], const Sixteen &s, const char *row, int64_t bytes,
                                             int64_t row_bytes) {
  const unsigned shift = shift_at(row + bytes);
  if (__builtin_expect(at_edge(shift, bytes, row_bytes), 0)) {
    const int64_t left = row_bytes - bytes;
    load_narrow(w, row + bytes, left >= 16 ? 16 : left > 0 ? (int)left : 0);
    return;
  }
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

/* n elements of vector v of a row, of type S. */
template <class S, int V>
__device__ __forceinline__ void load_at(Packed<S, V> &out, const char *row, int64_t vector, int64_t row_bytes) {
  constexpr int pieces = V * (int)sizeof(S) / 16;
  if constexpr (pieces == 0) { /* two f32 beside f64: parameters only */
    const int64_t bytes = vector * V * (int)sizeof(S), left = row_bytes - bytes;
    load_narrow(out.w, row + bytes, left >= V * (int)sizeof(S) ? V * (int)sizeof(S) : (int)left);
  } else {
#pragma unroll
    for (int c = 0; c < pieces; c++) {
      const int64_t bytes = (vector * pieces + c) * 16;
      uint32_t w[4];
      put_together(w, fetch(row, bytes, row_bytes), row, bytes, row_bytes);
#pragma unroll
      for (int i = 0; i < 4; i++)
        out.w[4 * c + i] = w[i];
    }
  }
}

/* Sixteen bytes of each lane, of which `count` are there, one after the other from lane 0 on: lanes put the end of the
 * vector before theirs and the start of their own together to write aligned pieces. All lanes of the warp call it;
 * count is 0 or less where there is nothing. apart: the lane before this one is of another row. */
__device__ __forceinline__ void store_together(char *to, const uint32_t (&w)[4], int count, bool apart) {
  const unsigned shift = (unsigned)(uintptr_t)to & 15, lane = threadIdx.x & 31;
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    words[i] = __shfl_up_sync(whole_warp, w[i], 1);
    words[4 + i] = w[i];
  }
  const int own = 16 - (int)shift; /* bytes of this vector in the piece that it begins in */
  const bool whole = shift == 0 && count == 16;
  const bool joins = shift != 0 && lane > 0 && !apart && count >= own; /* writes the end of the vector before too */
  const bool next_joins = __shfl_down_sync(whole_warp, (int)joins, 1) != 0 && lane < 31;
  if (count <= 0) return;
  if (whole) {
    __stcs(reinterpret_cast<uint4 *>(to), make_uint4(w[0], w[1], w[2], w[3]));
    return;
  }
  int from = 0; /* what is left to write on its own */
  if (joins) {
    uint32_t q[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      q[i] = words[i];
    /* the piece begins `own` bytes into the vector before */
    if (own & 8) {
#pragma unroll
      for (int i = 0; i < 6; i++)
        q[i] = q[i + 2];
    }
    if (own & 4) {
#pragma unroll
      for (int i = 0; i < 5; i++)
        q[i] = q[i + 1];
    }
    const unsigned bits = (own & 3) * 8;
    __stcs(reinterpret_cast<uint4 *>(to - shift),
           make_uint4(__funnelshift_r(q[0], q[1], bits), __funnelshift_r(q[1], q[2], bits),
                      __funnelshift_r(q[2], q[3], bits), __funnelshift_r(q[3], q[4], bits)));
    from = own;
  }
  const int end = next_joins && own < count ? own : count;
  if (from < end) store_bytes(to, w, from, end);
}

/* Vector v of a row of type S to memory; all lanes of the warp call it. ALIGNED: rows are whole vectors. */
template <bool ALIGNED, class S, int V>
__device__ __forceinline__ void store_at(char *row, int64_t vector, const Packed<S, V> &v, int n, bool apart) {
  if constexpr (ALIGNED) {
    if (n > 0) store_vector<true>(row + vector * (V * (int)sizeof(S)), v, V);
  } else if constexpr (V * sizeof(S) == 16) {
    store_together(row + vector * 16, v.w, n * (int)sizeof(S), apart);
  } else {
    if (n > 0) store_narrow(row + vector * (V * (int)sizeof(S)), v.w, n * (int)sizeof(S));
  }
}

/* ---- teams ---- */

/* The threads of a segment: 2^n lanes that have one vector each, a warp, or up to 8 warps. */
struct Team {
  int lanes, warps, lane, warp;
  double *slots; /* [32], shared by the warps */

  __device__ __forceinline__ Team(int threads, double *shared) : slots(shared) {
    lanes = threads < 32 ? threads : 32;
    lane = (int)threadIdx.x & (lanes - 1);
    warps = threads <= 32 ? 1 : threads / 32;
    warp = threads <= 32 ? 0 : (int)threadIdx.x / 32;
  }
  __device__ __forceinline__ int threads() const { return lanes * warps; }
  __device__ __forceinline__ int thread() const { return warp * lanes + lane; }
  __device__ __forceinline__ bool leads() const { return lane == 0 && warp == 0; }
  /* Whether any team that takes part in the same sums says yes. */
  __device__ __forceinline__ bool any(bool yes) const { return lanes < 32 ? __any_sync(whole_warp, yes) != 0 : yes; }

  template <class Op, class R, class F> __device__ __forceinline__ R sum(int64_t vectors, F of_vector) const {
    if (lanes < 32) return butterfly<Op>(lane < vectors ? of_vector((int64_t)lane) : (R)0, lanes / 2, 1);
    R total = 0;
    for (int64_t panel = 0; panel * 1024 < vectors; panel++) {
      R slot = 0;
      for (int64_t c = panel * 32 + warp; c < panel * 32 + 32 && c * 32 < vectors; c += warps) {
        const int64_t v = c * 32 + lane;
        R chunk = butterfly<Op>(v < vectors ? of_vector(v) : (R)0, 16, 1);
        if (lane == (int)(c & 31)) slot = chunk;
      }
      if (warps > 1) {
        __syncthreads(); /* the sum before this one has been read */
        if (lane % warps == warp) slots[lane] = (double)slot;
        __syncthreads();
        slot = (R)slots[lane];
      }
      slot = butterfly<Op>(slot, 16, 1);
      total = panel == 0 ? slot : Op::of(total, slot);
    }
    return total;
  }
  /* f(v, here) for each vector of this thread, all lanes of a warp the same number of times; here: there is such a
   * vector. */
  template <class F> __device__ __forceinline__ void each(int64_t vectors, F f) const {
    for (int64_t v = (int64_t)warp * lanes; v < vectors; v += threads())
      f(v + lane, v + lane < vectors);
  }
};

/* ---- rows that are kept ---- */

/* A row of type S, in shared memory as whole vectors, or where there is no room in memory. */
template <class S, int V> struct KeptRow {
  const char *row;
  int64_t bytes; /* of the row */
  uint4 *cells;  /* of this team, or NULL */

  static constexpr int pieces = V * (int)sizeof(S) / 16;

  __device__ __forceinline__ void load(int64_t vector, Packed<S, V> &v) const {
    if (cells) {
#pragma unroll
      for (int c = 0; c < pieces; c++) {
        const uint4 q = cells[vector * pieces + c];
        v.w[4 * c] = q.x, v.w[4 * c + 1] = q.y, v.w[4 * c + 2] = q.z, v.w[4 * c + 3] = q.w;
      }
    } else {
      load_at(v, row, vector, bytes);
    }
  }
  __device__ __forceinline__ void keep(int64_t vector, const Packed<S, V> &v) const {
#pragma unroll
    for (int c = 0; c < pieces; c++)
      cells[vector * pieces + c] = make_uint4(v.w[4 * c], v.w[4 * c + 1], v.w[4 * c + 2], v.w[4 * c + 3]);
  }
  /* Each thread brings its own vectors, four at once. */
  __device__ __forceinline__ void bring(const Team &team, int64_t vectors) const {
    if (!cells) return;
    const int step = team.threads() * 4;
#pragma unroll 1
    for (int64_t first = team.thread(); first < vectors; first += step) {
      Sixteen s[4][pieces];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < pieces; c++)
          s[i][c] = fetch(row, ((first + i * team.threads()) * pieces + c) * 16, bytes);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < pieces; c++) {
          const int64_t cell = (first + i * team.threads()) * pieces + c;
          if (first + i * team.threads() >= vectors) continue;
          uint32_t w[4];
          put_together(w, s[i][c], row, cell * 16, bytes);
          cells[cell] = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
  }
};

/* Parameters: weight and bias, in the data type or f32. */
template <class T, int V, class R>
__device__ __forceinline__ void load_parameters(R (&f)[V], const char *p, const rms_layout &lay, int64_t vector) {
  if (sizeof(T) != 4 && lay.weight_is_f32) {
    Packed<float, V> w;
    load_at(w, p, vector, lay.width * 4);
    unpack(w, f);
  } else {
    Packed<T, V> w;
    load_at(w, p, vector, lay.width * (int64_t)sizeof(T));
    unpack(w, f);
  }
}

} // namespace rms_cuda

#endif
