/* SPDX-License-Identifier: MIT */
#include "tape/ops.h"

#include <string.h>

#include "tape/vecmath.h"

/* ---- convolution: unfold each image, then a matrix product ---- */

typedef struct conv_op {
  tensor *x, *w, *y;
  image_shape in, out;
  int64_t size, pad;
} conv_op;

static int64_t pixels(const image_shape *shape) {
  return shape->height * shape->width;
}

/* Windows of size x size pixels of an image whose border is `pad` zeros wide. */
typedef struct unfolding {
  image_shape from, to; /* to: one window per pixel */
  int64_t size, pad;
} unfolding;

/* The plane moved by (down, right); what comes in from outside is zero. */
static void shifted_plane(const unfolding *u, const real *plane, int64_t down, int64_t right, real *to) {
  int64_t width = u->from.width, n = pixels(&u->from), shift = down * width + right;
  int64_t first = shift < 0 ? -shift : 0, last = shift > 0 ? n - shift : n;
  memset(to, 0, (size_t)first * sizeof(real));
  memcpy(to + first, plane + first + shift, (size_t)(last - first) * sizeof(real));
  memset(to + last, 0, (size_t)(n - last) * sizeof(real));
  for (int64_t row = 0; row < n; row += width) { /* the ends of lines that came from the line beside */
    for (int64_t x = 0; x < -right; x++)
      to[row + x] = 0;
    for (int64_t x = width - right; x < width; x++)
      to[row + x] = 0;
  }
}

/* The same where the plane changes its size, line by line. */
static void shifted_lines(const unfolding *u, const real *plane, int64_t down, int64_t right, real *to) {
  for (int64_t y = 0; y < u->to.height; y++)
    for (int64_t x = 0; x < u->to.width; x++, to++) {
      int64_t row = y + down, col = x + right;
      int inside = row >= 0 && row < u->from.height && col >= 0 && col < u->from.width;
      *to = inside ? plane[row * u->from.width + col] : 0;
    }
}

/* Row (c, ky, kx) of the unfolded image holds pixel (c, y + ky - pad, x + kx - pad) for each window (y, x). */
static void unfold(const unfolding *u, const real *image, real *columns) {
  int same =
      u->from.width == u->to.width && u->from.height == u->to.height && pixels(&u->from) > u->from.width + u->pad;
  for (int64_t c = 0; c < u->from.channels; c++)
    for (int64_t ky = 0; ky < u->size; ky++)
      for (int64_t kx = 0; kx < u->size; kx++, columns += pixels(&u->to))
        (same ? shifted_plane : shifted_lines)(u, image + c * pixels(&u->from), ky - u->pad, kx - u->pad, columns);
}

/* w: outputs x (inputs, ky, kx). The kernels of the backward are its mirror: inputs x (outputs, -ky, -kx). */
static int64_t mirrored(const conv_op *op, int64_t out, int64_t in, int64_t k) {
  int64_t window = op->size * op->size;
  return (in * op->out.channels + out) * window + window - 1 - k;
}

static void mirror_kernels(const conv_op *op, real *mirror) {
  int64_t window = op->size * op->size, at = 0;
  for (int64_t out = 0; out < op->out.channels; out++)
    for (int64_t in = 0; in < op->in.channels; in++)
      for (int64_t k = 0; k < window; k++)
        mirror[mirrored(op, out, in, k)] = op->w->v[at++];
}

static void add_mirrored(const conv_op *op, const real *mirror) {
  int64_t window = op->size * op->size, at = 0;
  for (int64_t out = 0; out < op->out.channels; out++)
    for (int64_t in = 0; in < op->in.channels; in++)
      for (int64_t k = 0; k < window; k++)
        op->w->g[at++] += mirror[mirrored(op, out, in, k)];
}

/* The gradient of a convolution is a convolution of dy with the mirrored kernels; the same unfolded dy gives the
 * gradient of the kernels, mirrored. */
static void conv_backward(tape *t, void *arg) {
  conv_op *op = arg;
  int64_t n = pixels(&op->in), depth = op->out.channels * op->size * op->size, kernels = op->in.channels * depth;
  unfolding u = {op->out, op->in, op->size, op->size - 1 - op->pad};
  real *kernel = tape_scratch(t, (size_t)(2 * kernels + depth * n) * sizeof(real)), *dkernel = kernel + kernels;
  real *unfolded = dkernel + kernels;
  mirror_kernels(op, kernel);
  memset(dkernel, 0, (size_t)kernels * sizeof(real));
  for (int64_t i = 0; i < op->x->rows; i++) {
    const real *columns = op->y->g + i * op->y->cols;
    if (op->size > 1) {
      unfold(&u, columns, unfolded);
      columns = unfolded;
    }
    int64_t at = i * op->x->cols;
    gemm(t, (gemm_shape){op->in.channels, depth, n, 1, 1}, as_is(op->x->v + at, n), transposed(columns, n), dkernel,
         depth);
    if (op->x->g != NULL)
      gemm(t, (gemm_shape){op->in.channels, n, depth, 1, 1}, as_is(kernel, depth), as_is(columns, n), op->x->g + at, n);
  }
  add_mirrored(op, dkernel);
}

tensor *op_conv(tape *t, tensor *x, image_shape *shape, tensor *w, int64_t size, int64_t pad) {
  conv_op *op = tape_keep(t, sizeof *op);
  *op = (conv_op){.x = x, .w = w, .in = *shape, .size = size, .pad = pad};
  op->out = (image_shape){w->rows, shape->height + 2 * pad - size + 1, shape->width + 2 * pad - size + 1};
  int64_t n = pixels(&op->out), depth = w->cols;
  unfolding u = {op->in, op->out, size, pad};
  op->y = tape_tensor(t, x->rows, op->out.channels * n);
  real *unfolded = tape_scratch(t, (size_t)(depth * n) * sizeof(real));
  for (int64_t i = 0; i < x->rows; i++) {
    const real *columns = x->v + i * x->cols;
    if (size > 1) {
      unfold(&u, columns, unfolded);
      columns = unfolded;
    }
    gemm(t, (gemm_shape){w->rows, n, depth, 1, 0}, as_is(w->v, depth), as_is(columns, n), op->y->v + i * op->y->cols,
         n);
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
