/* SPDX-License-Identifier: MIT
 *
 * Text that grows, and the printers of the report that share it.
 */
#ifndef LAB_REPORT_OUT_H
#define LAB_REPORT_OUT_H

#include "report/report.h"

typedef struct lab_out {
  char *text; /* NUL-terminated once something was written */
  int64_t length, capacity;
} lab_out;

void lab_out_format(lab_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lab_out_html(lab_out *out, const char *text); /* with < > & " as entities; bytes that are not UTF-8 as U+FFFD */
void lab_out_text(lab_out *out, const char *text); /* bytes that are not UTF-8 as U+FFFD                          */
void lab_out_csv(lab_out *out, const char *text);  /* as a CSV field, quoted if need be                          */

/* 1 if both are runs of one family and norm. */
int lab_same_kind(const lab_run *a, const lab_run *b);

/* One family: the unit of tables and charts. */
typedef struct lab_family {
  const lab_run *first;
  const lab_summary *summaries; /* those of the family, adjacent */
  int64_t count;
} lab_family;

/* Sorts the summaries so that families are adjacent, in order of first appearance; returns how many families; free
 * *families.
 */
int64_t lab_report_families(lab_summary *summaries, int64_t count, lab_family **families);
/* The summary of a norm in a family, or NULL. */
const lab_summary *lab_family_norm(const lab_family *family, const char *norm);

/* What the runs say, in up to three sentences, one after the other: quality, time, what happens without a norm. */
void lab_report_verdict(const lab_family *families, int64_t count, lab_out *out);

/* The figures of a summary as text, the paper's beside them; "" where there is none. */
enum {
  LAB_CELL_NORM,
  LAB_CELL_QUALITY,
  LAB_CELL_PAPER_QUALITY,
  LAB_CELL_UNFUSED_TIME, /* milliseconds of a step */
  LAB_CELL_UNFUSED_REDUCTION,
  LAB_CELL_LIBRARY_TIME,
  LAB_CELL_LIBRARY_REDUCTION,
  LAB_CELL_PAPER_REDUCTION,
  LAB_CELL_NORM_SHARE, /* of the library's step */
  LAB_CELL_SAVED,
  LAB_CELL_PARAMETERS,
  LAB_CELLS
};
int lab_cell_is_paper(int cell);
typedef char lab_cell[128];
void lab_summary_cells(lab_cell cells[LAB_CELLS], const lab_summary *summary);
void lab_family_heads(lab_cell cells[LAB_CELLS], const lab_family *family);
void lab_reduction_text(char *text, size_t size, double reduction); /* "24.7 % less", "3.1 % more" */
/* "21.3 ± 0.4", "21.3" without a spread, "" without a value. */
void lab_spread_text(char *text, size_t size, double value, double sd);
/* The same with the digits that the paper prints. */
void lab_paper_text(char *text, size_t size, double value, double sd);

/* "LayerNorm" for "layer" and so on; the name itself where it has no other. With p: "pRMSNorm 6.25 %". */
void lab_norm_title(char *title, size_t size, const char *norm, double p);
const char *lab_family_title(const char *family);

/* The paper's tables, all rows. */
typedef struct lab_paper_row {
  const char *family, *setup, *norm;
  double quality, quality2; /* the second: newstest2017, image R@1; LAB_NONE if there is none */
  double seconds, seconds_sd;
} lab_paper_row;

typedef struct lab_paper_task {
  const char *family, *metric, *metric2, *unit;
} lab_paper_task;

extern const lab_paper_row lab_paper_rows[];
extern const int64_t lab_paper_row_count;
const lab_paper_task *lab_paper_task_of(const char *family); /* NULL: not in the paper */
/* LayerNorm's seconds in the same set-up. */
double lab_paper_layer_seconds(const lab_paper_row *row);

/* The files of a report. */
void lab_report_html(const lab_report *report, lab_out *out);
void lab_report_json(const lab_report *report, lab_out *out);
void lab_report_runs_csv(const lab_report *report, lab_out *out);
void lab_report_curves_csv(const lab_report *report, lab_out *out);

#endif
