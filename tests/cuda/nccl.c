/* SPDX-License-Identifier: MIT
 *
 * rmsnorm_nccl.h with a communicator whose ranks are threads (fake_nccl.c), against the unsplit call. Built twice: for
 * a GPU, and with the CPU double of nccl_double.c. Exit status 77: no GPU. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rmsnorm_nccl.h"

enum { ROWS = 37, COLS = 480, ELEMENTS = ROWS * COLS, WORKSPACE = 4 << 20 };

static int failures, checks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int expect(int held, const char *what, const char *where) {
  pthread_mutex_lock(&lock);
  checks++;
  if (!held && failures++ < 20) printf("FAIL: %s (%s)\n", what, where);
  pthread_mutex_unlock(&lock);
  return held;
}

static void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  printf("CUDA error %d\n", (int)error);
  exit(1);
}

/* ---- Device memory ---- */

static void *device(const void *host, size_t bytes) {
  void *memory;
  must(cudaMalloc(&memory, bytes > 0 ? bytes : 8));
  if (host != NULL) must(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
  return memory;
}

static void to_host(void *host, const void *memory, size_t bytes) {
  must(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
}

/* ---- Whole rows, on the host and on the device ---- */

typedef struct rows {
  float x[ELEMENTS], dy[ELEMENTS], weight[COLS], y[ELEMENTS], dx[ELEMENTS], dweight[COLS];
} rows;

/* Columns of the whole rows, dense, on the device. */
typedef struct shard {
  int64_t first, cols;
  float *x, *dy, *weight, *y, *dx, *dweight;
  void *workspace;
  rms_stat *stats;
} shard;

static float *columns(const float *from, int64_t first, int64_t cols, int64_t count) {
  float *part = malloc((size_t)(count * cols) * sizeof *part + 8);
  for (int64_t i = 0; i < count; i++)
    memcpy(part + i * cols, from + i * COLS + first, (size_t)cols * sizeof *part);
  float *memory = device(part, (size_t)(count * cols) * sizeof *part);
  free(part);
  return memory;
}

static shard make_shard(const rows *r, int64_t first, int64_t cols) {
  shard s = {.first = first, .cols = cols};
  s.x = columns(r->x, first, cols, ROWS);
  s.dy = columns(r->dy, first, cols, ROWS);
  s.weight = columns(r->weight, first, cols, 1);
  s.y = columns(r->y, first, cols, ROWS);
  s.dx = columns(r->dx, first, cols, ROWS);
  s.dweight = columns(r->dweight, first, cols, 1);
  s.workspace = device(NULL, WORKSPACE);
  s.stats = device(NULL, ROWS * sizeof *s.stats);
  return s;
}

static void free_shard(shard *s) {
  void *all[] = {s->x, s->dy, s->weight, s->y, s->dx, s->dweight, s->workspace, s->stats};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    must(cudaFree(all[i]));
}

/* Brings the shard's results to where they are in whole rows. */
static void fetch_columns(float *to, const float *from, int64_t first, int64_t cols, int64_t count) {
  float *part = malloc((size_t)(count * cols) * sizeof *part + 8);
  to_host(part, from, (size_t)(count * cols) * sizeof *part);
  for (int64_t i = 0; i < count; i++)
    memcpy(to + i * COLS + first, part + i * cols, (size_t)cols * sizeof *part);
  free(part);
}

static void fetch_shard(rows *r, const shard *s) {
  fetch_columns(r->y, s->y, s->first, s->cols, ROWS);
  fetch_columns(r->dx, s->dx, s->first, s->cols, ROWS);
  fetch_columns(r->dweight, s->dweight, s->first, s->cols, 1);
}

static rms_forward_args forward_of(const shard *s) {
  return (rms_forward_args){.outer = ROWS, .x = {s->x, RMS_F32}, .weight = s->weight, .y = {.data = s->y}};
}

static rms_backward_args backward_of(const shard *s) {
  return (rms_backward_args){.outer = ROWS,
                             .dy = {.data = s->dy},
                             .x = {s->x, RMS_F32},
                             .weight = s->weight,
                             .dx = {.data = s->dx},
                             .dweight = s->dweight,
                             .workspace = s->workspace,
                             .workspace_bytes = WORKSPACE};
}

static void fill(rows *r, unsigned seed, int integers) {
  memset(r, 0, sizeof *r);
  float *const parts[] = {r->x, r->dy, r->weight};
  const int counts[] = {ELEMENTS, ELEMENTS, COLS};
  for (int part = 0; part < 3; part++)
    for (int i = 0; i < counts[part]; i++) {
      seed = seed * 1664525u + 1013904223u;
      parts[part][i] =
          integers ? (float)(int)(seed >> 28) - 8.0f : ((float)(seed >> 8) - 8388608.0f) / 4194304.0f + 0.25f;
    }
}

static void run_whole(const rms_spec *spec, rows *r, const char *where) {
  shard s = make_shard(r, 0, COLS);
  const rms_forward_args f = forward_of(&s);
  const rms_backward_args b = backward_of(&s);
  expect(rms_cuda_forward(spec, &f, NULL) == RMS_OK, "forward of whole rows", where);
  expect(rms_cuda_backward(spec, &b, NULL) == RMS_OK, "backward of whole rows", where);
  must(cudaStreamSynchronize(NULL));
  fetch_shard(r, &s);
  free_shard(&s);
}

/* ---- Ranks ---- */

typedef struct job {
  const rms_spec *spec; /* of the whole rows */
  rms_nccl_mode mode;
  const int64_t *starts; /* of the shards, ranks + 1 */
  int ranks, bad;        /* bad: a rank that passes an unknown type; -1: none */
  ncclComm_t comms[FAKE_MOST_RANKS];
  rows *r; /* input, and where the results go */
  rms_status forward[FAKE_MOST_RANKS], backward[FAKE_MOST_RANKS];
} job;

typedef struct seat {
  job *j;
  int rank;
} seat;

static rms_spec shard_spec(const rms_spec *whole, int64_t first, int64_t cols) {
  rms_spec s = *whole;
  const int64_t left = whole->partial - first;
  s.cols = cols;
  if (whole->partial) s.partial = left <= 0 ? RMS_PARTIAL_NONE : left < cols ? left : 0;
  return s;
}

static void *run_rank(void *arg) {
  const seat *at = arg;
  job *j = at->j;
  const int64_t first = j->starts[at->rank], cols = j->starts[at->rank + 1] - first;
  const rms_spec spec = shard_spec(j->spec, first, cols);
  shard s = make_shard(j->r, first, cols);
  rms_forward_args f = forward_of(&s);
  rms_backward_args b = backward_of(&s);
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  rms_nccl n = {j->comms[at->rank], (int32_t)j->mode, 0, NULL, 0};
  n.scratch_bytes = rms_nccl_scratch(&n, &spec, ROWS, 1);
  n.scratch = device(NULL, n.scratch_bytes);
  if (at->rank == j->bad) f.x.dtype = b.x.dtype = 77;
  j->forward[at->rank] = rms_nccl_forward(&n, &spec, &f, s.stats, (rms_cuda_stream)stream);
  j->backward[at->rank] = rms_nccl_backward(&n, &spec, &b, s.stats, (rms_cuda_stream)stream);
  must(cudaStreamSynchronize(stream));
  fetch_shard(j->r, &s);
  must(cudaFree(n.scratch));
  must(cudaStreamDestroy(stream));
  free_shard(&s);
  return NULL;
}

static void run_ranks(job *j) {
  pthread_t threads[FAKE_MOST_RANKS];
  seat seats[FAKE_MOST_RANKS];
  fake_nccl_create(j->comms, j->ranks);
  for (int i = 0; i < j->ranks; i++) {
    seats[i] = (seat){j, i};
    pthread_create(&threads[i], NULL, run_rank, &seats[i]);
  }
  for (int i = 0; i < j->ranks; i++)
    pthread_join(threads[i], NULL);
  fake_nccl_destroy(j->comms);
}

static const int64_t splits[][FAKE_MOST_RANKS + 1] = {
    {0, COLS}, {0, 160, COLS}, {0, 7, 7, 300, COLS}, {0, 0, 64, 128, 479, COLS}};
static const int split_ranks[] = {1, 2, 4, 5};

static rows whole, split;

/* ---- Tests ---- */

/* Small integers: the sums over a row are exact in any order, so the shards have the r and the sums of whole rows, and
 * with u = 2^-24 and k elements in the statistic y  = x*r*g                          is within 8u of its size, for the
 * roundings of r and of three products on both sides, dx = dy*g*r - x*sum(dy*g*x)*r^3/k   within 16u of the size of its
 * terms, dweight, a sum over the rows        within 2 (ROWS + 8)u of the sum of its terms' sizes. One rank has the
 * bits. */
static int too_far(const rms_spec *spec) {
  const double unit = ldexp(1, -24), k = spec->partial ? (double)spec->partial : COLS;
  static double sizes[COLS];
  int count = 0;
  memset(sizes, 0, sizeof sizes);
  for (int i = 0; i < ROWS; i++) {
    const float *x = whole.x + i * COLS, *dy = whole.dy + i * COLS;
    double squares = 0, dot = 0;
    for (int j = 0; j < COLS; j++) {
      if (j < (int)k) squares += (double)x[j] * (double)x[j];
      dot += (double)dy[j] * (double)whole.weight[j] * (double)x[j];
    }
    const double r = 1 / sqrt(squares / k + spec->eps);
    for (int j = 0; j < COLS; j++) {
      const int at = i * COLS + j;
      const double y = (double)whole.y[at], u = (double)dy[j] * (double)whole.weight[j];
      const double size = fabs(u * r) + fabs((double)x[j] * dot * r * r * r / k);
      count += !(fabs(y - (double)split.y[at]) <= 8 * unit * fabs(y));
      count += !(fabs((double)whole.dx[at] - (double)split.dx[at]) <= 16 * unit * size);
      sizes[j] += fabs((double)dy[j] * (double)x[j] * r);
    }
  }
  for (int j = 0; j < COLS; j++)
    count += !(fabs((double)whole.dweight[j] - (double)split.dweight[j]) <= 2 * (ROWS + 8) * unit * sizes[j]);
  return count;
}

/* The rows of `split` over the ranks of split k, all with right arguments. */
static job job_of(const rms_spec *spec, int mode, int k) {
  return (job){
      .spec = spec, .mode = (rms_nccl_mode)mode, .starts = splits[k], .ranks = split_ranks[k], .bad = -1, .r = &split};
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
        for (int i = 0; i < j.ranks; i++)
          expect(j.forward[i] == RMS_OK && j.backward[i] == RMS_OK, "a rank fails", where);
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

/* A rank whose arguments are refused: it says so, nobody hangs, and the others' results are NaN. */
static void test_refusal(void) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5};
  for (int mode = RMS_NCCL_REDUCE; mode <= RMS_NCCL_FOLD; mode++) {
    fill(&split, 13, 0);
    job j = {.spec = &spec,
             .mode = (rms_nccl_mode)mode,
             .starts = splits[2],
             .ranks = split_ranks[2],
             .bad = 2,
             .r = &split};
    run_ranks(&j);
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
      wrong += !isnan(split.y[i * COLS]) + !isnan(split.dx[i * COLS]) + (split.y[i * COLS + 10] != 0);
    expect(wrong == 0, "the others' results are not NaN, or the rank's own were written", "refusal");
    for (int i = 0; i < j.ranks; i++)
      expect(j.forward[i] == (i == 2 ? RMS_E_DTYPE : RMS_OK) && j.backward[i] == j.forward[i], "status", "refusal");
  }
}

static void test_arguments(void) {
  ncclComm_t comms[FAKE_MOST_RANKS];
  fake_nccl_create(comms, 1);
  fill(&whole, 17, 0);
  shard s = make_shard(&whole, 0, COLS);
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  rms_forward_args f = forward_of(&s);
  const rms_backward_args b = backward_of(&s);
  rms_nccl n = {comms[0], RMS_NCCL_FOLD, 0, NULL, 0};
  expect(rms_nccl_forward(NULL, &spec, &f, s.stats, NULL) == RMS_E_ARGUMENT, "no struct", "arguments");
  expect(rms_nccl_forward(&n, &spec, NULL, s.stats, NULL) == RMS_E_ARGUMENT, "no args", "arguments");
  expect(rms_nccl_forward(&n, &spec, &f, NULL, NULL) == RMS_E_ARGUMENT, "no stats", "arguments");
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, NULL) == RMS_E_WORKSPACE, "no scratch memory", "arguments");
  n.scratch_bytes = rms_nccl_scratch(&n, &spec, ROWS, 1);
  n.scratch = device(NULL, n.scratch_bytes);
  n.scratch_bytes -= 8;
  expect(rms_nccl_backward(&n, &spec, &b, s.stats, NULL) == RMS_E_WORKSPACE, "too little scratch memory", "arguments");
  n.scratch_bytes += 8;
  n.mode = 5;
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, NULL) == RMS_E_MODE, "unknown mode", "arguments");
  n.mode = RMS_NCCL_FOLD;
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
  const rms_nccl n = {NULL, RMS_NCCL_LOCAL, 0, NULL, 0};
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

#ifndef RMSNORM_NCCL_DOUBLE
/* Both directions captured in a graph and replayed. */
static void test_graph(int mode) {
  const rms_spec spec = {.cols = COLS, .eps = 1e-5};
  ncclComm_t comms[FAKE_MOST_RANKS];
  fake_nccl_create(comms, 1);
  fill(&whole, 23, 1);
  split = whole;
  run_whole(&spec, &whole, "graph");
  shard s = make_shard(&split, 0, COLS);
  const rms_forward_args f = forward_of(&s);
  const rms_backward_args b = backward_of(&s);
  rms_nccl n = {comms[0], mode, 0, NULL, 0};
  n.scratch_bytes = rms_nccl_scratch(&n, &spec, ROWS, 1);
  n.scratch = device(NULL, n.scratch_bytes);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  expect(rms_nccl_forward(&n, &spec, &f, s.stats, (rms_cuda_stream)stream) == RMS_OK, "forward", "graph");
  expect(rms_nccl_backward(&n, &spec, &b, s.stats, (rms_cuda_stream)stream) == RMS_OK, "backward", "graph");
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; i++)
    must(cudaGraphLaunch(exec, stream));
  must(cudaStreamSynchronize(stream));
  fetch_shard(&split, &s);
  expect(memcmp(&whole, &split, sizeof whole) == 0, "other bits than the whole call", "graph");
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
  must(cudaStreamDestroy(stream));
  must(cudaFree(n.scratch));
  free_shard(&s);
  fake_nccl_destroy(comms);
}
#endif

int main(void) {
  if (rms_cuda_available() != RMS_OK) {
    puts("skipped: no usable GPU");
    return 77;
  }
  test_exact();
  test_layer();
  test_refusal();
  test_arguments();
  test_local();
#ifndef RMSNORM_NCCL_DOUBLE
  test_graph(RMS_NCCL_REDUCE);
  test_graph(RMS_NCCL_FOLD);
#endif
  printf("nccl: %d checks, %d failed\n", checks, failures);
  return failures > 0;
}
