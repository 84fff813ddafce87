/* SPDX-License-Identifier: MIT
 *
 * The parameters of the kernel template. The template (the files named in template.h) is included once per data type by
 * instantiate.h, after the virtual vector vec/NAME.h:
 *
 *   T        the data type: RMS_F32, RMS_F64, RMS_BF16 or RMS_F16
 *   T_NAME   its name and the instruction set's, the suffix of this instance's functions: K(apply) is apply_bf16_avx2
 *
 * From T follow the arithmetic type REAL with its vector VEC of LANES lanes and operations V(op).
 *
 * Hot loops are INLINE functions with switches such as `layer` or `scaled` that are constants at the call, so the
 * branches on them vanish; everything rare is one ordinary function per data type and decides at run time. */

#undef K
#undef K_
#undef K__
#undef V
#undef VEC
#undef REAL
#undef REAL_TYPE
#undef LANES
#undef TINY
#undef REAL_MAX
#undef R_LEAST
#undef R_MOST
#undef SUM_LEAST
#undef SUM_MOST
#undef SQRT
#undef ABS
#undef T_SIZE
#undef EO
#undef FAINT
#undef FAINT_SUM
#undef IN_ORDER
#undef INLINE
#undef NOINLINE

#define K__(name, type) name##_##type
#define K_(name, type)  K__(name, type)
#define K(name)         K_(name, T_NAME)

#if T_IS_F64
#define V(op)     vd_##op
#define VEC       vd
#define REAL      double
#define REAL_TYPE RMS_F64
#define LANES     8
#define T_SIZE    8
#define REAL_MAX  1.7976931348623157e308
/* A sum of squares below TINY is done again, scaled: its terms may have lost digits to underflow. */
#define TINY 0x1p-900
/* Every element of a row for which K(makes_faint) is true is smaller than FAINT. FAINT_SUM stands for a sum of squares
 * that was not formed: out of range, and not of zeros. */
#define FAINT 0x1p-452
/* The backward runs unscaled while r and the row sums stay within these: no product of theirs leaves the range. */
#define R_LEAST   0x1p-250
#define R_MOST    0x1p250
#define SUM_LEAST 0x1p-500
#define SUM_MOST  0x1p500
#define SQRT(a)   rms_sqrt(a)
#define ABS(a)    fabs(a)
#else
#define V(op)     vf_##op
#define VEC       vf
#define REAL      float
#define REAL_TYPE RMS_F32
#define LANES     16
#define T_SIZE    (T == RMS_F32 ? 4 : 2)
#define REAL_MAX  3.402823466e38f
#define TINY      0x1p-100f
#define FAINT     0x1p-52f
#define R_LEAST   0x1p-31f
#define R_MOST    0x1p31f
#define SUM_LEAST 0x1p-60f
#define SUM_MOST  0x1p60f
#define SQRT(a)   sqrtf(a)
#define ABS(a)    fabsf(a)
#endif

#define FAINT_SUM (TINY / 4)

/* Whether vectors of T are laid out even/odd (vec/README.md). */
#define EO (T == RMS_BF16)
/* Whether the lanes of all vectors are in the order of the elements, so that a vector can start at any element. */
#define IN_ORDER (!EO || V(lane)(1, EO) == 1)

/* Forced, so that the choices between forms are made by the compiler; not in code that is not optimised, which would
 * keep them all: minutes to compile, and eighty times the code. */
#ifdef __OPTIMIZE__
#define INLINE static inline VEC_INLINE
#else
#define INLINE static inline
#endif
#define NOINLINE static __attribute__((noinline))
