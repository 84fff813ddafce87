/* SPDX-License-Identifier: MIT */
#include <cblas.h>
#include <string.h>

#include "tape/tape.h"

void blas_single_threaded(void) {
  openblas_set_num_threads(1);
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
