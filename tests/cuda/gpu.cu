/* SPDX-License-Identifier: MIT
 *
 * The CUDA library on a GPU: the whole matrix of operations against the oracle, bits that may not change, sizes beyond
 * 2^31, graphs. Exit status 77: there is no device.
 * usage: cuda_gpu [--quick | --small] [--share I/N]   --quick: fewer sizes; --small: a set for compute-sanitizer;
 * --share: every N-th group of checks, from number I on, so that N programs do all of them side by side. */
#include "gpu.h"
#include <cstdio>
#include <cstdlib>
#include <ctime>

static int failures, checks, share, shares = 1, groups;

bool is_mine() {
  return groups++ % shares == share;
}

void expect(bool ok, const std::string &what) {
  checks++;
  if (!ok) {
    failures++;
    if (failures <= 40) printf("FAILED %s\n", what.c_str());
    fflush(stdout);
  }
}

void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  printf("FAILED %s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

std::vector<char> random_elements(rms_dtype type, int64_t n, uint64_t seed) {
  std::vector<char> out((size_t)n * rms_dtype_size(type));
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    float f = (float)((int64_t)(seed >> 33) - (1 << 30)) / (float)(1 << 28);
    uint32_t bits;
    memcpy(&bits, &f, 4);
    char *to = &out[(size_t)i * rms_dtype_size(type)];
    uint16_t half =
        type == RMS_BF16 ? (uint16_t)(bits >> 16) : (uint16_t)((bits >> 16 & 0x8000) | 0x3800 | (bits >> 8 & 0x7ff));
    double d = f;
    if (type == RMS_F32) memcpy(to, &f, 4);
    if (type == RMS_F64) memcpy(to, &d, 8);
    if (rms_dtype_size(type) == 2) memcpy(to, &half, 2);
  }
  return out;
}

static void say(const char *part) {
  static time_t start = time(nullptr);
  printf("%s: %d checks so far, %d failures, %d s\n", part, checks, failures, (int)(time(nullptr) - start));
  fflush(stdout);
}

int main(int argc, char **argv) {
  Extent extent = FULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--small") == 0) {
      extent = SMALL;
    } else if (strcmp(argv[i], "--quick") == 0) {
      extent = QUICK;
    } else if (strcmp(argv[i], "--share") != 0 || ++i == argc || sscanf(argv[i], "%d/%d", &share, &shares) != 2 ||
               shares < 1 || share < 0 || share >= shares) {
      printf("usage: cuda_gpu [--quick | --small] [--share I/N]\n");
      return 2;
    }
  }
  const bool small = extent == SMALL;
  const char *why = nullptr;
  const verify_backend *backend = verify_backend_cuda(&why);
  if (!backend) {
    printf("skipped: %s\n", why);
    return 77;
  }
  say("start");
  if (is_mine()) test_streams(extent);
  say("streams");
  test_matrix(backend, extent);
  say("matrix");
  test_wide(backend, extent);
  say("rows of several portions");
  test_ends(backend, extent);
  say("ends of the range");
  test_gates(backend, extent);
  say("gates");
  test_images(backend, extent);
  say("images");
  test_types(backend, extent);
  say("types");
  test_quantised(backend, extent);
  say("quantised");
  test_drstd(backend, extent);
  say("gradients of statistics");
  test_random(backend, extent);
  say("random problems");
  test_rows(extent);
  say("wide and tiny rows");
  test_bits(extent);
  test_activations(extent);
  say("bits");
  test_split(extent);
  say("split form");
  if (!small) {
    test_widths(backend, extent);
    say("widths");
    if (is_mine()) test_big();
  }
  test_steps(backend, extent); /* last: its reference takes longer than all the others together */
  say("steps");
  printf("%d checks, %d failures\n", checks, failures);
  return failures ? 1 : 0;
}
