/* SPDX-License-Identifier: MIT
 *
 * What the exchange of statistics costs: the time of RMSNorm over rows that are spread over the ranks, with it and
 * without it (pRMSNorm of each shard by its own elements), against the number of rows, which decides the size of the
 * message. mpicc cost_mpi.c $(pkg-config --cflags --libs rmsnorm) && mpirun -n 2 ./a.out [REPETITIONS] */
#include <rmsnorm_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLS = 1024, MOST_ROWS = 4096, WAYS = 5 }; /* columns of each rank */

typedef struct way {
  const char *name;
  int32_t mode;
  int64_t partial, block;
} way;

static const way ways[WAYS] = {{"reduce", RMS_MPI_REDUCE, 0, 0},
                               {"fold", RMS_MPI_FOLD, 0, 0},
                               {"fold, blocks of 128", RMS_MPI_FOLD, 0, 128},
                               {"local", RMS_MPI_LOCAL, 0, 0},
                               {"local, first 64", RMS_MPI_LOCAL, 64, 0}};

static float *x, *y, weight[COLS];
static rms_stat stats[MOST_ROWS];

static void *memory(size_t bytes) {
  void *block = malloc(bytes > 0 ? bytes : 1);
  if (block == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return block;
}

static int by_value(const void *a, const void *b) {
  const double p = *(const double *)a, q = *(const double *)b;
  return p < q ? -1 : p > q;
}

/* The time of a forward until the last rank has finished: the tenth percentile of `count`, since other work on the
 * machine only adds to it; -1 if one fails. The ways alternate, so that what disturbs the machine disturbs all of them.
 */
static int measure(int64_t rows, int count, double typical[WAYS]) {
  double *times[WAYS];
  rms_mpi mpi[WAYS];
  int failed = 0;
  for (int w = 0; w < WAYS; w++) {
    const rms_spec spec = {.cols = COLS, .eps = 1e-6, .partial = ways[w].partial};
    times[w] = memory((size_t)count * sizeof(double));
    mpi[w] = (rms_mpi){.comm = MPI_COMM_WORLD, .mode = ways[w].mode, .block_cols = ways[w].block};
    mpi[w].scratch_bytes = rms_mpi_scratch(&mpi[w], &spec, rows, 1);
    mpi[w].scratch = memory(mpi[w].scratch_bytes);
  }
  for (int i = -2; i < count; i++) /* two rounds to warm up */
    for (int w = 0; w < WAYS; w++) {
      const rms_spec spec = {.cols = COLS, .eps = 1e-6, .partial = ways[w].partial};
      const rms_forward_args args = {.outer = rows, .x = {x, RMS_F32}, .weight = weight, .y = {.data = y}};
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      failed |= rms_mpi_forward(&mpi[w], &spec, &args, stats, NULL) != RMS_OK;
      double taken = MPI_Wtime() - start, most = 0;
      MPI_Allreduce(&taken, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (i >= 0) times[w][i] = most;
    }
  for (int w = 0; w < WAYS; w++) {
    qsort(times[w], (size_t)count, sizeof(double), by_value);
    typical[w] = times[w][count / 10];
    free(times[w]);
    free(mpi[w].scratch);
  }
  return failed ? -1 : 0;
}

int main(int argc, char **argv) {
  int rank, ranks, failed = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = argc > 1 ? atoi(argv[1]) : 51;
  x = memory(sizeof(float) * COLS * MOST_ROWS);
  y = memory(sizeof(float) * COLS * MOST_ROWS);
  for (int i = 0; i < COLS * MOST_ROWS; i++)
    x[i] = (float)(i % 251) / 125.0f - 1.0f;
  for (int j = 0; j < COLS; j++)
    weight[j] = 1.0f + (float)(j % 5) / 8;
  if (rank == 0) {
    printf("%d ranks of %d columns, f32, forward; microseconds, tenth percentile of %d\n%8s %12s", ranks, COLS, count,
           "rows", "message, B");
    for (int w = 0; w < WAYS; w++)
      printf("  %19s", ways[w].name);
    printf("\n");
  }
  for (int64_t rows = 1; rows <= MOST_ROWS && !failed && count > 0; rows *= 4) {
    double typical[WAYS];
    failed = measure(rows, count, typical) < 0;
    if (rank != 0) continue;
    printf("%8lld %12lld", (long long)rows, (long long)(rows * (int64_t)sizeof(rms_stat)));
    for (int w = 0; w < WAYS; w++)
      printf("  %19.1f", 1e6 * typical[w]);
    printf("\n");
  }
  free(x);
  free(y);
  MPI_Finalize();
  return failed || count < 1;
}
