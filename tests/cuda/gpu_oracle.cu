/* SPDX-License-Identifier: MIT
 *
 * Every operation on a GPU against the oracle. */
#include <cstdio>
#include <cstdlib>
#include "gpu.h"
extern "C" {
#include "random.h"
#include "suite.h"
}

static void run_problem(const verify_backend *backend, const verify_problem &problem) {
  verify_result result;
  char text[VERIFY_TEXT_MAX];
  if (!is_mine()) return;
  bool ok = verify_run(&problem, backend, &result) == 1;
  if (result.refused) return;
  verify_problem_print(&problem, text, sizeof text);
  expect(ok, std::string(text) + ": " + result.message);
}

static void run_text(const verify_backend *backend, const std::string &text) {
  verify_problem problem;
  char message[256];
  if (verify_problem_parse(text.c_str(), &problem, message, sizeof message)) {
    expect(false, text + ": " + message);
    return;
  }
  run_problem(backend, problem);
}

void test_matrix(const verify_backend *backend, Extent extent) {
  const bool small = extent == SMALL;
  int templates, sizes;
  const verify_template *t = verify_suite_templates(&templates);
  const int64_t *size = verify_suite_sizes(extent == FULL, &sizes);
  for (int i = 0; i < templates; i++)
    for (int dtype = RMS_F32; dtype <= RMS_F16; dtype++)
      for (int s = 0; s < sizes; s++) {
        verify_problem problem;
        if (small && s % 2 == 0) continue;
        if (verify_suite_problem(&t[i], (rms_dtype)dtype, size[s], &problem)) run_problem(backend, problem);
      }
}

/* Widths on both sides of every change of kernel, and very wide ones. */
void test_widths(const verify_backend *backend, Extent extent) {
  const char *types[] = {"f32", "bf16", "f16"};
  const int64_t widths[] = {8, 16, 56, 72, 136, 256, 264, 504, 512, 520, 768, 1024, 1032, 2048, 2560, 5120, 6144, 8192,
                            8200, 12288, 16384, 16392, 20480, 32768, 32776, 49152, 57352, 65536, 65544, 100000, 131072,
                            131080, 200000, 262144, 300000, 1048576, 1048577,
                            /* rows that are not aligned */
                            9, 17, 127, 257, 511, 1023, 4095, 4097, 8191, 8195, 16381, 16387, 32771, 65531, 65537,
                            131069};
  const char *problems[] = {"rms:fwd:%s:2x%s:out=y+stats",
                            "layer:fwd:%s:2x%s:bias:w=f32",
                            "layer:fwd:%s:3x%s:bias:out=y+stats",
                            "rms:bwd:%s:3x%s",
                            "layer:bwd:%s:3x%s:bias:recompute",
                            "rms:fwd:%s:2x%s:res",
                            "rms:bwd:%s:3x%s:res:dres:pad=8",
                            "prms:bwd:%s:2x%s:p=0.3:recompute",
                            "rms:fwd:%s:3x%s:round=before:bias",
                            "prms:fwd:%s:2x%s:p=0.3:epsout:w=none",
                            "rms:fwd:%s:2x3x%s:perhead:pad=8:off=1",
                            "layer:fwd:%s:2x%s:groups=8:w=f32:res",
                            "layer:bwd:%s:3x%s:bias",
                            "rms:bwd:%s:3x%s:round=before",
                            "rms:fwd:%s:2x%s:res:inplace",
                            "rms:fwd:%s:3x%s:gate=after:round=before",
                            "layer:fwd:%s:3x%s:gate=after:act=sigmoid:bias:w=f32:inplace",
                            "rms:fwd:%s:3x%s:gate=before:out=y+stats",
                            "rms:fwd:%s:2x%s:gate=before:res:inplace",
                            "rms:fwd:%s:2x%s:gate=after:res=f32",
                            "rms:bwd:%s:3x%s:gate=after:bias",
                            "layer:bwd:%s:3x%s:gate=after:round=before:recompute:inplace",
                            "rms:bwd:%s:3x%s:gate=before:act=sigmoid",
                            "rms:bwd:%s:3x%s:gate=before:res=f32:dres:recompute"};
  for (const char *type : types)
    for (int64_t width : widths)
      for (const char *problem : problems) {
        char text[256];
        if (strstr(problem, "groups=8") && width % 8 != 0) continue;
        if (strstr(problem, "res=f32") && strcmp(type, "f32") == 0) continue;
        if (width > 300000 && (problem != problems[0] && problem != problems[2])) continue;
        if (extent != FULL && (width > 132000 || (strcmp(type, "bf16") != 0 && width % 100 != 20))) continue;
        snprintf(text, sizeof text, problem, type, std::to_string(width).c_str());
        run_text(backend, text);
      }
  for (const char *type : {"f32", "bf16", "f16", "f64"})
    for (const char *rest : {"rms:bwd:%s:3000x24:bias",
                             "rms:bwd:%s:9000x128",
                             "layer:bwd:%s:2000x512:bias",
                             "rms:bwd:%s:700000x2:grad=f32",
                             "rms:bwd:%s:700x4x64:perhead:bias",
                             "rms:bwd:%s:900x1536:groups=3",
                             "rms:bwd:%s:3000x1024:pad=8",
                             "layer:bwd:%s:1400x2048:bias:pad=3",
                             "layer:bwd:%s:3000x1024:bias",
                             "rms:bwd:%s:3000x1024:round=before",
                             "rms:bwd:%s:9000x128:round=before:w=f32",
                             "rms:bwd:%s:9000x127",
                             "layer:bwd:%s:3000x1021:bias",
                             "rms:bwd:%s:3000x1021:res:dres",
                             "rms:bwd:%s:700x4x61:perhead:bias:acc",
                             "rms:bwd:%s:700x4x64:pad=16:round=before",
                             "rms:bwd:%s:9000x128:gate=after:round=before",
                             "rms:bwd:%s:900x1536:groups=3:gate=before",
                             "rms:bwd:%s:700x4x64:perhead:gate=after",
                             "layer:bwd:%s:9000x128:gate=after",
                             "layer:bwd:%s:3000x1024:bias:gate=before",
                             "rms:bwd:%s:700x4x61:perhead:bias:gate=after",
                             "layer:bwd:%s:3000x1021:bias:gate=before",
                             "rms:bwd:%s:40x70000:gate=after",
                             "rms:bwd:%s:900x1021:gate=before:round=before:inplace",
                             "rms:bwd:%s:900x1021:gate=after:recompute",
                             "rms:bwd:%s:300x16385",
                             "rms:bwd:%s:500x4096",
                             "layer:bwd:%s:500x2050:bias"}) {
      char text[256];
      snprintf(text, sizeof text, rest, type);
      run_text(backend, text);
    }
  if (extent == FULL) { /* so many rows that the partial sums are f64 */
    run_text(backend, "rms:bwd:bf16:3300000x2");
    run_text(backend, "layer:bwd:bf16:7000x8192:bias");
  }
}

/* Rows of more than a portion, of one panel and of several in a block, more of them than clusters, with rows of zeros,
 * of NaN and out of range among them. */
void test_wide(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:fwd:%s:%s:out=y+stats",
                         "layer:fwd:%s:%s:bias:out=y+stats",
                         "rms:bwd:%s:%s",
                         "layer:bwd:%s:%s:bias",
                         "layer:bwd:%s:%s",
                         "rms:fwd:%s:%s:off=1:inplace",
                         "rms:bwd:%s:%s:w=f32:off=1",
                         "rms:bwd:%s:%s:split"};
  const char *rows[] = {"", ":data=mixed", ":data=zerorows", ":data=nanrows", ":data=tiny", ":dydata=zerorows"};
  for (const char *type : {"bf16", "f32", "f16"})
    for (const char *size : {"3x140000", "2x540000", "19x131080", "130x135176", "9x300000", "2x524288", "2x1048576"})
      for (const char *form : forms)
        for (const char *row : rows) {
          char text[256];
          const bool first = strcmp(size, "3x140000") == 0 || strcmp(size, "2x540000") == 0;
          const bool mixed = strcmp(row, ":data=mixed") == 0;
          if (extent == SMALL && (type[0] != 'b' || !first || !mixed)) continue;
          if (extent == QUICK && (size[0] == '2' || size[1] == '3') && (row[0] || type[0] != 'b')) continue;
          if (strncmp(size, "130x", 4) == 0 && !mixed) continue; /* the oracle takes half a minute for each of them */
          if (type[0] != 'b' && row[0] && !mixed) continue;      /* kinds of rows are told alike in every type */
          if (strstr(row, "dydata") && !strstr(form, "bwd")) continue;
          snprintf(text, sizeof text, form, type, size);
          run_text(backend, std::string(text) + row);
        }
}

/* ---- the ends of the range ---- */

/* Rows whose r, u or sums leave the range of the type, by every kind of kernel: short rows, one block, clusters, rows
 * that are not aligned, groups, lists, options. The first three are the cases that the range guard once lost. */
void test_ends(const verify_backend *backend, Extent extent) {
  run_text(backend, "rms:bwd:f32:6x8:data=huge:dydata=max:out=dx");
  run_text(backend, "rms:bwd:f32:6x8:eps=0:data=tiny:dydata=least");
  run_text(backend, "rms:bwd:f32:6x8:eps=0:data=small:dydata=steps");
  const char *forms[] = {"rms:bwd:%s:5x%s",
                         "rms:bwd:%s:5x%s:recompute",
                         "layer:bwd:%s:5x%s",
                         "layer:bwd:%s:5x%s:recompute",
                         "rms:bwd:%s:5x%s:pad=1",
                         "layer:bwd:%s:5x%s:pad=1",
                         "rms:bwd:%s:5x%s:round=before",
                         "layer:bwd:%s:2x3x%s:pad=8",
                         "rms:bwd:%s:4x%s:groups=2",
                         "prms:bwd:%s:4x%s:p=0.5:idx",
                         "prms:bwd:%s:4x%s:p=0.5",
                         "rms:bwd:%s:5x%s:epsout",
                         "rms:bwd:%s:5x%s:split",
                         "layer:bwd:%s:5x%s:split",
                         "rms:bwd:%s:4x%s:w=f32:off=1",
                         "rms:bwd:%s:5x%s:dres"};
  const char *ends[] = {"data=huge:dydata=max",     "data=tiny:dydata=least", "data=small:dydata=steps",
                        "data=tiny:dydata=max",     "data=huge:dydata=steps", "dydata=steps",
                        "data=hugemean:dydata=max", "data=max:dydata=tiny",   "data=steps:dydata=least"};
  const int64_t widths[] = {8, 40, 128, 520, 1032, 4096, 5120, 9216, 20480};
  for (const char *type : {"f32", "bf16", "f16", "f64"})
    for (int64_t width : widths)
      for (const char *form : forms)
        for (const char *end : ends)
          for (const char *eps : {":eps=0", ""}) {
            char text[256];
            const bool first = end == ends[0] || end == ends[1] || end == ends[2], f64 = strcmp(type, "f64") == 0;
            if (extent == SMALL && (width > 520 || width == 40 || !first)) continue;
            if (extent == QUICK && (width > 1032 || width == 40) && (!first || eps[0] == 0)) continue;
            if (f64 && (strstr(form, "split") || width > 1032)) continue; /* the split form of f64 has no range guard */
            if (strstr(form, "before") && strstr(end, "dydata=max")) continue; /* u overflows by its definition */
            if (f64 && strstr(form, "dres") && strstr(end, "tiny:dydata=max")) continue; /* so does the oracle's dx */
            snprintf(text, sizeof text, form, type, std::to_string(width).c_str());
            run_text(backend, std::string(text) + ":out=dx:" + end + (strstr(form, "epsout") ? ":eps=1e-20" : eps));
          }
}

/* Gated rows of zeros, with a NaN, and at the ends of the range, as far as no product with the activation leaves it. */
void test_gates(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:fwd:%s:8x%s:gate=after:out=y+stats",   "layer:fwd:%s:8x%s:gate=after:act=sigmoid:bias",
                         "rms:fwd:%s:8x%s:gate=before:round=before", "layer:fwd:%s:8x%s:gate=before:act=sigmoid",
                         "rms:fwd:%s:8x%s:gate=before:split:pad=3",  "rms:fwd:%s:8x%s:gate=after:split:res",
                         "rms:bwd:%s:8x%s:gate=after:round=before",  "layer:bwd:%s:8x%s:gate=after:bias:recompute",
                         "rms:bwd:%s:8x%s:gate=before:act=sigmoid",  "layer:bwd:%s:8x%s:gate=before:recompute",
                         "rms:bwd:%s:8x%s:gate=after:split:bias",    "rms:bwd:%s:8x%s:gate=before:split:out=dx+dz"};
  const char *rows[] = {"data=zerorows", "data=nanrows", "data=small", "data=tiny", "data=steps", "data=hugemean"};
  for (const char *type : {"f32", "bf16", "f16", "f64"})
    for (int64_t width : {8, 40, 129, 256, 512, 1032, 4096, 12288, 16392})
      for (const char *form : forms)
        for (const char *row : rows) {
          char text[256];
          if (extent != FULL && width > 4096) continue;
          if (extent == SMALL && (width > 600 || width == 40)) continue;
          snprintf(text, sizeof text, form, type, std::to_string(width).c_str());
          run_text(backend, std::string(text) + ":" + row);
          if (strstr(form, "bwd")) run_text(backend, std::string(text) + ":dy" + row);
        }
}

/* ---- images with channels first ---- */

/* Channels on both sides of every change of kernel, pixels on both sides of a tile, an odd number of them, which a
 * 16-bit type has to load one by one, and pixels out of range beside others. */
void test_images(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:fwd:%s:%s:out=y+stats",
                         "rms:fwd:%s:%s:w=none:inplace",
                         "layer:fwd:%s:%s:bias:out=y+stats",
                         "layer:fwd:%s:%s:w=f32:bias:inplace",
                         "layer:fwd:%s:%s:w=none:pad=1",
                         "rms:bwd:%s:%s",
                         "rms:bwd:%s:%s:recompute:w=f32:acc",
                         "layer:bwd:%s:%s:bias",
                         "layer:bwd:%s:%s:bias:recompute:w=f32",
                         "layer:bwd:%s:%s:inplace:w=none:recompute",
                         "layer:bwd:%s:%s:bias:acc:off=1:pad=2"};
  const char *values[] = {"",           ":data=mixed", ":data=nanrows", ":data=zerorows",
                          ":data=huge", ":data=tiny",  ":data=hugemean"};
  const int channels[] = {1, 7, 32, 64, 65, 96, 100, 192, 256, 257, 384, 385, 500, 513, 768, 1000, 1025};
  const int pixels[] = {1, 2, 31, 32, 33, 49, 64, 65, 196};
  int number = 0;
  for (const char *type : {"f32", "bf16", "f16"})
    for (int c : channels)
      for (int p : pixels)
        for (const char *form : forms)
          for (const char *value : values) {
            char text[256];
            number++;
            if (extent == SMALL && (c > 400 || number % 29 != 0)) continue;
            if (extent == QUICK && number % 5 != 0) continue;
            const std::string shape =
                std::to_string(number % 2 ? 3 : 1) + "x" + std::to_string(p) + "x" + std::to_string(c);
            snprintf(text, sizeof text, form, type, shape.c_str());
            run_text(backend, std::string(text) + ":channels=first" + value);
            if (strstr(form, "bwd") && value[0] && !strstr(value, "huge"))
              run_text(backend, std::string(text) + ":channels=first:dy" + (value + 1));
          }
}

/* ---- other outputs than y in the data type ---- */

static bool divides(int64_t block, int64_t width) {
  return width % block == 0;
}

/* y and dy of another type, statistics alone, rounded gains, weights at a stride: widths of the kernels of aligned rows
 * and of the general ones, rows that are not aligned, in place. */
void test_types(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:fwd:%s:3x%s:y=%s:out=y+stats",
                         "rms:fwd:%s:3x%s:y=%s:round=before",
                         "rms:fwd:%s:3x%s:y=%s:round=before:w=f32:bias",
                         "rms:fwd:%s:3x%s:y=%s:res:pad=8",
                         "rms:fwd:%s:2x3x%s:y=%s:perhead:pad=8:off=1:gain=weight",
                         "layer:fwd:%s:3x%s:y=%s:bias:pad=3",
                         "rms:fwd:%s:3x%s:y=%s:gate=after:round=before",
                         "rms:fwd:%s:3x%s:y=%s:split",
                         "rms:bwd:%s:5x%s:y=%s",
                         "layer:bwd:%s:5x%s:y=%s:bias:recompute",
                         "rms:bwd:%s:5x%s:y=%s:round=before:pad=3",
                         "rms:bwd:%s:5x%s:y=%s:gate=before:acc",
                         "rms:bwd:%s:5x%s:y=%s:dres:w=f32:data=tiny:dydata=steps"};
  const char *others[] = {"rms:fwd:%s:3x%s:out=stats",
                          "rms:fwd:%s:3x%s:out=stats:data=zerorows",
                          "rms:fwd:%s:3x%s:out=sum+stats:res",
                          "rms:fwd:%s:3x%s:out=sum+stats:res:pad=3",
                          "layer:fwd:%s:3x%s:out=stats:gate=before",
                          "layer:fwd:%s:3x%s:off=1:gain=weight:bias",
                          "rms:fwd:%s:3x%s:off=1:gain=weight:pad=3",
                          "rms:bwd:%s:5x%s:off=1:gain=weight",
                          "layer:bwd:%s:5x%s:off=0.3:gain=weight:bias:pad=3",
                          "layer:fwd:%s:9x4x%s:perhead:wstride=300000:off=1:bias",
                          "layer:fwd:%s:9x4x%s:perhead:wstride=300001:off=1:bias:gain=weight",
                          "layer:bwd:%s:9x4x%s:perhead:wstride=300000:off=1:bias",
                          "rms:bwd:%s:9x4x%s:perhead:wstride=300001:off=1:bias:gain=weight:grad=f32",
                          "layer:bwd:%s:1x40x%s:perhead:wstride=300008:off=1:bias",
                          "rms:bwd:%s:1x5x%s:perhead:off=1:bias:acc:data=mixed",
                          "rms:bwd:%s:37x2x%s:perhead:off=1:bias:data=mixed"};
  for (const char *type : {"f32", "bf16", "f16"})
    for (int64_t width : {1, 8, 9, 127, 520, 1032, 4096, 8192, 8200, 16384, 16392, 32768, 131080}) {
      const std::string columns = std::to_string(width);
      char text[256];
      if (extent == SMALL && width > 1100) continue;
      if (extent == QUICK && width > 20000) continue;
      for (const char *y : {"f32", "bf16", "f16"})
        for (const char *form : forms) {
          if (strcmp(y, type) == 0) continue;
          snprintf(text, sizeof text, form, type, columns.c_str(), y);
          run_text(backend, text);
        }
      for (const char *form : others) {
        if (width > 20000 && strstr(form, "perhead")) continue;
        snprintf(text, sizeof text, form, type, columns.c_str());
        run_text(backend, text);
      }
    }
  if (extent == SMALL) return;
  for (const char *text : {"rms:fwd:bf16:40x72:y=f16:inplace", "rms:fwd:f16:40x75:y=bf16:inplace:res:pad=1",
                           "rms:bwd:bf16:40x72:y=f16:inplace", "rms:bwd:f16:40x1031:y=bf16:inplace:round=before",
                           "rms:fwd:bf16:9000x128:y=f32:w=f32:round=before", "rms:fwd:bf16:9000x128:out=stats",
                           "rms:fwd:bf16:40x64x1152:perhead:wstride=6912:off=1:bias",
                           "layer:fwd:bf16:19x64x1152:perhead:wstride=6912:off=1:gain=weight:round=before:bias",
                           "layer:fwd:f16:17x3x2048:perhead:bias:data=mixed", "rms:fwd:f32:19x5x640:perhead:data=tiny",
                           "layer:bwd:bf16:40x64x1152:perhead:wstride=6912:off=1:bias",
                           "layer:bwd:f16:430x3x520:perhead:off=1:bias:data=mixed:dydata=mixed:acc",
                           "rms:bwd:f32:101x5x1028:perhead:bias:data=zerorows", "rms:bwd:bf16:67x2x4096:perhead:w=f32",
                           "layer:bwd:bf16:1x77x520:perhead:off=1:bias:data=mixed:dydata=mixed",
                           "layer:bwd:f16:1x40x8192:perhead:off=1:bias:acc:data=zerorows",
                           "rms:bwd:bf16:1x40x2048:perhead:off=1:bias:w=f32:grad=f32:acc",
                           "rms:bwd:bf16:1x77x128:perhead:bias:round=before:recompute:data=mixed",
                           "rms:fwd:bf16:2x40x1160:perhead:off=1:bias:w=f32:round=before"})
    run_text(backend, text);
}

/* Of all the combinations below as many as the time allows: wide rows with few forms, and for compute-sanitizer few
 * rows. */
static bool takes_quantised(Extent extent, const char *type, int64_t width, int64_t form, int64_t block) {
  const bool f16 = strcmp(type, "f16") == 0;
  if (width > 1200 && (form == 3 || form > 4 || f16 || (block > 0 && block < 128))) return false;
  if (width > 20000 && (form > 2 || extent != FULL)) return false;
  if (extent == SMALL) return !f16 && (width == 9 || width == 96 || width == 1024) && form % 2 == 0 && block != 3;
  return extent == FULL || !f16 || form < 4;
}

/* Quantised y: every type and kind of scale, on both sides of every change of kernel. Where y is stored q must have the
 * bits that plain quantising makes of it. */
void test_quantised(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:fwd:%s:5x%s:out=q",
                         "rms:fwd:%s:5x%s:out=y+q+stats",
                         "rms:fwd:%s:5x%s:res:out=y+q+sum",
                         "rms:fwd:%s:5x%s:res:inplace:out=y+q+sum",
                         "rms:fwd:%s:5x%s:out=y+q:round=before:w=f32:bias",
                         "rms:fwd:%s:2x3x%s:out=y+q:perhead:pad=64",
                         "rms:fwd:%s:5x%s:out=y+q:pad=32:inplace",
                         "rms:fwd:%s:5x%s:out=y+q:data=zerorows",
                         "rms:fwd:%s:5x%s:out=y+q:data=nanrows",
                         "rms:fwd:%s:5x%s:out=y+q:data=huge:qleast=0.01",
                         "rms:fwd:%s:5x%s:out=y+q:data=tiny:eps=1",
                         "layer:fwd:%s:5x%s:out=y+q:bias",
                         "rms:fwd:%s:5x%s:out=y+q:gate=after:act=sigmoid",
                         "layer:fwd:%s:5x%s:out=y+q:gate=before:inplace",
                         "rms:fwd:%s:5x%s:out=y+q:y=f32",
                         "rms:fwd:%s:5x%s:out=y+q+sum:res=f32:y=bf16"};
  for (const char *type : {"f32", "bf16", "f16"})
    for (int64_t width : {8, 9, 32, 96, 128, 512, 1024, 1152, 4096, 8192, 8224, 16384, 16416, 32768, 32800, 131072})
      for (const char *q : {"i8", "e4m3", "e5m2", "q8_0"})
        for (const char *block : {"tensor", "row", "3", "8", "32", "128", "256", "1024"})
          for (const char *const &form : forms) {
            const bool q8_0 = strcmp(q, "q8_0") == 0, wide = width > 1200;
            const int64_t n = atoll(block), which = &form - forms;
            if (!takes_quantised(extent, type, width, which, n)) continue;
            if (wide && strcmp(q, "e5m2") == 0) continue;
            if (q8_0 ? strcmp(block, "row") != 0 || width % 32 != 0 : n > 0 && (!divides(n, width) || n == width))
              continue;
            if (strstr(form, "res=f32") && strcmp(type, "f32") == 0) continue;
            char text[256];
            snprintf(text, sizeof text, form, type, std::to_string(width).c_str());
            run_text(backend, std::string(text) + ":q=" + q + (q8_0 ? "" : std::string(":qblock=") + block));
          }
  if (extent == SMALL) return;
  for (const char *text :
       {"rms:fwd:bf16:5000x128:q=i8:out=y+q", "rms:fwd:bf16:400x4096:q=e4m3:qblock=128:res:out=y+q+sum",
        "rms:fwd:bf16:6x4096:q=e4m3:groups=4:qblock=32:out=y+q", "rms:fwd:f16:6x4096:q=q8_0:groups=4:out=y+q",
        "prms:fwd:bf16:7x1024:p=0.3:idx:q=i8:qblock=64:out=y+q",
        "rms:fwd:bf16:7x1024:epsout:off=1:gain=weight:q=e5m2:out=y+q"})
    run_text(backend, text);
}

/* ---- forms that round at other steps, and a bound of the root mean square ---- */

/* T5's backward by each of its kernels, and every step of the others: rows within a warp, a block, across a cluster,
 * not aligned, wider than a portion of a sum, channels first; values for which eps counts, or is the bound, or not. */
void test_steps(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:bwd:%s:7x%s:round=before:steps=terms",
                         "rms:bwd:%s:7x%s:round=before:steps=terms:w=f32",
                         "rms:bwd:%s:7x%s:steps=terms:recompute:dres:acc",
                         "rms:bwd:%s:7x%s:steps=terms:pad=3:inplace",
                         "rms:bwd:%s:7x%s:steps=terms:split:round=before",
                         "prms:bwd:%s:7x%s:steps=terms:p=0.4:epsclamp:y=f32",
                         "rms:fwd:%s:5x%s:steps=rstd:out=y+stats",
                         "rms:fwd:%s:2x3x%s:steps=rstd:w=none:res:pad=3:inplace",
                         "rms:bwd:%s:5x%s:steps=rstd",
                         "rms:bwd:%s:5x%s:steps=rstd:w=none:recompute:res=f32:dres:pad=1",
                         "rms:fwd:%s:5x%s:steps=all:out=y+stats",
                         "rms:fwd:%s:5x%s:steps=all:epsout:res=f32:w=f32:bias",
                         "rms:fwd:%s:2x3x%s:steps=all:epsclamp:perhead:off=1:gain=weight:out=y+stats",
                         "rms:fwd:%s:5x%s:steps=all:epsclamp:y=f32:q=i8:out=y+q",
                         "layer:fwd:%s:5x%s:steps=all:bias:out=y+stats",
                         "layer:fwd:%s:3x33x%s:steps=all:bias:channels=first",
                         "rms:bwd:%s:5x%s:steps=all:bias",
                         "rms:bwd:%s:2x3x%s:steps=all:epsout:perhead:acc:grad=f32",
                         "rms:bwd:%s:5x%s:steps=all:epsclamp:dres:inplace",
                         "rms:bwd:%s:5x%s:steps=all:res=f32:dres",
                         "layer:bwd:%s:5x%s:steps=all:res=f32:acc",
                         "layer:bwd:%s:5x%s:steps=all:bias:pad=3",
                         "layer:bwd:%s:3x33x%s:steps=all:bias:channels=first",
                         "rms:fwd:%s:5x%s:epsclamp:out=y+stats",
                         "layer:fwd:%s:5x%s:epsclamp:split",
                         "rms:fwd:%s:3x33x%s:epsclamp:channels=first",
                         "rms:bwd:%s:5x%s:epsclamp",
                         "layer:bwd:%s:5x%s:epsclamp:bias:recompute",
                         "rms:bwd:%s:5x%s:epsclamp:split:round=before",
                         "rms:bwd:%s:3x33x%s:epsclamp:channels=first",
                         "rms:bwd:%s:3x33x%s:steps=terms:channels=first"};
  const char *values[] = {"", ":data=zerorows", ":data=nanrows", ":data=tiny", ":data=huge", ":data=mixed", ":eps=2"};
  for (const char *type : {"bf16", "f16", "f32", "f64"})
    for (int64_t width : {1, 8, 9, 127, 256, 520, 1024, 4096, 8200, 16384, 140000})
      for (const char *form : forms)
        for (const char *value : values) {
          char text[256];
          const bool f64 = strcmp(type, "f64") == 0, wide = f64 || strcmp(type, "f32") == 0;
          if (f64 && strstr(form, "split")) continue; /* it has no range guard */
          if (wide && (!strstr(form, "epsclamp") || strstr(form, "f32"))) continue;
          if (width > 4096 && (strstr(form, "x33x") || (value[0] && width > 20000) || wide)) continue;
          if (extent != FULL && width > 8200 && value[0]) continue;
          if (extent == SMALL && (width > 600 || wide)) continue;
          snprintf(text, sizeof text, form, type, std::to_string(width).c_str());
          run_text(backend, std::string(text) + value);
          const bool rounded = strstr(form, "before") || strstr(form, "steps="); /* u or dy*h overflows, or just not */
          if (f64 && strstr(value, "huge")) continue;                            /* the oracle's own sums overflow */
          if (strstr(form, "bwd") && strstr(value, "data") && !(rounded && strstr(value, "huge")))
            run_text(backend, std::string(text) + ":dy" + (value + 1));
        }
  for (const char *text :
       {"rms:bwd:bf16:9000x128:round=before:steps=terms", "rms:bwd:f16:3000x1024:round=before:steps=terms",
        "rms:bwd:bf16:9000x128:steps=all", "layer:bwd:bf16:3000x24:steps=all:bias:grad=f32",
        "rms:bwd:f16:700x4x61:perhead:steps=rstd", "rms:bwd:bf16:900x1536:groups=3:steps=rstd",
        "layer:bwd:bf16:8x1024x256:steps=all:bias:channels=first", "rms:fwd:bf16:99x512:steps=rstd:res",
        "layer:fwd:f16:99x392:steps=all:bias", "layer:bwd:bf16:900x264:steps=all:bias:w=f32",
        "rms:bwd:f16:5x4096:steps=terms:y=f32:w=f32", "rms:bwd:bf16:99x1024:steps=terms:bias"})
    run_text(backend, text);
}

/* ---- gradients of rstd and mean, with and without a dy ---- */

/* Rows in shared memory and beyond it, aligned or not, whose sums stay in a block or take a second step; values for
 * which u, or what r adds, must be scaled. */
void test_drstd(const verify_backend *backend, Extent extent) {
  const char *forms[] = {"rms:bwd:%s:5x%s:w=none:of=stats",
                         "rms:bwd:%s:5x%s:of=stats:recompute:dres:acc:pad=3",
                         "layer:bwd:%s:5x%s:of=stats",
                         "prms:bwd:%s:5x%s:p=0.3:of=stats:gate=before:recompute",
                         "rms:bwd:%s:5x%s:of=y+stats",
                         "rms:bwd:%s:5x%s:of=y+stats:round=before:steps=terms:w=f32:inplace",
                         "layer:bwd:%s:5x%s:of=y+stats:bias:recompute",
                         "layer:bwd:%s:5x%s:of=y+stats:epsout:eps=1e-3:pad=1",
                         "layer:bwd:%s:2x3x%s:of=y+stats:perhead:bias:epsclamp",
                         "rms:bwd:%s:5x%s:of=y+stats:gate=after:bias",
                         "prms:bwd:%s:2x3x%s:p=0.5:idx:of=y+stats:perhead:off=1:epsout"};
  const char *values[] = {"", ":data=zerorows", ":data=small", ":data=tiny", ":data=faintrows", ":data=hugemean"};
  for (const char *type : {"bf16", "f16", "f32", "f64"})
    for (int64_t width : {1, 7, 8, 130, 1024, 4096, 20000, 140000})
      for (const char *form : forms)
        for (const char *value : values) {
          char text[256];
          const bool f64 = strcmp(type, "f64") == 0, y = strstr(form, "y+stats");
          if (f64 && value[0] && !strstr(value, "mean") && !strstr(value, "zero")) continue; /* beyond the oracle */
          if (strcmp(type, "f16") == 0 && strstr(value, "faint")) continue;
          if (width > 4096 && (value[0] || extent != FULL)) continue;
          if (extent == SMALL && (width > 130 || f64)) continue;
          snprintf(text, sizeof text, form, type, std::to_string(width).c_str());
          run_text(backend, std::string(text) + value);
          if (y) run_text(backend, std::string(text) + value + ":dydata=zerorows");
          if (y && !f64) run_text(backend, std::string(text) + value + ":dydata=tiny");
        }
  for (const char *text : {"layer:bwd:f32:900x1000:of=y+stats:bias", "rms:bwd:bf16:3000x128:of=y+stats:acc",
                           "rms:bwd:f32:700x4x61:of=stats"})
    run_text(backend, text);
}

/* ---- problems at random ---- */

static std::string random_problem(verify_random *random) {
  auto pick = [&](std::vector<std::string> from) { return from[(size_t)verify_random_below(random, from.size())]; };
  auto maybe = [&](const char *option, uint64_t one_in) {
    return verify_random_below(random, one_in) == 0 ? std::string(":") + option : std::string();
  };
  const bool layer = verify_random_below(random, 2) == 0, backward = verify_random_below(random, 4) != 0;
  const bool partial = !layer && verify_random_below(random, 4) == 0;
  const std::string groups = verify_random_below(random, 6) == 0 ? "2" : "1";
  const int64_t width = verify_random_below(random, 3) ? (int64_t)verify_random_below(random, 700) + 1
                                                       : ((int64_t)verify_random_below(random, 1200) + 1) * 8;
  std::string text = layer ? "layer" : partial ? "prms" : "rms";
  text += backward ? ":bwd:" : ":fwd:";
  text += pick({"f32", "bf16", "f16", "f64"}) + ":" + std::to_string(verify_random_below(random, 6) + 1) + "x";
  if (verify_random_below(random, 4) == 0) text += std::to_string(verify_random_below(random, 3) + 1) + "x";
  text += std::to_string(width * (groups == "2" ? 2 : 1)) + ":groups=" + groups;
  if (partial) text += ":p=" + pick({"0.1", "0.5", "1"}) + maybe("idx", 3);
  text += maybe("bias", 2) + maybe("w=f32", 4) + maybe("off=1", 6) + maybe("epsout", 8) + maybe("epsclamp", 8) +
          maybe("eps=0", 8) + maybe("round=before", 4) + maybe("perhead", 6) + maybe("pad=8", 4) + maybe("pad=3", 8) +
          maybe("inplace", 5) + maybe("split", 5) + maybe("gate=after", 4) + maybe("gate=before", 4) +
          maybe("act=sigmoid", 6) + maybe("steps=terms", 12) + maybe("steps=rstd", 12) + maybe("steps=all", 8);
  if (backward)
    text += maybe("recompute", 4) + maybe("dres", 5) + maybe("res", 8) + maybe("res=f32", 8) + maybe("grad=f32", 3) +
            maybe("of=stats", 10) + maybe("of=y+stats", 6) + maybe("out=dw", 8) + maybe("out=dx", 5) +
            maybe("out=dz", 12) + maybe("acc", 6) + ":dydata=" + pick({"normal", "lognormal", "cauchy", "exact"});
  else
    text += maybe("res", 4) + maybe("res=f32", 6);
  return text + ":data=" + pick({"normal", "lognormal", "cauchy", "hugemean", "exact"}) +
         ":seed=" + std::to_string(verify_random_below(random, 1000) + 1);
}

/* Options in combinations that nobody wrote down; those that contradict each other are not problems. */
void test_random(const verify_backend *backend, Extent extent) {
  verify_random random = verify_random_start(extent == FULL ? 2 : 1, 0);
  for (int i = 0; i < (extent == SMALL ? 60 : extent == QUICK ? 1500 : 6000); i++) {
    verify_problem problem;
    char message[256];
    if (verify_problem_parse(random_problem(&random).c_str(), &problem, message, sizeof message) == 0)
      run_problem(backend, problem);
  }
}
