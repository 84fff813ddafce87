/* SPDX-License-Identifier: MIT
 *
 * Rows of many panels: a cluster of blocks shares a row, each block has several panels of it, and the order of the sums
 * is that of sum.cuh for rows of any number of portions. The warps of a block have 64 vectors of every panel, two
 * chunks next to each other. */
#ifndef RMS_CUDA_WIDE_SUMS_CUH
#define RMS_CUDA_WIDE_SUMS_CUH

#include "team_sums.cuh"

namespace rms_cuda {

/* Vectors of a panel that a warp has. */
enum { WIDE_WARP_VECTORS = 32 * WIDE_VECTORS };

static_assert(WIDE_THREADS * WIDE_VECTORS == PANEL, "a panel is shared by all threads of a block");
static_assert(WIDE_PANELS <= WIDE_THREADS / 32, "a warp for each panel of a block");
static_assert(WIDE_CLUSTER * WIDE_PANELS <= WIDE_PORTIONS * PORTION, "room for the sums of all panels");

/* SUMS sums over one row after the other, from chunk sums that the warps put(): exchange(). Every block sends the sums
 * of its panels to all blocks, and each thread adds those of the row. Two buffers in turn, as in TeamSums. */
template <int SUMS> struct WideSums {
  static constexpr int mail_places = WIDE_PORTIONS * PORTION; /* of a sum */
  static __host__ __device__ constexpr int chunk_bytes(int panels) { return 2 * SUMS * panels * 32 * 4; }
  static constexpr int mail_bytes = 2 * SUMS * mail_places * 4;

  float *chunk, *mail;
  uint64_t *mailbox;
  int panels;  /* of this block                         */
  int first;   /* of them in the row                    */
  int all;     /* of the row                            */
  int cluster; /* blocks                                */
  int phase, parity;

  /* What nobody will send. By all threads of a block, before the barriers of its start. */
  static __device__ __forceinline__ void clear_mail(float *mail) {
    for (int i = (int)threadIdx.x; i < 2 * SUMS * mail_places; i += (int)blockDim.x)
      mail[i] = exact_zero;
  }
  __device__ __forceinline__ void put(int sum, int panel, int number, float value) const {
    chunk[((phase * SUMS + sum) * panels + panel) * 32 + chunk_place(number)] = value;
  }
  /* After all chunk sums of the block were put. */
  template <class Op> __device__ __forceinline__ float2 exchange() {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31;
    float *box = mail + phase * SUMS * mail_places;
    __syncthreads();
    if (warp < panels) {
#pragma unroll
      for (int s = 0; s < SUMS; s++) {
        const float part = panel_sums<Op, 1, 1>(chunk + ((phase * SUMS + s) * panels + warp) * 32);
        if (lane < cluster) send_to_block(box + s * mail_places + first + warp, mailbox + phase, lane, part);
      }
    }
    if (threadIdx.x == 0) expect_bytes(mailbox + phase, SUMS * all * 4);
    wait_for_mail(mailbox + phase, parity);
    float2 sum = make_float2(over_portions<Op, WIDE_PORTIONS>(box, all), 0);
    if (SUMS == 2) sum.y = over_portions<Op, WIDE_PORTIONS>(box + (SUMS - 1) * mail_places, all);
    parity ^= phase;
    phase ^= 1;
    return sum;
  }
};

} // namespace rms_cuda

#endif
