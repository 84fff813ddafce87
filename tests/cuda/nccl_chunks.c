/* SPDX-License-Identifier: MIT
 *
 * rmsnorm_nccl.h: statistics in chunks of rows and in blocks of columns, and ranks whose arguments are refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "nccl_ranks.h"

typedef struct division {
  int ranks;
  int64_t starts[FAKE_MOST_RANKS + 1];
} division;

static rows wanted, got;

static job job_of(const rms_spec *spec, rms_nccl_mode mode, const division *d) {
  return (job){.spec = spec, .mode = mode, .starts = d->starts, .ranks = d->ranks, .r = &got};
}

/* Numbers whose sums over blocks of columns lie far apart, so that adding them up in another order has other bits. */
static void fill_apart(rows *r, unsigned seed) {
  fill(r, seed, 0);
  for (int i = 0; i < ELEMENTS; i++) {
    const int block = i % COLS / 64;
    r->x[i] = ldexpf(r->x[i], 3 * (block * 5 % 8) - 12);
    r->dy[i] = ldexpf(r->dy[i], 3 * (block * 3 % 8) - 12);
  }
}

/* Runs the job on fresh rows; the results are in `got`. */
static void run_on(job *j, unsigned seed, const char *where) {
  fill_apart(&got, seed);
  run_ranks(j);
  expect_good(j, where);
}

static void expect_rows(const char *where) {
  expect(memcmp(wanted.y, got.y, sizeof got.y) == 0, "other bits of y", where);
  expect(memcmp(wanted.dx, got.dx, sizeof got.dx) == 0, "other bits of dx", where);
}

static void expect_wanted(const char *where) {
  expect_rows(where);
  expect(memcmp(wanted.dweight, got.dweight, sizeof got.dweight) == 0, "other bits of dweight", where);
}

/* Of another division of the columns: a GPU divides the rows among its threads by the width of the shard, so that two
 * sums over the rows have other orders. No term dy*h, h being y/weight, passes more than 66 roundings of 2^-24. */
static void expect_other_division(const char *where) {
#ifdef RMSNORM_NCCL_DOUBLE
  expect_wanted(where);
#else
  int far = 0;
  expect_rows(where);
  for (int j = 0; j < COLS; j++) {
    double size = 0;
    for (int i = 0; i < ROWS; i++)
      size += fabs((double)got.dy[i * COLS + j] * (double)wanted.y[i * COLS + j]);
    const double apart = (double)wanted.dweight[j] - (double)got.dweight[j];
    far += !(fabs(apart * (double)got.weight[j]) <= 2 * 66 * ldexp(1, -24) * size);
  }
  expect(far == 0, "dweight is too far away", where);
#endif
}

/* ---- Chunks ---- */

/* Rows per chunk: a row at a time, counts that do not divide the rows, more than there are. A GPU has fewer cases: it
 * allocates slowly, and which of its streams is late is not for a test to say. */
#ifdef RMSNORM_NCCL_DOUBLE
static const int64_t chunks[] = {1, 5, 36, 37, 100};
static const int latenesses = LATENESSES;
#else
static const int64_t chunks[] = {5, 36};
static const int latenesses = 1;
#endif

/* With and without a second stream, and whichever of the two is late, chunks have the bits of one message. */
static void compare_chunks(job *j, const char *what) {
  run_on(j, 31, what);
  wanted = got;
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
    for (j->overlaps = 0; j->overlaps < 2; j->overlaps++)
      for (int late = NONE_LATE; late < latenesses; late++) {
        char where[128];
        j->late = (lateness)late;
        j->chunk_rows = chunks[i];
        snprintf(where, sizeof where, "%s, %d ranks, mode %d, chunks of %d, overlap %d, late %d", what, j->ranks,
                 (int)j->mode, (int)chunks[i], j->overlaps, late);
        run_on(j, 31, where);
        expect_wanted(where);
      }
}

void test_chunks(void) {
  static const division divisions[] = {{1, {0, COLS}}, {2, {0, 160, COLS}}, {4, {0, 8, 8, 300, COLS}}};
  static const rms_spec specs[] = {{.cols = COLS, .eps = 1e-5},
                                   {.cols = COLS, .eps = 1e-5, .partial = 120},
                                   {.cols = COLS, .eps = 1e-5, .kind = RMS_KIND_LAYER},
                                   {.cols = COLS, .eps = 1e-5, .groups = 2},
                                   {.cols = COLS / 2, .eps = 1e-5, .groups = 2}};
  static const char *const names[] = {"RMSNorm", "pRMSNorm", "LayerNorm", "groups", "groups, inner"};
  for (int d = 0; d < 3; d++)
    for (int i = 0; i < 5; i++)
      for (int mode = RMS_NCCL_REDUCE; mode <= RMS_NCCL_FOLD; mode++)
        for (int alone = 0; alone < 2; alone++) {
          job j = job_of(&specs[i], (rms_nccl_mode)mode, &divisions[d]);
          j.rows_alone = alone;
          if (i == 4) j.inner = 2;
          compare_chunks(&j, names[i]);
        }
}

/* ---- Blocks ---- */

/* Shards of whole blocks of 64, but for the last one; some are empty, one is shorter than a block. */
static const division in_blocks[] = {{1, {0, COLS}},
                                     {2, {0, 128, COLS}},
                                     {4, {0, 64, 64, 320, COLS}},
                                     {5, {0, 0, 64, 128, 448, COLS}},
                                     {3, {0, 448, COLS, COLS}}};

/* The bits do not depend on the number of ranks, nor on the chunks; on a GPU but for those of dweight. */
static void compare_blocks(const rms_spec *spec, const char *what) {
  for (int d = 0; d < 5; d++)
    for (int64_t chunk = 0; chunk <= 10; chunk += 5)
      for (int late = NONE_LATE; late < latenesses; late++) {
        char where[128];
        job j = job_of(spec, RMS_NCCL_FOLD, &in_blocks[d]);
        j.block_cols = 64;
        j.chunk_rows = chunk;
        j.overlaps = late > 0 || chunk == 10;
        j.late = (lateness)late;
        snprintf(where, sizeof where, "%s in blocks, %d ranks, chunks of %d, late %d", what, j.ranks, (int)chunk, late);
        run_on(&j, 37, where);
        if (d == 0 && chunk == 0 && late == 0) wanted = got;
        expect_other_division(where);
      }
}

/* The statistics of a row's blocks, added up from the first column to the last. */
static void compare_fold(void) {
  rms_stat folded[ROWS], block[ROWS], row[ROWS];
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  job j = job_of(&spec, RMS_NCCL_FOLD, &in_blocks[3]);
  j.block_cols = 64;
  j.stats = row;
  run_on(&j, 47, "fold");
  memset(folded, 0, sizeof folded);
  for (int64_t first = 0; first < COLS; first += 64) {
    spec.cols = first + 64 < COLS ? 64 : COLS - first;
    shard s = make_shard(&got, first, spec.cols);
    const rms_forward_args f = forward_of(&s);
    expect(rms_cuda_stats(&spec, &f, s.stats, NULL) == RMS_OK, "statistics of a block", "fold");
    must(cudaStreamSynchronize(NULL));
    must(cudaMemcpy(block, s.stats, sizeof block, cudaMemcpyDeviceToHost));
    for (int i = 0; i < ROWS; i++) {
      folded[i].count += block[i].count;
      folded[i].m2 += block[i].m2;
    }
    free_shard(&s);
  }
  expect(memcmp(row, folded, sizeof row) == 0, "not folded in the order of the columns", "fold");
}

/* One block for each row is the call without blocks. */
static void compare_one_block(const rms_spec *spec) {
  job j = job_of(spec, RMS_NCCL_FOLD, &in_blocks[2]);
  run_on(&j, 41, "no blocks");
  wanted = got;
  j.block_cols = COLS;
  run_on(&j, 41, "a block that no shard fills");
  expect_wanted("a block that no shard fills");
}

void test_blocks(void) {
  const rms_spec rms = {.cols = COLS, .eps = 1e-5}, partial = {.cols = COLS, .eps = 1e-5, .partial = 100},
                 layer = {.cols = COLS, .eps = 1e-5, .kind = RMS_KIND_LAYER};
  compare_blocks(&rms, "RMSNorm");
  compare_blocks(&partial, "pRMSNorm");
  compare_blocks(&layer, "LayerNorm");
  compare_fold();
  compare_one_block(&rms);
  compare_one_block(&layer);
}

/* ---- Refusals ---- */

static int count_nan(const float *numbers, int64_t first, int64_t cols) {
  int count = 0;
  for (int i = 0; i < ROWS; i++)
    for (int64_t j = first; j < first + cols; j++)
      count += isnan(numbers[i * COLS + j]) != 0;
  return count;
}

static int count_not_zero(const float *numbers, int64_t first, int64_t cols) {
  int count = 0;
  for (int i = 0; i < ROWS; i++)
    for (int64_t j = first; j < first + cols; j++)
      count += numbers[i * COLS + j] != 0;
  return count;
}

/* The rank says so and writes nothing, nobody hangs, and the others' results are NaN. */
static void test_fault(fault f, rms_status status, rms_nccl_mode mode, int64_t chunk_rows, int64_t block_cols) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5};
  const division d = {4, {0, 64, 64, 384, COLS}};
  char where[96];
  snprintf(where, sizeof where, "fault %d, mode %d, chunks of %d, blocks of %d", (int)f, (int)mode, (int)chunk_rows,
           (int)block_cols);
  job j = job_of(&spec, mode, &d);
  j.chunk_rows = chunk_rows;
  j.block_cols = block_cols;
  j.overlaps = 1;
  j.fault = f;
  j.bad = 2;
  fill(&got, 43, 0);
  run_ranks(&j);
  for (int i = 0; i < j.ranks; i++) {
    const int64_t first = d.starts[i], cols = d.starts[i + 1] - first;
    const int all = ROWS * (int)cols;
    expect(j.forward[i] == (i == j.bad ? status : RMS_OK) && j.backward[i] == j.forward[i], "status", where);
    if (i == j.bad)
      expect(count_not_zero(got.y, first, cols) + count_not_zero(got.dx, first, cols) == 0, "written", where);
    else
      expect(count_nan(got.y, first, cols) == all && count_nan(got.dx, first, cols) == all, "not NaN", where);
  }
}

void test_faults(void) {
  static const rms_status statuses[FAULTS] = {RMS_OK,          RMS_E_DTYPE,    RMS_E_ALIAS,   RMS_E_ARGUMENT,
                                              RMS_E_WORKSPACE, RMS_E_ARGUMENT, RMS_E_ARGUMENT};
  for (int f = BAD_TYPE; f < FAULTS; f++)
    for (int64_t chunk = 0; chunk <= 10; chunk += 10) {
      test_fault((fault)f, statuses[f], RMS_NCCL_FOLD, chunk, 64);
      if (f == TOO_WIDE) continue; /* of blocks alone */
      test_fault((fault)f, statuses[f], RMS_NCCL_FOLD, chunk, 0);
      if (f != LITTLE_SCRATCH) test_fault((fault)f, statuses[f], RMS_NCCL_REDUCE, chunk, 0);
    }
}
