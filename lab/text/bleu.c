/* SPDX-License-Identifier: MIT */
#include "text/bleu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- 13a tokenisation ---- */
/* The rules of mteval-v13a, each a pass over the line. A pass consumes what it matches, as a regular expression does:
 * in "a..b" the second rule sees "a." and then ".", not ".." */

typedef struct buffer {
  char *text;
  int64_t length, capacity;
} buffer;

static void put(buffer *out, const char *bytes, size_t length) {
  out->text = lab_grow(out->text, &out->capacity, out->length + (int64_t)length + 1, 1);
  memcpy(out->text + out->length, bytes, length);
  out->length += (int64_t)length;
  out->text[out->length] = 0;
}

static void put_char(buffer *out, char c) {
  put(out, &c, 1);
}

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}
static int is_stop(char c) {
  return c == '.' || c == ',';
}
/* All of ASCII's punctuation but ' , - . */
static int is_symbol(char c) {
  return c && strchr("{|}~[\\]^_` !\"#$%&()*+:;<=>?@/", c) != NULL;
}

/* Bytes of the character at s. */
static size_t character(const char *s) {
  size_t length = 1;
  while (((unsigned char)s[length] & 0xc0) == 0x80)
    length++;
  return length;
}

/* Bytes of the white space at s, as Unicode defines it; 0 if there is none. */
static size_t white_space(const char *s) {
  static const char *const wide[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
                                     "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
  if (*s == ' ' || (*s >= '\t' && *s <= '\r') || (*s >= 0x1c && *s <= 0x1f)) return 1;
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (strncmp(s, wide[i], strlen(wide[i])) == 0) return strlen(wide[i]);
  int en_quad_to_hair_space =
      strncmp(s, "\xe2\x80", 2) == 0 && (unsigned char)s[2] >= 0x80 && (unsigned char)s[2] <= 0x8a;
  return en_quad_to_hair_space ? 3 : 0;
}

/* Entities and line ends; a space is put at both ends. */
static buffer normalise(const char *line) {
  static const char *const from[] = {"<skipped>", "-\n", "\n", "&quot;", "&amp;", "&lt;", "&gt;"};
  static const char *const to[] = {"", "", " ", "\"", "&", "<", ">"};
  char *text = lab_copy(line, strlen(line));
  for (size_t rule = 0; rule < sizeof from / sizeof *from; rule++) { /* in turn: "&amp;lt;" ends as "<" */
    buffer next = {0};
    put(&next, "", 0);
    for (const char *s = text; *s;) {
      if (strncmp(s, from[rule], strlen(from[rule])) == 0) {
        put(&next, to[rule], strlen(to[rule]));
        s += strlen(from[rule]);
      } else {
        put_char(&next, *s++);
      }
    }
    free(text);
    text = next.text;
  }
  buffer out = {0};
  put_char(&out, ' ');
  put(&out, text, strlen(text));
  put_char(&out, ' ');
  free(text);
  return out;
}

static buffer split_symbols(const char *text) {
  buffer out = {0};
  for (const char *s = text; *s; s++) {
    if (is_symbol(*s)) put_char(&out, ' ');
    put_char(&out, *s);
    if (is_symbol(*s)) put_char(&out, ' ');
  }
  return out;
}

/* A full stop or comma after anything but a digit. */
static buffer split_stop_after(const char *text) {
  buffer out = {0};
  for (const char *s = text; *s;) {
    size_t first = character(s);
    put(&out, s, first);
    if (!is_digit(*s) && is_stop(s[first])) {
      put_char(&out, ' ');
      put_char(&out, s[first]);
      put_char(&out, ' ');
      first++;
    }
    s += first;
  }
  return out;
}

/* A full stop or comma before anything but a digit. */
static buffer split_stop_before(const char *text) {
  buffer out = {0};
  for (const char *s = text; *s;) {
    if (is_stop(*s) && s[1] && !is_digit(s[1])) {
      size_t next = character(s + 1);
      put_char(&out, ' ');
      put_char(&out, *s);
      put_char(&out, ' ');
      put(&out, s + 1, next);
      s += 1 + next;
    } else {
      put_char(&out, *s++);
    }
  }
  return out;
}

/* A dash after a digit. */
static buffer split_dash(const char *text) {
  buffer out = {0};
  for (const char *s = text; *s; s++) {
    put_char(&out, *s);
    if (is_digit(*s) && s[1] == '-') {
      put(&out, " - ", 3);
      s++;
    }
  }
  return out;
}

static buffer join_tokens(const char *text) {
  buffer out = {0};
  put(&out, "", 0);
  int between = 0;
  for (const char *s = text; *s;) {
    size_t space = white_space(s);
    if (space) {
      between = 1;
      s += space;
      continue;
    }
    if (between && out.length > 0) put_char(&out, ' ');
    between = 0;
    put_char(&out, *s++);
  }
  return out;
}

char *lab_bleu_tokenize(const char *line) {
  static buffer (*const passes[])(const char *) = {split_symbols, split_stop_after, split_stop_before, split_dash,
                                                   join_tokens};
  buffer text = normalise(line);
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
    buffer next = passes[i](text.text);
    free(text.text);
    text = next;
  }
  return text.text;
}

/* ---- n-grams ---- */

typedef struct tokens {
  char *text;
  uint64_t *hash; /* of each token */
  int64_t count;
} tokens;

static tokens read_tokens(const char *line) {
  tokens out = {.text = lab_bleu_tokenize(line)};
  int64_t capacity = 0;
  for (const char *s = out.text; *s;) {
    size_t length = strcspn(s, " ");
    out.hash = lab_grow(out.hash, &capacity, out.count + 1, sizeof *out.hash);
    out.hash[out.count++] = lab_hash(LAB_HASH_START, s, length);
    s += length + (s[length] == ' ');
  }
  return out;
}

static void free_tokens(tokens *list) {
  free(list->text);
  free(list->hash);
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Sorted hashes of all n-grams; *count of them. */
static uint64_t *ngrams(const tokens *list, int n, int64_t *count) {
  *count = list->count >= n ? list->count - n + 1 : 0;
  uint64_t *grams = lab_alloc((size_t)*count, sizeof *grams);
  for (int64_t i = 0; i < *count; i++)
    grams[i] = lab_hash(LAB_HASH_START, list->hash + i, (size_t)n * sizeof *list->hash);
  qsort(grams, (size_t)*count, sizeof *grams, by_value);
  return grams;
}

/* How many elements two sorted lists share, counted with multiplicity: the clipped matches. */
static int64_t shared(const uint64_t *a, int64_t a_count, const uint64_t *b, int64_t b_count) {
  int64_t i = 0, j = 0, found = 0;
  while (i < a_count && j < b_count) {
    if (a[i] == b[j]) {
      found++;
      i++;
      j++;
    } else if (a[i] < b[j]) {
      i++;
    } else {
      j++;
    }
  }
  return found;
}

void lab_bleu_add(lab_bleu_counts *counts, const char *hypothesis, const char *reference) {
  tokens h = read_tokens(hypothesis), r = read_tokens(reference);
  for (int n = 1; n <= 4; n++) {
    int64_t h_count, r_count;
    uint64_t *h_grams = ngrams(&h, n, &h_count), *r_grams = ngrams(&r, n, &r_count);
    counts->total[n - 1] += h_count;
    counts->match[n - 1] += shared(h_grams, h_count, r_grams, r_count);
    free(h_grams);
    free(r_grams);
  }
  counts->hypothesis_length += h.count;
  counts->reference_length += r.count;
  free_tokens(&h);
  free_tokens(&r);
}

lab_bleu lab_bleu_score(const lab_bleu_counts *counts) {
  lab_bleu bleu = {.hypothesis_length = counts->hypothesis_length, .reference_length = counts->reference_length};
  double h = (double)counts->hypothesis_length, r = (double)counts->reference_length;
  bleu.brevity = h >= r ? 1 : h > 0 ? exp(1 - r / h) : 0;
  if (counts->match[0] == 0) return bleu; /* nothing shared at all: 0, whatever the smoothing */
  double log_sum = 0, smooth = 1;
  int orders = 0;
  for (int n = 0; n < 4 && counts->total[n] > 0; n++) {
    double total = (double)counts->total[n];
    if (counts->match[n] == 0) smooth *= 2;
    bleu.precision[n] = counts->match[n] > 0 ? 100 * (double)counts->match[n] / total : 100 / (smooth * total);
    log_sum += log(bleu.precision[n]);
    orders++;
  }
  /* Hypotheses too short for any 4-gram score 0, as a corpus score must not rest on fewer orders than four. */
  bleu.score = orders == 4 ? bleu.brevity * exp(log_sum / 4) : 0;
  return bleu;
}

lab_bleu lab_bleu_corpus(const char *const *hypotheses, const char *const *references, int64_t count) {
  lab_bleu_counts counts = {0};
  for (int64_t i = 0; i < count; i++)
    lab_bleu_add(&counts, hypotheses[i], references[i]);
  return lab_bleu_score(&counts);
}
