/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold little-endian numbers and are used as they are");

enum { HEADER_MAX = 1 << 20, FIRST_CHUNK = 1 << 24 };

typedef struct reader {
  FILE *file;
  char *reason;
  size_t reason_size;
} reader;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static int
fail(const reader *r, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(r->reason, r->reason_size, format, arguments);
  va_end(arguments);
  for (char *c = r->reason; *c; c++) /* parts of a broken header may be in it */
    if (*c < 0x20 || *c > 0x7e) *c = '?';
  return -1;
}

/* ---- Sizes ---- */

int npy_measure(npy_array *array) {
  int64_t count = 1, most = INT64_MAX / (int64_t)rms_dtype_size(array->dtype);
  int empty = 0;
  for (int i = 0; i < array->dims; i++) {
    int64_t size = array->shape[i];
    if (size == 0) {
      empty = 1;
      continue;
    }
    if (count > most / size) return -1;
    count *= size;
  }
  array->count = empty ? 0 : count;
  array->bytes = (size_t)array->count * rms_dtype_size(array->dtype);
  return 0;
}

int npy_create(npy_array *array, rms_dtype dtype, int dims, const int64_t *shape) {
  *array = (npy_array){.dtype = dtype, .dims = dims};
  if (dims) memcpy(array->shape, shape, (size_t)dims * sizeof *shape);
  if (npy_measure(array)) return -1;
  array->data = calloc(array->bytes ? array->bytes : 1, 1);
  return array->data ? 0 : -1;
}

void npy_free(npy_array *array) {
  free(array->data);
  array->data = NULL;
}

void npy_shape_text(const npy_array *array, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "(");
  for (int i = 0; i < array->dims && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
  if (used < size) snprintf(text + used, size - used, "%s)", array->dims == 1 ? "," : "");
}

/* ---- The header: a Python dictionary ---- */

static const char *skip_space(const char *at) {
  while (*at == ' ' || *at == '\t' || *at == '\n')
    at++;
  return at;
}

/* Moves past a token; NULL stays NULL, so that a chain of these needs one check. */
static const char *expect(const char *at, char token) {
  if (!at) return NULL;
  at = skip_space(at);
  return *at == token ? at + 1 : NULL;
}

/* A quoted string without escapes. */
static const char *parse_string(const char *at, char *text, size_t size) {
  at = skip_space(at);
  char quote = *at++;
  if (quote != '\'' && quote != '"') return NULL;
  const char *end = strchr(at, quote);
  if (!end || (size_t)(end - at) >= size || memchr(at, '\\', (size_t)(end - at))) return NULL;
  memcpy(text, at, (size_t)(end - at));
  text[end - at] = 0;
  return end + 1;
}

static int parse_type(const reader *r, const char *descr, rms_dtype *dtype) {
  static const struct {
    const char *name;
    rms_dtype dtype;
  } types[] = {{"<f4", RMS_F32},  {"<f8", RMS_F64}, {"<f2", RMS_F16},      {"<V2", RMS_BF16},
               {"|V2", RMS_BF16}, {"V2", RMS_BF16}, {"bfloat16", RMS_BF16}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcmp(descr, types[i].name) == 0) {
      *dtype = types[i].dtype;
      return 0;
    }
  if (descr[0] == '>') return fail(r, "big-endian data (%s): save it with .astype('<f4') or the like", descr);
  if (strchr(descr, 'O')) return fail(r, "holds Python objects, not numbers");
  return fail(r, "data type '%.32s' is none of float32, float64, float16 and bfloat16", descr);
}

static const char *parse_descr(const reader *r, const char *at, rms_dtype *dtype) {
  char descr[64];
  at = skip_space(at);
  if (*at == '[') {
    fail(r, "holds records, not plain numbers");
    return NULL;
  }
  at = parse_string(at, descr, sizeof descr);
  if (!at) {
    fail(r, "bad header: the data type cannot be read");
    return NULL;
  }
  return parse_type(r, descr, dtype) ? NULL : at;
}

static const char *parse_order(const reader *r, const char *at) {
  at = skip_space(at);
  if (strncmp(at, "False", 5) == 0) return at + 5;
  if (strncmp(at, "True", 4) == 0)
    fail(r, "Fortran order: save it with numpy.ascontiguousarray");
  else
    fail(r, "bad header: fortran_order is neither True nor False");
  return NULL;
}

static const char *parse_shape(const reader *r, const char *at, npy_array *array) {
  at = expect(at, '(');
  if (at) at = skip_space(at);
  while (at && *at != ')') {
    char *end;
    if (array->dims == NPY_DIMS_MAX || *at < '0' || *at > '9') {
      at = NULL;
      break;
    }
    errno = 0;
    long long size = strtoll(at, &end, 10);
    if (errno) {
      fail(r, "the shape overflows 64 bits");
      return NULL;
    }
    array->shape[array->dims++] = size;
    at = skip_space(end);
    if (*at == ',')
      at = skip_space(at + 1);
    else if (*at != ')' || array->dims == 1) /* (3) is a number in Python, not a shape */
      at = NULL;
  }
  if (!at) {
    fail(r, "bad header: the shape cannot be read");
    return NULL;
  }
  return at + 1;
}

/* Each key once, in any order. */
static int parse_header(const reader *r, const char *text, npy_array *array) {
  enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
  int seen = 0;
  const char *at = expect(text, '{');
  while (at && *(at = skip_space(at)) != '}') {
    char key[32];
    at = expect(parse_string(at, key, sizeof key), ':');
    if (!at) break;
    int which = strcmp(key, "descr") == 0           ? DESCR
                : strcmp(key, "fortran_order") == 0 ? ORDER
                : strcmp(key, "shape") == 0         ? SHAPE
                                                    : 0;
    if (!which || seen & which) return fail(r, "bad header: key '%s'", key);
    seen |= which;
    at = which == DESCR   ? parse_descr(r, at, &array->dtype)
         : which == ORDER ? parse_order(r, at)
                          : parse_shape(r, at, array);
    if (!at) return -1;
    at = skip_space(at);
    if (*at == ',')
      at++;
    else if (*at != '}')
      at = NULL;
  }
  if (!at || *skip_space(at + 1)) return fail(r, "bad header: not a dictionary of descr, fortran_order and shape");
  if (seen != (DESCR | ORDER | SHAPE)) return fail(r, "bad header: descr, fortran_order or shape is missing");
  if (npy_measure(array)) return fail(r, "the shape overflows 64 bits");
  return 0;
}

/* ---- The file ---- */

static int read_exactly(const reader *r, void *data, size_t bytes, const char *what) {
  if (fread(data, 1, bytes, r->file) == bytes) return 0;
  if (ferror(r->file)) return fail(r, "%s", strerror(errno));
  return fail(r, "truncated: the file ends in its %s", what);
}

static int read_header(const reader *r, npy_array *array) {
  unsigned char start[12];
  size_t got = fread(start, 1, 8, r->file);
  if (ferror(r->file)) return fail(r, "%s", strerror(errno));
  if (got < 6 || memcmp(start, "\x93NUMPY", 6) != 0) return fail(r, "not a .npy file");
  if (got < 8) return fail(r, "truncated: the file ends in its header");
  if (start[6] < 1 || start[6] > 3 || start[7] != 0)
    return fail(r, "format version %d.%d is unknown", start[6], start[7]);
  size_t length_bytes = start[6] == 1 ? 2 : 4, length = 0;
  if (read_exactly(r, start + 8, length_bytes, "header")) return -1;
  for (size_t i = length_bytes; i-- > 0;)
    length = length << 8 | start[8 + i];
  if (length > HEADER_MAX) return fail(r, "bad header: %zu bytes long", length);
  char *text = malloc(length + 1);
  if (!text) return fail(r, "not enough memory");
  int code = read_exactly(r, text, length, "header");
  text[length] = 0;
  if (code == 0 && strlen(text) != length) code = fail(r, "bad header: a zero byte in it");
  if (code == 0) code = parse_header(r, text, array);
  free(text);
  return code;
}

/* For a regular file the sizes are compared before memory is asked for: a bad header must not ask for terabytes. */
static int check_file_size(const reader *r, const npy_array *array, int *known) {
  struct stat status;
  if (fstat(fileno(r->file), &status) != 0) return fail(r, "%s", strerror(errno));
  *known = S_ISREG(status.st_mode);
  if (!*known) return 0;
  long at = ftell(r->file);
  if (at < 0) return fail(r, "%s", strerror(errno));
  unsigned long long rest = (unsigned long long)(status.st_size - at);
  if (rest < array->bytes) return fail(r, "truncated: %llu bytes of data, its shape needs %zu", rest, array->bytes);
  if (rest > array->bytes) return fail(r, "trailing bytes after the data: %llu", rest - array->bytes);
  return 0;
}

static int read_data(const reader *r, npy_array *array) {
  int size_known = 0;
  if (check_file_size(r, array, &size_known)) return -1;
  size_t have = 0, capacity = size_known || array->bytes < FIRST_CHUNK ? array->bytes : FIRST_CHUNK;
  for (;;) {
    void *larger = realloc(array->data, capacity ? capacity : 1);
    if (!larger) return fail(r, "not enough memory for %zu bytes", capacity);
    array->data = larger;
    have += fread((char *)array->data + have, 1, capacity - have, r->file);
    if (ferror(r->file)) return fail(r, "%s", strerror(errno));
    if (have < capacity) return fail(r, "truncated: %zu bytes of data, its shape needs %zu", have, array->bytes);
    if (have == array->bytes) break;
    capacity = array->bytes / 2 < capacity ? array->bytes : 2 * capacity;
  }
  if (fgetc(r->file) != EOF) return fail(r, "trailing bytes after the data");
  return 0;
}

int npy_read(const char *path, npy_array *array, char *reason, size_t reason_size) {
  int standard = strcmp(path, "-") == 0;
  reader r = {standard ? stdin : fopen(path, "rb"), reason, reason_size};
  *array = (npy_array){0};
  if (!r.file) return fail(&r, "%s", strerror(errno));
  int code = read_header(&r, array);
  if (code == 0) code = read_data(&r, array);
  if (!standard) fclose(r.file);
  if (code) npy_free(array);
  return code;
}
