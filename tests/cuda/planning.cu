/* SPDX-License-Identifier: MIT
 *
 * What the library decides before it launches anything, on devices that are only described: which code a chip runs, and
 * how much workspace a call takes. Needs no GPU. */
#include <cstdio>
#include <initializer_list>
#include "../../src/cuda/call.h"
#include "rmsnorm_cuda.h"

using namespace rms_cuda;

static int failures;

static void expect(bool ok, const char *what) {
  if (!ok) printf("FAILED %s\n", what);
  failures += !ok;
}

/* ---- code ---- */

/* The rule by which a driver chooses from a build: machine code for the same major version and at most the same minor
 * one, the newest of it; otherwise the newest virtual architecture that is not above the device, which it compiles. */
struct Build {
  std::initializer_list<int> machine, ptx;
};

static Code chosen(const Build &build, int capability) {
  Code code = {0, 0};
  for (int machine : build.machine)
    if (machine / 10 == capability / 10 && machine <= capability && machine > code.binary) code = {machine, machine};
  if (code.binary) return code;
  for (int virtual_architecture : build.ptx)
    if (virtual_architecture <= capability && virtual_architecture > code.virtual_architecture)
      code = {virtual_architecture, capability};
  return code;
}

static void test_code() {
  const Build usual = {{80, 90}, {90}}, old_and_new = {{80, 100}, {80, 100}}, old_ptx = {{90}, {80}},
              only_80 = {{80}, {80}}, only_90 = {{90}, {}}, new_only = {{100}, {100}},
              most = {{80, 86, 89, 90, 100, 120}, {120}};
  const struct {
    const Build *build;
    int capability;
    bool runs, hopper;
  } cases[] = {
      {&usual, 80, true, false},       {&usual, 86, true, false},       {&usual, 90, true, true},
      {&usual, 100, true, true},       {&usual, 120, true, true},       {&usual, 75, false, false},
      {&old_and_new, 80, true, false}, {&old_and_new, 90, true, false}, /* the PTX of 80: its waits are empty */
      {&old_and_new, 100, true, true}, {&old_and_new, 120, true, true}, {&old_ptx, 90, true, true},
      {&old_ptx, 100, true, false},    {&only_80, 90, true, false},     {&only_80, 89, true, false},
      {&only_90, 90, true, true},      {&only_90, 100, false, false},   {&only_90, 80, false, false},
      {&new_only, 90, false, false},   {&new_only, 100, true, true},    {&most, 89, true, false},
      {&most, 90, true, true},         {&most, 100, true, true}};
  for (const auto &c : cases) {
    const Code code = chosen(*c.build, c.capability);
    char what[80];
    snprintf(what, sizeof what, "code %d/%d on a device of %d", code.virtual_architecture, code.binary, c.capability);
    expect(can_run(code, c.capability) == c.runs, what);
    expect(has_hopper_code(code, c.capability) == c.hopper, what);
  }
  /* compiled as virtual 80 for the machine code of 90 */
  expect(can_run({80, 90}, 90) && !has_hopper_code({80, 90}, 90), "machine code for 90 of an older source");
}

/* ---- workspace ---- */

static void *at(int i) {
  return reinterpret_cast<void *>((uintptr_t)1 << 40 | (uintptr_t)i << 32);
}

static rms_backward_args backward(int64_t outer, int64_t inner) {
  rms_backward_args args = {};
  args.outer = outer;
  args.inner = inner;
  args.x = {at(1), RMS_BF16, 0, 0, 0, 0};
  args.dy.data = at(2);
  args.dx.data = at(3);
  args.weight = at(4);
  args.rstd = at(5);
  args.dweight = at(6);
  return args;
}

static void test_workspace(const Device &device) {
  rms_spec spec = {};
  spec.cols = 4096;
  spec.eps = 1e-6;
  rms_backward_args args = backward(8192, 1);
  const size_t usual = backward_workspace(device, &spec, &args);
  expect(usual > 0 && usual < (size_t)64 << 20, "workspace of a usual call");
  args.dweight = nullptr;
  expect(backward_workspace(device, &spec, &args) == 0, "no workspace without dweight and dbias");
  args.dweight = at(6), args.dbias = at(7);
  expect(backward_workspace(device, &spec, &args) > usual, "dbias takes more");
  args = backward(0, 1);
  expect(backward_workspace(device, &spec, &args) == 0, "no workspace without rows");
  args = backward(8192, 1);
  args.x.data = static_cast<char *>(at(1)) + 2;
  expect(backward_workspace(device, &spec, &args) > 0, "workspace of rows that are not aligned");
  spec.steps = RMS_STEPS_ALL;
  expect(backward_workspace(device, &spec, &args) > 0, "workspace of a form that rounds at every step");
  args.x.col_stride = args.dy.col_stride = args.dx.col_stride = 64, args.inner = 64;
  expect(backward_workspace(device, &spec, &args) > 0, "and of rows whose elements lie apart");
  spec.steps = RMS_STEPS_WIDE;
  args = backward(-1, 1);
  expect(backward_workspace(device, &spec, &args) == 0, "no workspace for a call that is refused");

  /* sizes whose products leave 64 bits */
  const int64_t sizes[] = {
      1,        3, 1 << 16, (int64_t)1 << 31, (int64_t)1 << 32, (int64_t)1 << 48, (int64_t)1 << 60, (int64_t)1 << 62,
      INT64_MAX};
  for (int64_t outer : sizes)
    for (int64_t inner : sizes)
      for (int64_t cols : sizes)
        for (int64_t groups : {(int64_t)0, (int64_t)4, cols})
          for (int options = 0; options < 32; options++) {
            spec.cols = cols;
            spec.groups = groups;
            spec.weight_per_inner = options & 1;
            spec.kind = options & 2 ? RMS_KIND_LAYER : RMS_KIND_RMS;
            spec.steps = options & 16 ? RMS_STEPS_ALL : RMS_STEPS_WIDE;
            args = backward(outer, inner);
            if (options & 4) args.x.dtype = RMS_F64;
            if (options & 8) args.rstd = nullptr, args.x.data = static_cast<char *>(at(1)) + 1;
            if (spec.kind == RMS_KIND_LAYER && args.rstd) args.mean = at(8);
            const size_t bytes = backward_workspace(device, &spec, &args);
            /* the column sums of every block of a device, or of every few hundred rows, and the scalars of every row */
            const double rows = (double)outer * (double)inner, heads = options & 1 ? (double)inner : 1;
            const double most = 16.0 * 4096 * (double)cols * heads + rows * (double)cols / 16 +
                                64.0 * rows * (double)(groups ? groups : 1) + 1e6;
            if (bytes > 0) expect((double)bytes < most, "workspace within reason");
          }
}

/* ---- who shares rows ---- */

static BackwardPlan plan_of(const Device &device, bool layer, int columns, int64_t rows) {
  return plan_backward(device, {Form::COMMON, layer, false, 2, columns / 8, rows, 1, false, false});
}

/* Where there are many rows, plans leave SMs free: a call may not take twice as long because one of them is busy with
 * another call. No more blocks work on rows within a block than that, in clusters or not. */
static void test_sharing(const Device &device) {
  for (bool layer : {false, true})
    for (int columns : {64, 128, 256, 512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 14336, 16384, 32768,
                        65536, 131072}) {
      const BackwardPlan plan = plan_of(device, layer, columns, ((int64_t)1 << 28) / columns);
      const int64_t blocks = plan.shares * plan.cluster / (plan.role == Role::WARP ? 2 : 1);
      const bool common =
          !layer && columns >= 512 && columns <= 16384 && (columns < 6144 || columns > 7168) && columns != 14336;
      char what[80];
      snprintf(what, sizeof what, "%s of %d columns leaves SMs free", layer ? "LayerNorm" : "RMSNorm", columns);
      /* the launch lowers the shares of larger clusters to what fits the device beside each other */
      expect(plan.cluster > 2 || blocks <= device.multiprocessors - (common ? 4 : 2), what);
      expect((plan.cluster > 1) == (columns > 8192), "clusters are for rows that do not fit a block");
    }
  expect(plan_of(device, false, 4096, 1024).shares == 128, "few rows are shared out to all SMs");
  const BackwardPlan wide = plan_of(device, false, 65536, 2048), paired = plan_of(device, false, 131072, 1024),
                     layer = plan_of(device, true, 65536, 2048);
  expect(wide.team == wide.threads && wide.cluster == 8, "one team where the memory is waited for");
  expect(2 * paired.team == paired.threads && paired.cluster == 16, "two where other blocks are");
  expect(2 * layer.team == layer.threads, "and with two sums");
  expect(paired.shared <= (size_t)device.shared_per_block && layer.shared <= (size_t)device.shared_per_block,
         "shared memory of two teams");
}

int main() {
  test_code();
  test_sharing({132, 232448, true, 0, true});
  const Device h200 = {132, 232448, true}, a100 = {108, 166912, false}, jit = {132, 232448, false};
  for (const Device &device : {h200, a100, jit})
    test_workspace(device);
  printf(failures ? "%d failures\n" : "ok\n", failures);
  return failures ? 1 : 0;
}
