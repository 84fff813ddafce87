/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "report/out.h"

static int write_file(const char *folder, const char *name, const lab_out *out, lab_error *error) {
  char path[1024];
  lab_file file;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (lab_file_open(&file, path, error) < 0) return -1;
  int good = fwrite(out->text, 1, (size_t)out->length, file.stream) == (size_t)out->length;
  return lab_file_close(&file, good, error);
}

int lab_report_write(const lab_report *report, const char *folder, lab_error *error) {
  static const struct {
    const char *name;
    void (*write)(const lab_report *report, lab_out *out);
  } files[] = {{"report.json", lab_report_json},
               {"runs.csv", lab_report_runs_csv},
               {"curves.csv", lab_report_curves_csv},
               {"report.html", lab_report_html}};
  if (lab_make_folder(folder, error) < 0) return -1;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    lab_out out = {0};
    files[i].write(report, &out);
    int status = write_file(folder, files[i].name, &out, error);
    free(out.text);
    if (status < 0) return -1;
  }
  return 0;
}
