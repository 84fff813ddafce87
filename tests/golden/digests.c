/* SPDX-License-Identifier: MIT
 * The bits of fixed inputs, as hashes in a file that is checked in: they must be the same on every instruction set,
 * with every compiler, on every architecture, and in every later version unless docs/numerics.md says that they
 * changed.
 *
 *   digests FILE             compares
 *   digests --refresh FILE   writes the file anew, after a change of the numerics that was meant */
#include "call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *path;

typedef struct row {
  const char *name;
  rms_kind kind;
  unsigned parts;
  t_data data;
  int longer; /* rows of more than a portion of 16,384 elements */
  rms_gate_place gate;
  int own_y;     /* y and dy have another type than x (not f64)                        */
  int adaln;     /* weights at a stride, for each inner index; weight + offset rounded */
  int heads;     /* this many inner indices, each with its weight                      */
  int quantised; /* types, blocks and scales in turn */
  rms_steps steps;
  int clamped; /* eps bounds the root mean square, in every other size that of plain values */
} row;

static const row rows[] = {
    {"rms", RMS_KIND_RMS, T_WEIGHT | T_SAVE_STATS | T_BACKWARD | T_DX | T_DWEIGHT, T_NORMAL},
    {"rms-residual", RMS_KIND_RMS,
     T_WEIGHT | T_RESIDUAL | T_RESIDUAL_OUT | T_BACKWARD | T_DX | T_DRESIDUAL | T_DRESIDUAL_OUT | T_DWEIGHT, T_NORMAL},
    {"rms-everything", RMS_KIND_RMS, T_EVERYTHING, T_WIDE},
    {"rms-huge", RMS_KIND_RMS, T_WEIGHT | T_BACKWARD | T_DX | T_DWEIGHT, T_HUGE},
    {"rms-tiny", RMS_KIND_RMS, T_WEIGHT | T_BACKWARD | T_DX | T_DWEIGHT, T_TINY},
    {"rms-special", RMS_KIND_RMS, T_EVERYTHING, T_SPECIAL},
    {"layer", RMS_KIND_LAYER, T_WEIGHT | T_BIAS | T_SAVE_STATS | T_BACKWARD | T_DX | T_DWEIGHT | T_DBIAS, T_NORMAL},
    {"layer-everything", RMS_KIND_LAYER, T_EVERYTHING, T_WIDE},
    {"layer-constant", RMS_KIND_LAYER, T_WEIGHT | T_BACKWARD | T_DX, T_CONSTANT},
    {"layer-huge", RMS_KIND_LAYER, T_WEIGHT | T_BACKWARD | T_DX | T_DWEIGHT, T_HUGE},
    {"layer-special", RMS_KIND_LAYER, T_EVERYTHING, T_SPECIAL},
    {"rms-long", RMS_KIND_RMS, T_EVERYTHING, T_NORMAL, 1},
    {"layer-long", RMS_KIND_LAYER, T_EVERYTHING, T_NORMAL, 1},
    {"rms-gate-after", RMS_KIND_RMS, T_EVERYTHING | T_DGATE, T_WIDE, 0, RMS_GATE_AFTER},
    {"rms-gate-before", RMS_KIND_RMS, T_EVERYTHING | T_DGATE, T_NORMAL, 0, RMS_GATE_BEFORE},
    {"layer-gate-after", RMS_KIND_LAYER, T_EVERYTHING | T_DGATE, T_SPECIAL, 0, RMS_GATE_AFTER},
    {"layer-gate-before", RMS_KIND_LAYER, T_EVERYTHING | T_DGATE, T_TINY, 0, RMS_GATE_BEFORE},
    {"rms-own-y", RMS_KIND_RMS, T_WEIGHT | T_SAVE_STATS | T_BACKWARD | T_DX | T_DWEIGHT, T_WIDE, .own_y = 1},
    {"layer-own-y", RMS_KIND_LAYER, T_WEIGHT | T_BIAS | T_BACKWARD | T_DX | T_DWEIGHT | T_DBIAS, T_NORMAL, .own_y = 1},
    {"rms-gate-own-y", RMS_KIND_RMS, T_WEIGHT | T_BACKWARD | T_DX | T_DWEIGHT | T_DGATE, T_NORMAL, 0, RMS_GATE_AFTER,
     .own_y = 1},
    {"layer-adaln", RMS_KIND_LAYER, T_WEIGHT | T_BIAS | T_BACKWARD | T_DX | T_DWEIGHT | T_DBIAS, T_NORMAL, .adaln = 1},
    {"rms-adaln", RMS_KIND_RMS, T_EVERYTHING, T_WIDE, .adaln = 1},
    {"layer-heads", RMS_KIND_LAYER, T_EVERYTHING, T_NORMAL, .heads = 37},
    {"layer-no-y", RMS_KIND_LAYER, T_RESIDUAL | T_RESIDUAL_OUT | T_SAVE_STATS | T_NO_Y, T_WIDE},
    {"rms-quantised", RMS_KIND_RMS, T_WEIGHT | T_RESIDUAL | T_RESIDUAL_OUT, T_NORMAL, .quantised = 1},
    {"rms-quantised-special", RMS_KIND_RMS, T_WEIGHT | T_BIAS, T_SPECIAL, .quantised = 1},
    {"layer-quantised-wide", RMS_KIND_LAYER, T_WEIGHT | T_BIAS | T_SAVE_STATS, T_WIDE, .quantised = 1},
    {"layer-quantised-long", RMS_KIND_LAYER, T_WEIGHT, T_NORMAL, 1, .quantised = 1},
    {"rms-clamp", RMS_KIND_RMS, T_EVERYTHING, T_NORMAL, .clamped = 1},
    {"layer-clamp", RMS_KIND_LAYER, T_EVERYTHING, T_CONSTANT, .clamped = 1},
    {"rms-clamp-gate", RMS_KIND_RMS, T_EVERYTHING | T_DGATE, T_WIDE, 0, RMS_GATE_BEFORE, .clamped = 1},
    {"rms-terms", RMS_KIND_RMS, T_EVERYTHING, T_NORMAL, .steps = RMS_STEPS_TERMS},
    {"rms-terms-wide", RMS_KIND_RMS, T_EVERYTHING, T_WIDE, .steps = RMS_STEPS_TERMS, .clamped = 1},
    {"rms-rstd", RMS_KIND_RMS, T_EVERYTHING, T_NORMAL, .steps = RMS_STEPS_RSTD},
    {"rms-rstd-special", RMS_KIND_RMS, T_BACKWARD | T_DX | T_DWEIGHT, T_SPECIAL, .steps = RMS_STEPS_RSTD},
    {"rms-all", RMS_KIND_RMS, T_EVERYTHING, T_NORMAL, .steps = RMS_STEPS_ALL},
    {"rms-all-wide", RMS_KIND_RMS, T_WEIGHT | T_SAVE_STATS | T_BACKWARD | T_DX | T_DWEIGHT, T_WIDE,
     .steps = RMS_STEPS_ALL},
    {"rms-all-clamp", RMS_KIND_RMS, T_EVERYTHING, T_NORMAL, .steps = RMS_STEPS_ALL, .clamped = 1},
    {"layer-all", RMS_KIND_LAYER, T_EVERYTHING, T_NORMAL, .steps = RMS_STEPS_ALL},
    {"layer-all-special", RMS_KIND_LAYER, T_EVERYTHING, T_SPECIAL, .steps = RMS_STEPS_ALL},
    {"layer-all-long", RMS_KIND_LAYER, T_EVERYTHING, T_NORMAL, 1, .steps = RMS_STEPS_ALL},
};

/* One hash over all the sizes of a table row, data type and variant. */
static uint64_t digest_of(const row *r, rms_dtype dtype, int variant) {
  static const int64_t usual[] = {1, 2, 17, 63, 64, 65, 96, 300, 1000, 4097}, longer[] = {16384, 16385, 40000, 70001};
  static const int64_t groups[] = {0, 0, 0, 3, 2, 5, 3, 0, 4, 0};
  static const rms_dtype own_types[][2] = {
      [RMS_F32] = {RMS_BF16, RMS_F16}, [RMS_BF16] = {RMS_F32, RMS_F16}, [RMS_F16] = {RMS_F32, RMS_BF16}};
  const int64_t *cols = r->longer ? longer : usual;
  uint64_t hash = 0;
  for (size_t c = 0; c < (r->longer ? T_COUNT(longer) : T_COUNT(usual)); c++) {
    t_call call = {.outer = c < 7 && !r->longer ? 70 : 3,
                   .inner = 1 + variant,
                   .parts = r->parts,
                   .data = r->data,
                   .seed = 1000 + c};
    verify_spec *spec = &call.spec;
    spec->cols = cols[c];
    spec->kind = r->kind;
    spec->eps = c % 3 == 0 ? 0.0 : 1e-5;
    spec->dtype = dtype;
    spec->weight_dtype = spec->residual_dtype = variant ? dtype : RMS_F32;
    spec->grad_dtype = RMS_F32;
    spec->rounding = variant ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
    spec->eps_place = variant && c % 2 ? RMS_EPS_OUTSIDE : RMS_EPS_INSIDE;
    spec->weight_offset = variant ? 1.0 : 0.0;
    spec->weight_per_inner = variant;
    spec->gate_place = r->gate;
    spec->activation = r->gate && c % 2 ? RMS_ACT_SIGMOID : RMS_ACT_SILU;
    spec->partial = c % 4 == 3 ? (cols[c] + 3) / 4 : 0; /* 16 of the 21 elements of a group, 75 of 300 */
    spec->groups = r->longer ? 0 : groups[c];
    call.indexed = variant;
    if (r->own_y) spec->y_dtype = own_types[dtype][variant];
    if (r->adaln) {
      spec->weight_per_inner = 1;
      spec->weight_offset = 1 + (double)c / 8;
      spec->gain_rounding = RMS_GAIN_AS_WEIGHT;
      call.inner = 3;
      call.weight_gap = (int64_t)c * 5;
    }
    spec->steps = r->steps;
    if (r->clamped) {
      spec->eps_place = RMS_EPS_CLAMP;
      if (c % 2) spec->eps = 1;
    }
    if (r->heads) {
      spec->weight_per_inner = 1;
      call.inner = r->heads;
    }
    t_call_repair(&call);
    if (r->quantised) {
      call.spec.cols = (call.spec.cols + 31) / 32 * 32; /* so that q8_0 has its turn */
      call.spec.groups = 0;
      t_call_repair(&call);
      t_call_quantise(&call, (int64_t)c + 3 * (int64_t)dtype + variant);
    }
    t_result result = t_run(&call, &t_dense, NULL);
    T_EQ_STATUS(RMS_OK, result.forward);
    T_EQ_STATUS(RMS_OK, result.backward);
    hash = hash * 31 + t_digest(&result);
    t_result_free(&result);
  }
  return hash;
}

/* Every step-th line; an empty line in place of the others. */
static void write_lines(FILE *file, int64_t step) {
  int64_t line = 0;
  static const char *const dtype_names[] = {"f32", "f64", "bf16", "f16"};
  static const char *const variants[] = {"after", "before"};
  for (size_t r = 0; r < T_COUNT(rows); r++)
    for (int dtype = 0; dtype < 4; dtype++)
      for (int variant = 0; variant < 2; variant++) {
        if (line++ % step) {
          fputc('\n', file);
          continue;
        }
        fprintf(file, "%s %s %s %016" PRIx64 "\n", rows[r].name, dtype_names[dtype], variants[variant],
                digest_of(&rows[r], (rms_dtype)(RMS_F32 + dtype), variant));
      }
}

static void compare_lines(FILE *golden, FILE *now, const char *isa) {
  char want[160], have[160];
  while (fgets(have, sizeof have, now)) {
    have[strcspn(have, "\n")] = 0;
    t_context("isa=%s", isa);
    if (!T_CHECK(fgets(want, sizeof want, golden) != NULL)) return;
    want[strcspn(want, "\n")] = 0;
    if (*have) T_EQ_STR(want, have);
  }
  T_CHECK(fgets(want, sizeof want, golden) == NULL);
}

static void digests(void) {
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count; i++) {
    /* With less effort, as in emulators, all lines of the best instruction set and some of the others'. An odd step has
     * every type and variant among them. */
    int64_t step = i == isas.count - 1 ? 1 : 100 / t_effort(100) | 1;
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    FILE *now = tmpfile(), *golden = fopen(path, "r");
    if (T_CHECK(now != NULL) && T_CHECK(golden != NULL)) {
      write_lines(now, step);
      rewind(now);
      compare_lines(golden, now, isas.name[i]);
    }
    if (now) fclose(now);
    if (golden) fclose(golden);
  }
}

static void refresh(void) {
  FILE *file = fopen(path, "w");
  if (!T_CHECK(file != NULL)) return;
  T_EQ_STATUS(RMS_OK, rms_isa_force("scalar"));
  write_lines(file, 1);
  T_EQ_INT(0, fclose(file));
}

int main(int argc, char **argv) {
  static const t_case compare_case[] = {{"digests", digests}}, refresh_case[] = {{"refresh", refresh}};
  int refreshing = argc == 3 && strcmp(argv[1], "--refresh") == 0;
  if (argc != 2 && !refreshing) {
    fprintf(stderr, "usage: %s [--refresh] FILE\n", argv[0]);
    return 2;
  }
  path = argv[argc - 1];
  return t_main(1, argv, refreshing ? refresh_case : compare_case, 1);
}
