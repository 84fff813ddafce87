/* SPDX-License-Identifier: MIT
 *
 * Cloze questions: text -> words and sentences -> names -> questions -> ids.
 */
#include "base/strings.h"
#include "data/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word_count {
  int64_t all, inside, capital; /* occurrences; those not first in a sentence; those of them with a capital */
  int32_t id;                   /* in the vocabulary */
} word_count;

typedef struct sentence {
  int64_t start, count; /* in `tokens` */
} sentence;

typedef struct reading {
  lab_strings words; /* in lower case */
  word_count *counts;
  int64_t counts_capacity;
  int32_t *tokens;
  int64_t token_count, token_capacity;
  sentence *sentences;
  int64_t sentence_count, sentence_capacity;
} reading;

/* ---- Words and sentences ---- */

static int is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

static int is_word_char(char c) {
  return is_upper(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80 || c == '\'';
}

enum { LONGEST_WORD = 63 };

static void add_token(reading *r, const char *text, size_t length, int first) {
  char lower[LONGEST_WORD];
  if (length > LONGEST_WORD) length = LONGEST_WORD;
  for (size_t i = 0; i < length; i++)
    lower[i] = is_upper(text[i]) ? (char)(text[i] | 0x20) : text[i];
  int64_t known = r->words.count, word = lab_strings_add(&r->words, lower, length);
  r->counts = lab_grow(r->counts, &r->counts_capacity, r->words.count, sizeof *r->counts);
  if (word == known) r->counts[word] = (word_count){0};
  r->counts[word].all++;
  r->counts[word].inside += !first;
  r->counts[word].capital += !first && is_upper(*text);
  r->tokens = lab_grow(r->tokens, &r->token_capacity, r->token_count + 1, sizeof *r->tokens);
  r->tokens[r->token_count++] = (int32_t)word;
}

static void end_sentence(reading *r, int64_t start) {
  if (r->token_count == start) return;
  r->sentences = lab_grow(r->sentences, &r->sentence_capacity, r->sentence_count + 1, sizeof *r->sentences);
  r->sentences[r->sentence_count++] = (sentence){start, r->token_count - start};
}

/* A sentence ends with . ! ? or an empty line. */
static void read_sentences(reading *r, const char *s) {
  int64_t start = 0;
  while (*s) {
    size_t length = 0;
    while (is_word_char(s[length]))
      length++;
    int ends = 0;
    if (length > 0) {
      add_token(r, s, length, r->token_count == start);
    } else {
      length = 1;
      ends = strchr(".!?", *s) != NULL || (s[0] == '\n' && s[1] == '\n');
      if (strchr(".!?,;:", *s)) add_token(r, s, 1, r->token_count == start);
    }
    s += length;
    if (ends) {
      end_sentence(r, start);
      start = r->token_count;
    }
  }
  end_sentence(r, start);
}

static int is_name(const reading *r, int32_t word) {
  const word_count *c = &r->counts[word];
  return c->inside > 0 && 2 * c->capital > c->inside && r->words.items[word].length >= 2;
}

/* ---- Vocabulary ---- */

typedef struct ranked {
  int64_t count, word;
} ranked;

static int by_count(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->count != y->count) return x->count > y->count ? -1 : 1;
  return (x->word > y->word) - (x->word < y->word);
}

static void name_vocabulary(lab_cloze *cloze, const reading *r, const ranked *order) {
  static const char *const marks[] = {"<pad>", "<unknown>", "<blank>"};
  cloze->words = lab_alloc((size_t)cloze->vocabulary, sizeof *cloze->words);
  int32_t words = LAB_CLOZE_ENTITY + cloze->entities;
  for (int32_t id = 0; id < cloze->vocabulary; id++) {
    char mark[32];
    if (id < LAB_CLOZE_ENTITY)
      snprintf(mark, sizeof mark, "%s", marks[id]);
    else
      snprintf(mark, sizeof mark, "@%" PRId32, id - LAB_CLOZE_ENTITY);
    const char *text = id < words ? mark : r->words.items[order[id - words].word].text;
    cloze->words[id] = lab_copy(text, strlen(text));
  }
}

static void make_vocabulary(lab_cloze *cloze, reading *r, int32_t limit) {
  ranked *order = lab_alloc((size_t)r->words.count, sizeof *order);
  for (int64_t i = 0; i < r->words.count; i++)
    order[i] = (ranked){r->counts[i].all, i};
  qsort(order, (size_t)r->words.count, sizeof *order, by_count);
  int32_t first = LAB_CLOZE_ENTITY + cloze->entities;
  for (int64_t i = 0; i < r->words.count; i++)
    r->counts[order[i].word].id = first + i < limit ? (int32_t)(first + i) : LAB_CLOZE_UNKNOWN;
  cloze->vocabulary = first + r->words.count < limit ? (int32_t)(first + r->words.count) : limit;
  name_vocabulary(cloze, r, order);
  free(order);
}

/* ---- Questions ---- */

enum { MOST_ENTITIES = 64 };

typedef struct candidates {
  int32_t words[256];
  int count;
} candidates;

static int index_of(const int32_t *words, int count, int32_t word) {
  for (int i = 0; i < count; i++)
    if (words[i] == word) return i;
  return -1;
}

static void add_names(candidates *out, const reading *r, const sentence *s) {
  for (int64_t i = s->start; i < s->start + s->count; i++) {
    int32_t word = r->tokens[i];
    int room = out->count < (int)(sizeof out->words / sizeof *out->words);
    if (room && is_name(r, word) && index_of(out->words, out->count, word) < 0) out->words[out->count++] = word;
  }
}

static void swap(int32_t *words, int64_t i, int64_t j) {
  int32_t word = words[i];
  words[i] = words[j];
  words[j] = word;
}

static void write_ids(lab_cloze *cloze, const reading *r, const sentence *s, const int32_t *marked, int32_t blank) {
  cloze->ids = lab_grow(cloze->ids, &cloze->ids_capacity, cloze->ids_count + s->count, sizeof *cloze->ids);
  for (int64_t i = s->start; i < s->start + s->count; i++) {
    int32_t word = r->tokens[i];
    int mark = index_of(marked, cloze->entities, word);
    cloze->ids[cloze->ids_count++] = word == blank ? LAB_CLOZE_BLANK
                                     : mark >= 0   ? LAB_CLOZE_ENTITY + mark
                                                   : r->counts[word].id;
  }
}

/* Makes the question whose passage is sentences first .. query-1, if they hold enough names. */
static void make_question(lab_cloze *cloze, const reading *r, int64_t first, int64_t query, lab_rng *rng) {
  candidates passage = {.count = 0}, asked = {.count = 0};
  for (int64_t i = first; i < query; i++)
    add_names(&passage, r, &r->sentences[i]);
  add_names(&asked, r, &r->sentences[query]);
  int shared = 0;
  for (int i = 0; i < asked.count; i++)
    if (index_of(passage.words, passage.count, asked.words[i]) >= 0) asked.words[shared++] = asked.words[i];
  if (shared == 0 || passage.count < cloze->entities) return;

  /* The answer first, then others at random; then all of them in a random order. */
  int32_t answer = asked.words[lab_rng_below(rng, shared)];
  swap(passage.words, 0, index_of(passage.words, passage.count, answer));
  for (int32_t i = 1; i < cloze->entities; i++)
    swap(passage.words, i, i + lab_rng_below(rng, passage.count - i));
  for (int32_t i = cloze->entities - 1; i > 0; i--)
    swap(passage.words, i, lab_rng_below(rng, i + 1));

  lab_question question = {.passage = cloze->ids_count,
                           .answer = index_of(passage.words, cloze->entities, answer),
                           .first_sentence = first,
                           .last_sentence = query};
  for (int64_t i = first; i < query; i++)
    write_ids(cloze, r, &r->sentences[i], passage.words, -1);
  question.query = cloze->ids_count;
  question.passage_length = (int32_t)(question.query - question.passage);
  write_ids(cloze, r, &r->sentences[query], passage.words, answer);
  question.query_length = (int32_t)(cloze->ids_count - question.query);
  cloze->items = lab_grow(cloze->items, &cloze->capacity, cloze->count + 1, sizeof *cloze->items);
  cloze->items[cloze->count++] = question;
}

static void make_questions(lab_cloze *cloze, const reading *r, const lab_cloze_options *options,
                           int64_t passage_words) {
  lab_rng rng = lab_rng_make(options->seed, lab_hash(LAB_HASH_START, "cloze", 5));
  int64_t first = 0, words = 0;
  for (int64_t query = 0; query < r->sentence_count; query++) {
    int64_t length = r->sentences[query].count;
    int usable = length >= 3 && length <= 60 && words >= passage_words / 2 && words <= 2 * passage_words;
    if (usable) make_question(cloze, r, first, query, &rng);
    if (options->questions > 0 && cloze->count == options->questions) return;
    for (words += length; words > passage_words && first <= query; first++)
      words -= r->sentences[first].count;
  }
}

int lab_cloze_make(lab_cloze *cloze, const lab_text *text, const lab_cloze_options *options, lab_error *error) {
  *cloze = (lab_cloze){.entities = options->entities ? options->entities : 4, .synthetic = text->synthetic};
  int32_t vocabulary = options->vocabulary ? options->vocabulary : 2000;
  if (cloze->entities < 2 || cloze->entities > MOST_ENTITIES)
    return lab_fail(error, "a question needs 2 to %d candidates, not %" PRId32, MOST_ENTITIES, cloze->entities);
  if (vocabulary < LAB_CLOZE_ENTITY + cloze->entities + 10)
    return lab_fail(error, "a vocabulary of %" PRId32 " words is too small", vocabulary);
  snprintf(cloze->origin, sizeof cloze->origin, "cloze questions from %.120s", text->origin);
  reading r = {0};
  read_sentences(&r, text->bytes);
  make_vocabulary(cloze, &r, vocabulary);
  make_questions(cloze, &r, options, options->passage_words ? options->passage_words : 60);
  lab_strings_free(&r.words);
  free(r.counts);
  free(r.tokens);
  free(r.sentences);
  if (cloze->count >= 20) return 0;
  lab_fail(error, "%s: gives %" PRId64 " cloze questions, 20 are needed (passages must hold %" PRId32 " names)",
           text->origin, cloze->count, cloze->entities);
  lab_cloze_free(cloze);
  return -1;
}

void lab_cloze_free(lab_cloze *cloze) {
  for (int32_t i = 0; i < cloze->vocabulary; i++)
    free(cloze->words[i]);
  free(cloze->words);
  free(cloze->ids);
  free(cloze->items);
  *cloze = (lab_cloze){0};
}

/* How many of the first `count` questions share no sentence with the question after them. */
static int64_t apart_from(const lab_cloze *cloze, int64_t count, int64_t next) {
  while (count > 0 && cloze->items[count - 1].last_sentence >= cloze->items[next].first_sentence)
    count--;
  return count;
}

lab_cloze_split lab_cloze_cut(const lab_cloze *cloze, int64_t dev, int64_t test) {
  if (dev > cloze->count / 10) dev = cloze->count / 10;
  if (test > cloze->count / 10) test = cloze->count / 10;
  int64_t test_start = cloze->count - test;
  int64_t dev_end = test > 0 ? apart_from(cloze, test_start, test_start) : test_start;
  int64_t dev_start = dev_end > dev ? dev_end - dev : 0;
  int64_t train_end = dev > 0 ? apart_from(cloze, dev_start, dev_start) : dev_start;
  const lab_question *items = cloze->items;
  return (lab_cloze_split){{items, train_end}, {items + dev_start, dev_end - dev_start}, {items + test_start, test}};
}
