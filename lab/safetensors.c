/* SPDX-License-Identifier: MIT */
#include "safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void safetensors_note(safetensors *s, const char *key, const char *value) {
  s->notes = lab_grow(s->notes, &s->note_capacity, s->note_count + 2, sizeof *s->notes);
  s->notes[s->note_count++] = lab_copy(key, strlen(key));
  s->notes[s->note_count++] = lab_copy(value, strlen(value));
}

const char *safetensors_noted(const safetensors *s, const char *key) {
  for (int64_t i = 0; i + 1 < s->note_count; i += 2)
    if (strcmp(s->notes[i], key) == 0) return s->notes[i + 1];
  return NULL;
}

static safetensor *new_item(safetensors *s) {
  s->items = lab_grow(s->items, &s->capacity, s->count + 1, sizeof *s->items);
  memset(&s->items[s->count], 0, sizeof *s->items);
  return &s->items[s->count++];
}

void safetensors_add(safetensors *s, const char *name, const char *dtype, int64_t rows, int64_t cols, const void *data,
                     int64_t element_bytes) {
  safetensor *item = new_item(s);
  snprintf(item->name, sizeof item->name, "%s", name);
  snprintf(item->dtype, sizeof item->dtype, "%s", dtype);
  item->rows = rows;
  item->cols = cols;
  item->data = data;
  item->bytes = rows * cols * element_bytes;
}

const safetensor *safetensors_find(const safetensors *s, const char *name) {
  for (int64_t i = 0; i < s->count; i++)
    if (strcmp(s->items[i].name, name) == 0) return &s->items[i];
  return NULL;
}

void safetensors_free(safetensors *s) {
  for (int64_t i = 0; i < s->note_count; i++)
    free(s->notes[i]);
  free(s->notes);
  free(s->items);
  free(s->file);
  *s = (safetensors){0};
}

/* ---- writing ---- */

static void put_string(FILE *out, const char *text) {
  putc('"', out);
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') putc('\\', out);
    if ((unsigned char)*text < 0x20)
      fprintf(out, "\\u%04x", (unsigned)*text);
    else
      putc(*text, out);
  }
  putc('"', out);
}

/* The header's length is a multiple of 8, so that the data is aligned. */
static char *make_header(const safetensors *s, size_t *length) {
  char *text = NULL;
  FILE *out = open_memstream(&text, length);
  if (out == NULL) return NULL;
  fputs("{\"__metadata__\":{", out);
  for (int64_t i = 0; i + 1 < s->note_count; i += 2) {
    if (i > 0) putc(',', out);
    put_string(out, s->notes[i]);
    putc(':', out);
    put_string(out, s->notes[i + 1]);
  }
  putc('}', out);
  int64_t offset = 0;
  for (int64_t i = 0; i < s->count; i++) {
    const safetensor *item = &s->items[i];
    putc(',', out);
    put_string(out, item->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}",
            item->dtype, item->rows, item->cols, offset, offset + item->bytes);
    offset += item->bytes;
  }
  putc('}', out);
  for (long at = ftell(out); at % 8 != 0; at++)
    putc(' ', out);
  fclose(out);
  return text;
}

static int write_to(const safetensors *s, FILE *file) {
  size_t length = 0;
  char *header = make_header(s, &length);
  if (header == NULL) return -1;
  unsigned char size[8];
  for (int i = 0; i < 8; i++)
    size[i] = (unsigned char)((uint64_t)length >> (8 * i));
  int good = fwrite(size, 1, 8, file) == 8 && fwrite(header, 1, length, file) == length;
  free(header);
  for (int64_t i = 0; good && i < s->count; i++)
    good = fwrite(s->items[i].data, 1, (size_t)s->items[i].bytes, file) == (size_t)s->items[i].bytes;
  return good ? 0 : -1;
}

int safetensors_write(const safetensors *s, const char *path, lab_error *error) {
  char beside[1024];
  if (snprintf(beside, sizeof beside, "%s.part", path) >= (int)sizeof beside)
    return lab_fail(error, "%s: path too long", path);
  FILE *file = fopen(beside, "wb");
  if (file == NULL) return lab_fail(error, "%s: cannot be written", beside);
  int result = write_to(s, file);
  if (fclose(file) != 0) result = -1;
  if (result == 0 && rename(beside, path) != 0) result = -1;
  if (result != 0) {
    remove(beside);
    return lab_fail(error, "%s: writing failed", path);
  }
  return 0;
}

/* ---- reading: as much JSON as a header has ---- */

typedef struct cursor {
  const char *at, *end;
  int bad;
} cursor;

static void skip_space(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
    c->at++;
}

static int peek(cursor *c) {
  skip_space(c);
  return c->at < c->end ? (unsigned char)*c->at : -1;
}

static int accept(cursor *c, char wanted) {
  if (peek(c) != (unsigned char)wanted) return 0;
  c->at++;
  return 1;
}

static void expect(cursor *c, char wanted) {
  if (!accept(c, wanted)) c->bad = 1;
}

/* Escapes other than \" and \\ do not occur in names or in notes of ours; they are taken as the character itself. */
static void get_string(cursor *c, char *text, size_t size) {
  size_t length = 0;
  expect(c, '"');
  while (!c->bad && c->at < c->end && *c->at != '"') {
    if (*c->at == '\\' && c->at + 1 < c->end) c->at++;
    if (length + 1 < size) text[length++] = *c->at;
    c->at++;
  }
  text[length] = '\0';
  expect(c, '"');
}

static int64_t get_number(cursor *c) {
  int64_t value = 0;
  int digits = 0;
  for (skip_space(c); c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++, digits++)
    if (digits < 18) value = value * 10 + (*c->at - '0');
  if (digits == 0 || digits > 18) c->bad = 1;
  return value;
}

/* Up to `most` numbers; returns how many there were. */
static int get_numbers(cursor *c, int64_t *numbers, int most) {
  int count = 0;
  expect(c, '[');
  if (accept(c, ']')) return 0;
  do {
    int64_t number = get_number(c);
    if (count < most) numbers[count] = number;
    count++;
  } while (!c->bad && accept(c, ','));
  expect(c, ']');
  return count;
}

static void get_notes(safetensors *s, cursor *c) {
  char key[64], value[2048];
  expect(c, '{');
  if (accept(c, '}')) return;
  do {
    get_string(c, key, sizeof key);
    expect(c, ':');
    get_string(c, value, sizeof value);
    if (!c->bad) safetensors_note(s, key, value);
  } while (!c->bad && accept(c, ','));
  expect(c, '}');
}

static int64_t element_bytes(const char *dtype) {
  return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 0;
}

static void get_tensor(safetensors *s, cursor *c, const char *name, const char *data, int64_t data_bytes) {
  int64_t shape[2] = {1, 1}, offsets[2] = {0, 0};
  int dimensions = 0, offset_count = 0;
  safetensor *item = new_item(s);
  snprintf(item->name, sizeof item->name, "%s", name);
  expect(c, '{');
  do {
    char key[32];
    get_string(c, key, sizeof key);
    expect(c, ':');
    if (strcmp(key, "dtype") == 0)
      get_string(c, item->dtype, sizeof item->dtype);
    else if (strcmp(key, "shape") == 0)
      dimensions = get_numbers(c, shape, 2);
    else if (strcmp(key, "data_offsets") == 0)
      offset_count = get_numbers(c, offsets, 2);
    else
      c->bad = 1;
  } while (!c->bad && accept(c, ','));
  expect(c, '}');
  item->rows = dimensions == 2 ? shape[0] : 1;
  item->cols = dimensions == 2 ? shape[1] : shape[0];
  item->bytes = offsets[1] - offsets[0];
  int64_t element = element_bytes(item->dtype);
  int whole = dimensions >= 1 && dimensions <= 2 && offset_count == 2 && element > 0 && offsets[0] <= offsets[1] &&
              offsets[1] <= data_bytes && (item->cols == 0 || item->rows <= data_bytes / element / item->cols) &&
              item->rows * item->cols * element == item->bytes;
  if (!whole) {
    c->bad = 1;
    return;
  }
  item->data = data + offsets[0];
}

int safetensors_read(safetensors *s, const char *path, lab_error *error) {
  int64_t size = 0;
  if (lab_read_file(&s->file, &size, path, error) < 0) return -1;
  uint64_t header = 0;
  for (int i = 0; i < 8 && size >= 8; i++)
    header |= (uint64_t)(unsigned char)s->file[i] << (8 * i);
  if (size < 8 || header > (uint64_t)size - 8) return lab_fail(error, "%s: not a safetensors file", path);
  cursor c = {s->file + 8, s->file + 8 + header, 0};
  expect(&c, '{');
  do {
    char name[96];
    get_string(&c, name, sizeof name);
    expect(&c, ':');
    if (c.bad) break;
    if (strcmp(name, "__metadata__") == 0)
      get_notes(s, &c);
    else
      get_tensor(s, &c, name, c.end, size - 8 - (int64_t)header);
  } while (!c.bad && accept(&c, ','));
  expect(&c, '}');
  if (c.bad) return lab_fail(error, "%s: malformed safetensors header", path);
  return 0;
}
