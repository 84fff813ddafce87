/* SPDX-License-Identifier: MIT */
#include "report/out.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void lab_out_format(lab_out *out, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length > 0) {
    out->text = lab_grow(out->text, &out->capacity, out->length + length + 1, 1);
    vsnprintf(out->text + out->length, (size_t)length + 1, format, again);
    out->length += length;
  }
  va_end(again);
}

/* The next character of a text: its length, or 0 with one byte that is not UTF-8. */
static size_t next_character(const char *s) {
  size_t length = 1;
  while (length < 4 && ((unsigned char)s[length] & 0xc0) == 0x80)
    length++;
  for (size_t n = length; n > 0; n--)
    if (lab_is_text(s, (int64_t)n)) return n;
  return 0;
}

static void put_text(lab_out *out, const char *text, const char *(*escape)(char c)) {
  for (const char *s = text; *s;) {
    size_t length = next_character(s);
    const char *instead = length == 1 ? escape(*s) : NULL;
    if (length == 0)
      lab_out_format(out, "\xef\xbf\xbd");
    else if (instead)
      lab_out_format(out, "%s", instead);
    else
      lab_out_format(out, "%.*s", (int)length, s);
    s += length ? length : 1;
  }
}

static const char *html_escape(char c) {
  switch (c) {
  case '<':
    return "&lt;";
  case '>':
    return "&gt;";
  case '&':
    return "&amp;";
  case '"':
    return "&quot;";
  default:
    return (unsigned char)c < 0x20 && c != '\n' && c != '\t' ? " " : NULL;
  }
}

static const char *no_escape(char c) {
  (void)c;
  return NULL;
}

static const char *csv_escape(char c) {
  return c == '"' ? "\"\"" : NULL;
}

void lab_out_html(lab_out *out, const char *text) {
  put_text(out, text, html_escape);
}

void lab_out_text(lab_out *out, const char *text) {
  put_text(out, text, no_escape);
}

void lab_out_csv(lab_out *out, const char *text) {
  int quoted = strpbrk(text, ",\"\r\n") != NULL;
  if (quoted) lab_out_format(out, "\"");
  put_text(out, text, csv_escape);
  if (quoted) lab_out_format(out, "\"");
}
