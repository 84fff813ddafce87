/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#include "harness.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../verify/splitmix.h"
#include "system.h"

enum { PRINTED_FAILURES = 20, SKIPPED = 77, CANARY = 0xA5, CANARY_BYTES = 512 };

static atomic_long checks_made, checks_failed;
static const char *program = "test", *running = "";
static const char *skip_reason;
static _Thread_local char context[512];

/* ---- Checks ---- */

static void repeat_line(void) {
  fprintf(stderr, "    repeat: RMSNORM_SEED=%" PRIu64 " %s %s\n", t_seed(), program, running);
}

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static int
failed(const char *file, int line, const char *format, ...) {
  long before = atomic_fetch_add(&checks_failed, 1);
  if (before >= PRINTED_FAILURES) return 0;
  flockfile(stderr);
  fprintf(stderr, "%s:%d: %s: ", file, line, running);
  va_list list;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  if (context[0]) fprintf(stderr, "    with: %s\n", context);
  repeat_line();
  funlockfile(stderr);
  if (getenv("RMSNORM_FIRST_FAILURE")) _Exit(1);
  return 0;
}

static void made(void) {
  atomic_fetch_add_explicit(&checks_made, 1, memory_order_relaxed);
}

int t_check_true(const char *file, int line, const char *what, int held) {
  made();
  return held ? 1 : failed(file, line, "not true: %s", what);
}

int t_check_status(const char *file, int line, const char *what, rms_status expected, rms_status actual) {
  made();
  if (expected == actual) return 1;
  return failed(file, line, "%s\n    expected %d (%s)\n    actual   %d (%s)", what, (int)expected,
                rms_status_string(expected), (int)actual, rms_status_string(actual));
}

int t_check_int(const char *file, int line, const char *what, int64_t expected, int64_t actual) {
  made();
  if (expected == actual) return 1;
  return failed(file, line, "%s\n    expected %" PRId64 "\n    actual   %" PRId64, what, expected, actual);
}

int t_check_f64(const char *file, int line, const char *what, double expected, double actual, double most) {
  made();
  if (expected == actual || (isnan(expected) && isnan(actual)) || fabs(expected - actual) <= most) return 1;
  return failed(file, line, "%s\n    expected %.17g\n    actual   %.17g\n    apart by %.3g, allowed %.3g", what,
                expected, actual, fabs(expected - actual), most);
}

int t_check_str(const char *file, int line, const char *what, const char *expected, const char *actual) {
  made();
  if (expected == actual || (expected && actual && strcmp(expected, actual) == 0)) return 1;
  return failed(file, line, "%s\n    expected %s\n    actual   %s", what, expected ? expected : "NULL",
                actual ? actual : "NULL");
}

int t_check_bytes(const char *file, int line, const char *what, const void *expected, const void *actual,
                  size_t bytes) {
  made();
  if (bytes == 0 || memcmp(expected, actual, bytes) == 0) return 1;
  const unsigned char *e = expected, *a = actual;
  size_t i = 0;
  while (e[i] == a[i])
    i++;
  return failed(file, line, "%s\n    byte %zu of %zu: expected 0x%02x, actual 0x%02x", what, i, bytes, e[i], a[i]);
}

uint64_t t_element_bits(const void *p, rms_dtype dtype) {
  if (dtype == RMS_F64) {
    uint64_t bits;
    memcpy(&bits, p, sizeof bits);
    return (bits & UINT64_C(0x7fffffffffffffff)) > UINT64_C(0x7ff0000000000000) ? UINT64_MAX : bits;
  }
  if (dtype == RMS_F32) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return (bits & 0x7fffffffu) > 0x7f800000u ? UINT64_MAX : bits;
  }
  if (dtype >= RMS_I8) return *(const unsigned char *)p;
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return (bits & 0x7fffu) > (dtype == RMS_BF16 ? 0x7f80u : 0x7c00u) ? UINT64_MAX : bits;
}

int t_check_elements(const char *file, int line, const char *what, const void *expected, const void *actual,
                     rms_dtype dtype, int64_t count) {
  made();
  size_t size = rms_dtype_size(dtype);
  if (memcmp(expected, actual, size * (size_t)count) == 0) return 1;
  const unsigned char *e = expected, *a = actual;
  for (int64_t i = 0; i < count; i++) {
    uint64_t want = t_element_bits(e + (size_t)i * size, dtype), have = t_element_bits(a + (size_t)i * size, dtype);
    if (want != have)
      return failed(file, line,
                    "%s\n    element %" PRId64 " of %" PRId64 ": expected bits 0x%" PRIx64 ", actual 0x%" PRIx64, what,
                    i, count, want, have);
  }
  return 1;
}

void t_context(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(context, sizeof context, format, list);
  va_end(list);
}

void t_skip(const char *reason) {
  skip_reason = reason;
}

long t_failures(void) {
  return atomic_load(&checks_failed);
}

/* ---- Instruction sets ---- */

t_isas t_usable_isas(void) {
  t_isas list = {{0}, 0};
  const char *only = getenv("RMSNORM_ONLY_ISA");
  for (int i = 0; i < rms_isa_count() && list.count < (int)T_COUNT(list.name); i++) {
    const char *name = rms_isa_name(i);
    if (rms_isa_usable(name) && (!only || strcmp(only, name) == 0)) list.name[list.count++] = name;
  }
  if (list.count == 0) {
    fprintf(stderr, "%s: RMSNORM_ONLY_ISA asks for %s, which is not usable here\n", program, only);
    exit(2);
  }
  return list;
}

static void say_isas(void) {
  printf("instruction sets:");
  for (int i = 0; i < rms_isa_count(); i++)
    printf(" %s (%s)", rms_isa_name(i), rms_isa_usable(rms_isa_name(i)) ? "run" : "compiled only, this CPU lacks it");
  printf("\n");
}

static int required_isas_present(void) {
  const char *list = getenv("RMSNORM_REQUIRE_ISA");
  int present = 1;
  while (list && *list) {
    size_t length = strcspn(list, ",");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)length, list);
    if (length && !rms_isa_usable(name)) {
      fprintf(stderr, "%s: RMSNORM_REQUIRE_ISA asks for %s, which is not usable here\n", program, name);
      present = 0;
    }
    list += length + (list[length] == ',');
  }
  return present;
}

/* ---- Running ---- */

static int wanted(const char *name, int argc, char **argv) {
  if (argc < 2) return 1;
  for (int i = 1; i < argc; i++)
    if (strstr(name, argv[i])) return 1;
  return 0;
}

/* 0 passed, 1 failed, SKIPPED skipped. */
static int run_case(const t_case *test) {
  atomic_store(&checks_made, 0);
  atomic_store(&checks_failed, 0);
  skip_reason = NULL;
  context[0] = 0;
  running = test->name;
  test->run();
  long count = atomic_load(&checks_made), bad = atomic_load(&checks_failed);
  if (bad == 0 && skip_reason) {
    printf("skip %s: %s\n", test->name, skip_reason);
    return SKIPPED;
  }
  if (bad == 0 && count == 0) {
    fprintf(stderr, "%s: the case checked nothing\n", test->name);
    bad = 1;
  }
  if (bad > PRINTED_FAILURES) fprintf(stderr, "%s: %ld more failures\n", test->name, bad - PRINTED_FAILURES);
  printf("%s %s (%ld checks)\n", bad ? "FAIL" : "ok", test->name, count);
  fflush(stdout);
  return bad ? 1 : 0;
}

int t_main(int argc, char **argv, const t_case *cases, size_t count) {
  program = argv[0];
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (size_t i = 0; i < count; i++)
      puts(cases[i].name);
    return 0;
  }
  say_isas();
  if (!required_isas_present()) return 1;
  size_t ran = 0, bad = 0, skips = 0;
  for (size_t i = 0; i < count; i++) {
    if (!wanted(cases[i].name, argc, argv)) continue;
    int result = run_case(&cases[i]);
    ran++;
    bad += result == 1;
    skips += result == SKIPPED;
  }
  if (ran == 0) {
    fprintf(stderr, "%s: no case has such a name; --list shows them\n", program);
    return 2;
  }
  printf("%zu cases, %zu failed, %zu skipped\n", ran, bad, skips);
  return bad ? 1 : skips == ran ? SKIPPED : 0;
}

/* ---- Random numbers ---- */

static uint64_t environment_number(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  uint64_t number = strtoull(text, &end, 10);
  if (*end) {
    fprintf(stderr, "%s: %s is not a number: %s\n", program, name, text);
    exit(2);
  }
  return number;
}

uint64_t t_seed(void) {
  return environment_number("RMSNORM_SEED", 1);
}

int64_t t_effort(int64_t count) {
  int64_t some = count * (int64_t)environment_number("RMSNORM_EFFORT", 100) / 100;
  return some < 1 ? 1 : some;
}

t_rng t_rng_make(uint64_t stream) {
  t_rng rng = {t_seed() * UINT64_C(0x9e3779b97f4a7c15) ^ stream * UINT64_C(0xd1342543de82ef95)};
  t_random(&rng);
  return rng;
}

uint64_t t_random(t_rng *rng) {
  return splitmix_next(&rng->state);
}

int64_t t_random_below(t_rng *rng, int64_t limit) {
  return (int64_t)(t_random(rng) % (uint64_t)limit);
}

/* ---- Guarded memory ---- */

static size_t slack(void) {
  return (size_t)environment_number("RMSNORM_GUARD_SLACK", 0);
}

t_guard t_guard_make(size_t capacity) {
  size_t page = page_size();
  t_guard guard;
  guard.room_bytes = ((capacity + slack()) / page + 1) * page;
  guard.map_bytes = guard.room_bytes + 2 * page;
  guard.map = pages_map(guard.map_bytes);
  if (!guard.map || !pages_open(guard.map + page, guard.room_bytes)) {
    perror("guarded memory");
    exit(1);
  }
  guard.room = guard.map + page;
  return guard;
}

int t_guard_fits(const t_guard *guard, size_t capacity) {
  return capacity + slack() <= guard->room_bytes;
}

void t_guard_free(t_guard *guard) {
  if (guard->map) pages_unmap(guard->map, guard->map_bytes);
  memset(guard, 0, sizeof *guard);
}

static size_t at_most(size_t most, const unsigned char *from, const unsigned char *to) {
  size_t have = (size_t)(to - from);
  return have < most ? have : most;
}

static size_t canary_before(const t_guard *guard, const unsigned char *data) {
  return at_most(CANARY_BYTES, guard->room, data);
}

static size_t canary_after(const t_guard *guard, const unsigned char *end) {
  return at_most(CANARY_BYTES, end, guard->room + guard->room_bytes);
}

void *t_guard_place(t_guard *guard, size_t bytes, t_flush flush, size_t offset) {
  offset += slack();
  if (bytes + offset > guard->room_bytes) {
    fprintf(stderr, "%s: %zu bytes do not fit into guarded memory of %zu\n", program, bytes, guard->room_bytes);
    exit(1);
  }
  unsigned char *data =
      flush == T_FLUSH_START ? guard->room + offset : guard->room + (guard->room_bytes - bytes - offset);
  memset(data - canary_before(guard, data), CANARY, canary_before(guard, data));
  memset(data + bytes, CANARY, canary_after(guard, data + bytes));
  return data;
}

int t_guard_intact(const t_guard *guard, const void *data, size_t bytes) {
  const unsigned char *from = data, *to = from + bytes;
  for (size_t i = canary_before(guard, from); i > 0; i--)
    if (from[-(ptrdiff_t)i] != CANARY) return 0;
  for (size_t i = canary_after(guard, to); i > 0; i--)
    if (to[i - 1] != CANARY) return 0;
  return 1;
}
