/* SPDX-License-Identifier: MIT
 *
 * Vectors of elements from and to memory: n of them, n being the constant LANES or less. */

/* A load waits for a store before it whose address has the same last twelve bits: where y lies up to five lines behind
 * x or a weight in that sense, or dx behind the next row, a loop that stores each vector when it is done takes up to
 * six times as long. There four vectors are worked out, and everything for them is loaded, before the first is stored,
 * if the registers have room for them. Elsewhere that order would be the slower one. */
INLINE bool K(is_close_behind)(const void *to, const void *from) {
  return (((uintptr_t)to - (uintptr_t)from) & 4095) - 1 < 5 * 64;
}

enum { K(TOGETHER) = VEC_REGISTERS >= 32 };

/* n elements from element j of p on, stored as f32 if wide, as T otherwise. n is the constant LANES, or less. */
INLINE VEC K(load)(const char *p, int64_t j, int n, bool wide) {
  if (T != RMS_F32 && wide) {
    p += j * 4;
    return n == LANES ? V(load)(p, RMS_F32, EO) : V(load_n)(p, n, RMS_F32, EO);
  }
  p += j * T_SIZE;
  return n == LANES ? V(load)(p, T, EO) : V(load_n)(p, n, T, EO);
}

/* Bytes of an element of a type that the arithmetic takes. */
INLINE int64_t K(size_of)(rms_dtype type) {
  return type == T ? T_SIZE : type == RMS_F32 ? 4 : 2;
}

/* Stores n elements from element j of p on, of a type that is a constant at the call. */
INLINE void K(put_type)(char *p, int64_t j, int n, VEC v, rms_dtype type, bool stream) {
  p += j * K(size_of)(type);
  if (n < LANES)
    V(store_n)(p, v, n, type, EO);
  else if (stream)
    V(stream)(p, v, type, EO);
  else
    V(store)(p, v, type, EO);
}

/* As f32 if wide, as T otherwise. */
INLINE void K(put)(char *p, int64_t j, int n, VEC v, bool wide, bool stream) {
  K(put_type)(p, j, n, v, T != RMS_F32 && wide ? RMS_F32 : T, stream);
}

/* Elements of any type: a y or dy that has not T's. Only f64 keeps to itself. */
INLINE VEC K(load_in_place)(const char *p, int64_t j, int n, rms_dtype type) {
  if (type == T || T == RMS_F64) return K(load)(p, j, n, false);
  if (type == RMS_F32) return K(load)(p, j, n, true);
  p += j * 2;
  if (type == RMS_BF16) return n == LANES ? V(load)(p, RMS_BF16, EO) : V(load_n)(p, n, RMS_BF16, EO);
  return n == LANES ? V(load)(p, RMS_F16, EO) : V(load_n)(p, n, RMS_F16, EO);
}

NOINLINE VEC K(load_other)(const char *p, int64_t j, int n, rms_dtype type) {
  return K(load_in_place)(p, j, n, type);
}

/* For where speed is of less weight than the size of the code. */
INLINE VEC K(load_as)(const char *p, int64_t j, int n, rms_dtype type) {
  if (type == T || T == RMS_F64) return K(load)(p, j, n, false);
  return type == RMS_F32 ? K(load)(p, j, n, true) : K(load_other)(p, j, n, type);
}

NOINLINE void K(put_other)(char *p, int64_t j, int n, VEC v, rms_dtype type, bool stream) {
  if (type == RMS_BF16)
    K(put_type)(p, j, n, v, RMS_BF16, stream);
  else
    K(put_type)(p, j, n, v, RMS_F16, stream);
}

INLINE void K(put_as)(char *p, int64_t j, int n, VEC v, rms_dtype type, bool stream) {
  if (type == T || T == RMS_F64)
    K(put)(p, j, n, v, false, stream);
  else if (type == RMS_F32)
    K(put)(p, j, n, v, true, stream);
  else
    K(put_other)(p, j, n, v, type, stream);
}

/* The same for results that cannot hold a NaN with a payload: see V(store_clean). */
INLINE void K(put_clean)(char *p, int64_t j, int n, VEC v, bool stream) {
  if (n < LANES)
    V(store_n)(p + j * T_SIZE, v, n, T, EO);
  else
    V(store_clean)(p + j * T_SIZE, v, T, EO, stream);
}

/* The four vectors of a quad. */
typedef struct {
  VEC a, b, c, d;
} K(lanes);

/* Whether a quad is stored in fewer instructions than its vectors one by one. */
#ifdef VEC_STORES_QUADS
enum { K(QUADS) = T == RMS_BF16 };
#else
enum { K(QUADS) = 0 };
#endif

/* As K(put_clean), of a quad from element j on. With `stream` a quad of K(QUADS) is aligned to 64 bytes. */
INLINE void K(put_quad)(char *p, int64_t j, K(lanes) v, bool stream) {
#ifdef VEC_STORES_QUADS
  if (K(QUADS)) {
    vf_store4_clean(p + j * T_SIZE, v.a, v.b, v.c, v.d, stream);
    return;
  }
#endif
  K(put_clean)(p, j, LANES, v.a, stream);
  K(put_clean)(p, j + LANES, LANES, v.b, stream);
  K(put_clean)(p, j + 2 * LANES, LANES, v.c, stream);
  K(put_clean)(p, j + 3 * LANES, LANES, v.d, stream);
}

/* How many elements lie before the first whole line of p, where vectors can start at any element and fill a line each.
 * Stores that straddle two lines take twice as long, or longer. */
INLINE int64_t K(to_line)(const char *p, int64_t width) {
  int64_t bytes = -(int64_t)(uintptr_t)p & 63;
  if (T != REAL_TYPE || bytes % T_SIZE != 0) return 0;
  return bytes / T_SIZE < width ? bytes / T_SIZE : 0;
}

/* The first n < LANES elements of p, of REAL, in the last lanes, and zeros before them. */
INLINE VEC K(load_last)(const void *p, int64_t n) {
  return V(load_from)((const void *)((uintptr_t)p - (uintptr_t)(LANES - n) * sizeof(REAL)), (int)(LANES - n));
}
