/* SPDX-License-Identifier: MIT
 *
 * Statistics of the split form: merged, and as a forward would have saved them. One thread each. */
#include "launch.h"
#include "launcher.h"
#include "statistic.cuh"

namespace rms_cuda {

struct MergeJob {
  bool layer;
  int64_t count;
  rms_stat *into;
  const rms_stat *from;
};

__global__ void merge_kernel(const __grid_constant__ MergeJob job) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < job.count; i += step) {
    rms_stat a = job.into[i], b = job.from[i];
    double n = a.count + b.count;
    rms_stat both = {n, a.mean, a.m2 + b.m2};
    if (job.layer && b.count != 0) {
      if (a.count == 0) {
        both.mean = b.mean;
      } else {
        double difference = b.mean - a.mean;
        both.mean = a.mean + difference * (b.count / n);
        both.m2 += difference * difference * (a.count * (b.count / n));
      }
    }
    job.into[i] = both;
  }
}

struct SavedJob {
  Norm<float> norm;
  const rms_stat *stats;
  int64_t count;
  float *rstd, *mean;
};

__global__ void saved_kernel(const __grid_constant__ SavedJob job) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < job.count; i += step) {
    const Statistic<float> st = given_statistic(job.norm, job.stats[i]);
    job.rstd[i] = st.r;
    if (job.mean) job.mean[i] = st.mean;
  }
}

static Grid grid_for(int64_t count) {
  const int64_t blocks = (count - 1) / 256 + 1;
  return {blocks < 4096 ? blocks : 4096, 256, 0};
}

cudaError_t launch_merge(bool layer, int64_t count, rms_stat *into, const rms_stat *from, const Device &device,
                         cudaStream_t stream) {
  return launch(merge_kernel, MergeJob{layer, count, into, from}, grid_for(count), 1, false, device, stream);
}

cudaError_t launch_saved(const rms_layout &lay, int eps_limit, const rms_stat *stats, int64_t segments, float *rstd,
                         float *mean, const Device &device, cudaStream_t stream) {
  const Norm<float> norm = {(double)(float)lay.eps,
                            (float)lay.eps,
                            (float)lay.k,
                            eps_limit,
                            lay.kind == RMS_KIND_LAYER,
                            lay.eps_place != RMS_EPS_INSIDE,
                            lay.rounding == RMS_ROUND_BEFORE_WEIGHT,
                            lay.eps_place == RMS_EPS_CLAMP};
  return launch(saved_kernel, SavedJob{norm, stats, segments, rstd, mean}, grid_for(segments), 1, false, device,
                stream);
}

} // namespace rms_cuda
