/* SPDX-License-Identifier: MIT */
#include "ops.h"

#include <string.h>

#include "vecmath.h"

/* ---- convolution: unfold each image, then a matrix product ---- */

typedef struct conv_op {
  tensor *x, *w, *y;
  image_shape in, out;
  int64_t size, pad;
} conv_op;

static int64_t pixels(const image_shape *shape) {
  return shape->height * shape->width;
}

/* The output columns [*first, *last) whose input column x + shift exists. */
static void valid_columns(const conv_op *op, int64_t shift, int64_t *first, int64_t *last) {
  *first = shift < 0 ? -shift : 0;
  *last = op->in.width - shift < op->out.width ? op->in.width - shift : op->out.width;
}

/* Row (c, ky, kx) of the unfolded image holds input pixel (c, y + ky - pad, x + kx - pad) for each output pixel. */
static void unfold(const conv_op *op, const real *image, real *columns) {
  int64_t first, last;
  for (int64_t c = 0; c < op->in.channels; c++)
    for (int64_t ky = 0; ky < op->size; ky++)
      for (int64_t kx = 0; kx < op->size; kx++) {
        valid_columns(op, kx - op->pad, &first, &last);
        for (int64_t y = 0; y < op->out.height; y++, columns += op->out.width) {
          int64_t row = y + ky - op->pad;
          if (row < 0 || row >= op->in.height) {
            memset(columns, 0, (size_t)op->out.width * sizeof(real));
            continue;
          }
          const real *source = image + (c * op->in.height + row) * op->in.width + (kx - op->pad);
          for (int64_t x = 0; x < first; x++)
            columns[x] = 0;
          memcpy(columns + first, source + first, (size_t)(last - first) * sizeof(real));
          for (int64_t x = last; x < op->out.width; x++)
            columns[x] = 0;
        }
      }
}

LAB_VECTOR static void add_to(real *restrict y, const real *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i];
}

static void fold_add(const conv_op *op, real *image, const real *columns) {
  int64_t first, last;
  for (int64_t c = 0; c < op->in.channels; c++)
    for (int64_t ky = 0; ky < op->size; ky++)
      for (int64_t kx = 0; kx < op->size; kx++) {
        valid_columns(op, kx - op->pad, &first, &last);
        for (int64_t y = 0; y < op->out.height; y++, columns += op->out.width) {
          int64_t row = y + ky - op->pad;
          if (row < 0 || row >= op->in.height) continue;
          real *target = image + (c * op->in.height + row) * op->in.width + (kx - op->pad);
          add_to(target + first, columns + first, last - first);
        }
      }
}

static void conv_backward(tape *t, void *arg) {
  conv_op *op = arg;
  tensor *w = op->w;
  int64_t n = pixels(&op->out), depth = w->cols;
  real *columns = tape_scratch(t, (size_t)(2 * depth * n) * sizeof(real)), *gradient = columns + depth * n;
  for (int64_t i = 0; i < op->x->rows; i++) {
    const real *image = op->x->v + i * op->x->cols, *dy = op->y->g + i * op->y->cols;
    real *dimage = op->x->g + i * op->x->cols;
    if (op->size == 1) {
      gemm(t, PLAIN, TRANSPOSED, w->rows, depth, n, 1, dy, n, image, n, 1, w->g, depth);
      gemm(t, TRANSPOSED, PLAIN, depth, n, w->rows, 1, w->v, depth, dy, n, 1, dimage, n);
      continue;
    }
    unfold(op, image, columns);
    gemm(t, PLAIN, TRANSPOSED, w->rows, depth, n, 1, dy, n, columns, n, 1, w->g, depth);
    gemm(t, TRANSPOSED, PLAIN, depth, n, w->rows, 1, w->v, depth, dy, n, 0, gradient, n);
    fold_add(op, dimage, gradient);
  }
}

tensor *op_conv(tape *t, tensor *x, image_shape *shape, tensor *w, int64_t size, int64_t pad) {
  conv_op *op = tape_keep(t, sizeof *op);
  *op = (conv_op){.x = x, .w = w, .in = *shape, .size = size, .pad = pad};
  op->out = (image_shape){w->rows, shape->height + 2 * pad - size + 1, shape->width + 2 * pad - size + 1};
  int64_t n = pixels(&op->out), depth = w->cols;
  op->y = tape_tensor(t, x->rows, op->out.channels * n);
  real *columns = tape_scratch(t, (size_t)(depth * n) * sizeof(real));
  for (int64_t i = 0; i < x->rows; i++) {
    const real *image = x->v + i * x->cols;
    if (size > 1) unfold(op, image, columns);
    gemm(t, PLAIN, PLAIN, w->rows, n, depth, 1, w->v, depth, size > 1 ? columns : image, n, 0,
         op->y->v + i * op->y->cols, n);
  }
  tape_push(t, conv_backward, op);
  *shape = op->out;
  return op->y;
}

/* ---- pooling ---- */

typedef struct pool_op {
  tensor *x, *y;
  image_shape in;
  uint8_t *choice; /* which of the four pixels is the largest */
} pool_op;

static void pool_plane(const real *x, int64_t width, real *y, uint8_t *choice, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const real *corner = x + 2 * i * width + 2 * j;
      real best = corner[0];
      uint8_t at = 0;
      if (corner[1] > best) best = corner[1], at = 1;
      if (corner[width] > best) best = corner[width], at = 2;
      if (corner[width + 1] > best) best = corner[width + 1], at = 3;
      y[i * cols + j] = best;
      choice[i * cols + j] = at;
    }
}

static void max_pool_backward(tape *t, void *arg) {
  (void)t;
  pool_op *op = arg;
  int64_t width = op->in.width, rows = op->in.height / 2, cols = width / 2;
  int64_t planes = op->x->rows * op->in.channels;
  for (int64_t p = 0; p < planes; p++) {
    real *dx = op->x->g + p * op->in.height * width;
    const real *dy = op->y->g + p * rows * cols;
    const uint8_t *choice = op->choice + p * rows * cols;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++) {
        uint8_t at = choice[i * cols + j];
        dx[(2 * i + at / 2) * width + 2 * j + at % 2] += dy[i * cols + j];
      }
  }
}

tensor *op_max_pool(tape *t, tensor *x, image_shape *shape) {
  int64_t rows = shape->height / 2, cols = shape->width / 2, planes = x->rows * shape->channels;
  pool_op *op = tape_keep(t, sizeof *op);
  *op = (pool_op){x, tape_tensor(t, x->rows, shape->channels * rows * cols), *shape,
                  tape_keep(t, (size_t)(planes * rows * cols))};
  for (int64_t p = 0; p < planes; p++)
    pool_plane(x->v + p * shape->height * shape->width, shape->width, op->y->v + p * rows * cols,
               op->choice + p * rows * cols, rows, cols);
  tape_push(t, max_pool_backward, op);
  *shape = (image_shape){shape->channels, rows, cols};
  return op->y;
}

typedef struct channel_mean_op {
  tensor *x, *y;
  int64_t pixels;
} channel_mean_op;

static void channel_mean_backward(tape *t, void *arg) {
  (void)t;
  channel_mean_op *op = arg;
  for (int64_t i = 0; i < op->y->rows * op->y->cols; i++)
    for (int64_t j = 0; j < op->pixels; j++)
      op->x->g[i * op->pixels + j] += op->y->g[i] / (real)op->pixels;
}

tensor *op_channel_mean(tape *t, tensor *x, const image_shape *shape) {
  channel_mean_op *op = tape_keep(t, sizeof *op);
  *op = (channel_mean_op){x, tape_tensor(t, x->rows, shape->channels), pixels(shape)};
  for (int64_t i = 0; i < op->y->rows * op->y->cols; i++)
    op->y->v[i] = vec_sum(x->v + i * op->pixels, op->pixels) / (real)op->pixels;
  tape_push(t, channel_mean_backward, op);
  return op->y;
}
