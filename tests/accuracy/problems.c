/* SPDX-License-Identifier: MIT
 * Problem strings: read, written, refused. */
#include <string.h>
#include "harness.h"
#include "problem.h"
#include "suite.h"

static int same(const verify_problem *a, const verify_problem *b) {
  char first[VERIFY_TEXT_MAX], second[VERIFY_TEXT_MAX];
  verify_problem_print(a, first, sizeof first);
  verify_problem_print(b, second, sizeof second);
  return strcmp(first, second) == 0 && a->outer == b->outer && a->inner == b->inner && a->outputs == b->outputs &&
         a->accumulate == b->accumulate && a->seed == b->seed;
}

static void returns_to_itself(const char *text, const char *canonical) {
  verify_problem first = {0}, second = {0};
  char message[256] = "", printed[VERIFY_TEXT_MAX];
  t_context("%s", text);
  if (!T_EQ_INT(0, verify_problem_parse(text, &first, message, sizeof message))) return;
  T_EQ_INT((int)strlen(canonical), verify_problem_print(&first, printed, sizeof printed));
  T_EQ_STR(canonical, printed);
  if (!T_EQ_INT(0, verify_problem_parse(printed, &second, message, sizeof message))) return;
  T_CHECK(same(&first, &second));
}

static void round_trips(void) {
  static const char *const pairs[][2] = {
      {"rms:fwd:f32:8192x4096", "rms:fwd:f32:8192x4096"},
      {"rms:fwd:f32:1x5:w=same:eps=1e-6:seed=1:threads=1:groups=1:pad=0:data=normal", "rms:fwd:f32:1x5"},
      {"layer:bwd:bf16:2x3x4:perhead:bias:acc", "layer:bwd:bf16:2x3x4:bias:perhead:acc=dx+dw+db"},
      {"layer:fwd:f32:7x1x9:perhead", "layer:fwd:f32:7x1x9:perhead"},
      {"prms:fwd:f16:3x100:p=0.07", "prms:fwd:f16:3x100:k=7"},
      {"prms:fwd:f16:3x100:k=100:idx", "prms:fwd:f16:3x100:k=100:idx"},
      {"rms:fwd:f64:1x3:eps=0.1:off=0.30000000000000004:epsout",
       "rms:fwd:f64:1x3:off=0.30000000000000004:eps=0.1:epsout"},
      {"rms:fwd:f16:1x3:steps=all:epsclamp:eps=0.1", "rms:fwd:f16:1x3:eps=0.1:epsclamp:steps=all"},
      {"prms:bwd:f32:1x3:k=2:steps=terms:split", "prms:bwd:f32:1x3:k=2:steps=terms:split"},
      {"rms:bwd:bf16:1x3:steps=rstd:round=before", "rms:bwd:bf16:1x3:round=before:steps=rstd"},
      {"rms:bwd:f16:2x6:w=f32:grad=same:out=dw+dx:recompute:pad=3", "rms:bwd:f16:2x6:w=f32:grad=same:recompute:pad=3"},
      {"rms:bwd:f16:2x6:res=f32:dres:out=ds+dx:acc=dx", "rms:bwd:f16:2x6:res=f32:dres:out=dx+ds:acc=dx"},
      {"rms:bwd:f32:2x6:w=none:out=dx:split:threads=7:isa=avx2", "rms:bwd:f32:2x6:w=none:split:isa=avx2:threads=7"},
      {"rms:fwd:bf16:9x8:y=bf16:gain=weight:off=1", "rms:fwd:bf16:9x8:off=1:gain=weight"},
      {"rms:bwd:f16:9x8:round=before:y=f32:w=f32", "rms:bwd:f16:9x8:w=f32:y=f32:round=before"},
      {"layer:fwd:f32:2x3x8:wstride=8:perhead", "layer:fwd:f32:2x3x8:perhead"},
      {"layer:fwd:f32:2x3x8:wstride=48:perhead:out=stats", "layer:fwd:f32:2x3x8:perhead:wstride=48:out=stats"},
      {"rms:fwd:bf16:9x8:round=before:res:out=y:inplace:seed=77:data=cauchy",
       "rms:fwd:bf16:9x8:res:round=before:out=y:inplace:data=cauchy:seed=77"},
      {"rms:fwd:f32:9223372036854775807x9223372036854775807", "rms:fwd:f32:9223372036854775807x9223372036854775807"},
      {"rms:fwd:f32:0x4", "rms:fwd:f32:0x4"},
      {"rms:fwd:bf16:2x6:gate=after:act=silu", "rms:fwd:bf16:2x6:gate=after"},
      {"rms:bwd:f16:2x6:act=sigmoid:gate=before:out=dx+dw+dz", "rms:bwd:f16:2x6:gate=before:act=sigmoid"},
      {"layer:bwd:f32:2x6:gate=after:bias:out=dz", "layer:bwd:f32:2x6:bias:gate=after:out=dz"},
      {"rms:fwd:bf16:2x64:out=q:qblock=row:q=i8", "rms:fwd:bf16:2x64:q=i8"},
      {"rms:fwd:f16:2x64:q=e4m3:groups=2:qblock=32:res:out=y+q", "rms:fwd:f16:2x64:res:groups=2:q=e4m3:out=y+q"},
      {"rms:fwd:f32:2x64:qblock=16:q=e5m2:qleast=0.25", "rms:fwd:f32:2x64:q=e5m2:qblock=16:qleast=0.25"},
      {"rms:fwd:f32:2x64:q=q8_0:res", "rms:fwd:f32:2x64:res:q=q8_0"},
      {"layer:fwd:f32:2x6:q=i8:qblock=tensor:inplace:out=y+q", "layer:fwd:f32:2x6:q=i8:qblock=tensor:out=y+q:inplace"},
      {"rms:bwd:f32:2x4:dydata=normal", "rms:bwd:f32:2x4"},
      {"rms:bwd:f32:2x4:dydata=exact:data=exact", "rms:bwd:f32:2x4:data=exact"},
      {"layer:bwd:f32:2x4:dydata=max:data=huge", "layer:bwd:f32:2x4:data=huge:dydata=max"},
      {"rms:bwd:f32:2x4:dydata=normal:data=lognormal", "rms:bwd:f32:2x4:data=lognormal:dydata=normal"},
  };
  for (size_t i = 0; i < T_COUNT(pairs); i++)
    returns_to_itself(pairs[i][0], pairs[i][1]);
}

static void suite_round_trips(void) {
  int templates, sizes;
  const verify_template *t = verify_suite_templates(&templates);
  const int64_t *size = verify_suite_sizes(1, &sizes);
  for (int i = 0; i < templates; i++)
    for (int dtype = 0; dtype < 4; dtype++) {
      verify_problem problem, again;
      char text[VERIFY_TEXT_MAX], message[256];
      if (!verify_suite_problem(&t[i], (rms_dtype)dtype, size[i % sizes], &problem)) continue;
      verify_problem_print(&problem, text, sizeof text);
      t_context("%s", text);
      if (!T_EQ_INT(0, verify_problem_parse(text, &again, message, sizeof message))) continue;
      T_CHECK(same(&problem, &again));
    }
}

static void refused(const char *text, const char *reason) {
  verify_problem problem, before;
  char message[512] = "";
  memset(&problem, 0x5a, sizeof problem);
  before = problem;
  t_context("%s", text);
  T_EQ_INT(-1, verify_problem_parse(text, &problem, message, sizeof message));
  T_EQ_STR(reason, message);
  T_EQ_BYTES(&before, &problem, sizeof problem);
}

static void bad_ones(void) {
  refused("", "unknown kind ''; one of: rms, prms, layer");
  refused("layr:fwd:f32:1x1", "unknown kind 'layr'; did you mean 'layer'?");
  refused("rms", "the direction is missing; a problem is KIND:DIR:DTYPE:SHAPE[:OPTION...]");
  refused("rms:fwd:f32", "the shape is missing; a problem is KIND:DIR:DTYPE:SHAPE[:OPTION...]");
  refused("rms:fwdd:f32:1x1", "unknown direction 'fwdd'; did you mean 'fwd'?");
  refused("rms:fwd:fp16:1x1", "unknown data type 'fp16'; did you mean 'f16'?");
  refused("rms:fwd:f32:16", "bad shape '16': need ROWSxCOLS or OUTERxINNERxCOLS");
  refused("rms:fwd:f32:1x2x3x4", "bad shape '1x2x3x4': need ROWSxCOLS or OUTERxINNERxCOLS");
  refused("rms:fwd:f32:1x0", "bad size '0': need a whole number from 1");
  refused("rms:fwd:f32:-1x4", "bad size '-1': need a whole number from 0");
  refused("rms:fwd:f32:1x9223372036854775808", "bad size '9223372036854775808': need a whole number from 1");
  refused("rms:fwd:f32:1x4:bais", "unknown option 'bais'; did you mean 'bias'?");
  refused("rms:fwd:f32:1x4:bias=1", "option 'bias' takes no value");
  refused("rms:fwd:f32:1x4:eps", "option 'eps' needs a value: eps=...");
  refused("rms:fwd:f32:1x4:eps=nan", "bad eps 'nan': need a finite number of at least 0");
  refused("rms:fwd:f32:1x4:eps=-1", "bad eps '-1': need a finite number of at least 0");
  refused("rms:fwd:f32:1x4:w=f16", "unknown weight type 'f16'; did you mean 'f32'?");
  refused("rms:fwd:f32:1x4:k=2", "k=, p= and idx belong to prms");
  refused("prms:fwd:f32:1x4", "prms needs k=K or p=P");
  refused("prms:fwd:f32:1x4:k=5", "k=5 is more than the columns of a group");
  refused("prms:fwd:f32:1x4:k=0", "bad k '0': need a whole number from 1");
  refused("prms:fwd:f32:1x4:p=0", "bad p '0': need 0 < p <= 1");
  refused("prms:fwd:f32:1x4:p=1.5", "bad p '1.5': need 0 < p <= 1");
  refused("prms:fwd:f32:1x4:k=1:p=0.5", "k= and p= contradict each other");
  refused("rms:fwd:f32:1x4:groups=3", "groups=3 does not divide 4 columns");
  refused("rms:fwd:f64:1x4:res=f32", "res=f32 is not offered for f64 data");
  refused("rms:fwd:f32:1x4:out=dx", "out=: dx, ds, dw, db and dz belong to bwd");
  refused("rms:fwd:f32:1x4:res:out=sum", "out=: a forward writes y, q or stats");
  refused("rms:fwd:f32:1x4:out=stats:inplace", "inplace needs the output y");
  refused("rms:fwd:f64:1x4:y=f32", "y=: f64 does not mix with other types");
  refused("rms:fwd:f32:1x4:y=f64", "y=: f64 does not mix with other types");
  refused("rms:fwd:f32:1x4:y=f12", "unknown type of y 'f12'; did you mean 'f32'?");
  refused("rms:fwd:bf16:1x4:y=f32:inplace", "inplace needs a y whose elements have the size of those of x");
  refused("rms:bwd:bf16:1x4:y=f32:res=f32", "y= and res=f32 contradict each other in bwd");
  refused("rms:bwd:f32:1x4:y=bf16:out=dw",
          "y= beside an f32 x needs the output dx, which says that x is no residual sum");
  refused("rms:fwd:f32:1x4:gain=wide", "unknown rounding of the gain 'wide'; one of: weight");
  refused("rms:fwd:f32:1x2x4:wstride=8", "wstride= needs perhead");
  refused("rms:fwd:f32:1x2x4:perhead:wstride=3", "wstride=3 is less than the columns");
  refused("rms:fwd:f32:1x4:out=y+sum", "out=sum needs res");
  refused("rms:fwd:f32:1x4:dres", "dres, recompute, acc and grad belong to bwd");
  refused("rms:fwd:f32:1x4:dydata=max", "dydata and of belong to bwd");
  refused("rms:fwd:f32:1x4:of=y", "dydata and of belong to bwd");
  refused("rms:bwd:f32:1x4:of=dx", "of= takes y and stats only");
  refused("rms:bwd:f32:1x4:of=stats:split", "of=stats excludes split, steps=rstd and steps=all");
  refused("rms:bwd:bf16:1x4:of=y+stats:steps=all", "of=stats excludes split, steps=rstd and steps=all");
  refused("rms:bwd:f32:1x4:of=stats:inplace", "of=stats has no dy: inplace and dydata= do not belong there");
  refused("rms:bwd:f32:1x4:of=stats:dydata=max", "of=stats has no dy: inplace and dydata= do not belong there");
  refused("rms:bwd:f32:1x4:dydata=hug", "unknown data of dy 'hug'; did you mean 'huge'?");
  refused("rms:bwd:f32:1x4:out=y", "out=: y, sum and stats belong to fwd");
  refused("rms:bwd:f32:1x4:out=dx:acc=dw", "acc= names an output that out= does not have");
  refused("rms:bwd:f32:1x4:acc=ds", "acc= takes dx, dw and db only");
  refused("rms:bwd:f32:1x4:acc:inplace", "inplace and acc of dx contradict each other");
  refused("rms:fwd:f32:1x4:gate=behind", "unknown place of the gate 'behind'; one of: after, before");
  refused("rms:fwd:f32:1x4:gate=after:act=swish", "unknown activation 'swish'; one of: silu, sigmoid");
  refused("rms:fwd:f32:1x4:act=silu", "act= needs gate=");
  refused("rms:bwd:f32:1x4:out=dx+dz", "out=dz needs gate=");
  refused("rms:bwd:f32:1x4:threads=0", "bad threads '0': need a whole number from 1 within its range");
  refused("rms:bwd:f32:1x4:",
          "unknown option ''; one of: w, bias, off, eps, epsout, round, groups, k, p, idx, res, dres, "
          "perhead, recompute, acc, out, grad, pad, inplace, split, data, dydata, seed, isa, threads, gate, act, "
          "y, gain, wstride, channels, q, qblock, qleast, epsclamp, steps, of");
}

static void bad_steps(void) {
  refused("rms:fwd:bf16:1x4:steps=every", "unknown steps 'every'; one of: terms, rstd, all");
  refused("rms:fwd:bf16:1x4:steps=all:gate=after", "steps= and gate= exclude each other");
  refused("layer:bwd:bf16:1x4:steps=terms", "a LayerNorm has steps=all alone, with eps under the root");
  refused("layer:bwd:bf16:1x4:steps=rstd", "a LayerNorm has steps=all alone, with eps under the root");
  refused("layer:fwd:bf16:1x4:steps=all:epsout", "a LayerNorm has steps=all alone, with eps under the root");
  refused("layer:fwd:bf16:1x4:steps=all:epsclamp", "a LayerNorm has steps=all alone, with eps under the root");
  refused("rms:fwd:bf16:1x4:steps=rstd:epsout", "steps=rstd needs eps under the root");
  refused("rms:fwd:bf16:1x4:steps=rstd:epsclamp", "steps=rstd needs eps under the root");
  refused("prms:fwd:bf16:1x4:k=2:steps=all", "steps=rstd and steps=all have no partial and no split form");
  refused("rms:fwd:bf16:1x4:split:steps=rstd", "steps=rstd and steps=all have no partial and no split form");
}

static void bad_quantised(void) {
  refused("rms:fwd:f32:1x64:q=i4", "unknown quantised type 'i4'; did you mean 'i8'?");
  refused("rms:fwd:f32:1x64:qblock=8", "qblock= and qleast= need q=");
  refused("rms:fwd:f32:1x64:qleast=1", "qblock= and qleast= need q=");
  refused("rms:fwd:f64:1x64:q=i8", "q= belongs to fwd, without split, not of f64");
  refused("rms:bwd:f32:1x64:q=i8", "q= belongs to fwd, without split, not of f64");
  refused("rms:fwd:f32:1x64:q=i8:split", "q= belongs to fwd, without split, not of f64");
  refused("rms:fwd:f32:1x64:q=q8_0:qblock=32", "q8_0 has blocks of its own: qblock= does not belong there");
  refused("rms:fwd:f32:1x96:q=q8_0:groups=2", "q8_0 needs groups of whole blocks of 32 columns");
  refused("rms:fwd:f32:1x64:q=i8:qblock=24", "qblock=24 does not divide the columns of a group");
  refused("rms:fwd:f32:1x64:q=i8:qblock=0", "bad qblock (row, tensor or elements) '0': need a whole number from 1");
  refused("rms:fwd:f32:1x64:q=i8:qleast=1e39", "qleast= is beyond the range of f32");
  refused("rms:fwd:f32:1x64:q=i8:out=y", "q= and the output q need each other");
  refused("rms:fwd:f32:1x64:out=y+q", "q= and the output q need each other");
}

static void message_is_one_line(void) {
  refused("rms\n:fwd", "unknown kind 'rms?'; did you mean 'rms'?");
  refused("rms:fwd:f32:1x4:\x1b[2J\xff",
          "unknown option '?[2J?'; one of: w, bias, off, eps, epsout, round, groups, k, p, idx, "
          "res, dres, perhead, recompute, acc, out, grad, pad, inplace, split, data, dydata, "
          "seed, isa, threads, gate, act, y, gain, wstride, channels, q, qblock, qleast, epsclamp, steps, of");
}

static void overlong(void) {
  char text[2 * VERIFY_TEXT_MAX];
  memset(text, 'a', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  refused(text, "the problem string is too long");
}

static const t_case cases[] = {{"round_trips", round_trips},
                               {"suite_round_trips", suite_round_trips},
                               {"bad_ones", bad_ones},
                               {"bad_steps", bad_steps},
                               {"bad_quantised", bad_quantised},
                               {"message_is_one_line", message_is_one_line},
                               {"overlong", overlong}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
