/* SPDX-License-Identifier: MIT
 *
 * Error lines, colour, progress, and the one look at the library's environment variables. */
#define _POSIX_C_SOURCE 200809L /* fileno */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rmsnorm.h"

/* One line, whatever a file's name or contents are: no byte may move the cursor. */
static void print_clean(const char *text) {
  for (; *text; text++)
    fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, stderr);
}

int cli_error(const char *subject, const char *format, ...) {
  char reason[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  cli_progress(NULL);
  fputs("rmsnorm: ", stderr);
  if (subject) print_clean(subject);
  if (subject) fputs(": ", stderr);
  print_clean(reason);
  fputc('\n', stderr);
  return CLI_BAD;
}

int cli_check_environment(void) {
  if (!rms_isa_active()) return cli_error("RMSNORM_ISA", "%s", rms_status_string(RMS_E_ISA));
  if (rms_stream_threshold() < 0) return cli_error(NULL, "%s", rms_status_string(RMS_E_ENVIRONMENT));
  return -1;
}

int cli_color(FILE *stream) {
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  if (no_color && *no_color) return 0;
  if (!term || strcmp(term, "dumb") == 0) return 0;
  return isatty(fileno(stream));
}

void cli_progress(const char *text) {
  static int shown;
  if (!isatty(STDERR_FILENO)) return;
  if (!text && !shown) return;
  fprintf(stderr, "\r%-78.78s\r", text ? text : "");
  fflush(stderr);
  shown = text != NULL;
}
