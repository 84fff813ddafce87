/* SPDX-License-Identifier: MIT
 * Programs that were compiled with an older or a newer header: their structs are shorter or longer than the library's.
 * A struct lies in front of a guard page, so that reading past its end is a fault. */
#include "world.h"

#include <string.h>

enum { LONGER = 64, CALLS = 6 };

static t_guard rooms[2];

/* The caller's structs, `spec_more` and `args_more` bytes longer than the library's (or shorter); `tail` is the last
 * byte of what is longer. */
typedef struct sizes {
  int spec_more, args_more;
  unsigned char spec_tail, args_tail;
} sizes;

static void *place(t_guard *room, const void *from, size_t known, int more, unsigned char tail) {
  size_t size = (size_t)((int64_t)known + more);
  unsigned char *at = t_guard_place(room, size, T_FLUSH_END, 0);
  memset(at, 0, size);
  memcpy(at, from, size < known ? size : known);
  if (more > 0) at[size - 1] = tail;
  return at;
}

static rms_status call(world *w, int function, sizes s) {
  int forward = function < 3;
  size_t spec_size = (size_t)((int64_t)sizeof w->spec + s.spec_more);
  size_t known = forward ? sizeof w->forward : sizeof w->backward, args_size = (size_t)((int64_t)known + s.args_more);
  const rms_spec *spec = place(&rooms[0], &w->spec, sizeof w->spec, s.spec_more, s.spec_tail);
  const void *args =
      place(&rooms[1], forward ? (void *)&w->forward : (void *)&w->backward, known, s.args_more, s.args_tail);
  switch (function) {
  case 0:
    return rms_forward_sized(spec, spec_size, args, args_size, NULL);
  case 1:
    return rms_stats_sized(spec, spec_size, args, args_size, w->stats, NULL);
  case 2:
    return rms_apply_sized(spec, spec_size, args, args_size, w->stats, NULL);
  case 3:
    return rms_backward_sized(spec, spec_size, args, args_size, NULL);
  case 4:
    return rms_backward_stats_sized(spec, spec_size, args, args_size, w->stats, w->sums, NULL);
  default:
    return rms_backward_apply_sized(spec, spec_size, args, args_size, w->stats, w->sums, NULL);
  }
}

/* The outputs of a call with structs of any size that say the same are the same. */
static void expect_same(int function, sizes s) {
  static world expected;
  world *w = w_fresh();
  T_EQ_STATUS(RMS_OK, call(w, function, (sizes){0, 0, 0, 0}));
  expected = *w;
  w = w_fresh();
  t_context("function=%d spec%+d args%+d", function, s.spec_more, s.args_more);
  T_EQ_STATUS(RMS_OK, call(w, function, s));
  T_EQ_BYTES(&expected, w, sizeof expected);
}

/* The last fields of both structs are zeros in the world: a program that does not know them means the same. */
static void shorter(void) {
  for (int function = 0; function < CALLS; function++) {
    expect_same(function, (sizes){-4, 0, 0, 0});
    expect_same(function, (sizes){0, -8, 0, 0});
    expect_same(function, (sizes){-4, -8, 0, 0});
  }
}

static void longer_with_zeros(void) {
  for (int function = 0; function < CALLS; function++)
    for (int more = 1; more <= LONGER; more += more < 8 ? 1 : 8) {
      expect_same(function, (sizes){more, 0, 0, 0});
      expect_same(function, (sizes){0, more, 0, 0});
      expect_same(function, (sizes){more, more, 0, 0});
    }
}

/* Something that this library does not know is asked for: nothing is done. */
static void longer_with_more(void) {
  static world before;
  for (int function = 0; function < CALLS; function++)
    for (int more = 1; more <= LONGER; more += more < 8 ? 1 : 8)
      for (int which = 0; which < 2; which++) {
        sizes s = {which ? 0 : more, which ? more : 0, 1, 0x80};
        world *w = w_fresh();
        before = *w;
        t_context("function=%d which=%d more=%d", function, which, more);
        T_EQ_STATUS(RMS_E_VERSION, call(w, function, s));
        T_EQ_BYTES(&before, w, sizeof before);
      }
}

/* The two that take something else than one call's structs. */
static void merge_and_workspace(void) {
  world *w = w_fresh();
  size_t need = rms_backward_workspace(&w->spec, &w->backward);
  for (int more = -8; more <= LONGER; more += 4)
    for (int tail = 0; tail < (more > 0 ? 2 : 1); tail++) {
      const rms_backward_args *args = place(&rooms[1], &w->backward, sizeof w->backward, more, (unsigned char)tail);
      size_t size = (size_t)((int64_t)sizeof w->backward + more);
      t_context("more=%d tail=%d", more, tail);
      T_EQ_INT(tail ? 0 : (int64_t)need, (int64_t)rms_backward_workspace_sized(&w->spec, sizeof w->spec, args, size));
    }
  for (int more = -4; more <= LONGER; more += 4)
    for (int tail = 0; tail < (more > 0 ? 2 : 1); tail++) {
      const rms_spec *spec = place(&rooms[0], &w->spec, sizeof w->spec, more, (unsigned char)tail);
      size_t size = (size_t)((int64_t)sizeof w->spec + more);
      t_context("more=%d tail=%d", more, tail);
      w = w_fresh();
      T_EQ_STATUS(tail ? RMS_E_VERSION : RMS_OK, rms_stats_merge_sized(spec, size, 1, &w->stats[0], &w->stats[1]));
      T_EQ_F64(tail ? W_COLS : 2 * W_COLS, w->stats[0].count);
    }
}

/* A struct of no bytes says nothing, and that is refused like a struct of zeros. */
static void nothing_at_all(void) {
  world *w = w_fresh();
  T_EQ_STATUS(RMS_E_COLS, rms_forward_sized(&w->spec, 0, &w->forward, sizeof w->forward, NULL));
  T_EQ_STATUS(RMS_E_DTYPE, rms_forward_sized(&w->spec, sizeof w->spec, &w->forward, 0, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward_sized(NULL, sizeof w->spec, &w->forward, sizeof w->forward, NULL));
  T_EQ_STATUS(RMS_E_ARGUMENT, rms_forward_sized(&w->spec, sizeof w->spec, NULL, 0, NULL));
}

int main(int argc, char **argv) {
  for (size_t i = 0; i < T_COUNT(rooms); i++)
    rooms[i] = t_guard_make(1024);
  static const t_case cases[] = {{"shorter", shorter},
                                 {"longer_with_zeros", longer_with_zeros},
                                 {"longer_with_more", longer_with_more},
                                 {"merge_and_workspace", merge_and_workspace},
                                 {"nothing_at_all", nothing_at_all}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
