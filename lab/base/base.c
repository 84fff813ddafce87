/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "base/base.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "../../verify/splitmix.h"

int lab_fail(lab_error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  /* File names and contents may hold anything: control characters must not break the line or reach the terminal. */
  for (char *c = error->text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return -1;
}

static void *or_end(void *block, size_t count, size_t size) {
  if (block) return block;
  fprintf(stderr, "rmsnorm lab: out of memory (%zu x %zu bytes)\n", count, size);
  exit(2);
}

void *lab_aligned(size_t bytes) {
  const size_t line = 64;
  size_t whole = bytes > SIZE_MAX - line ? 0 : (bytes + line - 1) / line * line;
  return or_end(whole >= bytes ? aligned_alloc(line, whole > 0 ? whole : line) : NULL, bytes, 1);
}

void *lab_alloc(size_t count, size_t size) {
  if (count == 0) count = 1;
  return or_end(calloc(count, size), count, size);
}

void *lab_grow(void *block, int64_t *capacity, int64_t needed, size_t size) {
  if (needed <= *capacity) return block;
  int64_t wanted = *capacity < 16 ? 16 : *capacity * 2;
  if (wanted < needed) wanted = needed;
  size_t count = (size_t)wanted;
  if (count > SIZE_MAX / size) or_end(NULL, count, size);
  block = or_end(realloc(block, count * size), count, size);
  *capacity = wanted;
  return block;
}

char *lab_copy(const char *bytes, size_t length) {
  char *copy = lab_alloc(length + 1, 1);
  memcpy(copy, bytes, length);
  return copy;
}

enum { READ_CHUNK = 1 << 18 };
static const int64_t largest_file = (int64_t)4 << 30;

/* Reads to the end; NULL with *code set to zlib's error, or to Z_MEM_ERROR for more than the limit. */
static char *read_all(gzFile file, int64_t *size, int *code) {
  char *block = NULL;
  int64_t used = 0, capacity = 0;
  int got;
  do {
    block = lab_grow(block, &capacity, used + READ_CHUNK + 1, 1);
    got = gzread(file, block + used, READ_CHUNK);
    if (got > 0) used += got;
  } while (got == READ_CHUNK && used <= largest_file);
  gzerror(file, code);
  if (used > largest_file) *code = Z_MEM_ERROR;
  if (*code != Z_OK && *code != Z_STREAM_END) {
    free(block);
    return NULL;
  }
  block[used] = 0;
  *size = used;
  return block;
}

static const char *read_reason(int code) {
  switch (code) {
  case Z_ERRNO:
    return strerror(errno);
  case Z_BUF_ERROR:
    return "gzip data ends too early";
  case Z_MEM_ERROR:
    return "larger than 4 GiB";
  default:
    return "damaged gzip data";
  }
}

int lab_read_file(char **bytes, int64_t *size, const char *path, lab_error *error) {
  struct stat status;
  if (stat(path, &status) != 0) return lab_fail(error, "%s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode)) return lab_fail(error, "%s: not a regular file", path);
  gzFile file = gzopen(path, "rb");
  if (!file) return lab_fail(error, "%s: %s", path, errno ? strerror(errno) : "cannot be opened");

  int code;
  *bytes = read_all(file, size, &code);
  if (!*bytes) lab_fail(error, "%s: %s", path, read_reason(code));
  gzclose(file);
  return *bytes ? 0 : -1;
}

/* Length of the UTF-8 sequence at s (which has `left` bytes), 0 if it is malformed, overlong or a surrogate. */
static int sequence_length(const unsigned char *s, int64_t left) {
  if (s[0] < 0x80) return s[0] ? 1 : 0;
  int length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || left < length) return 0;
  for (int i = 1; i < length; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
  if (s[0] == 0xed && s[1] > 0x9f) return 0;
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
  return length;
}

int lab_is_text(const char *bytes, int64_t size) {
  for (int64_t i = 0; i < size;) {
    int length = sequence_length((const unsigned char *)bytes + i, size - i);
    if (length == 0) return 0;
    i += length;
  }
  return 1;
}

uint64_t lab_hash(uint64_t hash, const void *bytes, size_t length) {
  const unsigned char *data = bytes;
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ data[i]) * 0x100000001b3u;
  return hash;
}

lab_rng lab_rng_make(uint64_t seed, uint64_t stream) {
  uint64_t start = splitmix_next(&seed);
  return (lab_rng){start ^ splitmix_mix(stream * 0xd1b54a32d192ed03u + 1)};
}

uint64_t lab_rng_next(lab_rng *rng) {
  return splitmix_next(&rng->state);
}

double lab_rng_unit(lab_rng *rng) {
  return (double)(lab_rng_next(rng) >> 11) * 0x1p-53;
}

int64_t lab_rng_below(lab_rng *rng, int64_t bound) {
  uint64_t n = (uint64_t)bound, rest = (UINT64_MAX % n + 1) % n, value;
  do
    value = lab_rng_next(rng);
  while (value > UINT64_MAX - rest);
  return (int64_t)(value % n);
}

double lab_rng_normal(lab_rng *rng) {
  double radius = sqrt(-2 * log(1 - lab_rng_unit(rng)));
  return radius * cos(6.283185307179586 * lab_rng_unit(rng));
}
