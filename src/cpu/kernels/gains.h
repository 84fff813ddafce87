/* SPDX-License-Identifier: MIT
 *
 * Weight + offset, and the bias, as REAL in lane order: laid out once per call where many segments share them. Rows
 * that are too wide or too few for that read them as they are ("raw"). */

enum { K(GAIN_BYTES) = RMS_LANES_BYTES };

/* How weight + offset is formed: an offset of zero is -0, which changes no weight, not even a zero's sign. */
typedef struct {
  REAL offset;
  bool wide;   /* the weight is f32 though T is not                            */
  bool rounds; /* the sum is rounded to the weight's type, narrower than REAL */
} K(gain_form);

INLINE K(gain_form) K(gain_form_of)(const rms_layout *lay) {
  const bool narrow = T == RMS_F64 ? lay->weight_is_f32 : T != REAL_TYPE && !lay->weight_is_f32;
  K(gain_form) form = {(REAL)lay->offset, lay->weight_is_f32, lay->gain_as_weight && narrow && lay->offset != 0};
  if (lay->offset == 0) form.offset = -(REAL)0;
  return form;
}

/* f32 weights of f64 data. */
NOINLINE VEC K(round_wide_gain)(VEC g) {
  REAL lane[LANES];
  V(store)(lane, g, REAL_TYPE, 0);
  for (int i = 0; i < LANES; i++)
    lane[i] = (REAL)(float)lane[i];
  return V(load)(lane, REAL_TYPE, 0);
}

INLINE VEC K(gain)(const char *weight, int64_t j, int n, K(gain_form) form) {
  VEC g = V(add)(K(load)(weight, j, n, form.wide), V(set)(form.offset));
  if (!form.rounds) return g;
  return T == RMS_F64 ? K(round_wide_gain)(g) : V(round_clean)(g, T); /* the weight is in T */
}

/* The same of weights in T, of which nothing is rounded. */
INLINE VEC K(plain_gain)(const char *weight, int64_t j, int n, REAL offset) {
  return K(gain)(weight, j, n, (K(gain_form)){offset, false, false});
}

/* Whether h is rounded on its own before it is multiplied; never if it is not narrower than the arithmetic. */
INLINE bool K(rounds_before)(const rms_layout *lay) {
  return T != REAL_TYPE && lay->rounding == RMS_ROUND_BEFORE_WEIGHT;
}

typedef struct {
  const REAL *gain, *bias;         /* NULL: absent, or raw                               */
  const char *raw_gain, *raw_bias; /* as the caller has them                             */
  int64_t inner, group;            /* elements from one inner index or group to the next */
  K(gain_form) form;               /* of raw gains                                       */
  bool mixed; /* only the loops for mixed types take the job: its raw gains are not plain numbers of T, or the like */
} K(gains);

INLINE bool K(are_raw)(const K(gains) * gains) {
  return gains->raw_gain || gains->raw_bias;
}

/* n elements of a gain in lane order; those laid out even/odd are padded to whole vectors. */
INLINE VEC K(load_gain)(const REAL *gain, int64_t j, int n) {
  return n == LANES || EO ? V(load)(gain + j, REAL_TYPE, 0) : V(load_n)(gain + j, n, REAL_TYPE, 0);
}

/* Lays out weight + offset, or the bias, of all pieces in lane order. */
static void K(lay_out_gain)(REAL *to, const char *from, const rms_layout *lay, int64_t pitch, K(gain_form) form) {
  const int64_t width = lay->width, size = form.wide ? 4 : T_SIZE, inner = lay->per_inner ? lay->inner : 1;
  for (int64_t p = 0; p < inner * lay->groups; p++) {
    const char *piece = from + p / lay->groups * lay->weight_inner + p % lay->groups * width * size;
    for (int64_t j = 0; j < width; j += LANES) {
      VEC g = K(gain)(piece, j, width - j < LANES ? (int)(width - j) : LANES, form);
      /* a NaN with a payload becomes the one without: see V(store_clean) */
      REAL lane[LANES];
      V(store)(lane, g, REAL_TYPE, 0);
      for (int i = 0; i < LANES; i++)
        to[p * pitch + j + i] = lane[i] == lane[i] ? lane[i] : (REAL)NAN;
    }
  }
}

/* Finds or lays out the gain and the bias. */
static void K(prepare_gains)(const rms_layout *lay, const char *bias, int64_t segments, K(gains) * gains,
                             REAL room[2][K(GAIN_BYTES) / sizeof(REAL)]) {
  const K(gain_form) form = K(gain_form_of)(lay), plain = {-(REAL)0, lay->weight_is_f32, false};
  gains->raw_gain = gains->raw_bias = NULL;
  gains->form = form;
  gains->mixed = false;
  if (T == REAL_TYPE && !lay->weight_is_f32 && lay->offset == 0 &&
      ((uintptr_t)lay->weight | (uintptr_t)bias) % sizeof(REAL) == 0) {
    gains->gain = (const REAL *)(const void *)lay->weight;
    gains->bias = (const REAL *)(const void *)bias;
    gains->group = lay->width;
    gains->inner = lay->weight_inner / T_SIZE;
    return;
  }
  gains->gain = gains->bias = NULL;
  gains->group = gains->inner = 0;
  if (!lay->weight && !bias) return;
  int64_t pieces = (lay->per_inner ? lay->inner : 1) * lay->groups, pitch = (lay->width + LANES - 1) / LANES * LANES;
  if (pieces * pitch > (int64_t)(K(GAIN_BYTES) / sizeof(REAL)) || segments < 4 * pieces) {
    gains->raw_gain = lay->weight;
    gains->raw_bias = bias;
    gains->group = lay->width;
    gains->inner = lay->weight_inner / (form.wide ? 4 : T_SIZE);
    gains->mixed = T == REAL_TYPE || form.wide || form.rounds;
    return;
  }
  if (lay->weight) K(lay_out_gain)(room[0], lay->weight, lay, pitch, form);
  if (bias) K(lay_out_gain)(room[1], bias, lay, pitch, plain);
  gains->gain = lay->weight ? room[0] : NULL;
  gains->bias = bias ? room[1] : NULL;
  gains->group = pitch;
  gains->inner = lay->per_inner ? lay->groups * pitch : 0;
}
