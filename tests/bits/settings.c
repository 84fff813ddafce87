/* SPDX-License-Identifier: MIT
 * The caller's floating-point settings change no bit: flush-to-zero, denormals-are-zero, rounding modes, exceptions
 * that trap, on the calling thread and on those of an executor. The settings come back as they were, with the exception
 * flags of the call added; and which flags a call may raise. */
#include "call.h"
#include "fp_word.h"

#include <math.h>
#include <string.h>

enum { SETTINGS = sizeof fp_settings / sizeof fp_settings[0] };

static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
static const rms_kind kinds[] = {RMS_KIND_RMS, RMS_KIND_LAYER};

/* ---- Settings on the calling thread ---- */

static uint64_t wanted, taken; /* what is set, and what of it the CPU takes */
static int changed;            /* how often the library came back with other settings */

static void set_wanted(void) {
  fp_set_word(wanted);
  taken = fp_word();
}

static void expect_wanted(void) {
  uint64_t word = fp_word();
  fp_set_word(FP_WORD_DEFAULT);
  changed += ((word ^ taken) & ~(uint64_t)FP_WORD_FLAGS) != 0;
}

static const t_around under_settings = {set_wanted, expect_wanted};

static void compare_settings(const t_call *call, t_layout layout) {
  t_result expected = t_run(call, &layout, NULL);
  layout.around = &under_settings;
  for (int s = 0; s < SETTINGS; s++) {
    wanted = fp_settings[s].word;
    changed = 0;
    t_result actual = t_run(call, &layout, NULL);
    t_context("settings: %s, %s", fp_settings[s].name, t_describe(call, &layout));
    t_same(&expected, &actual);
    T_EQ_INT(0, changed);
    t_result_free(&actual);
  }
  t_result_free(&expected);
}

/* Every way through the kernels: types, kinds, both forms, data at both ends of the range. */
static void calling_thread(void) {
  static const int64_t cols[] = {1, 40, 64, 257};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (int64_t k = 0; k < t_effort(24) && t_failures() < 20; k++) {
        t_call call = t_call_number(k, kinds[k & 1], dtypes[d], cols[(size_t)k % T_COUNT(cols)]);
        t_layout layout = t_dense;
        call.data = (t_data)(k % T_DATA_COUNT);
        layout.split = k % 5 == 4;
        compare_settings(&call, layout);
      }
  }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* A single row of plain RMSNorm takes a shortcut of its own. */
static void single_rows(void) {
  static const int64_t cols[] = {1, 64, 100};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (size_t c = 0; c < T_COUNT(cols) * T_DATA_COUNT; c++) {
        t_call call = {.outer = 1, .inner = 1, .data = (t_data)(c % T_DATA_COUNT), .seed = t_seed()};
        call.spec = (verify_spec){.cols = cols[c / T_DATA_COUNT], .eps = 1e-6, .dtype = dtypes[d]};
        call.spec.weight_dtype = call.spec.residual_dtype = call.spec.grad_dtype = dtypes[d];
        call.parts = c & 1 ? T_WEIGHT : 0;
        compare_settings(&call, t_dense);
      }
  }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

/* ---- Settings on the threads of an executor ---- */

static int64_t tasks_seen;

/* Each task under settings of its own, as on threads that differ. */
static void run_under_settings(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg) {
  (void)ctx;
  for (int64_t i = 0; i < tasks; i++) {
    wanted = fp_settings[i % SETTINGS].word;
    set_wanted();
    task(arg, i);
    expect_wanted();
  }
  tasks_seen += tasks;
}

static void compare_executor(const t_result *expected, const t_call *call, const rms_executor *executor) {
  t_result actual = t_run(call, &t_dense, executor);
  t_same(expected, &actual);
  t_result_free(&actual);
}

/* Threads start with the settings of the thread that creates them. */
static void compare_pool(const t_result *expected, const t_call *call, int setting) {
  rms_pool *pool = NULL;
  fp_set_word(fp_settings[setting].word);
  rms_status status = rms_pool_create(&pool, 3);
  fp_set_word(FP_WORD_DEFAULT);
  if (!T_EQ_STATUS(RMS_OK, status)) return;
  rms_executor executor = rms_pool_executor(pool);
  compare_executor(expected, call, &executor);
  rms_pool_destroy(pool);
}

static void executors(void) {
  static const t_data data[] = {T_TINY, T_WIDE, T_NORMAL};
  rms_executor mixed = {NULL, 3, run_under_settings};
  tasks_seen = changed = 0;
  for (size_t d = 0; d < T_COUNT(dtypes); d++)
    for (size_t k = 0; k < (size_t)t_effort(6) && t_failures() < 20; k++) {
      t_call call = t_call_number((int64_t)(3 * (d + k)), kinds[k & 1], dtypes[d], 515);
      call.outer = 700;
      call.inner = 1;
      call.data = data[k / 2];
      call.parts |= T_WEIGHT | T_BIAS | T_DX | T_DWEIGHT | T_DBIAS;
      t_call_repair(&call);
      t_result expected = t_run(&call, &t_dense, NULL);
      T_EQ_STATUS(RMS_OK, expected.forward);
      T_EQ_STATUS(RMS_OK, expected.backward);
      compare_executor(&expected, &call, &mixed);
      compare_pool(&expected, &call, (int)((d + k) % SETTINGS));
      compare_pool(&expected, &call, SETTINGS - 1);
      t_result_free(&expected);
    }
  T_EQ_INT(0, changed);
  T_CHECK(tasks_seen > 0);
}

/* ---- Arithmetic outside the kernels ---- */

static void merge(void) {
  enum { COUNT = 400 };
  static double source[2][3 * COUNT];
  static rms_stat into[COUNT], from[COUNT], expected[COUNT], actual[COUNT];
  for (int side = 0; side < 2; side++) {
    t_fill(source[side], RMS_F64, COUNT, T_TINY, t_seed(), (uint64_t)side, 1);
    t_fill(source[side] + COUNT, RMS_F64, COUNT, T_WIDE, t_seed(), (uint64_t)side, 2);
    t_fill(source[side] + 2 * COUNT, RMS_F64, COUNT, T_NORMAL, t_seed(), (uint64_t)side, 3);
    for (int i = 0; i < COUNT; i++) {
      const double *mean = &source[side][i % 3 * COUNT + i], *m2 = &source[side][(i + 1) % 3 * COUNT + i];
      (side ? from : into)[i] = (rms_stat){(double)(1 + (i * 7 + side) % 13), *mean, fabs(*m2)};
    }
  }
  for (size_t k = 0; k < T_COUNT(kinds); k++) {
    rms_spec spec = {.cols = 8, .eps = 1e-5, .kind = (int32_t)kinds[k]};
    memcpy(expected, into, sizeof into);
    T_EQ_STATUS(RMS_OK, rms_stats_merge(&spec, COUNT, expected, from));
    for (int s = 0; s < SETTINGS; s++) {
      t_context("settings: %s", fp_settings[s].name);
      memcpy(actual, into, sizeof into);
      wanted = fp_settings[s].word;
      changed = 0;
      set_wanted();
      rms_status status = rms_stats_merge(&spec, COUNT, actual, from);
      expect_wanted();
      T_EQ_STATUS(RMS_OK, status);
      T_EQ_BYTES(expected, actual, sizeof expected);
      T_EQ_INT(0, changed);
    }
  }
}

static void partial_count(void) {
  static const int64_t cols[] = {1, 3, 7, 100, 96, 1000, (INT64_C(1) << 53) + 1, INT64_MAX};
  static const double p[] = {0.07, 0.0625, 1.0 / 3, 0.1, 0.29, 0.57, 1, 1e-310, 0x1p-40, -1, 1.5, (double)NAN};
  for (size_t c = 0; c < T_COUNT(cols); c++)
    for (size_t i = 0; i < T_COUNT(p); i++) {
      int64_t expected = rms_partial_count(cols[c], p[i]);
      for (int s = 0; s < SETTINGS; s++) {
        t_context("settings: %s, cols=%lld p=%g", fp_settings[s].name, (long long)cols[c], p[i]);
        wanted = fp_settings[s].word;
        changed = 0;
        set_wanted();
        int64_t actual = rms_partial_count(cols[c], p[i]);
        expect_wanted();
        T_EQ_INT(expected, actual);
        T_EQ_INT(0, changed);
      }
    }
}

/* Subnormals are numbers and NaN traps nowhere: not even in the checks of arguments. */
static void argument_checks(void) {
  static const struct {
    double eps, offset;
    rms_status status;
  } specs[] = {{-1e-310, 0, RMS_E_EPS},
               {(double)NAN, 0, RMS_E_EPS},
               {-(double)NAN, 0, RMS_E_EPS},
               {-1, 0, RMS_E_EPS},
               {(double)INFINITY, 0, RMS_E_EPS},
               {3.5e38, 0, RMS_E_EPS},
               {1e-310, 0, RMS_OK},
               {-0.0, 0, RMS_OK},
               {3.4e38, 0, RMS_OK},
               {1, -1e-310, RMS_OK},
               {1, (double)NAN, RMS_E_MODE},
               {1, -(double)INFINITY, RMS_E_MODE},
               {1, -3.5e38, RMS_E_MODE}};
  static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, weight[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  for (size_t i = 0; i < T_COUNT(specs); i++)
    for (int s = 0; s < SETTINGS; s++) {
      float y[8];
      rms_spec spec = {.cols = 8, .eps = specs[i].eps, .weight_offset = specs[i].offset};
      rms_forward_args args = {.outer = 1, .x = {.data = x, .dtype = RMS_F32}, .weight = weight, .y = {.data = y}};
      t_context("settings: %s, eps=%g offset=%g", fp_settings[s].name, specs[i].eps, specs[i].offset);
      wanted = fp_settings[s].word;
      set_wanted();
      rms_status status = rms_forward(&spec, &args, NULL);
      expect_wanted();
      T_EQ_STATUS(specs[i].status, status);
    }
}

/* ---- Exception flags ---- */

static int before, raised;

static void clear_flags(void) {
  feclearexcept(FE_ALL_EXCEPT);
  if (before) feraiseexcept(before);
}

static void look_at_flags(void) {
  raised |= fetestexcept(FE_ALL_EXCEPT);
}

static const t_around watching_flags = {clear_flags, look_at_flags};

/* Flags that were raised stay raised and those of the call are added, also where the settings are put right. */
static void flags_are_kept(void) {
  static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float y[8];
  for (int s = -1; s < SETTINGS; s++)
    for (int64_t rows = 1; rows <= 2; rows++) {
      t_context("settings: %s, %d rows", s < 0 ? "default" : fp_settings[s].name, (int)rows);
      before = FE_OVERFLOW;
      clear_flags();
      fp_set_word((s < 0 ? FP_WORD_DEFAULT : fp_settings[s].word) | (fp_word() & FP_WORD_FLAGS));
      rms_status status = rms_norm_f32(y, x, NULL, rows, 8 / rows, 1e-5);
      fp_set_word(FP_WORD_DEFAULT | (fp_word() & FP_WORD_FLAGS));
      T_EQ_STATUS(RMS_OK, status);
      T_EQ_INT(FE_OVERFLOW | FE_INEXACT, fetestexcept(FE_OVERFLOW | FE_INEXACT | FE_INVALID | FE_DIVBYZERO));
    }
  before = 0;
  feclearexcept(FE_ALL_EXCEPT);
}

static void expect_no_division_by_zero(const t_call *call, t_layout layout) {
  raised = 0;
  layout.around = &watching_flags;
  t_result result = t_run(call, &layout, NULL);
  T_EQ_STATUS(RMS_OK, result.forward);
  T_EQ_STATUS(RMS_OK, result.backward);
  T_EQ_INT(0, raised & FE_DIVBYZERO);
  t_result_free(&result);
}

/* Every kernel, on rows whose elements repeat the bytes of `raw`, or on data of all styles where that is NULL. */
static void walk_flags(const unsigned char *raw, size_t raw_bytes) {
  static const int64_t cols[] = {1, 40, 64, 128, 257, 3000};
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (int64_t k = 0; k < t_effort(96) && t_failures() < 20; k++) {
        t_call call = t_call_number(k, kinds[k & 1], dtypes[d], cols[(size_t)(k / 2) % T_COUNT(cols)]);
        t_layout layout = t_dense;
        if (raw) call.spec.eps = 0;
        call.data = raw ? T_NORMAL : (t_data)(k / 3 % T_SPECIAL); /* finite */
        call.raw = raw;
        call.raw_bytes = raw_bytes;
        if (raw) call.parts &= ~(unsigned)(T_RESIDUAL | T_RESIDUAL_OUT);
        if (k % 4 == 0) call.spec.rounding = RMS_ROUND_AFTER_WEIGHT, call.spec.partial = 0;
        if (k % 8 == 0) call.parts = T_WEIGHT | T_BACKWARD | T_DX | T_DWEIGHT;
        if (k % 16 == 0) call.outer = call.inner = 1;
        t_call_repair(&call);
        layout.split = k % 3 == 2;
        expect_no_division_by_zero(&call, layout);
      }
  }
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
}

static void zero_rows(void) {
  static const unsigned char zeros[8];
  walk_flags(zeros, sizeof zeros);
}

/* LayerNorm's statistic is zero; 0x3c3c... is an ordinary number in every type. */
static void constant_rows(void) {
  static const unsigned char same[8] = {0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c};
  walk_flags(same, sizeof same);
}

static void finite_rows(void) {
  walk_flags(NULL, 0);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"calling_thread", calling_thread}, {"single_rows", single_rows},
                                 {"executors", executors},           {"merge", merge},
                                 {"partial_count", partial_count},   {"argument_checks", argument_checks},
                                 {"flags_are_kept", flags_are_kept}, {"zero_rows", zero_rows},
                                 {"constant_rows", constant_rows},   {"finite_rows", finite_rows}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
