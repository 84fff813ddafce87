/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <inttypes.h>
#include <math.h>

static void quote(FILE *stream, const char *text) {
  fputc('"', stream);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fputc('\\', stream);
    if (c < 0x20)
      fprintf(stream, "\\u%04x", c);
    else
      fputc(c, stream);
  }
  fputc('"', stream);
}

/* Members of the outermost object have a line each, and so have objects and lists in a list. */
static void begin_member(cli_json *j, const char *key, int opens) {
  if (j->depth > 0) {
    int members = j->open[j->depth - 1].members++, line = j->depth == 1 || (opens && !key);
    if (members) fputs(line ? "," : ", ", j->stream);
    if (line) fprintf(j->stream, "\n%*s", 2 * j->depth, "");
    j->open[j->depth - 1].in_lines = line;
  }
  if (!key) return;
  quote(j->stream, key);
  fputs(": ", j->stream);
}

void cli_json_open(cli_json *j, const char *key, char bracket) {
  begin_member(j, key, 1);
  fputc(bracket, j->stream);
  j->open[j->depth].close = bracket == '{' ? '}' : ']';
  j->open[j->depth].in_lines = 0;
  j->open[j->depth++].members = 0;
}

void cli_json_close(cli_json *j) {
  j->depth--;
  if (j->open[j->depth].in_lines) fprintf(j->stream, "\n%*s", 2 * j->depth, "");
  fputc(j->open[j->depth].close, j->stream);
  if (j->depth == 0) fputc('\n', j->stream);
  fflush(j->stream);
}

void cli_json_text(cli_json *j, const char *key, const char *text) {
  begin_member(j, key, 0);
  quote(j->stream, text);
}

void cli_json_real(cli_json *j, const char *key, double value) {
  begin_member(j, key, 0);
  if (isfinite(value))
    fprintf(j->stream, "%.9g", value);
  else
    fputs("null", j->stream);
}

void cli_json_int(cli_json *j, const char *key, int64_t value) {
  begin_member(j, key, 0);
  fprintf(j->stream, "%" PRId64, value);
}

void cli_json_flag(cli_json *j, const char *key, int value) {
  begin_member(j, key, 0);
  fputs(value ? "true" : "false", j->stream);
}
