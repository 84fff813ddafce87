/* SPDX-License-Identifier: MIT
 * Which outputs may share memory with which arguments: what the header allows works, the rest is refused. */
#include "world.h"

#include <string.h>

static void *bytes_after(void *data, size_t bytes) {
  return (unsigned char *)data + bytes;
}

enum { TENSOR_BYTES = W_ELEMENTS * 4 };

static void forward_allowed(void) {
  for (int y = 0; y < 3; y++)
    for (int sum = 0; sum < 3; sum++) {
      world *w = w_fresh();
      void *places[] = {w->y, w->x, w->residual}, *sums[] = {w->residual_out, w->x, w->residual};
      w->forward.y.data = places[y];
      w->forward.residual_out.data = sums[sum];
      w_expect(w, W_FORWARDS, y && y == sum ? RMS_E_ALIAS : RMS_OK);
    }
  world *w = w_fresh();
  w->forward.residual.data = w->x; /* inputs may share as they like */
  w->forward.bias = w->weight;
  w_expect(w, W_FORWARDS | W_STATS, RMS_OK);
}

/* Each output over each argument, shifted by some elements or at the very start of a foreign one. */
static void forward_refused(void) {
  for (int shift = -4; shift <= 4; shift += 4) {
    for (int input = 0; input < 4; input++) {
      world *w = w_fresh();
      w->forward.weight = w->weight + 4;
      w->forward.bias = w->bias + 4;
      w->forward.x.data = w->x + 4;
      w->forward.residual.data = w->residual + 4;
      const void *inputs[] = {w->forward.weight, w->forward.bias, w->forward.x.data, w->forward.residual.data};
      if (input >= 2 && shift == 0) continue; /* in place: allowed */
      w->forward.y.data = (unsigned char *)(uintptr_t)inputs[input] + shift;
      w_expect(w, W_FORWARDS, RMS_E_ALIAS);
      w->forward.y.data = w->y;
      w->forward.residual_out.data = (unsigned char *)(uintptr_t)inputs[input] + shift;
      w_expect(w, W_FORWARDS, RMS_E_ALIAS);
      w->forward.residual_out.data = w->residual_out;
      w->forward.rstd = (unsigned char *)(uintptr_t)inputs[input] + shift;
      w_expect(w, W_FORWARDS, RMS_E_ALIAS);
      w->forward.rstd = w->rstd;
      w->forward.mean = (unsigned char *)(uintptr_t)inputs[input] + shift;
      w_expect(w, W_FORWARDS, RMS_E_ALIAS);
    }
  }
  world *w = w_fresh();
  w->forward.rstd = w->x; /* a statistic never goes over a tensor */
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w = w_fresh();
  w->forward.mean = w->rstd;
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w = w_fresh();
  w->forward.rstd = bytes_after(w->y, TENSOR_BYTES - 4);
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w = w_fresh();
  w->forward.residual_out.data = bytes_after(w->y, TENSOR_BYTES - 4);
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w = w_fresh();
  w->forward.residual_out.data = w->y;
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
}

/* Buffers that touch without overlapping. */
static void neighbours(void) {
  world *w = w_fresh();
  w->forward.y.data = bytes_after(w->x, TENSOR_BYTES); /* the second half of x's room */
  w->forward.residual_out.data = bytes_after(w->residual, TENSOR_BYTES);
  w->forward.rstd = bytes_after(w->weight, W_COLS * 4);
  w->forward.mean = bytes_after(w->weight, W_COLS * 4 + W_ROWS * 4);
  w_expect(w, W_FORWARDS, RMS_OK);
  w = w_fresh();
  w->backward.dx.data = bytes_after(w->x, TENSOR_BYTES);
  w->backward.dweight = bytes_after(w->weight, W_COLS * 4);
  w->backward.dbias = bytes_after(w->weight, 2 * W_COLS * 4);
  w_expect(w, W_BACKWARDS, RMS_OK);
}

/* In place means the same strides and the same type. */
static void not_quite_in_place(void) {
  world *w = w_fresh();
  w->forward.residual_out.data = NULL;
  w->forward.y = (rms_view){w->x, RMS_F32, 0, 17, 8, 0};
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w->forward.y = (rms_view){w->x, RMS_F32, 0, 16, 8, 0}; /* the dense strides, spelled out */
  w_expect(w, W_FORWARDS, RMS_OK);
  w = w_fresh();
  w_set_types(w, RMS_BF16, RMS_BF16, RMS_F32, RMS_F32);
  w->forward.y.data = w->residual;
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w->forward.y.data = w->x;
  w_expect(w, W_FORWARDS, RMS_OK);
  w->forward.y.data = w->y;
  w->forward.residual_out.data = w->x;
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  w->forward.residual_out.data = w->residual;
  w_expect(w, W_FORWARDS, RMS_OK);
}

static void backward_allowed(void) {
  for (int dx = 0; dx < 4; dx++)
    for (int out = 0; out < 4; out++) {
      world *w = w_fresh();
      void *places[] = {w->dx, w->dy, w->x, w->dresidual}, *outs[] = {w->dresidual_out, w->dy, w->x, w->dresidual};
      w->backward.dx.data = places[dx];
      w->backward.dresidual_out.data = outs[out];
      w_expect(w, W_BACKWARDS, dx && dx == out ? RMS_E_ALIAS : RMS_OK);
    }
}

/* y may be the gate, and the gradient of the gate any tensor that is read; two outputs never share. */
static void gates(void) {
  for (int place = RMS_GATE_AFTER; place <= RMS_GATE_BEFORE; place++)
    for (int dgate = 0; dgate < 5; dgate++)
      for (int dx = 0; dx < 5; dx++) {
        world *w = w_fresh();
        void *gates[] = {w->dgate, w->gate, w->dy, w->x, w->dresidual};
        void *places[] = {w->dx, w->gate, w->dy, w->x, w->dresidual};
        w_add_gate(w, (rms_gate_place)place);
        w->backward.dgate.data = gates[dgate];
        w->backward.dx.data = places[dx];
        w_expect(w, W_BACKWARDS, dx && dx == dgate ? RMS_E_ALIAS : RMS_OK);
      }
  world *w = w_fresh();
  w_add_gate(w, RMS_GATE_AFTER);
  w->forward.y.data = w->gate;
  w_expect(w, W_FORWARDS, RMS_OK);
  w->forward.y.data = bytes_after(w->gate, 4);
  w_expect(w, W_FORWARDS, RMS_E_ALIAS);
  void *others[] = {w->weight, w->bias, w->dresidual_out, w->dweight, w->dbias, w->workspace, bytes_after(w->gate, 4)};
  for (size_t i = 0; i < T_COUNT(others); i++) {
    w = w_fresh();
    w_add_gate(w, RMS_GATE_AFTER);
    w->backward.dgate.data = others[i];
    t_context("dgate over %zu", i);
    w_expect(w, W_BACKWARDS, RMS_E_ALIAS);
  }
}

static void backward_refused(void) {
  for (int output = 0; output < 4; output++)
    for (int input = 0; input < 7; input++)
      for (int shift = 0; shift <= 4; shift += 4) {
        world *w = w_fresh();
        w->backward.rstd = w->rstd;
        w->backward.mean = w->mean;
        void *inputs[] = {w->weight, w->rstd, w->mean, w->workspace, w->dy, w->x, w->dresidual};
        if (output < 2 && input >= 4 && shift == 0) continue; /* in place: allowed */
        void *over = bytes_after(inputs[input], (size_t)shift);
        if (output == 0) w->backward.dx.data = over;
        if (output == 1) w->backward.dresidual_out.data = over;
        if (output == 2) w->backward.dweight = over;
        if (output == 3) w->backward.dbias = over;
        w_expect(w, input == 1 || input == 2 ? W_BACKWARD : W_BACKWARDS, RMS_E_ALIAS);
      }
  world *w = w_fresh();
  w->backward.dbias = w->dweight;
  w_expect(w, W_BACKWARDS, RMS_E_ALIAS);
  w->backward.dbias = bytes_after(w->dweight, W_COLS * 4 - 4);
  w_expect(w, W_BACKWARDS, RMS_E_ALIAS);
  w->backward.dbias = w->dx;
  w_expect(w, W_BACKWARDS, RMS_E_ALIAS);
}

/* Three slices of one tensor [outer][3 * 2 * 8]: reads one, writes another. */
static void interleaved_slices(void) {
  static float fused[W_OUTER * 48], alone[W_OUTER * 16];
  world *w = w_fresh();
  for (int i = 0; i < W_OUTER * 48; i++)
    fused[i] = (float)(i % 11) - 5;
  w->forward.residual.data = NULL;
  w->forward.residual_out.data = NULL;
  for (int from = 0; from < 3; from++)
    for (int to = 0; to < 3; to++) {
      w->forward.x = (rms_const_view){fused + 16 * from, RMS_F32, 0, 48, 0, 0};
      w->forward.y = (rms_view){alone, RMS_F32, 0, 0, 0, 0};
      w_expect(w, W_FORWARD, RMS_OK);
      w->forward.y = (rms_view){fused + 16 * to, RMS_F32, 0, 48, 0, 0};
      w_expect(w, W_FORWARD, RMS_OK);
      for (int i = 0; i < W_OUTER; i++)
        T_EQ_BYTES(alone + 16 * i, fused + 48 * i + 16 * to, 16 * sizeof(float));
    }
  /* One element into the neighbouring slice, from either side. */
  w->forward.x = (rms_const_view){fused + 16, RMS_F32, 0, 48, 0, 0};
  w->forward.y = (rms_view){fused + 1, RMS_F32, 0, 48, 0, 0};
  w_expect(w, W_FORWARD, RMS_E_ALIAS);
  w->forward.outer = W_OUTER - 1;
  w->forward.y = (rms_view){fused + 31, RMS_F32, 0, 48, 0, 0};
  w_expect(w, W_FORWARD, RMS_E_ALIAS);
  w->forward.y = (rms_view){fused + 32, RMS_F32, 0, 48, 0, 0};
  w_expect(w, W_FORWARD, RMS_OK);
}

/* A stride that is never taken, because there is one outer or inner index, hides no overlap. */
static void unused_strides(void) {
  world *w = w_fresh();
  w->forward.residual.data = w->forward.residual_out.data = NULL;
  for (int64_t unused = 1; unused <= 64; unused *= 2) {
    t_context("unused=%d", (int)unused);
    w->forward.outer = 1;
    w->forward.inner = 2;
    w->forward.x = (rms_const_view){w->x, RMS_F32, 0, unused, 8, 0};
    w->forward.y = (rms_view){(float *)w->x + 4, RMS_F32, 0, unused, 8, 0};
    w_expect(w, W_FORWARDS, RMS_E_ALIAS);
    w->forward.outer = 2;
    w->forward.inner = 1;
    w->forward.x = (rms_const_view){w->x, RMS_F32, 0, 8, unused, 0};
    w->forward.y = (rms_view){(float *)w->x + 4, RMS_F32, 0, 8, unused, 0};
    w_expect(w, W_FORWARDS, RMS_E_ALIAS);
    w->forward.x = (rms_const_view){w->x, RMS_F32, 0, 16, unused, 0};
    w->forward.y = (rms_view){(float *)w->x + 8, RMS_F32, 0, 16, unused, 0}; /* in the gap */
    w_expect(w, W_FORWARDS, RMS_OK);
  }
}

/* The functions of the split form write their own arrays too. */
static void split_outputs(void) {
  world *w = w_fresh();
  w->forward.x.data = w->stats;
  w_expect(w, W_STATS, RMS_E_ALIAS);
  w = w_fresh();
  w->backward.dy.data = w->sums;
  w_expect(w, W_BACKWARD_STATS, RMS_E_ALIAS);
  w = w_fresh();
  w->forward.y.data = w->stats;
  w_expect(w, W_APPLY, RMS_E_ALIAS);
  w = w_fresh();
  w->backward.dx.data = w->sums;
  w_expect(w, W_BACKWARD_APPLY, RMS_E_ALIAS);
}

/* The one-line call has a quick way through the checks: every distance of y from x and from the weight. */
static void one_line_call(void) {
  enum { ROWS = 2, COLS = 4, SIZE = ROWS * COLS, PLACES = 3 * SIZE };
  float memory[PLACES + SIZE], before[PLACES + SIZE];
  for (int y = 0; y <= PLACES; y++)
    for (int of_weight = 0; of_weight < 2; of_weight++) {
      int other = SIZE, size = of_weight ? COLS : SIZE;
      float elsewhere[SIZE];
      for (int i = 0; i < PLACES + SIZE; i++)
        before[i] = memory[i] = (float)(i + 1);
      memcpy(elsewhere, memory, sizeof elsewhere);
      const float *x = of_weight ? elsewhere : memory + other, *weight = of_weight ? memory + other : elsewhere;
      int touches = y < other + size && other < y + SIZE, in_place = !of_weight && y == other;
      t_context("y=%d of_weight=%d", y, of_weight);
      T_EQ_STATUS(touches && !in_place ? RMS_E_ALIAS : RMS_OK, rms_norm_f32(memory + y, x, weight, ROWS, COLS, 0));
      if (touches && !in_place) T_EQ_BYTES(before, memory, sizeof memory);
    }
}

/* Channels first: in place, other channels of the same images, and channels that overlap. */
static void elements_apart(void) {
  static float images[2 * 8 * 6]; /* 2 images of 8 channels of 6 pixels, of which a call takes 4 */
  const rms_spec spec = {.cols = 4, .eps = 1};
  for (int channel = 0; channel <= 4; channel++)
    for (int pixel = 0; pixel < 2; pixel++) {
      rms_forward_args args = {.outer = 2, .inner = 6};
      args.x =
          (rms_const_view){.data = images, .dtype = RMS_F32, .outer_stride = 48, .inner_stride = 1, .col_stride = 6};
      args.y = (rms_view){.outer_stride = 48, .inner_stride = 1, .col_stride = 6};
      args.y.data = images + channel * 6 + pixel;
      if (channel == 4 && pixel) continue; /* beyond the images */
      t_context("channel=%d pixel=%d", channel, pixel);
      T_EQ_STATUS((channel == 0 && !pixel) || channel == 4 ? RMS_OK : RMS_E_ALIAS, rms_forward(&spec, &args, NULL));
    }
  rms_forward_args args = {.outer = 2, .inner = 6, .x = {.data = images, .dtype = RMS_F32, .col_stride = 6}};
  args.y.data = images; /* the same memory in another order */
  T_EQ_STATUS(RMS_E_ALIAS, rms_forward(&spec, &args, NULL));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"forward_allowed", forward_allowed},
                                 {"forward_refused", forward_refused},
                                 {"neighbours", neighbours},
                                 {"not_quite_in_place", not_quite_in_place},
                                 {"backward_allowed", backward_allowed},
                                 {"gates", gates},
                                 {"backward_refused", backward_refused},
                                 {"interleaved_slices", interleaved_slices},
                                 {"unused_strides", unused_strides},
                                 {"split_outputs", split_outputs},
                                 {"one_line_call", one_line_call},
                                 {"elements_apart", elements_apart}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
