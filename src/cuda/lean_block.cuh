/* SPDX-License-Identifier: MIT
 *
 * A block of the lean backward kernel: its shared memory, and which part of which rows a thread of it has. */
#ifndef RMS_CUDA_LEAN_BLOCK_CUH
#define RMS_CUDA_LEAN_BLOCK_CUH

#include "lean_ring.cuh"
#include "lean_steps.cuh"

namespace rms_cuda {

/* The parts of a block's shared memory, in bytes from its start. */
struct BackwardShared {
  int ring, gain, deep, chunk, mail, barrier, odd, any_odd, total;
};
template <int NV, int V, bool LAYER, bool DBIAS, int PANELS>
__host__ __device__ constexpr BackwardShared backward_shared(int threads, int team, int stages, int streams,
                                                             int cluster) {
  BackwardShared s = {};
  const int teams = threads / team, cells = team * NV, sums = LAYER ? 2 : 1;
  s.ring = 0;
  s.gain = s.ring + teams * stages * streams * cells * 16;
  s.deep = s.gain + cells * V * 4;
  s.chunk = s.deep + (DBIAS ? 2 : 1) * threads * NV * V * 4;
  s.mail = s.chunk + teams * 2 * sums * PANELS * 32 * 4;
  s.barrier = s.mail + (cluster > 1 ? 2 * sums * PANELS * MAX_CLUSTER * 4 : 0);
  s.odd = s.barrier + (teams * stages + 2) * 8;
  s.any_odd = s.odd + teams * DEEP * 4;
  s.total = s.any_odd + 4;
  return s;
}

template <class T, int NV, bool LAYER, bool DBIAS, bool CLUSTER, int MORE> struct BackwardBlock {
  static constexpr int V = vector_of<T>, Q = V / 4, PANELS = NV * BACKWARD_TEAM / PANEL, SUMS = LAYER ? 2 : 1;
  static_assert(PANELS == 1, "the blocks of a cluster have a panel each");
  using Sums = RowSums<NV, SUMS, PANELS, CLUSTER>;

  int team, cells, teams, stages, streams;
  int group, t;     /* which team of the block, and which thread of it                  */
  int rank, share;  /* which block of the cluster, and which cluster (block) of all     */
  int first;        /* vector of a row                                                  */
  int own;          /* vectors of a row that this block has                             */
  int mine, stride; /* this team's rows: every `stride`-th from `mine`                  */
  BackwardShared where;

  __device__ __forceinline__ explicit BackwardBlock(const LeanBackward &p) {
    /* the blocks of a cluster have one team of BACKWARD_TEAM threads each */
    team = CLUSTER ? (int)BACKWARD_TEAM : p.team, teams = CLUSTER ? 1 : (int)blockDim.x / team;
    cells = team * NV, stages = p.stages, streams = MORE == 1 && p.added.data ? 3 : 2;
    group = CLUSTER ? 0 : __shfl_sync(whole_warp, (int)threadIdx.x / team, 0), t = (int)threadIdx.x - group * team;
    rank = CLUSTER ? (int)(blockIdx.x % (unsigned)p.cluster) : 0;
    share = CLUSTER ? (int)(blockIdx.x / (unsigned)p.cluster) : (int)blockIdx.x;
    first = rank * cells + t;
    own = p.vectors - rank * cells < cells ? p.vectors - rank * cells : cells;
    mine = share * teams + group, stride = p.shares * teams;
    where =
        backward_shared<NV, V, LAYER, DBIAS, PANELS>((int)blockDim.x, team, stages, streams, CLUSTER ? p.cluster : 1);
  }
  __device__ __forceinline__ uint64_t *barriers(char *shared) const {
    return reinterpret_cast<uint64_t *>(shared + where.barrier);
  }
  __device__ __forceinline__ float *chunks(char *shared) const {
    return reinterpret_cast<float *>(shared + where.chunk);
  }
  __device__ __forceinline__ float4 *gain(char *shared) const {
    return reinterpret_cast<float4 *>(shared + where.gain) + t;
  }
  /* Sums over the team's rows, from a phase and parity on. */
  __device__ __forceinline__ Sums sums(const LeanBackward &p, char *shared, int phase, int parity) const {
    return {chunks(shared) + group * (2 * SUMS * PANELS * 32),
            reinterpret_cast<float *>(shared + where.mail),
            barriers(shared) + teams * stages,
            place_of_lane<SUMS, PANELS, NV>(t / 32, team / 32),
            group,
            team,
            p.cluster,
            rank,
            phase,
            parity};
  }
};

} // namespace rms_cuda

#endif
