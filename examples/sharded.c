/* SPDX-License-Identifier: MIT
 *
 * Tensor parallelism: every rank holds some columns of each row. With the split form the ranks exchange two or three
 * numbers per row instead of the row. Here a loop plays the ranks, and reduce() stands for the all-reduce:
 *   MPI_Allreduce(MPI_IN_PLACE, stats, 3 * ROWS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); */
#include <rmsnorm.h>
#include <math.h>
#include <stdio.h>

enum { RANKS = 3, ROWS = 7, COLS = 600, LOCAL = COLS / RANKS };
static const double EPS = 1e-6;

typedef struct rank {
  float x[ROWS][LOCAL], y[ROWS][LOCAL], dy[ROWS][LOCAL], dx[ROWS][LOCAL], weight[LOCAL];
  rms_stat stats[ROWS];
  rms_grad_sum sums[ROWS];
} rank;

static rank ranks[RANKS];
static const rms_spec spec = {.cols = LOCAL, .eps = EPS};

static void fill(void) {
  unsigned state = 5;
  for (int k = 0; k < RANKS; k++)
    for (int j = 0; j < LOCAL; j++) {
      ranks[k].weight[j] = 1.0f + (float)((k * LOCAL + j) % 5) / 8;
      for (int i = 0; i < ROWS; i++) {
        state = state * 1664525u + 1013904223u;
        ranks[k].x[i][j] = (float)(k + 1) * ((float)(state >> 8) - 8388608.0f) / 4194304.0f;
        ranks[k].dy[i][j] = (float)((state >> 4) % 1000) / 500.0f - 1.0f;
      }
    }
}

/* Adds `count` doubles of every rank; `offset` says where in struct rank they are. Afterwards all ranks
 * hold the sums. */
static void reduce(size_t offset, int count) {
  for (int c = 0; c < count; c++) {
    double sum = 0;
    for (int k = 0; k < RANKS; k++)
      sum += ((double *)(void *)((char *)&ranks[k] + offset))[c];
    for (int k = 0; k < RANKS; k++)
      ((double *)(void *)((char *)&ranks[k] + offset))[c] = sum;
  }
}

static rms_forward_args forward_args(rank *r) {
  return (rms_forward_args){.outer = ROWS, .x = {r->x, RMS_F32}, .weight = r->weight, .y = {.data = r->y}};
}

static rms_backward_args backward_args(rank *r) {
  return (rms_backward_args){
      .outer = ROWS, .dy = {.data = r->dy}, .x = {r->x, RMS_F32}, .weight = r->weight, .dx = {.data = r->dx}};
}

static rms_status forward(void) {
  rms_status status = RMS_OK;
  for (int k = 0; k < RANKS && status == RMS_OK; k++) {
    const rms_forward_args args = forward_args(&ranks[k]);
    status = rms_stats(&spec, &args, ranks[k].stats, NULL);
  }
  reduce(offsetof(rank, stats), ROWS * (int)(sizeof(rms_stat) / sizeof(double)));
  for (int k = 0; k < RANKS && status == RMS_OK; k++) {
    const rms_forward_args args = forward_args(&ranks[k]);
    status = rms_apply(&spec, &args, ranks[k].stats, NULL);
  }
  return status;
}

static rms_status backward(void) {
  rms_status status = RMS_OK;
  for (int k = 0; k < RANKS && status == RMS_OK; k++) {
    const rms_backward_args args = backward_args(&ranks[k]);
    status = rms_backward_stats(&spec, &args, ranks[k].stats, ranks[k].sums, NULL);
  }
  reduce(offsetof(rank, sums), ROWS * (int)(sizeof(rms_grad_sum) / sizeof(double)));
  for (int k = 0; k < RANKS && status == RMS_OK; k++) {
    const rms_backward_args args = backward_args(&ranks[k]);
    status = rms_backward_apply(&spec, &args, ranks[k].stats, ranks[k].sums, NULL);
  }
  return status;
}

/* How many elements differ from plain loops over whole rows by more than rounding explains: sums of COLS terms are off
 * by at most COLS roundings of 2^-24 of their sizes; r holds one and enters the gradient by its third power; 16 for the
 * rest. */
static int misses(void) {
  const double bound = (4 * COLS + 16) * ldexp(1, -24);
  int count = 0;
  for (int i = 0; i < ROWS; i++) {
    double squares = 0, dot = 0, dot_size = 0;
    for (int k = 0; k < RANKS; k++)
      for (int j = 0; j < LOCAL; j++) {
        const double x = (double)ranks[k].x[i][j], u = (double)ranks[k].dy[i][j] * (double)ranks[k].weight[j];
        squares += x * x;
        dot += u * x;
        dot_size += fabs(u * x);
      }
    const double r = 1 / sqrt(squares / COLS + EPS);
    for (int k = 0; k < RANKS; k++)
      for (int j = 0; j < LOCAL; j++) {
        const double x = (double)ranks[k].x[i][j], g = (double)ranks[k].weight[j], u = (double)ranks[k].dy[i][j] * g;
        const double y = x * r * g, dx = u * r - x * dot * r * r * r / COLS;
        const double dx_size = fabs(u * r) + fabs(x) * dot_size * r * r * r / COLS;
        count += !(fabs((double)ranks[k].y[i][j] - y) <= bound * fabs(y));
        count += !(fabs((double)ranks[k].dx[i][j] - dx) <= bound * dx_size);
      }
  }
  return count;
}

int main(void) {
  fill();
  rms_status status = forward();
  if (status == RMS_OK) status = backward();
  if (status != RMS_OK) return fprintf(stderr, "sharded: %s\n", rms_status_string(status)), 1;

  const int wrong = misses();
  printf("%d ranks of %d columns: %d elements differ from whole rows\n", RANKS, LOCAL, wrong);
  return wrong > 0;
}
