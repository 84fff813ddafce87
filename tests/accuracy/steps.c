/* SPDX-License-Identifier: MIT
 *
 * The forms that round at other steps (rms_steps) against their reference, verify/stepwise.h, and the reference against
 * wrong forms, which it must tell. */
#include <stdio.h>
#include "call.h"
#include "run.h"

static const char *const forms[] = {"steps=rstd",          "steps=all",
                                    "steps=all:epsout",    "steps=all:epsclamp:eps=1",
                                    "steps=terms",         "steps=terms:epsclamp:eps=1",
                                    "epsclamp:eps=1",      "layer:steps=all",
                                    "layer:epsclamp:eps=1"};
static const char *const types[] = {"bf16", "f16"};

/* "layer:..." among the forms is one of LayerNorm. */
static void problem_text(char *text, size_t size, const char *form, const char *direction, const char *type,
                         int64_t cols, const char *more) {
  const int layer = form[0] == 'l';
  snprintf(text, size, "%s:%s:%s:9x%lld:%s%s", layer ? "layer" : "rms", direction, type, (long long)cols,
           layer ? form + 6 : form, more);
}

/* On one instruction set after the other. */
static verify_result run(const char *text, const verify_backend *backend) {
  static int64_t number;
  const t_isas isas = t_usable_isas();
  verify_problem problem;
  verify_result result = {.failed = 1};
  char message[256];
  t_context("%s", text);
  if (!T_EQ_INT(0, verify_problem_parse(text, &problem, message, sizeof message))) return result;
  snprintf(problem.isa, sizeof problem.isa, "%s", isas.name[number++ % isas.count]);
  verify_run(&problem, backend, &result);
  return result;
}

static void right(void) {
  static const char *const more[][2] = {{":out=y+stats", ":bias"},
                                        {":data=lognormal:w=f32:bias", ":data=lognormal:recompute:w=f32"},
                                        {":data=huge:w=none", ":data=huge:w=none"},
                                        {":data=tiny:out=y+stats", ":data=tiny:res:dres:acc:recompute"},
                                        {":data=max:inplace", ":data=steps:inplace"},
                                        {":data=zerorows:res:y=f32", ":data=nanrows:y=f32"}};
  static const int64_t cols[] = {1, 2, 7, 64, 65, 300};
  for (size_t f = 0; f < T_COUNT(forms); f++)
    for (size_t m = 0; m < T_COUNT(more); m++)
      for (size_t c = 0; c < T_COUNT(cols); c++)
        for (int backward = 0; backward < 2; backward++)
          for (size_t t = 0; t < T_COUNT(types); t++) {
            char text[160];
            problem_text(text, sizeof text, forms[f], backward ? "bwd" : "fwd", types[t], cols[c], more[m][backward]);
            verify_result result = run(text, verify_backend_cpu());
            T_CHECK(!result.refused);
            if (!T_CHECK(!result.failed)) fprintf(stderr, "    %s\n", result.message);
          }
}

/* Sums of more than two portions. */
static void long_rows(void) {
  static const char *const texts[] = {
      "rms:fwd:bf16:1x40000:steps=all:out=y+stats",    "layer:fwd:f16:1x40000:steps=all:out=y+stats",
      "rms:bwd:bf16:1x40000:steps=all:epsclamp:eps=2", "layer:bwd:bf16:1x40000:steps=all:bias",
      "rms:bwd:f16:1x40000:steps=rstd:data=exact",     "rms:bwd:f16:1x40000:steps=terms"};
  for (size_t i = 0; i < T_COUNT(texts); i++) {
    verify_result result = run(texts[i], verify_backend_cpu());
    if (!T_CHECK(!result.failed)) fprintf(stderr, "    %s\n", result.message);
  }
}

/* ---- Wrong forms ---- */

static void (*wrong)(rms_spec *spec);

static rms_status wrong_forward(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                                const rms_forward_args *args) {
  rms_spec other = *spec;
  (void)self, (void)memory;
  wrong(&other);
  return rms_forward(&other, args, NULL);
}

static rms_status wrong_backward(const verify_backend *self, const verify_memory *memory, const rms_spec *spec,
                                 const rms_backward_args *args) {
  rms_spec other = *spec;
  (void)self, (void)memory;
  wrong(&other);
  return rms_backward(&other, args, NULL);
}

static void none(rms_spec *spec) {
  spec->steps = RMS_STEPS_WIDE;
  spec->rounding = RMS_ROUND_BEFORE_WEIGHT;
}
static void all_of_them(rms_spec *spec) {
  spec->steps = RMS_STEPS_ALL;
}
static void of_r_alone(rms_spec *spec) {
  spec->steps = RMS_STEPS_RSTD;
}
static void of_terms_alone(rms_spec *spec) {
  spec->steps = RMS_STEPS_TERMS;
  spec->rounding = RMS_ROUND_BEFORE_WEIGHT;
}
static void outside(rms_spec *spec) {
  spec->eps_place = RMS_EPS_OUTSIDE;
}
static void inside(rms_spec *spec) {
  spec->eps_place = RMS_EPS_INSIDE;
}
static void half_eps(rms_spec *spec) {
  spec->eps /= 2;
}

static void told(void) {
  static const struct {
    const char *form;
    void (*wrong)(rms_spec *spec);
    int in_forward; /* or in the gradient alone */
  } cases[] = {{"steps=rstd", none, 1},
               {"steps=rstd", all_of_them, 1},
               {"steps=all", none, 1},
               {"steps=all", of_r_alone, 1},
               {"steps=all", of_terms_alone, 1},
               {"steps=all:epsout:eps=0.1", none, 1},
               {"steps=all:epsout:eps=0.1", inside, 1},
               {"steps=all:epsclamp:eps=0.1", none, 1},
               {"steps=all:epsclamp:eps=1", outside, 1},
               {"layer:steps=all", none, 1},
               {"steps=terms", none, 0},
               {"steps=terms", of_r_alone, 0},
               {"epsclamp:eps=1", outside, 1},
               {"epsclamp:eps=1", inside, 1},
               {"epsclamp:eps=2", half_eps, 1},
               {"steps=all:epsclamp:eps=2", half_eps, 1}};
  verify_backend backend = *verify_backend_cpu();
  backend.forward = wrong_forward;
  backend.backward = wrong_backward;
  for (size_t i = 0; i < T_COUNT(cases); i++)
    for (int backward = !cases[i].in_forward; backward < 2; backward++)
      for (size_t t = 0; t < T_COUNT(types); t++) {
        char text[160];
        wrong = cases[i].wrong;
        problem_text(text, sizeof text, cases[i].form, backward ? "bwd" : "fwd", types[t], 300,
                     backward ? ":out=dx" : ":w=none");
        T_EQ_INT(1, run(text, &backend).failed);
      }
}

/* ---- Bits ---- */

static t_call call_of(const char *form, rms_dtype dtype, int64_t cols) {
  verify_problem problem;
  char text[160], message[256];
  t_call call = {.outer = 9, .inner = 1, .parts = T_EVERYTHING, .seed = 5};
  problem_text(text, sizeof text, form, "bwd", verify_dtype_name(dtype), cols, "");
  T_EQ_INT(0, verify_problem_parse(text, &problem, message, sizeof message));
  call.spec = problem.spec;
  return call;
}

static int same_gradient(const t_result *one, const t_result *two) {
  int same = 1;
  for (int out = T_OUT_DX; out <= T_OUT_DBIAS; out++)
    same &= t_same_part(one, two, (t_out)out, 0);
  return same;
}

/* A gradient is the same whether it is given the forward's statistics or takes them again; whatever it is given, where
 * every step is rounded. */
static void given_or_not(void) {
  static const int64_t cols[] = {1, 17, 64, 130, 1000};
  const t_isas isas = t_usable_isas();
  for (size_t f = 0; f < T_COUNT(forms); f++)
    for (size_t c = 0; c < T_COUNT(cols); c++)
      for (int dtype = RMS_BF16; dtype <= RMS_F16; dtype++) {
        T_EQ_STATUS(RMS_OK, rms_isa_force(isas.name[(f + c) % (size_t)isas.count]));
        t_call call = call_of(forms[f], (rms_dtype)dtype, cols[c]);
        t_result given = t_run(&call, &t_dense, NULL);
        call.parts &= ~(unsigned)T_SAVE_STATS;
        t_result again = t_run(&call, &t_dense, NULL);
        T_EQ_STATUS(RMS_OK, given.backward);
        same_gradient(&given, &again);
        t_result_free(&given);
        t_result_free(&again);
      }
}

/* Wherever the rows lie, and whatever output takes the memory of an input. */
static void anywhere(void) {
  static const unsigned in_place[] = {0,
                                      T_Y_IN_X,
                                      T_Y_IN_RESIDUAL,
                                      T_SUM_IN_X,
                                      T_DX_IN_DY,
                                      T_DX_IN_X,
                                      T_SUM_IN_RESIDUAL | T_DX_IN_DY | T_DRESIDUAL_IN_PLACE};
  for (size_t f = 0; f < T_COUNT(forms); f++)
    for (size_t p = 0; p < T_COUNT(in_place); p++)
      for (int channels = 0; channels < 2; channels++)
        for (int dtype = RMS_BF16; dtype <= RMS_F16; dtype++) {
          t_call call = call_of(forms[f], (rms_dtype)dtype, 77);
          t_layout layout = {.in_place = in_place[p], .channels_first = channels, .inner_gap = 3};
          call.inner = 5;
          t_result dense = t_run(&call, &t_dense, NULL), other = t_run(&call, &layout, NULL);
          T_EQ_STATUS(RMS_OK, dense.backward);
          t_same(&dense, &other);
          t_result_free(&dense);
          t_result_free(&other);
        }
}

/* f32 and f64 have no steps to round. */
static void as_wide(void) {
  for (size_t f = 0; f < T_COUNT(forms); f++)
    for (int dtype = RMS_F32; dtype <= RMS_F64; dtype++) {
      t_call call = call_of(forms[f], (rms_dtype)dtype, 300);
      t_result steps = t_run(&call, &t_dense, NULL);
      call.spec.steps = RMS_STEPS_WIDE;
      t_result wide = t_run(&call, &t_dense, NULL);
      T_EQ_STATUS(RMS_OK, steps.backward);
      t_same(&wide, &steps);
      t_result_free(&steps);
      t_result_free(&wide);
    }
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"right", right},       {"long_rows", long_rows},
                                 {"told", told},         {"given_or_not", given_or_not},
                                 {"anywhere", anywhere}, {"as_wide", as_wide}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
