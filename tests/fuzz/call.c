/* SPDX-License-Identifier: MIT
 * Bytes -> a call, its layout and the values of x: every instruction set must agree with scalar, strictly inside the
 * buffers. A spoiled spec must be refused alike everywhere, with nothing written. */
#include "call.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
  const uint8_t *at, *end;
} reader;

static unsigned byte(reader *r) {
  return r->at < r->end ? *r->at++ : 0;
}

static int64_t word(reader *r) {
  unsigned low = byte(r);
  return (int64_t)(low | byte(r) << 8);
}

static t_call read_call(reader *r) {
  static const double eps[] = {1e-5, 0, 1e-6, 1e-300, 1, 1e30};
  t_call call = {.parts = (unsigned)word(r) & T_EVERYTHING};
  verify_spec *spec = &call.spec;
  unsigned types = byte(r), modes = byte(r);
  spec->cols = 1 + word(r) % 600;
  spec->dtype = (rms_dtype)(RMS_F32 + (types & 3));
  spec->weight_dtype = types & 4 ? spec->dtype : RMS_F32;
  spec->residual_dtype = types & 8 ? spec->dtype : RMS_F32;
  spec->grad_dtype = types & 16 ? spec->dtype : types & 32 ? spec->weight_dtype : RMS_F32;
  spec->weight_per_inner = types >> 6 & 1;
  spec->kind = (rms_kind)(modes & 1);
  spec->rounding = (rms_rounding)(modes >> 1 & 1);
  spec->eps_place = (rms_eps_place)(modes >> 2 & 1);
  spec->weight_offset = modes & 8 ? 1.0 : 0.0;
  call.indexed = modes >> 4 & 1;
  call.accumulate = (int)(modes >> 5);
  spec->eps = eps[byte(r) % T_COUNT(eps)];
  spec->partial = word(r) % (spec->cols + 1);
  spec->groups = byte(r) % 9;
  call.outer = byte(r) % 6;
  call.inner = 1 + byte(r) % 3;
  call.data = (t_data)(byte(r) % T_DATA_COUNT);
  call.seed = (uint64_t)word(r);
  t_call_repair(&call);
  return call;
}

/* What came later: read behind the layout, so that older inputs keep their meaning. */
static void read_more(reader *r, t_call *call) {
  unsigned bits = byte(r);
  call->spec.y_dtype = (rms_dtype)(bits % 5);
  call->spec.gain_rounding = (rms_gain_rounding)(bits >> 4 & 1);
  if (bits & 32) call->parts |= T_NO_Y;
  if (bits & 64) call->weight_gap = byte(r) % 80;
  if (bits & 128) {
    unsigned rounds = byte(r);
    call->spec.steps = (rms_steps)(rounds & 3);
    call->spec.gate_place = RMS_GATE_NONE;
    if (rounds & 4) call->spec.eps_place = RMS_EPS_CLAMP;
  }
  t_call_repair(call);
}

static t_layout read_layout(reader *r) {
  t_layout layout = t_dense;
  unsigned bits = byte(r);
  layout.flush = (t_flush)(bits & 1);
  layout.inner_major = bits >> 1 & 1;
  layout.stream_bytes = bits & 4 ? 0 : INT64_MAX;
  layout.inner_gap = bits & 8 ? byte(r) % 80 : 0;
  layout.outer_gap = bits & 16 ? byte(r) % 80 : 0;
  layout.offset = bits & 32 ? byte(r) % 64 : 0;
  layout.channels_first = bits >> 7 & 1;
  layout.in_place = bits & 64 ? (unsigned)(byte(r) | byte(r) << 8) % 2048 : 0;
  return layout;
}

/* One field made illegal; 0 for most bytes. */
static rms_status spoil(verify_spec *spec, unsigned how) {
  switch (how) {
  case 1:
    spec->cols = -spec->cols;
    return RMS_E_COLS;
  case 2:
    spec->eps = -1;
    return RMS_E_EPS;
  case 3:
    spec->groups = spec->cols + 1;
    return RMS_E_GROUPS;
  case 4:
    spec->weight_offset = 1e308 * 10;
    return RMS_E_MODE;
  case 5:
    spec->kind = (rms_kind)9;
    return RMS_E_KIND;
  case 6:
    spec->rounding = (rms_rounding)9;
    return RMS_E_MODE;
  case 7:
    spec->steps = RMS_STEPS_WIDE; /* some have no partial form at all */
    spec->partial = INT64_MAX;
    return RMS_E_PARTIAL;
  case 8:
    spec->steps = (rms_steps)9;
    return RMS_E_MODE;
  default:
    return RMS_OK;
  }
}

/* The arguments are checked before the first byte is touched: any small buffer will do. */
static void refuse(const t_call *call, unsigned how) {
  static unsigned char buffer[2][1 << 16];
  verify_spec spec = call->spec;
  rms_status expected = spoil(&spec, how);
  if (spec.kind == RMS_KIND_LAYER && how == 7) spec.kind = RMS_KIND_RMS;
  rms_spec called = verify_library_spec(&spec);
  rms_forward_args args = {.outer = call->outer,
                           .inner = call->inner,
                           .x = {.data = buffer[0], .dtype = (int32_t)spec.dtype},
                           .y = {.data = buffer[1]}};
  T_EQ_STATUS(expected, rms_forward(&called, &args, NULL));
  T_EQ_BYTES(buffer[0], buffer[1], sizeof buffer[0]); /* both still zeros */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  reader r = {data, data + size};
  t_call call = read_call(&r);
  t_layout layout = read_layout(&r);
  unsigned how = byte(&r);
  read_more(&r, &call);
  if (how & 0x40) { /* quantised, by the rest of the byte */
    call.parts &= ~(unsigned)T_BACKWARD;
    t_call_quantise(&call, how & 0x3f);
    how = 0;
  }
  call.raw = r.at;
  call.raw_bytes = (size_t)(r.end - r.at);
  t_isas isas = t_usable_isas();
  rms_isa_force("scalar");
  t_result expected = t_run(&call, &t_dense, NULL);
  T_EQ_STATUS(RMS_OK, expected.forward);
  T_EQ_STATUS(RMS_OK, expected.backward);
  for (int i = 0; i < isas.count; i++) {
    rms_isa_force(isas.name[i]);
    t_result actual = t_run(&call, &layout, NULL);
    t_same(&expected, &actual);
    t_result_free(&actual);
    if (how > 0 && how < 9) refuse(&call, how);
  }
  t_result_free(&expected);
  if (t_failures()) abort();
  return 0;
}
