/* SPDX-License-Identifier: MIT
 *
 * Every operation of one instruction set's virtual vector against reference.h. Included by one unit per instruction
 * set, after its vec header. Buffers lie against inaccessible pages: a partial load or store may touch its n elements
 * only. */

#include <float.h>
#include <math.h>
#include <string.h>
#include "call.h"
#include "reference.h"
#include "../../verify/quantise.h"

enum { F32_LANES = 16, F64_LANES = 8 };

typedef struct guarded {
  t_guard in, out;
} guarded;

/* Calls need a constant order and type, as in the kernels; these give each a name. */
static vf load(const void *p, rms_dtype type, int eo) {
  if (type == RMS_F32) return eo ? vf_load(p, RMS_F32, 1) : vf_load(p, RMS_F32, 0);
  if (type == RMS_BF16) return eo ? vf_load(p, RMS_BF16, 1) : vf_load(p, RMS_BF16, 0);
  return eo ? vf_load(p, RMS_F16, 1) : vf_load(p, RMS_F16, 0);
}

static vf load_n(const void *p, int n, rms_dtype type, int eo) {
  if (type == RMS_F32) return eo ? vf_load_n(p, n, RMS_F32, 1) : vf_load_n(p, n, RMS_F32, 0);
  if (type == RMS_BF16) return eo ? vf_load_n(p, n, RMS_BF16, 1) : vf_load_n(p, n, RMS_BF16, 0);
  return eo ? vf_load_n(p, n, RMS_F16, 1) : vf_load_n(p, n, RMS_F16, 0);
}

/* The lanes as they lie, put back into element order by vf_lane. */
static void elements(float *out, vf a, int eo) {
  float lanes[F32_LANES];
  vf_store(lanes, a, RMS_F32, 0);
  for (int i = 0; i < F32_LANES; i++)
    out[i] = lanes[vf_lane(i, eo)];
}

static double value_at(const void *p, int i, rms_dtype type) {
  if (type == RMS_F32) {
    float f;
    memcpy(&f, (const char *)p + 4 * i, 4);
    return (double)f;
  }
  uint16_t h;
  memcpy(&h, (const char *)p + 2 * i, 2);
  return ref_widen(h, type);
}

static void check_loads(guarded *g, rms_dtype type) {
  size_t size = rms_dtype_size(type);
  for (int eo = 0; eo < 2; eo++)
    for (int n = 0; n <= F32_LANES; n++)
      for (int flush = 0; flush < 2; flush++) {
        void *p = t_guard_place(&g->in, size * (size_t)n, (t_flush)flush, 0);
        t_fill(p, type, n, T_WIDE, t_seed(), (uint64_t)n, eo);
        float have[F32_LANES];
        t_context("type=%d eo=%d n=%d", (int)type, eo, n);
        elements(have, n == F32_LANES ? load(p, type, eo) : load_n(p, n, type, eo), eo);
        for (int i = 0; i < F32_LANES; i++) {
          T_EQ_F64(i < n ? value_at(p, i, type) : 0.0, (double)have[i]);
          if (i >= n) T_CHECK(!signbit(have[i]));
        }
      }
}

/* The last `count` lanes of a vector whose first ones may not be read: they lie on the other side of the guard. */
static void check_loads_from(guarded *g) {
  for (int count = 0; count <= F32_LANES; count++)
    for (int flush = 0; flush < 2; flush++) {
      const int skip = F32_LANES - count;
      const float *p = t_guard_place(&g->in, 4 * (size_t)count, (t_flush)flush, 0);
      float have[F32_LANES];
      t_fill((void *)(uintptr_t)p, RMS_F32, count, T_WIDE, t_seed(), 130, count);
      vf_store(have, vf_load_from((const void *)((uintptr_t)p - 4 * (uintptr_t)skip), skip), RMS_F32, 0);
      t_context("f32 from %d", skip);
      for (int i = 0; i < F32_LANES; i++)
        T_EQ_F64(i < skip ? 0.0 : (double)p[i - skip], (double)have[i]);
    }
  for (int count = 0; count <= F64_LANES; count++)
    for (int flush = 0; flush < 2; flush++) {
      const int skip = F64_LANES - count;
      const double *p = t_guard_place(&g->in, 8 * (size_t)count, (t_flush)flush, 0);
      double have[F64_LANES];
      t_fill((void *)(uintptr_t)p, RMS_F64, count, T_WIDE, t_seed(), 131, count);
      vd_store(have, vd_load_from((const void *)((uintptr_t)p - 8 * (uintptr_t)skip), skip), RMS_F64, 0);
      t_context("f64 from %d", skip);
      for (int i = 0; i < F64_LANES; i++)
        T_EQ_F64(i < skip ? 0.0 : p[i - skip], have[i]);
    }
}

static void check_joins(void) {
  float a[F32_LANES], b[F32_LANES], have[F32_LANES];
  double c[F64_LANES], d[F64_LANES], wide[F64_LANES];
  t_fill(a, RMS_F32, F32_LANES, T_WIDE, t_seed(), 132, 0);
  t_fill(b, RMS_F32, F32_LANES, T_WIDE, t_seed(), 132, 1);
  t_fill(c, RMS_F64, F64_LANES, T_WIDE, t_seed(), 132, 2);
  t_fill(d, RMS_F64, F64_LANES, T_WIDE, t_seed(), 132, 3);
  for (int n = 0; n <= F32_LANES; n++) {
    vf_store(have, vf_join(vf_load(a, RMS_F32, 0), vf_load(b, RMS_F32, 0), n), RMS_F32, 0);
    t_context("join %d", n);
    for (int i = 0; i < F32_LANES; i++)
      T_EQ_F64((double)(i < n ? a[i] : b[i]), (double)have[i]);
    if (n > F64_LANES) continue;
    vd_store(wide, vd_join(vd_load(c, RMS_F64, 0), vd_load(d, RMS_F64, 0), n), RMS_F64, 0);
    for (int i = 0; i < F64_LANES; i++)
      T_EQ_F64(i < n ? c[i] : d[i], wide[i]);
  }
}

static void store_n(void *p, vf a, int n, rms_dtype type, int eo) {
  if (type == RMS_F32)
    eo ? vf_store_n(p, a, n, RMS_F32, 1) : vf_store_n(p, a, n, RMS_F32, 0);
  else if (type == RMS_BF16)
    eo ? vf_store_n(p, a, n, RMS_BF16, 1) : vf_store_n(p, a, n, RMS_BF16, 0);
  else
    eo ? vf_store_n(p, a, n, RMS_F16, 1) : vf_store_n(p, a, n, RMS_F16, 0);
}

static void store(void *p, vf a, rms_dtype type, int eo, int stream) {
  if (type == RMS_F32 && eo)
    stream ? vf_stream(p, a, RMS_F32, 1) : vf_store(p, a, RMS_F32, 1);
  else if (type == RMS_F32)
    stream ? vf_stream(p, a, RMS_F32, 0) : vf_store(p, a, RMS_F32, 0);
  else if (type == RMS_BF16 && eo)
    stream ? vf_stream(p, a, RMS_BF16, 1) : vf_store(p, a, RMS_BF16, 1);
  else if (type == RMS_BF16)
    stream ? vf_stream(p, a, RMS_BF16, 0) : vf_store(p, a, RMS_BF16, 0);
  else if (eo)
    stream ? vf_stream(p, a, RMS_F16, 1) : vf_store(p, a, RMS_F16, 1);
  else
    stream ? vf_stream(p, a, RMS_F16, 0) : vf_store(p, a, RMS_F16, 0);
}

/* For vectors whose NaNs have a zero low half. */
static void store_clean(void *p, vf a, rms_dtype type, int eo, int stream) {
  if (type == RMS_F32)
    eo ? vf_store_clean(p, a, RMS_F32, 1, stream) : vf_store_clean(p, a, RMS_F32, 0, stream);
  else if (type == RMS_BF16)
    eo ? vf_store_clean(p, a, RMS_BF16, 1, stream) : vf_store_clean(p, a, RMS_BF16, 0, stream);
  else
    eo ? vf_store_clean(p, a, RMS_F16, 1, stream) : vf_store_clean(p, a, RMS_F16, 0, stream);
}

/* What storing a value leaves in memory. */
static void expected_bytes(void *to, const float *from, int n, rms_dtype type) {
  for (int i = 0; i < n; i++)
    if (type == RMS_F32) {
      memcpy((char *)to + 4 * i, &from[i], 4);
    } else {
      uint16_t h = ref_narrow(from[i], type);
      memcpy((char *)to + 2 * i, &h, 2);
    }
}

static void check_stores(guarded *g, rms_dtype type) {
  size_t size = rms_dtype_size(type);
  for (int eo = 0; eo < 2; eo++)
    for (int n = 0; n <= F32_LANES + 3; n++) /* 17: the streaming store; 18, 19: the two for clean vectors */
      for (int flush = 0; flush < 2; flush++) {
        int count = n > F32_LANES ? F32_LANES : n;
        float from[F32_LANES];
        unsigned char want[4 * F32_LANES];
        t_fill(from, RMS_F32, F32_LANES, T_NORMAL, t_seed(), (uint64_t)n + 50, eo);
        expected_bytes(want, from, count, type);
        vf a = load(from, RMS_F32, eo);
        unsigned char *p = t_guard_place(&g->out, size * (size_t)count, (t_flush)flush, 0);
        t_context("type=%d eo=%d n=%d", (int)type, eo, n);
        if (n < F32_LANES)
          store_n(p, a, n, type, eo);
        else if (n <= F32_LANES + 1)
          store(p, a, type, eo, n > F32_LANES);
        else
          store_clean(p, a, type, eo, n - F32_LANES - 2);
        vec_stream_fence();
        T_EQ_BYTES(want, p, size * (size_t)count);
        T_CHECK(t_guard_intact(&g->out, p, size * (size_t)count));
      }
}

/* All 65,536 inputs of a 16-bit type, and back. */
static void check_all_halves(rms_dtype type) {
  for (int eo = 0; eo < 2; eo++)
    for (int base = 0; base < 65536; base += F32_LANES) {
      uint16_t in[F32_LANES], out[F32_LANES];
      float have[F32_LANES];
      for (int i = 0; i < F32_LANES; i++)
        in[i] = (uint16_t)(base + i);
      vf a = load(in, type, eo);
      elements(have, a, eo);
      t_context("type=%d eo=%d bits=0x%04x...", (int)type, eo, (unsigned)base);
      for (int i = 0; i < F32_LANES; i++) {
        T_EQ_F64(ref_widen(in[i], type), (double)have[i]);
        T_EQ_INT(in[i] >> 15, signbit(have[i]) != 0);
      }
      store(out, a, type, eo, 0);
      T_EQ_ELEMENTS(in, out, type, F32_LANES);
    }
}

static void check_clean_rounding(const float *from, rms_dtype type, int eo) {
  float clean[F32_LANES], want[F32_LANES], have[F32_LANES];
  for (int i = 0; i < F32_LANES; i++) {
    clean[i] = isnan(from[i]) ? NAN : from[i];
    want[i] = (float)ref_widen(ref_narrow(clean[i], type), type);
  }
  vf a = load(clean, RMS_F32, eo);
  elements(have, type == RMS_BF16 ? vf_round_clean(a, RMS_BF16) : vf_round_clean(a, RMS_F16), eo);
  T_EQ_ELEMENTS(want, have, RMS_F32, F32_LANES);
}

static void check_narrow(const float *from, rms_dtype type, int eo) {
  uint16_t want[F32_LANES], have[2 * F32_LANES]; /* room for elements of any type */
  float rounded[F32_LANES], wide[F32_LANES];
  vf a = load(from, RMS_F32, eo);
  for (int i = 0; i < F32_LANES; i++) {
    want[i] = ref_narrow(from[i], type);
    wide[i] = (float)ref_widen(want[i], type);
  }
  store(have, a, type, eo, 0);
  T_EQ_ELEMENTS(want, have, type, F32_LANES);
  float clean[F32_LANES];
  for (int i = 0; i < F32_LANES; i++)
    clean[i] = isnan(from[i]) ? NAN : from[i];
  store_clean(have, load(clean, RMS_F32, eo), type, eo, 0);
  T_EQ_ELEMENTS(want, have, type, F32_LANES);
  elements(rounded, type == RMS_BF16 ? vf_round(a, RMS_BF16) : vf_round(a, RMS_F16), eo);
  T_EQ_ELEMENTS(wide, rounded, RMS_F32, F32_LANES);
}

/* Rounding at every value of the type, halfway to the next one, and one step to either side of that. */
static void check_rounding(rms_dtype type) {
  for (uint32_t base = 0; base < 65536; base += 4)
    for (int eo = 0; eo < 2; eo++) {
      float from[F32_LANES];
      for (uint32_t i = 0; i < F32_LANES; i++) {
        double low = ref_widen((uint16_t)(base + i / 4), type), high = ref_widen((uint16_t)(base + i / 4 + 1), type);
        float middle = (float)(low / 2 + high / 2);
        from[i] = i % 4 == 0 ? (float)low : i % 4 == 1 ? middle : nextafterf(middle, i % 4 == 2 ? INFINITY : -INFINITY);
      }
      t_context("type=%d eo=%d at 0x%04x", (int)type, eo, base);
      check_narrow(from, type, eo);
      check_clean_rounding(from, type, eo);
    }
  for (int64_t i = 0; i < 4000; i++) {
    float from[F32_LANES];
    t_fill(from, RMS_F32, F32_LANES, i & 1 ? T_WIDE : T_SPECIAL, t_seed(), 90, i);
    t_context("type=%d random %d", (int)type, (int)i);
    check_narrow(from, type, 0);
    check_clean_rounding(from, type, 0);
  }
}

/* NaNs whatever their payload: rounded like a number, the first ones would become infinite and the last ones zero. */
static void check_nans(rms_dtype type) {
  static const uint32_t nans[F32_LANES] = {0x7f800001, 0x7f807fff, 0x7f808000, 0x7f80ffff, 0x7fbfffff, 0x7fc00000,
                                           0x7fff7fff, 0x7fff8000, 0x7fffffff, 0xff800001, 0xff807fff, 0xffbfffff,
                                           0xffc00000, 0xffff7fff, 0xffff8000, 0xffffffff};
  float from[F32_LANES];
  memcpy(from, nans, sizeof from);
  for (int eo = 0; eo < 2; eo++) {
    t_context("type=%d eo=%d NaNs", (int)type, eo);
    check_narrow(from, type, eo);
  }
}

#ifdef VEC_STORES_QUADS
/* What the instructions that round to bf16 do not see: subnormal numbers, one among zeros or among normal numbers,
 * those that become normal and those that become zeros. The others: numbers of any size, NaNs and zeros in any number.
 */
static void fill_quad(float *to, int lane, int kind) {
  static const float few[] = {0x1p-127f,  -0x1p-133f,   0x1.8p-133f,  0x1p-134f, 0x1.000002p-134f,
                              -0x1p-149f, 0x1.fep-127f, 0x1.ffp-127f, 0x1p-126f, 0x1.ffp-126f};
  const float one = few[lane % (int)T_COUNT(few)];
  switch (kind) {
  case 0:
  case 1:
    t_fill(to, RMS_F32, 4 * F32_LANES, kind ? T_SPECIAL : T_WIDE, t_seed(), 95, lane);
    return;
  case 2: /* zeros alone */
  case 3: /* and one number */
    for (int i = 0; i < 4 * F32_LANES; i++)
      to[i] = i & 1 ? -0.0F : 0;
    break;
  case 4:  /* one number among ordinary ones */
  default: /* and among these zeros */
    t_fill(to, RMS_F32, 4 * F32_LANES, T_NORMAL, t_seed(), 96, lane);
    for (int i = 0; kind == 5 && i < 4 * F32_LANES; i += 3)
      to[i] = 0;
  }
  if (kind > 2) to[lane] = one;
}

static void check_quads(guarded *g) {
  for (int kind = 0; kind < 6; kind++)
    for (int lane = 0; lane < 4 * F32_LANES; lane++)
      for (int flush = 0; flush < 2; flush++) {
        float from[4 * F32_LANES];
        uint16_t want[4 * F32_LANES];
        fill_quad(from, lane, kind);
        for (int i = 0; i < 4 * F32_LANES; i++)
          want[i] = ref_narrow(from[i], RMS_BF16);
        unsigned char *p = t_guard_place(&g->out, sizeof want, (t_flush)flush, 0);
        t_context("quad of kind %d, lane %d", kind, lane);
        vf_store4_clean(p, vf_load(from, RMS_F32, 0), vf_load(from + F32_LANES, RMS_F32, 0),
                        vf_load(from + 2 * F32_LANES, RMS_F32, 0), vf_load(from + 3 * F32_LANES, RMS_F32, 0), lane & 1);
        vec_stream_fence();
        T_EQ_ELEMENTS(want, p, RMS_BF16, 4 * F32_LANES);
        T_CHECK(t_guard_intact(&g->out, p, sizeof want));
      }
}
#endif

static double max_bits_f64(double a, double b) {
  uint64_t magnitude_a, magnitude_b;
  memcpy(&magnitude_a, &a, sizeof a);
  memcpy(&magnitude_b, &b, sizeof b);
  return magnitude_a << 1 > magnitude_b << 1 ? fabs(a) : fabs(b);
}

static double most_f64(const double *x, int n) {
  double most = 0;
  for (int i = 0; i < n; i++)
    most = max_bits_f64(most, x[i]);
  return most;
}

static float exponent_f32(float a) {
  uint32_t bits;
  memcpy(&bits, &a, sizeof bits);
  bits <<= 23;
  memcpy(&a, &bits, sizeof a);
  return a;
}

static double exponent_f64(double a) {
  uint64_t bits;
  memcpy(&bits, &a, sizeof bits);
  bits <<= 52;
  memcpy(&a, &bits, sizeof a);
  return a;
}

/* What the results of check_arithmetic must be, in their order. */
static float expected_f32(int op, float a, float b, float c, float fourth) {
  switch (op) {
  case 0:
    return a + b;
  case 1:
    return a - b;
  case 2:
    return a * b;
  case 3:
    return fmaf(a, b, c);
  case 4:
    return fourth;
  case 5:
    return (float)max_bits_f64((double)a, (double)b); /* widening keeps the order of magnitudes and of NaNs */
  case 6:
    return a / b;
  case 7:
    return a > b ? a : b;
  case 8:
    return a < b ? a : b;
  case 9:
    return a < b ? c : a;
  default:
    return exponent_f32(a);
  }
}

/* One lane that is not less, or a NaN, decides. */
static void check_all_less(void) {
  float a[F32_LANES] = {0};
  double wide[F64_LANES] = {0};
  T_CHECK(vf_all_less(vf_load(a, RMS_F32, 0), vf_set(1)));
  T_CHECK(vd_all_less(vd_load(wide, RMS_F64, 0), vd_set(1)));
  for (int i = 0; i < 3 * F32_LANES; i++) {
    const float not_less[] = {1, 2, NAN};
    a[i % F32_LANES] = not_less[i / F32_LANES];
    wide[i % F64_LANES] = (double)not_less[i / F32_LANES];
    t_context("all_less, lane %d, %g", i % F32_LANES, (double)not_less[i / F32_LANES]);
    T_CHECK(!vf_all_less(vf_load(a, RMS_F32, 0), vf_set(1)));
    T_CHECK(!vf_all_less(vf_set(0), vf_if_less(vf_load(a, RMS_F32, 0), vf_set(1), vf_set(1), vf_set(0))));
    T_CHECK(!vd_all_less(vd_load(wide, RMS_F64, 0), vd_set(1)));
    a[i % F32_LANES] = 0;
    wide[i % F64_LANES] = 0;
  }
}

static void check_arithmetic(void) {
  for (int64_t k = 0; k < 2000; k++) {
    float a[F32_LANES], b[F32_LANES], c[F32_LANES], want[F32_LANES], have[F32_LANES];
    t_data style = (t_data)(k % T_DATA_COUNT);
    t_fill(a, RMS_F32, F32_LANES, style, t_seed(), 100, k);
    t_fill(b, RMS_F32, F32_LANES, style, t_seed(), 101, k);
    t_fill(c, RMS_F32, F32_LANES, style, t_seed(), 102, k);
    vf va = vf_load(a, RMS_F32, 0), vb = vf_load(b, RMS_F32, 0), vc = vf_load(c, RMS_F32, 0);
    vf results[] = {vf_add(va, vb), vf_sub(va, vb),
                    vf_mul(va, vb), vf_fma(va, vb, vc),
                    vf_set(a[3]),   vf_max_bits(vf_max_bits(vf_set(0), va), vb),
                    vf_div(va, vb), vf_max(va, vb),
                    vf_min(va, vb), vf_if_less(va, vb, vc, va),
                    vf_exponent(va)};
    for (int op = 0; op < (int)T_COUNT(results); op++) {
      for (int i = 0; i < F32_LANES; i++)
        want[i] = expected_f32(op, a[i], b[i], c[i], a[3]);
      vf_store(have, results[op], RMS_F32, 0);
      t_context("op=%d k=%d", op, (int)k);
      T_EQ_ELEMENTS(want, have, RMS_F32, F32_LANES);
    }
  }
}

/* Comparisons of every pair of special values: the second operand where one is NaN or both are equal. */
static void check_comparisons(void) {
  static const float special[] = {0.0f,     -0.0f,     1.0f, -1.0f,   0x1p-149f, -0x1p-149f,
                                  INFINITY, -INFINITY, NAN,  FLT_MAX, -FLT_MAX};
  for (size_t i = 0; i < T_COUNT(special); i++)
    for (size_t j = 0; j < T_COUNT(special); j++) {
      const float a = special[i], b = special[j];
      const float want[] = {a > b ? a : b, a < b ? a : b, a < b ? 2.0f : 3.0f};
      vf va = vf_set(a), vb = vf_set(b),
         f32[] = {vf_max(va, vb), vf_min(va, vb), vf_if_less(va, vb, vf_set(2), vf_set(3))};
      vd da = vd_set((double)a), db = vd_set((double)b);
      vd f64[] = {vd_max(da, db), vd_min(da, db), vd_if_less(da, db, vd_set(2), vd_set(3))};
      for (size_t op = 0; op < T_COUNT(want); op++) {
        float have[F32_LANES], narrow[F64_LANES], all[F32_LANES];
        double wide[F64_LANES];
        vf_store(have, f32[op], RMS_F32, 0);
        vd_store(wide, f64[op], RMS_F64, 0);
        for (int l = 0; l < F32_LANES; l++)
          all[l] = want[op];
        for (int l = 0; l < F64_LANES; l++)
          narrow[l] = (float)wide[l];
        t_context("comparison %d of %g and %g", (int)op, (double)a, (double)b);
        T_EQ_ELEMENTS(all, have, RMS_F32, F32_LANES);
        T_EQ_ELEMENTS(all, narrow, RMS_F32, F64_LANES);
      }
    }
}

/* Sums that lie beside the middle between two f32 numbers by less than an f64 can show, in the normal range and below
 * it: rounded to f64 first they would end on the wrong side. */
static void check_fma_middles(void) {
  for (int k = 0; k < 32; k++) {
    float a[F32_LANES], b[F32_LANES], c[F32_LANES], want[F32_LANES], have[F32_LANES];
    int below = k >= 16;
    for (int i = 0; i < F32_LANES; i++) {
      float side = i & 1 ? -0x1p-23f : 0x1p-23f, sign = i & 2 ? -1.0f : 1.0f, scale = ldexpf(1, 7 * (k % 16) - 50);
      int odd = i & 4;
      a[i] = sign * (1 + side) * (below ? 0x1p-75f : 0x1p-24f * scale);
      b[i] = (1 - side) * (below ? 0x1p-75f : 1.0f);
      c[i] = sign * (below ? 0x1p-127f + (odd ? 0x1p-149f : 0) : (odd ? 1 + 0x1p-23f : 1) * scale);
      if (k & 1) b[i] = -b[i];
      want[i] = fmaf(a[i], b[i], c[i]);
    }
    vf_store(have, vf_fma(vf_load(a, RMS_F32, 0), vf_load(b, RMS_F32, 0), vf_load(c, RMS_F32, 0)), RMS_F32, 0);
    t_context("fma middles k=%d", k);
    T_EQ_ELEMENTS(want, have, RMS_F32, F32_LANES);
  }
}

static void check_first_and_sum(void) {
  for (int eo = 0; eo < 2; eo++)
    for (int64_t k = 0; k < 500; k++) {
      float x[4 * F32_LANES], lanes[4 * F32_LANES], have[F32_LANES];
      t_fill(x, RMS_F32, 4 * F32_LANES, k & 1 ? T_WIDE : T_NORMAL, t_seed(), 110, k);
      memcpy(lanes, x, sizeof x);
      vf v[4];
      for (int i = 0; i < 4; i++)
        v[i] = load(x + i * F32_LANES, RMS_F32, eo);
      float sum = eo ? vf_sum4(v[0], v[1], v[2], v[3], 1) : vf_sum4(v[0], v[1], v[2], v[3], 0);
      t_context("eo=%d k=%d", eo, (int)k);
      T_EQ_F64((double)ref_tree_f32(lanes, 4 * F32_LANES), (double)sum);
      vf rows[8];
      float sums[8];
      for (int i = 0; i < 8; i++)
        rows[i] = load(x + 5 * i, RMS_F32, eo);
      eo ? vf_sum8(sums, rows, 1) : vf_sum8(sums, rows, 0);
      for (int i = 0; i < 8; i++) {
        memcpy(lanes, x + 5 * i, F32_LANES * sizeof *lanes);
        T_EQ_F64((double)ref_tree_f32(lanes, F32_LANES), (double)sums[i]);
      }
      int n = (int)(k % (F32_LANES + 1));
      elements(have, eo ? vf_first(v[1], n, 1) : vf_first(v[1], n, 0), eo);
      for (int i = 0; i < F32_LANES; i++)
        T_EQ_F64(i < n ? (double)x[F32_LANES + i] : 0.0, (double)have[i]);
    }
}

/* ---- f64 ---- */

static void check_f64_memory(guarded *g) {
  for (int n = 0; n <= F64_LANES + 2; n++)
    for (int flush = 0; flush < 2; flush++)
      for (int narrow = 0; narrow < 2; narrow++) {
        int count = n > F64_LANES ? F64_LANES : n;
        rms_dtype type = narrow ? RMS_F32 : RMS_F64;
        void *p = t_guard_place(&g->in, rms_dtype_size(type) * (size_t)count, (t_flush)flush, 0);
        t_fill(p, type, count, T_WIDE, t_seed(), 120, n);
        vd a = narrow          ? n < F64_LANES ? vd_load_n(p, n, RMS_F32, 0) : vd_load(p, RMS_F32, 0)
                        : n < F64_LANES ? vd_load_n(p, n, RMS_F64, 0)
                               : vd_load(p, RMS_F64, 0);
        double have[F64_LANES];
        vd_store(have, a, RMS_F64, 0);
        t_context("n=%d narrow=%d", n, narrow);
        for (int i = 0; i < F64_LANES; i++) {
          double want = 0;
          if (i < count && narrow)
            want = value_at(p, i, RMS_F32);
          else if (i < count)
            memcpy(&want, (char *)p + 8 * i, 8);
          T_EQ_F64(want, have[vd_lane(i, 0)]);
        }
        unsigned char *out = t_guard_place(&g->out, 8 * (size_t)count, (t_flush)flush, 0);
        if (n > F64_LANES + 1)
          vd_store_clean(out, a, RMS_F64, 0, flush);
        else if (n > F64_LANES)
          vd_stream(out, a, RMS_F64, 0);
        else if (n == F64_LANES)
          vd_store(out, a, RMS_F64, 0);
        else
          vd_store_n(out, a, n, RMS_F64, 0);
        vec_stream_fence();
        T_EQ_BYTES(have, out, 8 * (size_t)count);
        T_CHECK(t_guard_intact(&g->out, out, 8 * (size_t)count));
      }
}

static void check_f64_arithmetic(void) {
  for (int64_t k = 0; k < 1000; k++) {
    double x[4 * F64_LANES], lanes[4 * F64_LANES], have[F64_LANES];
    t_fill(x, RMS_F64, 4 * F64_LANES, (t_data)(k % T_DATA_COUNT), t_seed(), 130, k);
    memcpy(lanes, x, sizeof x);
    vd v[4];
    for (int i = 0; i < 4; i++)
      v[i] = vd_load(x + i * F64_LANES, RMS_F64, 0);
    double sum = vd_sum4(v[0], v[1], v[2], v[3], 0), want = ref_tree_f64(lanes, 4 * F64_LANES);
    t_context("k=%d", (int)k);
    T_EQ_F64(want, sum);
    vd rows[8];
    double sums[8];
    for (int i = 0; i < 8; i++)
      rows[i] = vd_load(x + 3 * i, RMS_F64, 0);
    vd_sum8(sums, rows, 0);
    for (int i = 0; i < 8; i++) {
      memcpy(lanes, x + 3 * i, F64_LANES * sizeof *lanes);
      T_EQ_F64(ref_tree_f64(lanes, F64_LANES), sums[i]);
    }
    vd results[] = {vd_add(v[0], v[1]),
                    vd_sub(v[0], v[1]),
                    vd_mul(v[0], v[1]),
                    vd_fma(v[0], v[1], v[2]),
                    vd_set(x[3]),
                    vd_round(v[0], RMS_F64),
                    vd_first(v[0], (int)(k % 9), 0),
                    vd_max_bits(vd_max_bits(vd_set(0), v[0]), v[1]),
                    vd_div(v[0], v[1]),
                    vd_max(v[0], v[1]),
                    vd_min(v[0], v[1]),
                    vd_if_less(v[0], v[1], v[2], v[0]),
                    vd_exponent(v[0])};
    T_EQ_F64(most_f64(x, 2 * F64_LANES), vd_most(results[7]));
    for (int op = 0; op < (int)T_COUNT(results); op++) {
      vd_store(have, results[op], RMS_F64, 0);
      for (int i = 0; i < F64_LANES; i++) {
        double a = x[i], b = x[F64_LANES + i], c = x[2 * F64_LANES + i];
        double all[] = {a + b,
                        a - b,
                        a * b,
                        fma(a, b, c),
                        x[3],
                        a,
                        i < k % 9 ? a : 0.0,
                        max_bits_f64(a, b),
                        a / b,
                        a > b ? a : b,
                        a < b ? a : b,
                        a < b ? c : a,
                        exponent_f64(a)};
        T_EQ_F64(all[op], have[i]);
      }
    }
  }
}

/* ---- 8-bit types ---- */

/* 64 elements: 32 at p, and 32 at `more`. */
static void store8(void *p, void *more, const vf *v, rms_dtype type, int eo, int within) {
#define STORE8(type, eo, within) vf_store8(p, more, v[0], v[1], v[2], v[3], type, eo, within)
  if (type == RMS_I8 && eo)
    within ? STORE8(RMS_I8, 1, 1) : STORE8(RMS_I8, 1, 0);
  else if (type == RMS_I8)
    within ? STORE8(RMS_I8, 0, 1) : STORE8(RMS_I8, 0, 0);
  else if (type == RMS_F8E4M3 && eo)
    within ? STORE8(RMS_F8E4M3, 1, 1) : STORE8(RMS_F8E4M3, 1, 0);
  else if (type == RMS_F8E4M3)
    within ? STORE8(RMS_F8E4M3, 0, 1) : STORE8(RMS_F8E4M3, 0, 0);
  else if (eo)
    within ? STORE8(RMS_F8E5M2, 1, 1) : STORE8(RMS_F8E5M2, 1, 0);
  else
    within ? STORE8(RMS_F8E5M2, 0, 1) : STORE8(RMS_F8E5M2, 0, 0);
#undef STORE8
}

/* What plain quantising with a scale of one makes of it. */
static unsigned char code8(rms_dtype type, float f) {
  const verify_spec spec = {.q_dtype = type};
  return verify_quantised_byte(type, verify_quantise(&spec, (verify_scale){1, 1, 0}, f));
}

static void check_codes(guarded *g, rms_dtype type, const float *from) {
  const double most = verify_quantised_largest(type);
  unsigned char want[4 * F32_LANES];
  int within = 1;
  for (int i = 0; i < 4 * F32_LANES; i++) {
    want[i] = code8(type, from[i]);
    if (!(fabs((double)from[i]) <= most)) within = 0;
  }
  for (int eo = 0; eo < 2; eo++)
    for (int w = 0; w <= within; w++) {
      unsigned char *p = t_guard_place(&g->out, sizeof want / 2, T_FLUSH_END, 0), more[sizeof want / 2];
      vf v[4];
      for (int i = 0; i < 4; i++)
        v[i] = load(from + i * F32_LANES, RMS_F32, eo);
      store8(p, more, v, type, eo, w);
      T_EQ_BYTES(want, p, sizeof more);
      T_EQ_BYTES(want + sizeof more, more, sizeof more);
      store8(more, p, v, type, eo, w);
      T_EQ_BYTES(want + sizeof more, p, sizeof more);
    }
}

/* The same of vf_store8_clear, without the numbers that it does not take. */
static void check_clear_codes(guarded *g, rms_dtype type, const float *from) {
  float clear[4 * F32_LANES], scaled[4 * F32_LANES];
  unsigned char want[4 * F32_LANES];
  for (int i = 0; i < 4 * F32_LANES; i++) {
    const bool within = fabs((double)from[i]) <= verify_quantised_largest(type);
    const bool beside = code8(type, nextafterf(from[i], INFINITY)) != code8(type, nextafterf(from[i], -INFINITY));
    clear[i] = within && (!beside || from[i] == 0) ? from[i] : -1;
    scaled[i] = type == RMS_F8E4M3 ? clear[i] * 0x1p-8f : clear[i];
    want[i] = code8(type, clear[i]);
  }
  for (int eo = 0; eo < 2; eo++) {
    unsigned char *p = t_guard_place(&g->out, sizeof want / 2, T_FLUSH_END, 0), more[sizeof want / 2];
    vf v[4];
    for (int i = 0; i < 4; i++)
      v[i] = load(scaled + i * F32_LANES, RMS_F32, eo);
    if (eo)
      vf_store8_clear(p, more, v[0], v[1], v[2], v[3], type, 1);
    else
      vf_store8_clear(p, more, v[0], v[1], v[2], v[3], type, 0);
    T_EQ_BYTES(want, p, sizeof more);
    T_EQ_BYTES(want + sizeof more, more, sizeof more);
  }
}

/* The k-th number to try: every code's, the middle to the next one and the numbers beside that; all bf16 and f16
 * numbers; any bits. */
static float number8(rms_dtype type, uint32_t k) {
  const uint32_t middles = 256 * 4, halves = 65536;
  if (k < middles) {
    const double low = verify_quantised_number(type, (unsigned char)(k / 4)),
                 high = verify_quantised_number(type, (unsigned char)(k / 4 + 1));
    const float middle = (float)((low + high) / 2);
    return k % 4 == 0 ? (float)low : k % 4 == 1 ? middle : nextafterf(middle, k % 4 == 2 ? INFINITY : -INFINITY);
  }
  k -= middles;
  if (k < halves) return (float)ref_widen((uint16_t)k, RMS_BF16);
  k -= halves;
  if (k < halves) return (float)ref_widen((uint16_t)k, RMS_F16);
  t_rng rng = t_rng_make(k);
  const uint32_t bits = (uint32_t)t_random(&rng);
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static void check_stores8(guarded *g, rms_dtype type) {
  for (uint32_t base = 0; base < 256 * 4 + 4 * 65536; base += 4 * F32_LANES) {
    float from[4 * F32_LANES];
    for (uint32_t i = 0; i < 4 * F32_LANES; i++)
      from[i] = number8(type, base + i);
    t_context("type=%d numbers from %u on", (int)type, base);
    check_codes(g, type, from);
    if (type != RMS_I8) check_clear_codes(g, type, from);
  }
}

static unsigned magnitude16(const char *p, int64_t n) {
  unsigned most = 0;
  for (int64_t i = 0; i < n; i++) {
    uint16_t half;
    memcpy(&half, p + 2 * i, 2);
    if ((half & 0x7fffu) > most) most = half & 0x7fffu;
  }
  return most;
}

/* Magnitudes by their bits: any bits, NaNs among them. */
static void check_magnitudes(guarded *g) {
  t_rng rng = t_rng_make(140);
  for (int k = 0; k < 400; k++) {
    const int n = k % 100;
    uint32_t a[F32_LANES], b[F32_LANES], have[F32_LANES], most = 0;
    float fa[F32_LANES], fb[F32_LANES];
    char *p = t_guard_place(&g->in, 2 * (size_t)n, (t_flush)(k & 1), 0);
    for (int i = 0; i < 2 * n; i++)
      p[i] = (char)t_random(&rng);
    t_context("magnitudes %d", k);
    T_EQ_INT(magnitude16(p, n), vec_most16(p, n));
    for (int i = 0; i < F32_LANES; i++) {
      a[i] = (uint32_t)t_random(&rng) & 0x7fffffffu;
      b[i] = (uint32_t)t_random(&rng) >> (k % 9);
      const uint32_t magnitude = b[i] & 0x7fffffffu, larger = magnitude > a[i] ? magnitude : a[i];
      if (larger > most) most = larger;
    }
    memcpy(fa, a, sizeof fa);
    memcpy(fb, b, sizeof fb);
    vf larger = vf_max_bits(vf_load(fa, RMS_F32, 0), vf_load(fb, RMS_F32, 0));
    vf_store(have, larger, RMS_F32, 0);
    for (int i = 0; i < F32_LANES; i++)
      T_EQ_INT((b[i] & 0x7fffffffu) > a[i] ? b[i] & 0x7fffffffu : a[i], have[i]);
    for (int i = 0; i < F32_LANES; i++)
      a[i] &= 0x7effffffu, b[i] &= 0xfeffffffu; /* numbers */
    memcpy(fa, a, sizeof fa);
    memcpy(fb, b, sizeof fb);
    vf_store(have, vf_max_magnitude(vf_load(fa, RMS_F32, 0), vf_load(fb, RMS_F32, 0)), RMS_F32, 0);
    for (int i = 0; i < F32_LANES; i++)
      T_EQ_INT((b[i] & 0x7fffffffu) > a[i] ? b[i] & 0x7fffffffu : a[i], have[i]);
    float top = vf_most(larger);
    uint32_t bits;
    memcpy(&bits, &top, sizeof bits);
    T_EQ_INT(most, bits);
  }
}

/* The largest number of each of sixteen vectors: it stands in a lane of its own in each of them. */
static void check_mosts(void) {
  t_rng rng = t_rng_make(141);
  for (int k = 0; k < 64; k++) {
    uint32_t bits[F32_LANES], want[F32_LANES], have[F32_LANES];
    vf v[F32_LANES];
    for (int i = 0; i < F32_LANES; i++) {
      for (int j = 0; j < F32_LANES; j++)
        bits[j] = (uint32_t)t_random(&rng) >> 2;
      want[i] = bits[(i + k) % F32_LANES] = 0x40000000u + ((uint32_t)t_random(&rng) >> 2);
      v[i] = vf_load(bits, RMS_F32, 0);
    }
    t_context("largest numbers %d", k);
    vf_store(have, vf_most16(v), RMS_F32, 0);
    T_EQ_BYTES(want, have, sizeof want);
  }
}

static void check_parts(guarded *g) {
  static const size_t sizes[] = {16, VEC_SQUARE_16BIT, VEC_SQUARE};
  for (size_t s = 0; s < T_COUNT(sizes); s++)
    for (int flush = 0; flush < 2; flush++) {
      const size_t bytes = sizes[s];
      unsigned char *from = t_guard_place(&g->in, bytes, (t_flush)flush, 0);
      unsigned char *to = t_guard_place(&g->out, bytes, (t_flush)flush, 0);
      for (size_t i = 0; i < bytes; i++)
        from[i] = (unsigned char)(i * 11 + bytes);
      if (s == 0)
        vec_stream_part((char *)to, from, 16);
      else if (s == 1)
        vec_stream_part((char *)to, from, VEC_SQUARE_16BIT);
      else
        vec_stream_part((char *)to, from, VEC_SQUARE);
      vec_stream_fence();
      t_context("part of %d bytes", (int)bytes);
      T_EQ_BYTES(from, to, bytes);
      T_CHECK(t_guard_intact(&g->out, to, bytes));
    }
}

static void check_copies(guarded *g) {
  for (int bytes = 0; bytes < 300; bytes += 1 + bytes / 9)
    for (int flush = 0; flush < 2; flush++)
      for (size_t offset = 0; offset < 64; offset += 13) {
        unsigned char *from = t_guard_place(&g->in, (size_t)bytes, (t_flush)flush, 0);
        for (int i = 0; i < bytes; i++)
          from[i] = (unsigned char)(i * 7 + bytes);
        unsigned char *to =
            t_guard_place(&g->out, (size_t)bytes, flush ? T_FLUSH_START : T_FLUSH_END, flush ? offset : 0);
        vec_copy_stream((char *)to, (const char *)from, bytes);
        vec_stream_fence();
        t_context("copy of %d bytes", bytes);
        T_EQ_BYTES(from, to, (size_t)bytes);
        T_CHECK(t_guard_intact(&g->out, to, (size_t)bytes));
      }
}

static void check_every_operation(void) {
  guarded g = {t_guard_make(4096), t_guard_make(4096)};
  static const rms_dtype types[] = {RMS_F32, RMS_BF16, RMS_F16};
  for (size_t t = 0; t < T_COUNT(types); t++) {
    check_loads(&g, types[t]);
    check_stores(&g, types[t]);
    if (types[t] == RMS_F32) continue;
    check_all_halves(types[t]);
    check_rounding(types[t]);
    check_nans(types[t]);
  }
#ifdef VEC_STORES_QUADS
  check_quads(&g);
#endif
  check_arithmetic();
  check_all_less();
  check_comparisons();
  check_fma_middles();
  check_first_and_sum();
  check_loads_from(&g);
  check_joins();
  check_f64_memory(&g);
  check_f64_arithmetic();
  check_stores8(&g, RMS_I8);
  check_stores8(&g, RMS_F8E4M3);
  check_stores8(&g, RMS_F8E5M2);
  check_mosts();
  check_magnitudes(&g);
  check_parts(&g);
  check_copies(&g);
  vec_prefetch(&g);
  t_guard_free(&g.in);
  t_guard_free(&g.out);
}
