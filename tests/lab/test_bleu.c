/* SPDX-License-Identifier: MIT
 *
 * BLEU against the scores and tokens that SacreBLEU 2.6 gives for these sentences.
 */
#include "text/bleu.h"

#include <stdlib.h>

#include "harness.h"

static void tokens(void) {
  static const char *const lines[][2] = {
      {"The cat sat quietly on the warm mat.", "The cat sat quietly on the warm mat ."},
      {"He paid 1,250.50 dollars (about 3-4 weeks' wages) for it.",
       "He paid 1,250.50 dollars ( about 3 - 4 weeks' wages ) for it ."},
      {"\"Save as...\" opens a dialog; choose a name.", "\" Save as . . . \" opens a dialog ; choose a name ."},
      {"It's raining.", "It's raining ."},
      {"Größe: 10–20 % kleiner, d.h. 1.5x schneller!", "Größe : 10–20 % kleiner , d . h . 1.5x schneller !"},
      {"a..b,,c 5.x x.5 ...", "a . . b , , c 5 . x x . 5 . . ."},
      {"&lt;b&gt; &amp;lt; &quot;q&quot;", "< b > < \" q \""},
      {"1-2 x-y 3.14-", "1 - 2 x-y 3.14 -"},
      {"x\xc2\xa0y\xe2\x80\x89z", "x y z"},
      {"<skipped>x", "x"},
      {"", ""},
      {"  ", ""}};
  for (size_t i = 0; i < T_COUNT(lines); i++) {
    char *text = lab_bleu_tokenize(lines[i][0]);
    T_EQ_STR(lines[i][1], text);
    free(text);
  }
}

static const char *const hypotheses[] = {"The cat sat quietly on the warm mat.",
                                         "He paid 1,250.50 dollars (about 3-4 weeks' wages) for it.",
                                         "Das alte Haus am Fluss wurde 1890 gebaut.",
                                         "\"Save as...\" opens a dialog; choose a name.",
                                         "It's raining.",
                                         "Größe: 10–20 % kleiner, d.h. 1.5x schneller!"};
static const char *const references[] = {"The cat sat on the warm mat quietly.",
                                         "He paid 1,250.50 dollars (some 3-4 weeks' pay) for it.",
                                         "Das alte Haus am Fluss ist 1890 gebaut worden.",
                                         "\"Save as...\" opens a dialog: pick a name.",
                                         "It is raining.",
                                         "Größe: 10–20 % kleiner, also 1.5x so schnell!"};

/* A score is a handful of logarithms and one exponential of doubles: right to some 1e-14 of its size. */
static const double most = 1e-11;

static void corpus(void) {
  lab_bleu bleu = lab_bleu_corpus(hypotheses, references, 6);
  T_NEAR(55.89625094913764, bleu.score, most);
  T_NEAR(82.8125, bleu.precision[0], most);
  T_NEAR(63.793103448275865, bleu.precision[1], most);
  T_NEAR(50.0, bleu.precision[2], most);
  T_NEAR(36.95652173913044, bleu.precision[3], most);
  T_EQ_F64(1.0, bleu.brevity);
  T_EQ_INT(64, bleu.hypothesis_length);
  T_EQ_INT(64, bleu.reference_length);
  lab_bleu_counts counts = {0};
  for (int i = 5; i >= 0; i--) /* the order does not matter */
    lab_bleu_add(&counts, hypotheses[i], references[i]);
  T_EQ_F64(bleu.score, lab_bleu_score(&counts).score);
}

static double one(const char *hypothesis, const char *reference) {
  return lab_bleu_corpus(&hypothesis, &reference, 1).score;
}

static void single_lines(void) {
  T_NEAR(45.96613576124595, one(hypotheses[0], references[0]), most);
  T_NEAR(15.97357760615681, one("the the the the", "the cat"), most); /* clipped counts, smoothed twice */
  T_NEAR(14.058533129758727, one("a b c d e", "a x c y e"), most);    /* smoothed three times           */
  T_NEAR(36.78794411714425, one("short answer here now", "a short answer here now and then some"), most);
  T_NEAR(100.0, one(references[1], references[1]), most);
  T_EQ_F64(0.0, one("one two three", "one two three")); /* no 4-gram at all */
  T_EQ_F64(0.0, one("hello", "goodbye world"));
  T_EQ_F64(0.0, one("", "a"));
  T_EQ_F64(0.0, one("", ""));
}

static const t_case cases[] = {{"tokens", tokens}, {"corpus", corpus}, {"single_lines", single_lines}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
