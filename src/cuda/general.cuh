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
#include "copies.cuh"
#include "guard.cuh"
#include "plan.h"
#include "shifted.cuh"

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

/* Bit i: element i of the vector is there and in the statistic; whole: all elements are. Lists are searched for the
 * first entry that is not below. */
template <int V> __device__ __forceinline__ unsigned statistic_mask(const rms_layout &lay, bool whole, int64_t vector) {
  const int64_t first = vector * V, end = whole ? lay.width : lay.k;
  if (whole || lay.indices == nullptr) {
    if (first + V <= end) return (1u << V) - 1;
    return first < end ? (1u << (int)(end - first)) - 1 : 0;
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
  return {(double)(R)lay.eps,
          (R)lay.eps,
          (R)lay.k,
          eps_limit,
          lay.kind == RMS_KIND_LAYER,
          lay.eps_place != RMS_EPS_INSIDE,
          lay.rounding == RMS_ROUND_BEFORE_WEIGHT,
          lay.eps_place == RMS_EPS_CLAMP};
}

/* ---- rows at any address ---- */

/* A row of elements of S. ALIGNED: it is whole 16-byte vectors. Otherwise sixteen bytes of it are two aligned pieces of
 * memory, put together later. No byte outside the row is read: where a piece would hold one, which is so for the first
 * and the last vectors, the bytes come one by one. */
template <class S, int V, bool ALIGNED> struct RowAt {
  static constexpr int pieces = V * (int)sizeof(S) / 16; /* of sixteen bytes in a vector; 0: less than one */
  const char *row;
  int64_t bytes;
  int64_t last;   /* number of the last sixteen bytes whose pieces are all inside the row  */
  unsigned shift; /* bytes of the first piece that come before                             */

  __device__ __forceinline__ RowAt(const char *at, int64_t width) : row(at), bytes(width * (int64_t)sizeof(S)) {
    shift = (unsigned)(uintptr_t)row & 15;
    last = shift == 0 ? bytes / 16 - 1 : (bytes + shift) / 16 - 2;
  }
  __device__ __forceinline__ bool at_edge(int64_t n) const { return n > last || (n == 0 && shift != 0); }
  __device__ __forceinline__ Sixteen fetch(int64_t n) const {
    Sixteen s;
    const char *low = row - shift + n * 16;
    s.low = s.high = make_uint4(0, 0, 0, 0);
    if (ALIGNED) {
      if (n <= last) s.low = load_shared_by_rows(low);
    } else if (!at_edge(n)) {
      s.low = load_shared_by_rows(low);
      if (shift != 0) s.high = load_shared_by_rows(low + 16);
    }
    return s;
  }
  /* Bytes beyond the row are zeros. */
  __device__ __forceinline__ void take(uint32_t (&w)[4], const Sixteen &s, int64_t n) const {
    if (ALIGNED) {
      w[0] = s.low.x, w[1] = s.low.y, w[2] = s.low.z, w[3] = s.low.w;
    } else if (__builtin_expect(at_edge(n), 0)) {
      const int64_t left = bytes - n * 16;
      load_narrow(w, row + n * 16, left >= 16 ? 16 : left > 0 ? (int)left : 0);
    } else {
      put_together(w, s, shift);
    }
  }
  __device__ __forceinline__ void load(Packed<S, V> &v, int64_t vector) const {
    if constexpr (pieces == 0) { /* two f32 beside f64, four 16-bit elements beside f32 */
      const int64_t left = bytes - vector * (V * (int)sizeof(S));
      load_narrow(v.w, row + vector * (V * (int)sizeof(S)),
                  left >= V * (int)sizeof(S) ? V * (int)sizeof(S)
                  : left > 0                 ? (int)left
                                             : 0);
    } else {
      Sixteen s[pieces];
#pragma unroll
      for (int c = 0; c < pieces; c++)
        s[c] = fetch(vector * pieces + c);
#pragma unroll
      for (int c = 0; c < pieces; c++) {
        uint32_t w[4];
        take(w, s[c], vector * pieces + c);
#pragma unroll
        for (int i = 0; i < 4; i++)
          v.w[4 * c + i] = w[i];
      }
    }
  }
};

/* Elements of a vector of a row of T, or of f32 beside 16-bit data. */
template <class T, bool ALIGNED, int V, class R>
__device__ __forceinline__ void load_elements(R (&f)[V], const char *row, int64_t width, int64_t vector, bool is_f32) {
  if constexpr (sizeof(T) == 2) {
    if (is_f32) {
      Packed<float, V> wide;
      RowAt<float, V, ALIGNED>(row, width).load(wide, vector);
      unpack(wide, f);
      return;
    }
  }
  Packed<T, V> v;
  RowAt<T, V, ALIGNED>(row, width).load(v, vector);
  unpack(v, f);
}

/* The same of a row of `type`: f32, bf16 or f16, whatever the data type is. Such rows are rare, and this function is
 * one of its own so that the others keep their registers. */
template <int V> struct Floats { float of[V]; };

template <bool ALIGNED, int V>
__device__ __noinline__ Floats<V> load_any(const char *row, int64_t width, int64_t vector, rms_dtype type) {
  Floats<V> f;
  auto load = [&](auto packed) {
    using S = typename decltype(packed)::element;
    RowAt<S, V, ALIGNED>(row, width).load(packed, vector);
    unpack(packed, f.of);
  };
  if (type == RMS_F32)
    load(Packed<float, V>());
  else if (type == RMS_BF16)
    load(Packed<__nv_bfloat16, V>());
  else
    load(Packed<__half, V>());
  return f;
}

/* Weight or bias, in the data type or f32. */
template <class T, bool ALIGNED, int V, class R>
__device__ __forceinline__ void load_parameters(R (&f)[V], const char *p, const rms_layout &lay, int64_t vector) {
  if (sizeof(T) != 4 && lay.weight_is_f32) {
    Packed<float, V> w;
    RowAt<float, V, ALIGNED>(p, lay.width).load(w, vector);
    unpack(w, f);
  } else {
    Packed<T, V> w;
    RowAt<T, V, ALIGNED>(p, lay.width).load(w, vector);
    unpack(w, f);
  }
}

/* Gains: weights plus their offset, rounded to the weight's type where the layout says so. */
template <class T, bool ALIGNED, int V, class R>
__device__ __forceinline__ void load_gains(R (&f)[V], const char *p, const rms_layout &lay, int64_t vector) {
  load_parameters<T, ALIGNED>(f, p, lay, vector);
  add_offset<T>(f, lay.offset, lay.gain_as_weight && !lay.weight_is_f32);
  if constexpr (sizeof(R) == 8) {
    if (lay.gain_as_weight && lay.weight_is_f32) {
#pragma unroll
      for (int j = 0; j < V; j++)
        f[j] = (R)__double2float_rn(f[j]);
    }
  }
}

/* ---- teams ---- */

/* The threads of a segment: 2^n lanes that have one vector each, a warp, or all warps of a block. */
struct Team {
  int lanes, warps, lane, warp;
  int which, teams; /* of the block                */
  double *slots;    /* [32], shared by the warps   */

  __device__ __forceinline__ Team(int threads, double *shared) : slots(shared) {
    lanes = threads < 32 ? threads : 32;
    lane = (int)threadIdx.x & (lanes - 1);
    warps = threads <= 32 ? 1 : threads / 32;
    warp = threads <= 32 ? 0 : (int)threadIdx.x / 32;
    teams = warps > 1 ? 1 : (int)blockDim.x / threads;
    which = warps > 1 ? 0 : (int)threadIdx.x / threads;
  }
  __device__ __forceinline__ int threads() const { return lanes * warps; }
  __device__ __forceinline__ int thread() const { return warp * lanes + lane; }
  __device__ __forceinline__ bool leads() const { return lane == 0 && warp == 0; }
  /* Whether any team that takes part in the same sums says yes. */
  __device__ __forceinline__ bool any(bool yes) const { return lanes < 32 ? __any_sync(whole_warp, yes) != 0 : yes; }
  __device__ __forceinline__ void sync() const {
    if (warps > 1)
      __syncthreads();
    else
      __syncwarp();
  }
  template <class Op, class R, class F> __device__ __forceinline__ R sum(int64_t vectors, F of_vector) const {
    if (lanes < 32) return butterfly<Op>(lane < vectors ? of_vector((int64_t)lane) : (R)0, lanes / 2, 1);
    R total = 0;         /* of a portion           */
    double portions = 0; /* of those before it     */
    for (int64_t panel = 0; panel * PANEL < vectors; panel++) {
      R slot = 0;
#pragma unroll 2
      for (int c = warp; c < 32; c += warps) {
        const int64_t v = panel * PANEL + c * 32 + lane;
        R chunk = v < vectors ? of_vector(v) : (R)0;
        if (panel * PANEL + c * 32 < vectors) chunk = butterfly<Op>(chunk, 16, 1);
        if (lane == c) slot = chunk;
      }
      if (warps > 1) {
        __syncthreads(); /* the sum before this one has been read */
        if (lane % warps == warp) slots[lane] = (double)slot;
        __syncthreads();
        slot = (R)slots[lane];
      }
      slot = butterfly<Op>(slot, 16, 1);
      if (panel % PORTION != 0) {
        total = Op::of(total, slot);
      } else {
        portions = Op::of(portions, (double)total);
        total = slot;
      }
    }
    return vectors <= PORTION * PANEL ? total : (R)Op::of(portions, (double)total);
  }
  /* f(v) for each vector of this thread. */
  template <class F> __device__ __forceinline__ void each(int64_t vectors, F f) const {
    for (int64_t v = thread(); v < vectors; v += threads())
      f(v);
  }
};

/* ---- rows that are kept ---- */

/* A row of S, in shared memory as whole vectors, or where there is no room in memory. */
template <class S, int V, bool ALIGNED> struct KeptRow {
  using Row = RowAt<S, V, ALIGNED>;
  static constexpr int pieces = Row::pieces;
  Row row;
  uint4 *cells; /* of this team, or NULL */

  __device__ __forceinline__ void load(int64_t vector, Packed<S, V> &v) const {
    if (!cells) {
      row.load(v, vector);
      return;
    }
#pragma unroll
    for (int c = 0; c < pieces; c++) {
      const uint4 q = cells[vector * pieces + c];
      v.w[4 * c] = q.x, v.w[4 * c + 1] = q.y, v.w[4 * c + 2] = q.z, v.w[4 * c + 3] = q.w;
    }
  }
  __device__ __forceinline__ void keep(int64_t vector, const Packed<S, V> &v) const {
#pragma unroll
    for (int c = 0; c < pieces; c++)
      cells[vector * pieces + c] = make_uint4(v.w[4 * c], v.w[4 * c + 1], v.w[4 * c + 2], v.w[4 * c + 3]);
  }
  /* Each thread brings its own vectors. Those of aligned rows are all on their way when this returns: wait_for_kept();
   * of others sixteen bytes come four times at once. */
  __device__ __forceinline__ void bring(const Team &team, int64_t vectors) const {
    if constexpr (ALIGNED)
      bring_ahead(team, vectors);
    else
      bring_shifted(team, vectors);
  }
  __device__ __forceinline__ void bring_ahead(const Team &team, int64_t vectors) const {
    if (!cells) return;
    for (int v = team.thread(); v < vectors; v += team.threads())
#pragma unroll
      for (int c = 0; c < pieces; c++)
        copy_ahead(cells + v * pieces + c, row.row + (int64_t)(v * pieces + c) * 16, 16);
  }
  __device__ __forceinline__ void bring_shifted(const Team &team, int64_t vectors) const {
    constexpr int at_once = 4 / pieces;
    if (!cells) return;
    const int step = team.threads();
#pragma unroll 1
    for (int first = team.thread(); first < vectors; first += at_once * step) {
      Sixteen s[at_once][pieces];
#pragma unroll
      for (int i = 0; i < at_once; i++)
#pragma unroll
        for (int c = 0; c < pieces; c++)
          s[i][c] = row.fetch((first + i * step) * pieces + c);
#pragma unroll
      for (int i = 0; i < at_once; i++)
#pragma unroll
        for (int c = 0; c < pieces; c++) {
          const int n = (first + i * step) * pieces + c;
          if (first + i * step >= vectors) continue;
          uint32_t w[4];
          row.take(w, s[i][c], n);
          cells[n] = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
  }
};

__device__ __forceinline__ void wait_for_kept() {
  end_of_copies();
  wait_for_all_copies();
}

/* ---- stores ---- */

/* A row that a team has in shared memory, to any address: aligned pieces, and the bytes before and after them. */
__device__ __forceinline__ void copy_out(const Team &team, const uint4 *cells, char *to, int bytes) {
  const int head = bytes < 16 ? bytes : (16 - (int)((uintptr_t)to & 15)) & 15, whole = (bytes - head) / 16,
            tail = head + whole * 16;
  const char *from = reinterpret_cast<const char *>(cells);
  for (int n = team.thread(); n < whole; n += team.threads()) {
    const Sixteen s = {cells[n], head != 0 ? cells[n + 1] : make_uint4(0, 0, 0, 0)};
    uint32_t w[4];
    put_together(w, s, (unsigned)head);
    __stcs(reinterpret_cast<uint4 *>(to + head + n * 16), make_uint4(w[0], w[1], w[2], w[3]));
  }
  for (int i = team.thread(); i < head; i += team.threads())
    to[i] = from[i];
  for (int i = tail + team.thread(); i < bytes; i += team.threads())
    to[i] = from[i];
}

/* Vector v of a row of S. ALIGNED: it is whole vectors. */
template <bool ALIGNED, class S, int V>
__device__ __forceinline__ void store_at(char *row, int64_t vector, const Packed<S, V> &v, int n) {
  if constexpr (ALIGNED)
    store_vector<true>(row + vector * (V * (int)sizeof(S)), v, V);
  else
    store_narrow(row + vector * (V * (int)sizeof(S)), v.w, n * (int)sizeof(S));
}

/* Rounded to `type`: f32, bf16 or f16, whatever the data type is. */
template <bool ALIGNED, int V>
__device__ __noinline__ void store_any(char *row, int64_t vector, const Floats<V> f, int n, rms_dtype type) {
  auto store = [&](auto packed) {
    pack(packed, f.of);
    store_at<ALIGNED>(row, vector, packed, n);
  };
  if (type == RMS_F32)
    store(Packed<float, V>());
  else if (type == RMS_BF16)
    store(Packed<__nv_bfloat16, V>());
  else
    store(Packed<__half, V>());
}

} // namespace rms_cuda

#endif
