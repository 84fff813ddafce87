/* SPDX-License-Identifier: MIT
 *
 * The CUDA library on a GPU: what its tests share. */
#ifndef RMSNORM_TESTS_GPU_H
#define RMSNORM_TESTS_GPU_H

#include <cuda_runtime.h>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#include "rmsnorm_cuda.h"
extern "C" {
#include "run.h"
}

/* How much is run: a set for compute-sanitizer, fewer sizes, everything. */
enum Extent { SMALL, QUICK, FULL };

void expect(bool ok, const std::string &what);
bool is_mine();                                 /* the next group of checks belongs to this program's share of them */
void must(cudaError_t error, const char *what); /* or the program ends */

/* Against the oracle. */
void test_matrix(const verify_backend *backend, Extent extent);
void test_widths(const verify_backend *backend, Extent extent);
void test_wide(const verify_backend *backend, Extent extent);
void test_ends(const verify_backend *backend, Extent extent);
void test_gates(const verify_backend *backend, Extent extent);
void test_images(const verify_backend *backend, Extent extent);
void test_types(const verify_backend *backend, Extent extent);
void test_quantised(const verify_backend *backend, Extent extent);
void test_drstd(const verify_backend *backend, Extent extent);
void test_steps(const verify_backend *backend, Extent extent);
void test_random(const verify_backend *backend, Extent extent);
/* Against the formulas in double: very wide rows, and tiny ones. */
void test_rows(Extent extent);
/* The same bits, whatever the way. */
void test_bits(Extent extent);
void test_activations(Extent extent);
void test_split(Extent extent);
/* Streams, graphs, other people's errors and kernels, empty and big calls. */
void test_streams(Extent extent);
void test_big();

/* Memory on the device that is given back at the end. */
struct Memory {
  std::vector<void *> owned;
  Memory() = default;
  Memory(const Memory &) = delete;
  ~Memory() {
    for (void *p : owned)
      (void)cudaFree(p);
  }
  char *bytes(size_t n) {
    void *p;
    must(cudaMalloc(&p, n + 512), "cudaMalloc");
    owned.push_back(p);
    return static_cast<char *>(p);
  }
  char *copy(const std::vector<char> &host, size_t offset = 0) {
    char *p = bytes(host.size() + offset) + offset;
    must(cudaMemset(p - offset, 0xff, offset), "memset"); /* 16 aligned bytes are read whole */
    must(cudaMemcpy(p, host.data(), host.size(), cudaMemcpyHostToDevice), "copy");
    return p;
  }
};

inline std::vector<char> fetch(const char *p, size_t n) {
  std::vector<char> host(n);
  must(cudaMemcpy(host.data(), p, n, cudaMemcpyDeviceToHost), "fetch");
  return host;
}

std::vector<char> random_elements(rms_dtype type, int64_t n, uint64_t seed);

template <class Data> rms_const_view input(Data *data, rms_dtype type, int64_t outer = 0, int64_t inner = 0) {
  return {data, (int32_t)type, 0, outer, inner, 0};
}
inline rms_view output(void *data, rms_dtype type, int64_t outer = 0, int64_t inner = 0) {
  return {data, (int32_t)type, 0, outer, inner, 0};
}

#endif
