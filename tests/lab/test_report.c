/* SPDX-License-Identifier: MIT
 *
 * The report: sums, tables, files. With --demo FOLDER it writes the report of made-up runs for
 * report_browser.sh. */
#include "report/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "temp.h"

static lab_error error;

/* Two families, three norms, three seeds; the un-normalised transformer diverges; names that need escaping. */
static lab_report made_up(void) {
  static const char *const families[] = {"rnnsearch", "transformer"}, *const norms[] = {"none", "layer", "rms", "prms"};
  static const double seconds[] = {8, 20, 16, 15};
  char *arguments[] = {"lab", "--data", "a \"b\" <c>"};
  lab_report report = {0};
  lab_report_environment(&report, "a <CPU>", "Haswell", 3, arguments, 2);
  for (int f = 0; f < 2; f++)
    for (int n = 0; n < 4; n++)
      for (int seed = 1; seed <= 3; seed++) {
        lab_point curve[300];
        lab_run run = lab_run_start(families[f], norms[n], "library");
        int lost = f == 1 && n == 0, points = lost ? 40 : 300;
        if (n == 3) run.p = 0.0625;
        run.seed = (uint64_t)seed;
        snprintf(run.metric, sizeof run.metric, "BLEU");
        run.higher_is_better = 1;
        run.quality = lost ? LAB_NONE : 20 + n + seed; /* mean 22 + n, standard deviation 1 */
        run.chance = 0;
        snprintf(run.settings, sizeof run.settings, "batch 64 <small>");
        run.seconds_per_1000 = seconds[n];
        run.norm_share = n / 20.0;
        run.blas_share = 0.7;
        run.parameters = 1234567;
        run.activation_bytes = 7654321;
        run.steps = points * 10;
        run.diverged_step = lost ? 400 : -1;
        run.synthetic = f;
        snprintf(run.data, sizeof run.data, "%s", f ? "synthetic, \"quoted\" & <odd> \xff data" : "a.en + a.de");
        for (int i = 0; i < points; i++) {
          double step = 10 * i;
          curve[i] =
              (lab_point){step, step * seconds[n] / 1000, 2 + 5 * exp(-step / (500 + 300 * !n)) + 0.02 * (i % 7)};
          if (lost && i > 30) curve[i].loss = i < 39 ? 100.0 * i : LAB_NONE;
        }
        lab_report_add_run(&report, &run, curve, points);
      }
  static const double unfused[] = {0, 40, 30, 28};
  for (int f = 0; f < 2; f++)
    for (int n = f; n < 4; n++)
      for (int textbook = 0; textbook < 1 + (n > 0); textbook++) {
        lab_run run = lab_run_start(families[f], norms[n], textbook ? "textbook" : "library");
        if (n == 3) run.p = 0.0625;
        run.timing = 1;
        run.seconds_per_1000 = textbook ? unfused[n] : seconds[n];
        run.norm_share = n / 20.0;
        lab_report_add_run(&report, &run, NULL, 0);
      }
  lab_section *section = lab_report_add_section(&report, "rate", "A <section>", "One & two.\n\nThree.");
  lab_section_row(section, 2, (const char *const[]){"norm", "slope"});
  lab_section_row(section, 2, (const char *const[]){"RMSNorm", "-1"});
  lab_section_axes(section, "scale", "gradient", 1, 1);
  lab_section_series(section, "RMSNorm", (double[]){0.01, 1, 100}, (double[]){100, 1, 0.01}, 3, 1);
  lab_section_series(section, "points", (double[]){0.01, 1, 100}, (double[]){1, LAB_NONE, -1}, 3, 0);
  return report;
}

/* ---- Cases ---- */

static void sums(void) {
  lab_report report = made_up();
  lab_summary *s;
  if (T_EQ_INT(8, lab_report_summarise(&report, &s))) {
    T_EQ_INT(3, s[2].runs);
    T_EQ_STR("rms", s[2].first->norm);
    T_NEAR(24, s[2].quality, 1e-12);
    T_NEAR(1, s[2].quality_sd, 1e-7); /* from a difference of squares near 600 * 3 */
    T_NEAR(16, s[2].times[LAB_LIBRARY].seconds, 1e-12);
    T_NEAR(0.2, s[2].times[LAB_LIBRARY].reduction, 1e-12);
    T_NEAR(0.25, s[3].times[LAB_LIBRARY].reduction, 1e-12);
    T_NEAR(30, s[2].times[LAB_TEXTBOOK].seconds, 1e-12);
    T_NEAR(0.25, s[2].times[LAB_TEXTBOOK].reduction, 1e-12);
    T_NEAR(0.3, s[3].times[LAB_TEXTBOOK].reduction, 1e-12);
    T_NEAR(0.1, s[2].times[LAB_LIBRARY].norm_share, 1e-12);
    T_EQ_INT(3, s[4].diverged);
    T_CHECK(isnan(s[4].quality));
    /* What diverged has no time: its steps are not those of training. */
    T_CHECK(isnan(s[4].times[LAB_LIBRARY].seconds) && isnan(s[4].times[LAB_LIBRARY].reduction));
  }
  free(s);
  lab_report_free(&report);
}

static void paper(void) {
  T_NEAR(0.247, lab_paper_figure("rnnsearch", "rms").reduction, 0.0005); /* as the paper prints them */
  T_NEAR(0.259, lab_paper_figure("rnnsearch", "prms").reduction, 0.0005);
  T_NEAR(0.069, lab_paper_figure("transformer", "rms").reduction, 0.0005);
  T_NEAR(0.093, lab_paper_figure("transformer", "prms").reduction, 0.0005);
  T_NEAR(0.151, lab_paper_figure("reader", "rms").reduction, 0.0005);
  T_NEAR(0.158, lab_paper_figure("reader", "prms").reduction, 0.0005);
  T_NEAR(0.408, lab_paper_figure("order", "rms").reduction, 0.0005);
  T_NEAR(0.639, lab_paper_figure("order", "prms").reduction, 0.0005);
  T_NEAR(0.205, lab_paper_figure("convpool", "rms").reduction, 0.0005);
  T_NEAR(0.231, lab_paper_figure("convpool", "prms").reduction, 0.0005);
  T_EQ_F64(8.83, lab_paper_figure("convpool", "rms").quality);
  T_CHECK(isnan(lab_paper_figure("lm", "rms").quality) && !lab_paper_figure("lm", "rms").metric);
}

static char *read_all(const char *path) {
  char *bytes = NULL;
  int64_t size;
  if (lab_read_file(&bytes, &size, path, &error) < 0) return NULL;
  return bytes;
}

static int occurrences(const char *text, const char *part) {
  int count = 0;
  while ((text = strstr(text, part))) {
    count++;
    text += strlen(part);
  }
  return count;
}

static void files(void) {
  lab_report report = made_up();
  if (!T_EQ_INT(0, lab_report_write(&report, temp_path("out/deep"), &error))) fprintf(stderr, "%s\n", error.text);
  char *json = read_all(temp_path("out/deep/report.json")), *runs = read_all(temp_path("out/deep/runs.csv"));
  char *curves = read_all(temp_path("out/deep/curves.csv")), *html = read_all(temp_path("out/deep/report.html"));
  if (T_CHECK(json && runs && curves && html)) {
    json_t *document = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    T_CHECK(json_is_object(document));
    json_decref(document);
    T_CHECK(lab_is_text(json, (int64_t)strlen(json)) && lab_is_text(html, (int64_t)strlen(html)));
    T_EQ_INT(24 + 13, occurrences(json, "\"curve\""));
    T_CHECK(strstr(json, "\"verdict\"") && strstr(json, "\"settings\": \"batch 64 <small>\""));
    T_EQ_INT(1 + 24 + 13, occurrences(runs, "\n"));
    T_EQ_INT(1 + 21 * 300 + 3 * 40, occurrences(curves, "\n"));
    T_CHECK(strstr(runs, "\"synthetic, \"\"quoted\"\" & <odd>") != NULL);
    T_EQ_INT(2, occurrences(html, "<table class='results quality'>"));
    T_EQ_INT(2, occurrences(html, "<table class='results times'>"));
    T_EQ_INT(11,
             occurrences(html, "<svg class='chart")); /* two families: two curves and three bars each; one section */
    T_EQ_INT(2, occurrences(html, "Settings: batch 64 &lt;small&gt;"));
    T_CHECK(strstr(html, "class='verdict'") && strstr(html, "class='verdict'") < strstr(html, "<main>"));
    T_EQ_INT(1, occurrences(html, "Synthetic data"));
    T_CHECK(strstr(html, "3 of 3 diverged") && strstr(html, "20.0 % less") && strstr(html, "25.0 % less") &&
            strstr(html, "24.7 % less"));
    T_CHECK(strstr(html, "&lt;odd&gt;") && !strstr(html, "<odd>") && !strstr(html, "a \"b\" <c>"));
    /* Alone: nothing is loaded and nothing runs. */
    T_CHECK(!strstr(html, "http") && !strstr(html, "<script") && !strstr(html, "src=") && !strstr(html, "url("));
    T_CHECK(!strstr(html, "nan") && !strstr(html, "inf,") && !strstr(json, "nan"));
  }
  free(json);
  free(runs);
  free(curves);
  free(html);
  lab_report_free(&report);
}

static void nothing_measured(void) {
  lab_report report = {0};
  lab_run run = lab_run_start("lm", "rms", "textbook");
  lab_report_add_run(&report, &run, NULL, 0);
  T_EQ_INT(0, lab_report_write(&report, temp_path("bare"), &error));
  char *html = read_all(temp_path("bare/report.html"));
  T_CHECK(html && strstr(html, "RMSNorm") && !strstr(html, "nan"));
  free(html);
  lab_report_free(&report);
  T_EQ_INT(0, lab_report_write(&report, temp_path("bare"), &error)); /* no runs at all */
}

static void printing(void) {
  lab_report report = made_up();
  char text[8192] = {0};
  FILE *out = tmpfile();
  if (!T_CHECK(out != NULL)) return;
  lab_report_print(&report, out);
  rewind(out);
  T_CHECK(fread(text, 1, sizeof text - 1, out) > 500);
  fclose(out);
  T_CHECK(strstr(text, "rnnsearch, 3000 steps, 3 seeds; a.en + a.de\n") != NULL);
  T_CHECK(strstr(text, "24.0 ± 1.0") && strstr(text, "20.0 % less") && strstr(text, "pRMSNorm 6.25 %"));
  T_CHECK(strstr(text, "22.4") && strstr(text, "24.7 % less")); /* the paper's */
  T_CHECK(strstr(text, "SYNTHETIC") && strstr(text, "3 of 3 diverged"));
  lab_report_free(&report);
}

/* ---- the verdict ---- */

static char verdict_text[2048];

/* The verdict on runs of one family: per norm two seeds, quality `middle` -+ `half`, and times. */
static const char *verdict_of(const double *middle, double half, int seeds, int diverged_without) {
  static const char *const norms[] = {"none", "layer", "rms", "prms"};
  static const double seconds[] = {8, 20, 16, 15};
  lab_report report = {0};
  for (int n = 0; n < 4; n++)
    for (int seed = 0; seed < seeds; seed++) {
      lab_run run = lab_run_start("rnnsearch", norms[n], "library");
      snprintf(run.metric, sizeof run.metric, "BLEU");
      run.higher_is_better = 1;
      run.quality = middle[n] + (seed ? half : -half);
      run.chance = 0;
      run.seconds_per_1000 = seconds[n];
      if (n == 0 && diverged_without) run.diverged_step = 7;
      lab_report_add_run(&report, &run, NULL, 0);
    }
  FILE *out = tmpfile();
  memset(verdict_text, 0, sizeof verdict_text);
  if (T_CHECK(out != NULL)) {
    lab_report_print(&report, out);
    rewind(out);
    T_CHECK(fread(verdict_text, 1, sizeof verdict_text - 1, out) > 100);
    fclose(out);
    for (char *c = verdict_text; *c; c++)
      if (*c == '\n') *c = ' '; /* the terminal's lines are broken anywhere */
  }
  lab_report_free(&report);
  return verdict_text;
}

static void verdict(void) {
  const double alike[] = {5, 30, 30.5, 20}, better[] = {30, 30, 35, 35};
  const char *text = verdict_of(alike, 1, 2, 0);
  T_CHECK(strstr(text, "over 2 seeds RMSNorm's is within the spread of LayerNorm's in rnnsearch; pRMSNorm's is worse "
                       "than LayerNorm's in rnnsearch."));
  T_CHECK(
      strstr(text, "a step with RMSNorm takes 20 % less than one with LayerNorm with this library's fused kernels"));
  T_CHECK(strstr(text, "Without a norm: rnnsearch reaches 5.0 BLEU where RMSNorm reaches 30.5."));
  text = verdict_of(better, 1, 2, 0);
  T_CHECK(strstr(text, "RMSNorm's is better than LayerNorm's in rnnsearch, and so is pRMSNorm's."));
  text = verdict_of(alike, 1, 2, 1);
  T_CHECK(strstr(text, "Without a norm: rnnsearch diverges in 2 of 2 runs."));
  const double unlearned[] = {0.5, 0.5, 0.5, 0.5};
  text = verdict_of(unlearned, 0.1, 2, 0);
  T_CHECK(strstr(text, "RMSNorm's is not to be judged (one is at chance) in rnnsearch") && !strstr(text, "as well"));
  text = verdict_of(alike, 0, 1, 0);
  T_CHECK(strstr(text, "one seed, so no statement") && !strstr(text, "within the spread"));
  T_CHECK(strstr(text, "30.0, one seed"));

  /* A model that was stopped before it had a quality does not silence the others. */
  lab_report report = made_up();
  lab_run stopped = lab_run_start("convpool", "rms", "library");
  lab_report_add_run(&report, &stopped, NULL, 0);
  T_EQ_INT(0, lab_report_write(&report, temp_path("stopped"), &error));
  char *json = read_all(temp_path("stopped/report.json"));
  T_CHECK(
      json &&
      strstr(json, "Quality: over 3 seeds RMSNorm's is within the spread of LayerNorm's in rnnsearch, transformer"));
  free(json);
  lab_report_free(&report);
}

/* Guessing is named so; so is one seed. */
static void marks(void) {
  lab_report report = {0};
  lab_run run = lab_run_start("convpool", "layer", "library");
  snprintf(run.metric, sizeof run.metric, "test error %%");
  run.quality = 89.5;
  run.chance = 90;
  lab_report_add_run(&report, &run, NULL, 0);
  T_EQ_INT(0, lab_report_write(&report, temp_path("marks"), &error));
  char *html = read_all(temp_path("marks/report.html"));
  T_CHECK(html && strstr(html, "89.5, at chance, one seed"));
  free(html);
  lab_report_free(&report);
}

static void unwritable(void) {
  lab_report report = made_up();
  const char *file = temp_write_text("file", "kept");
  T_EQ_INT(-1, lab_report_write(&report, file, &error));
  T_CHECK(temp_names(error.text, file));
  T_EQ_INT(-1, lab_report_write(&report, temp_path("file/below"), &error));
  T_EQ_INT(-1, lab_report_write(&report, "", &error));
  char *kept = read_all(temp_path("file"));
  if (T_CHECK(kept != NULL)) T_EQ_STR("kept", kept);
  free(kept);
  lab_report_free(&report);
}

/* One run that starts at 42 does not press the others flat: the axis ends a little above where most start. */
static void outlier(void) {
  static const char *const norms[] = {"none", "layer", "rms"};
  lab_report report = {0};
  for (int n = 0; n < 3; n++) {
    lab_point curve[50];
    lab_run run = lab_run_start("lm", norms[n], "library");
    for (int i = 0; i < 50; i++)
      curve[i] = (lab_point){i + 1, i, n == 0 && i == 0 ? 42 : 6 * exp(-i / 20.0)};
    lab_report_add_run(&report, &run, curve, 50);
  }
  T_EQ_INT(0, lab_report_write(&report, temp_path("outlier"), &error));
  char *html = read_all(temp_path("outlier/report.html"));
  if (T_CHECK(html != NULL)) {
    double highest = 0;
    for (const char *at = html; (at = strstr(at, "<text class='y' x='46'")); at++)
      highest = fmax(highest, strtod(strchr(at, '>') + 1, NULL));
    T_CHECK(highest >= 5 && highest <= 8);
  }
  free(html);
  lab_report_free(&report);
}

static const t_case cases[] = {
    {"sums", sums},         {"paper", paper},           {"files", files},     {"nothing_measured", nothing_measured},
    {"printing", printing}, {"unwritable", unwritable}, {"verdict", verdict}, {"marks", marks},
    {"outlier", outlier}};

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--demo") == 0) {
    lab_report report = made_up();
    int status = lab_report_write(&report, argv[2], &error);
    lab_report_free(&report);
    return status < 0;
  }
  return t_main(argc, argv, cases, T_COUNT(cases));
}
