/* SPDX-License-Identifier: MIT
 * Calls from many threads at once: the very first ones, calls that share a pool, pools that come and go, switching the
 * instruction set meanwhile. ThreadSanitizer runs this too (see variant.sh). */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include "call.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROWS = 300, COLS = 257, ELEMENTS = ROWS * COLS };

typedef struct worker {
  pthread_t thread;
  int number;
  rms_pool *pool;
  rms_status status;
  float *y;
} worker;

static pthread_barrier_t start;
static float x[ELEMENTS], weight[COLS], expected[ELEMENTS];
static float results[THREADS][ELEMENTS];

static rms_status forward(float *y, const rms_executor *executor) {
  rms_spec spec = {.cols = COLS, .eps = 1e-5};
  rms_forward_args args = {.outer = ROWS, .x = {x, RMS_F32}, .weight = weight, .y = {.data = y}};
  return rms_forward(&spec, &args, executor);
}

static void run_workers(worker *workers, void *(*body)(void *)) {
  pthread_barrier_init(&start, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    workers[i].number = i;
    workers[i].y = results[i];
    pthread_create(&workers[i].thread, NULL, body, &workers[i]);
  }
  for (int i = 0; i < THREADS; i++)
    pthread_join(workers[i].thread, NULL);
  pthread_barrier_destroy(&start);
}

static void check_results(const worker *workers) {
  for (int i = 0; i < THREADS; i++) {
    t_context("thread %d", i);
    T_EQ_STATUS(RMS_OK, workers[i].status);
    T_EQ_BYTES(expected, results[i], sizeof expected);
  }
}

/* ---- First calls: run before anything else in the process has called the library ---- */

static worker first[THREADS];
static const char *first_active[THREADS];
static int64_t first_threshold[THREADS];

static void *first_call(void *arg) {
  worker *w = arg;
  pthread_barrier_wait(&start);
  w->status = forward(w->y, NULL);
  first_active[w->number] = rms_isa_active();
  first_threshold[w->number] = rms_stream_threshold();
  return NULL;
}

static void first_calls(void) {
  T_EQ_STATUS(RMS_OK, forward(expected, NULL));
  for (int i = 0; i < THREADS; i++) {
    T_EQ_STATUS(RMS_OK, first[i].status);
    T_EQ_STR(rms_isa_active(), first_active[i]);
    T_EQ_INT(rms_stream_threshold(), first_threshold[i]);
  }
}

/* ---- Pools ---- */

static void *call_on_shared_pool(void *arg) {
  worker *w = arg;
  rms_executor executor = rms_pool_executor(w->pool);
  pthread_barrier_wait(&start);
  w->status = RMS_OK;
  for (int i = 0; i < 20 && w->status == RMS_OK; i++)
    w->status = forward(w->y, &executor);
  return NULL;
}

static void shared_pool(void) {
  worker workers[THREADS] = {0};
  rms_pool *pool = NULL;
  T_EQ_STATUS(RMS_OK, forward(expected, NULL));
  T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3));
  for (int i = 0; i < THREADS; i++)
    workers[i].pool = pool;
  memset(results, 0, sizeof results);
  run_workers(workers, call_on_shared_pool);
  rms_pool_destroy(pool);
  check_results(workers);
}

static void *call_on_own_pools(void *arg) {
  worker *w = arg;
  pthread_barrier_wait(&start);
  w->status = RMS_OK;
  for (int i = 0; i < 10 && w->status == RMS_OK; i++) {
    rms_pool *pool = NULL;
    w->status = rms_pool_create(&pool, 1 + (w->number + i) % 4);
    if (w->status != RMS_OK) break;
    rms_executor executor = rms_pool_executor(pool);
    w->status = forward(w->y, &executor);
    if (w->status == RMS_OK && i % 2) w->status = forward(w->y, &executor); /* a pool is used again */
    rms_pool_destroy(pool);
  }
  return NULL;
}

static void own_pools(void) {
  worker workers[THREADS] = {0};
  T_EQ_STATUS(RMS_OK, forward(expected, NULL));
  memset(results, 0, sizeof results);
  run_workers(workers, call_on_own_pools);
  check_results(workers);
  rms_pool *idle = NULL; /* destroyed without ever running anything */
  T_EQ_STATUS(RMS_OK, rms_pool_create(&idle, 4));
  rms_pool_destroy(idle);
}

/* ---- Wide rows whose elements lie apart: each task gathers in a room of its own ---- */

enum { IMAGES = 2, PIXELS = 100, CHANNELS = 13000, WIDE = IMAGES * PIXELS * CHANNELS };

static float wide[WIDE], wide_expected[WIDE];

static rms_status wide_forward(float *y, const rms_executor *executor) {
  const rms_spec spec = {.cols = CHANNELS, .eps = 1e-5};
  const rms_const_view view = {.data = wide, .dtype = RMS_F32, .col_stride = PIXELS};
  const rms_forward_args args = {.outer = IMAGES, .inner = PIXELS, .x = view, .y = {.data = y, .col_stride = PIXELS}};
  return rms_forward(&spec, &args, executor);
}

static void *wide_rows_on_shared_pool(void *arg) {
  worker *w = arg;
  rms_executor executor = rms_pool_executor(w->pool);
  float *y = malloc(WIDE * sizeof *y);
  pthread_barrier_wait(&start);
  w->status = y ? RMS_OK : RMS_E_MEMORY;
  for (int i = 0; i < 3 && w->status == RMS_OK; i++) {
    memset(y, 0, WIDE * sizeof *y);
    w->status = wide_forward(y, (w->number + i) % 4 ? &executor : NULL);
    if (memcmp(y, wide_expected, WIDE * sizeof *y) != 0) w->status = RMS_STATUS_END;
  }
  free(y);
  return NULL;
}

static void wide_rows(void) {
  worker workers[THREADS] = {0};
  rms_pool *pool = NULL;
  for (int64_t i = 0; i < WIDE; i++)
    wide[i] = (float)(i % 31) - 15;
  T_EQ_STATUS(RMS_OK, wide_forward(wide_expected, NULL));
  T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3));
  for (int i = 0; i < THREADS; i++)
    workers[i].pool = pool;
  run_workers(workers, wide_rows_on_shared_pool);
  rms_pool_destroy(pool);
  for (int i = 0; i < THREADS; i++)
    T_EQ_STATUS(RMS_OK, workers[i].status);
}

/* An executor that runs more tasks at once than it says: they wait for each other's rooms. */
typedef struct too_many {
  pthread_t thread;
  int64_t first, tasks;
  void (*task)(void *arg, int64_t i);
  void *arg;
} too_many;

static void *run_every_fourth(void *arg) {
  const too_many *t = arg;
  for (int64_t i = t->first; i < t->tasks; i += 4)
    t->task(t->arg, i);
  return NULL;
}

static void run_on_four_threads(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  too_many thread[4];
  (void)ctx;
  for (int i = 0; i < 4; i++) {
    thread[i] = (too_many){.first = i, .tasks = tasks, .task = task, .arg = arg};
    pthread_create(&thread[i].thread, NULL, run_every_fourth, &thread[i]);
  }
  for (int i = 0; i < 4; i++)
    pthread_join(thread[i].thread, NULL);
}

static void more_tasks_than_rooms(void) {
  static float y[WIDE];
  const rms_executor executor = {NULL, 1, run_on_four_threads};
  T_EQ_STATUS(RMS_OK, wide_forward(wide_expected, NULL));
  T_EQ_STATUS(RMS_OK, wide_forward(y, &executor));
  T_EQ_BYTES(wide_expected, y, sizeof y);
}

/* Every task runs exactly once, whatever the number of tasks. */
static void count_task(void *arg, int64_t i) {
  ((unsigned char *)arg)[i]++; /* each task has its own byte */
}

static void pool_runs_each_task_once(void) {
  static unsigned char runs[5000];
  for (int threads = 1; threads <= 5; threads++) {
    rms_pool *pool = NULL;
    T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, threads));
    rms_executor executor = rms_pool_executor(pool);
    for (int64_t tasks = 0; tasks <= 5000; tasks = tasks * 3 + 1) {
      memset(runs, 0, sizeof runs);
      executor.run(executor.ctx, tasks, count_task, runs);
      for (int64_t i = 0; i < 5000; i++)
        if (runs[i] != (i < tasks)) T_EQ_INT(i < tasks, runs[i]);
    }
    T_EQ_INT(threads, executor.concurrency);
    rms_pool_destroy(pool);
  }
}

/* ---- How much work is worth a thread ---- */

enum { MOST_RUNS = 4 };

/* An executor that notes how many tasks each of its runs had. */
typedef struct notes {
  int runs;
  int64_t tasks[MOST_RUNS];
} notes;

static void run_and_note(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  notes *n = ctx;
  if (n->runs < MOST_RUNS) n->tasks[n->runs] = tasks;
  n->runs++;
  for (int64_t i = tasks - 1; i >= 0; i--)
    task(arg, i);
}

static notes forward_of(int64_t rows, int64_t cols, int concurrency) {
  static float in[1 << 20], out[1 << 20];
  notes n = {0};
  const rms_executor executor = {&n, concurrency, run_and_note};
  const rms_spec spec = {.cols = cols, .eps = 1e-5};
  const rms_forward_args args = {.outer = rows, .x = {in, RMS_F32}, .y = {.data = out}};
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, &executor));
  return n;
}

/* Also compares the sums over rows with those of one thread. */
static notes backward_of(int64_t rows, int64_t cols, int concurrency) {
  static float in[1 << 20], out[1 << 20], dweight[4096], alone[4096];
  static _Alignas(64) char workspace[4 << 20];
  notes n = {0};
  const rms_executor executor = {&n, concurrency, run_and_note};
  const rms_spec spec = {.cols = cols, .eps = 1e-5};
  rms_backward_args args = {.outer = rows,
                            .x = {in, RMS_F32},
                            .dy = {.data = in},
                            .dx = {.data = out},
                            .dweight = dweight,
                            .workspace = workspace,
                            .workspace_bytes = sizeof workspace};
  for (int64_t i = 0; i < rows * cols; i++)
    in[i] = (float)(i % 31) - 15;
  memset(dweight, 0, sizeof dweight);
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, &executor));
  args.dweight = alone;
  T_EQ_STATUS(RMS_OK, rms_backward(&spec, &args, NULL));
  T_EQ_BYTES(alone, dweight, (size_t)cols * sizeof *alone);
  return n;
}

static void tasks_follow_the_work(void) {
  T_EQ_INT(0, forward_of(1, 64, 16).runs);
  T_EQ_INT(0, forward_of(4, 4096, 16).runs); /* 128 KB: the calling thread alone */
  T_EQ_INT(8, forward_of(8, 4096, 16).tasks[0]);
  T_EQ_INT(16, forward_of(16, 4096, 16).tasks[0]); /* a row is worth a thread */
  T_EQ_INT(4, forward_of(16, 4096, 2).tasks[0]);   /* whole rounds of larger tasks */
  T_EQ_INT(16, forward_of(512, 768, 16).tasks[0]); /* one round */
  T_EQ_INT(4 * 16, forward_of(256, 4096, 16).tasks[0]);
  T_EQ_INT(0, backward_of(16, 4096, 16).runs); /* one chunk of rows */
}

/* The second run adds the chunks. It has no more tasks than the first, whose threads are still awake. */
static void chunks_are_added_by_those_who_made_them(void) {
  notes n = backward_of(512, 768, 16);
  T_EQ_INT(2, n.runs);
  T_EQ_INT(16, n.tasks[0]);
  T_EQ_INT(12, n.tasks[1]); /* strips of 64 columns */
  n = backward_of(96, 4096, 16);
  T_EQ_INT(2, n.runs);
  T_EQ_INT(3, n.tasks[0]);
  T_EQ_INT(3, n.tasks[1]);
}

/* ---- Switching while others compute ---- */

static void *switch_or_compute(void *arg) {
  worker *w = arg;
  t_isas isas = t_usable_isas();
  pthread_barrier_wait(&start);
  w->status = RMS_OK;
  for (int i = 0; i < 50 && w->status == RMS_OK; i++)
    if (w->number == 0) {
      w->status = rms_isa_force(i % 3 ? isas.name[i % isas.count] : NULL);
      if (w->status == RMS_OK) w->status = rms_stream_threshold_set(i % 2 ? 0 : -1);
    } else {
      w->status = forward(w->y, NULL);
    }
  if (w->number == 0) memcpy(w->y, expected, sizeof expected);
  return NULL;
}

static void switching(void) {
  worker workers[THREADS] = {0};
  T_EQ_STATUS(RMS_OK, forward(expected, NULL));
  memset(results, 0, sizeof results);
  run_workers(workers, switch_or_compute);
  check_results(workers);
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"first_calls", first_calls},
                                 {"shared_pool", shared_pool},
                                 {"own_pools", own_pools},
                                 {"wide_rows", wide_rows},
                                 {"more_tasks_than_rooms", more_tasks_than_rooms},
                                 {"pool_runs_each_task_once", pool_runs_each_task_once},
                                 {"tasks_follow_the_work", tasks_follow_the_work},
                                 {"chunks_are_added_by_those_who_made_them", chunks_are_added_by_those_who_made_them},
                                 {"switching", switching}};
  for (int i = 0; i < ELEMENTS; i++)
    x[i] = (float)(i % 23) - 11;
  for (int i = 0; i < COLS; i++)
    weight[i] = 1.0f + (float)i / COLS;
  run_workers(first, first_call);
  return t_main(argc, argv, cases, T_COUNT(cases));
}
