/* SPDX-License-Identifier: MIT
 * Tiles of rows whose elements lie apart, and their rooms. This test looks inside the library: results do not show how
 * many rows a tile has, and a room that is too small or has two tasks in it seldom shows. */
#include "../../src/core/apart.h"
#include "../../src/core/check.h"
#include "../../src/core/run.h"
#include "harness.h"

#include <string.h>

/* The tiles of a backward of so many images, whose tensors all lie apart. */
static rms_tiles tiles_of(rms_dtype dtype, rms_dtype x_type, int64_t cols, int64_t inner, int64_t *row_bytes) {
  static char somewhere[64];
  rms_backward_job job;
  int64_t segments;
  char *at = somewhere;
  const rms_spec spec = {.cols = cols, .eps = 1, .kind = RMS_KIND_LAYER};
  const rms_backward_args args = {.outer = 1,
                                  .inner = inner,
                                  .dy = {at, (int32_t)dtype, 0, 0, 0, inner + 1},
                                  .x = {at, (int32_t)x_type, 0, 0, 0, inner + 1},
                                  .dx = {at, (int32_t)dtype, 0, 0, 0, inner + 1}};
  T_EQ_STATUS(RMS_OK, rms_check_backward(&spec, &args, RMS_CHECK_QUERY, NULL, NULL, NULL, &job, &segments));
  *row_bytes = job.lay.apart;
  return rms_plan_backward_tiles(&job);
}

/* Tiles are whole lines of every tensor, as many as stay in a cache, and bounded. dx is in the room of dy. */
static void tiles_have_whole_lines(void) {
  static const struct {
    rms_dtype dtype, x_type;
    int64_t cols, inner, row, rows, whole;
  } cases[] = {{RMS_F32, RMS_F32, 50, 3136, 400, 64, 16},          /* on the stack */
               {RMS_F32, RMS_F32, 400, 3136, 3200, 16, 16},        /* the same, one line */
               {RMS_F32, RMS_F32, 401, 3136, 3208, 64, 16},        /* four lines    */
               {RMS_F32, RMS_F32, 6401, 3136, 51208, 48, 16},      /* three lines   */
               {RMS_F32, RMS_F32, 20000, 3136, 160000, 16, 16},    /* one line      */
               {RMS_F32, RMS_F32, 20000, 7, 160000, 7, 16},        /* a whole image */
               {RMS_F64, RMS_F64, 6400, 3136, 102400, 24, 8},      /* three lines   */
               {RMS_BF16, RMS_BF16, 40000, 3136, 160000, 32, 32},  /* one line      */
               {RMS_BF16, RMS_F32, 30000, 3136, 180000, 32, 32},   /* one line of the narrower tensor */
               {RMS_F32, RMS_F32, 200000, 3136, 1600000, 5, 16},   /* as much of a line as is allowed */
               {RMS_F64, RMS_F64, 5000000, 3136, 80000000, 1, 8}}; /* one row at least */
  for (size_t i = 0; i < T_COUNT(cases); i++) {
    int64_t row;
    const rms_tiles tiles = tiles_of(cases[i].dtype, cases[i].x_type, cases[i].cols, cases[i].inner, &row);
    t_context("i=%zu", i);
    T_EQ_INT(cases[i].row, row);
    T_EQ_INT(cases[i].rows, tiles.rows);
    T_EQ_INT(cases[i].whole, tiles.whole);
    T_EQ_INT(row > RMS_APART_BYTES / 16, tiles.bytes > 0);
    if (!tiles.bytes) {
      T_EQ_INT(1, tiles.unit);
      T_CHECK(tiles.rows * row <= RMS_APART_BYTES);
      continue;
    }
    T_EQ_INT(tiles.rows < tiles.whole ? tiles.rows : tiles.whole, tiles.unit);
    T_CHECK(tiles.bytes >= tiles.rows * row);
    T_CHECK(tiles.rows == 1 || tiles.bytes <= 8 << 20);
  }
}

/* Without memory rows that fit the stack are gathered there. */
static void tiles_without_memory(void) {
  int64_t row;
  rms_tiles tiles = tiles_of(RMS_F32, RMS_F32, 6400, 3136, &row);
  rms_layout lay = {.width = 6400, .groups = 1, .apart = row};
  tiles.bytes = INT64_MAX;
  T_CHECK(rms_open_tiles(&tiles, &lay, 3));
  T_EQ_INT(1, tiles.rows);
  T_EQ_INT(0, tiles.bytes);
  T_EQ_INT(16, tiles.unit);
  rms_close_rooms(&tiles.rooms);
  tiles.bytes = INT64_MAX;
  lay.apart = RMS_APART_BYTES + 1;
  T_CHECK(!rms_open_tiles(&tiles, &lay, 3));
}

/* Every room is a task's own until it is left, and starts with a cache line. */
static void rooms_are_apart(void) {
  enum { ROOMS = 5, BYTES = 1000 };
  rms_rooms rooms;
  char *room[ROOMS];
  if (!T_CHECK(rms_open_rooms(&rooms, ROOMS, BYTES))) return;
  for (int i = 0; i < ROOMS; i++) {
    room[i] = rms_claim_room(&rooms);
    T_EQ_INT(0, (uintptr_t)room[i] % 64);
    memset(room[i], i, BYTES);
  }
  for (int i = 0; i < ROOMS; i++) {
    char expected[BYTES];
    memset(expected, i, sizeof expected);
    T_EQ_BYTES(expected, room[i], BYTES);
  }
  for (int i = 0; i < ROOMS; i++) {
    rms_release_room(room[i]);
    T_CHECK(rms_claim_room(&rooms) == room[i]);
  }
  rms_close_rooms(&rooms);
}

/* Sizes that no memory has are refused before anybody is asked for them. */
static void rooms_without_end(void) {
  rms_rooms rooms;
  T_CHECK(!rms_open_rooms(&rooms, 1, INT64_MAX));
  T_CHECK(!rms_open_rooms(&rooms, 3, INT64_MAX / 3));
  T_CHECK(!rms_open_rooms(&rooms, 4, (int64_t)1 << 62));
  T_CHECK(!rms_open_rooms(&rooms, INT32_MAX, INT64_MAX / INT32_MAX));
  T_CHECK(rms_open_rooms(&rooms, 0, INT64_MAX));
  rms_close_rooms(&rooms);
  T_CHECK(rms_open_rooms(&rooms, 7, 0));
  rms_close_rooms(&rooms);
}

static void count_tasks(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)task;
  (void)arg;
  *(int64_t *)ctx = tasks;
}

static void run_nothing(const void *arg, int64_t first, int64_t last) {
  (void)arg;
  (void)first;
  (void)last;
}

/* There is a room for every task that may run at once, and not for more. */
static void tasks_at_once(void) {
  static const int64_t counts[] = {0, 1, 2, 3, 7, 40, 1000}, bytes[] = {0, 1000, 40000, 1 << 20};
  for (int concurrency = 1; concurrency < 20; concurrency += 3)
    for (size_t i = 0; i < T_COUNT(counts) * T_COUNT(bytes); i++) {
      const int64_t count = counts[i % T_COUNT(counts)], each = bytes[i / T_COUNT(counts)];
      int64_t tasks = count > 0;
      const rms_executor executor = {&tasks, concurrency, count_tasks};
      rms_run_tasks(&executor, count, each, run_nothing, NULL);
      T_EQ_INT(tasks < concurrency ? tasks : concurrency, rms_tasks_at_once(&executor, count, each));
      T_EQ_INT(count > 0, rms_tasks_at_once(NULL, count, each));
    }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"tiles_have_whole_lines", tiles_have_whole_lines},
                                 {"tiles_without_memory", tiles_without_memory},
                                 {"rooms_are_apart", rooms_are_apart},
                                 {"rooms_without_end", rooms_without_end},
                                 {"tasks_at_once", tasks_at_once}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
