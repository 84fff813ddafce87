/* SPDX-License-Identifier: MIT */
#include "tape/ops.h"

#include <string.h>

#include "tape/vecmath.h"

/* ---- GRU ---- */

typedef struct gru_op {
  tensor *x, *u, *h, *out;
  const unsigned char *active;
  real *r, *z, *c; /* batch x d each */
} gru_op;

LAB_VECTOR static void gru_row(const real *restrict x, const real *restrict u, const real *restrict h, real *restrict r,
                               real *restrict z, real *restrict c, real *restrict out, int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    r[j] = real_sigmoid(x[j] + u[j]);
    z[j] = real_sigmoid(x[d + j] + u[d + j]);
    c[j] = real_tanh(x[2 * d + j] + r[j] * u[2 * d + j]);
    out[j] = z[j] * h[j] + (1 - z[j]) * c[j];
  }
}

LAB_VECTOR static void gru_row_backward(const real *restrict dout, const real *restrict u, const real *restrict h,
                                        const real *restrict r, const real *restrict z, const real *restrict c,
                                        real *restrict dx, real *restrict du, real *restrict dh, int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    real dc = dout[j] * (1 - z[j]) * (1 - c[j] * c[j]);
    real dz = dout[j] * (h[j] - c[j]) * z[j] * (1 - z[j]);
    real dr = dc * u[2 * d + j] * r[j] * (1 - r[j]);
    dx[j] += dr;
    du[j] += dr;
    dx[d + j] += dz;
    du[d + j] += dz;
    dx[2 * d + j] += dc;
    du[2 * d + j] += dc * r[j];
    dh[j] += dout[j] * z[j];
  }
}

static void gru_backward(tape *t, void *arg) {
  (void)t;
  gru_op *op = arg;
  tensor *x = op->x, *u = op->u, *h = op->h, *out = op->out;
  int64_t d = h->cols;
  for (int64_t b = 0; b < h->rows; b++) {
    if (op->active[b])
      gru_row_backward(out->g + b * out->ld, u->v + b * u->ld, h->v + b * h->ld, op->r + b * d, op->z + b * d,
                       op->c + b * d, x->g + b * x->ld, u->g + b * u->ld, h->g + b * h->ld, d);
    else
      add_to(h->g + b * h->ld, out->g + b * out->ld, d);
  }
}

void op_gru(tape *t, tensor *x, tensor *u, tensor *h, const unsigned char *active, tensor *out) {
  int64_t d = h->cols, n = h->rows * d;
  gru_op *op = tape_keep(t, sizeof *op);
  real *saved = tape_keep(t, (size_t)(3 * n) * sizeof(real));
  *op = (gru_op){x, u, h, out, active, saved, saved + n, saved + 2 * n};
  for (int64_t b = 0; b < h->rows; b++) {
    if (active[b])
      gru_row(x->v + b * x->ld, u->v + b * u->ld, h->v + b * h->ld, op->r + b * d, op->z + b * d, op->c + b * d,
              out->v + b * out->ld, d);
    else
      memcpy(out->v + b * out->ld, h->v + b * h->ld, (size_t)d * sizeof(real));
  }
  tape_push(t, gru_backward, op);
}

/* ---- LSTM ---- */

typedef struct lstm_op {
  tensor *x, *u, *cell, *next, *gate;
  const unsigned char *active;
  real *i, *f, *c;
} lstm_op;

LAB_VECTOR static void lstm_row(const real *restrict x, const real *restrict u, const real *restrict cell,
                                real *restrict i, real *restrict f, real *restrict o, real *restrict c,
                                real *restrict next, int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    i[j] = real_sigmoid(x[j] + u[j]);
    f[j] = real_sigmoid(x[d + j] + u[d + j]);
    o[j] = real_sigmoid(x[2 * d + j] + u[2 * d + j]);
    c[j] = real_tanh(x[3 * d + j] + u[3 * d + j]);
    next[j] = f[j] * cell[j] + i[j] * c[j];
  }
}

LAB_VECTOR static void lstm_row_backward(const real *restrict dnext, const real *restrict dgate,
                                         const real *restrict cell, const real *restrict i, const real *restrict f,
                                         const real *restrict o, const real *restrict c, real *restrict dx,
                                         real *restrict du, real *restrict dcell, int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    real di = dnext[j] * c[j] * i[j] * (1 - i[j]), df = dnext[j] * cell[j] * f[j] * (1 - f[j]);
    real dout = dgate[j] * o[j] * (1 - o[j]), dc = dnext[j] * i[j] * (1 - c[j] * c[j]);
    dx[j] += di;
    du[j] += di;
    dx[d + j] += df;
    du[d + j] += df;
    dx[2 * d + j] += dout;
    du[2 * d + j] += dout;
    dx[3 * d + j] += dc;
    du[3 * d + j] += dc;
    dcell[j] += dnext[j] * f[j];
  }
}

static void lstm_cell_backward(tape *t, void *arg) {
  (void)t;
  lstm_op *op = arg;
  tensor *x = op->x, *u = op->u;
  int64_t d = op->cell->cols;
  for (int64_t b = 0; b < op->cell->rows; b++) {
    const real *dnext = op->next->g + b * d;
    real *dcell = op->cell->g + b * op->cell->ld;
    if (op->active[b])
      lstm_row_backward(dnext, op->gate->g + b * d, op->cell->v + b * op->cell->ld, op->i + b * d, op->f + b * d,
                        op->gate->v + b * d, op->c + b * d, x->g + b * x->ld, u->g + b * u->ld, dcell, d);
    else
      add_to(dcell, dnext, d);
  }
}

lstm_cell op_lstm_cell(tape *t, tensor *x, tensor *u, tensor *cell, const unsigned char *active) {
  int64_t d = cell->cols, n = cell->rows * d;
  lstm_op *op = tape_keep(t, sizeof *op);
  real *saved = tape_keep(t, (size_t)(3 * n) * sizeof(real));
  tensor *next = tape_tensor(t, cell->rows, d), *gate = tape_zeros(t, cell->rows, d);
  *op = (lstm_op){x, u, cell, next, gate, active, saved, saved + n, saved + 2 * n};
  for (int64_t b = 0; b < cell->rows; b++) {
    const real *old = cell->v + b * cell->ld;
    if (active[b])
      lstm_row(x->v + b * x->ld, u->v + b * u->ld, old, op->i + b * d, op->f + b * d, gate->v + b * d, op->c + b * d,
               next->v + b * d, d);
    else
      memcpy(next->v + b * d, old, (size_t)d * sizeof(real));
  }
  tape_push(t, lstm_cell_backward, op);
  return (lstm_cell){next, gate};
}

typedef struct state_op {
  tensor *gate, *normed, *h, *out;
  const unsigned char *active;
  real *squashed; /* tanh(normed) */
} state_op;

LAB_VECTOR static void state_row(const real *restrict gate, const real *restrict normed, real *restrict squashed,
                                 real *restrict out, int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    squashed[j] = real_tanh(normed[j]);
    out[j] = gate[j] * squashed[j];
  }
}

LAB_VECTOR static void state_row_backward(const real *restrict dout, const real *restrict gate,
                                          const real *restrict squashed, real *restrict dgate, real *restrict dnormed,
                                          int64_t d) {
  for (int64_t j = 0; j < d; j++) {
    dgate[j] += dout[j] * squashed[j];
    dnormed[j] += dout[j] * gate[j] * (1 - squashed[j] * squashed[j]);
  }
}

static void lstm_state_backward(tape *t, void *arg) {
  (void)t;
  state_op *op = arg;
  int64_t d = op->h->cols;
  for (int64_t b = 0; b < op->h->rows; b++) {
    const real *dout = op->out->g + b * op->out->ld;
    if (op->active[b])
      state_row_backward(dout, op->gate->v + b * d, op->squashed + b * d, op->gate->g + b * d, op->normed->g + b * d,
                         d);
    else
      add_to(op->h->g + b * op->h->ld, dout, d);
  }
}

void op_lstm_state(tape *t, tensor *output_gate, tensor *normed, tensor *h, const unsigned char *active, tensor *out) {
  int64_t d = h->cols;
  state_op *op = tape_keep(t, sizeof *op);
  *op = (state_op){output_gate, normed, h, out, active, tape_keep(t, (size_t)(h->rows * d) * sizeof(real))};
  for (int64_t b = 0; b < h->rows; b++) {
    if (active[b])
      state_row(output_gate->v + b * d, normed->v + b * d, op->squashed + b * d, out->v + b * out->ld, d);
    else
      memcpy(out->v + b * out->ld, h->v + b * h->ld, (size_t)d * sizeof(real));
  }
  tape_push(t, lstm_state_backward, op);
}
