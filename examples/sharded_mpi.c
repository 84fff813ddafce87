/* SPDX-License-Identifier: MIT
 *
 * Tensor parallelism with MPI: every rank holds some columns of each row, and rmsnorm_mpi.h exchanges the statistics.
 *   mpicc sharded_mpi.c $(pkg-config --cflags --libs rmsnorm) && mpirun -n 4 ./a.out */
#include <rmsnorm_mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 70, COLS = 600 };
static const double EPS = 1e-6;

/* Element j of row i, of the whole row: every rank can compute what any other has. */
static float x_at(int i, int j) {
  return (float)((i * 131 + j * 37) % 101) / 50.0f - 1.0f;
}
static float dy_at(int i, int j) {
  return (float)((i * 17 + j * 59) % 97) / 48.0f - 1.0f;
}
static float weight_at(int j) {
  return 1.0f + (float)(j % 5) / 8;
}

typedef struct shard {
  int first, cols; /* of the row's columns */
  float *x, *y, *dy, *dx, *weight;
} shard;

static float *floats(int count) {
  float *block = malloc((size_t)(count > 0 ? count : 1) * sizeof *block);
  if (block == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return block;
}

/* Rank r takes twice as many columns as rank r - 1 does, as far as there are any: shards need not be alike. */
static shard make_shard(int rank, int ranks) {
  shard s = {.first = 0, .cols = 8};
  for (int r = 0; r < rank; r++) {
    s.first = s.first + s.cols < COLS ? s.first + s.cols : COLS;
    s.cols *= 2;
  }
  if (rank == ranks - 1 || s.cols > COLS - s.first) s.cols = COLS - s.first;
  s.x = floats(ROWS * s.cols), s.y = floats(ROWS * s.cols);
  s.dy = floats(ROWS * s.cols), s.dx = floats(ROWS * s.cols), s.weight = floats(s.cols);
  for (int j = 0; j < s.cols; j++) {
    s.weight[j] = weight_at(s.first + j);
    for (int i = 0; i < ROWS; i++) {
      s.x[i * s.cols + j] = x_at(i, s.first + j);
      s.dy[i * s.cols + j] = dy_at(i, s.first + j);
    }
  }
  return s;
}

static rms_status norm(const shard *s) {
  const rms_spec spec = {.cols = s->cols, .eps = EPS};
  const rms_forward_args f = {.outer = ROWS, .x = {s->x, RMS_F32}, .weight = s->weight, .y = {.data = s->y}};
  const rms_backward_args b = {
      .outer = ROWS, .dy = {.data = s->dy}, .x = {s->x, RMS_F32}, .weight = s->weight, .dx = {.data = s->dx}};
  rms_stat stats[ROWS];
  rms_mpi mpi = {.comm = MPI_COMM_WORLD, .mode = RMS_MPI_FOLD};
  mpi.scratch_bytes = rms_mpi_scratch(&mpi, &spec, ROWS, 1);
  mpi.scratch = malloc(mpi.scratch_bytes);
  rms_status status = rms_mpi_forward(&mpi, &spec, &f, stats, NULL);
  if (status == RMS_OK) status = rms_mpi_backward(&mpi, &spec, &b, stats, NULL);
  free(mpi.scratch);
  return status;
}

/* How many elements differ from plain loops over whole rows by more than rounding explains: see sharded.c. */
static int misses(const shard *s) {
  const double bound = (4 * COLS + 16) * ldexp(1, -24);
  int count = 0;
  for (int i = 0; i < ROWS; i++) {
    double squares = 0, dot = 0, dot_size = 0;
    for (int j = 0; j < COLS; j++) {
      const double x = (double)x_at(i, j), u = (double)dy_at(i, j) * (double)weight_at(j);
      squares += x * x;
      dot += u * x;
      dot_size += fabs(u * x);
    }
    const double r = 1 / sqrt(squares / COLS + EPS);
    for (int j = 0; j < s->cols; j++) {
      const double x = (double)s->x[i * s->cols + j], g = (double)s->weight[j], u = (double)s->dy[i * s->cols + j] * g;
      const double y = x * r * g, dx = u * r - x * dot * r * r * r / COLS;
      const double dx_size = fabs(u * r) + fabs(x) * dot_size * r * r * r / COLS;
      count += !(fabs((double)s->y[i * s->cols + j] - y) <= bound * fabs(y));
      count += !(fabs((double)s->dx[i * s->cols + j] - dx) <= bound * dx_size);
    }
  }
  return count;
}

int main(int argc, char **argv) {
  int rank, ranks, wrong, all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  shard s = make_shard(rank, ranks);
  const rms_status status = norm(&s);
  if (status != RMS_OK) fprintf(stderr, "rank %d: %s\n", rank, rms_status_string(status));
  wrong = status == RMS_OK ? misses(&s) : 1;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: %d elements differ from whole rows\n", ranks, all);
  free(s.x), free(s.y), free(s.dy), free(s.dx), free(s.weight);
  MPI_Finalize();
  return all > 0;
}
