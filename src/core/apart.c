/* SPDX-License-Identifier: MIT */
#include "apart.h"
#include <stddef.h>
#include <string.h>
#include "check_types.h"

/* ---- tiles: rows of one outer index that the kernels see together ---- */

/* One tensor of the call, and what the kernel is given in its place. */
typedef struct {
  const rms_rows *rows;
  rms_rows *given;
  int64_t size;
  bool read, written;
  bool past;   /* an output that bypasses the caches */
  int partner; /* an output may take the place of this input if their elements have the same size; or ALONE */
} tensor;

enum { ALONE = -1 };

typedef struct {
  const rms_kernels *kernels;
  const rms_tiles *tiles; /* of the call */
  const rms_layout *lay;
  const tensor *tensors;
  int count;
  int64_t row, rows; /* of the tile */
  char *room;
} tile;

static bool is_apart(const tensor *e) {
  return e->rows->data && e->rows->col;
}

/* Whether an output takes the place of an input. */
static bool shares(const tensor *tensors, const tensor *e) {
  return e->partner != ALONE && !e->read && is_apart(&tensors[e->partner]) && tensors[e->partner].size == e->size;
}

/* INT64_MAX: more than there is. */
static int64_t apart_bytes(const rms_layout *lay, const tensor *tensors, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++)
    if (is_apart(&tensors[i]) && !shares(tensors, &tensors[i])) bytes += tensors[i].size;
  return __builtin_mul_overflow(bytes, lay->width * lay->groups, &bytes) ? INT64_MAX : bytes;
}

enum { APART_LINE = 64, STACK_LINE = APART_LINE / 4 }; /* a cache line in bytes, and in elements of f32 */

/* On the stack: as many rows as there is room for, in whole lines where that is possible. */
static rms_tiles tiles_on_stack(const rms_layout *lay) {
  const int64_t most = 64, fit = RMS_APART_BYTES / lay->apart;
  rms_tiles tiles = {.rows = fit < most ? fit : most, .whole = STACK_LINE, .unit = 1};
  if (tiles.rows >= STACK_LINE) tiles.rows &= ~(int64_t)(STACK_LINE - 1);
  return tiles;
}

/* On the heap: the rows of a line, up to four lines where these stay in a cache, and less than one only where a line
 * takes too much memory. A line that is gathered in parts is read from memory as often (docs/log/cpu.md). */
static rms_tiles tiles_on_heap(const rms_layout *lay, const tensor *tensors, int count) {
  const int64_t cached = (int64_t)3 << 20, most = (int64_t)8 << 20;
  int64_t least = 8, row, lines;
  for (int i = 0; i < count; i++)
    if (is_apart(&tensors[i]) && tensors[i].size < least) least = tensors[i].size;
  rms_tiles tiles = {.rows = 1, .whole = APART_LINE / least, .unit = 1, .bytes = INT64_MAX};
  if (__builtin_add_overflow(lay->apart, 2 * APART_LINE * count, &row)) return tiles;
  lines = cached / tiles.whole / row;
  tiles.rows = tiles.whole * (lines < 1 ? 1 : lines > 4 ? 4 : lines);
  if (tiles.rows > most / row) tiles.rows = most / row ? most / row : 1;
  if (tiles.rows > lay->inner) tiles.rows = lay->inner;
  tiles.unit = tiles.rows < tiles.whole ? tiles.rows : tiles.whole;
  tiles.bytes = tiles.rows * row;
  return tiles;
}

static rms_tiles tiles_of(const rms_layout *lay, const tensor *tensors, int count) {
  return lay->apart > RMS_APART_BYTES / STACK_LINE ? tiles_on_heap(lay, tensors, count) : tiles_on_stack(lay);
}

bool rms_open_tiles(rms_tiles *tiles, const rms_layout *lay, int64_t tasks) {
  const int64_t unit = tiles->unit;
  if (rms_open_rooms(&tiles->rooms, tasks, tiles->bytes)) return true;
  if (lay->apart > RMS_APART_BYTES) return false;
  *tiles = tiles_on_stack(lay);
  tiles->unit = unit;
  return true;
}

/* Where a task gathers its tiles. */
static char *enter_room(const rms_tiles *tiles, char *stack) {
  return tiles->bytes ? rms_claim_room(&tiles->rooms) : stack;
}

static void leave_room(const rms_tiles *tiles, char *room) {
  if (tiles->bytes) rms_release_room(room);
}

/* Tiles start at whole tiles from the first row of an outer index, so that their lines are whole if those of the tensor
 * are. Tiles of fewer rows than a line has are all of about the same size, so that none has just a row or two. */
static int64_t tile_end(const tile *t, int64_t last) {
  const int64_t at = t->row % t->lay->inner, in_image = t->lay->inner - at, fit = t->tiles->rows;
  const int64_t rows = in_image < last - t->row ? in_image : last - t->row, left = fit - at % fit;
  if (fit < t->tiles->whole) {
    const int64_t tiles = (rows + fit - 1) / fit;
    return t->row + (rows + tiles - 1) / tiles;
  }
  return t->row + (rows < left ? rows : left);
}

/* From one gathered row to the next. On the heap an odd number of cache lines, so that the rows of a tile do not
 * compete for places in the caches. */
static int64_t pitch_of(const tile *t, const tensor *e) {
  const int64_t bytes = t->lay->width * t->lay->groups * e->size;
  return t->tiles->bytes ? ((bytes + APART_LINE - 1) / APART_LINE | 1) * APART_LINE : bytes;
}

static char *first_of(const tile *t, const rms_rows *rows) {
  return rows->data + t->row / t->lay->inner * rows->outer + t->row % t->lay->inner * rows->inner;
}

/* Points the kernel's tensors to the rows of the tile, and fills those that it reads. */
static void open_tile(const tile *t) {
  const int64_t cols = t->lay->width * t->lay->groups;
  char *room = t->room;
  for (int i = 0; i < t->count; i++) {
    const tensor *e = &t->tensors[i];
    *e->given = *e->rows;
    if (!e->rows->data) continue;
    char *at = first_of(t, e->rows);
    e->given->inner = e->given->col = 0;
    e->given->data = at;
    e->given->outer = e->rows->inner;
    if (!is_apart(e)) continue;
    e->given->outer = pitch_of(t, e);
    e->given->data = room;
    if (shares(t->tensors, e))
      e->given->data = t->tensors[e->partner].given->data;
    else
      room += t->rows * e->given->outer;
    if (e->read) t->kernels->gather(e->given->data, e->given->outer, at, e->rows, e->size, t->rows, cols);
  }
}

static void close_tile(const tile *t) {
  const int64_t cols = t->lay->width * t->lay->groups;
  for (int i = 0; i < t->count; i++) {
    const tensor *e = &t->tensors[i];
    if (is_apart(e) && e->written)
      t->kernels->scatter(first_of(t, e->rows), e->rows, e->size, e->given->data, e->given->outer, t->rows, cols,
                          e->past);
  }
}

/* ---- forward ---- */

enum { FORWARD_TENSORS = 5, GRADIENT_TENSORS = 7 };

static void list_tensors(const rms_forward_job *job, rms_forward_job *sub, tensor list[FORWARD_TENSORS]) {
  const int64_t size = rms_size_of(job->lay.dtype), residual = job->lay.residual_is_f32 ? 4 : size;
  list[0] = (tensor){&job->x, &sub->x, size, true, false, false, ALONE};
  list[1] = (tensor){&job->residual, &sub->residual, residual, true, false, false, ALONE};
  list[2] = (tensor){&job->gate, &sub->gate, size, true, false, false, ALONE};
  list[3] = (tensor){&job->y, &sub->y, rms_size_of(job->y_type), false, true, job->stream_y, 0};
  list[4] = (tensor){&job->residual_out, &sub->residual_out, residual, false, true, job->stream_residual, 1};
}

int64_t rms_forward_apart_bytes(const rms_forward_job *job) {
  rms_forward_job sub;
  tensor tensors[FORWARD_TENSORS];
  if (!(job->x.col | job->residual.col | job->gate.col | job->y.col | job->residual_out.col)) return 0;
  list_tensors(job, &sub, tensors);
  return apart_bytes(&job->lay, tensors, FORWARD_TENSORS);
}

static void *array_at(const void *array, int64_t elements, int64_t size) {
  return array ? (char *)(uintptr_t)array + elements * size : NULL;
}

/* Whether the kernels that have a row in each lane take the job. */
static bool is_in_lanes(const rms_forward_job *job) {
  const rms_layout *lay = &job->lay;
  const int64_t size = rms_size_of(lay->dtype);
  return job->x.col && job->y.col && job->x.inner == size && job->y.inner == size && job->y_type == lay->dtype &&
         !job->residual.data && !job->gate.data && !job->stats_in && !job->stats_out && !lay->indices && lay->k > 0 &&
         lay->groups == 1 && lay->steps < RMS_STEPS_RSTD;
}

/* Rows that the kernels in lanes take leave few tiles, if any. */
rms_tiles rms_plan_forward_tiles(const rms_forward_job *job) {
  rms_forward_job sub;
  tensor tensors[FORWARD_TENSORS];
  const int64_t real = job->lay.dtype == RMS_F64 ? 8 : 4;
  if (is_in_lanes(job) && job->lay.width * real <= RMS_LANES_BYTES) return tiles_on_stack(&job->lay);
  list_tensors(job, &sub, tensors);
  return tiles_of(&job->lay, tensors, FORWARD_TENSORS);
}

/* One tile by a kernel for contiguous rows. Returns the row behind it. */
static int64_t forward_tile(const rms_forward_job *job, const rms_tiles *tiles, char *room, const rms_kernels *kernels,
                            rms_forward_fn *kernel, int64_t first, int64_t last) {
  const rms_layout *lay = &job->lay;
  const int64_t statistic = lay->dtype == RMS_F64 ? 8 : 4, segment = first * lay->groups;
  rms_forward_job sub = *job;
  tensor tensors[FORWARD_TENSORS];
  tile t = {kernels, tiles, lay, tensors, FORWARD_TENSORS, first, 0, room};
  list_tensors(job, &sub, tensors);
  sub.stream_y = sub.stream_residual = sub.fetch_ahead = false;
  sub.lay.inner = 1;
  sub.lay.apart = 0;
  t.rows = tile_end(&t, last) - first;
  open_tile(&t);
  sub.rstd = array_at(job->rstd, segment, statistic);
  sub.mean = array_at(job->mean, segment, statistic);
  sub.stats_in = array_at(job->stats_in, segment, sizeof(rms_stat));
  sub.stats_out = array_at(job->stats_out, segment, sizeof(rms_stat));
  kernel(&sub, 0, t.rows * lay->groups);
  close_tile(&t);
  return first + t.rows;
}

void rms_forward_apart(const rms_forward_job *job, const rms_tiles *tiles, const rms_kernels *kernels,
                       rms_forward_fn *kernel, int64_t first, int64_t last) {
  _Alignas(64) char stack[RMS_APART_BYTES];
  char *room = enter_room(tiles, stack);
  const bool in_lanes = is_in_lanes(job);
  while (first < last) {
    if (in_lanes) first = kernels->forward_tiles[job->lay.dtype](job, first, last);
    if (first < last) first = forward_tile(job, tiles, room, kernels, kernel, first, last);
  }
  leave_room(tiles, room);
  if (job->stream_y || job->stream_residual) kernels->fence();
}

/* ---- backward ---- */

static void list_gradients(const rms_backward_job *job, rms_backward_job *sub, tensor list[GRADIENT_TENSORS]) {
  const int64_t size = rms_size_of(job->lay.dtype), residual = job->lay.residual_is_f32 ? 4 : size;
  list[0] = (tensor){&job->dy, &sub->dy, rms_size_of(job->dy_type), true, false, false, ALONE};
  list[1] = (tensor){&job->x, &sub->x, job->x_is_f32 ? 4 : size, true, false, false, ALONE};
  list[2] = (tensor){&job->dresidual, &sub->dresidual, residual, true, false, false, ALONE};
  list[3] = (tensor){&job->gate, &sub->gate, size, true, false, false, ALONE};
  list[4] = (tensor){&job->dx, &sub->dx, size, job->add_to_dx, true, job->stream_dx, 0};
  list[5] = (tensor){&job->dresidual_out, &sub->dresidual_out, residual, false, true, job->stream_residual, 2};
  list[6] = (tensor){&job->dgate, &sub->dgate, size, false, true, job->stream_dgate, 3};
}

int64_t rms_backward_apart_bytes(const rms_backward_job *job) {
  rms_backward_job sub;
  tensor tensors[GRADIENT_TENSORS];
  if (!(job->dy.col | job->x.col | job->dresidual.col | job->gate.col | job->dx.col | job->dresidual_out.col |
        job->dgate.col))
    return 0;
  list_gradients(job, &sub, tensors);
  return apart_bytes(&job->lay, tensors, GRADIENT_TENSORS);
}

rms_tiles rms_plan_backward_tiles(const rms_backward_job *job) {
  rms_backward_job sub;
  tensor tensors[GRADIENT_TENSORS];
  list_gradients(job, &sub, tensors);
  return tiles_of(&job->lay, tensors, GRADIENT_TENSORS);
}

static void open_gradients(const tile *t, const rms_backward_job *job, rms_backward_job *sub) {
  const int64_t segment = t->row * t->lay->groups, statistic = t->lay->dtype == RMS_F64 ? 8 : 4;
  open_tile(t);
  sub->rstd = array_at(job->rstd, segment, statistic);
  sub->mean = array_at(job->mean, segment, statistic);
  sub->drstd = array_at(job->drstd, segment, statistic);
  sub->dmean = array_at(job->dmean, segment, statistic);
  sub->stats_in = array_at(job->stats_in, segment, sizeof(rms_stat));
  sub->sums_in = array_at(job->sums_in, segment, sizeof(rms_grad_sum));
  sub->sums_out = array_at(job->sums_out, segment, sizeof(rms_grad_sum));
}

/* The rows of a tile by the blocks whose column sums are formed together: the sums of rows with which no block ends
 * stay in the block. block: where the one that the tile begins in ends; returns the same of the next tile. */
static int64_t run_blocks(const tile *t, const rms_backward_job *sub, rms_backward_fn *kernel,
                          const rms_column_sums *sums, int64_t block, int64_t last) {
  const int64_t end = t->row + t->rows, groups = t->lay->groups;
  for (int64_t row = t->row, stop; row < end; row = stop) {
    stop = block < end ? block : end;
    const bool ends = stop == block || stop == last;
    rms_column_sums s = *sums;
    if (!ends) s.dweight_total = s.dbias_total = NULL;
    kernel(sub, &s, (row - t->row) * groups, (stop - t->row) * groups);
    if (ends) block = stop + RMS_BLOCK_ROWS;
  }
  return block;
}

static void clear_totals(const rms_backward_job *job, const rms_column_sums *sums) {
  const size_t bytes = (size_t)(job->lay.groups * job->pitch) * sizeof(double);
  if (sums->dweight_total) memset(sums->dweight_total, 0, bytes);
  if (sums->dbias_total) memset(sums->dbias_total, 0, bytes);
}

void rms_backward_apart(const rms_backward_job *job, const rms_tiles *tiles, const rms_kernels *kernels,
                        rms_backward_fn *kernel, const rms_column_sums *sums, int64_t first, int64_t last) {
  _Alignas(64) char stack[RMS_APART_BYTES];
  char *room = enter_room(tiles, stack);
  rms_backward_job sub = *job;
  tensor tensors[GRADIENT_TENSORS];
  tile t = {kernels, tiles, &job->lay, tensors, GRADIENT_TENSORS, first, 0, room};
  const bool sums_up = sums->dweight_block || sums->dbias_block;
  int64_t block = sums_up ? first + RMS_BLOCK_ROWS : last; /* where the block of rows that is summed ends */
  clear_totals(job, sums);
  list_gradients(job, &sub, tensors);
  sub.stream_dx = sub.stream_residual = sub.stream_dgate = sub.fetch_ahead = false;
  sub.lay.inner = 1;
  sub.lay.apart = 0;
  sub.go_on = true;
  for (; t.row < last; t.row += t.rows) {
    t.rows = tile_end(&t, last) - t.row;
    open_gradients(&t, job, &sub);
    block = run_blocks(&t, &sub, kernel, sums, block, last);
    close_tile(&t);
  }
  leave_room(tiles, room);
  if (job->stream_dx || job->stream_residual || job->stream_dgate) kernels->fence();
}

void rms_backward_stats_apart(const rms_backward_job *job, const rms_tiles *tiles, const rms_kernels *kernels,
                              rms_backward_stats_fn *kernel, int64_t first, int64_t last) {
  _Alignas(64) char stack[RMS_APART_BYTES];
  char *room = enter_room(tiles, stack);
  rms_backward_job sub = *job;
  tensor tensors[GRADIENT_TENSORS];
  tile t = {kernels, tiles, &job->lay, tensors, GRADIENT_TENSORS, first, 0, room};
  list_gradients(job, &sub, tensors);
  sub.lay.inner = 1;
  sub.lay.apart = 0;
  for (int64_t end; t.row < last; t.row = end) {
    end = tile_end(&t, last);
    t.rows = end - t.row;
    open_gradients(&t, job, &sub);
    kernel(&sub, 0, t.rows * job->lay.groups);
  }
  leave_room(tiles, room);
}
