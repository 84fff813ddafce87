/* SPDX-License-Identifier: MIT
 *
 * Results do not depend on the caller's floating-point settings. Those belong to a thread: flush-to-zero and
 * denormals-are-zero, the rounding mode, which exceptions trap. So each piece of work, on whatever thread it runs,
 * stands between rms_fp_enter and rms_fp_leave: the settings become the default ones (IEEE arithmetic, to nearest, no
 * traps) where they are not, and the caller's come back with the exception flags that were raised meanwhile. Where they
 * are the default ones already, which is nearly everywhere, that costs one load and one comparison.
 *
 * The compiler knows nothing of this. Loads and stores stay between the two; a value that lives in a register is held
 * there by RMS_FP_PIN. */
#ifndef RMS_CORE_FP_ENV_H
#define RMS_CORE_FP_ENV_H

#include <stdint.h>

/* Forgets what is known of a variable: what is computed from it stays behind this point, what it is computed from
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
