/* SPDX-License-Identifier: MIT
 * The choice between the ways of writing rows past the caches: every row is done once whatever is being timed, from
 * several threads at once too, and the results do not depend on it. Memory that nobody has touched yet is not written
 * past the caches. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "../../src/core/strategy.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "../../src/core/run.h"
#include "call.h"
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { THREADS = 4, UNITS = 1000, UNIT_BYTES = 64 << 10, ROWS = 600, COLS = 4096 };

static _Atomic int done[THREADS][UNITS], ways[RMS_WAYS];

static void mark(const void *arg, int64_t from, int64_t to, rms_way way) {
  _Atomic int *units = (_Atomic int *)(uintptr_t)arg;
  for (int64_t i = from; i < to; i++)
    atomic_fetch_add(&units[i], 1);
  atomic_fetch_add(&ways[way], 1);
}

static rms_row_kind kind_run;

static void *run_all(void *units) {
  rms_run_strategy(0, kind_run, UNIT_BYTES, 0, UNITS, mark, units);
  return NULL;
}

/* One sample of each way in a call at most, nine of each. */
static void run_until_known(rms_row_kind kind, const rms_way *expected, int count) {
  pthread_t thread[THREADS];
  int calls = 0, used = 0;
  kind_run = kind;
  memset(ways, 0, sizeof ways);
  T_CHECK(!rms_strategy_known(0, kind));
  for (; !rms_strategy_known(0, kind) && calls < 9; calls++) {
    memset(done, 0, sizeof done);
    for (int t = 0; t < THREADS; t++)
      T_EQ_INT(0, pthread_create(&thread[t], NULL, run_all, done[t]));
    for (int t = 0; t < THREADS; t++)
      T_EQ_INT(0, pthread_join(thread[t], NULL));
    for (int t = 0; t < THREADS; t++)
      for (int i = 0; i < UNITS; i++)
        T_EQ_INT(1, atomic_load(&done[t][i]));
  }
  T_CHECK(rms_strategy_known(0, kind));
  T_CHECK(calls * THREADS >= 9);
  for (int i = 0; i < count; i++)
    T_CHECK(atomic_load(&ways[expected[i]]) >= 9);
  for (int way = 0; way < RMS_WAYS; way++)
    used += atomic_load(&ways[way]) > 0;
  T_EQ_INT(count, used);
}

static rms_row_kind kind_of(rms_direction direction, rms_dtype type, rms_kind kind, int64_t width) {
  const rms_layout lay = {.dtype = type, .kind = kind, .width = width, .k = width};
  return rms_row_kind_of(direction, &lay);
}

static void every_unit_once(void) {
  run_until_known(kind_of(RMS_FORWARD, RMS_F32, RMS_KIND_RMS, 4096),
                  (rms_way[]){RMS_WAY_FETCH, RMS_WAY_SPACED, RMS_WAY_BATCHES}, 3);
  run_until_known(kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 4096),
                  (rms_way[]){RMS_WAY_BATCHES, RMS_WAY_FETCH, RMS_WAY_LEFT}, 3);
  run_until_known(kind_of(RMS_BACKWARD, RMS_F64, RMS_KIND_RMS, 4096),
                  (rms_way[]){RMS_WAY_FETCH, RMS_WAY_BATCHES, RMS_WAY_LEFT}, 3);
  run_until_known(kind_of(RMS_BACKWARD, RMS_F32, RMS_KIND_LAYER, 256),
                  (rms_way[]){RMS_WAY_FETCH, RMS_WAY_BURST, RMS_WAY_LEFT}, 3);
}

static void kinds_of_rows(void) {
  T_EQ_INT(RMS_ONE_WAY, kind_of(RMS_FORWARD, RMS_BF16, RMS_KIND_RMS, 4097));
  T_EQ_INT(RMS_ONE_WAY, kind_of(RMS_FORWARD, RMS_F32, RMS_KIND_LAYER, 4096));
  T_EQ_INT(RMS_ONE_WAY, kind_of(RMS_FORWARD, RMS_F32, RMS_KIND_RMS, 2048));
  T_EQ_INT(RMS_ONE_WAY, kind_of(RMS_BACKWARD, RMS_F32, RMS_KIND_RMS, 1024));
  T_EQ_INT(kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 512), kind_of(RMS_BACKWARD, RMS_F16, RMS_KIND_RMS, 129));
  T_CHECK(kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 128) != kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_LAYER, 128));
  T_CHECK(kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 128) != kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 129));
  T_CHECK(kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 8192) != kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 8193));
  T_CHECK(kind_of(RMS_BACKWARD, RMS_BF16, RMS_KIND_RMS, 128) != kind_of(RMS_BACKWARD, RMS_F32, RMS_KIND_RMS, 128));
  const rms_layout partial = {.dtype = RMS_F32, .kind = RMS_KIND_RMS, .width = 4096, .k = 256};
  T_CHECK(rms_row_kind_of(RMS_FORWARD, &partial) != kind_of(RMS_FORWARD, RMS_F32, RMS_KIND_RMS, 4096));
  for (rms_direction direction = RMS_FORWARD; direction <= RMS_BACKWARD; direction++)
    for (int64_t width = 1; width <= 1 << 20; width *= 2)
      for (rms_dtype type = RMS_F32; type <= RMS_F16; type++)
        for (rms_kind kind = RMS_KIND_RMS; kind <= RMS_KIND_LAYER; kind++) {
          const rms_row_kind rows = kind_of(direction, type, kind, width);
          T_CHECK(rows == RMS_ONE_WAY || (rows >= 0 && rows < RMS_ROW_KINDS));
        }
}

/* ---- results ---- */

typedef struct {
  rms_dtype type;
  rms_kind kind;
  int64_t rows, cols;
} shape;

typedef struct {
  char *x, *dy, *y, *dx;
  void *workspace;
  size_t workspace_bytes;
  double weight[COLS], bias[COLS], dweight[COLS], dbias[COLS]; /* at least as large as those of any type */
} buffers;

static void run_both(const shape *s, buffers *b, bool sums) {
  const rms_spec spec = {.cols = s->cols, .eps = 1e-6, .kind = s->kind};
  const bool layer = s->kind == RMS_KIND_LAYER;
  const rms_forward_args forward = {.outer = s->rows,
                                    .x = {.data = b->x, .dtype = s->type},
                                    .weight = b->weight,
                                    .bias = layer ? b->bias : NULL,
                                    .y = {.data = b->y}};
  const rms_backward_args backward = {.outer = s->rows,
                                      .x = {.data = b->x, .dtype = s->type},
                                      .dy = {.data = b->dy, .dtype = s->type},
                                      .weight = b->weight,
                                      .dx = {.data = b->dx},
                                      .dweight = sums ? b->dweight : NULL,
                                      .dbias = sums && layer ? b->dbias : NULL,
                                      .workspace = b->workspace,
                                      .workspace_bytes = b->workspace_bytes};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &forward, NULL));
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &backward, NULL));
}

/* Without streams, while all ways are timed, and after that, with sums over rows and without. Rows of zeros, huge and
 * tiny ones stand among the others. */
static void same_results_of(shape s) {
  const size_t size = rms_dtype_size(s.type), bytes = size * (size_t)(s.rows * s.cols);
  static buffers b;
  char *want[2] = {aligned_alloc(64, bytes), aligned_alloc(64, bytes)};
  double want_sums[2][COLS];
  b.x = aligned_alloc(64, bytes), b.dy = aligned_alloc(64, bytes);
  b.y = aligned_alloc(64, bytes), b.dx = aligned_alloc(64, bytes);
  t_fill(b.x, s.type, s.rows * s.cols, T_NORMAL, t_seed(), 1, 0);
  for (int64_t row = 3; row < s.rows; row += 31)
    t_fill(b.x + (size_t)(row * s.cols) * size, s.type, s.cols, (t_data)(row % T_SPECIAL), t_seed(), 5, row);
  t_fill(b.dy, s.type, s.rows * s.cols, T_NORMAL, t_seed(), 2, 0);
  t_fill(b.weight, s.type, s.cols, T_NORMAL, t_seed(), 3, 0);
  t_fill(b.bias, s.type, s.cols, T_NORMAL, t_seed(), 4, 0);
  b.workspace_bytes = 8 << 20;
  b.workspace = aligned_alloc(64, b.workspace_bytes);
  const rms_kernels *kernels = rms_kernels_of_type(rms_active_kernels(), s.type);
  const int isa = rms_isa_number(s.type == RMS_F16 ? rms_active_kernels() : kernels);
  const rms_row_kind kinds[] = {kind_of(RMS_FORWARD, s.type, s.kind, s.cols),
                                kind_of(RMS_BACKWARD, s.type, s.kind, s.cols)};
  bool known[2];
  for (int i = 0; i < 2; i++)
    known[i] = kinds[i] != RMS_ONE_WAY && rms_strategy_known(isa, kinds[i]);
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(INT64_MAX));
  run_both(&s, &b, true);
  memcpy(want[0], b.y, bytes);
  memcpy(want[1], b.dx, bytes);
  memcpy(want_sums[0], b.dweight, sizeof b.dweight);
  memcpy(want_sums[1], b.dbias, sizeof b.dbias);
  for (int i = 0; i < 2; i++)
    T_EQ_INT(known[i], kinds[i] != RMS_ONE_WAY && rms_strategy_known(isa, kinds[i]));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(0));
  for (int call = 0; call < 14; call++) {
    memset(b.y, 0, bytes);
    memset(b.dx, 0, bytes);
    memset(b.dweight, 0, (size_t)s.cols * size);
    run_both(&s, &b, call % 4 != 3);
    T_EQ_BYTES(want[0], b.y, bytes);
    T_EQ_BYTES(want[1], b.dx, bytes);
    if (call % 4 == 3) continue;
    T_EQ_BYTES(want_sums[0], b.dweight, sizeof b.dweight);
    T_EQ_BYTES(want_sums[1], b.dbias, sizeof b.dbias);
  }
  for (int i = 0; i < 2; i++)
    T_CHECK(kinds[i] == RMS_ONE_WAY || rms_strategy_known(isa, kinds[i]));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  char *all[] = {b.x, b.dy, b.y, b.dx, want[0], want[1], b.workspace};
  for (size_t i = 0; i < T_COUNT(all); i++)
    free(all[i]);
}

static void same_results(void) {
  const shape shapes[] = {{RMS_F32, RMS_KIND_RMS, 600, 4096},   {RMS_F32, RMS_KIND_LAYER, 600, 4096},
                          {RMS_F32, RMS_KIND_RMS, 16000, 128},  {RMS_F32, RMS_KIND_LAYER, 8000, 256},
                          {RMS_BF16, RMS_KIND_RMS, 1200, 4096}, {RMS_BF16, RMS_KIND_LAYER, 1200, 4096},
                          {RMS_BF16, RMS_KIND_RMS, 30000, 128}, {RMS_BF16, RMS_KIND_LAYER, 9000, 448},
                          {RMS_F32, RMS_KIND_RMS, 4000, 520}};
  for (size_t i = 0; i < T_COUNT(shapes); i++)
    same_results_of(shapes[i]);
}

static rms_status forward(float *y, const float *x, const float *weight) {
  return rms_norm_f32(y, x, weight, ROWS, COLS, 1e-6);
}

#if defined(__linux__)
/* Pages are mapped in by the first store to them; the row in the middle decides. */
static void untouched_memory(void) {
  const size_t bytes = sizeof(float) * ROWS * COLS;
  float *x = aligned_alloc(64, bytes), *want = aligned_alloc(64, bytes), weight[COLS];
  char *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const rms_layout lay = {.inner = 1, .groups = 1, .width = COLS};
  const rms_rows rows = {.data = fresh, .outer = COLS * sizeof(float), .inner = 0};
  t_fill(x, RMS_F32, (int64_t)ROWS * COLS, T_NORMAL, t_seed(), 1, 0);
  t_fill(weight, RMS_F32, COLS, T_NORMAL, t_seed(), 2, 0);
  if (!T_CHECK(fresh != MAP_FAILED)) return;
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(0));
  T_EQ_STATUS(RMS_OK, forward(want, x, weight));
  unsigned char resident = 1; /* some systems say so of every page */
  T_EQ_INT(0, mincore(fresh, 1, &resident));
  T_EQ_INT(resident & 1, rms_can_stream(&rows, &lay, COLS * sizeof(float), ROWS));
  T_EQ_STATUS(RMS_OK, forward((float *)(void *)fresh, x, weight));
  T_EQ_BYTES(want, fresh, bytes);
  T_CHECK(rms_can_stream(&rows, &lay, COLS * sizeof(float), ROWS));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
  T_EQ_INT(0, munmap(fresh, bytes));
  free(x);
  free(want);
}
#endif

int main(int argc, char **argv) {
  static const t_case cases[] = {
    {"kinds_of_rows", kinds_of_rows},
    {"every_unit_once", every_unit_once},
    {"same_results", same_results},
#if defined(__linux__)
    {"untouched_memory", untouched_memory}
#endif
  };
  return t_main(argc, argv, cases, T_COUNT(cases));
}
