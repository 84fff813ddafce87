/* SPDX-License-Identifier: MIT
 *
 * Beam search against a search of all sequences, on a random table of probabilities.
 */
#include <math.h>
#include <string.h>

#include "harness.h"
#include "models/beam.h"
#include "tape/ops.h"
#include "text/bpe.h"

enum { WORDS = 7, LIMIT = 4 }; /* ids 3..6 are words; 2 ends */

typedef struct table {
  real log_probability[WORDS][WORDS]; /* of the next word, given the last one */
} table;

static void table_step(void *ctx, const int64_t *parents, const int32_t *prefixes, int64_t stride, int64_t length,
                       int64_t rows, real *log_probabilities) {
  (void)parents;
  const table *t = ctx;
  for (int64_t row = 0; row < rows; row++)
    memcpy(log_probabilities + row * WORDS, t->log_probability[prefixes[row * stride + length - 1]],
           WORDS * sizeof(real));
}

static table random_table(t_rng *rng) {
  table t;
  for (int i = 0; i < WORDS; i++) {
    for (int j = 0; j < WORDS; j++)
      t.log_probability[i][j] = (real)t_random_below(rng, 1000) / 250;
    log_softmax_rows(t.log_probability[i], 1, WORDS);
  }
  return t;
}

/* The best score per token over all sequences of at most LIMIT tokens, EOS included. */
static double best_of_all(const table *t, int32_t last, int depth, double score) {
  double best = (score + (double)t->log_probability[last][LAB_BPE_EOS]) / (depth + 1);
  if (depth + 1 == LIMIT) return best;
  for (int32_t word = LAB_BPE_UNK; word < WORDS; word++) {
    double found = best_of_all(t, word, depth + 1, score + (double)t->log_probability[last][word]);
    if (found > best) best = found;
  }
  return best;
}

static double score_of(const table *t, const int32_t *words, int32_t length) {
  double score = 0;
  int32_t last = LAB_BPE_BOS;
  for (int32_t i = 0; i < length; last = words[i++])
    score += (double)t->log_probability[last][words[i]];
  return (score + (double)t->log_probability[last][LAB_BPE_EOS]) / (length + 1);
}

/* A beam that holds every prefix finds the best one. Two sentences at once: both get it. */
static void wide_beam_is_exhaustive(void) {
  t_rng rng = t_rng_make(3);
  for (int round = 0; round < 50; round++) {
    table t = random_table(&rng);
    int32_t outputs[2 * LIMIT], lengths[2];
    beam_decoder decoder = {&t, WORDS, table_step};
    beam_search(&decoder, 2, 64, LIMIT, outputs, lengths);
    double best = best_of_all(&t, LAB_BPE_BOS, 0, 0);
    for (int i = 0; i < 2; i++)
      T_NEAR(best, score_of(&t, outputs + i * LIMIT, lengths[i]), 1e-9);
  }
}

static void narrow_beam_is_greedy(void) {
  t_rng rng = t_rng_make(4);
  table t = random_table(&rng);
  int32_t output[LIMIT], length;
  beam_decoder decoder = {&t, WORDS, table_step};
  beam_search(&decoder, 1, 1, LIMIT, output, &length);
  int32_t last = LAB_BPE_BOS;
  for (int32_t i = 0; i < length; i++) {
    for (int32_t word = LAB_BPE_UNK; word < WORDS; word++)
      T_CHECK(t.log_probability[last][output[i]] >= t.log_probability[last][word]);
    last = output[i];
  }
  T_CHECK(length < LIMIT);
}

static const t_case cases[] = {
    {"wide_beam_is_exhaustive", wide_beam_is_exhaustive},
    {"narrow_beam_is_greedy", narrow_beam_is_greedy},
};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
