/* SPDX-License-Identifier: MIT
 *
 * rmsnorm_nccl.h with a communicator whose ranks are threads (fake_nccl.c), against the unsplit call. Built twice: for
 * a GPU, and with the CPU double of nccl_double.c. Exit status 77: no GPU. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "nccl_ranks.h"

static const int64_t splits[][FAKE_MOST_RANKS + 1] = {
    {0, COLS}, {0, 160, COLS}, {0, 7, 7, 300, COLS}, {0, 0, 64, 128, 479, COLS}};
static const int split_ranks[] = {1, 2, 4, 5};

static rows whole, split;

/* ---- Tests ---- */

/* Small integers: sums of squares are exact in any order, so the shards have the r of whole rows, and one rank has the
 * bits. With u = 2^-24 and k elements in the statistic, y = x*r*g is within 8u of its size: r and three products are
 * rounded on both sides. dx = dy*g*r - x*sum(dy*g*x)*r^3/k is within 16u of the size of its terms if the sum is exact.
 * That of a GPU is not: it has x*r, rounded, and its terms pass up to 40 roundings. dweight, a sum over the rows, is
 * within 2 (ROWS + 8)u of the sum of its terms' sizes. */
#ifdef RMSNORM_NCCL_DOUBLE
enum { SUM_ROUNDINGS = 0 };
#else
enum { SUM_ROUNDINGS = 40 };
#endif
static int too_far(const rms_spec *spec) {
  const double unit = ldexp(1, -24), k = spec->partial ? (double)spec->partial : COLS;
  static double sizes[COLS];
  int count = 0;
  memset(sizes, 0, sizeof sizes);
  for (int i = 0; i < ROWS; i++) {
    const float *x = whole.x + i * COLS, *dy = whole.dy + i * COLS;
    double squares = 0, dot = 0, dot_size = 0;
    for (int j = 0; j < COLS; j++) {
      if (j < (int)k) squares += (double)x[j] * (double)x[j];
      const double term = (double)dy[j] * (double)whole.weight[j] * (double)x[j];
      dot += term;
      dot_size += fabs(term);
    }
    const double r = 1 / sqrt(squares / k + spec->eps);
    for (int j = 0; j < COLS; j++) {
      const int at = i * COLS + j;
      const double y = (double)whole.y[at], u = (double)dy[j] * (double)whole.weight[j];
      const double second = fabs((double)x[j]) * r * r * r / k, size = fabs(u * r) + second * fabs(dot);
      count += !(fabs(y - (double)split.y[at]) <= 8 * unit * fabs(y));
      count += !(fabs((double)whole.dx[at] - (double)split.dx[at]) <=
                 unit * (16 * size + 2 * SUM_ROUNDINGS * second * dot_size));
      sizes[j] += fabs((double)dy[j] * (double)x[j] * r);
    }
  }
  for (int j = 0; j < COLS; j++)
    count += !(fabs((double)whole.dweight[j] - (double)split.dweight[j]) <= 2 * (ROWS + 8) * unit * sizes[j]);
  return count;
}

/* The rows of `split` over the ranks of split k, all with right arguments. */
static job job_of(const rms_spec *spec, int mode, int k) {
  return (job){.spec = spec, .mode = (rms_nccl_mode)mode, .starts = splits[k], .ranks = split_ranks[k], .r = &split};
}

static void test_exact(void) {
  for (int k = 0; k < 4; k++)
    for (int mode = RMS_NCCL_REDUCE; mode <= RMS_NCCL_FOLD; mode++)
      for (int64_t partial = 0; partial <= 240; partial += 120) {
        const rms_spec spec = {.cols = COLS, .eps = 1e-5, .partial = partial};
        char where[64];
        snprintf(where, sizeof where, "exact, %d ranks, mode %d, partial %d", split_ranks[k], mode, (int)partial);
        fill(&whole, 7 + (unsigned)partial, 1);
        split = whole;
        run_whole(&spec, &whole, where);
        job j = job_of(&spec, mode, k);
        run_ranks(&j);
        expect_good(&j, where);
        expect(too_far(&spec) == 0, "too far from whole rows", where);
        if (k == 0) expect(memcmp(&whole, &split, sizeof whole) == 0, "one rank has other bits", where);
      }
}

/* LayerNorm of plain numbers of at most 2.25. Any order of n additions errs by at most n u of the terms' sizes, u =
 * 2^-24, so two orders agree to E = 2 COLS u: the mean to 2.25 E, r, which is below 1 here, to E, and h, below 4, to 8
 * E. Products with weights and gradients, below 2.25 each, and two means of them: 64 times that covers y and dx. */
static void test_layer(void) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5, .kind = RMS_KIND_LAYER};
  const double bound = 64 * 8 * 2.0 * COLS * ldexp(1, -24);
  for (int k = 0; k < 4; k++)
    for (int mode = RMS_NCCL_REDUCE; mode <= RMS_NCCL_FOLD; mode++) {
      char where[64];
      double most = 0;
      snprintf(where, sizeof where, "LayerNorm, %d ranks, mode %d", split_ranks[k], mode);
      fill(&whole, 11, 0);
      split = whole;
      run_whole(&spec, &whole, where);
      job j = job_of(&spec, mode, k);
      run_ranks(&j);
      for (int i = 0; i < ELEMENTS; i++) {
        const double y = fabs((double)whole.y[i] - (double)split.y[i]),
                     dx = fabs((double)whole.dx[i] - (double)split.dx[i]);
        most = y > most ? y : most;
        most = dx > most ? dx : most;
        if (isnan(y) || isnan(dx)) most = INFINITY;
      }
      expect(most <= bound, "too far from whole rows", where);
      if (k == 0) expect(memcmp(whole.y, split.y, sizeof whole.y) == 0, "one rank has other bits", where);
    }
}

static void test_fields(const rms_nccl good, rms_spec spec, rms_forward_args f, rms_stat *stats) {
  rms_nccl n = good;
#define BAD(field, value, status)                                                                                      \
  n.field = value;                                                                                                     \
  expect(rms_nccl_forward(&n, &spec, &f, stats, NULL) == status, #field " = " #value, "arguments");                    \
  n = good
  BAD(mode, 5, RMS_E_MODE);
  BAD(reserved, 1, RMS_E_VERSION);
  BAD(chunk_rows, -1, RMS_E_ARGUMENT);
  BAD(block_cols, -1, RMS_E_ARGUMENT);
  BAD(block_cols, 64, RMS_E_ARGUMENT); /* without most_cols */
  BAD(comm, NULL, RMS_E_COMMUNICATION);
  n.mode = RMS_NCCL_REDUCE;
  BAD(block_cols, 64, RMS_E_MODE);
  n.most_cols = COLS;
  BAD(block_cols, 64, RMS_E_WORKSPACE);
  n.most_cols = COLS - 64;
  BAD(block_cols, 64, RMS_E_ARGUMENT);
  n.most_cols = COLS;
  spec.groups = 2;
  BAD(block_cols, 64, RMS_E_UNSUPPORTED);
  n.most_cols = INT64_MAX;
  BAD(block_cols, 1, RMS_E_SIZE);
  spec.groups = 0;
  spec.weight_per_inner = 1;
  spec.cols = COLS / 2;
  f.inner = 2;
  n.most_cols = COLS;
  BAD(block_cols, 64, RMS_E_UNSUPPORTED);
  spec.cols = -1;
  expect(rms_nccl_forward(&n, &spec, &f, stats, NULL) == RMS_E_COLS, "cols = -1", "arguments");
  f.outer = INT64_MAX;
  expect(rms_nccl_forward(&n, &spec, &f, stats, NULL) == RMS_E_SIZE, "outer = INT64_MAX", "arguments");
  expect(rms_nccl_scratch(&n, &spec, INT64_MAX, 1) == 0, "scratch memory of too many rows", "arguments");
#undef BAD
}

static void test_arguments(void) {
  ncclComm_t comms[FAKE_MOST_RANKS];
  fake_nccl_create(comms, 1);
  fill(&whole, 17, 0);
  shard s = make_shard(&whole, 0, COLS);
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  rms_forward_args f = forward_of(&s);
  const rms_backward_args b = backward_of(&s);
  rms_nccl n = {.comm = comms[0], .mode = RMS_NCCL_FOLD};
  expect(rms_nccl_forward(NULL, &spec, &f, s.stats, NULL) == RMS_E_ARGUMENT, "no struct", "arguments");
  expect(rms_nccl_forward(&n, &spec, NULL, s.stats, NULL) == RMS_E_ARGUMENT, "no args", "arguments");
  expect(rms_nccl_forward(&n, &spec, &f, NULL, NULL) == RMS_E_ARGUMENT, "no stats", "arguments");
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, NULL) == RMS_E_WORKSPACE, "no scratch memory", "arguments");
  n.scratch_bytes = rms_nccl_scratch(&n, &spec, ROWS, 1);
  n.scratch = device(NULL, n.scratch_bytes);
  n.scratch_bytes -= 8;
  expect(rms_nccl_backward(&n, &spec, &b, s.stats, NULL) == RMS_E_WORKSPACE, "too little scratch memory", "arguments");
  n.scratch_bytes += 8;
  test_fields(n, spec, f, s.stats);
  fake_nccl_fail(comms[0]);
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, NULL) == RMS_E_COMMUNICATION, "an error of NCCL", "arguments");
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, NULL) == RMS_OK, "all is well again", "arguments");
  f.outer = 0;
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, NULL) == RMS_OK, "no rows", "arguments");
  must(cudaStreamSynchronize(NULL));
  must(cudaFree(n.scratch));
  free_shard(&s);
  fake_nccl_destroy(comms);
}

/* RMS_NCCL_LOCAL is the call of the shard alone; the communicator is not even looked at. */
static void test_local(void) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5, .partial = 60};
  const rms_nccl n = {.mode = RMS_NCCL_LOCAL};
  fill(&whole, 19, 0);
  split = whole;
  run_whole(&spec, &whole, "local");
  shard s = make_shard(&split, 0, COLS);
  const rms_forward_args f = forward_of(&s);
  const rms_backward_args b = backward_of(&s);
  expect(rms_nccl_scratch(&n, &spec, ROWS, 1) == 0, "scratch memory", "local");
  expect(rms_nccl_forward(&n, &spec, &f, NULL, NULL) == RMS_OK, "forward", "local");
  expect(rms_nccl_backward(&n, &spec, &b, NULL, NULL) == RMS_OK, "backward", "local");
  must(cudaStreamSynchronize(NULL));
  fetch_shard(&split, &s);
  expect(memcmp(&whole, &split, sizeof whole) == 0, "other bits than the call of the shard", "local");
  free_shard(&s);
}

int main(void) {
  if (rms_cuda_available() != RMS_OK) {
    puts("skipped: no usable GPU");
    return 77;
  }
  test_exact();
  test_layer();
  test_arguments();
  test_local();
  test_chunks();
  test_blocks();
  test_faults();
#ifndef RMSNORM_NCCL_DOUBLE
  test_graphs();
#endif
  return conclude();
}
