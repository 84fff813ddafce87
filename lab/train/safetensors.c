/* SPDX-License-Identifier: MIT */
#include "train/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

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

/* The header, padded with spaces to a multiple of 8 bytes, so that the data is aligned; free it. */
static char *make_header(const safetensors *s, size_t *length) {
  json_t *header = json_object(), *notes = json_object();
  for (int64_t i = 0; i + 1 < s->note_count; i += 2)
    json_object_set_new(notes, s->notes[i], json_string(s->notes[i + 1]));
  json_object_set_new(header, "__metadata__", notes);
  json_int_t offset = 0;
  for (int64_t i = 0; i < s->count; i++) {
    const safetensor *item = &s->items[i];
    json_int_t end = offset + item->bytes;
    json_object_set_new(header, item->name,
                        json_pack("{s: s, s: [I, I], s: [I, I]}", "dtype", item->dtype, "shape", (json_int_t)item->rows,
                                  (json_int_t)item->cols, "data_offsets", offset, end));
    offset = end;
  }
  *length = (json_dumpb(header, NULL, 0, JSON_COMPACT) + 7) / 8 * 8;
  char *text = lab_alloc(*length + 1, 1);
  memset(text, ' ', *length);
  json_dumpb(header, text, *length, JSON_COMPACT);
  json_decref(header);
  return text;
}

int safetensors_write(const safetensors *s, const char *path, lab_error *error) {
  lab_file file;
  if (lab_file_open(&file, path, error) < 0) return -1;
  size_t length = 0;
  char *header = make_header(s, &length);
  unsigned char size[8];
  for (int i = 0; i < 8; i++)
    size[i] = (unsigned char)((uint64_t)length >> (8 * i));
  int good = fwrite(size, 1, 8, file.stream) == 8 && fwrite(header, 1, length, file.stream) == length;
  free(header);
  for (int64_t i = 0; good && i < s->count; i++)
    good = fwrite(s->items[i].data, 1, (size_t)s->items[i].bytes, file.stream) == (size_t)s->items[i].bytes;
  return lab_file_close(&file, good, error);
}

/* ---- reading ---- */

static int64_t element_bytes(const char *dtype) {
  return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 0;
}

static int read_notes(safetensors *s, json_t *notes) {
  const char *key;
  json_t *value;
  if (!json_is_object(notes)) return -1;
  json_object_foreach(notes, key, value) {
    if (!json_is_string(value)) return -1;
    safetensors_note(s, key, json_string_value(value));
  }
  return 0;
}

/* One or two numbers of an array that has no others; returns how many, 0 if it is anything else. */
static int read_numbers(json_t *array, int64_t numbers[2]) {
  size_t count = json_array_size(array);
  if (count < 1 || count > 2) return 0;
  for (size_t i = 0; i < count; i++) {
    json_t *number = json_array_get(array, i);
    if (!json_is_integer(number) || json_integer_value(number) < 0) return 0;
    numbers[i] = json_integer_value(number);
  }
  return (int)count;
}

static int read_tensor(safetensors *s, const char *name, json_t *entry, const char *data, int64_t data_bytes) {
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  int64_t shape[2] = {0}, offsets[2] = {0};
  int dimensions = read_numbers(json_object_get(entry, "shape"), shape);
  if (!dtype || json_object_size(entry) != 3 || dimensions == 0 ||
      read_numbers(json_object_get(entry, "data_offsets"), offsets) != 2)
    return -1;
  safetensor *item = new_item(s);
  if (snprintf(item->name, sizeof item->name, "%s", name) >= (int)sizeof item->name) return -1;
  if (snprintf(item->dtype, sizeof item->dtype, "%s", dtype) >= (int)sizeof item->dtype) return -1;
  item->rows = dimensions == 2 ? shape[0] : 1;
  item->cols = dimensions == 2 ? shape[1] : shape[0];
  item->bytes = offsets[1] - offsets[0];
  int64_t element = element_bytes(item->dtype);
  int whole = element > 0 && offsets[0] <= offsets[1] && offsets[1] <= data_bytes &&
              (item->cols == 0 || item->rows <= data_bytes / element / item->cols) &&
              item->rows * item->cols * element == item->bytes;
  item->data = data + offsets[0];
  return whole ? 0 : -1;
}

static int read_header(safetensors *s, json_t *header, const char *data, int64_t data_bytes) {
  const char *name;
  json_t *entry;
  if (!json_is_object(header)) return -1;
  json_object_foreach(header, name, entry) {
    int bad = strcmp(name, "__metadata__") == 0 ? read_notes(s, entry) : read_tensor(s, name, entry, data, data_bytes);
    if (bad) return -1;
  }
  return 0;
}

int safetensors_read(safetensors *s, const char *path, lab_error *error) {
  int64_t size = 0;
  if (lab_read_file(&s->file, &size, path, error) < 0) return -1;
  uint64_t length = 0;
  for (int i = 0; i < 8 && size >= 8; i++)
    length |= (uint64_t)(unsigned char)s->file[i] << (8 * i);
  if (size < 8 || length > (uint64_t)size - 8) return lab_fail(error, "%s: not a safetensors file", path);
  json_t *header = json_loadb(s->file + 8, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
  int result = read_header(s, header, s->file + 8 + length, size - 8 - (int64_t)length);
  json_decref(header);
  return result < 0 ? lab_fail(error, "%s: malformed safetensors header", path) : 0;
}
