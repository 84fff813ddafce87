/* SPDX-License-Identifier: MIT
 *
 * Calls with rows whose elements lie apart: their jobs and launches. apart.cuh has the kernels. */
#ifndef RMS_CUDA_APART_H
#define RMS_CUDA_APART_H

#include "plan.h"

namespace rms_cuda {

/* Rows of a tile, one for each lane, and the warps that share their elements. */
enum { APART_ROWS = 32, APART_WARPS = 16, APART_THREADS = APART_ROWS * APART_WARPS };
/* Tiles whose column sums are added by one block: at most so many blocks, whatever the device is. */
enum { APART_SHARES = 512 };

struct ApartForward {
  rms_forward_job job;
  int64_t tiles, count; /* of one outer index and group; of all */
  bool bytewise;        /* some tensor is not aligned to its elements */
  bool kept;            /* there is room for the rows in shared memory */
};

struct ApartBackward {
  rms_backward_job job;
  int64_t tiles, count; /* of one outer index and group; of all groups' */
  int64_t shares;       /* blocks that each have some of them; for each group */
  bool bytewise, kept, want_dweight, want_dbias;
  int planes;      /* of these two, those that are wanted */
  double *partial; /* [plane][group][share][width] */
};

/* The fast kernels: apart_tile.cuh. A job of theirs has fewer than 2^31 tiles, and a tile fewer pixels and images. */
struct Width {
  double of, inverse;
#ifdef __CUDACC__
  /* With the bits of a division, but for the ends of the range, and without a call. */
  __device__ __forceinline__ double divided(double a) const {
    const double q = a * inverse;
    return __fma_rn(__fma_rn(-q, of, a), inverse, q);
  }
#endif
};

struct TileForward {
  rms_forward_job job;
  Width width;
  float eps;
  unsigned tiles, count; /* of one outer index; of all                           */
  bool paired;           /* two pixels of a 16-bit type are one word, everywhere */
};

struct TileBackward {
  rms_backward_job job;
  Width width;
  float eps;
  unsigned tiles, count;
  bool paired, saved, want_dweight, want_dbias;
  int stages;      /* tiles of a block that are in shared memory: 1 or 2      */
  int shares;      /* of the column sums: at least as many as there are blocks */
  double *partial; /* [plane][share][width] */
};

/* The most threads of a block whose threads have so many channels. */
constexpr int FORWARD_TILE_THREADS(int channels) {
  return channels == 8 ? 256 : channels == 64 ? 384 : 512;
}
constexpr int BACKWARD_TILE_THREADS(int channels) {
  return channels == 8 ? 256 : channels == 16 ? 768 : channels == 64 ? 384 : 512;
}
/* Blocks of so many threads of a backward that there are registers for. */
constexpr int BACKWARD_TILE_BLOCKS(int channels) {
  return channels == 8 ? 3 : 1;
}
/* Planes of f32 that a backward leaves for the other warps. */
enum { TILE_PLANES = 5 };

/* The shares of a call, and the bytes of its sums: INT64_MAX where they overflow. */
int64_t apart_shares(const rms_layout &lay, int64_t outer);
int64_t apart_sums(const rms_layout &lay, int64_t outer, int planes);

cudaError_t launch_apart(const rms_forward_job &job, int64_t outer, const Device &device, cudaStream_t stream);
cudaError_t launch_apart(const rms_backward_job &job, int64_t outer, bool want_dweight, bool want_dbias,
                         void *workspace, const Device &device, cudaStream_t stream);

} // namespace rms_cuda

#endif
