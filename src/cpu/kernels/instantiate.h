/* SPDX-License-Identifier: MIT
 *
 * Makes the kernels and the table of one instruction set. Before including it, a unit in src/cpu/isa includes its
 * virtual vector and defines RMS_ISA, the name, and BF16_OUTSIDE if other units have kernels for bf16 too: the table
 * then takes those on narrower registers but for jobs with more arithmetic, and a second one takes native ones. */

#include "unit.h"

#define T        RMS_F32
#define T_NAME   K_(f32, RMS_ISA)
#define T_IS_F64 0
#include "template.h"

#define T        RMS_F64
#define T_NAME   K_(f64, RMS_ISA)
#define T_IS_F64 1
#include "template.h"

#ifdef BF16_OUTSIDE
#include "bf16_wide.h"
#else
#define RMS_BF16_WIDE bf16
#include "bf16.h"
#endif

#define T        RMS_F16
#define T_NAME   K_(f16, RMS_ISA)
#define T_IS_F64 0
#include "template.h"

#include "apart.h"

#define RMS_TEXT_(a) #a
#define RMS_TEXT(a)  RMS_TEXT_(a)

/* bf16: the kernels for it. */
#define RMS_BY_TYPE(op, bf16)                                                                                          \
  { NULL, K_(op, K_(f32, RMS_ISA)), K_(op, K_(f64, RMS_ISA)), K_(op, K_(bf16, RMS_ISA)), K_(op, K_(f16, RMS_ISA)) }

#define RMS_BY_NARROW_TYPE(op, bf16)                                                                                   \
  { NULL, K_(op, K_(f32, RMS_ISA)), NULL, K_(op, K_(bf16, RMS_ISA)), K_(op, K_(f16, RMS_ISA)) }

static void K_(rms_copy, RMS_ISA)(char *to, const char *from, int64_t bytes) {
  vec_copy_stream(to, from, bytes);
}

static void K_(rms_fence, RMS_ISA)(void) {
  vec_stream_fence();
}

/* wide: the kernels for bf16 of jobs with more arithmetic. */
#define RMS_TABLE(name, bf16, wide)                                                                                    \
  {                                                                                                                    \
    name, RMS_BY_TYPE(rms_row, bf16), RMS_BY_TYPE(rms_forward, bf16), RMS_BY_TYPE(rms_stats, bf16),                    \
        RMS_BY_TYPE(rms_backward, bf16), RMS_BY_TYPE(rms_backward_stats, bf16), RMS_BY_TYPE(rms_columns, bf16),        \
        RMS_BY_TYPE(rms_forward, wide), RMS_BY_TYPE(rms_backward, wide), RMS_BY_TYPE(rms_columns, wide),               \
        RMS_BY_TYPE(rms_forward_tiles, wide), RMS_BY_NARROW_TYPE(rms_largest, wide),                                   \
        RMS_BY_NARROW_TYPE(rms_quantise, wide), RMS_BY_NARROW_TYPE(rms_quantise_rows, wide), K_(rms_gather, RMS_ISA),  \
        K_(rms_scatter, RMS_ISA), K_(rms_copy, RMS_ISA), K_(rms_fence, RMS_ISA)                                        \
  }

const rms_kernels K_(rms_kernels, RMS_ISA) = RMS_TABLE(RMS_TEXT(RMS_ISA), bf16, RMS_BF16_WIDE);
#ifdef BF16_OUTSIDE
const rms_kernels K_(K_(rms_kernels, RMS_ISA), bf16) = RMS_TABLE(RMS_TEXT(RMS_ISA) "bf16", bf16_native, bf16_native);
#endif
