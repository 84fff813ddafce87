/* SPDX-License-Identifier: MIT
 *
 * What the tests of the command need and a shell has not: .npy files written and shown (independently of the command's
 * own code), and a judge of JSON. tool make FILE TYPE SHAPE VALUE...   TYPE: f32 f64 f16 bf16; SHAPE: 2,4 or "" ;
 * values are repeated to fill the shape tool raw FILE VERSION HEADER BYTES   any header, then so many zero bytes tool
 * show FILE...                    type, shape and values of a file that `make` or the command wrote tool json exit code
 * 0 if standard input is one JSON document, with its keys on stdout */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void die(const char *what) {
  fprintf(stderr, "tool: %s\n", what);
  exit(1);
}

/* ---- 16-bit numbers: values that the type holds exactly ---- */

static uint16_t to_bf16(double value) {
  float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  if (bits & 0xffff) die("value is not exact in bf16");
  return (uint16_t)(bits >> 16);
}

static double from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

static double from_f16(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double value = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                 : exponent == 0 ? ldexp(fraction, -24)
                                 : ldexp(1024 + fraction, exponent - 25);
  return half >> 15 ? -value : value;
}

static uint16_t to_f16(double value) {
  for (uint32_t half = 0; half < 0x10000; half++)
    if (from_f16((uint16_t)half) == value && !signbit(value) == !(half >> 15)) return (uint16_t)half;
  die("value is not exact in f16");
}

static size_t type_size(const char *type) {
  return strcmp(type, "f64") == 0 ? 8 : strcmp(type, "f32") == 0 ? 4 : 2;
}

static void put_value(FILE *file, const char *type, double value) {
  float single = (float)value;
  uint16_t half = 0;
  if (strcmp(type, "f64") == 0)
    fwrite(&value, sizeof value, 1, file);
  else if (strcmp(type, "f32") == 0)
    fwrite(&single, sizeof single, 1, file);
  else {
    half = strcmp(type, "bf16") == 0 ? to_bf16(value) : to_f16(value);
    fwrite(&half, sizeof half, 1, file);
  }
}

static double take_value(const char *type, const char *data) {
  double value;
  float single;
  uint16_t half;
  memcpy(&half, data, sizeof half);
  if (strcmp(type, "f64") == 0) {
    memcpy(&value, data, sizeof value);
    return value;
  }
  if (strcmp(type, "f32") == 0) {
    memcpy(&single, data, sizeof single);
    return (double)single;
  }
  return strcmp(type, "bf16") == 0 ? from_bf16(half) : from_f16(half);
}

/* ---- Files ---- */

static void put_header(FILE *file, int version, const char *header) {
  size_t length = strlen(header) + 1;
  fprintf(file, "\x93NUMPY%c%c", version, 0);
  for (int i = 0; i < (version == 1 ? 2 : 4); i++)
    fputc((int)(length >> 8 * i & 255), file);
  fprintf(file, "%s\n", header);
}

static int make(int argc, char **argv) {
  const char *type = argv[1];
  const char *descr = strcmp(type, "f64") == 0   ? "<f8"
                      : strcmp(type, "f32") == 0 ? "<f4"
                      : *type == 'b'             ? "<V2"
                                                 : "<f2";
  char header[256];
  long count = 1;
  for (const char *at = argv[2]; *at; at += strspn(at, ",")) {
    char *end;
    count *= strtol(at, &end, 10);
    at = end;
  }
  snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", descr, argv[2],
           *argv[2] && !strchr(argv[2], ',') ? "," : "");
  FILE *file = fopen(argv[0], "wb");
  if (!file) die("cannot write");
  put_header(file, 1, header);
  for (long i = 0; i < count; i++)
    put_value(file, type, strtod(argv[3 + i % (argc - 3)], NULL));
  return fclose(file) != 0;
}

static int raw(char **argv) {
  FILE *file = fopen(argv[0], "wb");
  if (!file) die("cannot write");
  put_header(file, atoi(argv[1]), argv[2]);
  for (long i = 0; i < atol(argv[3]); i++)
    fputc(0, file);
  return fclose(file) != 0;
}

static void show(const char *path) {
  static char data[1 << 16];
  FILE *file = fopen(path, "rb");
  if (!file) {
    printf("%s: missing\n", path);
    return;
  }
  size_t bytes = fread(data, 1, sizeof data - 1, file);
  fclose(file);
  size_t start = 10 + (size_t)(unsigned char)data[8] + 256 * (size_t)(unsigned char)data[9];
  if (bytes < start || start % 64 || memcmp(data, "\x93NUMPY\x01", 8) != 0) die("not as NumPy writes it");
  const char *descr = strstr(data + 10, "'descr': '") + 10, *shape = strchr(data + 10, '(');
  const char *type = strncmp(descr, "<f8", 3) == 0   ? "f64"
                     : strncmp(descr, "<f4", 3) == 0 ? "f32"
                     : strncmp(descr, "<f2", 3) == 0 ? "f16"
                                                     : "bf16";
  printf("%s: %s %.*s", path, type, (int)(strchr(shape, ')') - shape + 1), shape);
  for (size_t at = start; at + type_size(type) <= bytes; at += type_size(type))
    printf(" %.9g", take_value(type, data + at));
  putchar('\n');
}

/* ---- JSON ---- */

static int next_char(void) {
  int c = getchar();
  while (isspace(c))
    c = getchar();
  return c;
}

static void json_string(int print) {
  for (int c; (c = getchar()) != '"';) {
    if (c == EOF || c < 0x20) die("JSON: bad string");
    if (c == '\\' && !strchr("\"\\/bfnrtu", c = getchar())) die("JSON: bad escape");
    if (print) putchar(c);
  }
  if (print) putchar('\n');
}

static void json_number(int c) {
  char text[64];
  int length = 0;
  for (; c != EOF && strchr("+-.0123456789eE", c) && length < 63; c = getchar())
    text[length++] = (char)c;
  ungetc(c, stdin);
  text[length] = 0;
  char *end;
  double value = strtod(text, &end);
  if (length == 0 || *end || !isfinite(value)) die("JSON: bad number");
}

static void json_word(const char *word) {
  while (*word)
    if (getchar() != *word++) die("JSON: bad word");
}

static void json_value(int c, int depth);

/* The keys of the outermost object are printed. */
static void json_list(int depth, int close, int keys) {
  int c = next_char();
  if (c == close) return;
  for (;; c = next_char()) {
    if (keys) {
      if (c != '"') die("JSON: key expected");
      json_string(depth == 0);
      if (next_char() != ':') die("JSON: colon expected");
      c = next_char();
    }
    json_value(c, depth + 1);
    c = next_char();
    if (c == close) return;
    if (c != ',') die("JSON: comma expected");
  }
}

static void json_value(int c, int depth) {
  switch (c) {
  case '{':
    json_list(depth, '}', 1);
    break;
  case '[':
    json_list(depth, ']', 0);
    break;
  case '"':
    json_string(0);
    break;
  case 't':
    json_word("rue");
    break;
  case 'f':
    json_word("alse");
    break;
  case 'n':
    json_word("ull");
    break;
  default:
    json_number(c);
  }
}

int main(int argc, char **argv) {
  if (argc > 5 && strcmp(argv[1], "make") == 0) return make(argc - 2, argv + 2);
  if (argc == 6 && strcmp(argv[1], "raw") == 0) return raw(argv + 2);
  if (argc > 2 && strcmp(argv[1], "show") == 0) {
    for (int i = 2; i < argc; i++)
      show(argv[i]);
    return 0;
  }
  if (argc != 2 || strcmp(argv[1], "json") != 0) die("bad usage");
  json_value(next_char(), 0);
  if (next_char() != EOF) die("JSON: text after the document");
  return 0;
}
