/* SPDX-License-Identifier: MIT */
#include "copy.h"

#include <stdint.h>
#include <string.h>

static void copy_memcpy(const copy_buffers *s, size_t begin, size_t end) {
  memcpy((char *)s->writes[0] + begin, (const char *)s->reads[0] + begin, end - begin);
}

static volatile uint64_t portable_sink; /* reads that are stored nowhere end here, so that they are done */

static void read_words(const char *from, size_t bytes) {
  uint64_t mixed = 0, word;
  for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
    memcpy(&word, from + i, sizeof word);
    mixed ^= word;
  }
  portable_sink = mixed;
}

/* In place: memcpy would do nothing. */
static void rewrite_words(char *data, size_t bytes) {
  volatile uint64_t *words = (volatile uint64_t *)(void *)data;
  for (size_t i = 0; i < bytes / sizeof *words; i++)
    words[i] = words[i];
}

/* Any mix on any machine: blocks of a page, so that the buffers advance together. */
static void copy_portable(const copy_buffers *s, size_t begin, size_t end) {
  enum { BLOCK = 4096 };
  for (size_t at = begin; at < end; at += BLOCK) {
    size_t bytes = end - at < BLOCK ? end - at : BLOCK;
    for (int i = 0; i < s->write_count; i++) {
      const char *from = s->reads[i < s->read_count ? i : s->read_count - 1];
      if (from == s->writes[i])
        rewrite_words((char *)s->writes[i] + at, bytes);
      else
        memcpy((char *)s->writes[i] + at, from + at, bytes);
    }
    for (int i = s->write_count; i < s->read_count; i++)
      read_words((const char *)s->reads[i] + at, bytes);
  }
}

#ifdef RMSNORM_BENCH_X86
static int aligned_for_streaming(const copy_buffers *s) {
  for (int i = 0; i < s->write_count; i++)
    if ((uintptr_t)s->writes[i] % 64) return 0;
  return 1;
}
#endif

static int in_place(const copy_buffers *s) {
  for (int i = 0; i < s->write_count && i < s->read_count; i++)
    if (s->reads[i] == s->writes[i]) return 1;
  return 0;
}

int copy_methods(const copy_buffers *buffers, copy_method *methods) {
  int count = 0;
  if (buffers->read_count == 1 && buffers->write_count == 1 && !in_place(buffers))
    methods[count++] = (copy_method){"memcpy", copy_memcpy};
#ifdef RMSNORM_BENCH_X86
  int streamable = aligned_for_streaming(buffers);
  if (__builtin_cpu_supports("avx2")) {
    methods[count++] = (copy_method){"avx2", copy_avx2};
    if (streamable) methods[count++] = (copy_method){"avx2-nt", copy_avx2_stream};
  }
  if (__builtin_cpu_supports("avx512f")) {
    methods[count++] = (copy_method){"avx512", copy_avx512};
    if (streamable) methods[count++] = (copy_method){"avx512-nt", copy_avx512_stream};
  }
#endif
  if (count == 0) methods[count++] = (copy_method){"portable", copy_portable};
  return count;
}

typedef struct copy_job {
  copy_function *run;
  const copy_buffers *buffers;
  int64_t pieces;
} copy_job;

static void copy_piece(void *arg, int64_t i) {
  const copy_job *job = arg;
  size_t bytes = job->buffers->bytes, pieces = (size_t)job->pieces;
  size_t begin = bytes / pieces * (size_t)i / 64 * 64;
  size_t end = i + 1 == job->pieces ? bytes : bytes / pieces * (size_t)(i + 1) / 64 * 64;
  job->run(job->buffers, begin, end);
}

void copy_run(copy_function *run, const copy_buffers *buffers, const rms_executor *executor) {
  copy_job job = {run, buffers, executor ? executor->concurrency : 1};
  if (job.pieces == 1)
    run(buffers, 0, buffers->bytes);
  else
    executor->run(executor->ctx, job.pieces, copy_piece, &job);
}
