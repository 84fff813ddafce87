/* SPDX-License-Identifier: MIT
 *
 * A block of the backward block kernel: its shared memory, which part of which rows a thread of it has, and the ring of
 * stages through which the rows come. Template parameters as in backward_block.cuh. */
#ifndef RMS_CUDA_BACKWARD_RING_CUH
#define RMS_CUDA_BACKWARD_RING_CUH

#include "backward_steps.cuh"
#include "team_sums.cuh"

namespace rms_cuda {

template <class T, bool LAYER, bool DBIAS, bool CLUSTER, Form FORM, bool PAIRED> struct BackwardBlock {
  static constexpr int TEAMS = PAIRED ? 2 : 1; /* of a block of a cluster */
  static constexpr int NV = BACKWARD_VECTORS * TEAMS, V = vector_of<T>, Q = V / 4, SUMS = LAYER ? 2 : 1;
  static constexpr bool options = has_options(FORM), f32 = FORM == Form::F32_SUM;
  static constexpr int wide = f32 ? V * 4 / 16 : 1; /* cells of a vector of x and of what is added, at most */
  static constexpr int of_dy = FORM == Form::F32_DY ? V * 4 / 16 : 1; /* and of dy */
  static_assert(NV * BACKWARD_TEAM == TEAMS * PANEL, "the blocks of a cluster have a panel each");
  static constexpr bool tail = FORM == Form::SHIFTED_TAIL;
  static constexpr int PANELS = tail ? 2 : 1;
  using Sums = TeamSums<NV, SUMS, PANELS, CLUSTER>;
  using S = sum_of<T, FORM>;

  int team, cells, teams, stages, stage_bytes;
  int stream;       /* cells of a stream in a stage, of 16 bytes of a vector */
  int which, t;     /* which team of the block, and which thread of it                  */
  int rank, slice;  /* which block of the cluster; of which slice its rows are          */
  int first;        /* vector of a row                                                  */
  int own;          /* vectors of a row that this block has                             */
  int mine, stride; /* this team's rows: every `stride`-th from `mine`                  */
  BackwardShared where;

  __device__ __forceinline__ explicit BackwardBlock(const BackwardJob &p) {
    const int added = options && p.added.data ? wide : 0;
    team = tail      ? (int)TAILED_TEAM
           : CLUSTER ? BACKWARD_TEAM / TEAMS
                     : p.team,
    teams = CLUSTER ? TEAMS : (int)blockDim.x / team;
    cells = team * NV, stages = p.stages, stream = cells + more_pieces(FORM);
    stage_bytes = stream * 16 * (wide + of_dy + added);
    which = CLUSTER && !PAIRED ? 0 : __shfl_sync(whole_warp, (int)threadIdx.x / team, 0),
    t = (int)threadIdx.x - which * team;
    rank = CLUSTER ? (int)(blockIdx.x % (unsigned)p.cluster) : 0;
    slice = 0;
    if (options) slice = share(p) / p.shares;
    first = rank * pitch() + cell(0);
    if (tail && t >= BACKWARD_TEAM && rank + 1 < p.cluster) first = p.vectors; /* nothing */
    own = min(p.vectors - rank * pitch(), rank + 1 < p.cluster ? pitch() : cells);
    mine = share(p) * teams + which, stride = p.shares * teams;
    where =
        backward_shared(FORM, V, SUMS, DBIAS, (int)blockDim.x, team, NV, stages, 16 * (wide + of_dy + added), CLUSTER);
  }
  /* The vectors of a thread, as places in a stage and as vectors of a row. Those of the tail follow the panel, and the
   * last warp has them. */
  __device__ __forceinline__ int step() const {
    return tail && t >= BACKWARD_TEAM ? 32 : tail ? (int)BACKWARD_TEAM : team;
  }
  __device__ __forceinline__ int cell(int i) const {
    return (tail && t >= BACKWARD_TEAM ? BACKWARD_TEAM : 0) + t + i * step();
  }
  __device__ __forceinline__ int vector(int i) const { return first + i * step(); }
  /* Vectors from one block's to the next one's. */
  __device__ __forceinline__ int pitch() const { return tail ? (int)PANEL : cells; }
  /* Where the sums of this lane's chunks go. */
  __device__ __forceinline__ int place_of_sums() const {
    if (!tail || t < BACKWARD_TEAM)
      return place_of_lane<SUMS, PANELS, NV>(t / 32, tail ? BACKWARD_TEAM / 32 : team / 32);
    const int place = place_of_lane<SUMS, PANELS, NV>(0, 1);
    return place < 0 ? place : place + 32;
  }
  /* Which cluster (block) of the slice. Worked out anew where it is needed: it is not worth a register in between. */
  __device__ __forceinline__ int share(const BackwardJob &p) const {
    unsigned block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return (int)(CLUSTER ? block / (unsigned)p.cluster : block) - slice * p.shares;
  }
  __device__ __forceinline__ uint64_t *barriers(char *shared) const {
    return reinterpret_cast<uint64_t *>(shared + where.barrier);
  }
  __device__ __forceinline__ uint64_t *full(char *shared) const { return barriers(shared) + which * stages; }
  __device__ __forceinline__ float *chunks(char *shared) const {
    return reinterpret_cast<float *>(shared + where.chunk);
  }
  __device__ __forceinline__ float4 *gain(char *shared) const {
    return reinterpret_cast<float4 *>(shared + where.gain) + cell(0);
  }
  /* Sums of columns, of this thread. Worked out anew where they are needed: they are not worth a register. */
  __device__ __forceinline__ float4 *column_cells(char *shared, int offset, int plane) const {
    unsigned thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return reinterpret_cast<float4 *>(shared + offset) + plane * NV * Q * (int)blockDim.x + thread;
  }
  /* Rounds of this team that are out of range, FLAT to a word, and whether there are any in the block. */
  __device__ __forceinline__ unsigned *noted(char *shared) const {
    return reinterpret_cast<unsigned *>(shared + where.noted) + which * DEEP;
  }
  __device__ __forceinline__ unsigned *any_noted(char *shared) const {
    return reinterpret_cast<unsigned *>(shared + where.any_noted);
  }
  __device__ __forceinline__ char *ring(char *shared) const {
    return shared + where.ring + which * stages * stage_bytes;
  }
  /* Sums over the team's rows, from a phase and parity on. */
  __device__ __forceinline__ Sums sums(const BackwardJob &p, char *shared, int phase, int parity) const {
    return {chunks(shared) + which * (2 * SUMS * 32),
            reinterpret_cast<float *>(shared + where.mail) + which * Sums::mail_places,
            barriers(shared) + teams * stages + which * 2,
            place_of_sums(),
            which,
            team,
            p.cluster,
            rank,
            phase,
            parity};
  }

  /* ---- the ring ---- */

  /* Asks for copies, not of the first warp, which sends the sums to the other blocks. */
  __device__ __forceinline__ bool issues() const { return t == team - 32; }
  __device__ __forceinline__ int x_bytes(const BackwardJob &p) const { return f32 && p.x_is_f32 ? 16 * wide : 16; }
  __device__ __forceinline__ int added_bytes(const BackwardJob &p) const {
    return f32 && p.added_is_f32 ? 16 * wide : 16;
  }
  __device__ __forceinline__ RowPlace place(const BackwardJob &p, int round) const {
    return place_in_slice<FORM>(p, mine + (int64_t)round * stride, slice);
  }
  /* A stream of a row to its place in a stage: all of this block's part, or in older code what this thread has of it.
   * bytes: of a vector. */
  __device__ __forceinline__ void copy_stream(char *to, const char *row, int bytes, uint64_t *barrier) const {
    const char *from = row + (int64_t)(rank * pitch()) * bytes;
#if __CUDA_ARCH__ >= 900
    copy_bulk<false>(to, from, own * bytes, barrier);
#else
    (void)barrier;
#pragma unroll 1
    for (int v = t; v < own; v += team)
      for (int at = v * bytes; at < (v + 1) * bytes; at += 16)
        copy_ahead(to + at, from + at, 16);
#endif
  }
  /* The pieces of a stream that is not aligned, but for one that is not all of the tensor. */
  __device__ __forceinline__ void copy_pieces(const BackwardJob &p, char *to, const char *row, const char *end,
                                              uint64_t *barrier) const {
    const char *from = row - shift_of(row) + rank * pitch() * 16;
    int pieces = (p.bytes + shift_of(row) - rank * pitch() * 16 + 15) / 16;
    if (pieces > own + 1) pieces = own + 1;
    if (from + pieces * 16 > end) pieces--;
    if (pieces <= 0) return;
    expect_more_bytes(barrier, pieces * 16);
    copy_bulk<false>(to, from, pieces * 16, barrier);
  }
  __device__ __forceinline__ void request_shifted(const BackwardJob &p, char *shared, int round, int stage) const {
    const RowPlace row = place(p, round);
    char *to = ring(shared) + stage * stage_bytes;
    uint64_t *barrier = full(shared) + stage;
    copy_pieces(p, to, row_at<options>(p.x, row), p.x_end, barrier);
    copy_pieces(p, to + stream * 16, row_at<options>(p.dy, row), p.dy_end, barrier);
    if (options && p.added.data) copy_pieces(p, to + stream * 32, row_at<options>(p.added, row), p.added_end, barrier);
    expect_bytes(barrier, 0); /* these are all */
  }
  /* A stage: x, dy, and what is added. */
  __device__ __forceinline__ void request(const BackwardJob &p, char *shared, int round, int stage) const {
    if constexpr (is_shifted(FORM)) {
      request_shifted(p, shared, round, stage);
      return;
    }
    const RowPlace row = place(p, round);
    char *to = ring(shared) + stage * stage_bytes, *dy_to = to + stream * 16 * wide;
    const bool added = options && p.added.data;
    uint64_t *barrier = full(shared) + stage;
    expect_bytes(barrier, own * (x_bytes(p) + 16 * of_dy + (added ? added_bytes(p) : 0)));
    copy_stream(to, row_at<options>(p.x, row), x_bytes(p), barrier);
    copy_stream(dy_to, row_at<options>(p.dy, row), 16 * of_dy, barrier);
    if (added) copy_stream(dy_to + stream * 16 * of_dy, row_at<options>(p.added, row), added_bytes(p), barrier);
  }
  /* All threads of the team call it, once a round; wanted: there is such a round. */
  __device__ __forceinline__ void fill(const BackwardJob &p, char *shared, int round, int stage, bool wanted) const {
#if __CUDA_ARCH__ >= 900
    if (issues() && wanted) request(p, shared, round, stage);
#else
    if (wanted) request(p, shared, round, stage);
    end_of_copies();
#endif
  }
  /* late: rounds by which a stage is asked for after the one that it was free in. */
  __device__ __forceinline__ void wait(char *shared, int stage, int turn, int late = 0) const {
#if __CUDA_ARCH__ >= 900
    (void)late;
    wait_for_copies(full(shared) + stage, turn);
#else
    (void)shared, (void)stage, (void)turn;
    wait_for_stage(stages - late);
#endif
  }
  /* The vectors of this thread of a stream of a stage; row: where it comes from. What no piece held comes from there.
   */
  __device__ __forceinline__ void take_shifted(const BackwardJob &p, Packed<T, V> (&v)[NV], const char *stream,
                                               const char *row, const char *end) const {
    Sixteen s[NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const uint4 *at = reinterpret_cast<const uint4 *>(stream) + cell(i);
      s[i] = {at[0], at[1]};
    }
    put_together(v, s, (unsigned)shift_of(row));
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int left = p.bytes - vector(i) * 16;
      if (__builtin_expect(left >= 32, 1)) continue;
      if (left > 0 && row + p.bytes - left + 32 > end) load_narrow(v[i].w, row + p.bytes - left, left < 16 ? left : 16);
      cut_off(v[i].w, left);
    }
  }
  /* Results of a row that is not aligned, by way of shared memory: each thread keeps its vectors there, and after a
   * barrier stores pieces. What does not fill a piece the first warp stores element by element. */
  __device__ __forceinline__ uint4 *out(char *shared, int result) const {
    return reinterpret_cast<uint4 *>(shared + where.out) + (which * shifted_results(FORM) + result) * (cells + 1);
  }
  __device__ __forceinline__ void keep(char *shared, int result, int i, const Packed<T, V> &v) const {
    out(shared, result)[cell(i)] = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
  }
  __device__ __forceinline__ void store_pieces(const BackwardJob &p, char *shared, int result, char *row) const {
    constexpr int size = (int)sizeof(T);
    using Bits = std::conditional_t<size == 2, uint16_t, uint32_t>;
    char *to = row + rank * pitch() * 16;
    const int bytes = min(p.bytes - rank * pitch() * 16, own * 16);
    const int head = min(bytes, -shift_of(to) & 15), whole = (bytes - head) / 16;
    const uint4 *from = out(shared, result);
    Sixteen s[NV];
    Packed<T, V> v[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      s[i] = {from[cell(i)], from[cell(i) + 1]};
    put_together(v, s, (unsigned)head);
#pragma unroll
    for (int i = 0; i < NV; i++)
      if (cell(i) < whole) store_vector<true>(to + head + cell(i) * 16, v[i], V);
    if (t < 32) {
      const int at = (t & 15) * size + (t < 16 ? 0 : head + whole * 16);
      if (at < (t < 16 ? head : bytes))
        *reinterpret_cast<Bits *>(to + at) = reinterpret_cast<const Bits *>(from)[at / size];
    }
  }
  __device__ __forceinline__ void take(Packed<S, V> &v, const char *stream, int i, bool is_f32) const {
    if constexpr (!f32) {
      (void)is_f32;
      take_cell(v, reinterpret_cast<const uint4 *>(stream) + cell(i));
    } else if (is_f32) {
      take_cell(v, reinterpret_cast<const uint4 *>(stream) + cell(i) * wide, 1);
    } else {
      Packed<T, V> narrow;
      float f[V];
      take_cell(narrow, reinterpret_cast<const uint4 *>(stream) + cell(i));
      unpack(narrow, f);
      pack(v, f);
    }
  }

  /* ---- start and end ---- */

  /* Barriers, and zeros where no copy and no sum will write. */
  __device__ __forceinline__ void start(const BackwardJob &p, char *shared) const {
    if (threadIdx.x == 0) start_barriers(barriers(shared), teams * stages + 2 * (CLUSTER ? teams : 1));
    for (int i = (int)threadIdx.x; i < teams * 2 * SUMS * PANELS * 32; i += (int)blockDim.x)
      chunks(shared)[i] = exact_zero;
    if (CLUSTER) Sums::clear_mail(reinterpret_cast<float *>(shared + where.mail), teams);
    for (int i = (int)threadIdx.x; i < teams * DEEP + 1; i += (int)blockDim.x) /* and any_noted behind them */
      reinterpret_cast<unsigned *>(shared + where.noted)[i] = 0;
    auto clear_cells = [&](char *from, char *end) {
      for (char *at = from + t * 16; at < end; at += team * 16)
        *reinterpret_cast<uint4 *>(at) = make_uint4(0, 0, 0, 0);
    };
    for (int i = 0; own < cells && i < stages && !is_shifted(FORM); i++) {
      char *x = ring(shared) + i * stage_bytes, *dy = x + stream * 16 * wide, *added = dy + stream * 16 * of_dy;
      clear_cells(x + own * x_bytes(p), dy);
      clear_cells(dy + own * 16 * of_dy, added);
      if (options && p.added.data) clear_cells(added + own * added_bytes(p), x + stage_bytes);
    }
    __syncthreads();
  }
  /* Brings the first rows to L2. */
  __device__ __forceinline__ void prefetch(const BackwardJob &p, int rounds) const {
#pragma unroll 1
    for (int i = 0; i < p.ahead && i < rounds; i++) {
      const RowPlace row = place(p, i);
      const char *x = row_at<options>(p.x, row) + (int64_t)(rank * pitch()) * x_bytes(p),
                 *dy = row_at<options>(p.dy, row) + (int64_t)(rank * pitch()) * (16 * of_dy);
      if constexpr (is_shifted(FORM)) {
        if (own < 2) return;
        prefetch_bulk(x - shift_of(x), (own - 1) * 16);
        prefetch_bulk(dy - shift_of(dy), (own - 1) * 16);
      } else {
        prefetch_bulk(x, own * x_bytes(p));
        prefetch_bulk(dy, own * 16 * of_dy);
      }
    }
  }
  /* Weight and offset of the slice, by the first team. */
  __device__ __forceinline__ void set_gain(const BackwardJob &p, char *shared) const {
    if (which != 0) return;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float g[V];
      load_gain<T, FORM>(p, slice, vector(i), g);
#pragma unroll
      for (int c = 0; c < Q; c++)
        gain(shared)[c * cells + i * step()] = make_float4(g[4 * c], g[4 * c + 1], g[4 * c + 2], g[4 * c + 3]);
    }
  }
  /* The column sums of the block. */
  __device__ __forceinline__ void write_partial(const BackwardJob &p, char *shared) const {
    const float4 *all = reinterpret_cast<const float4 *>(shared + where.deep);
    const int64_t width = (int64_t)p.vectors * V;
    float *to = p.partial + ((int64_t)slice * p.shares + share(p)) * width + (int64_t)rank * pitch() * V;
    if (p.want_dweight) {
      write_columns<NV, Q, tail>(to, all, team, teams, own);
      to += (options ? p.slices : 1) * p.shares * width;
    }
    if (DBIAS && p.want_dbias) write_columns<NV, Q, tail>(to, all + NV * Q * (int)blockDim.x, team, teams, own);
  }
};

} // namespace rms_cuda

#endif
