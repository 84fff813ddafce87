/* SPDX-License-Identifier: MIT
 *
 * Forward of aligned rows of a warp or less: a power of two of lanes shares a row, and each lane has ROWS rows at once.
 * Template parameters as in forward_steps.cuh. */
#ifndef RMS_CUDA_FORWARD_WARP_CUH
#define RMS_CUDA_FORWARD_WARP_CUH

#include "copies.cuh"
#include "forward_steps.cuh"
#include "plan.h"
#include "start.cuh"

namespace rms_cuda {

/* Blocks of an SM: as many as there are registers for. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int NV, bool LAYER, bool OPTIONS, bool SHIFTED, bool WIDE>
constexpr int forward_warp_blocks = WIDE                ? 3
                                    : OPTIONS           ? 5
                                    : NV == 4 && !LAYER ? 6
                                                        : 7;
template <int NV> constexpr int plain_gate_blocks = 4; /* with a gate and without options */
#else
template <int NV, bool LAYER, bool OPTIONS, bool SHIFTED, bool WIDE>
constexpr int forward_warp_blocks = WIDE              ? 3
                                    : OPTIONS         ? (LAYER || (SHIFTED && NV == 2) ? 5 : 6)
                                    : LAYER &&NV != 2 ? 8
                                                      : 7;
template <int NV> constexpr int plain_gate_blocks = NV == 1 ? 6 : 5;
#endif

/* Sums over the `team` lanes of a row, of ROWS rows at once. SHARES: of four rows at once, four lanes next to each
 * other work out one root each. */
template <int ROWS, int NV, bool CUTS, bool SHARES = false>
struct LaneSums : VectorSums<LaneSums<ROWS, NV, CUTS, SHARES>> {
  static constexpr bool cuts = CUTS;
  int first, team;

  __device__ __forceinline__ LaneSums(int vector, int lanes) : first(vector), team(lanes) {}
  __device__ __forceinline__ int vector(int i) const { return first + i * 32; }
  __device__ __forceinline__ bool has(const ForwardJob &p, int i) const { return first + i * 32 < p.vectors; }
  __device__ __forceinline__ bool any(bool yes) const { return __any_sync(whole_warp, yes) != 0; }
  __device__ __forceinline__ void some(bool (&yes)[ROWS]) const {
    const unsigned lanes = team == 32 ? whole_warp : ((1u << team) - 1) << (threadIdx.x & 31 & ~(unsigned)(team - 1));
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      yes[r] = (__ballot_sync(whole_warp, yes[r]) & lanes) != 0;
  }
  template <bool OPTIONS>
  __device__ __forceinline__ void roots(const ForwardJob &p, Statistic<float> (&st)[ROWS]) const {
    const int mine = (int)threadIdx.x & 3;
    if (team >= 4) {
      const float sum = mine < 2 ? (mine == 0 ? st[0].sum : st[1].sum) : (mine == 2 ? st[2].sum : st[3].sum),
                  root = root_of<OPTIONS>(p, sum);
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        st[r].r = __shfl_sync(whole_warp, root, r, 4);
    } else {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        st[r].r = root_of<OPTIONS>(p, st[r].sum);
    }
  }
  template <class Op, int USE> __device__ __forceinline__ void of(float (&sum)[ROWS], float (&a)[ROWS][NV]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      sum[r] = NV == 1 ? a[r][0] : fold<Op>(a[r]);
#pragma unroll
    for (int o = 16; o >= (NV == 1 ? 1 : 32 / power_from(NV)); o /= 2)
      if (NV > 1 || o < team) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
          sum[r] = Op::of(sum[r], __shfl_xor_sync(whole_warp, sum[r], o));
      }
  }
};

template <int NV, bool CUTS> constexpr bool shares_roots<LaneSums<4, NV, CUTS, true>> = true;

/* The rows of a lane: vectors first + 32 i of rows row + r*teams. */
template <class T, class S, int NV, int ROWS, bool LAYER, bool RESIDUAL, bool OPTIONS, bool SHIFTED,
          rms_gate_place GATE>
struct WarpRows {
  static constexpr int V = vector_of<T>;
  static constexpr bool early = NV < 4 || !LAYER; /* weights before the sums, where there are registers for them */
  static constexpr bool own = OPTIONS && NV == 1; /* each row has a copy of its weights                          */
  const ForwardJob &p;
  int first, teams;
  int64_t row;
  Packed<S, V> x[ROWS][NV];
  Packed<T, V> weight[own ? ROWS : 1][NV];
  Packed<T, V> gate[ROWS][NV]; /* where there is one */

  __device__ __forceinline__ explicit WarpRows(const ForwardJob &job) : p(job) {
    first = (int)threadIdx.x & (p.team - 1);
    if (GATE == RMS_GATE_NONE) { /* with shifts such rows took longer: docs/log/cuda.md */
      teams = WARP_FORWARD_THREADS / p.team;
      row = (int64_t)blockIdx.x * (teams * ROWS) + threadIdx.x / (unsigned)p.team;
    } else {
      const int shift = __ffs(p.team) - 1; /* team = 2^shift */
      teams = WARP_FORWARD_THREADS >> shift;
      row = (int64_t)blockIdx.x * (teams * ROWS) + (threadIdx.x >> shift);
    }
  }
  __device__ __forceinline__ bool packed_weight() const { return p.weight && !(OPTIONS && p.weight_is_f32); }
  __device__ __forceinline__ bool several() const { return OPTIONS && p.weight_inner != 0; } /* sets of weights */
  __device__ __forceinline__ bool here(int r, int i) const {
    return first + i * 32 < p.vectors && row + r * teams < p.rows;
  }
  __device__ __forceinline__ bool there(int r) const { return row + r * teams < p.rows; }
  __device__ __forceinline__ int lanes() const { return p.team < 32 ? p.team : 32; }
  __device__ __forceinline__ RowPlace place(int r) const { return place_of_row<OPTIONS>(p.inner, row + r * teams); }
  /* With a gate instructions count. Rows that are all there, at one distance, are found with few of them. */
  __device__ __forceinline__ bool all_there() const {
    return GATE != RMS_GATE_NONE && (!OPTIONS || p.inner.rows == 0) && first + (NV - 1) * 32 < p.vectors &&
           there(ROWS - 1);
  }
  __device__ __forceinline__ void load_rows(const Rows &rows, Packed<T, V> (&to)[ROWS][NV]) const {
    if (all_there()) {
      const char *at = rows.data + row * rows.outer + first * 16;
      const int64_t step = teams * rows.outer;
      each([&](int r, int i) { load_vector<true, true, true>(to[r][i], at + r * step + i * 512, V); });
      return;
    }
    each([&](int r, int i) {
      clear(to[r][i]);
      if (here(r, i))
        load_vector<true, true, true>(to[r][i], row_at<OPTIONS>(rows, place(r)) + (first + i * 32) * 16, V);
    });
  }
  template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < NV; i++)
        f(r, i);
  }
  __device__ __forceinline__ void prefetch() const {
    each([&](int r, int i) {
      if (here(r, i)) prefetch_line(row_at<OPTIONS>(p.x, place(r)) + (first + i * 32) * 16);
    });
  }
  __device__ __forceinline__ void load_weight(int r, int i) {
    if (packed_weight() && first + i * 32 < p.vectors)
      load_weights<SHIFTED>(p, weight_skip<OPTIONS>(p, row + r * teams), first + i * 32, weight[own ? r : 0][i]);
  }
  /* Of rows that are not aligned. */
  __device__ __forceinline__ void load_shifted(const Rows &rows, const char *end, Packed<T, V> (&to)[ROWS][NV]) const {
    Sixteen s[ROWS][NV];
    auto row_of = [&](int r) -> ShiftedRow {
      return {there(r) ? row_at<OPTIONS>(rows, place(r)) : nullptr, end, there(r) ? p.bytes : 0};
    };
    each([&](int r, int i) { s[r][i] = row_of(r).fetch(first + i * 32); });
    each([&](int r, int i) { row_of(r).take(to[r][i].w, s[r][i], first + i * 32); });
  }
  /* x, or its sum with the residual, which is written; the weights with it where they are the same for all rows. */
  __device__ __forceinline__ void load() {
    Packed<T, V> in[ROWS][NV];
    if constexpr (SHIFTED) {
      load_shifted(p.x, p.x_end, in);
      if constexpr (GATE != RMS_GATE_NONE) load_shifted(p.gate, p.gate_end, gate);
    } else {
      load_rows(p.x, in);
      if constexpr (GATE != RMS_GATE_NONE) load_rows(p.gate, gate);
    }
    if (early && !several()) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        load_weight(0, i);
    }
    if constexpr (RESIDUAL && SHIFTED) {
      load_shifted(p.residual, p.residual_end, x);
      each([&](int r, int i) {
        add_residual(x[r][i], in[r][i], x[r][i]);
        if (p.sum.data)
          store_row<true>(p, row_at<OPTIONS>(p.sum, place(r)), first + i * 32, x[r][i], there(r), lanes());
      });
    } else if constexpr (RESIDUAL) {
      each([&](int r, int i) {
        clear(x[r][i]);
        if (!here(r, i)) return;
        Packed<S, V> residual;
        const int64_t at = bytes_before<S, V>(first + i * 32);
        load_vector<true, true, true>(residual, row_at<OPTIONS>(p.residual, place(r)) + at, V);
        add_residual(x[r][i], in[r][i], residual);
        if (p.sum.data) store_vector<true>(row_at<OPTIONS>(p.sum, place(r)) + at, x[r][i], V);
      });
    } else if constexpr (GATE == RMS_GATE_BEFORE) {
      each([&](int r, int i) { open_gate(x[r][i], in[r][i], gate[r][i], p.sigmoid); });
    } else {
      each([&](int r, int i) { x[r][i] = in[r][i]; });
    }
  }
  /* Weights of each row, once the sums have left registers for them. */
  __device__ __forceinline__ void spread_weights() {
    if constexpr (own) {
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (several())
          load_weight(r, 0);
        else if (r > 0)
          weight[r][0] = weight[0][0];
    }
  }
  /* The common case of one row. The parameters of a vector are asked for before the vector ahead of it is stored: they
   * might lie where that goes, so the compiler would have them wait for it. */
  __device__ __forceinline__ void finish_common_row(const Statistic<float> &st) {
    Packed<T, V> late[2], bias[2];
    auto ask = [&](int i) {
      if (first + i * 32 >= p.vectors) return;
      if (!early && p.weight) load_weights<false>(p, 0, first + i * 32, late[i % 2]);
      if (p.bias) load_vector<true, false>(bias[i % 2], p.bias + (first + i * 32) * 16, V);
    };
    if (!there(0)) return;
    if (first == 0) write_statistic(p, row, st);
    char *y_at = row_at<false>(p.y, place(0));
    ask(0);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      if (i + 1 < NV) ask(i + 1);
      if (first + i * 32 >= p.vectors) continue;
      Packed<T, V> out;
      finish_common<LAYER, RMS_GATE_NONE>(p, x[0][i], st, early ? weight[0][i] : late[i % 2], bias[i % 2], out, out);
      store_vector<true>(y_at + bytes_before<T, V>(first + i * 32), out, V);
    }
  }
  template <bool BEFORE> __device__ __forceinline__ void finish(const Statistic<float> (&st)[ROWS]) {
    float g[NV][V]; /* of PLAIN rows; without options all have the same weights, which are unpacked once */
    if constexpr (GATE != RMS_GATE_NONE && !OPTIONS) {
#pragma unroll
      for (int i = 0; i < NV; i++)
        unpack(weight[0][i], g[i]);
    }
    if (SHIFTED && GATE == RMS_GATE_AFTER) __syncwarp(); /* y may lie where pieces of the gate do that others read */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (!SHIFTED && !there(r)) continue;
      if (first == 0 && there(r)) write_statistic(p, row + r * teams, st[r]);
      char *y_at = row_at<OPTIONS>(p.y, place(r));
#pragma unroll
      for (int i = 0; i < NV; i++) {
        if (!SHIFTED && first + i * 32 >= p.vectors) continue;
        if (!own && (!early || several())) load_weight(r, i);
        Packed<T, V> out;
        if (GATE != RMS_GATE_NONE && !SHIFTED && __builtin_expect(is_plain<OPTIONS>(p, st[r]), 1)) {
          if (OPTIONS) unpack(weight[own ? r : 0][i], g[i]);
          finish_plain<LAYER, BEFORE, GATE>(p, x[r][i], st[r], g[i], gate[r][i], out);
          store_vector<true>(y_at + bytes_before<T, V>(first + i * 32), out, V);
          continue;
        }
        finish_vector<LAYER, OPTIONS, SHIFTED, BEFORE, GATE>(p, x[r][i], st[r], weight[own ? r : 0][i], gate[r][i],
                                                             weight_skip<OPTIONS>(p, row + r * teams), first + i * 32,
                                                             out);
        store_row<SHIFTED>(p, y_at, first + i * 32, out, there(r), lanes());
      }
    }
  }
};

/* f16 takes a few registers more than bf16. */
template <class T, bool RESIDUAL, bool OPTIONS>
constexpr bool needs_more = RESIDUAL &&OPTIONS &&std::is_same<T, __half>::value;

/* A warp has ROWS * 32/team rows. */
template <class T, class S, int NV, int ROWS, bool LAYER, bool RESIDUAL, bool OPTIONS, bool SHIFTED,
          rms_gate_place GATE>
__global__ void __launch_bounds__(
    WARP_FORWARD_THREADS,
    (GATE != RMS_GATE_NONE && !OPTIONS
         ? plain_gate_blocks<NV>
         : forward_warp_blocks<NV, LAYER, OPTIONS, SHIFTED,
                               (sizeof(S) != sizeof(T) || GATE != RMS_GATE_NONE || needs_more<T, RESIDUAL, OPTIONS>)>))
    forward_warp_kernel(const __grid_constant__ ForwardJob p) {
  WarpRows<T, S, NV, ROWS, LAYER, RESIDUAL, OPTIONS, SHIFTED, GATE> rows(p);
  if (NV < 4 && blockIdx.x < p.ahead) rows.prefetch();
  wait_for_previous();
  if (NV == 4) let_next_start();
  rows.load();
  Statistic<float> st[ROWS];
  LaneSums<ROWS, NV, SHIFTED, GATE != RMS_GATE_NONE> over(rows.first, p.team);
  measure_rows<LAYER, OPTIONS, T>(p, rows.x, st, over);
  if (NV < 4) let_next_start(); /* few rows at a time: later is better */
  rows.spread_weights();
  if constexpr (NV >= 3 && ROWS == 1 && !OPTIONS)
    rows.finish_common_row(st[0]);
  else
    by_rounding<OPTIONS || GATE != RMS_GATE_NONE>(p, [&](auto before) { rows.template finish<before>(st); });
}

} // namespace rms_cuda

#endif
