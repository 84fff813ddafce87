/* SPDX-License-Identifier: MIT
 * Any text as a problem string: refused with a message, or read, printed and read again to the same problem. */
#include "fuzz.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(int held, const char *what, const char *text) {
  if (held) return;
  fprintf(stderr, "%s: \"%s\"\n", what, text);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1), message[200] = "", printed[VERIFY_TEXT_MAX], again[VERIFY_TEXT_MAX];
  verify_problem problem, second;
  if (!text) abort();
  if (size) memcpy(text, data, size);
  text[size] = 0;
  memset(&problem, 0, sizeof problem);
  memset(&second, 0, sizeof second);
  if (verify_problem_parse(text, &problem, message, sizeof message) != 0) {
    require(message[0] != 0 && strchr(message, '\n') == NULL, "refused without one line of reason", text);
  } else {
    verify_problem_print(&problem, printed, sizeof printed);
    require(verify_problem_parse(printed, &second, message, sizeof message) == 0, "printed form is refused", printed);
    verify_problem_print(&second, again, sizeof again);
    require(strcmp(printed, again) == 0, "printed form does not stay", printed);
  }
  free(text);
  return 0;
}
