/* SPDX-License-Identifier: MIT
 *
 * Backward of the common case: aligned rows at one distance, one weight for all, the whole row in the statistic, eps
 * inside the root, saved statistics, one rounding. Persistent blocks whose teams walk the rows; rows come through a
 * ring of stages that bulk copies fill ahead. The arithmetic is that of backward.cuh.
 *
 * dweight and dbias are summed over FLAT rows in registers, then over at most DEEP such sums in shared memory, all in
 * f32: no chain is longer than 64.
 *
 * T: data type. NV: vectors of a thread. */
#ifndef RMS_CUDA_LEAN_BACKWARD_CUH
#define RMS_CUDA_LEAN_BACKWARD_CUH

#include "lean_ring.cuh"
#include "lean_sums.cuh"

namespace rms_cuda {

/* What the scaled way knows of a row. */
struct RowFactors {
  float mean, r, scale, u_scale; /* h = (x*scale - mean)*r, u = dy*g*u_scale  */
  float c1, c2, out;             /* dx = ((u - c1) - h*c2)*out */
};

template <bool LAYER, int V> __device__ __forceinline__ void normalise(float (&x)[V], float r, float mean) {
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = (LAYER ? x[j] - mean : x[j]) * r;
}

/* dy to u. */
template <int V> __device__ __forceinline__ void weigh(float (&u)[V], const float4 *gain, int plane) {
#pragma unroll
  for (int c = 0; c < V / 4; c++) {
    float4 g = gain[c * plane];
    u[4 * c] *= g.x, u[4 * c + 1] *= g.y, u[4 * c + 2] *= g.z, u[4 * c + 3] *= g.w;
  }
}

__device__ __forceinline__ bool trusted(float r) {
  return r >= 0x1p-120f && r <= 0x1p120f;
}

__device__ __forceinline__ bool trusted_dot(float sum) {
  return fabsf(sum) >= 0x1p-80f && fabsf(sum) <= Range<float>::most();
}

/* Brings what a kernel will read first to L2. No value is read, so it may come before the wait for the kernel that
 * writes it. */
__device__ __forceinline__ void prefetch_bulk(const char *from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
  (void)from, (void)bytes;
#endif
}

__device__ __forceinline__ void prefetch_line(const char *from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

/* The most threads of a block, which decides how many registers a thread has: 96, or 128 where it needs them. */
template <class T, bool LAYER, bool DBIAS, bool CLUSTER>
constexpr int backward_threads = DBIAS || (LAYER && CLUSTER && sizeof(T) == 4) ? (int)BACKWARD_TEAM
                                                                               : (int)BACKWARD_THREADS;

/* The parts of a block's shared memory, in bytes from its start. */
struct BackwardShared {
  int ring, gain, deep, chunk, mail, barrier, odd, total;
};
template <int NV, int V, bool LAYER, bool DBIAS, int PANELS>
__host__ __device__ constexpr BackwardShared backward_shared(int threads, int team, int stages, int cluster) {
  BackwardShared s = {};
  const int teams = threads / team, cells = team * NV, sums = LAYER ? 2 : 1;
  s.ring = 0;
  s.gain = s.ring + teams * stages * 2 * cells * 16;
  s.deep = s.gain + cells * V * 4;
  s.chunk = s.deep + (DBIAS ? 2 : 1) * threads * NV * V * 4;
  s.mail = s.chunk + teams * 2 * sums * PANELS * 32 * 4;
  s.barrier = s.mail + (cluster > 1 ? 2 * sums * PANELS * MAX_CLUSTER * 4 : 0);
  s.odd = s.barrier + (teams * stages + 2) * 8;
  s.total = s.odd + teams * DEEP * 4;
  return s;
}

/* ---- rows that are out of range ---- */

/* One row of a team once more, from memory, scaled; none where row is negative. Every team of a block goes through the
 * same barriers. */
template <class T, int NV, bool LAYER, bool DBIAS, int SUMS, int PANELS, bool CLUSTER>
__device__ __forceinline__ void scaled_row(const LeanBackward &p, RowSums<NV, SUMS, PANELS, CLUSTER> &sums, int64_t row,
                                           int first, const float4 *gain, int cells,
                                           ColumnSums<NV, vector_of<T>> &dweight, ColumnSums<NV, vector_of<T>> &dbias) {
  constexpr int V = vector_of<T>;
  const int team = sums.team;
  const bool active = row >= 0;
  RowFactors f = {0, 1, 1, 1, 0, 0, 0};
  Packed<T, V> x[NV], dy[NV];
  float h[NV][V], u[NV][V], v[SUMS * NV];
  if (active) {
    f.r = p.rstd[row];
    if (LAYER) f.mean = p.mean[row];
  }
#pragma unroll
  for (int i = 0; i < NV; i++) {
    clear(x[i]), clear(dy[i]);
    if (active && first + i * team < p.vectors) {
      load_vector<true, true>(x[i], p.x + row * p.x_pitch + (first + i * team) * 16, V);
      load_vector<true, true>(dy[i], p.dy + row * p.dy_pitch + (first + i * team) * 16, V);
    }
  }
#pragma unroll
  for (int i = 0; i < SUMS * NV; i++)
    v[i] = 0;
  auto largest = [&](bool of_u) -> float {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      unpack(of_u ? dy[i] : x[i], u[i]);
      if (of_u) weigh(u[i], gain + i * team, cells);
      v[i] = 0;
#pragma unroll
      for (int j = 0; j < V; j++)
        v[i] = Max::of(v[i], size_for_scale(u[i][j]));
    }
    return sums.template of<Max>(v).x;
  };
  Statistic<float> st = {0, 0, 0, 0, 1};
  const float scale = scale_for(largest(false), p.eps_limit);
#pragma unroll 1
  for (int pass = 0; pass < 2; pass++) { /* as it is, then scaled if it has to be */
    if (pass == 1 && !in_range(st.sum)) st.scale = scale;
    st.mean = 0;
#pragma unroll 1
    for (int squares = LAYER ? 0 : 1; squares < 2; squares++) {
#pragma unroll
      for (int i = 0; i < NV; i++) {
        float a = 0;
        unpack(x[i], h[i]);
#pragma unroll
        for (int j = 0; j < V; j++) {
          float d = fused(h[i][j], st.scale, -st.mean);
          a = squares ? fused(d, d, a) : a + d;
        }
        v[i] = first + i * team < p.vectors ? a : 0.0f;
      }
      const float total = sums.template of<Add>(v).x;
      if (squares)
        st.sum = total;
      else
        st.mean = quotient(total, p.k);
    }
  }
  if (!trusted(f.r)) {
    float eps = st.scale == 1.0f ? p.eps : (float)(p.exact_eps * (double)st.scale * (double)st.scale);
    float root = square_root(quotient(st.sum, p.k) + eps);
    f.mean = st.mean, f.scale = st.scale, f.r = root == 0 ? 0.0f : quotient(1.0f, root);
  }
  float2 sum = make_float2(0, 0);
  const float u_scale = scale_for(largest(true), Range<float>::highest);
#pragma unroll 1
  for (int pass = 0; pass < 2; pass++) {
    if (pass == 1 && (!trusted_dot(sum.x) || (LAYER && !trusted_dot(sum.y)))) f.u_scale = u_scale;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0;
      unpack(x[i], h[i]);
      unpack(dy[i], u[i]);
      weigh(u[i], gain + i * team, cells);
#pragma unroll
      for (int j = 0; j < V; j++) {
        h[i][j] = fused(h[i][j], f.scale, -f.mean) * f.r;
        u[i][j] *= f.u_scale;
        a = fused(u[i][j], h[i][j], a);
        b += u[i][j];
      }
      v[i] = a;
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    sum = sums.template of<Add>(v);
  }
  f.c2 = quotient(sum.x, p.k);
  f.c1 = LAYER ? quotient(sum.y, p.k) : 0.0f;
  f.out = quotient(f.r * f.scale, f.u_scale);
  if (!active) return;
#pragma unroll
  for (int i = 0; i < NV; i++) {
    float d[V];
    unpack(dy[i], d);
#pragma unroll
    for (int j = 0; j < V; j++) {
      dweight.sum[i][j] = fused(d[j], h[i][j], dweight.sum[i][j]);
      if (DBIAS) dbias.sum[i][j] += d[j];
      u[i][j] = fused(-h[i][j], f.c2, u[i][j] - f.c1) * f.out;
    }
    pack(x[i], u[i]);
    if (first + i * team < p.vectors) store_vector<true>(p.dx + row * p.dx_pitch + (first + i * team) * 16, x[i], V);
  }
}

/* ---- the kernel ---- */

/* h, u and dy stay in registers between the two passes over a row. */
template <class T, int NV, bool LAYER, bool DBIAS, bool CLUSTER>
__global__ void __launch_bounds__(backward_threads<T, LAYER, DBIAS, CLUSTER>, 1)
    lean_backward_kernel(const __grid_constant__ LeanBackward p) {
  constexpr int V = vector_of<T>, Q = V / 4, PANELS = NV * BACKWARD_TEAM / PANEL, SUMS = LAYER ? 2 : 1;
  static_assert(PANELS == 1, "the blocks of a cluster have a panel each");
  extern __shared__ __align__(128) char shared[];
  const int team = p.team, cells = team * NV, teams = (int)blockDim.x / team, stages = p.stages;
  const int group = __shfl_sync(whole_warp, (int)threadIdx.x / team, 0), t = (int)threadIdx.x - group * team;
  const BackwardShared where =
      backward_shared<NV, V, LAYER, DBIAS, PANELS>((int)blockDim.x, team, stages, CLUSTER ? p.cluster : 1);
  const int rank = CLUSTER ? (int)(blockIdx.x % (unsigned)p.cluster) : 0;
  const int share = CLUSTER ? (int)(blockIdx.x / (unsigned)p.cluster) : (int)blockIdx.x;
  const int first = rank * cells + t;                                                  /* vector of the row */
  const int own = p.vectors - rank * cells < cells ? p.vectors - rank * cells : cells; /* of this block */
  uint64_t *barriers = reinterpret_cast<uint64_t *>(shared + where.barrier), *full = barriers + group * stages;
  float *chunks = reinterpret_cast<float *>(shared + where.chunk);
  float4 *gain = reinterpret_cast<float4 *>(shared + where.gain) + t;
  float4 *deep = reinterpret_cast<float4 *>(shared + where.deep) + threadIdx.x;
  RowSums<NV, SUMS, PANELS, CLUSTER> sums = {chunks + group * (2 * SUMS * PANELS * 32),
                                             reinterpret_cast<float *>(shared + where.mail),
                                             barriers + teams * stages,
                                             place_of_lane<SUMS, PANELS, NV>(t / 32, team / 32),
                                             group,
                                             team,
                                             p.cluster,
                                             rank,
                                             0,
                                             0};

  /* this team's rows: every `stride`-th from `mine` */
  const int64_t mine = (int64_t)share * teams + group, stride = (int64_t)p.shares * teams;
  const int rounds = (int)((p.rows - mine + stride - 1) / stride);
  const int most_rounds =
      (int)((p.rows - (int64_t)share * teams + stride - 1) / stride); /* of the block's first team */
  const int stage_bytes = 2 * cells * 16;
  char *ring = shared + where.ring + group * stages * stage_bytes;

  if (threadIdx.x == 0) start_barriers(barriers, teams * stages + 2);
  /* what no copy and no sum will write */
  for (int i = (int)threadIdx.x; i < teams * 2 * SUMS * PANELS * 32; i += (int)blockDim.x)
    chunks[i] = 0;
  for (int i = (int)threadIdx.x; i < teams * DEEP; i += (int)blockDim.x)
    reinterpret_cast<unsigned *>(shared + where.odd)[i] = 0;
  for (int i = own + t; i < cells; i += team)
    for (int s = 0; s < 2 * stages; s++)
      *reinterpret_cast<uint4 *>(ring + (s * cells + i) * 16) = make_uint4(0, 0, 0, 0);
  __syncthreads();
  if (CLUSTER) cluster_arrive();
  const bool issuer = t == team - 32; /* not of the first warp, which sends the sums to the other blocks */
  if (issuer)
#pragma unroll 1
    for (int i = 0; i < p.ahead && i < rounds; i++) {
      const int64_t row = mine + i * stride;
      prefetch_bulk(p.x + row * p.x_pitch + rank * cells * 16, own * 16);
      prefetch_bulk(p.dy + row * p.dy_pitch + rank * cells * 16, own * 16);
    }
  wait_for_previous();
  let_next_start();

  auto request = [&](int round, int stage) {
    const int64_t row = mine + round * stride;
    char *to = ring + stage * stage_bytes;
    expect_bytes(full + stage, own * 32);
    copy_bulk<false>(to, p.x + row * p.x_pitch + rank * cells * 16, own * 16, full + stage);
    copy_bulk<false>(to + cells * 16, p.dy + row * p.dy_pitch + rank * cells * 16, own * 16, full + stage);
  };
  if (issuer)
#pragma unroll 1
    for (int i = 0; i < stages && i < rounds; i++)
      request(i, i);
  if (group == 0) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float g[V];
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j] = 1;
      if (p.weight && first + i * team < p.vectors) {
        load_parameter<true, T>(g, p.weight, (first + i * team) * V, V, p.weight_wide);
        if (p.offset != 0) {
#pragma unroll
          for (int j = 0; j < V; j++)
            g[j] += p.offset;
        }
      }
#pragma unroll
      for (int c = 0; c < Q; c++)
        gain[c * cells + i * team] = make_float4(g[4 * c], g[4 * c + 1], g[4 * c + 2], g[4 * c + 3]);
    }
  }
  __syncthreads();
  if (CLUSTER) cluster_wait();

  const float *saved_r = p.rstd + mine, *saved_mean = LAYER ? p.mean + mine : nullptr;
  float next_r = 0, next_mean = 0;
  if (rounds > 0) {
    next_r = *saved_r;
    if (LAYER) next_mean = *saved_mean;
  }
  char *dx_at = p.dx + mine * p.dx_pitch + first * 16;
  const int64_t dx_step = stride * p.dx_pitch;
  ColumnSums<NV, V> dweight, dbias;
  dweight.clear();
  if (DBIAS) dbias.clear();
  int stage = 0, turn = 0;
  bool flushed = false;
  unsigned odd = 0; /* rounds of this block of FLAT that are out of range; they come after the others */
  unsigned *odd_rows = reinterpret_cast<unsigned *>(shared + where.odd) + group * DEEP;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    const float r = next_r, mean = next_mean;
    if (round + 1 < rounds) {
      saved_r += stride;
      next_r = *saved_r;
      if (LAYER) {
        saved_mean += stride;
        next_mean = *saved_mean;
      }
    }
    wait_for_copies(full + stage, turn);
    const uint4 *cell = reinterpret_cast<const uint4 *>(ring + stage * stage_bytes) + t;
    Packed<T, V> x[NV], dy[NV];
    float h[NV][V], u[NV][V], v[SUMS * NV];
#pragma unroll
    for (int i = 0; i < NV; i++) {
      take_cell(x[i], cell + i * team);
      take_cell(dy[i], cell + cells + i * team);
    }
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float a = 0, b = 0;
      unpack(x[i], h[i]);
      unpack(dy[i], u[i]);
      normalise<LAYER>(h[i], r, mean);
      weigh(u[i], gain + i * team, cells);
#pragma unroll
      for (int j = 0; j < V; j++) {
        a = fused(u[i][j], h[i][j], a);
        if (LAYER) b += u[i][j];
      }
      v[i] = a;
      if (LAYER) v[NV * (SUMS - 1) + i] = b;
    }
    keep_packed(dy);
    sums.template publish<Add>(v);
    if (!p.late && issuer && round + stages < rounds) request(round + stages, stage); /* all have read the stage */
    const float2 sum = sums.template collect<Add>();
    if (__builtin_expect(trusted(r) && trusted_dot(sum.x) && (!LAYER || trusted_dot(sum.y)), 1)) {
      const float c2 = divided(sum.x, p.k, p.inverse_k), c1 = LAYER ? divided(sum.y, p.k, p.inverse_k) : 0.0f;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        float d[V];
        unpack(dy[i], d);
        Packed<T, V> packed;
#pragma unroll
        for (int j = 0; j < V; j++) {
          u[i][j] = fused(-h[i][j], c2, LAYER ? u[i][j] - c1 : u[i][j]) * r;
          dweight.sum[i][j] = fused(d[j], h[i][j], dweight.sum[i][j]);
          if (DBIAS) dbias.sum[i][j] += d[j];
        }
        pack(packed, u[i]);
        if (t + i * team < own) store_vector<true>(dx_at + i * team * 16, packed, V);
      }
    } else {
      odd |= 1u << (round % FLAT);
    }
    if (p.late && issuer && round + stages < rounds) request(round + stages, stage);
    dx_at += dx_step;
    if (++stage == stages) stage = 0, turn ^= 1;
    if (__builtin_expect(round % FLAT == FLAT - 1 || round + 1 == rounds, 0)) {
      dweight.flush(deep, (int)blockDim.x, flushed);
      if (DBIAS) dbias.flush(deep + NV * Q * (int)blockDim.x, (int)blockDim.x, flushed);
      flushed = true;
      if (t == 0) odd_rows[round / FLAT] = odd;
      odd = 0;
    }
  }
  if (!flushed) { /* no rows */
    dweight.flush(deep, (int)blockDim.x, false);
    if (DBIAS) dbias.flush(deep + NV * Q * (int)blockDim.x, (int)blockDim.x, false);
  }
  /* Rows out of range, block of FLAT rounds by block, the teams in step. */
  if (rounds < most_rounds) team_sync(group, team);
  __syncthreads();
  const unsigned *all_odd = reinterpret_cast<const unsigned *>(shared + where.odd);
#pragma unroll 1
  for (int block = 0; block * FLAT < most_rounds; block++) {
    int steps = 0;
    for (int g = 0; g < teams; g++)
      steps = max(steps, __popc(all_odd[g * DEEP + block]));
    if (__builtin_expect(steps == 0, 1)) continue;
    odd = odd_rows[block];
    dweight.clear();
    if (DBIAS) dbias.clear();
#pragma unroll 1
    for (; steps > 0; steps--, odd &= odd - 1)
      scaled_row<T, NV, LAYER, DBIAS>(p, sums,
                                      odd != 0 ? mine + (block * FLAT + __ffs((int)odd) - 1) * stride : (int64_t)-1,
                                      first, gain, cells, dweight, dbias);
    dweight.flush(deep, (int)blockDim.x, true);
    if (DBIAS) dbias.flush(deep + NV * Q * (int)blockDim.x, (int)blockDim.x, true);
  }
  __syncthreads();
  const float4 *all = reinterpret_cast<const float4 *>(shared + where.deep);
  const int64_t width = (int64_t)p.vectors * V;
  float *to = p.partial + share * width + (int64_t)rank * cells * V;
  if (p.want_dweight) {
    write_columns<NV, Q>(to, all, team, teams, own);
    to += p.shares * width;
  }
  if (DBIAS && p.want_dbias) write_columns<NV, Q>(to, all + NV * Q * (int)blockDim.x, team, teams, own);
}

} // namespace rms_cuda

#endif
