/* SPDX-License-Identifier: MIT
 *
 * NumPy's .npy files: a strict reader of format versions 1.0, 2.0 and 3.0, and a writer of 1.0 that leaves whole files
 * or none. int8 and 8-bit floats, as bytes, are written only. bfloat16, which NumPy itself does not know, has the type
 * '<V2': that is how the ml_dtypes package stores it. */
#ifndef RMSNORM_CLI_NPY_H
#define RMSNORM_CLI_NPY_H

#include <stddef.h>

#include "rmsnorm.h"

enum { NPY_DIMS_MAX = 64 };

typedef struct npy_array {
  rms_dtype dtype;
  int dims;
  int64_t shape[NPY_DIMS_MAX];
  int64_t count; /* elements: the product of the shape */
  size_t bytes;
  void *data;
} npy_array;

/* Reads a whole file; "-" is standard input. Returns 0, or -1 with a reason that does not repeat the file's name. */
int npy_read(const char *path, npy_array *array, char *reason, size_t reason_size);

/* Zeros in the given shape. Returns 0, or -1 if memory is short or the size overflows. */
int npy_create(npy_array *array, rms_dtype dtype, int dims, const int64_t *shape);

/* The product of the shape and its bytes; -1 on overflow. */
int npy_measure(npy_array *array);

void npy_free(npy_array *array);

/* "(2, 3)"; as in Python. */
void npy_shape_text(const npy_array *array, char *text, size_t size);

typedef struct npy_output {
  const char *path; /* "-": standard output */
  const npy_array *array;
} npy_output;

enum { NPY_OUTPUTS_MAX = 9 };

/* Writes all files or, on an error, none: each goes to a temporary file in its folder, and they are renamed when all
 * are complete. Devices and pipes are written directly. Returns the number of the output that failed with a reason, or
 * -1. */
int npy_write_all(const npy_output *outputs, int count, char *reason, size_t reason_size);

#endif
