/* SPDX-License-Identifier: MIT */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tape/tape.h"

void blas_single_threaded(void) {
  openblas_set_num_threads(1);
}

const char *blas_kernels(void) {
  return openblas_get_corename();
}

/* The kernels that OpenBLAS should use instead of those that it chose; NULL: its choice is right. */
static const char *better_kernels(void) {
#if defined(__x86_64__)
  if (strcmp(openblas_get_corename(), "Prescott") != 0) return NULL;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return NULL;
}

void blas_match_processor(int argc, char *const *argv) {
  const char *kernels = better_kernels();
  if (kernels == NULL || getenv("OPENBLAS_CORETYPE") != NULL) return;
  char **words = calloc((size_t)argc + 2, sizeof *words);
  if (words == NULL) return;
  words[0] = "rmsnorm";
  memcpy(words + 1, argv, (size_t)argc * sizeof *words);
  fflush(NULL);
  if (setenv("OPENBLAS_CORETYPE", kernels, 1) == 0) execv("/proc/self/exe", words);
  free(words); /* not started again: slower, with results as good */
}

void gemm(tape *t, gemm_shape p, gemm_factor a, gemm_factor b, real *out, int64_t ld) {
  double start = lab_seconds();
  for (int64_t i = 0; !p.add && i < p.rows; i++) /* faster than OpenBLAS's own clearing, with the same result */
    memset(out + i * ld, 0, (size_t)p.cols * sizeof(real));
  CBLAS_TRANSPOSE way_a = a.transposed ? CblasTrans : CblasNoTrans, way_b = b.transposed ? CblasTrans : CblasNoTrans;
  blasint m = (blasint)p.rows, n = (blasint)p.cols, k = (blasint)p.depth;
  blasint lda = (blasint)a.ld, ldb = (blasint)b.ld, ldc = (blasint)ld;
#ifdef LAB_DOUBLE
  cblas_dgemm(CblasRowMajor, way_a, way_b, m, n, k, p.scale, a.v, lda, b.v, ldb, 1, out, ldc);
#else
  cblas_sgemm(CblasRowMajor, way_a, way_b, m, n, k, p.scale, a.v, lda, b.v, ldb, 1, out, ldc);
#endif
  t->times.blas += lab_seconds() - start;
}
