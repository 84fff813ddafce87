/* SPDX-License-Identifier: MIT
 *
 * Figures as text, and the table for the terminal.
 */
#include "report/out.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cells ---- */

/* Three or four digits that mean something, never an exponent. */
static int decimals_of(double value) {
  double size = fabs(value);
  return size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size == 0 ? 1 : size >= 0.1 ? 3 : 4;
}

void lab_spread_text(char *text, size_t size, double value, double sd) {
  text[0] = 0;
  if (!isfinite(value)) return;
  if (isfinite(sd))
    snprintf(text, size, "%.*f ± %.*f", decimals_of(value), value, decimals_of(value), sd);
  else
    snprintf(text, size, "%.*f", decimals_of(value), value);
}

void lab_paper_text(char *text, size_t size, double value, double sd) {
  text[0] = 0;
  if (isfinite(value) && isfinite(sd))
    snprintf(text, size, "%.5g ± %.3g", value, sd);
  else if (isfinite(value))
    snprintf(text, size, "%.5g", value);
}

void lab_reduction_text(char *text, size_t size, double reduction) {
  text[0] = 0;
  if (!isfinite(reduction)) return;
  double percent = round(1000 * fabs(reduction)) / 10;
  if (percent == 0)
    snprintf(text, size, "the same");
  else
    snprintf(text, size, "%.1f %% %s", percent, reduction > 0 ? "less" : "more");
}

static void share_text(char *text, size_t size, double share) {
  text[0] = 0;
  if (isfinite(share)) snprintf(text, size, "%.1f %%", 100 * share);
}

static void amount_text(char *text, size_t size, int64_t amount, const char *unit) {
  static const char *const prefixes[] = {"", "k", "M", "G"};
  text[0] = 0;
  if (amount < 0) return;
  double value = (double)amount;
  size_t step = 0;
  for (; value >= 1000 && step < 3; step++)
    value /= 1000;
  int decimals = step == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  snprintf(text, size, "%.*f%s%s%s", decimals, value, step || *unit ? " " : "", prefixes[step], unit);
}

static void quality_text(char *text, size_t size, const lab_summary *summary) {
  char spread[48];
  lab_spread_text(spread, sizeof spread, summary->quality, summary->quality_sd);
  if (summary->diverged > 0 && summary->runs == 1)
    snprintf(text, size, "diverged at step %" PRId64, summary->first->diverged_step);
  else if (summary->diverged > 0)
    snprintf(text, size, "%s%s%" PRId64 " of %" PRId64 " diverged", spread, *spread ? ", " : "", summary->diverged,
             summary->runs);
  else
    snprintf(text, size, "%s%s%s", spread, summary->at_chance ? ", at chance" : "",
             *spread && summary->runs == 1 ? ", one seed" : "");
}

/* Milliseconds per step are the same number as seconds per 1000 steps. */
static void time_cells(lab_cell *time, lab_cell *reduction, const lab_times *times, int is_layer) {
  lab_spread_text(*time, sizeof *time, times->seconds, LAB_NONE);
  lab_reduction_text(*reduction, sizeof *reduction, is_layer ? LAB_NONE : times->reduction);
}

int lab_cell_is_paper(int cell) {
  return cell == LAB_CELL_PAPER_QUALITY || cell == LAB_CELL_PAPER_REDUCTION;
}

void lab_summary_cells(lab_cell cells[LAB_CELLS], const lab_summary *summary) {
  enum { ROOM = sizeof(lab_cell) };
  const lab_run *run = summary->first;
  const lab_times *library = &summary->times[LAB_LIBRARY];
  lab_paper paper = lab_paper_figure(run->family, run->norm);
  int is_layer = strcmp(run->norm, "layer") == 0;
  lab_norm_title(cells[LAB_CELL_NORM], ROOM, run->norm, run->p);
  quality_text(cells[LAB_CELL_QUALITY], ROOM, summary);
  lab_paper_text(cells[LAB_CELL_PAPER_QUALITY], ROOM, paper.quality, LAB_NONE);
  time_cells(&cells[LAB_CELL_UNFUSED_TIME], &cells[LAB_CELL_UNFUSED_REDUCTION], &summary->times[LAB_TEXTBOOK],
             is_layer);
  time_cells(&cells[LAB_CELL_LIBRARY_TIME], &cells[LAB_CELL_LIBRARY_REDUCTION], library, is_layer);
  lab_reduction_text(cells[LAB_CELL_PAPER_REDUCTION], ROOM, is_layer ? LAB_NONE : paper.reduction);
  share_text(cells[LAB_CELL_NORM_SHARE], ROOM, library->norm_share);
  amount_text(cells[LAB_CELL_SAVED], ROOM, library->activation_bytes, "B");
  amount_text(cells[LAB_CELL_PARAMETERS], ROOM, run->parameters, "");
}

void lab_family_heads(lab_cell cells[LAB_CELLS], const lab_family *family) {
  const lab_paper_task *task = lab_paper_task_of(family->first->family);
  static const char *const heads[LAB_CELLS] = {"norm",
                                               "",
                                               "",
                                               "un-fused, ms a step",
                                               "vs LayerNorm",
                                               "library, ms a step",
                                               "vs LayerNorm",
                                               "paper's time",
                                               "in norms",
                                               "kept for backward",
                                               "parameters"};
  for (int i = 0; i < LAB_CELLS; i++)
    snprintf(cells[i], sizeof cells[i], "%s", heads[i]);
  snprintf(cells[LAB_CELL_QUALITY], sizeof(lab_cell), "%s", family->first->metric);
  snprintf(cells[LAB_CELL_PAPER_QUALITY], sizeof(lab_cell), "paper's %s",
           task && task->metric ? task->metric : "quality");
}

/* ---- The table ---- */

static int width_of(const char *text) {
  int width = 0;
  for (; *text; text++)
    width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

/* Empty cells at the end of a row leave no spaces behind. */
static void print_row(FILE *out, lab_cell *cells, const int *widths) {
  int owed = 1;
  for (int i = 0; i < LAB_CELLS; i++) {
    if (widths[i] == 0) continue;
    int pad = widths[i] - width_of(cells[i]);
    if (!cells[i][0])
      owed += 2 + pad;
    else if (i == LAB_CELL_NORM) {
      fprintf(out, "%*s%s", owed + 1, "", cells[i]);
      owed = pad;
    } else {
      fprintf(out, "%*s%s", owed + 2 + pad, "", cells[i]);
      owed = 0;
    }
  }
  fputc('\n', out);
}

/* In the terminal: only what fits beside each other. */
static void short_heads(lab_cell *cells) {
  snprintf(cells[LAB_CELL_PAPER_QUALITY], sizeof(lab_cell), "paper's");
  snprintf(cells[LAB_CELL_UNFUSED_TIME], sizeof(lab_cell), "un-fused ms");
  snprintf(cells[LAB_CELL_LIBRARY_TIME], sizeof(lab_cell), "library ms");
}

/* The widest cell of each column; 0 for columns that are hidden or empty in every row. */
static void measure(int *widths, lab_cell *cells, int64_t rows) {
  int used[LAB_CELLS] = {0};
  for (int64_t row = 0; row < rows; row++)
    for (int i = 0; i < LAB_CELLS; i++) {
      const char *cell = cells[row * LAB_CELLS + i];
      if (width_of(cell) > widths[i]) widths[i] = width_of(cell);
      used[i] |= row > 0 && *cell;
    }
  for (int i = 0; i < LAB_CELLS; i++)
    if (!used[i] || i > LAB_CELL_PAPER_REDUCTION) widths[i] = 0;
}

static void print_family(const lab_family *family, FILE *out) {
  lab_cell *cells = lab_alloc((size_t)(family->count + 1) * LAB_CELLS, sizeof *cells);
  int widths[LAB_CELLS] = {0};
  lab_family_heads(cells, family);
  short_heads(cells);
  for (int64_t i = 0; i < family->count; i++)
    lab_summary_cells(cells + (i + 1) * LAB_CELLS, &family->summaries[i]);
  measure(widths, cells, family->count + 1);

  const lab_run *run = family->first;
  fprintf(out, "\n%s, %" PRId64 " steps, %" PRId64 " seed%s; %s%s\n", run->family, run->steps,
          family->summaries[0].runs, family->summaries[0].runs == 1 ? "" : "s", run->data,
          run->synthetic ? " (SYNTHETIC: says nothing about real quality)" : "");
  for (int64_t row = 0; row <= family->count; row++)
    print_row(out, cells + row * LAB_CELLS, widths);
  free(cells);
}

/* Breaks lines between words, and keeps the breaks of the text. */
static void print_wrapped(const char *text, FILE *out) {
  enum { COLUMNS = 100 };
  int used = 0;
  while (*text) {
    int length = (int)strcspn(text, " \n");
    if (used > 0 && used + 1 + length > COLUMNS) {
      fputc('\n', out);
      used = 0;
    }
    used += fprintf(out, "%s%.*s", used > 0 ? " " : "", length, text);
    text += length;
    if (*text == '\n') {
      fputc('\n', out);
      used = 0;
    }
    text += *text != 0;
  }
  fputc('\n', out);
}

void lab_section_print(const lab_section *section, FILE *out) {
  int *widths = lab_alloc((size_t)section->columns, sizeof *widths);
  for (int64_t i = 0; i < section->rows * section->columns; i++) {
    int width = width_of(section->cells[i]);
    if (width > widths[i % section->columns]) widths[i % section->columns] = width;
  }
  fprintf(out, "\n%s\n", section->title);
  print_wrapped(section->text, out);
  fputc('\n', out);
  for (int64_t row = 0; row < section->rows; row++)
    for (int i = 0; i < section->columns; i++) {
      const char *cell = section->cells[row * section->columns + i];
      int pad = widths[i] - width_of(cell);
      fprintf(out, "  %s", cell);
      if (i + 1 < section->columns)
        fprintf(out, "%*s", pad, "");
      else
        fputc('\n', out);
    }
  free(widths);
}

void lab_report_print(const lab_report *report, FILE *out) {
  lab_summary *summaries;
  lab_family *families;
  lab_out verdict = {0};
  int64_t count = lab_report_summarise(report, &summaries),
          family_count = lab_report_families(summaries, count, &families);
  for (int64_t i = 0; i < family_count; i++)
    print_family(&families[i], out);
  lab_report_verdict(families, family_count, &verdict);
  if (verdict.text) {
    verdict.text[verdict.length - 1] = 0; /* print_wrapped ends the line */
    fputc('\n', out);
    print_wrapped(verdict.text, out);
  }
  if (report->note[0]) fprintf(out, "%s\n", report->note);
  free(verdict.text);
  free(families);
  free(summaries);
}
