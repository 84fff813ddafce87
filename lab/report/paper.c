/* SPDX-License-Identifier: MIT
 *
 * What the paper reports (Zhang & Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019).
 */
#include "report/out.h"

#include <math.h>
#include <string.h>

static const char tensorflow[] = "WMT14 en-de, TensorFlow, TITAN X", theano[] = "WMT14 en-de, Theano, TITAN X",
                  pytorch[] = "WMT14 en-de, PyTorch, TITAN X", base[] = "WMT14 en-de, base model, Tesla V100",
                  cnn[] = "CNN/Daily Mail (CNN), Theano, TITAN X", coco[] = "MS COCO, Theano, TITAN X",
                  cifar[] = "CIFAR-10, Theano, RTX 2080 Ti";

const lab_paper_row lab_paper_rows[] = {
    {"rnnsearch", tensorflow, "none", 21.7, 23.4, 399, 3.40}, {"rnnsearch", tensorflow, "layer", 22.6, 23.6, 665, 32.5},
    {"rnnsearch", tensorflow, "l2", 20.7, 22.0, 482, 19.7},   {"rnnsearch", tensorflow, "rms", 22.4, 23.7, 501, 11.8},
    {"rnnsearch", tensorflow, "prms", 22.6, 23.1, 493, 10.7}, {"rnnsearch", theano, "none", 21.8, 22.9, 596, 20.8},
    {"rnnsearch", theano, "layer", 22.3, 23.8, 988, 1.10},    {"rnnsearch", theano, "rms", 22.5, 23.2, 652, 24.1},
    {"rnnsearch", theano, "prms", 22.7, 24.0, 658, 17.9},     {"rnnsearch", pytorch, "none", 22.7, 24.7, 427, 6.50},
    {"rnnsearch", pytorch, "layer", 23.2, 24.3, 857, 17.2},   {"rnnsearch", pytorch, "rms", 22.9, 24.5, 763, 16.2},
    {"rnnsearch", pytorch, "prms", 23.2, 24.6, 754, 36.1},    {"transformer", base, "none", 0, LAB_NONE, 210, 0.23},
    {"transformer", base, "layer", 26.6, 27.7, 248, 1.31},    {"transformer", base, "rms", 26.8, 27.7, 231, 0.04},
    {"transformer", base, "prms", 26.5, 27.8, 225, 1.63},     {"reader", cnn, "none", LAB_NONE, LAB_NONE, 315, 6.30},
    {"reader", cnn, "batch", LAB_NONE, LAB_NONE, 348, 10.5},  {"reader", cnn, "layer", LAB_NONE, LAB_NONE, 392, 5.70},
    {"reader", cnn, "rms", LAB_NONE, LAB_NONE, 333, 5.20},    {"reader", cnn, "prms", LAB_NONE, LAB_NONE, 330, 5.50},
    {"order", coco, "none", 45.8, 37.6, 2.11, 0.047},         {"order", coco, "layer", 47.9, 38.4, 12.02, 0.191},
    {"order", coco, "rms", 48.7, 39.0, 7.12, 0.207},          {"order", coco, "prms", 46.8, 39.0, 4.34, 0.168},
    {"convpool", cifar, "none", 8.96, LAB_NONE, 21, 0.0},     {"convpool", cifar, "batch", 8.25, LAB_NONE, 38, 0.0},
    {"convpool", cifar, "weight", 8.28, LAB_NONE, 23, 0.0},   {"convpool", cifar, "layer", 10.49, LAB_NONE, 39, 0.4},
    {"convpool", cifar, "rms", 8.83, LAB_NONE, 31, 0.5},      {"convpool", cifar, "prms", 10.37, LAB_NONE, 30, 0.4},
};
const int64_t lab_paper_row_count = sizeof lab_paper_rows / sizeof *lab_paper_rows;

static const lab_paper_task tasks[] = {
    {"rnnsearch", "BLEU newstest2014", "BLEU newstest2017", "s per 1000 steps"},
    {"transformer", "BLEU newstest2014", "BLEU newstest2017", "s per 1000 steps"},
    {"reader", NULL, NULL, "s per 100 steps"},
    {"order", "caption R@1 %", "image R@1 %", "s per 100 steps"},
    {"convpool", "test error %", NULL, "s per epoch"},
};

const lab_paper_task *lab_paper_task_of(const char *family) {
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
    if (strcmp(tasks[i].family, family) == 0) return &tasks[i];
  return NULL;
}

double lab_paper_layer_seconds(const lab_paper_row *row) {
  for (int64_t i = 0; i < lab_paper_row_count; i++)
    if (strcmp(lab_paper_rows[i].setup, row->setup) == 0 && strcmp(lab_paper_rows[i].norm, "layer") == 0)
      return lab_paper_rows[i].seconds;
  return LAB_NONE;
}

lab_paper lab_paper_figure(const char *family, const char *norm) {
  for (int64_t i = 0; i < lab_paper_row_count; i++) {
    const lab_paper_row *row = &lab_paper_rows[i];
    if (strcmp(row->family, family) != 0 || strcmp(row->norm, norm) != 0) continue;
    const lab_paper_task *task = lab_paper_task_of(family);
    return (lab_paper){.quality = row->quality,
                       .seconds = row->seconds,
                       .seconds_sd = row->seconds_sd,
                       .reduction = 1 - row->seconds / lab_paper_layer_seconds(row),
                       .metric = task->metric,
                       .setup = row->setup,
                       .unit = task->unit};
  }
  return (lab_paper){.quality = LAB_NONE, .seconds = LAB_NONE, .seconds_sd = LAB_NONE, .reduction = LAB_NONE};
}
