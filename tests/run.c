/* SPDX-License-Identifier: MIT
 * Lays a call out in guarded memory, runs it, checks the surroundings and gathers the outputs. */
#include "call.h"

#include <stdlib.h>
#include <string.h>

const t_layout t_dense = {.stream_bytes = -1};

typedef enum slot {
  S_X,
  S_RESIDUAL,
  S_WEIGHT,
  S_BIAS,
  S_Y,
  S_SUM,
  S_RSTD,
  S_MEAN,
  S_DY,
  S_SAVED_X, /* what the backward calls x */
  S_DRESIDUAL,
  S_DX,
  S_DRESIDUAL_OUT,
  S_DWEIGHT,
  S_DBIAS,
  S_WORKSPACE,
  S_INDICES,
  S_STATS,
  S_GRAD_SUMS,
  S_COUNT
} slot;

enum { UNSET = 0xA5 };

typedef struct tensor {
  unsigned char *data, *before; /* before: a copy of an input, to see that it stays as it is */
  size_t bytes, element;
  rms_dtype dtype;
  int64_t outer, inner, cols, outer_stride, inner_stride;
} tensor;

typedef struct scene {
  const t_call *call;
  const t_layout *layout;
  const rms_executor *executor;
  verify_spec spec;
  rms_spec called; /* the same for the library */
  tensor t[S_COUNT];
} scene;

static _Thread_local t_guard rooms[S_COUNT];

/* ---- Placing tensors ---- */

static void *room(slot s, size_t bytes, t_flush flush, size_t offset) {
  size_t need = bytes + offset;
  if (!t_guard_fits(&rooms[s], need) || rooms[s].room_bytes > need + (1u << 20)) {
    t_guard_free(&rooms[s]);
    rooms[s] = t_guard_make(need);
  }
  unsigned char *data = t_guard_place(&rooms[s], bytes, flush, offset);
  memset(data, UNSET, bytes);
  return data;
}

static unsigned char *element_at(const tensor *t, int64_t i, int64_t h) {
  return t->data + (size_t)(i * t->outer_stride + h * t->inner_stride) * t->element;
}

/* A tensor of rows that follows the layout. */
static void place_rows(scene *sc, slot s, rms_dtype dtype) {
  const t_call *call = sc->call;
  const t_layout *layout = sc->layout;
  tensor *t = &sc->t[s];
  *t = (tensor){.dtype = dtype, .element = rms_dtype_size(dtype), .outer = call->outer, .inner = call->inner};
  t->cols = call->spec.cols;
  int64_t pitch = t->cols + layout->inner_gap;
  t->inner_stride = layout->inner_major ? t->outer * pitch + layout->outer_gap : pitch;
  t->outer_stride = layout->inner_major ? pitch : t->inner * pitch + layout->outer_gap;
  int64_t span = (t->outer - 1) * t->outer_stride + (t->inner - 1) * t->inner_stride + t->cols;
  t->bytes = call->outer > 0 ? (size_t)span * t->element : 0;
  t->data = room(s, t->bytes, layout->flush, layout->offset);
}

/* A dense array; `element` bytes each. Aligned to its element, unlike rows, which may start at any byte. */
static void place_array(scene *sc, slot s, rms_dtype dtype, size_t element, int64_t count) {
  tensor *t = &sc->t[s];
  *t = (tensor){.dtype = dtype, .element = element, .outer = 1, .inner = 1, .cols = count};
  t->bytes = element * (size_t)count;
  t->data = room(s, t->bytes, sc->layout->flush, sc->layout->offset / element * element);
}

/* The output `out` takes the memory of the input `in` if the layout asks for it and the types are the same. */
static int share(scene *sc, unsigned flag, slot out, slot in, rms_dtype dtype) {
  if (!(sc->layout->in_place & flag) || !sc->t[in].data || sc->t[in].dtype != dtype || !sc->t[in].before) return 0;
  sc->t[out] = sc->t[in];
  free(sc->t[in].before);
  sc->t[in].before = sc->t[out].before = NULL; /* no longer an input that stays, so not shared twice either */
  return 1;
}

static void remember(tensor *t) {
  t->before = malloc(t->bytes + 1);
  memcpy(t->before, t->data, t->bytes);
}

/* x of the forward, which is also x of a backward without a residual. */
static void fill_x_row(const scene *sc, unsigned char *row, rms_dtype dtype, int64_t i, int64_t h) {
  const t_call *call = sc->call;
  int64_t number = (call->first_outer + i) * call->inner + h;
  if (!call->raw_bytes) {
    t_fill(row, dtype, call->spec.cols, call->data, call->seed, S_X, number);
    return;
  }
  size_t row_bytes = rms_dtype_size(dtype) * (size_t)call->spec.cols;
  for (size_t b = 0; b < row_bytes; b++)
    row[b] = call->raw[((size_t)number * row_bytes + b) % call->raw_bytes];
}

static void fill_rows(scene *sc, slot s, t_data style) {
  tensor *t = &sc->t[s];
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++)
      if (s == S_X)
        fill_x_row(sc, element_at(t, i, h), t->dtype, i, h);
      else
        t_fill(element_at(t, i, h), t->dtype, t->cols, style, sc->call->seed, (uint64_t)s,
               (sc->call->first_outer + i) * t->inner + h);
}

static void input_rows(scene *sc, slot s, rms_dtype dtype, t_data style) {
  place_rows(sc, s, dtype);
  fill_rows(sc, s, style);
  remember(&sc->t[s]);
}

static int64_t weight_rows(const t_call *call) {
  return call->spec.weight_per_inner ? call->inner : 1;
}

/* weight, bias, dweight or dbias */
static void place_parameter(scene *sc, slot s, rms_dtype dtype, int filled) {
  const t_call *call = sc->call;
  place_array(sc, s, dtype, rms_dtype_size(dtype), weight_rows(call) * call->spec.cols);
  tensor *t = &sc->t[s];
  for (int64_t h = 0; filled && h < weight_rows(call); h++)
    t_fill(t->data + (size_t)(h * call->spec.cols) * t->element, dtype, call->spec.cols,
           call->data == T_SPECIAL ? T_SPECIAL : T_NORMAL, call->seed, (uint64_t)s, h);
}

static void input_parameter(scene *sc, slot s) {
  place_parameter(sc, s, sc->spec.weight_dtype, 1);
  remember(&sc->t[s]);
}

/* partial ascending indices below cols/groups, chosen evenly: each of the remaining ones with chance
 * needed/remaining. */
static void place_indices(scene *sc) {
  const verify_spec *spec = &sc->call->spec;
  sc->spec.indices = NULL;
  if (!sc->call->indexed) return;
  place_array(sc, S_INDICES, RMS_F64, sizeof(int64_t), spec->partial);
  int64_t *list = (int64_t *)(void *)sc->t[S_INDICES].data;
  int64_t width = spec->groups > 1 ? spec->cols / spec->groups : spec->cols, taken = 0;
  t_rng rng = {sc->call->seed ^ 0x1d};
  for (int64_t j = 0; j < width && taken < spec->partial; j++)
    if (t_random_below(&rng, width - j) < spec->partial - taken) list[taken++] = j;
  remember(&sc->t[S_INDICES]);
  sc->spec.indices = list;
}

/* ---- After the call ---- */

static int gaps_whole(const tensor *t) {
  int outer_first = t->outer_stride >= t->inner_stride;
  int64_t slow = outer_first ? t->outer : t->inner, fast = outer_first ? t->inner : t->outer;
  const unsigned char *at = t->data;
  for (int64_t a = 0; a < slow; a++)
    for (int64_t b = 0; b < fast; b++) {
      const unsigned char *row = outer_first ? element_at(t, a, b) : element_at(t, b, a);
      for (; at < row; at++)
        if (*at != UNSET) return 0;
      at = row + (size_t)t->cols * t->element;
    }
  return 1;
}

/* Every placed tensor: nothing around it or between its rows was written, and inputs are as they were. */
static void check_surroundings(const scene *sc) {
  for (int s = 0; s < S_COUNT; s++) {
    const tensor *t = &sc->t[s];
    if (!t->data) continue;
    const t_guard *guard = &rooms[s];
    if (t->data >= guard->room && t->data < guard->room + guard->room_bytes)
      T_CHECK(t_guard_intact(guard, t->data, t->bytes));
    T_CHECK(gaps_whole(t));
    if (t->before) T_EQ_BYTES(t->before, t->data, t->bytes);
  }
}

static void forget(scene *sc, slot s) {
  free(sc->t[s].before);
  sc->t[s] = (tensor){0};
}

static void gather(const scene *sc, slot s, t_result *result, t_out out) {
  const tensor *t = &sc->t[s];
  if (!t->data) return;
  size_t row_bytes = (size_t)t->cols * t->element;
  result->count[out] = t->outer * t->inner * t->cols;
  result->dtype[out] = t->dtype;
  unsigned char *to = result->data[out] = malloc((size_t)result->count[out] * t->element + 1);
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++, to += row_bytes)
      memcpy(to, element_at(t, i, h), row_bytes);
}

/* ---- The calls ---- */

static rms_view view_of(const scene *sc, slot s) {
  const tensor *t = &sc->t[s];
  int dense = sc->layout->outer_gap == 0 && sc->layout->inner_gap == 0 && !sc->layout->inner_major;
  return (rms_view){.data = t->data,
                    .dtype = (int32_t)t->dtype,
                    .outer_stride = dense ? 0 : t->outer_stride,
                    .inner_stride = dense ? 0 : t->inner_stride};
}

static rms_const_view const_view_of(const scene *sc, slot s) {
  rms_view v = view_of(sc, s);
  return (rms_const_view){v.data, v.dtype, v.reserved, v.outer_stride, v.inner_stride, v.col_stride};
}

static int64_t stat_count(const t_call *call) {
  return call->outer * call->inner * (call->spec.groups > 1 ? call->spec.groups : 1);
}

static t_data companion(t_data style) {
  return style == T_WIDE || style == T_SPECIAL ? style : T_NORMAL;
}

static void lay_out_forward(scene *sc) {
  const t_call *call = sc->call;
  const verify_spec *spec = &sc->spec;
  rms_dtype stat_dtype = spec->dtype == RMS_F64 ? RMS_F64 : RMS_F32;
  input_rows(sc, S_X, spec->dtype, call->data);
  if (call->parts & T_RESIDUAL) input_rows(sc, S_RESIDUAL, spec->residual_dtype, companion(call->data));
  if (call->parts & T_WEIGHT) input_parameter(sc, S_WEIGHT);
  if (call->parts & T_BIAS) input_parameter(sc, S_BIAS);
  if (!share(sc, T_Y_IN_X, S_Y, S_X, spec->dtype) && !share(sc, T_Y_IN_RESIDUAL, S_Y, S_RESIDUAL, spec->dtype))
    place_rows(sc, S_Y, spec->dtype);
  if (call->parts & T_RESIDUAL_OUT && !share(sc, T_SUM_IN_RESIDUAL, S_SUM, S_RESIDUAL, spec->residual_dtype) &&
      !share(sc, T_SUM_IN_X, S_SUM, S_X, spec->residual_dtype))
    place_rows(sc, S_SUM, spec->residual_dtype);
  if (call->parts & T_SAVE_STATS) {
    place_array(sc, S_RSTD, stat_dtype, rms_dtype_size(stat_dtype), stat_count(call));
    if (spec->kind == RMS_KIND_LAYER) place_array(sc, S_MEAN, stat_dtype, rms_dtype_size(stat_dtype), stat_count(call));
  }
}

static void before_call(const scene *sc) {
  if (sc->layout->around) sc->layout->around->before();
}

static rms_status after_call(const scene *sc, rms_status status) {
  if (sc->layout->around) sc->layout->around->after();
  return status;
}

static rms_status call_forward(scene *sc) {
  const t_call *call = sc->call;
  rms_forward_args args = {.outer = call->outer, .inner = call->inner};
  args.x = const_view_of(sc, S_X);
  if (sc->t[S_RESIDUAL].data) args.residual = const_view_of(sc, S_RESIDUAL);
  args.weight = sc->t[S_WEIGHT].data;
  args.bias = sc->t[S_BIAS].data;
  args.y = view_of(sc, S_Y);
  if (sc->t[S_SUM].data) args.residual_out = view_of(sc, S_SUM);
  args.rstd = sc->t[S_RSTD].data;
  args.mean = sc->t[S_MEAN].data;
  args.weight_dtype = args.bias_dtype = (int32_t)sc->spec.weight_dtype;
  if (sc->layout->split) place_array(sc, S_STATS, RMS_F64, sizeof(rms_stat), stat_count(call));
  rms_stat *stats = (rms_stat *)(void *)sc->t[S_STATS].data;
  before_call(sc);
  if (!sc->layout->split) return after_call(sc, rms_forward(&sc->called, &args, sc->executor));
  rms_status status = rms_stats(&sc->called, &args, stats, sc->executor);
  return after_call(sc, status != RMS_OK ? status : rms_apply(&sc->called, &args, stats, sc->executor));
}

static void lay_out_backward(scene *sc, const t_result *forward) {
  const t_call *call = sc->call;
  const verify_spec *spec = &sc->spec;
  int is_sum = (call->parts & T_RESIDUAL) != 0;
  input_rows(sc, S_DY, spec->dtype, companion(call->data));
  /* x of the backward: the sum that the forward stored, or the forward's x once more */
  place_rows(sc, S_SAVED_X, is_sum ? spec->residual_dtype : spec->dtype);
  tensor *x = &sc->t[S_SAVED_X];
  const unsigned char *from = is_sum ? forward->data[T_OUT_SUM] : NULL;
  for (int64_t i = 0; i < x->outer; i++)
    for (int64_t h = 0; h < x->inner; h++)
      if (is_sum)
        memcpy(element_at(x, i, h), from + (size_t)((i * x->inner + h) * x->cols) * x->element,
               (size_t)x->cols * x->element);
      else
        fill_x_row(sc, element_at(x, i, h), x->dtype, i, h);
  remember(x);
  if (call->parts & T_DRESIDUAL) input_rows(sc, S_DRESIDUAL, spec->residual_dtype, companion(call->data));
  int shared = 0;
  if (call->parts & T_DX && !(call->accumulate & RMS_ACCUMULATE_DX))
    shared = share(sc, T_DX_IN_DY, S_DX, S_DY, spec->dtype) || share(sc, T_DX_IN_X, S_DX, S_SAVED_X, spec->dtype);
  if (call->parts & T_DX && !shared) {
    place_rows(sc, S_DX, spec->dtype);
    if (call->accumulate & RMS_ACCUMULATE_DX) fill_rows(sc, S_DX, companion(call->data));
  }
  if (call->parts & T_DRESIDUAL_OUT &&
      !share(sc, T_DRESIDUAL_IN_PLACE, S_DRESIDUAL_OUT, S_DRESIDUAL, spec->residual_dtype))
    place_rows(sc, S_DRESIDUAL_OUT, spec->residual_dtype);
  if (call->parts & T_DWEIGHT)
    place_parameter(sc, S_DWEIGHT, spec->grad_dtype, call->accumulate & RMS_ACCUMULATE_DWEIGHT);
  if (call->parts & T_DBIAS) place_parameter(sc, S_DBIAS, spec->grad_dtype, call->accumulate & RMS_ACCUMULATE_DBIAS);
  if (sc->t[S_RSTD].data) remember(&sc->t[S_RSTD]);
  if (sc->t[S_MEAN].data) remember(&sc->t[S_MEAN]);
}

static rms_status call_backward(scene *sc) {
  const t_call *call = sc->call;
  rms_backward_args args = {.outer = call->outer, .inner = call->inner, .accumulate = call->accumulate};
  args.dy = const_view_of(sc, S_DY);
  args.x = const_view_of(sc, S_SAVED_X);
  if (sc->t[S_DRESIDUAL].data) args.dresidual = const_view_of(sc, S_DRESIDUAL);
  args.weight = sc->t[S_WEIGHT].data;
  args.rstd = sc->t[S_RSTD].data;
  args.mean = sc->t[S_MEAN].data;
  if (sc->t[S_DX].data) args.dx = view_of(sc, S_DX);
  if (sc->t[S_DRESIDUAL_OUT].data) args.dresidual_out = view_of(sc, S_DRESIDUAL_OUT);
  args.dweight = sc->t[S_DWEIGHT].data;
  args.dbias = sc->t[S_DBIAS].data;
  args.weight_dtype = (int32_t)sc->spec.weight_dtype;
  args.dweight_dtype = args.dbias_dtype = (int32_t)sc->spec.grad_dtype;
  if (args.dweight || args.dbias) {
    /* exactly what is asked for, and aligned: the size is rounded up to whole lines for the placement alone */
    args.workspace_bytes = rms_backward_workspace(&sc->called, &args);
    size_t lines = (args.workspace_bytes + 63) / 64;
    sc->t[S_WORKSPACE] = (tensor){.element = 1, .outer = 1, .inner = 1, .cols = (int64_t)(lines * 64)};
    sc->t[S_WORKSPACE].bytes = lines * 64;
    args.workspace = sc->t[S_WORKSPACE].data = room(S_WORKSPACE, lines * 64, sc->layout->flush, 0);
  }
  if (sc->layout->split) place_array(sc, S_GRAD_SUMS, RMS_F64, sizeof(rms_grad_sum), stat_count(call));
  const rms_stat *stats = (const rms_stat *)(void *)sc->t[S_STATS].data;
  rms_grad_sum *sums = (rms_grad_sum *)(void *)sc->t[S_GRAD_SUMS].data;
  before_call(sc);
  if (!sc->layout->split) return after_call(sc, rms_backward(&sc->called, &args, sc->executor));
  rms_status status = rms_backward_stats(&sc->called, &args, stats, sums, sc->executor);
  if (status == RMS_OK) status = rms_backward_apply(&sc->called, &args, stats, sums, sc->executor);
  return after_call(sc, status);
}

t_result t_run(const t_call *call, const t_layout *layout, const rms_executor *executor) {
  scene sc = {.call = call, .layout = layout, .executor = executor, .spec = call->spec};
  t_result result = {.forward = RMS_OK, .backward = RMS_OK};
  t_context("%s", t_describe(call, layout));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(layout->stream_bytes));
  place_indices(&sc);
  sc.called = verify_library_spec(&sc.spec);
  lay_out_forward(&sc);
  result.forward = call_forward(&sc);
  check_surroundings(&sc);
  gather(&sc, S_Y, &result, T_OUT_Y);
  gather(&sc, S_SUM, &result, T_OUT_SUM);
  gather(&sc, S_RSTD, &result, T_OUT_RSTD);
  gather(&sc, S_MEAN, &result, T_OUT_MEAN);
  static const slot forward_only[] = {S_X, S_RESIDUAL, S_BIAS, S_Y, S_SUM};
  for (size_t i = 0; i < T_COUNT(forward_only); i++)
    forget(&sc, forward_only[i]);
  if (call->parts & T_BACKWARD && result.forward == RMS_OK) {
    lay_out_backward(&sc, &result);
    result.backward = call_backward(&sc);
    check_surroundings(&sc);
    gather(&sc, S_DX, &result, T_OUT_DX);
    gather(&sc, S_DRESIDUAL_OUT, &result, T_OUT_DRESIDUAL);
    gather(&sc, S_DWEIGHT, &result, T_OUT_DWEIGHT);
    gather(&sc, S_DBIAS, &result, T_OUT_DBIAS);
  }
  for (int s = 0; s < S_COUNT; s++)
    forget(&sc, (slot)s);
  return result;
}

void t_result_free(t_result *result) {
  for (int out = 0; out < T_OUT_COUNT; out++)
    free(result->data[out]);
  *result = (t_result){.forward = RMS_OK, .backward = RMS_OK};
}
