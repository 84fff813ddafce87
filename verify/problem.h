/* clang-format off */
/* SPDX-License-Identifier: MIT
 *
 * A problem: one operation of the library, its shape, its options and its input data, as a value and as a string.
 *
 *   KIND:DIR:DTYPE:SHAPE[:OPTION...]        rms:fwd:bf16:512x4096:w=f32:off=1
 *
 *   KIND    rms | prms (partial; needs k= or p=) | layer
 *   DIR     fwd | bwd
 *   DTYPE   f32 | f64 | bf16 | f16
 *   SHAPE   ROWSxCOLS or OUTERxINNERxCOLS
 *
 *   w=none|same|f32   weight: absent, in the data type (default), in f32
 *   y=f32|bf16|f16    type of y, in a backward of dy (default: the data type)
 *   bias              with a bias (fwd), with dbias (bwd)
 *   off=V             weight offset
 *   gain=weight       weight + offset is rounded to the weight's type
 *   eps=V             default 1e-6
 *   epsout            eps outside the root
 *   epsclamp          eps is the least root mean square
 *   round=before      round before the weight
 *   steps=terms|rstd|all   rms_steps: what else is rounded to the data type; without a gate
 *   groups=G          groups per row
 *   perhead           one weight per inner index
 *   wstride=N         perhead: elements from one weight, and bias, to the next (default: the columns)
 *   k=K, p=P          prms: elements in the statistic, or their share
 *   idx               prms: a random ascending index list
 *   gate=after|before a gate behind the norm, or in front of it
 *   act=silu|sigmoid  its activation (default silu)
 *   q=i8|e4m3|e5m2|q8_0   fwd: a quantised output
 *   qblock=row|tensor|N   q: a scale for each row (or group; default), one that is given, one for N elements
 *   qleast=V          q: the least scale that is computed (default 0)
 *   res[=same|f32]    fwd: add a residual; bwd: x is the residual sum
 *   dres              bwd: add an incoming residual gradient
 *   of=A+B            bwd: the results of the forward whose gradients arrive: y (default), stats, y+stats
 *   recompute         bwd: compute the statistics again
 *   acc[=dx+dw+db]    bwd: add to these outputs (default: all)
 *   out=A+B+...       outputs. fwd: y, sum, stats, q: one of y, q and stats is among them (default y, or q with q=; with
 *                     res also sum); bwd: dx, ds (dresidual_out), dw, db, dz (default dx, dw with a weight, db with a
 *                     bias, dz with a gate)
 *   grad=same|f32     type of dweight and dbias: the data type or f32 (default: the weight type)
 *   channels=first    rows lie side by side: OUTER images of COLS channels of INNER pixels
 *   pad=N             N extra elements between rows, or between channels
 *   inplace           y is x, sum is the residual; dx is dy
 *   split             the stats/apply halves
 *   data=NAME         values of the inputs: normal, lognormal, cauchy, hugemean, small, tiny, huge, max, least, steps, exact;
 *                     zerorows, nanrows, faintrows: every second row is zeros, has a NaN, or is so small that its squares
 *                     are subnormal; mixed: rows of zeros, huge and small ones
 *   dydata=NAME       bwd: values of dy (default: normal, or with data=lognormal and data=exact the same)
 *   seed=N            default 1
 *   isa=NAME          instruction set
 *   threads=N         default 1: the calling thread
 */
/* clang-format on */
#ifndef RMSNORM_VERIFY_PROBLEM_H
#define RMSNORM_VERIFY_PROBLEM_H

#include "spec.h"

typedef enum verify_data {
  VERIFY_NORMAL,    /* N(0, 1)                                                                              */
  VERIFY_LOGNORMAL, /* exp(2 N(0, 1)) with a random sign: six decades within a row                          */
  VERIFY_CAUCHY,    /* heavy tails, cut at 1e4                                                              */
  VERIFY_HUGEMEAN,  /* N(0, 1) around a mean of 1000 (100 for the 16-bit types)                             */
  VERIFY_SMALL,     /* N(0, 1) times a number whose square is where sums of squares begin to lose digits    */
  VERIFY_TINY,      /* N(0, 1) times a number near the bottom of the type's range: squares underflow        */
  VERIFY_HUGE,      /* N(0, 1) times a number near the top of the type's range: squares overflow            */
  VERIFY_MAX,       /* the largest number of the type, with a random sign                                   */
  VERIFY_LEAST,     /* the smallest normal number of the type, with a random sign                           */
  VERIFY_STEPS,     /* one to seven times the smallest subnormal number of the type, with a random sign     */
  VERIFY_EXACT,     /* small integers over 8: exact in every type                                           */
  VERIFY_ZEROROWS,  /* every second row is zeros, as of padding; the others are normal                      */
  VERIFY_NANROWS,   /* every second row begins with a NaN                                                   */
  VERIFY_MIXED,     /* normal rows, zeros, huge and small ones, in turn                                     */
  VERIFY_FAINTROWS  /* every second row is times a number whose square is subnormal (not of f16)            */
} verify_data;

enum {
  VERIFY_OUT_Y = 1,
  VERIFY_OUT_SUM = 2,
  VERIFY_OUT_STATS = 4,
  VERIFY_OUT_DX = 8,
  VERIFY_OUT_DS = 16,
  VERIFY_OUT_DW = 32,
  VERIFY_OUT_DB = 64,
  VERIFY_OUT_DZ = 128,
  VERIFY_OUT_Q = 256
};

enum { VERIFY_ISA_NAME_MAX = 16, VERIFY_TEXT_MAX = 512 };

typedef struct verify_problem {
  verify_spec spec; /* indices stays NULL; see has_indices */
  int64_t outer, inner;
  int backward;
  int has_weight, has_bias, has_residual, has_dresidual;
  int has_indices;  /* spec.partial random ascending indices, drawn from the seed */
  unsigned of;      /* backward: 0: of y alone; else VERIFY_OUT_STATS, and VERIFY_OUT_Y or not */
  int recompute;    /* backward without saved statistics                          */
  int accumulate;   /* RMS_ACCUMULATE_... flags                                   */
  unsigned outputs; /* VERIFY_OUT_... flags                                           */
  int channels_first;
  int64_t pad;
  int64_t weight_stride; /* elements from one weight to the next; 0: cols */
  int in_place, split;
  verify_data data, dy_data; /* of dy; everything else follows data */
  uint64_t seed;
  char isa[VERIFY_ISA_NAME_MAX]; /* "" : the active one */
  int threads;
} verify_problem;

/* Reads a problem string. Returns 0, or -1 with one line in `message` that names the bad part; *problem is then
 * unchanged. */
int verify_problem_parse(const char *text, verify_problem *problem, char *message, size_t message_size);

/* Writes the canonical string, which parses back to the same problem. Returns its length. */
int verify_problem_print(const verify_problem *problem, char *text, size_t text_size);

/* "f32", ...; the names of verify_data. */
const char *verify_dtype_name(rms_dtype dtype);
const char *verify_data_name(verify_data data);

#endif
