/* SPDX-License-Identifier: MIT
 *
 * Shared by all of the lab: errors as one line of text, memory, random numbers, reading files.
 */
#ifndef LAB_BASE_H
#define LAB_BASE_H

#include <stddef.h>
#include <stdint.h>

/* One line that names the file and the reason, without a newline. Functions that can fail take one and return -1 after
 * filling it in; nothing else is reported anywhere. */
typedef struct lab_error {
  char text[512];
} lab_error;

/* Fills in the error and returns -1, so that a caller writes `return lab_fail(error, "%s: too short", path);`. */
int lab_fail(lab_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Zeroed memory for count elements. Out of memory ends the program with one line and exit code 2: no loader asks for
 * more than its file justifies, so there is nothing sensible left to do. Free with free(). */
void *lab_alloc(size_t count, size_t size);
/* The same in bytes, not zeroed, aligned to a cache line. */
void *lab_aligned(size_t bytes);

/* The same block, grown to hold at least `needed` elements of `size` bytes; doubles *capacity. */
void *lab_grow(void *block, int64_t *capacity, int64_t needed, size_t size);

/* A copy of length bytes with a NUL after them. */
char *lab_copy(const char *bytes, size_t length);

/* A whole file in memory, a NUL after the last byte; gzip files are unpacked (zlib). At most 4 GiB. Free
 * with free(). */
int lab_read_file(char **bytes, int64_t *size, const char *path, lab_error *error);

/* 1 if the bytes are well-formed UTF-8 without a NUL. */
int lab_is_text(const char *bytes, int64_t size);

/* A 64-bit hash (FNV-1a), the same on every machine; `hash` is LAB_HASH_START or the hash of what came before. */
#define LAB_HASH_START 0xcbf29ce484222325u
uint64_t lab_hash(uint64_t hash, const void *bytes, size_t length);

/* Random numbers: splitmix64. The same seed and stream give the same numbers everywhere. */
typedef struct lab_rng {
  uint64_t state;
} lab_rng;

lab_rng lab_rng_make(uint64_t seed, uint64_t stream);
uint64_t lab_rng_next(lab_rng *rng);
double lab_rng_unit(lab_rng *rng);                  /* [0, 1), 53 bits */
int64_t lab_rng_below(lab_rng *rng, int64_t bound); /* 0 .. bound-1, without bias */
double lab_rng_normal(lab_rng *rng);                /* mean 0, standard deviation 1 */

#endif
