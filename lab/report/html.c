/* SPDX-License-Identifier: MIT
 *
 * One page that needs nothing else: no script, no font, no network.
 */
#include "report/svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ground:#fbfbfa;--card:#fff;--ink:#1d2127;--soft:#5c6470;--line:#dcdfe4;--warn:#fff3d6;"
    "--none:#7b828d;--layer:#cf5a00;--rms:#0067b8;--prms:#00845c;--l2:#a3468c;--batch:#8a6d00}\n"
    "@media "
    "(prefers-color-scheme:dark){:root{--ground:#14171b;--card:#1b1f25;--ink:#e6e8eb;--soft:#9aa3af;--line:#343a43;"
    "--warn:#3a2f12;--none:#9aa3af;--layer:#ff9a4d;--rms:#5db4ff;--prms:#3fd0a0;--l2:#e08acb;--batch:#d9b93b}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:1.2rem 1rem 4rem;max-width:76rem;background:var(--ground);color:var(--ink);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "h1{font-size:1.7rem;margin:.2rem 0}h2{font-size:1.25rem;margin:2.4rem 0 .3rem}h3{font-size:1.05rem;margin:1.4rem "
    "0 .4rem}\n"
    "p{margin:.4rem 0;max-width:46rem}.soft,.facts{color:var(--soft)}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:.9rem;margin:.6rem 0}\n"
    ".warn{background:var(--warn);border-radius:.4rem;padding:.5rem .8rem;margin:.8rem 0}\n"
    "code{font:.88em ui-monospace,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}\n"
    ".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.4rem;margin:.7rem 0}\n"
    "table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.35rem .5rem;text-align:right;white-space:nowrap;border-top:1px solid var(--line)}\n"
    "thead "
    "th{border-top:0;font-weight:600;color:var(--soft);vertical-align:bottom;white-space:normal;line-height:1.25}\n"
    "tbody "
    "th{font-weight:600}th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card)}\n"
    ".paper{color:var(--soft);background:color-mix(in srgb,var(--soft) 9%,transparent)}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:.8rem;margin:.8rem "
    "0}\n"
    "figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.6rem .6rem "
    ".4rem}\n"
    "figcaption{font-weight:600;font-size:.92rem;margin:0 0 .3rem .2rem}\n"
    "svg.chart{display:block;width:100%;height:auto;font-size:12px}svg text{fill:var(--soft)}\n"
    "text.x{text-anchor:middle}text.y{text-anchor:end}text.value{fill:var(--ink)}.bars text.y{fill:var(--ink)}\n"
    ".grid{stroke:var(--line);stroke-width:.7}.axis{stroke:var(--soft);fill:none}\n"
    ".curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.faint{stroke-width:1;opacity:.35}\n"
    ".dot,.bar{fill:currentColor}.bar{opacity:.85}.spread{stroke:var(--ink);stroke-width:1.3;fill:none}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.1rem .9rem;margin:.3rem .2rem 0;font-size:.85rem}\n"
    ".legend b{font-weight:400;color:var(--ink)}.key{width:1.5rem;height:.65rem;margin-right:.35rem}\n"
    ".n-none,.s-4{color:var(--none)}.n-layer,.s-1{color:var(--layer)}.n-rms,.s-0{color:var(--rms)}\n"
    ".n-prms,.s-2{color:var(--prms)}.n-l2,.s-3{color:var(--l2)}.n-batch,.s-5{color:var(--batch)}\n"
    ".n-none.curve,.n-none .curve{stroke-dasharray:2 3}.n-prms.curve,.n-prms .curve{stroke-dasharray:7 3}\n"
    ".n-l2.curve,.n-l2 .curve{stroke-dasharray:9 3 2 3}\n"
    "@media (max-width:600px){th,td{padding:.35rem .45rem}tbody th{white-space:normal}}\n"
    "details{margin:1rem 0}summary{cursor:pointer;font-weight:600}\n";

/* ---- Curves ---- */

enum { BUCKETS = 120 };

typedef struct bucket {
  double x, y;
  int64_t count;
} bucket;

static int belongs(const lab_run *run, const lab_run *first) {
  return strcmp(run->family, first->family) == 0 && strcmp(run->norm, first->norm) == 0 &&
         strcmp(run->engine, first->engine) == 0 && (run->p == first->p || isnan(first->p));
}

/* The points of some runs, averaged in up to BUCKETS steps along x: smooths the noise of single batches, and is the
 * mean over runs where there are several. `only` NULL: all runs of the kind of `first`. x is the step times `scale`. */
static lab_line make_curve(const lab_report *report, const lab_run *first, const lab_run *only, double scale) {
  bucket buckets[BUCKETS] = {{0, 0, 0}};
  double longest = 0;
  for (int pass = 0; pass < 2; pass++)
    for (const lab_run *run = report->runs; run < report->runs + report->run_count; run++) {
      if (only ? run != only : !belongs(run, first)) continue;
      for (int64_t i = 0; i < run->curve_count; i++) {
        double x = run->curve[i].step * scale;
        if (!isfinite(x) || !isfinite(run->curve[i].loss)) continue;
        if (pass == 0) longest = fmax(longest, x);
        if (pass == 0) continue;
        bucket *b = &buckets[longest > 0 ? (int)fmin(BUCKETS - 1, fmax(0, x / longest * BUCKETS)) : 0];
        b->x += x;
        b->y += run->curve[i].loss;
        b->count++;
      }
    }
  lab_line line = {.points = lab_alloc(BUCKETS, sizeof *line.points)};
  for (int i = 0; i < BUCKETS; i++)
    if (buckets[i].count > 0)
      line.points[line.count++] =
          (lab_xy){buckets[i].x / (double)buckets[i].count, buckets[i].y / (double)buckets[i].count};
  return line;
}

/* Against seconds: the usual time of a step times their number. The clock itself also shows what else the machine did.
 */
static void write_curves(lab_out *out, const lab_report *report, const lab_group *group, int against_seconds) {
  lab_line *lines = lab_alloc((size_t)(group->count + report->run_count), sizeof *lines);
  lab_cell *names = lab_alloc((size_t)group->count, sizeof *names);
  char(*styles)[24] = lab_alloc((size_t)group->count, sizeof *styles), id[64];
  int64_t count = 0;
  for (int64_t i = 0; i < group->count; i++) {
    const lab_run *first = group->summaries[i].first;
    double scale = against_seconds ? group->summaries[i].seconds / 1000 : 1;
    lab_norm_title(names[i], sizeof names[i], first->norm, first->p);
    snprintf(styles[i], sizeof styles[i], "n-%s", first->norm);
    for (const lab_run *run = report->runs; group->summaries[i].runs > 1 && run < report->runs + report->run_count;
         run++)
      if (belongs(run, first)) {
        lines[count] = make_curve(report, first, run, scale);
        lines[count].faint = 1;
        lines[count++].style = styles[i];
      }
    lines[count] = make_curve(report, first, NULL, scale);
    lines[count].name = names[i];
    lines[count++].style = styles[i];
  }
  snprintf(id, sizeof id, "%s-%s-%s", group->first->family, group->first->engine,
           against_seconds ? "seconds" : "steps");
  lab_svg_lines(out,
                &(lab_chart){.id = id,
                             .title = against_seconds ? "Training loss against time" : "Training loss against steps",
                             .x_label = against_seconds ? "seconds of training" : "step",
                             .y_label = "loss",
                             .loss = 1,
                             .lines = lines,
                             .count = count});
  for (int64_t i = 0; i < count; i++)
    free(lines[i].points);
  free(lines);
  free(names);
  free(styles);
}

static void write_bars(lab_out *out, const lab_group *group, int time) {
  lab_bar *bars = lab_alloc((size_t)group->count, sizeof *bars);
  lab_cell *names = lab_alloc((size_t)group->count, sizeof *names);
  char(*styles)[24] = lab_alloc((size_t)group->count, sizeof *styles), id[64], title[128];
  int64_t measured = 0;
  for (int64_t i = 0; i < group->count; i++) {
    const lab_summary *s = &group->summaries[i];
    lab_norm_title(names[i], sizeof names[i], s->first->norm, s->first->p);
    snprintf(styles[i], sizeof styles[i], "n-%s", s->first->norm);
    bars[i] = (lab_bar){styles[i], names[i], time ? s->seconds : s->quality, time ? s->seconds_sd : s->quality_sd};
    measured += isfinite(bars[i].value);
  }
  snprintf(id, sizeof id, "%s-%s-%s", group->first->family, group->first->engine, time ? "time" : "quality");
  if (time)
    snprintf(title, sizeof title, "Seconds per 1000 steps (less is better)");
  else
    snprintf(title, sizeof title, "%s (%s is better)", group->first->metric,
             group->first->higher_is_better ? "more" : "less");
  if (measured > 0) lab_svg_bars(out, id, title, bars, group->count);
  free(bars);
  free(names);
  free(styles);
}

/* ---- Tables ---- */

/* What is measured here and what the paper has stand side by side. */
static const int columns[] = {
    LAB_CELL_NORM, LAB_CELL_QUALITY,    LAB_CELL_PAPER_QUALITY, LAB_CELL_REDUCTION,  LAB_CELL_PAPER_REDUCTION,
    LAB_CELL_TIME, LAB_CELL_PAPER_TIME, LAB_CELL_NORM_SHARE,    LAB_CELL_BLAS_SHARE, LAB_CELL_PARAMETERS,
    LAB_CELL_SAVED};

static void table_cell(lab_out *out, int head, int paper, const char *text) {
  const char *tag = head ? "th" : "td";
  lab_out_format(out, "<%s%s>", tag, paper ? " class='paper'" : "");
  lab_out_html(out, text);
  lab_out_format(out, "</%s>", tag);
}

static void table_row(lab_out *out, lab_cell *cells, int head, int with_paper) {
  lab_out_format(out, "<tr>");
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    int paper = columns[i] >= LAB_CELL_PAPER_QUALITY;
    if (!paper || with_paper) table_cell(out, head || columns[i] == LAB_CELL_NORM, paper, cells[columns[i]]);
  }
  lab_out_format(out, "</tr>\n");
}

static void write_table(lab_out *out, const lab_group *group) {
  lab_cell cells[LAB_CELLS];
  int with_paper = lab_paper_task_of(group->first->family) != NULL;
  lab_out_format(out, "<div class='scroll'><table class='results'><thead>");
  lab_group_heads(cells, group);
  for (int i = LAB_CELL_PAPER_QUALITY; i < LAB_CELLS; i++) {
    lab_cell head;
    memcpy(head, cells[i], sizeof head);
    snprintf(cells[i], sizeof cells[i], "paper: %.100s", head);
  }
  table_row(out, cells, 1, with_paper);
  lab_out_format(out, "</thead><tbody>\n");
  for (int64_t row = 0; row < group->count; row++) {
    lab_summary_cells(cells, &group->summaries[row]);
    table_row(out, cells, 0, with_paper);
  }
  lab_out_format(out, "</tbody></table></div>\n");
}

static void write_details(lab_out *out, const lab_report *report, const lab_group *group) {
  int any = 0;
  for (const lab_run *run = report->runs; run < report->runs + report->run_count; run++)
    if (run->details[0] && strcmp(run->family, group->first->family) == 0 &&
        strcmp(run->engine, group->first->engine) == 0) {
      lab_out_format(out, any++ ? "" : "<details><summary>Each run</summary>\n");
      char title[64];
      lab_norm_title(title, sizeof title, run->norm, run->p);
      lab_out_format(out, "<p>%s, seed %" PRIu64 ": ", title, run->seed);
      lab_out_html(out, run->details);
      lab_out_format(out, "</p>\n");
    }
  if (any) lab_out_format(out, "</details>\n");
}

static void write_group(lab_out *out, const lab_report *report, const lab_group *group) {
  const lab_run *run = group->first;
  lab_out_format(out, "<section id='%s-%s'><h2>", run->family, run->engine);
  lab_out_html(out, lab_family_title(run->family));
  lab_out_format(out,
                 "</h2>\n<p class='facts'><span>engine: %s</span><span>%" PRId64 " run%s per norm</span><span>data: ",
                 run->engine, group->summaries[0].runs, group->summaries[0].runs == 1 ? "" : "s");
  lab_out_html(out, run->data);
  lab_out_format(out, "</span></p>\n");
  if (run->synthetic)
    lab_out_format(out,
                   "<p class='warn'>Synthetic data: made by the built-in generator. The figures speak of speed and "
                   "convergence, not of real translations or pictures.</p>\n");
  write_table(out, group);
  if (lab_paper_task_of(run->family)) {
    lab_out_format(out, "<p class='soft'>The paper's columns: ");
    lab_out_html(out, lab_paper_figure(run->family, "layer").setup);
    lab_out_format(out, ". Other data, other hardware: compare the differences between norms, not the values.</p>\n");
  }
  lab_out_format(out, "<div class='charts'>\n");
  write_curves(out, report, group, 0);
  write_curves(out, report, group, 1);
  write_bars(out, group, 0);
  write_bars(out, group, 1);
  lab_out_format(out, "</div>\n");
  write_details(out, report, group);
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
  static const char *const norms[] = {"n-none", "n-layer", "n-rms", "n-prms", "n-l2", "n-batch"};
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

static void write_head(lab_out *out, const lab_report *report) {
  lab_out_format(
      out,
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>\n"
      "<title>rmsnorm lab: results</title>\n<style>\n%s</style></head><body>\n<header><h1>rmsnorm lab</h1>\n<p>",
      style);
  if (report->run_count > 0)
    lab_out_format(out,
                   "The experiments of the RMSNorm paper on this machine: does RMSNorm train as well as LayerNorm, in "
                   "less time?");
  else
    lab_out_format(out, "The theory of the RMSNorm paper, measured on this machine.");
  lab_out_format(out, "</p>\n<p class='facts'><span>");
  lab_out_html(out, report->cpu);
  lab_out_format(
      out, "</span><span>%d thread%s</span><span>rmsnorm %s, %s</span><span>%s</span></p>\n<p class='facts'><code>",
      report->threads, report->threads == 1 ? "" : "s", report->version, report->isa, report->date);
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
  lab_group *groups;
  int64_t count = lab_report_summarise(report, &summaries), group_count = lab_report_groups(summaries, count, &groups);
  write_head(out, report);
  for (int64_t i = 0; i < group_count; i++)
    write_group(out, report, &groups[i]);
  for (int64_t i = 0; i < report->section_count; i++)
    write_section(out, &report->sections[i]);
  if (group_count > 0) write_paper(out);
  lab_out_format(out, "</main></body></html>\n");
  free(groups);
  free(summaries);
}
