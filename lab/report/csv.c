/* SPDX-License-Identifier: MIT
 *
 * Tables for other programs. Fields that were not measured are empty.
 */
#include <inttypes.h>
#include <math.h>

#include "report/out.h"

static void csv_number(lab_out *out, double value) {
  if (isfinite(value)) lab_out_format(out, "%.9g", value);
  lab_out_format(out, ",");
}

static void csv_count(lab_out *out, int64_t value) {
  if (value >= 0) lab_out_format(out, "%" PRId64, value);
  lab_out_format(out, ",");
}

void lab_report_runs_csv(const lab_report *report, lab_out *out) {
  lab_out_format(out, "family,norm,engine,p,seed,metric,quality,diverged_step,steps,seconds_per_1000_steps,norm_share,"
                      "blas_share,parameters,activation_bytes,paper_quality,paper_seconds,paper_reduction,timing_only,"
                      "synthetic,data\n");
  for (int64_t i = 0; i < report->run_count; i++) {
    const lab_run *run = &report->runs[i];
    lab_paper paper = lab_paper_figure(run->family, run->norm);
    lab_out_format(out, "%s,%s,%s,", run->family, run->norm, run->engine);
    csv_number(out, run->p);
    lab_out_format(out, "%" PRIu64 ",", run->seed);
    lab_out_csv(out, run->metric);
    lab_out_format(out, ",");
    csv_number(out, run->quality);
    csv_count(out, run->diverged_step);
    csv_count(out, run->steps);
    csv_number(out, run->seconds_per_1000);
    csv_number(out, run->norm_share);
    csv_number(out, run->blas_share);
    csv_count(out, run->parameters);
    csv_count(out, run->activation_bytes);
    csv_number(out, paper.quality);
    csv_number(out, paper.seconds);
    csv_number(out, paper.reduction);
    lab_out_format(out, "%d,%d,", run->timing, run->synthetic);
    lab_out_csv(out, run->data);
    lab_out_format(out, "\n");
  }
}

void lab_report_curves_csv(const lab_report *report, lab_out *out) {
  lab_out_format(out, "family,norm,engine,p,seed,step,seconds,loss\n");
  for (int64_t i = 0; i < report->run_count; i++) {
    const lab_run *run = &report->runs[i];
    for (int64_t j = 0; j < run->curve_count; j++) {
      lab_out_format(out, "%s,%s,%s,", run->family, run->norm, run->engine);
      csv_number(out, run->p);
      lab_out_format(out, "%" PRIu64 ",%.9g,%.9g,", run->seed, run->curve[j].step, run->curve[j].seconds);
      if (isfinite(run->curve[j].loss)) lab_out_format(out, "%.9g", run->curve[j].loss);
      lab_out_format(out, "\n");
    }
  }
}
