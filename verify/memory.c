/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include "number.h"

enum { CANARY = 0xa5, MARGIN_BYTES = 256, ALIGNMENT = 64 };

static char *place_buffer(void *ctx, const verify_case *c, verify_role role) {
  verify_memory *memory = ctx;
  verify_buffer *b = &memory->buffer[role];
  b->bytes = c->tensor[role].bytes + 2 * MARGIN_BYTES + ALIGNMENT;
  b->base = malloc(b->bytes);
  b->before = malloc(b->bytes);
  if (!b->base || !b->before) return NULL;
  memset(b->base, CANARY, b->bytes);
  memcpy(b->before, b->base, b->bytes);
  return b->base + MARGIN_BYTES + (ALIGNMENT - (uintptr_t)b->base % ALIGNMENT);
}

verify_allocator verify_memory_allocator(verify_memory *memory) {
  return (verify_allocator){place_buffer, memory};
}

void verify_memory_free(verify_memory *memory) {
  for (int i = 0; i < VERIFY_BUFFERS; i++) {
    free(memory->buffer[i].base);
    free(memory->buffer[i].before);
  }
  *memory = (verify_memory){0};
}

void verify_memory_keep(verify_memory *memory) {
  for (int i = 0; i < VERIFY_BUFFERS; i++)
    if (memory->buffer[i].before) memcpy(memory->buffer[i].before, memory->buffer[i].base, memory->buffer[i].bytes);
}

int verify_buffer_of(const verify_memory *memory, const void *address) {
  const char *at = address;
  for (int i = 0; i < VERIFY_BUFFERS; i++) {
    const verify_buffer *b = &memory->buffer[i];
    if (b->base && at >= b->base && at < b->base + b->bytes) return i;
  }
  return -1;
}

/* ---- Reading ---- */

static void read_row(const verify_tensor *t, const char *data, verify_row_at at, double *row) {
  for (int64_t j = 0; j < t->cols; j++)
    row[j] = verify_load(t->dtype, data, verify_element_at(t, at.outer, at.inner, j));
}

void verify_row_before(const verify_case *c, const verify_memory *memory, verify_row_at at, double *row) {
  const verify_tensor *t = &c->tensor[at.role];
  const verify_buffer *b = &memory->buffer[t->shared_with];
  read_row(t, b->before + (t->data - b->base), at, row);
}

void verify_row_now(const verify_case *c, verify_row_at at, double *row) {
  read_row(&c->tensor[at.role], c->tensor[at.role].data, at, row);
}

/* Whether the buffer is as it was but for the elements of its rows; for channels first, of its channels. */
static int gaps_intact(const verify_tensor *given, const verify_buffer *b) {
  verify_tensor turned = *given;
  const verify_tensor *t = given;
  if (given->inner_stride == 1 && given->col_stride > 1) {
    turned.inner = given->cols, turned.inner_stride = given->col_stride;
    turned.cols = given->inner;
    t = &turned;
  }
  size_t element = t->dtype == RMS_AS_X ? 1 : rms_dtype_size(t->dtype), row = (size_t)t->cols * element;
  const char *from = b->base;
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++) {
      const char *start = t->data + (i * t->outer_stride + h * t->inner_stride) * (int64_t)element;
      if (memcmp(from, b->before + (from - b->base), (size_t)(start - from)) != 0) return 0;
      from = start + row;
    }
  return memcmp(from, b->before + (from - b->base), b->bytes - (size_t)(from - b->base)) == 0;
}

verify_role verify_memory_spoiled(const verify_case *c, const verify_memory *memory) {
  int written[VERIFY_ROLES] = {0};
  for (verify_role role = 0; role < VERIFY_ROLES; role++)
    if (verify_case_has(c, role) && verify_case_is_output(c, role)) written[c->tensor[role].shared_with] = 1;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &c->tensor[role];
    const verify_buffer *b = &memory->buffer[role];
    if (!verify_case_has(c, role) || t->shared_with != role) continue;
    if (written[role] ? !gaps_intact(t, b) : memcmp(b->base, b->before, b->bytes) != 0) return role;
  }
  return VERIFY_ROLES;
}
