/* SPDX-License-Identifier: MIT */
#include "nccl_ranks.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int expect(int held, const char *what, const char *where) {
  pthread_mutex_lock(&lock);
  checks++;
  if (!held && failures++ < 20) printf("FAIL: %s (%s)\n", what, where);
  pthread_mutex_unlock(&lock);
  return held;
}

int conclude(void) {
  printf("nccl: %d checks, %d failed\n", checks, failures);
  return failures > 0;
}

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  printf("CUDA error %d\n", (int)error);
  exit(1);
}

/* ---- Device memory ---- */

void *device(const void *host, size_t bytes) {
  void *memory;
  must(cudaMalloc(&memory, bytes > 0 ? bytes : 8));
  if (host != NULL) must(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
  must(cudaStreamSynchronize(NULL)); /* a copy of pageable memory may return early, and other streams do not wait */
  return memory;
}

static void to_host(void *host, const void *memory, size_t bytes) {
  must(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
}

/* ---- Shards ---- */

static float *columns(const float *from, int64_t first, int64_t cols, int64_t count) {
  float *part = malloc((size_t)(count * cols) * sizeof *part + 8);
  for (int64_t i = 0; i < count; i++)
    memcpy(part + i * cols, from + i * COLS + first, (size_t)cols * sizeof *part);
  float *memory = device(part, (size_t)(count * cols) * sizeof *part);
  free(part);
  return memory;
}

shard make_shard(const rows *r, int64_t first, int64_t cols) {
  shard s = {.first = first, .cols = cols};
  s.x = columns(r->x, first, cols, ROWS);
  s.dy = columns(r->dy, first, cols, ROWS);
  s.weight = columns(r->weight, first, cols, 1);
  s.y = columns(r->y, first, cols, ROWS);
  s.dx = columns(r->dx, first, cols, ROWS);
  s.dweight = columns(r->dweight, first, cols, 1);
  s.workspace = device(NULL, WORKSPACE);
  s.stats = device(NULL, MOST_SEGMENTS * ROWS * sizeof *s.stats);
  return s;
}

void free_shard(shard *s) {
  void *all[] = {s->x, s->dy, s->weight, s->y, s->dx, s->dweight, s->workspace, s->stats};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    must(cudaFree(all[i]));
}

static void fetch_columns(float *to, const float *from, int64_t first, int64_t cols, int64_t count) {
  float *part = malloc((size_t)(count * cols) * sizeof *part + 8);
  to_host(part, from, (size_t)(count * cols) * sizeof *part);
  for (int64_t i = 0; i < count; i++)
    memcpy(to + i * COLS + first, part + i * cols, (size_t)cols * sizeof *part);
  free(part);
}

void fetch_shard(rows *r, const shard *s) {
  fetch_columns(r->y, s->y, s->first, s->cols, ROWS);
  fetch_columns(r->dx, s->dx, s->first, s->cols, ROWS);
  fetch_columns(r->dweight, s->dweight, s->first, s->cols, 1);
}

rms_forward_args forward_of(const shard *s) {
  return (rms_forward_args){.outer = ROWS, .x = {s->x, RMS_F32}, .weight = s->weight, .y = {.data = s->y}};
}

rms_backward_args backward_of(const shard *s) {
  return (rms_backward_args){.outer = ROWS,
                             .dy = {.data = s->dy},
                             .x = {s->x, RMS_F32},
                             .weight = s->weight,
                             .dx = {.data = s->dx},
                             .dweight = s->dweight,
                             .workspace = s->workspace,
                             .workspace_bytes = WORKSPACE};
}

void fill(rows *r, unsigned seed, int integers) {
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

void run_whole(const rms_spec *spec, rows *r, const char *where) {
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

typedef struct seat {
  job *j;
  int rank;
} seat;

static rms_spec shard_spec(const job *j, int64_t first, int64_t cols) {
  rms_spec s = *j->spec;
  const int64_t left = s.partial - first;
  if (s.partial) s.partial = left <= 0 ? RMS_PARTIAL_NONE : left < cols ? left : 0;
  s.cols = j->inner > 0 ? cols / j->inner : cols;
  return s;
}

static int64_t widest(const job *j) {
  int64_t most = 0;
  for (int i = 0; i < j->ranks; i++)
    if (j->starts[i + 1] - j->starts[i] > most) most = j->starts[i + 1] - j->starts[i];
  return most;
}

static void make_streams(const job *j, rms_nccl *n, cudaStream_t *stream) {
  must(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  if (j->overlaps) {
    must(cudaStreamCreateWithFlags(&n->exchange, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&n->event, cudaEventDisableTiming));
  }
#ifdef RMSNORM_NCCL_DOUBLE
  if (j->late == CALL_LATE) double_make_lazy(*stream);
  if (j->late == EXCHANGE_LATE && j->overlaps) double_make_lazy(n->exchange);
#endif
}

/* The call's stream has ended the work of both, or the calls could not be captured. */
static void end_streams(const job *j, rms_nccl *n, cudaStream_t stream) {
  must(cudaStreamSynchronize(stream));
  if (j->overlaps) {
#ifdef RMSNORM_NCCL_DOUBLE
    expect(double_pending(n->exchange) == 0, "work on the second stream that the first does not wait for", "streams");
#endif
    must(cudaStreamSynchronize(n->exchange));
    must(cudaStreamDestroy(n->exchange));
    must(cudaEventDestroy(n->event));
  }
  must(cudaStreamDestroy(stream));
}

/* Runs both calls, with the fault if this rank has one. */
static void call(const seat *at, const rms_spec *spec, shard *s, rms_nccl n, cudaStream_t stream) {
  job *j = at->j;
  const fault f = at->rank == j->bad ? j->fault : NO_FAULT;
  rms_forward_args forward = forward_of(s);
  rms_backward_args backward = backward_of(s);
  rms_stat *stats = f == NO_STATS ? NULL : s->stats;
  forward.inner = backward.inner = j->inner;
  if (j->rows_alone) backward.dweight = NULL;
  if (f == BAD_TYPE) forward.x.dtype = backward.x.dtype = 77;
  if (f == Y_OVER_X) forward.y.data = s->x + 1;
  if (f == Y_OVER_X) backward.dx.data = s->x + 1;
  if (f == LITTLE_SCRATCH) n.scratch_bytes = 8;
  if (f == NO_EVENT) n.event = NULL;
  j->forward[at->rank] = rms_nccl_forward(&n, spec, &forward, stats, (rms_cuda_stream)stream);
  j->backward[at->rank] = rms_nccl_backward(&n, spec, &backward, stats, (rms_cuda_stream)stream);
}

static void *run_rank(void *arg) {
  const seat *at = arg;
  job *j = at->j;
  const int64_t first = j->starts[at->rank], cols = j->starts[at->rank + 1] - first;
  const int64_t most = widest(j) / (j->inner > 0 ? j->inner : 1) - (j->fault == TOO_WIDE ? j->block_cols : 0);
  const rms_spec spec = shard_spec(j, first, cols);
  shard s = make_shard(j->r, first, cols);
  rms_nccl n = {.comm = j->comms[at->rank],
                .mode = (int32_t)j->mode,
                .block_cols = j->block_cols,
                .chunk_rows = j->chunk_rows,
                .most_cols = j->block_cols > 0 ? most : 0};
  cudaStream_t stream;
  make_streams(j, &n, &stream);
  n.scratch_bytes = rms_nccl_scratch(&n, &spec, ROWS, j->inner);
  n.scratch = device(NULL, n.scratch_bytes);
  must(cudaStreamSynchronize(NULL));
  call(at, &spec, &s, n, stream);
  end_streams(j, &n, stream);
  fetch_shard(j->r, &s);
  if (at->rank == 0 && j->stats != NULL) to_host(j->stats, s.stats, ROWS * sizeof *s.stats);
  must(cudaFree(n.scratch));
  free_shard(&s);
  return NULL;
}

void run_ranks(job *j) {
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

void expect_good(const job *j, const char *where) {
  for (int i = 0; i < j->ranks; i++)
    expect(j->forward[i] == RMS_OK && j->backward[i] == RMS_OK, "a rank fails", where);
}
