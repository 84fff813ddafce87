/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../machine.h"

static const char *verdict(int met) {
  if (!cli_color(stdout)) return met ? "met" : "not met";
  return met ? "\033[32mmet\033[0m" : "\033[33mnot met\033[0m";
}

void report_title(cli_json *json) {
  machine m;
  machine_read(&m);
  const char *active = rms_isa_active();
  if (!json) {
    printf("rmsnorm %s, %s, %s\n", rms_version(), m.cpu, active ? active : "no instruction set");
    return;
  }
  cli_json_open(json, NULL, '{');
  cli_json_text(json, "version", rms_version());
  cli_json_text(json, "cpu", m.cpu);
  cli_json_text(json, "instruction_set", active ? active : "none");
  cli_json_int(json, "last_level_cache_bytes", m.last_level_bytes);
}

void report_begin(report *r, report_form form) {
  *r = (report){.form = form, .out = {.stream = stdout}};
  report_title(form == REPORT_JSON ? &r->out : NULL);
  if (form == REPORT_JSON)
    cli_json_open(&r->out, "problems", '[');
  else if (form == REPORT_VERBOSE)
    printf(
        "Medians over interleaved rounds, caches warm; 20%% and 80%% quantiles. Every result of the library was first"
        "\ncompared bit for bit with the scalar kernel's. \"of copy\": speed as a fraction of the fastest copy (*) of "
        "the same bytes.\n");
  else
    printf("of copy: speed as a fraction of the fastest plain copy of the same bytes. --verbose: engines and spreads.\n"
           "%-38s %10s %8s %8s  %-12s %9s\n",
           "problem", "a call", "GB/s", "of copy", "vs LayerNorm", "vs naive");
}

/* ---- a row per problem ---- */

void report_time(double ns, char *text, size_t size) {
  if (ns < 1e3)
    snprintf(text, size, "%.1f ns", ns);
  else if (ns < 1e6)
    snprintf(text, size, "%.2f us", ns / 1e3);
  else
    snprintf(text, size, "%.2f ms", ns / 1e6);
}

static void problem_row(const bench_result *b, const char *text) {
  const bench_engine *self = result_engine(b, ROLE_SELF), *layer = result_engine(b, ROLE_LAYER), *naive = NULL;
  char time[32], against_layer[32] = "", against_naive[32] = "";
  for (int i = 0; i < b->engine_count; i++)
    if (b->engines[i].type == ENGINE_NAIVE) naive = &b->engines[i];
  report_time(self->median, time, sizeof time);
  if (layer && layer != self) {
    double less = 100 * (1 - engine_ratio(layer, self));
    snprintf(against_layer, sizeof against_layer, "%.0f %% %s", less < 0 ? -less : less, less < 0 ? "more" : "less");
  }
  if (naive) snprintf(against_naive, sizeof against_naive, "%.1f x", engine_ratio(self, naive));
  printf("%-38s %10s %8.2f %8.2f  %-12s %9s\n", text, time, b->bytes / self->median, self->of_ceiling, against_layer,
         against_naive);
}

static void engine_json(cli_json *j, const bench_result *b, const bench_engine *e) {
  cli_json_open(j, NULL, '{');
  cli_json_text(j, "engine", e->name);
  cli_json_real(j, "ns_per_call", e->median);
  cli_json_real(j, "ns_per_call_20", e->low);
  cli_json_real(j, "ns_per_call_80", e->high);
  cli_json_real(j, "ns_per_element", e->median / b->elements);
  cli_json_real(j, "gb_per_s", b->bytes / e->median);
  cli_json_real(j, "of_ceiling", e->of_ceiling);
  cli_json_int(j, "rounds", e->sample_count);
  cli_json_int(j, "calls", e->calls);
  cli_json_close(j);
}

static void problem_json(cli_json *j, const bench_result *b, const char *text) {
  cli_json_open(j, NULL, '{');
  cli_json_text(j, "problem", text);
  cli_json_int(j, "elements", (int64_t)b->elements);
  cli_json_int(j, "bytes", (int64_t)b->bytes);
  cli_json_int(j, "threads", b->problem.threads);
  cli_json_int(j, "reads", b->reads);
  cli_json_int(j, "writes", b->writes);
  cli_json_text(j, "ceiling", b->engines[b->ceiling].name);
  cli_json_open(j, "engines", '[');
  for (int i = 0; i < b->engine_count; i++)
    engine_json(j, b, &b->engines[i]);
  cli_json_close(j);
  cli_json_close(j);
}

static void problem_text(const bench_result *b, const char *text) {
  printf("\n%s   %.4g MB, %d read%s %d write%s, %d thread%s\n", text, b->bytes / 1e6, b->reads, b->reads > 1 ? "s" : "",
         b->writes, b->writes > 1 ? "s" : "", b->problem.threads, b->problem.threads > 1 ? "s" : "");
  printf("  %-20s %10s %18s %12s %8s %8s\n", "engine", "ns/elem", "20%..80%", "ns/call", "GB/s", "of copy");
  for (int i = 0; i < b->engine_count; i++) {
    const bench_engine *e = &b->engines[i];
    printf("%c %-20s %10.4f %9.4f..%-8.4f %12.1f %8.2f %8.3f\n", i == b->ceiling ? '*' : ' ', e->name,
           e->median / b->elements, e->low / b->elements, e->high / b->elements, e->median, b->bytes / e->median,
           e->of_ceiling);
  }
}

void report_problem(report *r, const bench_result *result) {
  char text[VERIFY_TEXT_MAX];
  verify_problem_print(&result->problem, text, sizeof text);
  if (r->form == REPORT_JSON)
    problem_json(&r->out, result, text);
  else if (r->form == REPORT_VERBOSE)
    problem_text(result, text);
  else
    problem_row(result, text);
  fflush(stdout);
}

void report_flat(report *r, const flat_level *level, const double *ns_per_element, int count) {
  report_level *l = &r->levels[r->level_count++];
  l->level = level;
  l->count = count;
  memcpy(l->ns_per_element, ns_per_element, (size_t)count * sizeof *ns_per_element);
}

void report_target(report *r, const char *subject, const char *description, double value, double limit, int met) {
  report_line *line = &r->targets[r->target_count++];
  snprintf(line->subject, sizeof line->subject, "%s", subject);
  snprintf(line->description, sizeof line->description, "%s", description);
  line->value = value;
  line->limit = limit;
  line->met = met;
}

static void end_json(report *r) {
  cli_json *j = &r->out;
  cli_json_close(j);
  cli_json_open(j, "flatness", '[');
  for (int i = 0; i < r->level_count; i++) {
    const report_level *l = &r->levels[i];
    cli_json_open(j, NULL, '{');
    cli_json_text(j, "level", l->level->name);
    cli_json_int(j, "elements", l->level->elements);
    cli_json_open(j, "widths", '[');
    for (int k = 0; k < l->count; k++) {
      cli_json_open(j, NULL, '{');
      cli_json_int(j, "cols", FLAT_WIDTHS[k]);
      cli_json_real(j, "ns_per_element", l->ns_per_element[k]);
      cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_close(j);
  }
  cli_json_close(j);
  cli_json_open(j, "targets", '[');
  for (int i = 0; i < r->target_count; i++) {
    const report_line *b = &r->targets[i];
    cli_json_open(j, NULL, '{');
    cli_json_text(j, "subject", b->subject);
    cli_json_text(j, "target", b->description);
    cli_json_real(j, "value", b->value);
    cli_json_real(j, "limit", b->limit);
    cli_json_flag(j, "met", b->met);
    cli_json_close(j);
  }
  cli_json_close(j);
  cli_json_close(j);
}

static void end_text(const report *r) {
  int met = 0;
  if (r->level_count) {
    printf("\n%-20s", "ns/elem at width");
    for (int i = 0; i < FLAT_WIDTH_COUNT; i++)
      printf(" %8lld", (long long)FLAT_WIDTHS[i]);
    putchar('\n');
  }
  for (int i = 0; i < r->level_count; i++) {
    printf("%-20s", r->levels[i].level->name);
    for (int j = 0; j < r->levels[i].count; j++)
      printf(" %8.4f", r->levels[i].ns_per_element[j]);
    putchar('\n');
  }
  if (r->target_count) printf("\n%-32s %-44s %9s\n", "subject", "target", "measured");
  for (int i = 0; i < r->target_count; i++) {
    const report_line *b = &r->targets[i];
    printf("%-32s %-44s %9.3f  %s\n", b->subject, b->description, b->value, verdict(b->met));
    met += b->met;
  }
  if (r->target_count) printf("\n%d of %d targets met\n", met, r->target_count);
}

void report_end(report *r) {
  if (r->form == REPORT_JSON)
    end_json(r);
  else
    end_text(r);
}
