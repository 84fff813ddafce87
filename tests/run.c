/* SPDX-License-Identifier: MIT
 * Lays a call out in guarded memory, runs it, checks the surroundings and gathers the outputs. */
#include "call.h"

#include <stdlib.h>
#include <string.h>
#include "../verify/case.h"

const t_layout t_dense = {.stream_bytes = -1};

enum { UNSET = 0xA5 };

typedef struct scene {
  const t_call *call;
  const t_layout *layout;
  const rms_executor *executor;
  rms_spec spec;
  verify_case c;                       /* the forward's, then the backward's                                     */
  unsigned char *before[VERIFY_ROLES]; /* copies of inputs, to see that they stay as they are                    */
  int taken[VERIFY_ROLES];             /* inputs whose memory an output has: they do not stay, nor serve twice  */
} scene;

static _Thread_local t_guard rooms[VERIFY_ROLES];

/* ---- Problems ---- */

static verify_problem problem_of(const t_call *call, const t_layout *layout, int backward) {
  unsigned parts = call->parts;
  verify_problem p = {.spec = call->spec, .outer = call->outer, .inner = call->inner, .backward = backward};
  p.spec.indices = NULL;
  if (backward) p.spec.q_dtype = RMS_AS_X, p.spec.scale_block = 0;
  p.has_weight = (parts & T_WEIGHT) != 0;
  p.has_residual = (parts & T_RESIDUAL) != 0;
  p.has_indices = call->indexed;
  p.split = layout->split;
  p.weight_stride = call->weight_gap ? call->spec.cols + call->weight_gap : 0;
  p.has_bias = (parts & T_BIAS) != 0; /* a backward asks for it where a gate needs it */
  if (backward) {
    p.has_dresidual = (parts & T_DRESIDUAL) != 0;
    p.recompute = !(parts & T_SAVE_STATS);
    p.accumulate = call->accumulate;
    p.outputs = (parts & T_DX ? VERIFY_OUT_DX : 0u) | (parts & T_DRESIDUAL_OUT ? VERIFY_OUT_DS : 0u) |
                (parts & T_DWEIGHT ? VERIFY_OUT_DW : 0u) | (parts & T_DBIAS ? VERIFY_OUT_DB : 0u) |
                (parts & T_DGATE ? VERIFY_OUT_DZ : 0u);
  } else {
    p.outputs = (parts & T_NO_Y ? 0u : VERIFY_OUT_Y) | (call->spec.q_dtype ? VERIFY_OUT_Q : 0u) |
                (parts & T_RESIDUAL_OUT ? VERIFY_OUT_SUM : 0u) | (parts & T_SAVE_STATS ? VERIFY_OUT_STATS : 0u);
  }
  return p;
}

/* ---- Placing tensors ---- */

static unsigned char *element_at(const verify_tensor *t, int64_t i, int64_t h, int64_t j) {
  return (unsigned char *)t->data + (size_t)verify_element_at(t, i, h, j) * rms_dtype_size(t->dtype);
}

/* Copies a row of the tensor to or from contiguous memory. */
static void copy_row(const verify_tensor *t, int64_t i, int64_t h, unsigned char *row, int to_tensor) {
  size_t size = rms_dtype_size(t->dtype);
  if (element_at(t, i, h, t->cols - 1) == element_at(t, i, h, 0) + (size_t)(t->cols - 1) * size) {
    memcpy(to_tensor ? element_at(t, i, h, 0) : row, to_tensor ? row : element_at(t, i, h, 0), (size_t)t->cols * size);
    return;
  }
  for (int64_t j = 0; j < t->cols; j++, row += size)
    memcpy(to_tensor ? element_at(t, i, h, j) : row, to_tensor ? row : element_at(t, i, h, j), size);
}

/* Rows whose elements lie apart have one weight for all. */
static int is_turned(const scene *sc) {
  return sc->layout->channels_first && !sc->call->spec.weight_per_inner && !sc->call->spec.q_dtype;
}

static int is_dense(const scene *sc) {
  const t_layout *layout = sc->layout;
  return layout->outer_gap == 0 && layout->inner_gap == 0 && !layout->inner_major && !is_turned(sc);
}

static void stride_rows(scene *sc) {
  const t_layout *layout = sc->layout;
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    verify_tensor *t = &sc->c.tensor[role];
    /* weights at a stride end with the last of them */
    if (t->present && (role == VERIFY_WEIGHT || role == VERIFY_BIAS))
      verify_tensor_stride(t, t->outer_stride, t->inner_stride);
    if (!t->present || !verify_role_has_rows(role)) continue;
    if (is_turned(sc)) {
      verify_tensor_turn(t, layout->inner_gap);
      continue;
    }
    int64_t gap = role == VERIFY_Q && sc->call->spec.q_dtype == RMS_Q8_0 ? 34 : 1; /* of whole blocks */
    int64_t pitch = t->cols + layout->inner_gap * gap;
    int64_t large = (layout->inner_major ? t->outer : t->inner) * pitch + layout->outer_gap * gap;
    verify_tensor_stride(t, layout->inner_major ? pitch : large, layout->inner_major ? large : pitch);
  }
}

/* The output `out` takes the memory of the input `in` if the layout asks for it and the types are the same. */
static int share(scene *sc, unsigned flag, verify_role out, verify_role in) {
  verify_tensor *to = &sc->c.tensor[out];
  const verify_tensor *from = &sc->c.tensor[in];
  if (!(sc->layout->in_place & flag) || !to->present || !from->present || sc->taken[in] || to->dtype != from->dtype)
    return 0;
  to->shared_with = in;
  return sc->taken[in] = 1;
}

static void share_memory(scene *sc) {
  memset(sc->taken, 0, sizeof sc->taken);
  if (!sc->c.problem.backward) {
    (void)(share(sc, T_Y_IN_X, VERIFY_Y, VERIFY_X) || share(sc, T_Y_IN_RESIDUAL, VERIFY_Y, VERIFY_RESIDUAL) ||
           share(sc, T_Y_IN_GATE, VERIFY_Y, VERIFY_GATE));
    (void)(share(sc, T_SUM_IN_RESIDUAL, VERIFY_SUM, VERIFY_RESIDUAL) || share(sc, T_SUM_IN_X, VERIFY_SUM, VERIFY_X) ||
           share(sc, T_SUM_IN_GATE, VERIFY_SUM, VERIFY_GATE));
    return;
  }
  if (!(sc->call->accumulate & RMS_ACCUMULATE_DX))
    (void)(share(sc, T_DX_IN_DY, VERIFY_DX, VERIFY_DY) || share(sc, T_DX_IN_X, VERIFY_DX, VERIFY_X) ||
           share(sc, T_DX_IN_GATE, VERIFY_DX, VERIFY_GATE));
  (void)share(sc, T_DRESIDUAL_IN_PLACE, VERIFY_DS, VERIFY_DRESIDUAL);
  (void)share(sc, T_DGATE_IN_PLACE, VERIFY_DGATE, VERIFY_GATE);
}

/* Rows may start at any byte; arrays are aligned to their elements, the workspace to lines. */
static size_t alignment_of(const verify_case *c, verify_role role) {
  if (verify_role_has_rows(role)) return 1;
  if (role == VERIFY_WORKSPACE) return 64;
  if (role == VERIFY_STATS) return sizeof(rms_stat);
  if (role == VERIFY_GRAD_SUMS) return sizeof(rms_grad_sum);
  return role == VERIFY_INDICES ? sizeof(int64_t) : rms_dtype_size(c->tensor[role].dtype);
}

static char *place(void *ctx, const verify_case *c, verify_role role) {
  const t_layout *layout = ctx;
  size_t alignment = alignment_of(c, role), bytes = c->tensor[role].bytes;
  size_t offset = role == VERIFY_WORKSPACE ? 0 : layout->offset / alignment * alignment;
  if (role == VERIFY_WORKSPACE) bytes = (bytes + 63) / 64 * 64;
  if (role == VERIFY_Y || role == VERIFY_DX || role == VERIFY_DGATE) offset += layout->behind;
  t_guard *room = &rooms[role];
  if (!t_guard_fits(room, bytes + offset) || room->room_bytes > bytes + offset + (1u << 20)) {
    t_guard_free(room);
    *room = t_guard_make(bytes + offset);
  }
  char *data = t_guard_place(room, bytes, layout->flush, offset);
  memset(data, UNSET, bytes);
  return data;
}

static verify_allocator guarded(const scene *sc) {
  return (verify_allocator){place, (void *)(uintptr_t)sc->layout};
}

/* The forward's tensors that the backward reads stay where they are. */
static void open_scene(scene *sc, int backward) {
  static const verify_role kept[] = {VERIFY_WEIGHT, VERIFY_BIAS, VERIFY_INDICES,
                                     VERIFY_RSTD,   VERIFY_MEAN, VERIFY_STATS};
  const verify_case forward = sc->c;
  verify_problem problem = problem_of(sc->call, sc->layout, backward);
  verify_allocator allocator = guarded(sc);
  T_EQ_INT(0, verify_case_describe(&sc->c, &problem));
  for (size_t i = 0; backward && i < T_COUNT(kept); i++)
    if (verify_case_has(&sc->c, kept[i])) sc->c.tensor[kept[i]].data = forward.tensor[kept[i]].data;
  stride_rows(sc);
  share_memory(sc);
  T_EQ_INT(0, verify_case_place(&sc->c, &allocator));
}

/* ---- Contents ---- */

/* The numbers of the tensors in t_fill: the digests of fixed inputs depend on them. */
static uint64_t stream_of(verify_role role) {
  static const unsigned char streams[VERIFY_ROLES] = {
      [VERIFY_X] = 0,          [VERIFY_RESIDUAL] = 1, [VERIFY_WEIGHT] = 2, [VERIFY_BIAS] = 3,     [VERIFY_DY] = 8,
      [VERIFY_DRESIDUAL] = 10, [VERIFY_DX] = 11,      [VERIFY_GATE] = 12,  [VERIFY_DWEIGHT] = 13, [VERIFY_DBIAS] = 14};
  return streams[role];
}

static t_data companion(t_data style) {
  return style == T_WIDE || style == T_SPECIAL ? style : T_NORMAL;
}

/* x of the forward, which is also x of a backward without a residual. */
static void fill_x_row(const t_call *call, unsigned char *row, rms_dtype dtype, int64_t number) {
  if (!call->raw_bytes) {
    t_fill(row, dtype, call->spec.cols, call->data, call->seed, stream_of(VERIFY_X), number);
    return;
  }
  size_t row_bytes = rms_dtype_size(dtype) * (size_t)call->spec.cols;
  for (size_t b = 0; b < row_bytes; b++)
    row[b] = call->raw[((size_t)number * row_bytes + b) % call->raw_bytes];
}

static void fill_row(const scene *sc, verify_role role, unsigned char *row, int64_t number) {
  const t_call *call = sc->call;
  const verify_tensor *t = &sc->c.tensor[role];
  t_data style = companion(call->data);
  if (!verify_role_has_rows(role)) style = call->data == T_SPECIAL ? T_SPECIAL : T_NORMAL;
  if (role == VERIFY_X)
    fill_x_row(call, row, t->dtype, number);
  else
    t_fill(row, t->dtype, t->cols, style, call->seed, stream_of(role), number);
}

static void fill(const scene *sc, verify_role role) {
  const verify_tensor *t = &sc->c.tensor[role];
  int64_t first = verify_role_has_rows(role) ? sc->call->first_outer : 0;
  unsigned char *row = malloc((size_t)t->cols * 8 + 1);
  for (int64_t i = 0; t->present && i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++)
      if (t->col_stride == 1) {
        fill_row(sc, role, element_at(t, i, h, 0), (first + i) * t->inner + h);
      } else {
        fill_row(sc, role, row, (first + i) * t->inner + h);
        copy_row(t, i, h, row, 1);
      }
  free(row);
}

/* The x of a backward with a residual: the sum that the forward stored. */
static void copy_sum(scene *sc, unsigned char *from) {
  const verify_tensor *x = &sc->c.tensor[VERIFY_X];
  size_t row_bytes = (size_t)x->cols * rms_dtype_size(x->dtype);
  for (int64_t i = 0; i < x->outer; i++)
    for (int64_t h = 0; h < x->inner; h++, from += row_bytes)
      copy_row(x, i, h, from, 1);
}

/* partial ascending indices below cols/groups, chosen evenly: each of the remaining ones with chance
 * needed/remaining. */
static void fill_indices(const scene *sc) {
  const verify_spec *spec = &sc->call->spec;
  int64_t *list = (int64_t *)(void *)sc->c.tensor[VERIFY_INDICES].data;
  int64_t width = spec->groups > 1 ? spec->cols / spec->groups : spec->cols, taken = 0;
  t_rng rng = {sc->call->seed ^ 0x1d};
  for (int64_t j = 0; list && j < width && taken < spec->partial; j++)
    if (t_random_below(&rng, width - j) < spec->partial - taken) list[taken++] = j;
}

/* One that is given: some elements saturate. */
static void fill_scale(const scene *sc) {
  const verify_tensor *t = &sc->c.tensor[VERIFY_SCALE];
  const float given = sc->call->spec.q_dtype == RMS_I8 ? 0.0171875f : 0.00434f;
  if (t->present && !verify_case_is_output(&sc->c, VERIFY_SCALE)) memcpy(t->data, &given, sizeof given);
}

static void remember(scene *sc) {
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &sc->c.tensor[role];
    int carried = sc->c.problem.backward && role == VERIFY_STATS;
    if (!t->present || sc->taken[role] || (verify_case_is_output(&sc->c, role) && !carried)) continue;
    sc->before[role] = malloc(t->bytes + 1);
    memcpy(sc->before[role], t->data, t->bytes);
  }
}

/* ---- After the call ---- */

static int gaps_whole(const verify_tensor *given) {
  verify_tensor turned = *given;
  const verify_tensor *t = given->col_stride > 1 ? &turned : given;
  turned.inner = given->cols, turned.inner_stride = given->col_stride;
  turned.cols = given->inner, turned.col_stride = 1;
  int outer_first = t->outer_stride >= t->inner_stride;
  int64_t slow = outer_first ? t->outer : t->inner, fast = outer_first ? t->inner : t->outer;
  const unsigned char *at = (const unsigned char *)t->data;
  for (int64_t a = 0; a < slow; a++)
    for (int64_t b = 0; b < fast; b++) {
      const unsigned char *row = outer_first ? element_at(t, a, b, 0) : element_at(t, b, a, 0);
      for (; at < row; at++)
        if (*at != UNSET) return 0;
      at = row + (size_t)t->cols * rms_dtype_size(t->dtype);
    }
  return 1;
}

/* Every placed tensor: nothing around it or between its rows was written, and inputs are as they were. */
static void check_surroundings(scene *sc) {
  for (verify_role role = 0; role < VERIFY_ROLES; role++) {
    const verify_tensor *t = &sc->c.tensor[role];
    if (!t->present) continue;
    if (t->shared_with == role) T_CHECK(t_guard_intact(&rooms[role], t->data, t->bytes));
    if (verify_role_has_rows(role)) T_CHECK(gaps_whole(t));
    if (sc->before[role]) T_EQ_BYTES(sc->before[role], t->data, t->bytes);
    free(sc->before[role]);
    sc->before[role] = NULL;
  }
}

static void gather(const scene *sc, verify_role role, t_result *result, t_out out) {
  const verify_tensor *t = &sc->c.tensor[role];
  if (!t->present) return;
  size_t element = rms_dtype_size(t->dtype), row_bytes = (size_t)t->cols * element;
  result->count[out] = t->outer * t->inner * t->cols;
  result->dtype[out] = t->dtype;
  unsigned char *to = result->data[out] = malloc((size_t)result->count[out] * element + 1);
  for (int64_t i = 0; i < t->outer; i++)
    for (int64_t h = 0; h < t->inner; h++, to += row_bytes)
      copy_row(t, i, h, to, 0);
}

/* ---- The calls ---- */

static void before_call(const scene *sc) {
  if (sc->layout->around) sc->layout->around->before();
}

static rms_status after_call(const scene *sc, rms_status status) {
  if (sc->layout->around) sc->layout->around->after();
  return status;
}

/* Dense tensors are said to be so by strides of zero. */
static void drop_strides(const scene *sc, int64_t *outer_stride, int64_t *inner_stride) {
  if (is_dense(sc)) *outer_stride = *inner_stride = 0;
}
#define DROP_STRIDES(view) drop_strides(sc, &(view).outer_stride, &(view).inner_stride)

static rms_status call_forward(scene *sc) {
  rms_forward_args args = verify_case_forward_args(&sc->c);
  rms_stat *stats = (rms_stat *)(void *)sc->c.tensor[VERIFY_STATS].data;
  DROP_STRIDES(args.x);
  DROP_STRIDES(args.residual);
  DROP_STRIDES(args.gate);
  DROP_STRIDES(args.y);
  DROP_STRIDES(args.residual_out);
  DROP_STRIDES(args.q);
  before_call(sc);
  if (!sc->layout->split) return after_call(sc, rms_forward(&sc->spec, &args, sc->executor));
  rms_status status = rms_stats(&sc->spec, &args, stats, sc->executor);
  return after_call(sc, status != RMS_OK ? status : rms_apply(&sc->spec, &args, stats, sc->executor));
}

static rms_status call_backward(scene *sc) {
  rms_backward_args args = verify_case_backward_args(&sc->c);
  if (args.dweight || args.dbias) { /* exactly what is asked for */
    verify_allocator allocator = guarded(sc);
    T_EQ_INT(0, verify_case_place_workspace(&sc->c, rms_backward_workspace(&sc->spec, &args), &allocator));
    args = verify_case_backward_args(&sc->c);
  }
  const rms_stat *stats = (const rms_stat *)(void *)sc->c.tensor[VERIFY_STATS].data;
  rms_grad_sum *sums = (rms_grad_sum *)(void *)sc->c.tensor[VERIFY_GRAD_SUMS].data;
  DROP_STRIDES(args.dy);
  DROP_STRIDES(args.x);
  DROP_STRIDES(args.dresidual);
  DROP_STRIDES(args.gate);
  DROP_STRIDES(args.dgate);
  DROP_STRIDES(args.dx);
  DROP_STRIDES(args.dresidual_out);
  before_call(sc);
  if (!sc->layout->split) return after_call(sc, rms_backward(&sc->spec, &args, sc->executor));
  rms_status status = rms_backward_stats(&sc->spec, &args, stats, sums, sc->executor);
  if (status == RMS_OK) status = rms_backward_apply(&sc->spec, &args, stats, sums, sc->executor);
  return after_call(sc, status);
}

static void run_forward(scene *sc, t_result *result) {
  static const verify_role inputs[] = {VERIFY_X, VERIFY_RESIDUAL, VERIFY_WEIGHT, VERIFY_BIAS, VERIFY_GATE};
  open_scene(sc, 0);
  for (size_t i = 0; i < T_COUNT(inputs); i++)
    fill(sc, inputs[i]);
  fill_indices(sc);
  fill_scale(sc);
  const verify_spec spec = verify_case_spec(&sc->c);
  sc->spec = verify_library_spec(&spec);
  remember(sc);
  result->forward = call_forward(sc);
  check_surroundings(sc);
  gather(sc, VERIFY_Y, result, T_OUT_Y);
  gather(sc, VERIFY_SUM, result, T_OUT_SUM);
  gather(sc, VERIFY_RSTD, result, T_OUT_RSTD);
  gather(sc, VERIFY_MEAN, result, T_OUT_MEAN);
  gather(sc, VERIFY_Q, result, T_OUT_Q);
  if (sc->call->spec.scale_block) gather(sc, VERIFY_SCALE, result, T_OUT_SCALE);
}

static void run_backward(scene *sc, t_result *result) {
  int accumulate = sc->call->accumulate;
  open_scene(sc, 1);
  if (sc->call->parts & T_RESIDUAL)
    copy_sum(sc, result->data[T_OUT_SUM]);
  else
    fill(sc, VERIFY_X);
  fill(sc, VERIFY_DY);
  fill(sc, VERIFY_DRESIDUAL);
  fill(sc, VERIFY_GATE);
  if (accumulate & RMS_ACCUMULATE_DX) fill(sc, VERIFY_DX);
  if (accumulate & RMS_ACCUMULATE_DWEIGHT) fill(sc, VERIFY_DWEIGHT);
  if (accumulate & RMS_ACCUMULATE_DBIAS) fill(sc, VERIFY_DBIAS);
  remember(sc);
  result->backward = call_backward(sc);
  check_surroundings(sc);
  gather(sc, VERIFY_DX, result, T_OUT_DX);
  gather(sc, VERIFY_DS, result, T_OUT_DRESIDUAL);
  gather(sc, VERIFY_DWEIGHT, result, T_OUT_DWEIGHT);
  gather(sc, VERIFY_DBIAS, result, T_OUT_DBIAS);
  gather(sc, VERIFY_DGATE, result, T_OUT_DGATE);
}

t_result t_run(const t_call *call, const t_layout *given, const rms_executor *executor) {
  t_layout whole = *given;
  if (call->spec.steps >= RMS_STEPS_RSTD) whole.split = 0; /* they have no split form */
  const t_layout *layout = &whole;
  scene sc = {.call = call, .layout = layout, .executor = executor};
  t_result result = {.forward = RMS_OK, .backward = RMS_OK};
  t_context("%s", t_describe(call, layout));
  T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(layout->stream_bytes));
  run_forward(&sc, &result);
  if (call->parts & T_BACKWARD && result.forward == RMS_OK) run_backward(&sc, &result);
  return result;
}

void t_result_free(t_result *result) {
  for (int out = 0; out < T_OUT_COUNT; out++)
    free(result->data[out]);
  *result = (t_result){.forward = RMS_OK, .backward = RMS_OK};
}
