/* SPDX-License-Identifier: MIT
 *
 * Corpus BLEU as SacreBLEU computes it by default: 13a tokenisation, case kept, up to 4-grams, one reference,
 * exponential smoothing of zero counts. Scores are 0..100.
 */
#ifndef LAB_BLEU_H
#define LAB_BLEU_H

#include "base/base.h"

typedef struct lab_bleu {
  double score;
  double precision[4]; /* percent, smoothed */
  double brevity;      /* brevity penalty, 0..1 */
  int64_t hypothesis_length, reference_length;
} lab_bleu;

/* Adds up sentences one by one ... */
typedef struct lab_bleu_counts {
  int64_t match[4], total[4];
  int64_t hypothesis_length, reference_length;
} lab_bleu_counts;

void lab_bleu_add(lab_bleu_counts *counts, const char *hypothesis, const char *reference);
lab_bleu lab_bleu_score(const lab_bleu_counts *counts);

/* ... or all at once. */
lab_bleu lab_bleu_corpus(const char *const *hypotheses, const char *const *references, int64_t count);

/* The 13a tokens of a line, joined by single spaces; free it. */
char *lab_bleu_tokenize(const char *line);

#endif
