/* SPDX-License-Identifier: MIT */
#include "data/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lab_text_read(lab_text *text, const char *path, lab_error *error) {
  *text = (lab_text){0};
  if (lab_read_file(&text->bytes, &text->size, path, error) < 0) return -1;
  const char *reason = text->size == 0                              ? "empty file"
                       : memchr(text->bytes, 0, (size_t)text->size) ? "holds a NUL byte: not text"
                       : !lab_is_text(text->bytes, text->size)      ? "not UTF-8 text"
                                                                    : NULL;
  if (reason) {
    lab_text_free(text);
    return lab_fail(error, "%s: %s", path, reason);
  }
  const char *slash = strrchr(path, '/');
  snprintf(text->origin, sizeof text->origin, "%.150s", slash ? slash + 1 : path);
  return 0;
}

void lab_text_free(lab_text *text) {
  free(text->bytes);
  *text = (lab_text){0};
}
