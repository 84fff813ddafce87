/* SPDX-License-Identifier: MIT
 * Every usable instruction set gives the bits of the scalar kernels, wherever the data lies. */
#include "call.h"

static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};
static const rms_kind kinds[] = {RMS_KIND_RMS, RMS_KIND_LAYER};

/* The scalar kernels on dense data against every instruction set, scalar too, in the layout. */
static int compare(const t_call *call, const t_layout *layout) {
  t_isas isas = t_usable_isas();
  T_EQ_STATUS(RMS_OK, rms_isa_force("scalar"));
  t_result expected = t_run(call, &t_dense, NULL);
  int same = T_EQ_STATUS(RMS_OK, expected.forward) && T_EQ_STATUS(RMS_OK, expected.backward);
  for (int i = 0; same && i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    t_result actual = t_run(call, layout, NULL);
    same = t_same(&expected, &actual);
    t_result_free(&actual);
  }
  t_result_free(&expected);
  return same;
}

/* Around the edges of the vector, of the 64 lanes and of pages; each with many combinations of options. */
static void sizes(void) {
  static const int64_t cols[] = {1,  2,  3,  4,  5,   7,   8,   9,   12,  15,  16,  17,   24,   31,   32,   33,  48,
                                 63, 64, 65, 96, 127, 128, 129, 191, 192, 193, 257, 1000, 1023, 4095, 4096, 4097};
  t_rng rng = t_rng_make(1);
  for (size_t c = 0; c < T_COUNT(cols); c++)
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (size_t kind = 0; kind < T_COUNT(kinds); kind++)
        for (int64_t k = 0; k < t_effort(cols[c] < 1000 ? 12 : 4) && t_failures() < 20; k++) {
          t_call call = t_call_number(k, kinds[kind], dtypes[d], cols[c]);
          t_layout layout = t_layout_draw(&rng);
          compare(&call, &layout);
        }
}

/* Rows that start at every byte of a cache line, stored past the caches and through them. */
static void offsets(void) {
  static const int64_t cols[] = {5, 64, 131};
  size_t step = 64 / (size_t)t_effort(64);
  for (size_t offset = 0; offset < 64; offset += step)
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (size_t c = 0; c < T_COUNT(cols); c++)
        for (int64_t stream = 0; stream < 2 && t_failures() < 20; stream++) {
          t_call call = t_call_number((int64_t)(offset + d), kinds[offset % 2], dtypes[d], cols[c]);
          t_layout layout = t_dense;
          layout.flush = T_FLUSH_START;
          layout.offset = offset;
          layout.stream_bytes = stream ? INT64_MAX : 0;
          compare(&call, &layout);
        }
}

/* Results that lie some lines behind what is read, modulo pages, where loads and stores go in another order. */
static void behind(void) {
  static const int64_t cols[] = {64, 100, 128, 192, 256, 300, 768, 1024, 4096};
  for (size_t c = 0; c < T_COUNT(cols); c++)
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (size_t kind = 0; kind < T_COUNT(kinds); kind++)
        for (int64_t k = 0; k < t_effort(cols[c] < 1000 ? 12 : 6) && t_failures() < 20; k++) {
          t_call call = t_call_number(k, kinds[kind], dtypes[d], cols[c]);
          if (k % 2) call.parts |= T_WEIGHT; /* and nothing unusual: the loops for most models */
          if (k % 2) verify_spec_set_types(&call.spec, dtypes[d]);
          if (k % 2) call.spec.groups = 0, call.spec.indices = NULL, call.indexed = 0, call.parts &= ~(unsigned)T_NO_Y;
          t_call_repair(&call);
          t_layout layout = t_dense;
          layout.flush = T_FLUSH_START;
          layout.behind = (size_t)64 << k % 3;
          layout.stream_bytes = INT64_MAX;
          compare(&call, &layout);
        }
}

/* Values at the edges of the types' ranges: scaled rows, zeros, NaN and infinities. */
static void values(void) {
  static const int64_t cols[] = {1, 6, 33, 64, 100, 300};
  for (int data = 0; data < T_DATA_COUNT; data++)
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (size_t c = 0; c < T_COUNT(cols); c++)
        for (int64_t k = 0; k < t_effort(6) && t_failures() < 20; k++) {
          t_call call = t_call_number(k, kinds[k % 2], dtypes[d], cols[c]);
          call.data = (t_data)data;
          call.spec.eps = k < 3 ? 0.0 : 1e-6;
          call.outer = 4;
          t_call_repair(&call);
          compare(&call, &t_dense);
        }
}

/* Quantised outputs: types, blocks and scales around the edges of the vectors, of a part and of the room for y. */
static void quantised(void) {
  static const int64_t cols[] = {1,   2,   15,   16,   31,   32,   33,   64,    96,
                                 100, 128, 1000, 1024, 4096, 4128, 8200, 16384, 33000};
  t_rng rng = t_rng_make(3);
  for (size_t c = 0; c < T_COUNT(cols); c++)
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (int64_t k = 0; k < t_effort(cols[c] < 1000 ? 24 : 6) && t_failures() < 20; k++) {
        t_call call = t_call_number(k, kinds[k % 2], dtypes[d], cols[c]);
        call.parts &= ~(unsigned)T_BACKWARD;
        if (k % 4 == 3) call.outer = 40; /* several steps of short rows */
        if (cols[c] >= 1000) call.outer = 2, call.inner = 1;
        t_call_quantise(&call, k + (int64_t)d);
        t_layout layout = t_layout_draw(&rng);
        compare(&call, &layout);
      }
}

/* y beside q is that of the plain call, and q is the same without y. */
static void beside_y(void) {
  static const int64_t cols[] = {1, 32, 100, 4096, 20000};
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  for (size_t c = 0; c < T_COUNT(cols); c++)
    for (size_t d = 0; d < T_COUNT(dtypes); d++)
      for (int64_t k = 0; k < t_effort(cols[c] < 1000 ? 24 : 4) && t_failures() < 20; k++) {
        t_call call = t_call_number(k, kinds[k % 2], dtypes[d], cols[c]);
        call.parts &= ~(unsigned)(T_BACKWARD | T_NO_Y);
        t_result plain = t_run(&call, &t_dense, NULL);
        t_call_quantise(&call, k);
        call.parts &= ~(unsigned)T_NO_Y;
        t_result both = t_run(&call, &t_dense, NULL);
        t_same_part(&plain, &both, T_OUT_Y, 0);
        t_same_part(&plain, &both, T_OUT_SUM, 0);
        t_same_part(&plain, &both, T_OUT_RSTD, 0);
        t_same_part(&plain, &both, T_OUT_MEAN, 0);
        if (call.spec.q_dtype) call.parts |= T_NO_Y;
        t_result alone = t_run(&call, &t_dense, NULL);
        t_same_part(&both, &alone, T_OUT_Q, 0);
        t_same_part(&both, &alone, T_OUT_SCALE, 0);
        t_result_free(&plain);
        t_result_free(&both);
        t_result_free(&alone);
      }
}

static void at_random(void) {
  t_rng rng = t_rng_make(2);
  for (int i = 0; i < t_effort(3000) && t_failures() < 20; i++) {
    t_call call = t_call_draw(&rng, i % 50 ? 3000 : 20000);
    t_layout layout = t_layout_draw(&rng);
    compare(&call, &layout);
  }
}

/* Enough bytes that a non-temporal path with whole cache lines, prefetching and long rows is taken. */
static void large(void) {
  for (size_t d = 0; d < T_COUNT(dtypes); d++)
    for (size_t kind = 0; kind < T_COUNT(kinds); kind++)
      for (int64_t k = 0; k < t_effort(4) && t_failures() < 20; k++) {
        t_call call = t_call_number(k, kinds[kind], dtypes[d], k & 1 ? 70001 : 640);
        call.outer = k & 1 ? 2 : 150;
        t_layout layout = t_dense;
        layout.flush = k & 2 ? T_FLUSH_START : T_FLUSH_END;
        layout.stream_bytes = k & 2 ? 0 : INT64_MAX;
        compare(&call, &layout);
      }
}

/* Wide rows past the caches go in batches (on CPUs where that pays), their columns in strips: widths around a strip,
 * now and then a row that leaves the range. The last one has more than 64 rows a chunk, so that a batch meets the end
 * of a block of column sums. */
static void groups(void) {
  static const struct {
    int64_t cols, rows;
    rms_dtype dtype;
  } shapes[] = {{2064, 67, RMS_F32}, {4096, 69, RMS_F32},  {5136, 71, RMS_F32},  {1040, 67, RMS_F64},
                {2576, 69, RMS_F64}, {4112, 71, RMS_BF16}, {1040, 4200, RMS_F64}};
  for (size_t i = 0; i < T_COUNT(shapes) && t_failures() < 20; i++) {
    enum { ROWS = 5 };
    static unsigned char x[ROWS * 5136 * 8];
    rms_dtype type = shapes[i].dtype;
    size_t row = (size_t)shapes[i].cols * rms_dtype_size(type);
    for (int r = 0; r < ROWS; r++)
      t_fill(x + (size_t)r * row, type, shapes[i].cols, r == 3 && i % 2 == 0 ? T_HUGE : T_NORMAL, t_seed(), i, r);
    t_call call = {.outer = shapes[i].rows, .inner = 1, .seed = t_seed(), .raw = x, .raw_bytes = ROWS * row};
    call.parts = T_WEIGHT | T_BACKWARD | T_DX | T_DWEIGHT | (i & 2 ? T_SAVE_STATS : 0);
    call.spec = (verify_spec){.cols = shapes[i].cols, .eps = 1e-5};
    verify_spec_set_types(&call.spec, type);
    t_layout layout = t_dense;
    layout.flush = T_FLUSH_START;
    layout.stream_bytes = 0;
    compare(&call, &layout);
  }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"sizes", sizes},   {"offsets", offsets},     {"behind", behind},
                                 {"values", values}, {"at_random", at_random}, {"large", large},
                                 {"groups", groups}, {"quantised", quantised}, {"beside_y", beside_y}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
