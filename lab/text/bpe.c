/* SPDX-License-Identifier: MIT
 *
 * Encoding, decoding and the table of words; the learning is in text/bpe_learn.c.
 */
#include "text/bpe_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

enum { CLASS_SPACE, CLASS_LETTER, CLASS_DIGIT, CLASS_OTHER };

static int class_of(char c) {
  if (c == ' ') return CLASS_SPACE;
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80) return CLASS_LETTER;
  return c >= '0' && c <= '9' ? CLASS_DIGIT : CLASS_OTHER;
}

/* Encoding a word takes time that grows with the square of its length; longer runs are cut. */
enum { LONGEST_WORD = 64 };

/* Bytes of the word at s: a run of one class with the one space before it; further spaces are words of their own. */
static size_t word_length(const char *s) {
  size_t start = *s == ' ' && s[1] && s[1] != ' ' ? 1 : 0;
  int kind = class_of(s[start]);
  size_t end = start + 1;
  while (kind != CLASS_SPACE && end < LONGEST_WORD && s[end] && class_of(s[end]) == kind)
    end++;
  return end;
}

/* The entry of a word, made if there is none. */
static bpe_word *find_word(lab_bpe *bpe, const char *text, size_t length, int64_t *number) {
  int64_t known = bpe->strings.count, i = lab_strings_add(&bpe->strings, text, length);
  bpe->words = lab_grow(bpe->words, &bpe->words_capacity, bpe->strings.count, sizeof *bpe->words);
  if (i == known) bpe->words[i] = (bpe_word){0};
  *number = i;
  return &bpe->words[i];
}

/* The first word of a line gets a space like all others, so that "Open" is one word wherever it stands. */
static char *with_space(const char *line) {
  size_t length = strlen(line);
  char *spaced = lab_alloc(length + 2, 1);
  if (length == 0) return spaced;
  spaced[0] = ' ';
  memcpy(spaced + 1, line, length);
  return spaced;
}

lab_bpe *lab_bpe_create(void) {
  return lab_alloc(1, sizeof(lab_bpe));
}

void lab_bpe_free(lab_bpe *bpe) {
  if (!bpe) return;
  for (int64_t w = 0; w < bpe->strings.count; w++)
    free(bpe->words[w].ids);
  free(bpe->words);
  lab_strings_free(&bpe->strings);
  for (int32_t id = 0; id < bpe->size; id++)
    free(bpe->symbols[id]);
  free(bpe->symbols);
  free(bpe->merges.keys);
  free(bpe->merges.values);
  free(bpe);
}

void lab_bpe_count_line(lab_bpe *bpe, const char *line) {
  char *spaced = with_space(line);
  for (const char *s = spaced; *s;) {
    int64_t number;
    size_t length = word_length(s);
    find_word(bpe, s, length, &number)->count++;
    s += length;
  }
  free(spaced);
}

/* ---- Encoding ---- */

int32_t lab_bpe_size(const lab_bpe *bpe) {
  return bpe->size;
}

/* Applies the merge learned first among those that fit, until none fits. */
static void encode_word(const lab_bpe *bpe, const lab_string *string, bpe_word *word) {
  word->ids = lab_alloc(string->length, sizeof *word->ids);
  int32_t count = 0;
  for (size_t i = 0; i < string->length; i++) {
    int32_t id = bpe->of_byte[(unsigned char)string->text[i]];
    word->ids[count++] = id ? id : LAB_BPE_UNK;
  }
  for (;;) {
    int32_t best = 0, at = 0;
    for (int32_t i = 0; i + 1 < count; i++) {
      int32_t merged = (int32_t)bpe_map_get(&bpe->merges, bpe_pair_key(word->ids[i], word->ids[i + 1]));
      if (merged && (!best || merged < best)) {
        best = merged;
        at = i;
      }
    }
    if (!best) break;
    word->ids[at] = best;
    memmove(word->ids + at + 1, word->ids + at + 2, (size_t)(count - at - 2) * sizeof *word->ids);
    count--;
  }
  word->ids_count = count;
}

int64_t lab_bpe_encode(lab_bpe *bpe, const char *line, int32_t *ids, int64_t limit) {
  char *spaced = with_space(line);
  int64_t count = 0;
  for (const char *s = spaced; *s;) {
    int64_t number;
    size_t length = word_length(s);
    bpe_word *word = find_word(bpe, s, length, &number);
    if (!word->ids) encode_word(bpe, &bpe->strings.items[number], word);
    for (int32_t i = 0; i < word->ids_count; i++, count++)
      if (count < limit) ids[count] = word->ids[i];
    s += length;
  }
  free(spaced);
  return count;
}

char *lab_bpe_decode(const lab_bpe *bpe, const int32_t *ids, int64_t count) {
  char *text = NULL;
  int64_t used = 0, capacity = 0;
  text = lab_grow(text, &capacity, 1, 1);
  for (int64_t i = 0; i < count && ids[i] != LAB_BPE_EOS; i++) {
    int32_t id = ids[i];
    if (id == LAB_BPE_PAD || id == LAB_BPE_BOS || id < 0 || id >= bpe->size) continue;
    const char *symbol = id == LAB_BPE_UNK ? "?" : bpe->symbols[id];
    int64_t length = (int64_t)strlen(symbol);
    text = lab_grow(text, &capacity, used + length + 1, 1);
    memcpy(text + used, symbol, (size_t)length);
    used += length;
  }
  text[used] = 0;
  if (text[0] == ' ') memmove(text, text + 1, (size_t)used);
  return text;
}

const char *lab_bpe_symbol(const lab_bpe *bpe, int32_t id) {
  return id >= 0 && id < bpe->size ? bpe->symbols[id] : "";
}
