/* SPDX-License-Identifier: MIT
 *
 * The test harness. A test program is a table of cases and a main that calls t_main; each case makes checks. A failed
 * check prints both values, where it stands, the context set last, the seed and a command that repeats the case.
 *
 *   static void adds(void) { T_EQ_INT(4, 2 + 2); }
 *   static const t_case cases[] = {{"adds", adds}};
 *   int main(int argc, char **argv) { return t_main(argc, argv, cases, T_COUNT(cases)); }
 *
 * Usage of a test program: [--list] [NAME...]; a case runs if its name contains one of the NAMEs. Exit status: 0 all
 * well, 1 a check failed, 2 bad usage, 77 every case was skipped. A case that checks nothing is a failure.
 * Environment: RMSNORM_SEED (a number; default 1), RMSNORM_REQUIRE_ISA (comma-separated names that must be usable: the
 * program fails, instead of leaving them out, if one is not), RMSNORM_EFFORT (percent of the repetitions),
 * RMSNORM_GUARD_SLACK (bytes left free between a buffer and the page beside it: some emulators read whole vectors where
 * the instruction reads a masked part). */
#ifndef RMSNORM_TESTS_HARNESS_H
#define RMSNORM_TESTS_HARNESS_H

#include <stddef.h>
#include <stdint.h>
#include "rmsnorm.h"

typedef struct t_case {
  const char *name;
  void (*run)(void);
} t_case;

int t_main(int argc, char **argv, const t_case *cases, size_t count);

#define T_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Checks: expected first; each returns 1 if it held, so that a case can stop early ---- */

#define T_CHECK(condition)                  t_check_true(__FILE__, __LINE__, #condition, (condition) ? 1 : 0)
#define T_EQ_STATUS(expected, actual)       t_check_status(__FILE__, __LINE__, #actual, (expected), (actual))
#define T_EQ_INT(expected, actual)          t_check_int(__FILE__, __LINE__, #actual, (int64_t)(expected), (int64_t)(actual))
#define T_EQ_F64(expected, actual)          t_check_f64(__FILE__, __LINE__, #actual, (expected), (actual), 0.0)
#define T_NEAR(expected, actual, most)      t_check_f64(__FILE__, __LINE__, #actual, (expected), (actual), (most))
#define T_EQ_STR(expected, actual)          t_check_str(__FILE__, __LINE__, #actual, (expected), (actual))
#define T_EQ_BYTES(expected, actual, bytes) t_check_bytes(__FILE__, __LINE__, #actual, (expected), (actual), (bytes))
/* Bit for bit, but a NaN matches any NaN. */
#define T_EQ_ELEMENTS(expected, actual, dtype, count)                                                                  \
  t_check_elements(__FILE__, __LINE__, #actual, (expected), (actual), (dtype), (count))

int t_check_true(const char *file, int line, const char *what, int held);
int t_check_status(const char *file, int line, const char *what, rms_status expected, rms_status actual);
int t_check_int(const char *file, int line, const char *what, int64_t expected, int64_t actual);
int t_check_f64(const char *file, int line, const char *what, double expected, double actual, double most);
int t_check_str(const char *file, int line, const char *what, const char *expected, const char *actual);
int t_check_bytes(const char *file, int line, const char *what, const void *expected, const void *actual, size_t bytes);
int t_check_elements(const char *file, int line, const char *what, const void *expected, const void *actual,
                     rms_dtype dtype, int64_t count);

/* The bits of one element as a number, with every NaN made one. */
uint64_t t_element_bits(const void *element, rms_dtype dtype);

/* What is being tested now; printed with the next failures. Belongs to the calling thread. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void t_context(const char *format, ...);

/* Marks the running case as skipped; the case then returns. */
void t_skip(const char *reason);

/* Failed checks of the running case so far. */
long t_failures(void);

/* ---- Instruction sets ---- */

/* The usable ones, "scalar" first; the count is at least 1. */
typedef struct t_isas {
  const char *name[8];
  int count;
} t_isas;
t_isas t_usable_isas(void);

/* `count` repetitions, or fewer where RMSNORM_EFFORT (percent, default 100) asks for less: emulators and sanitizers are
 * slow. At least 1. */
int64_t t_effort(int64_t count);

/* ---- Random numbers: the same on every machine ---- */

uint64_t t_seed(void);
typedef struct t_rng {
  uint64_t state;
} t_rng;
t_rng t_rng_make(uint64_t stream); /* independent streams of the one seed */
uint64_t t_random(t_rng *rng);
int64_t t_random_below(t_rng *rng, int64_t limit); /* 0..limit-1 */

/* ---- Guarded memory: an inaccessible page on both sides ---- */

typedef enum t_flush { T_FLUSH_END = 0, T_FLUSH_START = 1 } t_flush;

typedef struct t_guard {
  unsigned char *map, *room; /* the mapping; its accessible part */
  size_t map_bytes, room_bytes;
} t_guard;

t_guard t_guard_make(size_t capacity); /* exits with a message when there is no memory */
void t_guard_free(t_guard *guard);
int t_guard_fits(const t_guard *guard, size_t capacity); /* 1: it is as big as t_guard_make(capacity) */
/* `bytes` bytes that end, or start, exactly `offset` bytes from an inaccessible page. Up to 512 bytes on either side
 * (as far as there is room) are filled with a canary. */
void *t_guard_place(t_guard *guard, size_t bytes, t_flush flush, size_t offset);
/* 1 if the canary beside these bytes, the last placed ones, is whole. */
int t_guard_intact(const t_guard *guard, const void *data, size_t bytes);

#endif
