/* SPDX-License-Identifier: MIT
 * Any bytes as a .npy file: refused with a reason, or read into an array that is what its shape says. */
#define _GNU_SOURCE 1 /* memfd_create */
#include "fuzz.h"
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void require(int held, const char *what) {
  if (held) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64], reason[300] = "";
  npy_array array;
  int file = memfd_create("fuzz", 0);
  require(file >= 0 && write(file, data, size) == (ssize_t)size, "no file in memory");
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  memset(&array, 0, sizeof array);
  if (npy_read(path, &array, reason, sizeof reason) != 0) {
    require(reason[0] != 0 && strchr(reason, '\n') == NULL, "refused without one line of reason");
  } else {
    int64_t count = 1;
    require(array.dims >= 0 && array.dims <= NPY_DIMS_MAX, "number of dimensions");
    for (int i = 0; i < array.dims; i++)
      count *= array.shape[i];
    require(count == array.count && array.bytes == (size_t)count * rms_dtype_size(array.dtype), "size of the array");
    require(array.bytes <= size, "more data than the file has");
    require(array.bytes == 0 || memcmp(array.data, data + size - array.bytes, array.bytes) == 0, "not the file's data");
    npy_free(&array);
  }
  close(file);
  return 0;
}
