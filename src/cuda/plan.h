/* SPDX-License-Identifier: MIT
 *
 * The planner: which kernel a call takes, and how its rows are divided among threads. A function of the width, the
 * types, the options, the number of rows and the device, never of the values. Every cut-off stands here or in plan.cu,
 * once; the launches (forward.cu, backward.cu, general.cu) do what a plan says.
 *
 * A vector is 16 bytes of the data type. */
#ifndef RMS_CUDA_PLAN_H
#define RMS_CUDA_PLAN_H

#include "device.h"
#include "jobs.h"

namespace rms_cuda {

/* Who shares a row: lanes of a warp, a block, a cluster of blocks, or a cluster whose blocks have several panels each
 * (WIDE); the first two also of rows that are not aligned but alike in x and y (FLAT, PIECES); or the general kernels
 * do it. */
enum class Role { WARP, BLOCK, CLUSTER, WIDE, GENERAL, FLAT, PIECES };

/* Threads of blocks. Of the backward block kernel: at most, and of one whose row has a block, or a part of it, for
 * itself. Of the general kernels: those of a row, and of a block of columns. */
enum { WARP_FORWARD_THREADS = 128, CLUSTER_FORWARD_THREADS = 512 }; /* as in forward_table */
enum { BACKWARD_THREADS = 640, BACKWARD_TEAM = 512, TAILED_TEAM = BACKWARD_TEAM + 32 };
enum { GENERAL_THREADS = 256, COLUMN_THREADS = 128 };

/* Of the backward of f64 data whose rows come ahead (backward_double.cuh): threads of a block, of which there are as
 * many as this in an SM, and vectors of a thread. */
enum { DOUBLE_THREADS = 512, DOUBLE_VECTORS = 4 };

/* Of WIDE rows: threads of a block, vectors of a panel that each has, panels that a block may have, and portions of a
 * row. */
enum { WIDE_THREADS = 512, WIDE_VECTORS = 2, WIDE_PANELS = 13, WIDE_PORTIONS = 16 };

/* The most blocks of a cluster: anywhere, and where the device has room for wide ones. */
enum { MAX_CLUSTER = 8, WIDE_CLUSTER = 16 };

/* Vectors of a thread of the backward block kernel. */
enum { BACKWARD_VECTORS = 2 };

/* Rows that one sum of a column takes in registers, and how many such blocks of rows one team: each block adds at most
 * two sums to shared memory, the lanes of a warp that share columns are five additions, and one rounding comes when the
 * teams of a block are added up. No term passes more than 64 roundings. */
enum { FLAT = 32, DEEP = 13 };

/* Blocks of one launch; more rows take more launches. */
constexpr int64_t most_blocks = (int64_t)1 << 30;

struct Grid {
  int64_t blocks;
  int threads;
  size_t shared;
};

/* ---- forward ---- */

/* The forms of the forward kernels of aligned rows, as bits of a number: what is known when they are compiled. Without
 * FORM_OPTIONS, FORM_SHIFTED is the common case of rows that are not aligned, but alike in x and y. */
enum {
  FORM_LAYER = 1,
  FORM_RESIDUAL = 2,
  FORM_OPTIONS = 4,
  FORM_F32_RESIDUAL = 8,
  FORM_SHIFTED = 16,
  FORM_GATE_AFTER = 32,
  FORM_GATE_BEFORE = 64,
  FORMS = 128,
  FORM_GATED = FORM_GATE_AFTER | FORM_GATE_BEFORE
};

/* The kinds of forms that are compiled together. */
enum class Forms { COMMON, OPTIONS, SHIFTED, GATED };
constexpr Forms forms_of(int form) {
  return form & FORM_GATED     ? Forms::GATED
         : form & FORM_SHIFTED ? Forms::SHIFTED
         : form & FORM_OPTIONS ? Forms::OPTIONS
                               : Forms::COMMON;
}

/* Sets of forms. */
constexpr bool pieces(int form) {
  return (form & (FORM_SHIFTED | FORM_OPTIONS)) == FORM_SHIFTED;
}
constexpr bool ungated_pieces(int form) {
  return pieces(form) && (form & FORM_GATED) == 0;
}
constexpr bool gated_pieces(int form) {
  return pieces(form) && (form & FORM_GATED) != 0;
}
constexpr bool layer_pieces(int form) {
  return pieces(form) && (form & FORM_LAYER) != 0;
}
constexpr bool other_pieces(int form) {
  return pieces(form) && (form & FORM_LAYER) == 0;
}
constexpr bool every(int form) {
  return !pieces(form);
}
constexpr bool aligned_ungated(int form) {
  return (form & (FORM_SHIFTED | FORM_GATED)) == 0;
}
constexpr bool no_options(int form) {
  return aligned_ungated(form) && (form & FORM_OPTIONS) == 0;
}
constexpr bool bare(int form) {
  return no_options(form) && (form & FORM_RESIDUAL) == 0;
}
constexpr bool options_alone(int form) {
  return aligned_ungated(form) && (form & (FORM_OPTIONS | FORM_RESIDUAL)) == FORM_OPTIONS;
}
constexpr bool layer_alone(int form) {
  return form == FORM_LAYER;
}
constexpr bool rms_alone(int form) {
  return form == 0;
}
constexpr bool others(int form) {
  return form != FORM_LAYER && !pieces(form);
}
constexpr bool aligned_others(int form) {
  return others(form) && aligned_ungated(form);
}

/* What a line of the table needs beside the width: few rows, or no more than SMs; clusters, or none of them. */
enum class When { ALWAYS, FEW_ROWS, FEWEST_ROWS, CLUSTERS, NO_CLUSTERS };

struct ForwardLine {
  Role role;
  int vectors;    /* the widest row                                                  */
  int per_thread; /* vectors of a thread                                             */
  int rows;       /* rows of a thread                                                */
  int threads;    /* of a block, at most                                             */
  bool early;     /* weights are loaded with the row, the next kernel starts late    */
  bool (*takes)(int form);
  When when;
};

/* The first line that fits is taken. LayerNorm waits twice for all threads of a row, so it has fewer of them with eight
 * vectors each; so has RMSNorm where a row would take more than 256 threads. With options a short row takes a block
 * sooner, a wide one a cluster. Two rows of eight vectors (x and the residual) do not fit the registers. A row may have
 * one piece more than vectors. */
/* clang-format off */
constexpr ForwardLine forward_table[] = {
    /* role           vectors per thread rows threads early  takes             when */
    {  Role::WARP,    32,     1,         4,   128,    false, every,            When::ALWAYS},
    {  Role::WARP,    64,     2,         2,   128,    false, every,            When::ALWAYS},
    {  Role::WARP,    96,     3,         1,   128,    false, no_options,       When::ALWAYS},
    {  Role::WARP,    128,    4,         1,   128,    false, no_options,       When::ALWAYS},
    {  Role::BLOCK,   1024,   2,         1,   512,    true,  aligned_ungated,  When::FEWEST_ROWS},
    {  Role::BLOCK,   1024,   4,         1,   256,    true,  aligned_ungated,  When::FEW_ROWS},
    {  Role::BLOCK,   512,    4,         1,   256,    false, layer_alone,      When::ALWAYS},
    {  Role::BLOCK,   1024,   8,         1,   128,    false, layer_alone,      When::ALWAYS},
    {  Role::BLOCK,   1024,   4,         1,   256,    false, others,           When::ALWAYS},
    {  Role::BLOCK,   2048,   8,         1,   256,    false, bare,             When::ALWAYS},
    {  Role::BLOCK,   2048,   4,         1,   512,    false, others,           When::ALWAYS},
    {  Role::BLOCK,   4096,   8,         1,   512,    false, bare,             When::ALWAYS},
    {  Role::BLOCK,   4096,   8,         1,   512,    false, options_alone,    When::NO_CLUSTERS},
    {  Role::CLUSTER, 65536,  8,         1,   512,    false, layer_alone,      When::CLUSTERS},
    {  Role::CLUSTER, 8192,   4,         1,   512,    false, rms_alone,        When::CLUSTERS},
    {  Role::BLOCK,   8192,   8,         1,   1024,   false, bare,             When::ALWAYS},
    {  Role::CLUSTER, 16384,  4,         1,   512,    false, aligned_others,   When::CLUSTERS},
    {  Role::CLUSTER, 65536,  8,         1,   512,    false, bare,             When::CLUSTERS},
    {  Role::CLUSTER, 32768,  4,         1,   512,    false, aligned_others,   When::CLUSTERS},
    {  Role::WIDE,    212992, 2,         1,   512,    false, bare,             When::CLUSTERS},
    {  Role::FLAT,    32,     1,         4,   128,    false, ungated_pieces,   When::CLUSTERS},
    {  Role::FLAT,    64,     2,         2,   128,    false, ungated_pieces,   When::CLUSTERS},
    {  Role::PIECES,  1023,   2,         1,   512,    false, layer_pieces,     When::ALWAYS},
    {  Role::PIECES,  1023,   4,         1,   256,    false, other_pieces,     When::ALWAYS},
    {  Role::PIECES,  2047,   4,         1,   512,    false, gated_pieces,     When::ALWAYS},
    {  Role::PIECES,  4095,   4,         1,   1024,   false, ungated_pieces,   When::ALWAYS},
};
/* clang-format on */
constexpr int forward_lines = sizeof forward_table / sizeof forward_table[0];
constexpr int cluster_forward_line = forward_lines - 8; /* the last; WIDE and rows that are not aligned come after it */
static_assert(forward_table[0].threads == WARP_FORWARD_THREADS &&
                  forward_table[cluster_forward_line].threads == CLUSTER_FORWARD_THREADS &&
                  forward_table[cluster_forward_line + 1].threads == WIDE_THREADS,
              "the threads that these kernels are compiled for");

/* The widest rows with a gate that a warp has. */
enum { most_warp_gate_vectors = 64 };
static_assert(forward_table[1].vectors == most_warp_gate_vectors && forward_table[2].role == Role::WARP &&
                  !forward_table[2].takes(FORM_GATE_AFTER) && forward_table[3].role == Role::WARP &&
                  !forward_table[3].takes(FORM_GATE_AFTER) && forward_table[4].role == Role::BLOCK,
              "the lines that take gates");

/* The widest rows that are not aligned and must lie one after the other: FLAT. */
enum { most_flat_vectors = 64 };

struct ForwardPlan {
  Role role;
  int line;       /* of the table                                          */
  int team;       /* lanes that share a row                                */
  int cluster;    /* blocks that share a row                               */
  int block_rows; /* rows of a block                                       */
  int threads;    /* of a block                                            */
  int stages;     /* of the ring                                           */
  unsigned ahead; /* blocks that ask for their rows before their turn      */
  bool overlap;   /* the start overlaps the end of the kernel before it    */
  size_t shared;  /* bytes of a block, where these do not depend on stages */
  int panels;     /* of a block of a WIDE row                              */
  int kept;       /* parameters that such a block keeps in shared memory   */
};

/* For rows of `vectors` vectors; inner: there are two distances between them; parameters: weight and bias. */
ForwardPlan plan_forward(const Device &device, int form, int vectors, int64_t rows, bool inner, int parameters,
                         int element_size);

/* Of the forms that round at every step: rows that a team of lanes has one after the other, and the widest row that
 * stays in registers. */
enum { STEPWISE_TURNS = 4, most_stepwise_vectors = 2048 };

struct StepwisePlan {
  Role role;      /* WARP, BLOCK, or GENERAL: stepwise.cuh */
  int per_thread; /* vectors of a thread                   */
  int team;       /* lanes that share a row                */
  int block_rows, threads;
};

StepwisePlan plan_stepwise_forward(int64_t vectors, int64_t rows);

/* ---- backward ---- */

/* The forms of the backward kernels of aligned rows.
 *   COMMON     rows at one distance, statistics saved, the whole row in them, dx wanted and nothing to add to it
 *   ROUNDED    the same of 16-bit types, rounded before the weight
 *   TERMS      as ROUNDED, with the two terms of dx rounded on their own (RMS_STEPS_TERMS)
 *   STEPS      as COMMON, with every step rounded to the type (stepwise.cuh), statistics saved or not, dbias or not
 *   OPTIONS    what else there may be, switched at run time: either order of rounding, a statistic of the leading
 *              elements alone or one that was not saved, eps outside the root, something to be added to dx, a second
 *              place for it, two distances between rows, slices; LayerNorm's makes dbias of RMSNorm too
 *   F32_SUM    the same with x, what is added or the second place in f32 beside 16-bit data
 *   F32_DY     as OPTIONS, with dy in f32 beside 16-bit data; of rows within a block alone
 *   SHIFTED    as OPTIONS, of rows that are not aligned (shifted.cuh); in code that has bulk copies alone
 *   SHIFTED_COMMON   as COMMON, of rows that are not aligned, within a warp or (RMSNorm) a block
 *   SHIFTED_TAIL   as SHIFTED, of RMSNorm across a cluster whose last block has up to 64 vectors more than a panel
 *   GATED...   as OPTIONS, of RMSNorm with a gate and nothing to be added to dx, the place of the gate and the order of
 *              rounding known; of rows within a warp or a block
 *   SHIFTED_GATED...   the same of rows that are not aligned, within a block alone */
enum class Form {
  COMMON,
  ROUNDED,
  TERMS,
  STEPS,
  OPTIONS,
  F32_SUM,
  F32_DY,
  SHIFTED,
  SHIFTED_COMMON,
  SHIFTED_TAIL,
  GATED_AFTER,
  GATED_AFTER_ROUNDED,
  GATED_BEFORE,
  GATED_BEFORE_ROUNDED,
  SHIFTED_GATED_AFTER,
  SHIFTED_GATED_AFTER_ROUNDED,
  SHIFTED_GATED_BEFORE,
  SHIFTED_GATED_BEFORE_ROUNDED
};
__host__ __device__ constexpr bool is_rounded(Form form) {
  return form == Form::ROUNDED || form == Form::TERMS || form == Form::STEPS;
}
__host__ __device__ constexpr bool is_gated(Form form) {
  return form >= Form::GATED_AFTER;
}
__host__ __device__ constexpr bool is_shifted(Form form) {
  return (form >= Form::SHIFTED && form <= Form::SHIFTED_TAIL) || form >= Form::SHIFTED_GATED_AFTER;
}
/* The form of rows that are not aligned with the gate of this one. */
constexpr Form shifted(Form gated) {
  return (Form)((int)gated + (int)Form::SHIFTED_GATED_AFTER - (int)Form::GATED_AFTER);
}
__host__ __device__ constexpr bool is_gated_before(Form form) { /* the norm */
  return form == Form::GATED_BEFORE || form == Form::GATED_BEFORE_ROUNDED || form >= Form::SHIFTED_GATED_BEFORE;
}
__host__ __device__ constexpr bool is_gated_rounded(Form form) { /* before the weight */
  return form == Form::GATED_AFTER_ROUNDED || form == Form::GATED_BEFORE_ROUNDED ||
         form == Form::SHIFTED_GATED_AFTER_ROUNDED || form == Form::SHIFTED_GATED_BEFORE_ROUNDED;
}
__host__ __device__ constexpr bool has_options(Form form) {
  return form == Form::OPTIONS || form == Form::F32_SUM || form == Form::F32_DY || form == Form::SHIFTED ||
         form == Form::SHIFTED_TAIL || is_gated(form);
}

/* Whether there is a kernel whose blocks have two teams of a cluster: one works while the other waits for the sums of
 * other blocks. A thread has twice as many vectors. */
__host__ __device__ constexpr bool has_paired_teams(bool dbias, Form form) {
  return !has_options(form) && !is_shifted(form) && !dbias && form != Form::STEPS;
}

/* Threads that a block of the block kernel may have, which decides how many registers a thread has: 96, or 112, 128 and
 * more where it needs them. At 96 a block of finish_kernel fits beside it, in code that has early starts. */
__host__ __device__ constexpr int most_backward_threads(bool layer, bool dbias, bool cluster, Form form, bool f16,
                                                        bool early_starts) {
  if (is_gated(form) || form == Form::F32_DY || form == Form::STEPS) return (int)BACKWARD_TEAM;
  const bool shifted = form == Form::SHIFTED || form == Form::SHIFTED_COMMON;
  if (shifted && !cluster && !(layer && f16) && early_starts) return 576;
  if (form == Form::SHIFTED_TAIL) return (int)TAILED_TEAM;
  if (form == Form::F32_SUM) return early_starts ? (int)BACKWARD_TEAM : 384;
  const bool big = shifted || (layer && (form != Form::COMMON || (cluster && !dbias)));
  return big || !early_starts ? (int)BACKWARD_TEAM : (int)BACKWARD_THREADS;
}

/* Rows of a lane of the kernel of rows within a warp that are on their way. */
__host__ __device__ constexpr int warp_stages(Form form) {
  return is_gated(form) ? 4 : 3;
}

/* Threads of a block of the kernel of rows within a warp, of which two fit an SM. A gate needs more registers. */
__host__ __device__ constexpr int warp_backward_threads(Form form) {
  return is_gated(form) ? 320 : 384;
}

/* layer, dbias: of the kernel, which may be that of LayerNorm with dbias for less. */
struct BackwardQuestion {
  Form form;
  bool layer, dbias;
  int element_size; /* of the data type        */
  int vectors;
  int64_t rows; /* of a slice              */
  int64_t slices;
  bool added; /* something is added to dx */
  bool f16;   /* the data type, whose conversions take more registers */
};

struct BackwardPlan {
  Role role;
  int team, cluster, threads;
  int stages;     /* of the ring                                                         */
  int ahead;      /* rows of a team that are brought to L2 early                         */
  bool late;      /* a stage is asked for at the end of a row                            */
  int64_t shares; /* of a slice, at most                                             */
  int64_t least;  /* so that no sum takes too many rows                              */
  size_t shared;  /* bytes of a block                                                */
  int panels;     /* of a block of a WIDE row                                        */
  int kept;       /* 1: such a block keeps the weights in shared memory              */
};

BackwardPlan plan_backward(const Device &device, const BackwardQuestion &q);

/* Whether a row that is not aligned is a little more than whole panels, so that SHIFTED_TAIL saves it a block. */
bool has_tail(const Device &device, int vectors);

/* Panels of a WIDE row that a block may have: their column sums are in registers. And rows of one of these sums. */
__host__ __device__ constexpr int wide_backward_panels(bool dbias) {
  return dbias ? 2 : 4;
}
enum { WIDE_FLAT = 60 };

/* Pieces of a row beyond its vectors. */
__host__ __device__ constexpr int more_pieces(Form form) {
  return is_shifted(form) ? 1 : 0;
}

/* Results of such a row that go to memory by way of shared memory: dx, and dgate. */
__host__ __device__ constexpr int shifted_results(Form form) {
  return !is_shifted(form) ? 0 : is_gated(form) ? 2 : 1;
}

/* The parts of a block's shared memory in the backward block kernel, in bytes from its start. V: elements of a vector;
 * sums: over a row; vectors: of a thread. */
struct BackwardShared {
  int ring, out, gain, deep, chunk, mail, barrier, noted, any_noted, total;
};
__host__ __device__ constexpr BackwardShared backward_shared(Form form, int V, int sums, bool dbias, int threads,
                                                             int team, int vectors, int stages, int cell_bytes,
                                                             bool cluster) {
  BackwardShared s = {};
  const int teams = threads / team, cells = team * vectors, panels = form == Form::SHIFTED_TAIL ? 2 : 1;
  s.ring = 0;
  s.out = s.ring + teams * stages * (cells + more_pieces(form)) * cell_bytes;
  s.gain = s.out + teams * shifted_results(form) * (cells + 1) * 16; /* a piece may be read beyond the last vector */
  s.deep = s.gain + cells * V * 4;
  s.chunk = s.deep + (dbias ? 2 : 1) * threads * vectors * V * 4;
  s.mail = s.chunk + teams * 2 * sums * panels * 32 * 4;
  s.barrier = s.mail + (cluster ? teams * 2 * sums * panels * WIDE_CLUSTER * 4 : 0);
  s.noted = s.barrier + (teams * stages + 2 * (cluster ? teams : 1)) * 8;
  s.any_noted = s.noted + teams * DEEP * 4;
  s.total = s.any_noted + 4;
  return s;
}

/* ---- general ---- */

struct GeneralPlan {
  int team, threads;
  bool kept;         /* there is room for the segments of a block in shared memory */
  bool columns_kept; /* and for their column sums                                  */
  size_t shared;     /* bytes for them                                             */

  int teams() const { return threads / team; }
};

/* row_bytes: of a segment, in all tensors that are kept; column_bytes: of its column sums, 0: none are wanted. */
GeneralPlan plan_general(const Device &device, int64_t vectors, int64_t row_bytes, int64_t column_bytes);

/* Of f64 rows that come ahead: sums, over a row. Their column sums are in registers; false: they are too short or wide.
 */
bool plan_doubles(const Device &device, int64_t vectors, int sums, GeneralPlan *plan);

/* Of the forms that round at every step: a block for each segment, which adds its column sums up in memory. */
GeneralPlan plan_stepwise(int64_t vectors);

/* How the column sums are shared out. */
struct GeneralSums {
  int64_t slices, slice_rows;
  int64_t shares; /* of a slice                                              */
  int64_t batch;  /* rows at a time, where the columns take a second step    */
  int64_t tiles;  /* blocks of columns of that step                          */
};
GeneralSums plan_general_sums(const Device &device, const GeneralPlan &plan, const rms_layout &lay, int64_t outer);

} // namespace rms_cuda

#endif
