/* SPDX-License-Identifier: MIT
 *
 * The backward kernel: persistent blocks walk the rows of one slice (rows that share a weight). Rows come through a
 * ring of stages in shared memory, filled ahead by asynchronous copies; every thread reads back only what it asked for
 * itself, so the ring needs no barrier. dweight and dbias stay in registers.
 *
 * With h the normalised row and u = dy*g:  dx = r * (u - mean(u) - h * mean(u*h)), where mean(u) is LayerNorm's alone.
 *
 * T: data type. S: type of the residual tensors. NV: vectors of a thread. LAYER: LayerNorm, or dbias is wanted. */
#ifndef RMS_CUDA_BACKWARD_CUH
#define RMS_CUDA_BACKWARD_CUH

#include "forward.cuh"
#include "guard.cuh"
#include "ring.cuh"
#include "start.cuh"

namespace rms_cuda {

/* x of a row, as T or, where S is wider and the row is a residual sum, as S. */
template <class T, class S, int V>
__device__ __forceinline__ void take_x(float (&f)[V], const Packed<S, V> &x, bool wide) {
  if (sizeof(S) == sizeof(T) || wide) {
    unpack(x, f);
  } else if constexpr (sizeof(S) != sizeof(T)) {
    Packed<T, V> narrow;
#pragma unroll
    for (int j = 0; j < Packed<T, V>::words; j++)
      narrow.w[j] = x.w[j];
    unpack(narrow, f);
  }
}

/* ---- one row ---- */

template <class T, class S, int NV> struct Row {
  static constexpr int V = vector_of<T>;
  Packed<S, V> x[NV];
  Packed<T, V> dy[NV];
};

template <int V> __device__ __forceinline__ void take_gain(float (&g)[V], const uint4 *gain) {
#pragma unroll
  for (int c = 0; c < V / 4; c++) {
    const float4 four = *reinterpret_cast<const float4 *>(gain + c * (int)blockDim.x);
    g[4 * c] = four.x, g[4 * c + 1] = four.y, g[4 * c + 2] = four.z, g[4 * c + 3] = four.w;
  }
}

/* u = dy*g, rounded to T in the order of models that round before the weight. */
template <class T, int V>
__device__ __forceinline__ void weigh(const Layout &lay, float (&u)[V], const float (&dy)[V], const uint4 *gain) {
  float g[V];
  take_gain(g, gain);
#pragma unroll
  for (int j = 0; j < V; j++)
    u[j] = dy[j] * g[j];
  if (lay.before) round_to<T>(u);
}

/* h of an element that is not scaled. */
template <bool LAYER> __device__ __forceinline__ float normalised(float x, float r, float mean) {
  return (LAYER ? x - mean : x) * r;
}

/* Sums of u*h and u. */
template <bool LAYER, class T, class S, int NV>
__device__ __forceinline__ float2 dots(const BackwardJob &job, Team &team, Row<T, S, NV> &row, const uint4 *gain,
                                       const Statistic<float> &st) {
  constexpr int V = vector_of<T>;
  float a[NV], b[NV];
#pragma unroll
  for (int i = 0; i < NV; i++) {
    float x[V], dy[V], u[V];
    take_x<T>(x, row.x[i], job.x_wide);
    unpack(row.dy[i], dy);
    weigh<T>(job.lay, u, dy, gain + i * (V / 4) * (int)blockDim.x);
    a[i] = b[i] = 0;
#pragma unroll
    for (int j = 0; j < V; j++) {
      a[i] = fused(u[j], normalised<LAYER>(x[j], st.r, st.mean), a[i]);
      if (LAYER) b[i] += u[j];
    }
  }
  stay_packed(row.x);
  stay_packed(row.dy);
  if (!LAYER) return make_float2(reduce<Add>(team, a), 0.0f);
  return reduce_two(team, a, b);
}

/* A row in registers, for the range guard. */
template <class T, class S, int NV> struct TeamRow {
  static constexpr int V = vector_of<T>;
  const BackwardJob &job;
  Team &team;
  Row<T, S, NV> &row;
  const uint4 *gain;
  const Part &part;

  __device__ __forceinline__ unsigned mask(int i) const { return part.mask<V>(job.lay, i); }
  __device__ __forceinline__ void load_x(int i, float (&x)[V]) const { take_x<T>(x, row.x[i], job.x_wide); }
  __device__ __forceinline__ void load_dy(int i, float (&dy)[V]) const { unpack(row.dy[i], dy); }
  __device__ __forceinline__ void load_g(int i, float (&g)[V]) const {
    take_gain(g, gain + i * (V / 4) * (int)blockDim.x);
  }
  template <class Op, class F> __device__ __forceinline__ float over(F of_vector) {
    float a[NV];
#pragma unroll
    for (int i = 0; i < NV; i++)
      a[i] = of_vector(i);
    stay_packed(row.x);
    stay_packed(row.dy);
    return reduce<Op>(team, a);
  }
};

/* ---- which rows ---- */

/* Blocks (clusters) come slice by slice. Worked out anew where they are needed: they are not worth registers in the
 * loop. */
__device__ __forceinline__ unsigned block_unit(const BackwardJob &job) {
  unsigned block = blockIdx.x;
  asm volatile("" : "+r"(block));
  return block / (unsigned)job.cluster;
}
__device__ __forceinline__ unsigned slice_of(const BackwardJob &job) {
  return block_unit(job) / (unsigned)job.shares;
}
__device__ __forceinline__ unsigned share_of(const BackwardJob &job) {
  return block_unit(job) % (unsigned)job.shares;
}

/* ---- column sums at the end of a block of rows ---- */

template <class A> __device__ __forceinline__ void add_partial(A *to, double value, bool first) {
  *to = first ? (A)value : (A)((double)*to + value);
}

/* Teams of a warp hold the same columns: add them up, then the warps in order, and hand the sums to the partial buffer.
 * Bigger teams are alone in their block. */
template <int NV, int V>
__device__ __forceinline__ void hand_over(const BackwardJob &job, const Team &team, const Part &part,
                                          float (&sum)[NV][V], int plane, bool first_time, float *columns) {
  asm volatile("" : "+r"(plane)); /* what follows is not worth registers in the loop over rows */
  int64_t base = ((plane * job.slices + slice_of(job)) * job.shares + share_of(job)) * job.lay.width;
  int width = (int)job.lay.width;
  if (team.threads > 32) {
#pragma unroll
    for (int i = 0; i < NV; i++) {
      int from = part.first + i * part.step;
#pragma unroll
      for (int j = 0; j < V; j++) {
        if (from + j < width) {
          if (job.partial_is_f64)
            add_partial(static_cast<double *>(job.partial) + base + from + j, (double)sum[i][j], first_time);
          else
            static_cast<float *>(job.partial)[base + from + j] = sum[i][j];
        }
        sum[i][j] = 0;
        if (j % 4 == 3) asm volatile("" ::: "memory");
      }
    }
    return;
  }
  int pitch = team.threads * NV * V, warps = (int)blockDim.x / 32;
#pragma unroll
  for (int i = 0; i < NV; i++)
#pragma unroll
    for (int j = 0; j < V; j++) {
      float s = butterfly<Add>(sum[i][j], 16, team.threads);
      if ((threadIdx.x & 31) < (unsigned)team.threads)
        columns[(int)(threadIdx.x / 32) * pitch + part.first + i * part.step + j] = s;
      sum[i][j] = 0;
    }
  __syncthreads();
  for (int at = (int)threadIdx.x; at < width; at += (int)blockDim.x) {
    double s = 0;
    for (int w = 0; w < warps; w++)
      s += (double)columns[w * pitch + at];
    if (job.partial_is_f64)
      add_partial(static_cast<double *>(job.partial) + base + at, s, first_time);
    else
      static_cast<float *>(job.partial)[base + at] = (float)s;
  }
  __syncthreads();
}

/* ---- the kernel ---- */

template <class T, class S, bool ALIGNED>
constexpr int backward_team = ALIGNED && sizeof(S) == sizeof(T) ? BACKWARD_TEAM : BACKWARD_TEAM_WIDE;

template <class T, class S, int NV, bool LAYER, bool ALIGNED>
__global__ void __launch_bounds__(backward_team<T, S, ALIGNED>, 1)
    backward_kernel(const __grid_constant__ BackwardJob job) {
  constexpr int V = vector_of<T>, cells_x = V * (int)sizeof(S) / 16, cells_g = V / 4;
  extern __shared__ uint4 shared[];
  const Layout &lay = job.lay;
  const int threads = (int)blockDim.x, cluster = job.cluster;
  const int cells = NV * (cells_x + 1 + (job.dresidual.data ? cells_x : 0)); /* of a thread in a stage */

  /* shared memory: ring, gains, chunk sums, columns */
  uint4 *ring = shared + threadIdx.x;
  uint4 *gain = shared + cells * job.stages * threads + threadIdx.x;
  uint4 *rest = shared + (cells * job.stages + NV * cells_g) * threads;

  Team team;
  (void)join_team(team, job.team, cluster, 0, rest, NV);
  float *columns = team.chunks + 4 * team.pitch;
  const Part part = {(team.rank * NV * team.threads + team.thread) * V, team.threads * V, (int)lay.width};
  if (cluster > 1) cluster_arrive();

  /* this team's rows of the slice: every `stride`-th from `mine` */
  const unsigned share = share_of(job);
  const int teams = team.threads <= 32 ? threads / team.threads : 1;
  const int64_t mine = (int64_t)share * teams + (teams > 1 ? threadIdx.x / (unsigned)team.threads : 0);
  const int stride = (int)job.shares * teams;
  const int rounds =
      (int)((job.slice_rows - (int64_t)share * teams + stride - 1) / stride); /* the same for all teams of the block */
  const bool per_inner = lay.weight_inner != 0 && lay.inner > 1;
  const bool even = lay.inner == 1 && lay.groups == 1; /* rows follow each other at one distance */
  auto place = [&](int64_t row) -> Place {
    const int64_t slice = slice_of(job);
    Place at = {row, 0, slice % lay.groups};
    if (per_inner) {
      at.inner = slice / lay.groups;
    } else if (lay.inner > 1) {
      at.outer = row / lay.inner;
      at.inner = row - at.outer * lay.inner;
    }
    return at;
  };
  auto start = [&](const Rows &rows, int64_t row, int size) -> char * {
    if (even) return rows.data + row * rows.outer + part.first * size;
    return segment_at(rows, lay, place(row), size) + part.first * size;
  };
  auto request = [&](int64_t row, bool wanted, int stage) {
    if (wanted) {
      const bool active = row < job.slice_rows;
      const bool x_is_s = sizeof(S) == sizeof(T) || job.x_wide;
      const int64_t in = active ? row : 0;
      const char *x = start(job.x, in, x_is_s ? (int)sizeof(S) : (int)sizeof(T)), *dy = start(job.dy, in, sizeof(T));
      const char *dresidual = job.dresidual.data ? start(job.dresidual, in, sizeof(S)) : nullptr;
      uint4 *cell = ring + stage * cells * threads;
#pragma unroll
      for (int i = 0; i < NV; i++) {
        const int n = active ? part.count<V>(i) : 0, skip = i * part.step;
        if (x_is_s)
          fetch<ALIGNED, S, V>(cell + i * cells_x * threads, x + skip * (int)sizeof(S), n);
        else
          fetch<ALIGNED, T, V>(cell + i * cells_x * threads, x + skip * (int)sizeof(T), n);
        fetch<ALIGNED, T, V>(cell + (NV * cells_x + i) * threads, dy + skip * (int)sizeof(T), n);
        if (dresidual)
          fetch<ALIGNED, S, V>(cell + (NV * (cells_x + 1) + i * cells_x) * threads, dresidual + skip * (int)sizeof(S),
                               n);
      }
    }
    end_of_copies();
  };
  auto saved = [&](int64_t row, float &r, float &mean) {
    r = mean = 0;
    if (job.rstd && row < job.slice_rows) {
      int64_t s = row;
      if (!even) {
        const Place at = place(row);
        s = (at.outer * lay.inner + at.inner) * lay.groups + at.group;
      }
      r = static_cast<const float *>(job.rstd)[s];
      if (LAYER && job.mean) mean = static_cast<const float *>(job.mean)[s];
    }
  };

  /* The statistic of a row as it is given: calm where r is. */
  auto stat_of = [&](int64_t row) -> const rms_stat * {
    const Place at = place(row < job.slice_rows ? row : 0);
    return job.stats_in + (at.outer * lay.inner + at.inner) * lay.groups + at.group;
  };

  for (int i = 0; i < job.stages - 1; i++)
    request(mine + (int64_t)i * stride, i < rounds, i);
  {
    const int size = lay.weight_wide ? 4 : (int)sizeof(T);
    const int64_t slice = slice_of(job);
    const Place whose = {0, per_inner ? slice / lay.groups : 0, slice % lay.groups};
    const char *weight = parameter_at(lay.weight, lay, whose, size);
#pragma unroll
    for (int i = 0; i < NV; i++) {
      float g[V];
      int n = part.count<V>(i);
#pragma unroll
      for (int j = 0; j < V; j++)
        g[j] = 1;
      if (lay.weight && n > 0) {
        load_parameter<ALIGNED, T>(g, weight, part.first + i * part.step, n, lay.weight_wide);
        add_offset(g, lay.offset);
      }
#pragma unroll
      for (int c = 0; c < cells_g; c++)
        *reinterpret_cast<float4 *>(gain + (i * cells_g + c) * threads) =
            make_float4(g[4 * c], g[4 * c + 1], g[4 * c + 2], g[4 * c + 3]);
    }
  }
  float dweight[NV][V], dbias[NV][V];
#pragma unroll
  for (int i = 0; i < NV; i++)
#pragma unroll
    for (int j = 0; j < V; j++)
      dweight[i][j] = dbias[i][j] = 0;
  if (cluster > 1) cluster_wait();

  const bool whole = lay.k == lay.width, want_sums = job.want_dweight || job.want_dbias;
  const GuardSpec<float> spec = {lay.eps, (float)lay.k, lay.eps_limit, LAYER && lay.layer, lay.eps_outside, lay.before};
  int stage = 0;
  float next_r, next_mean;
  int64_t at = mine;
  saved(at, next_r, next_mean);
  for (int round = 0; round < rounds; round++, at += stride) {
    request(at + (int64_t)(job.stages - 1) * stride, round + job.stages - 1 < rounds,
            stage == 0 ? job.stages - 1 : stage - 1);
    wait_for_stage(job.stages);
    Row<T, S, NV> row;
    const uint4 *cell = ring + stage * cells * threads;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      take(row.x[i], cell + i * cells_x * threads);
      take(row.dy[i], cell + (NV * cells_x + i) * threads);
    }
    Statistic<float> st = {0, next_mean, 0, next_r, 1};
    saved(at + stride, next_r, next_mean);
    TeamRow<T, S, NV> guarded = {job, team, row, gain, part};
    if (job.stats_in) {
      st = given_statistic<float>(job.lay, *stat_of(at));
    } else if (!job.rstd || lay.eps_outside) {
      st = row_statistic<false>(spec, guarded);
    }
    const float2 sum = dots<LAYER>(job, team, row, gain, st);
    RowFactors<float> f = factors_of(spec, st, 0, {sum.x, sum.y}, spec.k);
    const bool good = calm(spec, st.r, {sum.x, sum.y});
    bool scaled = false;
    if (__builtin_expect(any_team(team, !good), 0)) {
      const RowFactors<float> other = scaled_factors<T>(spec, guarded, job.stats_in ? stat_of(at) : nullptr);
      if (!good) f = other, scaled = true;
    }

    const bool active = at < job.slice_rows;
    const int64_t to_row = active ? at : 0;
    char *dx = job.dx.data ? start(job.dx, to_row, sizeof(T)) : nullptr;
    char *dresidual_out = job.dresidual_out.data ? start(job.dresidual_out, to_row, sizeof(S)) : nullptr;
#pragma unroll
    for (int i = 0; i < NV; i++) {
      const int n = active ? part.count<V>(i) : 0, skip = i * part.step;
      float x[V], dy[V], out[V];
      take_x<T>(x, row.x[i], job.x_wide);
      unpack(row.dy[i], dy);
      if (__builtin_expect(scaled, 0)) {
        float g[V];
        take_gain(g, gain + i * cells_g * threads);
        unpack(row.dy[i], out);
        gradient_u<true, T>(spec, out, g, f.up);
        gradient_h(x, f.scale, f.mean, f.r);
        gradient_dx<true>(f, out, x, part.mask<V>(lay, i));
      } else {
        weigh<T>(lay, out, dy, gain + i * cells_g * threads);
#pragma unroll
        for (int j = 0; j < V; j++) {
          x[j] = normalised<LAYER>(x[j], f.r, f.mean);
          if (LAYER) out[j] -= f.c1;
        }
        if (__builtin_expect(whole, 1)) {
#pragma unroll
          for (int j = 0; j < V; j++)
            out[j] = fused(-x[j], f.c2, out[j]) * f.r;
        } else {
          const unsigned mask = part.mask<V>(lay, i);
#pragma unroll
          for (int j = 0; j < V; j++)
            out[j] = fused(-x[j], mask >> j & 1 ? f.c2 : 0.0f, out[j]) * f.r;
        }
      }
      if (job.dresidual.data) {
        Packed<S, V> in;
        float d[V];
        take(in, cell + (NV * (cells_x + 1) + i * cells_x) * threads);
        unpack(in, d);
#pragma unroll
        for (int j = 0; j < V; j++)
          out[j] += d[j];
      }
      if (n > 0) {
        if (job.add_to_dx) {
          Packed<T, V> old;
          float d[V];
          load_vector<ALIGNED, true>(old, dx + skip * (int)sizeof(T), n);
          unpack(old, d);
#pragma unroll
          for (int j = 0; j < V; j++)
            out[j] += d[j];
        }
        if (dresidual_out) {
          Packed<S, V> packed;
          pack(packed, out);
          store_vector<ALIGNED>(dresidual_out + skip * (int)sizeof(S), packed, n);
        }
        if (dx) {
          Packed<T, V> packed;
          pack(packed, out);
          store_vector<ALIGNED>(dx + skip * (int)sizeof(T), packed, n);
        }
      }
      if (want_sums) {
        if (lay.before) round_to<T>(x);
        if (job.round_product) {
#pragma unroll
          for (int j = 0; j < V; j++)
            x[j] *= dy[j];
          round_to<T>(x);
#pragma unroll
          for (int j = 0; j < V; j++)
            dweight[i][j] += x[j];
        } else {
#pragma unroll
          for (int j = 0; j < V; j++)
            dweight[i][j] = fused(dy[j], x[j], dweight[i][j]);
        }
#pragma unroll
        for (int j = 0; j < V; j++)
          if (LAYER && job.want_dbias) dbias[i][j] += dy[j];
      }
      asm volatile("" ::: "memory"); /* one vector after the other: interleaving them would cost registers */
    }
    stage = stage + 1 == job.stages ? 0 : stage + 1;
    if (want_sums && __builtin_expect((round + 1) % BLOCK_ROWS == 0 || round + 1 == rounds, 0)) {
      const bool first_time = round < BLOCK_ROWS;
      if (job.want_dweight) hand_over(job, team, part, dweight, 0, first_time, columns);
      if (LAYER && job.want_dbias) hand_over(job, team, part, dbias, job.want_dweight ? 1 : 0, first_time, columns);
    }
  }
  let_next_start();
}

} // namespace rms_cuda

#endif
