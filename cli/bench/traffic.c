/* SPDX-License-Identifier: MIT */
#include "traffic.h"

static double bytes_of(const verify_tensor *t) {
  return (double)t->outer * (double)t->inner * (double)t->cols * (double)rms_dtype_size(t->dtype);
}

static void add_read(traffic *t, const verify_case *c, verify_role role) {
  t->reads[t->read_count++] = role;
  t->bytes += bytes_of(&c->tensor[role]);
}

static void add_write(traffic *t, const verify_case *c, verify_role role) {
  t->writes[t->write_count++] = role;
  t->bytes += bytes_of(&c->tensor[role]);
}

/* Scale and shift of each row: as much to move as the rows themselves. */
static int has_weights_by_row(const verify_case *c) {
  return c->problem.spec.weight_per_inner && c->problem.outer == 1;
}

static void add_weights(traffic *t, const verify_case *c) {
  if (verify_case_has(c, VERIFY_WEIGHT)) add_read(t, c, VERIFY_WEIGHT);
  if (verify_case_has(c, VERIFY_BIAS)) add_read(t, c, VERIFY_BIAS);
  if (verify_case_has(c, VERIFY_DWEIGHT)) add_write(t, c, VERIFY_DWEIGHT);
  if (verify_case_has(c, VERIFY_DBIAS)) add_write(t, c, VERIFY_DBIAS);
}

traffic traffic_of(const verify_case *c) {
  static const verify_role inputs[] = {VERIFY_DY, VERIFY_X, VERIFY_RESIDUAL, VERIFY_DRESIDUAL, VERIFY_GATE};
  static const verify_role outputs[] = {VERIFY_Y, VERIFY_SUM, VERIFY_DX, VERIFY_DS, VERIFY_DGATE, VERIFY_Q};
  traffic t = {.read_count = 0};
  for (int i = 0; i < 5; i++)
    if (verify_case_has(c, inputs[i])) add_read(&t, c, inputs[i]);
  if (c->problem.accumulate & RMS_ACCUMULATE_DX) add_read(&t, c, VERIFY_DX);
  for (int i = 0; i < 6; i++)
    if (verify_case_has(c, outputs[i])) add_write(&t, c, outputs[i]);
  if (has_weights_by_row(c)) add_weights(&t, c);
  return t;
}
