/* SPDX-License-Identifier: MIT
 *
 * Host memory of a case that tells what a call has done to it. Every tensor lies in a buffer of its own that is filled
 * with a canary, in front, behind and in the gaps between rows; a copy of each buffer as it was before the call is
 * kept. */
#ifndef RMSNORM_VERIFY_MEMORY_H
#define RMSNORM_VERIFY_MEMORY_H

#include "case.h"

typedef struct verify_buffer {
  char *base, *before; /* the whole buffer and its copy; NULL: absent */
  size_t bytes;
} verify_buffer;

enum { VERIFY_EXTRA = VERIFY_ROLES, VERIFY_BUFFERS }; /* one for each role, one for what a call needs besides */

typedef struct verify_memory {
  verify_buffer buffer[VERIFY_BUFFERS];
} verify_memory;

/* Buffers from `memory`, which starts as zeros; verify_memory_free frees them all. */
verify_allocator verify_memory_allocator(verify_memory *memory);
void verify_memory_free(verify_memory *memory);

/* Copies every buffer: as it is now is how it was before the call. */
void verify_memory_keep(verify_memory *memory);

/* The index of the buffer that holds this address, or -1. */
int verify_buffer_of(const verify_memory *memory, const void *address);

typedef struct verify_row_at {
  verify_role role;
  int64_t outer, inner;
} verify_row_at;

/* One row as doubles: as it was before the call, and as it is now. */
void verify_row_before(const verify_case *c, const verify_memory *memory, verify_row_at at, double *row);
void verify_row_now(const verify_case *c, verify_row_at at, double *row);

/* The role whose memory was written where it may not be (a canary or an input), or VERIFY_ROLES when all is well. */
verify_role verify_memory_spoiled(const verify_case *c, const verify_memory *memory);

#endif
