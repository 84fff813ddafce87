/* SPDX-License-Identifier: MIT
 *
 * rmsnorm bench --device cuda. No problems: the list of targets. Returns the exit code. */
#ifndef RMSNORM_BENCH_CUDA_H
#define RMSNORM_BENCH_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

int bench_cuda(char **problems, int count, int as_json);

#ifdef __cplusplus
}
#endif

#endif
