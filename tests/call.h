/* SPDX-License-Identifier: MIT
 *
 * One description of a call (t_call), run in any memory layout (t_layout), gives comparable outputs (t_result).
 *
 * A call is a forward and, with T_BACKWARD, the backward that belongs to it. Its inputs are a function of the call
 * alone (integer arithmetic: the same on every machine); the layout decides where they lie. Every buffer lies in
 * guarded memory, the gaps between strided rows are filled with a canary, and a run checks them. So whatever is
 * compared (instruction sets, threads, strides, split or not), the test is: run twice, compare. */
#ifndef RMSNORM_TESTS_CALL_H
#define RMSNORM_TESTS_CALL_H

#include "harness.h"
#include "../verify/spec.h"

enum {
  T_WEIGHT = 1 << 0,
  T_BIAS = 1 << 1,
  T_RESIDUAL = 1 << 2,
  T_RESIDUAL_OUT = 1 << 3,
  T_SAVE_STATS = 1 << 4, /* forward writes rstd and mean, backward reads them */
  T_BACKWARD = 1 << 5,
  T_DX = 1 << 6,
  T_DRESIDUAL = 1 << 7,
  T_DRESIDUAL_OUT = 1 << 8,
  T_DWEIGHT = 1 << 9,
  T_DBIAS = 1 << 10,
  T_EVERYTHING = (1 << 11) - 1, /* but for the gradient of a gate, if spec.gate_place says that there is one */
  T_DGATE = 1 << 11,
  T_NO_Y = 1 << 12 /* the forward writes what else it has alone: q, statistics, the residual sum */
};

typedef enum t_data {
  T_NORMAL,   /* plain values near 1 */
  T_WIDE,     /* exponents over a quarter of the range */
  T_HUGE,     /* the squares overflow */
  T_TINY,     /* subnormals and the smallest normals: the squares underflow */
  T_CONSTANT, /* constant rows, some of zeros */
  T_SPECIAL,  /* every other row has NaNs, infinities, zeros, subnormals among plain values */
  T_DATA_COUNT
} t_data;

typedef struct t_call {
  verify_spec spec; /* spec.indices is ignored: see indexed */
  int indexed;      /* 1: the statistic is taken over spec.partial random ascending indices */
  int64_t outer, inner;
  int64_t weight_gap;  /* unused elements between the weights of two inner indices, and so for bias */
  int64_t first_outer; /* the outer index whose data comes first: a slice of a bigger call has the same rows */
  unsigned parts;      /* T_WEIGHT... */
  int accumulate;      /* RMS_ACCUMULATE_... */
  t_data data;
  uint64_t seed;
  const unsigned char *raw; /* if not NULL: x takes its bytes from here, again and again, instead of from the seed */
  size_t raw_bytes;
} t_call;

/* Which output shares the memory of which input. */
enum {
  T_Y_IN_X = 1,
  T_Y_IN_RESIDUAL = 2,
  T_SUM_IN_RESIDUAL = 4,
  T_SUM_IN_X = 8,
  T_DX_IN_DY = 16,
  T_DX_IN_X = 32,
  T_DRESIDUAL_IN_PLACE = 64,
  T_Y_IN_GATE = 128,
  T_DGATE_IN_PLACE = 256,
  T_SUM_IN_GATE = 512,
  T_DX_IN_GATE = 1024
};

/* What happens on the calling thread right before and after a call of the library, with no arithmetic of the test in
 * between: floating-point settings, exception flags. */
typedef struct t_around {
  void (*before)(void), (*after)(void);
} t_around;

typedef struct t_layout {
  int64_t outer_gap, inner_gap; /* unused elements after each outer block and each row */
  int inner_major;              /* 1: the outer index varies fastest in memory */
  int channels_first;           /* 1: the inner index does, and inner_gap lies after each column of it */
  t_flush flush;
  size_t offset;        /* T_FLUSH_START only: rows start this many bytes after a page boundary */
  size_t behind;        /* T_FLUSH_START only: y, dx and dgate start this many bytes behind the others in that sense */
  unsigned in_place;    /* T_Y_IN_X...; one that the call's types do not allow is left out */
  int split;            /* 1: through rms_stats, rms_apply, rms_backward_stats, rms_backward_apply */
  int64_t stream_bytes; /* for rms_stream_threshold_set */
  const t_around *around; /* or NULL */
} t_layout;

typedef enum t_out {
  T_OUT_Y,
  T_OUT_SUM,
  T_OUT_RSTD,
  T_OUT_MEAN,
  T_OUT_DX,
  T_OUT_DRESIDUAL,
  T_OUT_DWEIGHT,
  T_OUT_DBIAS,
  T_OUT_DGATE,
  T_OUT_Q,
  T_OUT_SCALE, /* where it is computed */
  T_OUT_COUNT
} t_out;

typedef struct t_result {
  rms_status forward, backward;
  void *data[T_OUT_COUNT]; /* dense; NULL where the call has no such output */
  int64_t count[T_OUT_COUNT];
  rms_dtype dtype[T_OUT_COUNT];
} t_result;

extern const t_layout t_dense;

/* Runs the call; memory faults aside, checks that canaries are whole and inputs unchanged. */
t_result t_run(const t_call *call, const t_layout *layout, const rms_executor *executor);
void t_result_free(t_result *result);

/* Checks every output of `actual` against `expected`, NaN for NaN and all else bit for bit. Returns 1 if equal. */
int t_same(const t_result *expected, const t_result *actual);
/* The same for one output over a range of its elements, starting at `from` in expected and 0 in actual. */
int t_same_part(const t_result *expected, const t_result *actual, t_out out, int64_t from);

/* A hash over all outputs that does not see NaN payloads. */
uint64_t t_digest(const t_result *result);

/* A random legal call of at most about max_elements elements, and a random layout for it. */
t_call t_call_draw(t_rng *rng, int64_t max_elements);
t_layout t_layout_draw(t_rng *rng);
/* The k-th of many ways to combine the options, for walks over kinds, types and sizes; rows: about 3. */
t_call t_call_number(int64_t k, rms_kind kind, rms_dtype dtype, int64_t cols);

/* Gives a call of f32, bf16 or f16 a quantised output: the k-th of many combinations of type, blocks and least scale.
 * q8_0 needs columns in whole blocks, which other types take the place of. */
void t_call_quantise(t_call *call, int64_t k);

/* Makes the call legal after a field was changed: drops parts that contradict it. */
void t_call_repair(t_call *call);
const char *t_describe(const t_call *call, const t_layout *layout); /* static per thread */

/* Fills count elements of dtype; `stream` tells tensors apart, `row` rows. */
void t_fill(void *data, rms_dtype dtype, int64_t count, t_data style, uint64_t seed, uint64_t stream, int64_t row);

#endif
