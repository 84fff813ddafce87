/* SPDX-License-Identifier: MIT
 * Quantised outputs without y, which are made straight from x where that is possible, have the bits of those beside y,
 * which are made of it: calls at random, with data and gains that take every turn. */
#include "harness.h"

#include <math.h>
#include <string.h>

enum { MOST_COLS = 12288, MOST_ROWS = 24, MOST = 40 * 12288 };

/* Numbers +-1.m * 2^e with e between low and high; one in `zeros` is a zero of either sign, 0: none. */
typedef struct range {
  int low, high, zeros;
} range;

typedef struct world {
  const char *name;
  range x, gain;
  float gain_once; /* instead of one gain, if it is not 0 */
  int odd_rows;    /* rows of zeros, of NaN and of numbers that must be scaled are among them */
  int positive;    /* x is: its mean is far from zero */
} world;

static const world worlds[] = {
    {"ordinary", {-4, 1, 0}, {-2, 1, 0}, 0, 0, 0},
    {"signed zeros", {-4, 1, 3}, {-2, 1, 5}, 0, 0, 0},
    {"wide", {-60, 3, 9}, {-9, 4, 0}, 0, 0, 0},
    {"tiny gains", {-3, 3, 0}, {-126, -110, 0}, 0, 0, 0},
    {"small gains", {-60, 3, 0}, {-80, -70, 0}, 0, 0, 0},
    {"huge gains", {-3, 3, 0}, {90, 112, 0}, 0, 0, 0},
    {"large gains", {-60, 3, 7}, {17, 20, 0}, 0, 0, 0},
    {"gains of zero", {-3, 3, 0}, {-2, 1, 1}, 0, 0, 0},
    {"a gain of zero", {-3, 3, 0}, {-2, 1, 0}, 0x1p-149f, 0, 0},
    {"a large gain", {-3, 3, 0}, {-2, 1, 0}, 0x1p120f, 0, 0},
    {"an infinite gain", {-3, 3, 0}, {-2, 1, 0}, INFINITY, 0, 0},
    {"a gain of NaN", {-3, 3, 0}, {-2, 1, 0}, NAN, 0, 0},
    {"odd rows", {-3, 3, 9}, {-2, 1, 0}, 0, 1, 0},
    {"far from zero", {3, 3, 0}, {-2, 1, 0}, 0, 0, 1},
};

typedef struct call {
  rms_spec spec;
  rms_forward_args args;
  const world *world;
  int64_t stream;
  rms_dtype weight;
} call;

static _Alignas(64) unsigned char x[MOST * 4], y[MOST * 4], weight[MOST_COLS * 4], bias[MOST_COLS * 4];
static _Alignas(64) unsigned char q[2][MOST * 2];
static float scale[2][MOST], rstd[2][MOST_ROWS], mean[2][MOST_ROWS];

static void put(unsigned char *to, int64_t i, rms_dtype type, uint32_t f32) {
  uint16_t half = (uint16_t)(f32 >> 16); /* of bf16 */
  if (type == RMS_F16) {
    const int e = (int)(f32 >> 23 & 255) - 112;
    half = (uint16_t)((f32 >> 16 & 0x8000) | (f32 >> 13 & 0x3ff) | (uint32_t)(e < 0 ? 0 : e > 30 ? 30 : e) << 10);
    if (f32 >> 23 == 255 || f32 >> 23 == 511) half = (uint16_t)(f32 >> 22 & 1 ? 0x7e00 : 0x7c00);
  }
  if (type == RMS_F32)
    memcpy(to + 4 * i, &f32, 4);
  else
    memcpy(to + 2 * i, &half, 2);
}

static uint32_t draw(t_rng *rng, range r) {
  const uint64_t bits = t_random(rng);
  const uint32_t sign = (uint32_t)(bits >> 63) << 31;
  if (r.zeros && t_random_below(rng, r.zeros) == 0) return sign;
  return sign | (uint32_t)(127 + r.low + t_random_below(rng, r.high - r.low + 1)) << 23 | (bits & 0x7fffff);
}

static void fill(const call *c, t_rng *rng) {
  const int64_t cols = c->spec.cols, odd = c->world->odd_rows;
  const rms_dtype type = (rms_dtype)c->args.x.dtype;
  for (int64_t i = 0; i < c->args.outer * cols; i++) {
    const int64_t row = i / cols;
    uint32_t bits = draw(rng, c->world->x) & (c->world->positive ? 0x7fffffffu : 0xffffffffu);
    if (odd && row % 5 == 1) bits &= 0x80000000u;
    if (odd && row % 5 == 3) bits += 100u << 23;
    if (odd && row % 7 == 2 && i % cols == 17) bits = 0x7fc00000u;
    put(x, i, type, bits);
  }
  for (int64_t j = 0; j < cols; j++) {
    put(weight, j, c->weight, draw(rng, c->world->gain));
    put(bias, j, c->weight, draw(rng, c->world->gain));
  }
  uint32_t once;
  memcpy(&once, &c->world->gain_once, sizeof once);
  if (once) put(weight, t_random_below(rng, cols), c->weight, once | (c->weight == RMS_F32 && once > 0x7f800000u));
}

static const void *pick(t_rng *rng, const void *p, int64_t one_in) {
  return t_random_below(rng, one_in) ? p : NULL;
}

static void draw_scales(call *c, t_rng *rng, rms_dtype type) {
  const int64_t blocks[] = {c->spec.cols, c->spec.cols, c->spec.cols / 2, 128, 32, 0};
  c->args.q.dtype = (int32_t)type;
  if (t_random_below(rng, 3) == 0) c->spec.scale_least = ldexp(1, -(int)t_random_below(rng, 90));
  if (type == RMS_Q8_0) return;
  c->args.scale = scale[0];
  do
    c->spec.scale_block = blocks[t_random_below(rng, (int64_t)T_COUNT(blocks))];
  while (c->spec.scale_block && c->spec.cols % c->spec.scale_block);
}

static call draw_call(t_rng *rng) {
  static const int64_t cols[] = {32, 520, 544, 1000, 1023, 2080, 4090, 4096, 5120, 8192, 8224, MOST_COLS};
  static const rms_dtype types[] = {RMS_F32, RMS_BF16, RMS_BF16, RMS_F16};
  static const rms_dtype q_types[] = {RMS_I8, RMS_F8E4M3, RMS_F8E5M2, RMS_Q8_0};
  call c = {.world = &worlds[t_random_below(rng, (int64_t)T_COUNT(worlds))]};
  const rms_dtype type = types[t_random_below(rng, 4)];
  c.spec.cols = cols[t_random_below(rng, (int64_t)T_COUNT(cols))];
  c.spec.eps = t_random_below(rng, 4) ? 1e-6 : 0;
  c.spec.weight_offset = t_random_below(rng, 4) ? 0 : 3;
  c.spec.eps_place = (int32_t)(t_random_below(rng, 4) == 0);
  c.spec.kind = (int32_t)t_random_below(rng, 2);
  c.spec.rounding = (int32_t)(t_random_below(rng, 3) == 0);
  if (c.spec.kind == RMS_KIND_RMS && t_random_below(rng, 4) == 0) c.spec.partial = c.spec.cols / 3;
  c.weight = t_random_below(rng, 3) ? type : RMS_F32;
  c.args.outer = 1 + t_random_below(rng, c.spec.cols > 2000 ? 9 : MOST_ROWS);
  c.args.x = (rms_const_view){x, type};
  c.args.weight = pick(rng, weight, 8);
  c.args.bias = c.spec.kind == RMS_KIND_LAYER ? pick(rng, bias, 4) : NULL;
  c.args.weight_dtype = c.args.bias_dtype = (int32_t)c.weight;
  c.stream = t_random_below(rng, 2) ? 0 : INT64_MAX;
  const rms_dtype q_type = q_types[t_random_below(rng, c.spec.cols % 32 ? 3 : 4)];
  c.args.q.data = q[0];
  draw_scales(&c, rng, q_type);
  return c;
}

/* Into q[to] and its scales; `given`: the one of the tensor. */
static void run(const call *c, int to, void *with_y, float given) {
  rms_forward_args args = c->args;
  memset(q[to], 0x5a, sizeof q[to]);
  memset(scale[to], 0, sizeof scale[to]);
  scale[to][0] = given;
  args.y.data = with_y;
  args.y.dtype = args.x.dtype;
  args.q.data = q[to];
  if (args.scale) args.scale = scale[to];
  args.rstd = rstd[to];
  args.mean = c->spec.kind == RMS_KIND_LAYER ? mean[to] : NULL;
  T_EQ_STATUS(RMS_OK, rms_forward(&c->spec, &args, NULL));
}

static void compare(const call *c, float given) {
  const t_isas isas = t_usable_isas();
  T_EQ_STATUS(RMS_OK, rms_isa_force("scalar"));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(INT64_MAX));
  run(c, 0, y, given);
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(c->stream));
  for (int i = 0; i < isas.count; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i]));
    t_context("%s: %s, x=%d w=%d q=%d, %d x %d, block %d, kind=%d before=%d partial=%d weight=%d bias=%d stream=%d",
              isas.name[i], c->world->name, (int)c->args.x.dtype, (int)c->weight, (int)c->args.q.dtype,
              (int)c->args.outer, (int)c->spec.cols, (int)c->spec.scale_block, (int)c->spec.kind, (int)c->spec.rounding,
              (int)c->spec.partial, c->args.weight != NULL, c->args.bias != NULL, c->stream == 0);
    run(c, 1, NULL, given);
    T_EQ_BYTES(q[0], q[1], sizeof q[0]);
    T_EQ_BYTES(scale[0], scale[1], sizeof scale[0]);
    T_EQ_ELEMENTS(rstd[0], rstd[1], RMS_F32, c->args.outer);
    if (c->spec.kind == RMS_KIND_LAYER) T_EQ_ELEMENTS(mean[0], mean[1], RMS_F32, c->args.outer);
  }
}

static void with_and_without_y(void) {
  t_rng rng = t_rng_make(150);
  memset(y, 0, sizeof y); /* its pages are there: non-temporal stores are for those that are */
  for (int64_t k = 0; k < t_effort(1200) && t_failures() < 20; k++) {
    static const float scales[] = {0.02f, 0.3f, 1e-30f, 1e30f, 0x1p-130f, 5};
    const call c = draw_call(&rng);
    fill(&c, &rng);
    compare(&c, scales[t_random_below(&rng, (int64_t)T_COUNT(scales))]);
  }
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(-1));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"with_and_without_y", with_and_without_y}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
