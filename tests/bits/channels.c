/* SPDX-License-Identifier: MIT
 * Rows whose elements lie apart (channels first) have the bits of contiguous ones, whatever the call is, and however
 * its rows are divided into tiles, blocks of column sums, tasks and threads. */
#include "call.h"
#include "rmsnorm_rows.h"

static const rms_dtype dtypes[] = {RMS_F32, RMS_F64, RMS_BF16, RMS_F16};

/* Images of so many pixels: fewer than a square of a transposition, more than a tile, more than a block of sums. */
static const int64_t pixels[] = {1, 3, 8, 17, 49, 64, 65, 130, 196};

static void compare(const t_call *call, const t_layout *layout, const rms_executor *executor) {
  t_result expected = t_run(call, &t_dense, NULL), actual = t_run(call, layout, executor);
  T_EQ_STATUS(RMS_OK, expected.forward);
  T_EQ_STATUS(RMS_OK, expected.backward);
  t_same(&expected, &actual);
  t_result_free(&expected);
  t_result_free(&actual);
}

static void at_random(void) {
  t_rng rng = {t_seed()};
  rms_pool *pool = NULL;
  if (!T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3))) return;
  const rms_executor on_pool = rms_pool_executor(pool);
  t_isas isas = t_usable_isas();
  for (int64_t n = 0; n < t_effort(400) && t_failures() < 20; n++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[n % isas.count]));
    t_call call = t_call_draw(&rng, 300);
    t_layout layout = t_layout_draw(&rng);
    call.spec.weight_per_inner = 0;
    call.inner = pixels[t_random_below(&rng, (int64_t)T_COUNT(pixels))];
    call.outer = 1 + t_random_below(&rng, 3);
    layout.channels_first = 1;
    layout.split = (int)t_random_below(&rng, 2) && call.spec.dtype != RMS_F64;
    t_call_repair(&call);
    t_context("%s", t_describe(&call, &layout));
    compare(&call, &layout, n % 2 ? &on_pool : NULL);
  }
  rms_pool_destroy(pool);
}

/* Enough rows for several chunks of column sums and tasks, and of the narrowest for several blocks in a chunk; of
 * widths that leave room for many rows in a tile and for few. */
static void many_rows(void) {
  static const int64_t cols[] = {5, 96, 768, 1000};
  rms_pool *pool = NULL;
  if (!T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3))) return;
  const rms_executor on_pool = rms_pool_executor(pool);
  T_EQ_STATUS(RMS_OK, rms_isa_force(NULL));
  for (size_t c = 0; c < T_COUNT(cols); c++)
    for (size_t d = 0; d < T_COUNT(dtypes) && t_failures() < 20; d++) {
      t_call call = t_call_number((int64_t)(c + d), d & 1 ? RMS_KIND_RMS : RMS_KIND_LAYER, dtypes[d], cols[c]);
      t_layout layout = {.inner_gap = (int64_t)c, .stream_bytes = c & 1 ? 0 : INT64_MAX, .channels_first = 1};
      call.spec.weight_per_inner = 0;
      call.outer = 3;
      call.inner = c == 0 ? 2311 : 211;
      call.parts |= T_WEIGHT | T_BIAS | T_BACKWARD | T_DX | T_DWEIGHT | T_DBIAS;
      t_call_repair(&call);
      t_context("%s", t_describe(&call, &layout));
      compare(&call, &layout, &on_pool);
    }
  rms_pool_destroy(pool);
}

/* Rows of which the stack has no room for one: tiles of several lines, of one, of a part of one, and of images that are
 * smaller than a line; rows of one portion and of several. */
static void wide_rows(void) {
  static const struct {
    rms_dtype dtype;
    int64_t cols, inner;
  } shapes[] = {{RMS_F32, 12801, 53}, {RMS_F32, 16387, 19},  {RMS_F64, 6407, 21},
                {RMS_F64, 33001, 3},  {RMS_BF16, 33003, 37}, {RMS_F16, 25607, 9}};
  rms_pool *pool = NULL;
  if (!T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3))) return;
  const rms_executor on_pool = rms_pool_executor(pool);
  t_isas isas = t_usable_isas();
  t_rng rng = {t_seed()};
  for (int i = 0; i < t_effort(4) * (int)T_COUNT(shapes) && t_failures() < 20; i++) {
    const size_t s = (size_t)i % T_COUNT(shapes);
    const int k = i / (int)T_COUNT(shapes);
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i % isas.count]));
    t_call call = t_call_number(t_random_below(&rng, 1000), k & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS, shapes[s].dtype,
                                shapes[s].cols);
    t_layout layout = t_layout_draw(&rng);
    call.spec.weight_per_inner = 0;
    call.outer = 2;
    call.inner = shapes[s].inner;
    if (k < 2) call.parts |= T_WEIGHT | T_BIAS | T_DX | T_DWEIGHT | T_DBIAS;
    layout.channels_first = 1;
    layout.split = k == 3 && shapes[s].dtype != RMS_F64;
    t_call_repair(&call);
    t_context("%s", t_describe(&call, &layout));
    compare(&call, &layout, i % 3 ? &on_pool : NULL);
  }
  rms_pool_destroy(pool);
}

/* Images whose channels are whole lines, written past the caches, by tasks that begin in the middle of a line. */
static void past_the_caches(void) {
  rms_pool *pool = NULL;
  if (!T_EQ_STATUS(RMS_OK, rms_pool_create(&pool, 3))) return;
  const rms_executor on_pool = rms_pool_executor(pool);
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count * (int)T_COUNT(dtypes) * 2 && t_failures() < 20; i++) {
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i % isas.count]));
    const rms_kind kind = i / isas.count % 2 ? RMS_KIND_RMS : RMS_KIND_LAYER;
    t_call call = t_call_number(i, kind, dtypes[i / isas.count / 2], 113 + i);
    const t_layout layout = {.channels_first = 1, .flush = T_FLUSH_START};
    call.spec.weight_per_inner = 0;
    call.outer = 5;
    call.inner = 448;
    call.parts |= T_WEIGHT | T_BIAS | T_BACKWARD | T_DX | T_DWEIGHT | T_DBIAS;
    t_call_repair(&call);
    t_context("%s", t_describe(&call, &layout));
    compare(&call, &layout, &on_pool);
  }
  rms_pool_destroy(pool);
}

/* The usual forward of whole tiles, each of its forms, on every instruction set, with plain and with non-temporal
 * stores.
 */
static void whole_tiles(void) {
  t_isas isas = t_usable_isas();
  for (int i = 0; i < isas.count * (int)T_COUNT(dtypes) * 8 && t_failures() < 20; i++) {
    const int form = i / isas.count % 8;
    const rms_dtype dtype = dtypes[i / isas.count / 8];
    T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[i % isas.count]));
    t_call call = {.outer = 2, .inner = 192, .data = T_NORMAL, .seed = t_seed() + (uint64_t)i};
    const t_layout layout = {
        .channels_first = 1, .flush = T_FLUSH_START, .stream_bytes = form & 4 ? 0 : INT64_MAX, .in_place = 0};
    verify_spec_set_types(&call.spec, dtype);
    call.spec.cols = 70 + i % 9;
    call.spec.eps = 1e-5;
    call.spec.kind = form & 1 ? RMS_KIND_LAYER : RMS_KIND_RMS;
    call.spec.rounding = form & 2 ? RMS_ROUND_BEFORE_WEIGHT : RMS_ROUND_AFTER_WEIGHT;
    call.parts = T_WEIGHT | T_SAVE_STATS | (i % 3 ? T_BIAS : 0);
    t_context("%s", t_describe(&call, &layout));
    compare(&call, &layout, NULL);
  }
}

/* Each tensor has a layout of its own: x with channels first, y with channels last, and the other way round. */
static void between_layouts(void) {
  enum { IMAGES = 2, PIXELS = 37, CHANNELS = 20, ALL = IMAGES * PIXELS * CHANNELS };
  static float last[ALL], first[ALL], expected[ALL], y[ALL], weight[CHANNELS];
  const rms_spec spec = {.cols = CHANNELS, .eps = 1e-5, .kind = RMS_KIND_LAYER};
  t_fill(last, RMS_F32, ALL, T_NORMAL, t_seed(), 0, 0);
  t_fill(weight, RMS_F32, CHANNELS, T_NORMAL, t_seed(), 1, 0);
  for (int64_t i = 0; i < ALL; i++) {
    const int64_t image = i / (PIXELS * CHANNELS), pixel = i / CHANNELS % PIXELS, channel = i % CHANNELS;
    first[(image * CHANNELS + channel) * PIXELS + pixel] = last[i];
  }
  rms_forward_args args = {.outer = IMAGES, .inner = PIXELS, .x = {.data = last, .dtype = RMS_F32}, .weight = weight};
  args.y.data = expected;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
  args.x.data = first;
  args.x.col_stride = PIXELS; /* its other strides follow */
  args.y.data = y;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
  T_EQ_BYTES(expected, y, sizeof y);
  args.x = (rms_const_view){.data = last, .dtype = RMS_F32};
  args.y.col_stride = PIXELS;
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
  for (int64_t i = 0; i < ALL; i++) {
    const int64_t image = i / (PIXELS * CHANNELS), pixel = i / CHANNELS % PIXELS, channel = i % CHANNELS;
    T_EQ_BYTES(&expected[i], &y[(image * CHANNELS + channel) * PIXELS + pixel], sizeof *y);
  }
}

/* rmsnorm_rows.h: a call image by image, its strides left to the default. */
static void image_by_image(void) {
  enum { IMAGES = 3, PIXELS = 21, CHANNELS = 10, ALL = IMAGES * PIXELS * CHANNELS };
  static float x[ALL], whole[ALL], parts[ALL], rstd[2][IMAGES * PIXELS];
  const rms_spec spec = {.cols = CHANNELS, .eps = 1e-5};
  t_fill(x, RMS_F32, ALL, T_NORMAL, t_seed(), 0, 0);
  rms_forward_args args = {.outer = IMAGES, .inner = PIXELS, .x = {.data = x, .dtype = RMS_F32, .col_stride = PIXELS}};
  args.y = (rms_view){.data = whole, .col_stride = PIXELS};
  args.rstd = rstd[0];
  T_EQ_STATUS(RMS_OK, rms_forward(&spec, &args, NULL));
  args.y.data = parts;
  args.rstd = rstd[1];
  for (int64_t image = 0; image < IMAGES; image++) {
    const rms_rows_range range = rms_rows_at(CHANNELS, PIXELS, image, 1, 0);
    const rms_forward_args part = rms_rows_forward(&range, &args);
    T_EQ_STATUS(RMS_OK, rms_forward(&spec, &part, NULL));
  }
  T_EQ_BYTES(whole, parts, sizeof whole);
  T_EQ_BYTES(rstd[0], rstd[1], sizeof rstd[0]);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"at_random", at_random},          {"many_rows", many_rows},
                                 {"wide_rows", wide_rows},          {"past_the_caches", past_the_caches},
                                 {"whole_tiles", whole_tiles},      {"between_layouts", between_layouts},
                                 {"image_by_image", image_by_image}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
