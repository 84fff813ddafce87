/* SPDX-License-Identifier: MIT
 * Cases: which tensors a problem has, how they lie, and what an allocator is asked for. */
#include "../../verify/case.h"
#include "harness.h"

static int describe(verify_case *c, const char *text) {
  verify_problem problem;
  char message[256];
  t_context("%s", text);
  if (!T_EQ_INT(0, verify_problem_parse(text, &problem, message, sizeof message))) return -1;
  return verify_case_describe(c, &problem);
}

/* The roles of a problem, and nothing else. */
static void has(const char *text, unsigned roles) {
  verify_case c;
  if (!T_EQ_INT(0, describe(&c, text))) return;
  for (int role = 0; role < VERIFY_ROLES; role++)
    T_EQ_INT(roles >> role & 1, c.tensor[role].present);
}

#define R(name) (1u << VERIFY_##name)

static void roles(void) {
  has("rms:fwd:f32:2x8", R(X) | R(WEIGHT) | R(Y));
  has("layer:fwd:bf16:2x8:bias:res:out=y+sum+stats",
      R(X) | R(RESIDUAL) | R(WEIGHT) | R(BIAS) | R(Y) | R(SUM) | R(RSTD) | R(MEAN));
  has("rms:bwd:f32:2x8", R(X) | R(DY) | R(WEIGHT) | R(RSTD) | R(DX) | R(DWEIGHT));
  has("layer:bwd:f32:2x8:w=none:recompute:dres:out=ds", R(X) | R(DY) | R(DRESIDUAL) | R(DS));
  has("prms:bwd:f32:2x8:k=3:idx:split:out=dx",
      R(X) | R(DY) | R(WEIGHT) | R(INDICES) | R(RSTD) | R(DX) | R(STATS) | R(GRAD_SUMS));
}

/* pad=N: N elements between rows, and as many between outer indices that have several rows. */
static void strides(void) {
  verify_case c;
  if (!T_EQ_INT(0, describe(&c, "rms:fwd:f32:3x8:pad=4"))) return;
  T_EQ_INT(12, c.tensor[VERIFY_X].outer_stride);
  T_EQ_INT(3 * 12 * 4, c.tensor[VERIFY_X].bytes);
  T_EQ_INT(8 * 4, c.tensor[VERIFY_WEIGHT].bytes);
  if (!T_EQ_INT(0, describe(&c, "rms:fwd:f64:3x2x8:pad=4:perhead"))) return;
  T_EQ_INT(12, c.tensor[VERIFY_X].inner_stride);
  T_EQ_INT(28, c.tensor[VERIFY_X].outer_stride);
  T_EQ_INT(2 * 8 * 8, c.tensor[VERIFY_WEIGHT].bytes);
  verify_tensor_stride(&c.tensor[VERIFY_Y], 9, 100);
  T_EQ_INT((2 * 9 + 100 + 8) * 8, c.tensor[VERIFY_Y].bytes);
}

static void too_big(void) {
  verify_case c;
  T_EQ_INT(-1, describe(&c, "rms:fwd:f32:4000000000000000x4000"));
  T_EQ_INT(-1, describe(&c, "rms:bwd:f64:4000000000x1000000000"));
}

/* ---- Placing ---- */

typedef struct calls {
  int asked[VERIFY_ROLES];
  verify_role without; /* the role that there is no memory for */
  char memory[VERIFY_ROLES][8];
} calls;

static char *place(void *ctx, const verify_case *c, verify_role role) {
  calls *all = ctx;
  T_CHECK(c->tensor[role].present);
  all->asked[role]++;
  return role == all->without ? NULL : all->memory[role];
}

/* Each tensor is asked for once; what shares memory, and what has memory, is not asked for. */
static void placing(void) {
  static char own[8];
  calls all = {.without = VERIFY_ROLES};
  verify_allocator allocator = {place, &all};
  verify_case c;
  if (!T_EQ_INT(0, describe(&c, "rms:bwd:f32:2x8:inplace"))) return;
  c.tensor[VERIFY_WEIGHT].data = own;
  T_EQ_INT(0, verify_case_place(&c, &allocator));
  T_EQ_INT(0, verify_case_place_workspace(&c, 64, &allocator));
  for (int role = 0; role < VERIFY_ROLES; role++)
    T_EQ_INT(c.tensor[role].present && role != VERIFY_WEIGHT && role != VERIFY_DX, all.asked[role]);
  rms_backward_args args = verify_case_backward_args(&c);
  T_CHECK(args.weight == own && args.dx.data == args.dy.data && args.dy.data == all.memory[VERIFY_DY]);
  T_CHECK(args.x.data == all.memory[VERIFY_X] && args.dweight == all.memory[VERIFY_DWEIGHT] && !args.dbias);
  T_CHECK(args.workspace == all.memory[VERIFY_WORKSPACE] && args.workspace_bytes == 64);
  all.without = VERIFY_DY;
  if (T_EQ_INT(0, describe(&c, "rms:bwd:f32:2x8"))) T_EQ_INT(-1, verify_case_place(&c, &allocator));
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"roles", roles}, {"strides", strides}, {"too_big", too_big}, {"placing", placing}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
