/* SPDX-License-Identifier: MIT
 *
 * Results do not depend on the caller's floating-point settings. Those belong to a thread: flush-to-zero and
 * denormals-are-zero, the rounding mode, which exceptions trap. So each piece of work, on whatever thread it runs, is
 * enclosed by rms_fp_enter and rms_fp_leave. These set the defaults (IEEE arithmetic, to nearest, no traps) where other
 * settings are in force, and restore the caller's settings afterwards, with the exception flags of the work added.
 * Where the defaults are in force already, which is the usual case, this costs one load and one comparison.
 *
 * The compiler does not know about this. Loads and stores stay between the two calls; a value in a register is kept
 * there by RMS_FP_PIN. */
#ifndef RMS_CORE_FP_ENV_H
#define RMS_CORE_FP_ENV_H

#include <stdint.h>

/* A compiler barrier for one variable: what is computed from it stays after this point, what it is computed from stays
 * before. */
#define RMS_FP_PIN(variable) __asm__ volatile("" : "+m"(variable))

#if defined(__SSE2_MATH__)

typedef uint32_t rms_fp_word;

/* MXCSR: flags in bits 0..5, which stay as they are; denormals-are-zero, masks, rounding and flush-to-zero above. */
enum { RMS_FP_CONTROL = 0xffc0, RMS_FP_DEFAULT = 0x1f80 };

static inline rms_fp_word rms_fp_read(void) {
  rms_fp_word word;
  __asm__ volatile("stmxcsr %0" : "=m"(word));
  return word;
}

static inline void rms_fp_set_control(rms_fp_word control) {
  rms_fp_word word = (rms_fp_read() & ~(rms_fp_word)RMS_FP_CONTROL) | (control & RMS_FP_CONTROL);
  __asm__ volatile("ldmxcsr %0" : : "m"(word) : "memory");
}

static inline int rms_fp_is_default(rms_fp_word word) {
  return (word & RMS_FP_CONTROL) == RMS_FP_DEFAULT;
}

#elif defined(__aarch64__)

typedef uint64_t rms_fp_word;

/* FPCR: no bit of it is a flag, and by default none is set. */
enum { RMS_FP_DEFAULT = 0 };

static inline rms_fp_word rms_fp_read(void) {
  rms_fp_word word;
  __asm__ volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}

static inline void rms_fp_set_control(rms_fp_word control) {
  __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}

static inline int rms_fp_is_default(rms_fp_word word) {
  return word == RMS_FP_DEFAULT;
}

#else /* what C itself offers: the rounding mode */

#include <fenv.h>

typedef int rms_fp_word;

enum { RMS_FP_DEFAULT = FE_TONEAREST };

static inline rms_fp_word rms_fp_read(void) {
  return fegetround();
}

static inline void rms_fp_set_control(rms_fp_word control) {
  fesetround(control);
  __asm__ volatile("" : : : "memory");
}

static inline int rms_fp_is_default(rms_fp_word word) {
  return word == RMS_FP_DEFAULT;
}

#endif

/* Returns the caller's settings, for rms_fp_leave. */
static inline rms_fp_word rms_fp_enter(void) {
  rms_fp_word callers = rms_fp_read();
  if (__builtin_expect(!rms_fp_is_default(callers), 0)) rms_fp_set_control(RMS_FP_DEFAULT);
  return callers;
}

static inline void rms_fp_leave(rms_fp_word callers) {
  if (__builtin_expect(!rms_fp_is_default(callers), 0)) rms_fp_set_control(callers);
}

#endif
