/* SPDX-License-Identifier: MIT
 *
 * A segment as it is read, and its statistic (sum of squares, mean, r), with the range guard.
 *
 * Every sum over a segment follows one rule: element i goes to lane i mod 4*LANES in increasing order, lanes are
 * combined by V(sum4), missing elements of the last quad count as zeros. Segments that are longer than a portion are
 * summed portion by portion, and those sums are added in f64. The rule is the specification that all instruction sets
 * share; see docs/numerics.md. */

enum {
  K(QUAD) = 4 * LANES, /* elements of four vectors, which the loops take at a time */
  K(PORTION) = 16384   /* elements whose sum is formed in the lanes                */
};

/* A segment as it is read: x, or x + residual rounded to the residual's type, or that times the gate's activation.
 * up1*up2 is an exact power of two that brings rows whose squares leave the range of REAL back into it. */
typedef struct {
  const char *x, *residual, *gate;
  rms_dtype x_type;     /* of x: T, or f32 though T is not; of a dy, any */
  bool residual_is_f32; /* the residual is stored as f32 though T is not */
  bool sigmoid;         /* of the gate; else silu                        */
  REAL up1, up2;
  REAL *products; /* room for x*act(z), or x + residual, in lane order, padded to whole vectors, where they will be read
                     again; or NULL */
  int64_t ahead, ahead_gate; /* bytes from x and from the gate to what is fetched early beside products; 0: nothing */
} K(source);

/* How it is read: known at the call, so that the branches on it vanish. quads: the activation is part of the loop,
 * which makes it quicker and the code larger. kept: what is read is stored in the room for products. */
typedef struct {
  bool residual, gated, scaled, quads, kept;
  bool any_type; /* x may be a dy, of any type; otherwise it is in T or f32 */
} K(reading);

/* Everything that the source has. */
INLINE K(reading) K(read_all)(const K(source) * s) {
  K(reading) as = {.residual = s->residual != NULL, .gated = s->gate != NULL, .scaled = true};
  return as;
}

INLINE K(lanes) K(load_quad)(const char *p, int64_t j) {
  K(lanes)
  v = {K(load)(p, j, LANES, false), K(load)(p, j + LANES, LANES, false), K(load)(p, j + 2 * LANES, LANES, false),
       K(load)(p, j + 3 * LANES, LANES, false)};
  return v;
}

/* act(z) of n elements of a gate. */
NOINLINE VEC K(load_gate)(const char *gate, int64_t j, int n, bool sigmoid) {
  VEC z = K(load)(gate, j, n, false);
  return K(activate)(z, K(sigmoid)(z), sigmoid);
}

/* The same of a quad, as part of a loop. */
INLINE K(lanes) K(load_gates)(const char *gate, int64_t j, bool sigmoid) {
  K(lanes) z = K(load_quad)(gate, j), act;
  if (__builtin_expect(K(are_tame)(z.a, z.b, z.c, z.d), 1)) {
    act.a = K(tame_sigmoid)(z.a), act.b = K(tame_sigmoid)(z.b);
    act.c = K(tame_sigmoid)(z.c), act.d = K(tame_sigmoid)(z.d);
    if (!sigmoid) {
      act.a = V(mul)(z.a, act.a), act.b = V(mul)(z.b, act.b);
      act.c = V(mul)(z.c, act.c), act.d = V(mul)(z.d, act.d);
    }
  } else {
    act.a = K(load_gate)(gate, j, LANES, sigmoid);
    act.b = K(load_gate)(gate, j + LANES, LANES, sigmoid);
    act.c = K(load_gate)(gate, j + 2 * LANES, LANES, sigmoid);
    act.d = K(load_gate)(gate, j + 3 * LANES, LANES, sigmoid);
  }
  return act;
}

/* x*act(z). */
INLINE K(lanes) K(load_products)(const K(source) * s, int64_t j) {
  K(lanes) act = K(load_gates)(s->gate, j, s->sigmoid), x = K(load_quad)(s->x, j);
  K(lanes) v = {V(mul)(x.a, act.a), V(mul)(x.b, act.b), V(mul)(x.c, act.c), V(mul)(x.d, act.d)};
  return v;
}

INLINE VEC K(load_source)(const K(source) * s, int64_t j, int n, K(reading) as) {
  VEC v = as.any_type ? K(load_as)(s->x, j, n, s->x_type) : K(load)(s->x, j, n, s->x_type != T);
  if (as.residual) {
    v = V(add)(v, K(load)(s->residual, j, n, s->residual_is_f32));
    if (!s->residual_is_f32) v = V(round_clean)(v, T); /* x is in T too */
  }
  if (as.gated) v = V(mul)(v, K(load_gate)(s->gate, j, n, s->sigmoid));
  if (as.kept || (as.quads && s->products)) V(store)(s->products + j, v, REAL_TYPE, 0);
  if (as.scaled) v = V(mul)(V(mul)(v, V(set)(s->up1)), V(set)(s->up2));
  return v;
}

/* What is added up: elements or their squares, as they are or less the mean. */
typedef struct {
  bool squares, centred;
  K(reading) as;
} K(summand);

INLINE VEC K(add_term)(VEC acc, VEC v, VEC mean, int64_t left, K(summand) what) {
  if (what.centred) {
    v = V(sub)(v, mean);
    if (left < LANES) v = V(first)(v, left > 0 ? (int)left : 0, EO);
  }
  return what.squares ? V(fma)(v, v, acc) : V(add)(acc, v);
}

/* Adds a quad of squares of x*act(z). */
INLINE K(lanes) K(add_products)(K(lanes) acc, const K(source) * s, int64_t j) {
  if (s->ahead)
    for (int64_t byte = j * T_SIZE; byte < (j + K(QUAD)) * T_SIZE; byte += 64) {
      vec_prefetch(s->x + s->ahead + byte);
      vec_prefetch(s->gate + s->ahead_gate + byte);
    }
  K(lanes) v = K(load_products)(s, j);
  if (s->products) {
    V(store)(s->products + j, v.a, REAL_TYPE, 0), V(store)(s->products + j + LANES, v.b, REAL_TYPE, 0);
    V(store)(s->products + j + 2 * LANES, v.c, REAL_TYPE, 0), V(store)(s->products + j + 3 * LANES, v.d, REAL_TYPE, 0);
  }
  K(lanes) sum = {V(fma)(v.a, v.a, acc.a), V(fma)(v.b, v.b, acc.b), V(fma)(v.c, v.c, acc.c), V(fma)(v.d, v.d, acc.d)};
  return sum;
}

/* Adds one quad from element j on; elements from `left` on are padding. One vector after the other: all four loaded
 * first would leave too few registers for the sums. */
INLINE K(lanes) K(add_quad)(K(lanes) acc, const K(source) * s, int64_t j, int64_t left, VEC mean, K(summand) what) {
  if (what.as.quads) return K(add_products)(acc, s, j);
  VEC v = K(load_source)(s, j, LANES, what.as);
  acc.a = K(add_term)(acc.a, v, mean, left, what);
  v = K(load_source)(s, j + LANES, LANES, what.as);
  acc.b = K(add_term)(acc.b, v, mean, left - LANES, what);
  v = K(load_source)(s, j + 2 * LANES, LANES, what.as);
  acc.c = K(add_term)(acc.c, v, mean, left - 2 * LANES, what);
  v = K(load_source)(s, j + 3 * LANES, LANES, what.as);
  acc.d = K(add_term)(acc.d, v, mean, left - 3 * LANES, what);
  return acc;
}

/* One vector of a last quad of which `left` > 0 elements are there. */
INLINE VEC K(add_some)(VEC acc, const K(source) * s, int64_t j, int64_t left, VEC mean, K(summand) what) {
  VEC v = K(load_source)(s, j, left < LANES ? (int)left : LANES, what.as);
  return K(add_term)(acc, v, mean, left, what);
}

/* The same for a last quad of `left` < 4*LANES elements. Each sum by name: an array of them would stay in memory. */
INLINE K(lanes) K(add_tail)(K(lanes) acc, const K(source) * s, int64_t j, int64_t left, VEC mean, K(summand) what) {
  acc.a = K(add_some)(acc.a, s, j, left, mean, what);
  if (left > LANES) acc.b = K(add_some)(acc.b, s, j + LANES, left - LANES, mean, what);
  if (left > 2 * LANES) acc.c = K(add_some)(acc.c, s, j + 2 * LANES, left - 2 * LANES, mean, what);
  if (left > 3 * LANES) acc.d = K(add_some)(acc.d, s, j + 3 * LANES, left - 3 * LANES, mean, what);
  return acc;
}

/* How many of the n elements from x on stand before the first whole line, if the loads of a sum are to be whole lines:
 * those that straddle two take longer. They go to the last lanes of the last vector, as if the segment began that many
 * lanes before its first quad. No sum changes by that: the tree of additions looks alike from every lane. Short sums
 * gain nothing. */
INLINE int64_t K(lead)(const char *x, int64_t n, K(summand) what) {
  return what.as.residual || what.as.gated || what.as.scaled || n <= 2 * K(QUAD) ? 0 : K(to_line)(x, n);
}

INLINE VEC K(add_lead)(VEC acc, const char *x, int64_t n, VEC mean, K(summand) what) {
  VEC v = K(load_last)(x, n);
  if (what.centred) v = V(join)(V(set)(0), V(sub)(v, mean), LANES - (int)n);
  what.centred = false;
  return K(add_term)(acc, v, mean, LANES, what);
}

INLINE REAL K(sum_lanes)(K(lanes) acc) {
  return V(sum4)(acc.a, acc.b, acc.c, acc.d, EO);
}

/* The sum over the elements from..to-1, which are at most a portion. */
INLINE REAL K(sum_portion)(const K(source) * s, int64_t from, int64_t to, VEC mean, K(summand) what) {
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  const char *x = s->x + from * T_SIZE; /* of no use where x is not in T: there is no lead then */
  int64_t lead = K(lead)(x, to - from, what), j = from + lead;
  if (lead > 0) acc.d = K(add_lead)(acc.d, x, lead, mean, what);
  for (; j + K(QUAD) <= to; j += K(QUAD))
    acc = K(add_quad)(acc, s, j, K(QUAD), mean, what);
  if (j < to) acc = K(add_tail)(acc, s, j, to - j, mean, what);
  return K(sum_lanes)(acc);
}

/* The sum over the first k elements. */
INLINE REAL K(sum_first)(const K(source) * s, int64_t k, REAL mean, K(summand) what) {
  VEC m = V(set)(mean);
  K(source) at = *s;
  double total = 0;
  for (int64_t from = 0;; from += K(PORTION)) {
    bool last = k - from <= K(PORTION);
    REAL sum = K(sum_portion)(&at, from, last ? k : from + K(PORTION), m, what);
    if (last) return from == 0 ? sum : (REAL)(total + (double)sum);
    total += (double)sum;
  }
}

/* Each loop that decides the speed is a function of its own: registers are allocated for it alone. */

/* x alone, in T. */
INLINE K(source) K(x_source)(const char *x) {
  K(source) s = {.x = x, .x_type = T, .up1 = 1, .up2 = 1};
  return s;
}

NOINLINE REAL K(sum_x)(const char *x, int64_t k) {
  K(source) s = K(x_source)(x);
  return K(sum_first)(&s, k, 0, (K(summand)){false});
}

NOINLINE REAL K(squares_x)(const char *x, int64_t k) {
  K(source) s = K(x_source)(x);
  return K(sum_first)(&s, k, 0, (K(summand)){.squares = true});
}

NOINLINE REAL K(centred_x)(const char *x, int64_t k, REAL mean) {
  K(source) s = K(x_source)(x);
  return K(sum_first)(&s, k, mean, (K(summand)){.squares = true, .centred = true});
}

NOINLINE REAL K(squares_residual)(const K(source) * s, int64_t k) {
  K(source) in_t = *s;
  in_t.x_type = T;
  return K(sum_first)(&in_t, k, 0, (K(summand)){.squares = true, .as.residual = true});
}

NOINLINE REAL K(squares_kept)(const K(source) * s, int64_t k) {
  K(source) in_t = *s;
  in_t.x_type = T;
  return K(sum_first)(&in_t, k, 0, (K(summand)){.squares = true, .as = {.residual = true, .kept = true}});
}

NOINLINE REAL K(squares_gated)(const K(source) * s, int64_t k) {
  K(source) in_t = *s;
  in_t.x_type = T;
  return K(sum_first)(&in_t, k, 0, (K(summand)){.squares = true, .as = {.gated = true, .quads = true}});
}

NOINLINE REAL K(squares_scaled)(const K(source) * s, int64_t k) {
  return K(sum_first)(s, k, 0, (K(summand)){.squares = true, .as.scaled = true});
}

/* Everything else: any source, scaled by up1*up2 (which is 1 where it need not be). */
NOINLINE REAL K(sum_any)(const K(source) * s, int64_t k) {
  return K(sum_first)(s, k, 0, (K(summand)){.as = K(read_all)(s)});
}

NOINLINE REAL K(squares_any)(const K(source) * s, int64_t k, REAL mean) {
  return K(sum_first)(s, k, mean, (K(summand)){.squares = true, .centred = true, .as = K(read_all)(s)});
}

static void K(gather)(char *to, const char *from, const int64_t *indices, int64_t count, int64_t size) {
  memset(to, 0, (size_t)(K(QUAD) * size));
  for (int64_t i = 0; i < count; i++)
    memcpy(to + i * size, from + indices[i] * size, (size_t)size);
}

/* Room for a quad of elements. */
typedef struct {
  char x[256], residual[256], gate[256];
} K(packed);

/* At most a quad of the listed elements, `left` of which there are, and zeros behind them. Returns how many. */
static int64_t K(pack)(const K(source) * s, K(packed) * to, const int64_t *indices, int64_t left) {
  int64_t count = left < K(QUAD) ? left : K(QUAD);
  K(gather)(to->x, s->x, indices, count, K(size_of)(s->x_type));
  if (s->residual) K(gather)(to->residual, s->residual, indices, count, s->residual_is_f32 ? 4 : T_SIZE);
  if (s->gate) K(gather)(to->gate, s->gate, indices, count, T_SIZE);
  return count;
}

/* The source whose elements are those. */
static K(source) K(packed_source)(const K(source) * s, const K(packed) * from) {
  K(source) packed = *s;
  packed.x = from->x;
  packed.residual = s->residual ? from->residual : NULL;
  packed.gate = s->gate ? from->gate : NULL;
  return packed;
}

/* The sum of squares over k listed elements: the i-th of the list counts as element i. */
NOINLINE REAL K(squares_listed)(const K(source) * s, const int64_t *indices, int64_t k) {
  VEC zero = V(set)(0);
  K(lanes) acc = {zero, zero, zero, zero};
  K(packed) room;
  K(source) packed = K(packed_source)(s, &room);
  double total = 0;
  for (int64_t i = 0; i < k; i += K(QUAD)) {
    if (i > 0 && i % K(PORTION) == 0) {
      total += (double)K(sum_lanes)(acc);
      acc.a = acc.b = acc.c = acc.d = zero;
    }
    int64_t count = K(pack)(s, &room, indices + i, k - i);
    acc = K(add_quad)(acc, &packed, 0, count, zero, (K(summand)){.squares = true, .as = K(read_all)(s)});
  }
  return k <= K(PORTION) ? K(sum_lanes)(acc) : (REAL)(total + (double)K(sum_lanes)(acc));
}

/* ---- magnitudes ---- */

/* The largest magnitudes in the lanes of what was looked at, by their bits: infinity is above all numbers, and a NaN
 * above that. */
INLINE K(lanes) K(no_extent)(void) {
  VEC zero = V(set)(0);
  K(lanes) most = {zero, zero, zero, zero};
  return most;
}

/* The largest of them. */
INLINE REAL K(largest_of)(K(lanes) most) {
  return V(most)(V(max_bits)(V(max_bits)(most.a, most.b), V(max_bits)(most.c, most.d)));
}

/* Elements 0..n-1. */
INLINE K(lanes) K(extent_of)(K(lanes) most, const K(source) * s, int64_t n, K(reading) as) {
  int64_t j = 0;
  for (; j + K(QUAD) <= n; j += K(QUAD)) {
    most.a = V(max_bits)(most.a, K(load_source)(s, j, LANES, as));
    most.b = V(max_bits)(most.b, K(load_source)(s, j + LANES, LANES, as));
    most.c = V(max_bits)(most.c, K(load_source)(s, j + 2 * LANES, LANES, as));
    most.d = V(max_bits)(most.d, K(load_source)(s, j + 3 * LANES, LANES, as));
  }
  for (; j + LANES <= n; j += LANES)
    most.a = V(max_bits)(most.a, K(load_source)(s, j, LANES, as));
  if (j < n) most.a = V(max_bits)(most.a, K(load_source)(s, j, (int)(n - j), as));
  return most;
}

/* Numbers in memory: vectors of 64 bytes would go through the stack where no register holds them. */
typedef uint64_t K(words) __attribute__((vector_size(32)));
typedef K(words) K(words_anywhere) __attribute__((aligned(1), may_alias));

INLINE void K(join_line)(K(words) * a, K(words) * b, const char *x) {
  *a |= *(const K(words_anywhere) *)x;
  *b |= *(const K(words_anywhere) *)(x + 32);
}

/* Whether n numbers of `size` bytes in each of these rows are all zeros, of either sign: by an OR of their bits. */
NOINLINE bool K(are_zeros)(const char *const *rows, int count, int64_t n, int64_t size) {
  const uint64_t signs = size == 2 ? 0x8000800080008000u : size == 4 ? 0x8000000080000000u : 0x8000000000000000u;
  uint64_t any = 0;
  const int64_t bytes = n * size;
  K(words) a = {0}, b = {0}, c = {0}, d = {0};
  for (int i = 0; i < count; i++) {
    const char *x = rows[i];
    int64_t j = 0;
    for (; j + 128 <= bytes; j += 128) {
      K(join_line)(&a, &b, x + j);
      K(join_line)(&c, &d, x + j + 64);
    }
    if (j + 64 < bytes) K(join_line)(&a, &b, x + j);
    if (bytes >= 64) { /* the rest, with some of what stands before it */
      if (j < bytes) K(join_line)(&c, &d, x + bytes - 64);
      continue;
    }
    uint64_t word = 0;
    if (bytes < 8) memcpy(&word, x, (size_t)bytes);
    any |= word;
    for (; bytes >= 8 && j < bytes; j += 8) {
      memcpy(&word, x + (j + 8 < bytes ? j : bytes - 8), 8);
      any |= word;
    }
  }
  a |= b | c | d;
  return ((any | a[0] | a[1] | a[2] | a[3]) & ~signs) == 0;
}

/* Whether the first n elements are. */
NOINLINE bool K(is_zero)(const K(source) * s, int64_t n) {
  if (!s->residual && !s->gate) return K(are_zeros)(&s->x, 1, n, K(size_of)(s->x_type));
  const K(reading) as = {.residual = s->residual != NULL, .gated = s->gate != NULL, .any_type = true};
  return K(largest_of)(K(extent_of)(K(no_extent)(), s, n, as)) == 0;
}

/* The largest magnitude among n elements in T; above REAL_MAX, or NaN, if one is infinite or NaN. */
NOINLINE REAL K(largest_x)(const char *x, int64_t n) {
  K(source) s = K(x_source)(x);
  if (T_SIZE > 2) return K(largest_of)(K(extent_of)(K(no_extent)(), &s, n, (K(reading)){false}));
  const uint16_t most = (uint16_t)vec_most16(x, n);
  return (REAL)(T == RMS_BF16 ? rms_f32_from_bf16(most) : rms_f32_from_f16(most));
}

/* The same among elements 0..n-1 of any source, or the n listed ones. */
NOINLINE REAL K(largest)(const K(source) * s, const int64_t *indices, int64_t n) {
  const K(reading) as = {.residual = s->residual != NULL, .gated = s->gate != NULL, .any_type = true};
  K(lanes) most = K(no_extent)();
  if (!indices && !s->residual && !s->gate && s->x_type == T) return K(largest_x)(s->x, n);
  if (!indices) return K(largest_of)(K(extent_of)(most, s, n, as));
  K(packed) room;
  K(source) packed = K(packed_source)(s, &room);
  for (int64_t i = 0; i < n; i += K(QUAD)) {
    (void)K(pack)(s, &room, indices + i, n - i);
    most = K(extent_of)(most, &packed, K(QUAD), as);
  }
  return K(largest_of)(most);
}

/* ---- faint segments ----
 *
 * Those whose squares are so small that they must be scaled, which is found out before they are formed: Intel's
 * processors take a hundred times as long for an operation that leaves the range of normal numbers. */

/* Whether a row may be: its first element is faint and not zero. Squares of f16 are never. */
INLINE bool K(starts_faint)(const char *x) {
  if (T == RMS_F16) return false;
  const uint64_t magnitude = ((uint64_t)1 << (8 * T_SIZE - 1)) - 1;
  uint64_t bits = 0, faint = T == RMS_F64 ? rms_bits_f64((double)FAINT) : rms_bits_f32((float)FAINT);
  memcpy(&bits, x, T_SIZE);
  if (T_SIZE == 2) faint >>= 16;
  return (bits & magnitude) - 1 < faint - 1;
}

/* Whether the sum of the squares of k elements of which this is the largest magnitude, as they are or less their mean,
 * is surely below TINY. */
INLINE bool K(makes_faint)(REAL most, int64_t k) {
  const double size = (double)most * (0.5 / (double)FAINT);
  return most > 0 && size * size * (double)k < 0.125;
}

NOINLINE bool K(is_faint)(const rms_layout *lay, const K(source) * s) {
  return !s->gate && !s->products && K(makes_faint)(K(largest)(s, lay->indices, lay->k), lay->k);
}

/* What a statistic rests on, before eps: the mean of the segment times 2^e, and the sum of squares (LayerNorm: about
 * the mean) over the k elements of the segment times 2^(e + more). more is not 0 only where eps stands outside the root
 * and keeps e so small that the squares would vanish. */
typedef struct {
  REAL sum, mean;
  int e, more;
} K(moment);

NOINLINE K(moment) K(measure_any)(const rms_layout *lay, const K(source) * s) {
  K(moment) m = {0, 0, 0, 0};
  if (lay->indices) {
    m.sum = K(squares_listed)(s, lay->indices, lay->k);
  } else if (lay->kind == RMS_KIND_RMS && !s->residual && !s->gate) {
    m.sum = K(squares_scaled)(s, lay->k);
  } else {
    if (lay->kind == RMS_KIND_LAYER) m.mean = K(sum_any)(s, lay->k) / (REAL)lay->k;
    m.sum = K(squares_any)(s, lay->k, m.mean);
  }
  return m;
}

INLINE K(moment) K(measure)(const rms_layout *lay, const K(source) * s) {
  K(moment) m = {0, 0, 0, 0};
  if (__builtin_expect(K(starts_faint)(s->x), 0) && s->x_type == T && K(is_faint)(lay, s)) {
    m.sum = FAINT_SUM;
    return m;
  }
  bool x_alone = !s->residual && s->x_type == T && !s->gate, layer = lay->kind == RMS_KIND_LAYER;
  if (lay->indices || (!x_alone && (layer || s->x_type != T || (s->gate && s->residual))))
    return K(measure_any)(lay, s);
  if (s->gate) {
    m.sum = K(squares_gated)(s, lay->k);
  } else if (layer) {
    m.mean = K(sum_x)(s->x, lay->k) / (REAL)lay->k;
    m.sum = K(centred_x)(s->x, lay->k, m.mean);
  } else if (x_alone) {
    m.sum = K(squares_x)(s->x, lay->k);
  } else {
    m.sum = T == RMS_BF16 && s->products ? K(squares_kept)(s, lay->k) : K(squares_residual)(s, lay->k);
  }
  return m;
}

/* Exponent e with 2^e <= a < 2^(e+1), for finite a > 0. */
static int K(exponent)(REAL a) {
  return rms_exponent((double)a) - 1;
}

/* eps in the arithmetic type. A subnormal one loses digits here and not again when a segment is scaled. */
INLINE REAL K(eps)(const rms_layout *lay) {
  return (REAL)lay->eps;
}

/* The largest e > 0 for which eps stays of the order of 1 when a tiny segment is scaled by 2^e. */
static int K(eps_limit)(const rms_layout *lay) {
  if (K(eps)(lay) == 0) return 4096;
  int e = rms_exponent((double)K(eps)(lay));
  e = lay->eps_place == RMS_EPS_INSIDE ? -(e / 2) : -e;
  return e > 0 ? e : 0;
}

/* The exponents for a segment whose mean square and mean, times 4^e and 2^e, are these: they bring the mean square, or
 * where that vanished the mean, to the order of one; 0 where both vanished. They depend on the statistic alone, so that
 * a row whose statistic was taken elsewhere is scaled alike. limit: K(eps_limit). */
INLINE K(moment) K(scale_for)(const rms_layout *lay, double mean_square, double mean, int e, int limit) {
  K(moment) m = {0, 0, 0, 0};
  if (mean_square == 0 && (mean == 0 || K(eps)(lay) == 0)) return m;
  const int exponent = rms_exponent(mean_square > 0 ? mean_square : mean);
  if (mean_square > 0)
    e -= exponent >= 0 ? exponent / 2 : -((1 - exponent) / 2);
  else
    e -= exponent;
  /* r of equal elements is 1/eps there, which a small scale would make infinite */
  if (mean_square == 0 && lay->eps_place == RMS_EPS_OUTSIDE && e < -2) e = -2;
  m.e = e < limit ? e : limit;
  if (e > limit && lay->eps_place == RMS_EPS_OUTSIDE) m.more = e - limit;
  return m;
}

/* 2^e, and 0 or infinity where that is out of range. */
INLINE REAL K(power)(int e) {
  const int bias = T_SIZE == 8 ? 1023 : 127;
  if (__builtin_expect(e <= -bias || e > bias, 0)) return (REAL)ldexp(1.0, e);
  return T_SIZE == 8 ? (REAL)rms_f64_from_bits((uint64_t)(e + bias) << 52)
                     : (REAL)rms_f32_from_bits((uint32_t)(e + bias) << 23);
}

/* 2^e as two factors. */
INLINE void K(split_scale)(REAL *up1, REAL *up2, int e) {
  *up1 = K(power)(e / 2);
  *up2 = K(power)(e - e / 2);
}

static void K(set_scale)(K(source) * s, int e) {
  K(split_scale)(&s->up1, &s->up2, e);
}

/* The exponent of the scale that brings the largest magnitude to the order of one, or eps where that is more. */
INLINE int K(first_scale)(const rms_layout *lay, REAL most, int limit) {
  const int e = -K(exponent)(most);
  const bool inside = lay->eps_place == RMS_EPS_INSIDE; /* beside eps outside the root squares still count */
  return inside && e > limit ? limit : e;
}

/* A moment that was measured with the scale 2^e, for the scale that belongs to it. */
INLINE K(moment) K(rescale)(const rms_layout *lay, K(moment) m, int e, int limit) {
  /* Squares that vanish beside an eps so small that r, about 2^limit, and its powers would leave the range. */
  bool vanished = m.sum == 0 && m.mean == 0 && K(eps)(lay) > 0 && rms_ldexp(1.0, limit) > (double)R_MOST;
  K(moment) to = K(scale_for)(lay, (double)m.sum / (double)lay->k, (double)m.mean, e, limit);
  if (vanished) to.e = limit;
  to.sum = (REAL)rms_ldexp((double)m.sum, 2 * (to.e + to.more - e));
  to.mean = (REAL)rms_ldexp((double)m.mean, to.e - e);
  return to;
}

/* Whether squares of elements up to `most`, scaled by 2^e, vanish beside eps, which stands inside the root and is of
 * the order of one or more then. Not asked of f64. */
INLINE bool K(vanishes)(const rms_layout *lay, REAL most, int e, int limit) {
  return T != RMS_F64 && lay->eps_place == RMS_EPS_INSIDE && e == limit && rms_ldexp((double)most, e) < 0x1p-40;
}

/* A sum that does as well then: all that matters is whether it is zero, which it is where every square is rounded to
 * zero. Beside a mean that is not zero not even that matters. */
INLINE REAL K(vanished_sum)(REAL most, int e) {
  return rms_ldexp((double)most, e) > 0x1p-75 ? FAINT_SUM : 0; /* the square of 2^-75 is rounded to zero */
}

/* The moment of a segment scaled so that its largest element, `most`, is of the order of one. wanted: the sum itself
 * is, even where it vanishes beside eps. */
NOINLINE K(moment) K(measure_from)(const rms_layout *lay, K(source) * s, REAL most, bool wanted) {
  const int limit = K(eps_limit)(lay), e = K(first_scale)(lay, most, limit);
  K(moment) m = {0, 0, 0, 0};
  K(set_scale)(s, e);
  if (!wanted && K(vanishes)(lay, most, e, limit)) {
    if (lay->kind == RMS_KIND_LAYER) m.mean = K(sum_any)(s, lay->k) / (REAL)lay->k;
    m.sum = K(vanished_sum)(most, e);
  } else {
    m = K(measure_any)(lay, s);
  }
  const K(moment) to = K(rescale)(lay, m, e, limit);
  K(set_scale)(s, to.e);
  return to;
}

/* The moment again for a segment whose sum left the safe range. With a NaN or an infinity among the elements, or only
 * zeros, there is nothing to scale. */
static K(moment) K(measure_scaled)(const rms_layout *lay, K(source) * s, K(moment) unscaled, bool wanted) {
  const REAL most = K(largest)(s, lay->indices, lay->k);
  return most <= REAL_MAX && most > 0 ? K(measure_from)(lay, s, most, wanted) : unscaled;
}

INLINE bool K(squares_in_range)(REAL sum) {
  return sum >= TINY && sum <= REAL_MAX;
}

/* Whether squares of RMSNorm that all vanished, of zeros or of numbers near 0, are far below the last digit of eps: r
 * is then that of a segment of zeros, and no scale would change a result. */
INLINE bool K(outweighs_zero)(const rms_layout *lay) {
  return lay->kind == RMS_KIND_RMS && lay->eps_place == RMS_EPS_INSIDE && K(eps)(lay) >= TINY;
}

/* A moment whose sum is out of range: measured again, scaled, unless no scale would change it. Zeros have a sum
 * of exactly zero, and squares add up to NaN only if one of them is: neither needs a scale. */
NOINLINE K(moment) K(settle)(const rms_layout *lay, K(source) * s, K(moment) m, bool wanted) {
  bool rms = lay->kind == RMS_KIND_RMS;
  if (rms && m.sum != m.sum) return m;
  if (m.sum == 0 && !wanted && K(outweighs_zero)(lay)) return m;
  if (m.sum == 0 && m.mean == 0 && !lay->indices && K(is_zero)(s, lay->k)) return m;
  return K(measure_scaled)(lay, s, m, wanted);
}

/* s->up1 and up2 are set if the moment's e is not 0. wanted: see K(measure_from). */
INLINE K(moment) K(moment_of)(const rms_layout *lay, K(source) * s, bool wanted) {
  K(moment) m = {0, 0, 0, 0};
  if (lay->k == 0) return m;
  m = K(measure)(lay, s);
  return __builtin_expect(K(squares_in_range)(m.sum), 1) ? m : K(settle)(lay, s, m, wanted);
}

/* eps inside the root, beside squares that were scaled by 4^e. */
INLINE REAL K(scaled_eps)(const rms_layout *lay, int e) {
  return e ? (REAL)rms_ldexp((double)K(eps)(lay), 2 * e) : K(eps)(lay);
}

/* r and the mean of a segment times 2^e, and its root mean square (used where eps stands outside the root). clamped:
 * the root mean square is below an eps that bounds it, so that r does not depend on the segment. */
typedef struct {
  REAL r, mean, rms, k;
  int e;
  bool clamped;
} K(statistic);

INLINE K(statistic) K(finish)(const rms_layout *lay, K(moment) m, REAL k) {
  REAL ms = m.sum / k, eps = K(eps)(lay), root;
  K(statistic) st = {0, m.mean, 0, k, m.e, false};
  if (lay->eps_place == RMS_EPS_INSIDE) {
    root = SQRT(ms + K(scaled_eps)(lay, m.e));
  } else {
    if (m.e) eps = (REAL)rms_ldexp((double)eps, m.e);
    st.rms = SQRT(ms);
    if (m.more) st.rms = (REAL)rms_ldexp((double)st.rms, -m.more);
    root = st.rms + eps;
    if (lay->eps_place == RMS_EPS_CLAMP) {
      st.clamped = st.rms < eps;
      root = st.clamped ? eps : st.rms;
      if (m.e < 0 && root * REAL_MAX < 1) root = 0; /* all elements equal a huge mean, beside which 1/eps overflows */
    }
  }
  st.r = root == 0 ? 0 : 1 / root;
  return st;
}

/* ---- the public form of a statistic, for rows that are sharded ---- */

static rms_stat K(export_moment)(const rms_layout *lay, K(moment) m) {
  rms_stat out = {(double)lay->k, rms_ldexp((double)m.mean, -m.e), rms_ldexp((double)m.sum, -2 * (m.e + m.more))};
  return out;
}

/* forced: scale even where the forward would not need it. */
NOINLINE K(statistic) K(import_stat)(const rms_layout *lay, const rms_stat *in, K(source) * s, bool forced) {
  /* a NaN without the caller's payload: see V(store_clean) */
  K(moment) m = {in->m2 == in->m2 ? (REAL)in->m2 : (REAL)NAN, in->mean == in->mean ? (REAL)in->mean : (REAL)NAN, 0, 0};
  if ((forced || !K(squares_in_range)(m.sum)) && in->m2 >= 0 && in->m2 <= 1.7976931348623157e308) {
    m = K(scale_for)(lay, in->count > 0 ? in->m2 / in->count : 0, in->mean, 0, K(eps_limit)(lay));
    m.sum = (REAL)rms_ldexp(in->m2, 2 * (m.e + m.more));
    m.mean = (REAL)rms_ldexp(in->mean, m.e);
    K(set_scale)(s, m.e);
  }
  return K(finish)(lay, m, (REAL)in->count);
}
