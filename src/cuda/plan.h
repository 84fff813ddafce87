/* SPDX-License-Identifier: MIT
 *
 * How a call is divided among threads: a function of the width, the types and the device, never of the values. */
#ifndef RMS_CUDA_PLAN_H
#define RMS_CUDA_PLAN_H

#include "device.h"
#include "params.h"

namespace rms_cuda {

/* Whether the persistent lean kernels find what they need: clusters, bulk copies and room for their rings. */
bool has_rings(const Device &device);

struct Plan {
  bool tuned;
  int per_thread; /* vectors                */
  int team, cluster, threads;
};

int64_t vectors_of(const Layout &lay);
Plan plan_forward(const Device &device, const Layout &lay);
Plan plan_backward(const Device &device, const Layout &lay, bool aligned, bool wide);
/* The plain kernels' part: threads that share a segment. */
Plan plan_plain(const Layout &lay);

/* The ring of the backward kernel: fills in stages; returns bytes of shared memory for one block. */
size_t plan_ring(const Device &device, const Plan &plan, const Layout &lay, bool wide, bool dresidual, int *stages);
/* Teams of the backward kernel that the device holds at once, in blocks or clusters. */
int64_t resident(const Device &device, const Plan &plan, bool wide);

/* How the lean backward kernels share out the rows. */
struct LeanShares {
  int team, cluster, threads;
  int placed;     /* blocks are launched in clusters of this size, only to spread them evenly over the device */
  int64_t shares; /* at most; 0: these kernels are not for this device or width */
  int64_t least;  /* so that no sum takes too many rows */
};
/* threads: the most that a block may have */
LeanShares plan_lean_backward(const Device &device, const Layout &lay, int64_t rows, int threads);
/* Of a forward: whether there are kernels for this width on this device. */
bool plan_lean_forward(const Device &device, int vectors, bool residual, bool options);

/* OPTIONS: those of LeanForward. */
template <class T, bool OPTIONS>
cudaError_t launch_lean_forward_of(const LeanForward &p, bool layer, const Device &device, cudaStream_t stream);
/* Lowers the shares to what the device holds at once. */
template <class T>
cudaError_t launch_lean_backward_of(const LeanBackward &p, LeanShares &plan, bool layer, cudaStream_t stream);

/* Partial sums of a backward with dweight or dbias. */
struct Sums {
  int64_t slices, slice_rows;
  int64_t shares; /* of a slice               */
  int64_t batch;  /* plain: rows at a time    */
};
Sums plan_sums(const Device &device, const Plan &plan, const Layout &lay, bool wide);

} // namespace rms_cuda

#endif
