/* SPDX-License-Identifier: MIT
 *
 * Subwords: merges worked out by hand, and round trips.
 */
#include "text/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static void count(lab_bpe *bpe, const char *line, int times) {
  for (int i = 0; i < times; i++)
    lab_bpe_count_line(bpe, line);
}

/* " low" 5, " lower" 2, " newest" 6, " widest" 3. "es" and "st" have 9, "es" was seen first; then "es"+"t" 9. Of the
 * pairs with 7, " "+"l" was seen first, then "o"+"w" (older than " l"+"o"), then " l"+"ow". Of those with 6: " "+"n",
 * "e"+"w", " n"+"ew", " new"+"est". */
static void merges_by_hand(void) {
  static const char *const expected[] = {"es", "est", " l", "ow", " low", " n", "ew", " new", " newest"};
  lab_bpe *bpe = lab_bpe_create();
  count(bpe, "low", 5);
  count(bpe, "lower", 2);
  count(bpe, "newest", 6);
  count(bpe, "widest", 3);
  lab_bpe_learn(bpe, (int32_t)T_COUNT(expected));
  int32_t bytes = 11; /* space d e i l n o r s t w */
  if (T_EQ_INT(LAB_BPE_FIRST + bytes + (int)T_COUNT(expected), lab_bpe_size(bpe)))
    for (size_t i = 0; i < T_COUNT(expected); i++)
      T_EQ_STR(expected[i], lab_bpe_symbol(bpe, LAB_BPE_FIRST + bytes + (int32_t)i));
  int32_t ids[8];
  T_EQ_INT(2, lab_bpe_encode(bpe, "lowest", ids, 8)); /* a word that was not in the corpus */
  T_EQ_STR(" low", lab_bpe_symbol(bpe, ids[0]));
  T_EQ_STR("est", lab_bpe_symbol(bpe, ids[1]));
  lab_bpe_free(bpe);
}

/* "aaaa": one merge leaves "aa" "aa", and the counts of overlapping pairs must come out right. */
static void repeated_letters(void) {
  lab_bpe *bpe = lab_bpe_create();
  count(bpe, "aaaa", 3);
  count(bpe, "aaa", 2);
  lab_bpe_learn(bpe, 100);
  int32_t ids[8];
  T_EQ_INT(1, lab_bpe_encode(bpe, "aaaa", ids, 8));
  T_EQ_INT(1, lab_bpe_encode(bpe, "aaa", ids, 8));
  char *text = lab_bpe_decode(bpe, ids, 1);
  T_EQ_STR("aaa", text);
  free(text);
  lab_bpe_free(bpe);
}

static void stops_when_nothing_repeats(void) {
  lab_bpe *bpe = lab_bpe_create();
  count(bpe, "ab", 1);
  lab_bpe_learn(bpe, 100);
  T_EQ_INT(LAB_BPE_FIRST + 3, lab_bpe_size(bpe));
  lab_bpe_free(bpe);
  bpe = lab_bpe_create();
  lab_bpe_learn(bpe, 10); /* no corpus at all */
  T_EQ_INT(LAB_BPE_FIRST, lab_bpe_size(bpe));
  int32_t id;
  T_EQ_INT(2, lab_bpe_encode(bpe, "a", &id, 1));
  T_EQ_INT(LAB_BPE_UNK, id);
  lab_bpe_free(bpe);
}

/* Random lines of words, digits, marks, spaces and letters of two bytes. */
static void random_line(t_rng *rng, char *line, int most) {
  static const char *const pieces[] = {"the", "an", "ing", "Haus", "ö", "ß",  "é",  "12", "7",
                                       ".",   ",",  "...", " ",    " ", "  ", "\t", "x",  "Y"};
  line[0] = 0;
  for (int64_t n = t_random_below(rng, most); n > 0; n--)
    strcat(line, pieces[t_random_below(rng, (int64_t)T_COUNT(pieces))]);
}

static void round_trips(void) {
  t_rng rng = t_rng_make(1);
  lab_bpe *bpe = lab_bpe_create(), *twin = lab_bpe_create();
  char line[512];
  for (int i = 0; i < 400; i++) {
    random_line(&rng, line, 40);
    lab_bpe_count_line(bpe, line);
    lab_bpe_count_line(twin, line);
  }
  lab_bpe_learn(bpe, 200);
  lab_bpe_learn(twin, 200);
  T_EQ_INT(lab_bpe_size(twin), lab_bpe_size(bpe));
  for (int i = 0; i < 400; i++) {
    int32_t ids[512], other[512];
    random_line(&rng, line, 40);
    t_context("line '%s'", line);
    int64_t length = lab_bpe_encode(bpe, line, ids, 512);
    T_CHECK(length <= (int64_t)strlen(line) + 1);
    T_EQ_INT(length, lab_bpe_encode(bpe, line, NULL, 0));
    T_EQ_INT(length, lab_bpe_encode(twin, line, other, 512));
    T_EQ_BYTES(ids, other, (size_t)length * sizeof *ids);
    for (int64_t j = 0; j < length; j++)
      T_CHECK(ids[j] >= LAB_BPE_FIRST && ids[j] < lab_bpe_size(bpe));
    char *text = lab_bpe_decode(bpe, ids, length);
    T_EQ_STR(line, text);
    free(text);
  }
  lab_bpe_free(bpe);
  lab_bpe_free(twin);
}

static void marks_and_limits(void) {
  lab_bpe *bpe = lab_bpe_create();
  count(bpe, "abc abc", 4);
  lab_bpe_learn(bpe, 2);
  int32_t ids[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  T_EQ_INT(6, lab_bpe_encode(bpe, "cba q", ids, 2)); /* " " "c" "b" "a", " " "q": no merge fits */
  T_CHECK(ids[0] >= LAB_BPE_FIRST && ids[1] >= LAB_BPE_FIRST && ids[2] == -1);
  lab_bpe_encode(bpe, "cba q", ids, 8);
  T_EQ_INT(LAB_BPE_UNK, ids[5]);
  char *text = lab_bpe_decode(bpe, ids, 6);
  T_EQ_STR("cba ?", text);
  free(text);
  int32_t marked[] = {LAB_BPE_BOS, ids[1], LAB_BPE_PAD, 99999, -5, ids[2], LAB_BPE_EOS, ids[3]};
  text = lab_bpe_decode(bpe, marked, 8);
  T_EQ_STR("cb", text);
  free(text);
  T_EQ_STR("</s>", lab_bpe_symbol(bpe, LAB_BPE_EOS));
  T_EQ_STR("", lab_bpe_symbol(bpe, 99999));
  T_EQ_INT(0, lab_bpe_encode(bpe, "", ids, 8));
  lab_bpe_free(bpe);
}

/* A line without spaces, as in damaged files: cut into words of bounded length instead of taking for ever. */
static void endless_word(void) {
  enum { LENGTH = 200000 };
  char *line = malloc(LENGTH + 1);
  if (!T_CHECK(line != NULL)) return;
  for (int i = 0; i < LENGTH; i++)
    line[i] = (char)('a' + i * 7 % 26);
  line[LENGTH] = 0;
  lab_bpe *bpe = lab_bpe_create();
  lab_bpe_count_line(bpe, line);
  lab_bpe_learn(bpe, 50);
  int32_t *ids = malloc((LENGTH + 1) * sizeof *ids);
  if (T_CHECK(ids != NULL)) {
    int64_t length = lab_bpe_encode(bpe, line, ids, LENGTH + 1);
    char *text = lab_bpe_decode(bpe, ids, length);
    T_CHECK(strcmp(line, text) == 0);
    free(text);
  }
  free(ids);
  free(line);
  lab_bpe_free(bpe);
}

static const t_case cases[] = {{"merges_by_hand", merges_by_hand},
                               {"repeated_letters", repeated_letters},
                               {"stops_when_nothing_repeats", stops_when_nothing_repeats},
                               {"round_trips", round_trips},
                               {"marks_and_limits", marks_and_limits},
                               {"endless_word", endless_word}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
