/* SPDX-License-Identifier: MIT
 *
 * The training engine: matrices and a tape of operations.
 *
 * An operation computes at once, takes its result from the tape's memory and puts a function on the tape that turns the
 * gradient of its result into gradients of its arguments. tape_backward runs those functions in reverse. tape_reset
 * gives everything back at once; nothing is freed one by one.
 *
 * Everything is a matrix of `real`: float, or double when compiled with LAB_DOUBLE for the gradient checks. Sequences
 * are stacked by time: row t*batch + b. Images are rows: one image is channels x height x width elements.
 *
 * A tape belongs to one thread. Batches are cut into shards, each with its own tape, so no operation needs
 * threads. */
#ifndef LAB_TAPE_H
#define LAB_TAPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#ifdef LAB_DOUBLE
typedef double real;
#define REAL_DTYPE RMS_F64
#else
typedef float real;
#define REAL_DTYPE RMS_F32
#endif

/* Loops marked so are compiled twice, for AVX2 and for every x86-64; both give the same bits, since nothing is
 * reassociated or contracted. The sanitizers run before the choice is made, so they get the plain one. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&                                 \
    !defined(__SANITIZE_THREAD__) && !defined(LAB_NO_CLONES)
#define LAB_VECTOR __attribute__((target_clones("avx2", "default")))
#else
#define LAB_VECTOR
#endif

/* A matrix, or a window of one: element (i, j) is v[i*ld + j]; g is its gradient, laid out the same. */
typedef struct tensor {
  real *v, *g;
  int64_t rows, cols, ld;
} tensor;

typedef struct tape tape;
typedef void (*backward_fn)(tape *t, void *op);

typedef struct tape_times {
  double blas, norm, total; /* seconds                                             */
  double cpu;               /* of total, what the processor spent on it and not on others */
} tape_times;

/* How far partial statistics are from full ones; see op_norm. */
typedef struct statistic_watch {
  double squares, count; /* of the relative error of the RMS, row by row */
} statistic_watch;

struct tape_chunk;
struct tape_entry;

struct tape {
  struct tape_chunk *chunks; /* matrices with their gradients                              */
  struct tape_chunk *kept;   /* what operations save: masks, statistics, their own records */
  struct tape_entry *entries;
  int64_t entry_count, entry_capacity;
  void *scratch;
  size_t scratch_bytes;
  int training;       /* 0: no dropout, nothing kept for a backward */
  uint64_t noise_key; /* dropout and noise are functions of this key, the operation's number and the element */
  uint64_t noise_operations;
  tape_times times;
  statistic_watch *watch; /* NULL: nobody watches */
};

tape *tape_create(void);
void tape_free(tape *t);
void tape_reset(tape *t, int training, uint64_t noise_key);

/* Bytes that the operations so far hold for the backward: their results and what they kept, without gradients. */
int64_t tape_activation_bytes(const tape *t);

tensor *tape_tensor(tape *t, int64_t rows, int64_t cols);               /* values not set */
tensor *tape_zeros(tape *t, int64_t rows, int64_t cols);                /* values 0       */
tensor *tape_input(tape *t, const real *v, int64_t rows, int64_t cols); /* a copy */
tensor *tape_constant(tape *t, int64_t rows, int64_t cols);             /* values not set; has no gradient: g is NULL */
tensor *tape_view(tape *t, tensor *of, int64_t row, int64_t rows, int64_t col, int64_t cols);

/* 64-byte aligned, lives until tape_reset. */
void *tape_keep(tape *t, size_t bytes);
/* 64-byte aligned, lives until the next call of tape_scratch. */
void *tape_scratch(tape *t, size_t bytes);

void tape_push(tape *t, backward_fn backward, void *op);
/* Gradients of all matrices of the tape become d loss(0,0) / d matrix; parameters' gradients are added to. */
void tape_backward(tape *t, tensor *loss);

double lab_seconds(void);         /* monotonic clock                  */
double lab_thread_seconds(void);  /* CPU time of the calling thread   */
double lab_process_seconds(void); /* CPU time of all threads together */

/* A factor of a matrix product; ld: elements from one of its rows, as they are stored, to the next. */
typedef struct gemm_factor {
  const real *v;
  int64_t ld;
  int transposed;
} gemm_factor;

static inline gemm_factor as_is(const real *v, int64_t ld) {
  return (gemm_factor){v, ld, 0};
}
static inline gemm_factor transposed(const real *v, int64_t ld) {
  return (gemm_factor){v, ld, 1};
}

/* The product is rows x cols, each element a sum of `depth` terms, times scale; add: it is added to what is there. */
typedef struct gemm_shape {
  int64_t rows, cols, depth;
  real scale;
  int add;
} gemm_shape;

/* By OpenBLAS on this thread. */
void gemm(tape *t, gemm_shape p, gemm_factor a, gemm_factor b, real *out, int64_t ld);
/* OpenBLAS runs on the calling thread only: its own threads change the order of its sums. */
void blas_single_threaded(void);
/* OpenBLAS chooses its kernels when it is loaded, by the names of the processors that its release knows. On a newer
 * processor it takes those for SSE3, several times slower than the processor's best. This function then starts the
 * program again with the arguments of the subcommand, argv, and OPENBLAS_CORETYPE set. It returns where OpenBLAS's
 * choice stands. */
void blas_match_processor(int argc, char *const *argv);
/* The name of the processor whose kernels OpenBLAS uses. */
const char *blas_kernels(void);

#endif
