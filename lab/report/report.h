/* SPDX-License-Identifier: MIT
 *
 * Results of the lab: collected run by run, then printed as a table and written as JSON, CSV and one HTML page.
 *
 *   lab_report report = {0};
 *   lab_report_environment(&report, cpu, blas, argc, argv, threads);
 *   lab_run run = lab_run_start("rnnsearch", "rms", "library");    set the rest, give it a curve
 *   lab_report_add_run(&report, &run, points, count);              copies
 *   lab_report_print(&report, stdout);
 *   lab_report_write(&report, "results", &error);                  results/report.{html,json}, runs.csv, curves.csv
 *   lab_report_free(&report);
 */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include <math.h>
#include <stdio.h>

#include "base/base.h"

/* A figure that was not measured, or that the paper does not have. */
#define LAB_NONE ((double)NAN)

typedef struct lab_point {
  double step, seconds, loss; /* seconds: training time alone, without evaluation */
} lab_point;

/* One training run. A figure that was not measured is LAB_NONE (doubles) or -1 (integers): lab_run_start
 * sets them so. */
typedef struct lab_run {
  char family[24]; /* "rnnsearch", "transformer", "lm", "convpool", "reader", "order" */
  char norm[16];   /* "none", "layer", "rms", "prms", "l2", "batch", "prms-local" */
  char engine[16]; /* "library", "textbook" */
  double p;        /* pRMSNorm's share; LAB_NONE for the others */
  uint64_t seed;
  char metric[32]; /* "BLEU", "test error %", "perplexity", "accuracy %", "R@1 %" */
  int higher_is_better;
  double quality;          /* of the metric */
  char details[160];       /* more figures, as text: "R@5 61.2, R@10 70.4, mean rank 8.1" */
  int64_t steps;           /* steps done */
  double seconds_per_1000; /* steps */
  double norm_share;       /* share of step time inside normalization, forward and backward, 0..1 */
  double blas_share;       /* share of step time inside matrix products, 0..1 */
  int64_t parameters;
  int64_t activation_bytes; /* saved by the forward for the backward */
  int64_t diverged_step;    /* first step whose loss was not finite; -1: none */
  double chance;            /* what guessing would score; LAB_NONE: nothing sensible */
  int timing;               /* 1: a few steps to compare times: no quality, no curve */
  char settings[512];       /* sizes and training, one line */
  char data[160];           /* origin of the data */
  int synthetic;            /* 1: the data is made by the built-in generator */
  lab_point *curve;         /* owned by the report; leave NULL */
  int64_t curve_count;
} lab_run;

lab_run lab_run_start(const char *family, const char *norm, const char *engine);

/* A further part of the page, for the theory and the sweeps: a text, a table of strings, a chart. Each is optional. */
typedef struct lab_series {
  char name[48];
  double *x, *y; /* owned by the report; points that are not finite are left out */
  int64_t count;
  int line; /* 1: joined by lines; 0: points only */
} lab_series;

typedef struct lab_section {
  char key[32]; /* in the JSON: "invariance" */
  char title[96];
  char *text;   /* a paragraph or more; paragraphs are separated by "\n\n" */
  int columns;  /* of the table; 0: none */
  char **cells; /* rows x columns, the first row is the head */
  int64_t rows;
  char x_label[64], y_label[64];
  int log_x, log_y;
  lab_series *series;
  int64_t series_count;
} lab_section;

typedef struct lab_report {
  char cpu[128], date[32], command[512], version[32], isa[16], blas[32];
  int threads;
  int processes; /* that trained together; 0 or 1: this one alone */
  char note[256]; /* shown at the top: "stopped by Ctrl-C after 3 of 12 runs" */
  lab_run *runs;
  int64_t run_count, run_capacity;
  lab_section *sections;
  int64_t section_count, section_capacity;
} lab_report;

/* Date (UTC), command line, library version and instruction set. */
void lab_report_environment(lab_report *report, const char *cpu, const char *blas, int argc, char *const *argv,
                            int threads);

void lab_report_add_run(lab_report *report, const lab_run *run, const lab_point *curve, int64_t curve_count);

/* Starts a section and returns it; it stays valid until the next one is added. */
lab_section *lab_report_add_section(lab_report *report, const char *key, const char *title, const char *text);
/* The table: first the heads, then row after row; each call takes `columns` strings. */
void lab_section_row(lab_section *section, int columns, const char *const *cells);
/* One more paragraph of text. */
void lab_section_text(lab_section *section, const char *text);
void lab_section_axes(lab_section *section, const char *x_label, const char *y_label, int log_x, int log_y);
void lab_section_series(lab_section *section, const char *name, const double *x, const double *y, int64_t count,
                        int line);

/* Per family and norm: quality (mean, spread over seeds), what a step takes un-fused and with the library, and beside
 * them what the paper reports; then the verdict. */
void lab_report_print(const lab_report *report, FILE *out);

/* The title, text and table of a section, for the terminal. */
void lab_section_print(const lab_section *section, FILE *out);

/* Writes report.html, report.json, runs.csv and curves.csv into the folder, which is created if need be. Each file is
 * written beside its name first and then renamed, so that none is ever half there. */
int lab_report_write(const lab_report *report, const char *folder, lab_error *error);

void lab_report_free(lab_report *report);

/* ---- Shared by the printers ---- */

enum { LAB_LIBRARY, LAB_TEXTBOOK, LAB_ENGINES };

/* What a step takes with one engine, from the runs that were made to compare times or, where there are none, from the
 * training runs. */
typedef struct lab_times {
  double seconds, seconds_sd; /* per 1000 steps; sd LAB_NONE below two runs; LAB_NONE: not measured, or diverged */
  double reduction;           /* 1 - seconds / LayerNorm's seconds; LAB_NONE without LayerNorm */
  double norm_share, blas_share;
  int64_t activation_bytes; /* -1: not measured */
} lab_times;

/* All runs of one family and norm, summed up. */
typedef struct lab_summary {
  const lab_run *first;       /* family, norm, metric, data: as in the first training run */
  int64_t runs, diverged;     /* training runs */
  double quality, quality_sd; /* over the runs that did not diverge; sd is LAB_NONE below two of them */
  int at_chance;              /* the quality is about what guessing scores */
  lab_times times[LAB_ENGINES];
} lab_summary;

/* In order of first appearance; returns how many; free *summaries. */
int64_t lab_report_summarise(const lab_report *report, lab_summary **summaries);

/* The paper's figure for a family and norm; the fields are LAB_NONE where the paper has none. */
typedef struct lab_paper {
  double quality; /* in the metric below */
  double seconds, seconds_sd;
  double reduction;   /* 0..1 */
  const char *metric; /* "BLEU newstest2014", ...; NULL: not in the paper */
  const char *setup;  /* "WMT14 en-de, TensorFlow, TITAN X" */
  const char *unit;   /* of seconds: "s per 1000 steps" */
} lab_paper;

lab_paper lab_paper_figure(const char *family, const char *norm);

#endif
