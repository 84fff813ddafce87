/* clang-format off */
/* SPDX-License-Identifier: MIT
 *
 * rmsnorm: RMSNorm, partial RMSNorm (pRMSNorm) and LayerNorm, forward and backward.
 *
 * This header is the manual. It reads from the simple to the special:
 *   1. one-line calls            rms_norm_f32
 *   2. what to compute           rms_spec
 *   3. where the data is         rms_view, rms_forward_args, rms_backward_args
 *   4. the operations            rms_forward, rms_backward
 *   5. the split operations      rms_stats, rms_apply, ... for rows that are spread over machines (and rmsnorm_mpi.h)
 *   6. threads                   rms_executor, rms_pool (and rmsnorm_openmp.h)
 *   7. instruction sets          rms_isa_*
 *   8. how the interface grows   rms_forward_sized, ... for bindings to other languages
 *
 * The library allocates nothing (except in rms_pool_create, and during some calls on "channels first", section 3),
 * starts no thread by itself, takes no lock (except in a pool) and keeps no state except the choice of instruction set, the
 * streaming threshold, and which of several ways with the same bits it has timed to be quickest. Every function may be
 * called from any thread at any time.
 *
 * Every argument is checked before the first byte is written: a call that returns anything other than RMS_OK has changed
 * nothing.
 *
 * Same row, same bits: the result of a row depends only on the row's values and the spec; not on the other rows, the
 * number of threads, alignment, strides or the instruction set. docs/numerics.md specifies the order of every operation,
 * docs/error-bounds.md the error bounds. The floating-point settings of the threads that do the work (rounding mode,
 * flush-to-zero, traps) have no influence either: where they are not the defaults, the call sets the defaults and restores
 * the settings afterwards, with its own exception flags added.
 */
#ifndef RMSNORM_H
#define RMSNORM_H

#include <stddef.h>
#include <stdint.h>

#define RMSNORM_VERSION_MAJOR 0
#define RMSNORM_VERSION_MINOR 2
#define RMSNORM_VERSION_PATCH 0

#if defined(RMSNORM_BUILD) && defined(_WIN32)
#define RMS_API __declspec(dllexport)
#elif defined(RMSNORM_BUILD) && defined(__GNUC__)
#define RMS_API __attribute__((visibility("default")))
#else
#define RMS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses ---- */

/* X(name, number, message): the numbers are fixed for ever. */
#define RMS_STATUS_LIST(X)                                                                                              \
  X(RMS_OK, 0, "success")                                                                                               \
  X(RMS_E_ARGUMENT, 1, "a required pointer is NULL, a count is negative, or two arguments contradict each other")       \
  X(RMS_E_KIND, 2, "unknown kind of normalization")                                                                     \
  X(RMS_E_DTYPE, 3, "unknown data type, or a combination of types that is not offered")                                 \
  X(RMS_E_COLS, 4, "cols is below 1")                                                                                   \
  X(RMS_E_EPS, 5, "eps is negative, infinite or not a number")                                                          \
  X(RMS_E_PARTIAL, 6, "partial is outside 1..cols/groups, or the index list is not strictly ascending within it")       \
  X(RMS_E_GROUPS, 7, "groups is negative or does not divide cols")                                                      \
  X(RMS_E_MODE, 8, "unknown rounding order, eps or gate place, activation or flag, or a weight offset not finite")       \
  X(RMS_E_STRIDE, 9, "a stride is negative or makes rows overlap")                                                      \
  X(RMS_E_SIZE, 10, "the sizes and strides overflow 64-bit byte offsets")                                               \
  X(RMS_E_ALIAS, 11, "an output overlaps another argument in a way that is not allowed")                                \
  X(RMS_E_WORKSPACE, 12, "the workspace is missing, too small or not aligned to 64 bytes")                              \
  X(RMS_E_EXECUTOR, 13, "the executor has no run function or a concurrency below 1")                                    \
  X(RMS_E_ISA, 14, "unknown instruction set, or one that this CPU or this build cannot run")                            \
  X(RMS_E_UNSUPPORTED, 15, "not supported by this function")                                                            \
  X(RMS_E_MEMORY, 16, "out of memory or threads")                                                                       \
  X(RMS_E_DEVICE, 17, "no usable CUDA device, or the CUDA runtime reported an error")                                   \
  X(RMS_E_VERSION, 18, "a struct is longer than this library knows and uses a field that it lacks")                     \
  X(RMS_E_ENVIRONMENT, 19, "RMSNORM_STREAM_BYTES is not a whole number of bytes")                                       \
  X(RMS_E_ALIGNMENT, 20, "a statistic, its gradient, indices, stats, sums or scale is not aligned to its numbers")      \
  X(RMS_E_COMMUNICATION, 21, "MPI or NCCL reported an error")                                                           \
  X(RMS_E_SCALE, 22, "scale_block does not divide the row, or scale_least is negative, infinite or not a number")

typedef enum rms_status {
#define RMS_STATUS_ENUM(name, number, message) name = number,
  RMS_STATUS_LIST(RMS_STATUS_ENUM)
#undef RMS_STATUS_ENUM
  RMS_STATUS_END = 23 /* no status: one more than the last number of this header */
} rms_status;

/* A sentence for a status; never NULL. */
RMS_API const char *rms_status_string(rms_status status);

/* "MAJOR.MINOR.PATCH" of the library in use. */
RMS_API const char *rms_version(void);

/* ---- 1. One-line call ---- */

/* y[i][j] = x[i][j] / sqrt(mean_j(x[i][j]^2) + eps) * weight[j]
 * x and y: rows x cols floats, dense. weight: cols floats or NULL. y may be x. */
RMS_API rms_status rms_norm_f32(float *y, const float *x, const float *weight, int64_t rows, int64_t cols, double eps);

/* ---- 2. What to compute ---- */

/* The type of a tensor's elements. Each tensor of a call states its own; RMS_AS_X, the value of a field left at zero, means
 * the type of x, and x must state its own. The data type T of a call is the type of x; in a backward it is that of dy, or
 * of x where y had a type of its own. */
typedef enum rms_dtype {
  RMS_AS_X = 0, RMS_F32 = 1, RMS_F64 = 2, RMS_BF16 = 3, RMS_F16 = 4,
  /* for the quantised output of a forward alone: */
  RMS_I8 = 5,     /* int8 from -127 to 127                                                                          */
  RMS_F8E4M3 = 6, /* 8-bit floats without infinities: largest number 448, NaN 0x7f                                  */
  RMS_F8E5M2 = 7, /* 8-bit floats: largest number 57344, NaN 0x7e                                                   */
  RMS_Q8_0 = 8    /* ggml's: blocks of 32 elements in 34 bytes, an f16 scale and 32 int8                            */
} rms_dtype;

/* Bytes of one element: 4, 8, 2, 2, 1, 1, 1; 0 for anything else: RMS_Q8_0 has 34 bytes for 32 elements. */
RMS_API size_t rms_dtype_size(rms_dtype dtype);

typedef enum rms_kind {
  RMS_KIND_RMS = 0,  /* h = x * r,          r = 1/sqrt(mean(x^2) + eps)               */
  RMS_KIND_LAYER = 1 /* h = (x - mean) * r, r = 1/sqrt(mean((x - mean)^2) + eps)      */
} rms_kind;

typedef enum rms_eps_place {
  RMS_EPS_INSIDE = 0,  /* r = 1/sqrt(ms + eps): nearly every model                                            */
  RMS_EPS_OUTSIDE = 1, /* r = 1/(sqrt(ms) + eps): the torch code of the RMSNorm paper                         */
  RMS_EPS_CLAMP = 2    /* r = 1/max(sqrt(ms), eps): an L2 norm of at least eps*sqrt(k), then times sqrt(k), as
                          Zaya's. Below that, r does not depend on x, and dx = u*r                            */
} rms_eps_place;

typedef enum rms_rounding {
  RMS_ROUND_AFTER_WEIGHT = 0, /* y = Y(h*g + b): one rounding, to y's type Y, usually T. torch, Gemma, T5Gemma   */
  RMS_ROUND_BEFORE_WEIGHT = 1 /* q = T(h), y = Y(P(q*g) + b), P as below: Llama, Qwen, Mistral, ONNX             */
} rms_rounding;

/* A gate is a tensor z of the shape of x, of type T. act(z) is formed in the arithmetic of the data: f32, f64 for f64 data. */
typedef enum rms_gate_place {
  RMS_GATE_NONE = 0,
  RMS_GATE_AFTER = 1, /* y = Y(m*act(z)), where m is what y would be without a gate: in f32 (f64), or with
                         RMS_ROUND_BEFORE_WEIGHT rounded by P. Qwen3-Next, Kimi-Linear, Falcon-H1                         */
  RMS_GATE_BEFORE = 2 /* x*act(z) is normalised instead of x. Mamba2, Bamba, Zamba2, Nemotron-H, Falcon-H1                */
} rms_gate_place;

typedef enum rms_activation {
  RMS_ACT_SILU = 0,   /* act(z) = z/(1 + exp(-z))                                       */
  RMS_ACT_SIGMOID = 1 /* act(z) = 1/(1 + exp(-z))                                       */
} rms_activation;

/* How g = weight + weight_offset is rounded. */
typedef enum rms_gain_rounding {
  RMS_GAIN_WIDE = 0,     /* to the arithmetic of the data: f32, or f64. Gemma                                             */
  RMS_GAIN_AS_WEIGHT = 1 /* to the type of the weight: Nemotron's LayerNorm1P; the scale of adaLN as models write it      */
} rms_gain_rounding;

/* Models that round between x and y, or in the gradient, where others do not. They matter for bf16 and f16 data: T(v) is v
 * rounded to T, and every sum is formed in f32 and rounded once. With f32 and f64 data each is RMS_STEPS_WIDE. dx is rounded
 * to T before dresidual or an old dx is added to it. Section 4 says what each is offered with. */
typedef enum rms_steps {
  RMS_STEPS_WIDE = 0,  /* f32 throughout; what is rounded is said by rms_rounding                                         */
  RMS_STEPS_TERMS = 1, /* RMS; backward alone: dx = T(T(u*r) + T(-x*c)). T5, Idefics, CpmAnt                              */
  RMS_STEPS_RSTD = 2,  /* RMS with eps inside: h = T(x*T(r)), and as autograd differentiates that:
                          dx = T(T(u*T(r)) + T(-x*c)) with c = (T(sum T(u*x)) * r^3) / k. DeepSeek-V4's unweighted norm   */
  RMS_STEPS_ALL = 3    /* every step is rounded to T: see docs/numerics.md. ImageGPT (RMS), VitDet (LayerNorm), the
                          paper's torch code (RMS, eps outside), Zaya's (RMS, RMS_EPS_CLAMP)                              */
} rms_steps;

/* `partial` of a shard that holds no element of the statistic; for rms_stats and the other split functions only. */
#define RMS_PARTIAL_NONE ((int64_t)-1)

/* What to compute: a plain value. Start from zeros (rms_spec spec = {0};), set cols and eps, then the fields that differ.
 *
 * g = weight + weight_offset, in the arithmetic of the data: f32 for f32, bf16 and f16 data, f64 for f64 data.
 * The weight may be absent: g = 1. The bias may be absent: b = 0 is not added.
 *
 * With groups, a row of cols elements is normalised as `groups` independent pieces of cols/groups elements; the weight
 * still has cols elements. `partial` and `indices` then count within one group.
 *
 * Scale and shift of each sample (adaLN: DiT and other diffusion models): the samples are `inner` and the tokens `outer`, so
 * x.outer_stride = cols and x.inner_stride = tokens*cols; weight_per_inner = 1, weight = scale, weight_offset = 1 and
 * bias = shift. Where these are chunks of one tensor [samples][6*cols], weight_stride = 6*cols. The gradients dweight and
 * dbias are those of scale and shift. A scale and shift of each row: outer = 1, inner = rows. The bits of models that write
 * T(T(h*T(1 + scale)) + shift) are those of RMS_ROUND_BEFORE_WEIGHT with RMS_GAIN_AS_WEIGHT.
 *
 * A statistic of exactly zero with eps = 0 (a row of zeros; for LayerNorm a row that equals its mean) gives r = 0: h = 0,
 * dx = 0. */
typedef struct rms_spec {
  int64_t cols;             /* elements of a row; at least 1                                                              */
  double eps;               /* at least 0; there is no default, 1e-5 and 1e-6 are usual                                   */
  int64_t partial;          /* pRMSNorm: the first `partial` elements enter the statistic; 0: all. RMS_KIND_RMS only      */
  const int64_t *indices;   /* with partial > 0: these `partial` elements instead, strictly ascending; or NULL            */
  int64_t groups;           /* 0 or 1: the row is one group                                                               */
  double weight_offset;     /* 0, or 1 as in Gemma                                                                        */
  int32_t kind;             /* rms_kind                                                                                   */
  int32_t eps_place;        /* rms_eps_place                                                                              */
  int32_t rounding;         /* rms_rounding                                                                               */
  int32_t weight_per_inner; /* 0: one weight for all rows; 1: weight, bias, dweight, dbias are inner x cols: per head     */
  int32_t gate_place;       /* rms_gate_place; the gate itself is an argument                                             */
  int32_t activation;       /* rms_activation, of the gate                                                                */
  int64_t scale_block;      /* of a quantised output q: see rms_forward_args                                              */
  double scale_least;       /* computed scales are at least this; 0: no bound                                             */
  int32_t gain_rounding;    /* rms_gain_rounding                                                                          */
  int32_t steps;            /* rms_steps. RMS_STEPS_RSTD and RMS_STEPS_ALL round h to T: `rounding` is then that before
                               the weight                                                                                 */
} rms_spec;

/* k = ceil(cols * p), safe against products such as 100*0.07 = 7.000000000000001; 1 <= k <= cols.
 * A p outside (0, 1] or cols < 1 gives INT64_MIN, which every function refuses as `partial`. */
RMS_API int64_t rms_partial_count(int64_t cols, double p);

/* ---- 3. Where the data is ---- */

/* outer x inner rows; row (i, h) starts at element i*outer_stride + h*inner_stride and its elements are contiguous, or
 * col_stride elements apart. A stride of 0 means dense: inner_stride = cols, outer_stride = inner * inner_stride. Any byte
 * alignment works.
 * A view with data = NULL is absent, whatever its other fields say.
 * Dense rows of bf16 need no more than {x, RMS_BF16}.
 * Example: the keys of a fused qkv tensor [tokens][heads + 2*kv_heads][head_dim]:
 *   outer = tokens, inner = kv_heads, data = qkv + heads*head_dim, outer_stride = (heads + 2*kv_heads)*head_dim.
 *
 * Channels first: images [n][channels][height][width] whose channels are normalised are outer = n, inner = height*width,
 * cols = channels, col_stride = height*width. With a col_stride above 1 the other strides are those of such images if they
 * are 0: inner_stride = 1, outer_stride = cols * col_stride. Each tensor of a call has a layout of its own. It is fast where
 * rows lie next to each other (inner_stride = 1).
 * On the CPU a call allocates memory, and frees it at its end, where a row takes more than 3200 bytes in all such tensors
 * together (y in the place of an x of its size counts once), but for forwards of x with a weight and a bias alone and rows of
 * up to 4096 elements (f64: 2048): up to 8 MB, or one row if that is more, for each task that may run at once. Where there is
 * none, rows of up to 50 KB take longer, and for others the call returns RMS_E_MEMORY and has changed nothing. */
typedef struct rms_view {
  void *data;
  int32_t dtype;    /* rms_dtype; 0: as x                                                                                 */
  int32_t reserved; /* 0; anything else is RMS_E_VERSION                                                                  */
  int64_t outer_stride, inner_stride;
  int64_t col_stride; /* elements from one element of a row to the next; 0 or 1: they are contiguous                      */
} rms_view;

typedef struct rms_const_view {
  const void *data;
  int32_t dtype, reserved;
  int64_t outer_stride, inner_stride, col_stride;
} rms_const_view;

/* Types of a forward: T is the type of x. y: T; with x not f64, any of f32, bf16 and f16, and the last rounding is then to
 * y's type instead of to T. residual, residual_out: both T, or both f32 with bf16 and f16 data. weight, bias: both T or both
 * f32. Other combinations are RMS_E_DTYPE.
 *
 * Statistics (rstd, mean) are dense arrays, one value per outer, inner, group in that order; float, or double for f64 data,
 * aligned as such. */
typedef struct rms_forward_args {
  int64_t outer;             /* 0 rows is a success that writes nothing                                                   */
  int64_t inner;             /* 0 means 1                                                                                 */
  rms_const_view x;
  rms_const_view residual;   /* optional: s = R(x + residual) is normalised instead of x; R: rounding to residual's type  */
  const void *weight, *bias; /* optional, dense                                                                           */
  rms_view y;                /* optional where there is q, rstd or mean                                                   */
  rms_view residual_out;     /* optional, with residual: s                                                                */
  void *rstd, *mean;         /* optional: r and (LayerNorm) the mean, for the backward                                    */
  int32_t weight_dtype, bias_dtype;
  rms_const_view gate;       /* z, with spec->gate_place and only then; T                                                 */
  rms_view q;                /* optional: y quantised; see below                                                          */
  void *scale;               /* with q: its scales, float                                                                 */
  int64_t weight_stride;     /* with weight_per_inner: elements from one weight to the next, and so for bias; 0: cols     */
} rms_forward_args;

/* A quantised output q holds the y of the call, rounded to y's type whether y is stored or not (with y absent and
 * y.dtype = 0: to T), divided by a scale and rounded to nearest even. x may not be f64, and the split form has no q.
 *
 * q.dtype must be stated: RMS_I8, RMS_F8E4M3, RMS_F8E5M2 or RMS_Q8_0. Strides of q count elements; those of RMS_Q8_0, and
 * cols, are multiples of 32.
 *
 * spec->scale_block decides on the scales (RMS_Q8_0 has its own: scale_block is 0 and `scale` NULL):
 *   0      one for the tensor: *scale is read
 *   n > 0  one for n elements of a row next to each other, computed and written: n divides cols (with groups, cols/groups);
 *          n = cols: one per row. `scale` is dense, one value per outer, inner, block in that order.
 * A computed scale is max|y|/M, M being 127, 448 or 57344, or spec->scale_least where that is more. docs/numerics.md has the
 * arithmetic. Results saturate: nothing becomes infinite. A block of zeros has scale 0 (or scale_least) and q = 0. A block
 * with a NaN or an infinity in y has scale NaN; its q is NaN, and 0 in int8. */

/* Which gradients are added to instead of set. */
enum { RMS_ACCUMULATE_DX = 1, RMS_ACCUMULATE_DWEIGHT = 2, RMS_ACCUMULATE_DBIAS = 4 };

/* Types of a backward: T is the type of dy. x: T, or f32 with bf16 and f16 data: a residual sum that was kept in f32.
 * dx: T. dresidual, dresidual_out: both T or both f32 with bf16 and f16 data; with such an f32 sum, f32. weight, dweight,
 * dbias: T or f32 each. Other combinations are RMS_E_DTYPE.
 * After a forward whose y had another type than x, dy has y's type, and T is the type of x, dx, dresidual and dresidual_out.
 * An f32 x beside a 16-bit dy is taken for such an x if there is a dx in f32, otherwise for a residual sum.
 * Where x and dy differ in type, RMS_AS_X is ambiguous: every tensor that is given must then state its type, or the call
 * returns RMS_E_DTYPE. An absent dy has a type too: that of x, unless it states another. */
typedef struct rms_backward_args {
  int64_t outer, inner;
  rms_const_view dy;         /* absent, it stands for zeros: only with drstd or dmean                                     */
  rms_const_view x;          /* what was normalised: the forward's x, or its residual_out                                 */
  rms_const_view dresidual;  /* optional: gradient that reaches the residual sum from elsewhere; added to dx              */
  const void *weight;        /* as in the forward                                                                         */
  const void *rstd, *mean;   /* optional: as the forward wrote them (LayerNorm: both or neither); NULL: computed again    */
  rms_view dx;               /* optional: gradient of x, in T                                                             */
  rms_view dresidual_out;    /* optional: the same gradient (with the old dx where it is added to), for a wider residual  */
  void *dweight, *dbias;     /* optional: sums over all rows (with weight_per_inner: over outer), dense                   */
  void *workspace;           /* needed with dweight or dbias: rms_backward_workspace() bytes, 64-byte aligned             */
  size_t workspace_bytes;
  int32_t weight_dtype;      /* also decides how products of dweight are rounded, even without a weight: see rms_backward */
  int32_t dweight_dtype, dbias_dtype;
  int32_t accumulate;        /* RMS_ACCUMULATE_... flags                                                                  */
  rms_const_view gate;       /* z, as in the forward                                                                      */
  rms_view dgate;            /* optional: gradient of z; T. Always set, never added to                                    */
  const void *bias;          /* with RMS_GATE_AFTER and dgate: the forward's bias, which that gradient depends on         */
  int32_t bias_dtype;        /* that of the weight; without a weight, what weight_dtype is taken to be                    */
  int32_t reserved;          /* 0; anything else is RMS_E_VERSION                                                         */
  int64_t weight_stride;     /* as in the forward; dweight and dbias are dense                                            */
  const void *drstd, *dmean; /* optional: gradients that reach rstd and (LayerNorm) mean, where these are results that
                                something was computed from; arrays as those                                              */
} rms_backward_args;

/* ---- 4. The operations ---- */

typedef struct rms_executor rms_executor;

/* Not offered, whatever the type of the data: RMS_E_UNSUPPORTED.
 *   steps other than WIDE   with a gate
 *   TERMS, RSTD             with LayerNorm
 *   RSTD                    with eps_place other than RMS_EPS_INSIDE
 *   ALL                     with LayerNorm and eps_place other than RMS_EPS_INSIDE
 *   RSTD, ALL               with partial, drstd or dmean, or in the split form
 *   drstd, dmean            in the split form: section 5 says how its sums take them; dmean with RMS is RMS_E_ARGUMENT
 *   q                       in the split form
 *   col_stride above 1      with weight_per_inner or q. rmsnorm_cuda.h has what GPUs lack */

/* y = norm(x [+ residual]) * g [+ bias]; with a gate, see rms_gate_place: x*act(z) is (x + residual)*act(z) there.
 *
 * Aliasing: y and residual_out may each be exactly x, residual or gate (same pointer and strides, elements of the same
 * size): in place. Any other overlap of an output with an argument is RMS_E_ALIAS; rows that interleave without touching
 * (q and k slices of one tensor) are fine.
 * executor: NULL runs on the calling thread. */
static inline rms_status rms_forward(const rms_spec *spec, const rms_forward_args *args, const rms_executor *executor);

/* With u = dy*g, k elements in the statistic, [j] = 1 where j is in the statistic:
 *   RMS:        dx_j = u_j*r - [j] x_j * (sum(u*x) * r^3) / k
 *   LayerNorm:  dx_j = r * (u_j - mean(u) - h_j * mean(u*h))
 *   dweight_j = sum over rows of dy_j*h_j        dbias_j = sum over rows of dy_j
 * and dresidual (and the old dx with RMS_ACCUMULATE_DX) are added to dx before its one rounding. A dy of its own type is
 * widened exactly and takes part as it is.
 * Gradients d = drstd and e = dmean, which reach r and the mean of the row, add to dx:
 *   RMS:        - [j] x_j * (d * r^3) / k
 *   LayerNorm:  - h_j * (d * r^2) / k + e / k
 * and with eps outside the root, or as a bound, what the derivative of that r gives. The backward of a forward that wrote
 * rstd alone has a drstd and no dy.
 * With a gate after the norm, dm = dy*act(z) stands for dy in all of this and dgate = dy*m*act'(z). With one before, x*act(z)
 * stands for x and d, what dx would be, is the gradient of that product: dx = d*act(z), dgate = d*x*act'(z).
 * RMS_ROUND_BEFORE_WEIGHT differentiates the rounded computation as autograd does: u = T(dy*g), dweight_j = sum of
 * P(dy_j*T(h_j)), where P rounds to T if weight_dtype is T and is exact f32 otherwise; with a gate after the norm
 * dm = P(dy*act(z)).
 *
 * dweight and dbias are summed in f32 blocks of at most 64 rows and in f64 beyond, in an order that depends on the shape
 * alone, and rounded once: their error does not grow with the number of rows.
 *
 * Aliasing: dx, dresidual_out and dgate may each be exactly dy, x, dresidual or gate. Everything else as in rms_forward.
 * With zero rows dweight and dbias are set to zeros, or left alone when accumulating. */
static inline rms_status rms_backward(const rms_spec *spec, const rms_backward_args *args, const rms_executor *executor);

/* Bytes of workspace that rms_backward and rms_backward_apply need for this call: 0 if it asks for neither dweight nor
 * dbias, or if they would refuse it. The size is bounded whatever `outer` is. Nothing is read or written through the
 * pointers of args: they only say which tensors there are, may still point anywhere, and may overlap. */
static inline size_t rms_backward_workspace(const rms_spec *spec, const rms_backward_args *args);

/* ---- 5. The same in two halves, for rows that are sharded over machines ---- */

/* Each machine holds cols of the columns of every row. Forward:
 *   rms_stats(local) -> reduce over the machines -> rms_apply(local, reduced)
 * For RMS, reduce by adding the structs field by field (MPI_SUM, ncclSum on doubles). For LayerNorm, gather the shards'
 * arrays and fold them in rank order with rms_stats_merge (which serves RMS as well). Backward:
 *   rms_backward_stats(local, reduced stats) -> add field by field -> rms_backward_apply(local, reduced, reduced sums)
 * rmsnorm_mpi.h and rmsnorm_nccl.h do this with MPI and NCCL; docs/distributed.md says which form to use when.
 * dweight and dbias are local. With one shard the bits are those of rms_forward and rms_backward, but for gradients of rows
 * with a NaN or an infinity in x or dy, of which more elements may be NaN. f64 data loses the range guard of the unsplit
 * call: squares must stay inside the range of a double.
 *
 * Gradients that reach the statistics themselves (drstd and dmean of rms_backward) are added to the reduced sums of each
 * segment before rms_backward_apply, with r as rms_apply writes it:
 *   RMS:        sums.ux += drstd
 *   LayerNorm:  sums.ux += r*drstd, sums.u -= dmean/r
 *
 * Arrays of rms_stat and rms_grad_sum travel between machines and libraries: these two structs never change. */
typedef struct rms_stat {
  double count; /* elements in the statistic                                              */
  double mean;  /* LayerNorm: their mean; RMS: 0                                          */
  double m2;    /* sum of squares; LayerNorm: of the differences from the mean            */
} rms_stat;

typedef struct rms_grad_sum {
  double ux; /* RMS: sum of u*x; LayerNorm: sum of u*h                                 */
  double u;  /* LayerNorm: sum of u; RMS: 0                                            */
} rms_grad_sum;

/* One rms_stat per outer, inner, group. Reads x, residual and a gate before the norm; writes stats alone. */
static inline rms_status rms_stats(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats,
                                   const rms_executor *executor);

/* into[i] = the statistic of the union of into[i]'s and from[i]'s elements. */
static inline rms_status rms_stats_merge(const rms_spec *spec, int64_t count, rms_stat *into, const rms_stat *from);

/* The second half of rms_forward: y, residual_out, rstd, mean. */
static inline rms_status rms_apply(const rms_spec *spec, const rms_forward_args *args, const rms_stat *stats,
                                   const rms_executor *executor);

/* The sums of rms_backward; args->rstd and mean are ignored, `stats` is what rms_apply was given. */
static inline rms_status rms_backward_stats(const rms_spec *spec, const rms_backward_args *args, const rms_stat *stats,
                                            rms_grad_sum *sums, const rms_executor *executor);

/* The second half of rms_backward: dx, dresidual_out, dgate, dweight, dbias. */
static inline rms_status rms_backward_apply(const rms_spec *spec, const rms_backward_args *args, const rms_stat *stats,
                                            const rms_grad_sum *sums, const rms_executor *executor);

/* ---- 6. Threads ---- */

/* A parallel for of the caller: run() calls task(arg, i) once for each i in 0..tasks-1, on any threads in any order, and
 * returns when all are done. Calls that are too small to gain from threads run on the calling thread without it. This
 * struct never changes. */
struct rms_executor {
  void *ctx;
  int32_t concurrency; /* how many tasks may run at once; at least 1 */
  void (*run)(void *ctx, int64_t tasks, void (*task)(void *arg, int64_t i), void *arg);
};

/* A thread pool for programs that have none. threads counts the calling thread: rms_pool_create(&pool, 4) starts three.
 * One call at a time runs on a pool; a second one from another thread waits for it. A call from inside a task never waits:
 * where its pool is busy, as the task's own pool is, it runs on the calling thread.
 *
 * Idle threads of a pool spin for about 50 microseconds and then sleep; with more threads than the process has cores they
 * sleep at once.
 *
 * The child of a fork has none of its parent's threads. There a call on the parent's pool runs on the calling thread,
 * rms_pool_destroy frees its memory, and a pool that the child creates works like any other. */
typedef struct rms_pool rms_pool;
RMS_API rms_status rms_pool_create(rms_pool **pool, int threads);
RMS_API void rms_pool_destroy(rms_pool *pool); /* NULL is fine; no call may be running on it */
RMS_API rms_executor rms_pool_executor(rms_pool *pool);

/* ---- 7. Instruction sets ---- */

/* Names, best last: "scalar", then on x86-64 "avx2", "avx512bf16", "avx512", on aarch64 "neon". The best one that the CPU can
 * run is chosen at the first call, or the one named in the environment variable RMSNORM_ISA; a name there that is unknown or
 * cannot run makes every operation return RMS_E_ISA. All give the same bits. "avx512" has bf16 on registers of 256 bits,
 * "avx512bf16" on those of 512, for processors that round to it by an instruction. Where "avx512" is chosen and not named, a
 * first call with bf16 times both and takes the quicker kernels from then on, and one with f16 those of "avx2" if they are
 * quicker forward. */
RMS_API int rms_isa_count(void);              /* instruction sets compiled into this library        */
RMS_API const char *rms_isa_name(int index);  /* 0 <= index < count; NULL outside                   */
RMS_API int rms_isa_usable(const char *name); /* 1: compiled in and this CPU runs it                */
RMS_API const char *rms_isa_active(void);     /* the one in use; NULL if RMSNORM_ISA names a bad one */
RMS_API rms_status rms_isa_force(const char *name); /* NULL: back to the automatic choice            */

/* Calls whose tensors take more bytes than this use non-temporal stores, which bypass the caches. For data larger than the
 * caches that saves a third of the memory traffic; for smaller data it is slower. The default is half of the L3 cache or,
 * where the L3 is that of a whole socket (over 100 MB), the L2 cache; a call on several threads counts the L2 of each. The
 * environment variable RMSNORM_STREAM_BYTES sets it too: decimal digits only, anything else makes every operation return
 * RMS_E_ENVIRONMENT until a number is set. 0: always, INT64_MAX: never. On Linux an output
 * gets plain stores whatever its size if the page in its middle has never been touched: small pages are quicker to fill so,
 * huge ones are not. The bits do not change. */
RMS_API int64_t rms_stream_threshold(void); /* -1 if RMSNORM_STREAM_BYTES is bad                      */
RMS_API rms_status rms_stream_threshold_set(int64_t bytes); /* negative: back to the default          */

/* ---- 8. How the interface grows ---- */

/* A program works without recompilation with every later library of the same soname (the soname changes with the minor
 * version before 1.0, with the major version after). A program that was compiled with a later header than the library's
 * works as long as it uses nothing that the library lacks, and gets RMS_E_VERSION otherwise.
 *
 * This is why rms_forward and the others are inline: the exported functions take the size of each struct as the caller's
 * header knows it. Bindings to other languages call these with the sizes of their own structs. A shorter struct is taken
 * as if zeros followed it; a longer one must hold only zeros after the part that the library knows.
 *
 * To add a field (this is for maintainers of the library):
 *   - append it to rms_spec, rms_forward_args or rms_backward_args in whole multiples of 8 bytes, without padding, so that
 *     zero means what the library did before; numbers have fixed-width types, modes are int32_t with a new enum;
 *   - new enumerators and statuses get new numbers; numbers are never used again;
 *   - never change the size or order of what is there. Views are parts of other structs: they have `reserved` and
 *     `col_stride` for their future and do not grow. rms_stat, rms_grad_sum and rms_executor never change;
 *   - add the new size and offset to the assertions of src/core/sized.c, and refresh tests/static/rmsnorm.abi
 *     (tests/README.md). */
RMS_API rms_status rms_forward_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                     const rms_executor *executor);
RMS_API rms_status rms_backward_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                      size_t args_size, const rms_executor *executor);
RMS_API size_t rms_backward_workspace_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                            size_t args_size);
RMS_API rms_status rms_stats_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                   rms_stat *stats, const rms_executor *executor);
RMS_API rms_status rms_stats_merge_sized(const rms_spec *spec, size_t spec_size, int64_t count, rms_stat *into,
                                         const rms_stat *from);
RMS_API rms_status rms_apply_sized(const rms_spec *spec, size_t spec_size, const rms_forward_args *args, size_t args_size,
                                   const rms_stat *stats, const rms_executor *executor);
RMS_API rms_status rms_backward_stats_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                            size_t args_size, const rms_stat *stats, rms_grad_sum *sums,
                                            const rms_executor *executor);
RMS_API rms_status rms_backward_apply_sized(const rms_spec *spec, size_t spec_size, const rms_backward_args *args,
                                            size_t args_size, const rms_stat *stats, const rms_grad_sum *sums,
                                            const rms_executor *executor);

static inline rms_status rms_forward(const rms_spec *spec, const rms_forward_args *args, const rms_executor *executor) {
  return rms_forward_sized(spec, sizeof *spec, args, sizeof *args, executor);
}

static inline rms_status rms_backward(const rms_spec *spec, const rms_backward_args *args, const rms_executor *executor) {
  return rms_backward_sized(spec, sizeof *spec, args, sizeof *args, executor);
}

static inline size_t rms_backward_workspace(const rms_spec *spec, const rms_backward_args *args) {
  return rms_backward_workspace_sized(spec, sizeof *spec, args, sizeof *args);
}

static inline rms_status rms_stats(const rms_spec *spec, const rms_forward_args *args, rms_stat *stats,
                                   const rms_executor *executor) {
  return rms_stats_sized(spec, sizeof *spec, args, sizeof *args, stats, executor);
}

static inline rms_status rms_stats_merge(const rms_spec *spec, int64_t count, rms_stat *into, const rms_stat *from) {
  return rms_stats_merge_sized(spec, sizeof *spec, count, into, from);
}

static inline rms_status rms_apply(const rms_spec *spec, const rms_forward_args *args, const rms_stat *stats,
                                   const rms_executor *executor) {
  return rms_apply_sized(spec, sizeof *spec, args, sizeof *args, stats, executor);
}

static inline rms_status rms_backward_stats(const rms_spec *spec, const rms_backward_args *args, const rms_stat *stats,
                                            rms_grad_sum *sums, const rms_executor *executor) {
  return rms_backward_stats_sized(spec, sizeof *spec, args, sizeof *args, stats, sums, executor);
}

static inline rms_status rms_backward_apply(const rms_spec *spec, const rms_backward_args *args, const rms_stat *stats,
                                            const rms_grad_sum *sums, const rms_executor *executor) {
  return rms_backward_apply_sized(spec, sizeof *spec, args, sizeof *args, stats, sums, executor);
}

#ifdef __cplusplus
}
#endif

#endif
