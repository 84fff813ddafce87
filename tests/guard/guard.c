/* SPDX-License-Identifier: MIT
 * Every buffer of every call against an inaccessible page, at its end and at its start, on every instruction set: a
 * load or store of one byte too much is a crash, also where sanitizers see nothing (masked vector instructions). */
#include "call.h"

static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};

/* Runs the call at both ends; the two runs must agree, which also makes each case check something. */
static void both_ends(const t_call *call, int64_t gap, int64_t stream_bytes, int split, int channels_first) {
  t_layout layout = t_dense;
  layout.channels_first = channels_first;
  layout.inner_gap = gap;
  layout.outer_gap = 2 * gap;
  layout.stream_bytes = stream_bytes;
  layout.split = split;
  layout.flush = T_FLUSH_END;
  t_result end = t_run(call, &layout, NULL);
  layout.flush = T_FLUSH_START;
  t_result start = t_run(call, &layout, NULL);
  T_EQ_STATUS(RMS_OK, end.forward);
  T_EQ_STATUS(RMS_OK, end.backward);
  t_same(&end, &start);
  t_result_free(&end);
  t_result_free(&start);
}

static void walk(int64_t first, int64_t last, int64_t step, int64_t variants) {
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (int64_t cols = first; cols <= last; cols += step)
      for (size_t d = 0; d < T_COUNT(dtypes); d++)
        for (int64_t k = 0; k < t_effort(variants) && t_failures() < 20; k++) {
          t_call call = t_call_number(cols + 7 * k, k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS, dtypes[d], cols);
          both_ends(&call, (cols + k) % 3, k & 2 ? 0 : INT64_MAX, (cols + k) % 5 == 0, 0);
          call.parts &= ~(unsigned)T_BACKWARD;
          t_call_quantise(&call, cols + k);
          both_ends(&call, (cols + k) % 3, k & 2 ? 0 : INT64_MAX, 0, 0);
        }
  }
}

static void small_sizes(void) {
  walk(1, 200, 1, 4);
}

static void larger_sizes(void) {
  walk(201, 1300, 61, 4);
  walk(4090, 4100, 3, 2);
}

/* Enough small rows that several are handled together, with a remainder. */
static void many_rows(void) {
  t_isas isas = t_usable_isas();
  for (int isa = 0; isa < isas.count; isa++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[isa]));
    for (int64_t cols = 1; cols <= 260; cols += 1 + cols / 8)
      for (size_t d = 0; d < T_COUNT(dtypes); d++)
        for (int64_t rows = 3; rows < 20; rows += 4) {
          t_call call = t_call_number(cols + rows, rows & 4 ? RMS_KIND_LAYER : RMS_KIND_RMS, dtypes[d], cols);
          call.outer = rows;
          both_ends(&call, cols % 3, INT64_MAX, 0, 0);
        }
  }
}

/* Rows whose elements lie apart, on the stack and wider than that. */
static void channels_first(void) {
  static const int64_t cols[] = {17, 300, 1030, 9001, 30001};
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count * (int)(T_COUNT(cols) * T_COUNT(dtypes)); i++) {
    const size_t c = (size_t)(i / isas.count) % T_COUNT(cols);
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i % isas.count]));
    t_call call =
        t_call_number(i, i & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS, dtypes[i / isas.count / (int)T_COUNT(cols)], cols[c]);
    call.spec.weight_per_inner = 0;
    call.outer = 1;
    call.inner = 3 + i % 15;
    t_call_repair(&call);
    both_ends(&call, i % 3, i & 2 ? 0 : INT64_MAX, i % 5 == 0, 1);
  }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"small_sizes", small_sizes},
                                 {"larger_sizes", larger_sizes},
                                 {"many_rows", many_rows},
                                 {"channels_first", channels_first}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
