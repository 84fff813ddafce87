/* SPDX-License-Identifier: MIT
 *
 * The report as one self-contained page: no script, no font, no network.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

/* ---- Tables ---- */

static void table_cell(lab_out *out, int head, int paper, const char *text) {
  const char *tag = head ? "th" : "td";
  lab_out_format(out, "<%s%s>", tag, paper ? " class='paper'" : "");
  lab_out_html(out, text);
  lab_out_format(out, "</%s>", tag);
}

typedef struct table_plan {
  const char *style;
  int columns[8];
  int count;
} table_plan;

/* Two narrow tables rather than one wide one: both fit on a phone. */
static const table_plan plans[] = {
    {"quality", {LAB_CELL_NORM, LAB_CELL_QUALITY, LAB_CELL_PAPER_QUALITY}, 3},
    {"times",
     {LAB_CELL_NORM, LAB_CELL_UNFUSED_TIME, LAB_CELL_UNFUSED_REDUCTION, LAB_CELL_LIBRARY_TIME,
      LAB_CELL_LIBRARY_REDUCTION, LAB_CELL_PAPER_REDUCTION},
     6},
    {"more", {LAB_CELL_NORM, LAB_CELL_NORM_SHARE, LAB_CELL_SAVED, LAB_CELL_PARAMETERS}, 4}};

static void table_row(lab_out *out, const table_plan *plan, lab_cell *cells, int head, int with_paper) {
  lab_out_format(out, "<tr>");
  for (int i = 0; i < plan->count; i++) {
    int column = plan->columns[i], paper = lab_cell_is_paper(column);
    if (!paper || with_paper) table_cell(out, head || column == LAB_CELL_NORM, paper, cells[column]);
  }
  lab_out_format(out, "</tr>\n");
}

static void write_table(lab_out *out, const lab_family *family, const table_plan *plan) {
  lab_cell cells[LAB_CELLS];
  int with_paper = lab_paper_task_of(family->first->family) != NULL;
  lab_out_format(out, "<div class='scroll'><table class='results %s'><thead>", plan->style);
  lab_family_heads(cells, family);
  table_row(out, plan, cells, 1, with_paper);
  lab_out_format(out, "</thead><tbody>\n");
  for (int64_t row = 0; row < family->count; row++) {
    lab_summary_cells(cells, &family->summaries[row]);
    table_row(out, plan, cells, 0, with_paper);
  }
  lab_out_format(out, "</tbody></table></div>\n");
}

static void write_details(lab_out *out, const lab_report *report, const lab_family *family) {
  int any = 0;
  for (const lab_run *run = report->runs; run < report->runs + report->run_count; run++)
    if (run->details[0] && strcmp(run->family, family->first->family) == 0) {
      lab_out_format(out, any++ ? "" : "<details><summary>Each run</summary>\n");
      char title[64];
      lab_norm_title(title, sizeof title, run->norm, run->p);
      lab_out_format(out, "<p>%s, seed %" PRIu64 ": ", title, run->seed);
      lab_out_html(out, run->details);
      lab_out_format(out, "</p>\n");
    }
  if (any) lab_out_format(out, "</details>\n");
}

/* Tables, what their columns mean, and the settings. */
static void write_tables(lab_out *out, const lab_family *family) {
  const lab_run *run = family->first;
  lab_out_format(out, "<div class='tables'>\n");
  write_table(out, family, &plans[0]);
  write_table(out, family, &plans[1]);
  lab_out_format(out,
                 "</div>\n<p class='soft'>Mean ± standard deviation over the seeds. un-fused: every operation of a "
                 "norm is a pass over memory of its own, as in the frameworks that the paper used; library: one "
                 "call of rms_forward and rms_backward. vs LayerNorm: time of a step against LayerNorm's on the "
                 "same engine.");
  if (lab_paper_task_of(run->family)) {
    lab_out_format(out, " Shaded: the paper (");
    lab_out_html(out, lab_paper_figure(run->family, "layer").setup);
    lab_out_format(out, "); other data and hardware, so compare the differences between norms, not the values.");
  }
  lab_out_format(out, "</p>\n<details><summary>More figures and the settings</summary>\n");
  write_table(out, family, &plans[2]);
  lab_out_format(out,
                 "<p class='soft'>in norms: share of a step's time inside normalization, forward and backward, with "
                 "the library. kept for backward: memory that the forward of a step leaves for its backward. "
                 "parameters: trained numbers.</p>\n<p class='soft settings'>Settings: ");
  lab_out_html(out, run->settings);
  lab_out_format(out, "</p></details>\n");
}

static void write_family(lab_out *out, const lab_report *report, const lab_family *family) {
  const lab_run *run = family->first;
  lab_out_format(out, "<section id='%s'><h2>", run->family);
  lab_out_html(out, lab_family_title(run->family));
  lab_out_format(out,
                 "</h2>\n<p class='facts'><span>%" PRId64 " seed%s per norm</span><span>%" PRId64
                 " steps</span><span>trained with the %s engine</span><span>data: ",
                 family->summaries[0].runs, family->summaries[0].runs == 1 ? "" : "s", run->steps, run->engine);
  lab_out_html(out, run->data);
  lab_out_format(out, "</span></p>\n");
  if (run->synthetic)
    lab_out_format(out,
                   "<p class='warn'>Synthetic data: made by the built-in generator. The figures speak of speed and "
                   "convergence, not of real translations or pictures.</p>\n");
  write_tables(out, family);
  lab_page_charts(out, report, family);
  write_details(out, report, family);
  lab_out_format(out, "</section>\n");
}

/* ---- Sections ---- */

static void write_paragraphs(lab_out *out, const char *text) {
  while (*text) {
    const char *end = strstr(text, "\n\n");
    size_t length = end ? (size_t)(end - text) : strlen(text);
    char *paragraph = lab_copy(text, length);
    lab_out_format(out, "<p>");
    lab_out_html(out, paragraph);
    lab_out_format(out, "</p>\n");
    free(paragraph);
    text += length + (end ? 2 : 0);
  }
}

static void write_section_table(lab_out *out, const lab_section *section) {
  lab_out_format(out, "<div class='scroll'><table class='section'>");
  for (int64_t row = 0; row < section->rows; row++) {
    lab_out_format(out, row == 0 ? "<thead><tr>" : row == 1 ? "<tbody><tr>" : "<tr>");
    for (int i = 0; i < section->columns; i++)
      table_cell(out, row == 0 || i == 0, 0, section->cells[row * section->columns + i]);
    lab_out_format(out, row == 0 ? "</tr></thead>\n" : "</tr>\n");
  }
  lab_out_format(out, section->rows > 1 ? "</tbody></table></div>\n" : "</table></div>\n");
}

/* A norm has the same colour everywhere; other series take turns. */
static const char *series_style(const char *name, int64_t index) {
  static const char *const norms[] = {"n-none", "n-layer", "n-rms", "n-prms", "n-l2", "n-batch", "n-prms-local"};
  static const char *const others[] = {"s-0", "s-1", "s-2", "s-3", "s-4", "s-5"};
  for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
    char title[64];
    lab_norm_title(title, sizeof title, norms[i] + 2, LAB_NONE);
    if (strncmp(name, title, strlen(title)) == 0) return norms[i];
  }
  return others[index % 6];
}

static void write_section_chart(lab_out *out, const lab_section *section) {
  lab_line *lines = lab_alloc((size_t)section->series_count, sizeof *lines);
  for (int64_t s = 0; s < section->series_count; s++) {
    const lab_series *series = &section->series[s];
    lines[s] = (lab_line){
        .style = series_style(series->name, s), .name = series->name, .count = series->count, .dots = !series->line};
    lines[s].points = lab_alloc((size_t)series->count, sizeof *lines[s].points);
    for (int64_t i = 0; i < series->count; i++)
      lines[s].points[i] = (lab_xy){series->x[i], series->y[i]};
  }
  char title[160];
  snprintf(title, sizeof title, "%s against %s", section->y_label, section->x_label);
  if (title[0] >= 'a' && title[0] <= 'z') title[0] = (char)(title[0] - 'a' + 'A');
  lab_out_format(out, "<div class='charts'>\n");
  lab_svg_lines(out, &(lab_chart){.id = section->key,
                                  .title = title,
                                  .x_label = section->x_label,
                                  .y_label = section->y_label,
                                  .log_x = section->log_x,
                                  .log_y = section->log_y,
                                  .lines = lines,
                                  .count = section->series_count});
  lab_out_format(out, "</div>\n");
  for (int64_t s = 0; s < section->series_count; s++)
    free(lines[s].points);
  free(lines);
}

static void write_section(lab_out *out, const lab_section *section) {
  lab_out_format(out, "<section id='section-%s'><h2>", section->key);
  lab_out_html(out, section->title);
  lab_out_format(out, "</h2>\n");
  write_paragraphs(out, section->text);
  if (section->rows > 0) write_section_table(out, section);
  if (section->series_count > 0) write_section_chart(out, section);
  lab_out_format(out, "</section>\n");
}

/* ---- The paper's tables ---- */

static void paper_row(lab_out *out, const lab_paper_row *row) {
  char norm[64], quality[32], quality2[32], seconds[48], reduction[32];
  lab_norm_title(norm, sizeof norm, row->norm, LAB_NONE);
  lab_paper_text(quality, sizeof quality, row->quality, LAB_NONE);
  lab_paper_text(quality2, sizeof quality2, row->quality2, LAB_NONE);
  lab_paper_text(seconds, sizeof seconds, row->seconds, row->seconds_sd);
  lab_reduction_text(reduction, sizeof reduction, 1 - row->seconds / lab_paper_layer_seconds(row));
  lab_out_format(out, "<tr><th>%s</th><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", norm, quality, quality2,
                 seconds, strcmp(row->norm, "layer") == 0 ? "" : reduction);
}

static void write_paper(lab_out *out) {
  lab_out_format(out,
                 "<section id='paper'><details><summary>All figures of the paper</summary>\n<p class='soft'>Zhang and "
                 "Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019. Times are mean ± standard deviation of "
                 "three runs.</p>\n");
  const char *setup = "";
  for (int64_t i = 0; i < lab_paper_row_count; i++) {
    const lab_paper_row *row = &lab_paper_rows[i];
    const lab_paper_task *task = lab_paper_task_of(row->family);
    if (strcmp(row->setup, setup) != 0) {
      lab_out_format(
          out,
          "%s<h3>%s: %s</h3><div class='scroll'><table class='paper-table'><thead><tr><th>norm</th><th>%s</th>"
          "<th>%s</th><th>%s</th><th>time vs LayerNorm</th></tr></thead><tbody>\n",
          i ? "</tbody></table></div>\n" : "", row->family, row->setup, task->metric ? task->metric : "",
          task->metric2 ? task->metric2 : "", task->unit);
      setup = row->setup;
    }
    paper_row(out, row);
  }
  lab_out_format(out, "</tbody></table></div></details></section>\n");
}

/* ---- The page ---- */

static void write_verdict(lab_out *out, const lab_family *families, int64_t count) {
  lab_out verdict = {0};
  lab_report_verdict(families, count, &verdict);
  if (!verdict.text) return;
  lab_out_format(out, "<div class='verdict'>");
  for (char *line = verdict.text; *line;) {
    char *end = strchr(line, '\n');
    *end = 0;
    lab_out_format(out, "<p>");
    lab_out_html(out, line);
    lab_out_format(out, "</p>");
    line = end + 1;
  }
  lab_out_format(out, "</div>\n");
  free(verdict.text);
}

static void write_head(lab_out *out, const lab_report *report, const lab_family *families, int64_t family_count) {
  lab_out_format(
      out,
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>\n"
      "<title>rmsnorm lab: results</title>\n<style>\n%s</style></head><body>\n<header><h1>rmsnorm lab</h1>\n<p>",
      lab_page_style);
  if (report->run_count > 0)
    lab_out_format(out,
                   "The experiments of the RMSNorm paper on this machine: does RMSNorm train as well as LayerNorm, in "
                   "less time?");
  else
    lab_out_format(out, "The theory of the RMSNorm paper, measured on this machine.");
  lab_out_format(out, "</p>\n");
  write_verdict(out, families, family_count);
  char processes[48] = "";
  if (report->processes > 1) snprintf(processes, sizeof processes, "%d processes of ", report->processes);
  lab_out_format(out, "<p class='facts'><span>");
  lab_out_html(out, report->cpu);
  lab_out_format(
      out,
      "</span><span>%s%d thread%s</span><span>rmsnorm %s, %s</span><span>OpenBLAS, %s</span><span>%s</span></p>\n"
      "<p class='facts'><code>",
      processes, report->threads, report->threads == 1 ? "" : "s", report->version, report->isa, report->blas,
      report->date);
  lab_out_html(out, report->command);
  lab_out_format(out, "</code></p>\n");
  if (report->note[0]) {
    lab_out_format(out, "<p class='warn'>");
    lab_out_html(out, report->note);
    lab_out_format(out, "</p>\n");
  }
  lab_out_format(out, "</header>\n<main>\n");
}

void lab_report_html(const lab_report *report, lab_out *out) {
  lab_summary *summaries;
  lab_family *families;
  int64_t count = lab_report_summarise(report, &summaries),
          family_count = lab_report_families(summaries, count, &families);
  write_head(out, report, families, family_count);
  for (int64_t i = 0; i < family_count; i++)
    write_family(out, report, &families[i]);
  for (int64_t i = 0; i < report->section_count; i++)
    write_section(out, &report->sections[i]);
  if (family_count > 0) write_paper(out);
  lab_out_format(out, "</main></body></html>\n");
  free(families);
  free(summaries);
}
