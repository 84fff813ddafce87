/* SPDX-License-Identifier: MIT */
#include "models/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/bpe.h"

typedef struct beam_state {
  int64_t sentences, beam, limit, stride;
  int32_t *prefixes, *next_prefixes; /* rows x stride, BOS first                         */
  double *scores;                    /* per row: sum of log probabilities; -inf: unused  */
  int64_t *parents;
  double *best; /* per sentence: best finished score per token      */
  int32_t *outputs, *lengths;
} beam_state;

typedef struct candidate {
  double score;
  int64_t row;
  int32_t token;
} candidate;

/* Keeps the list sorted, best first; equal scores keep the order of arrival. */
static void insert_candidate(candidate *list, int64_t size, candidate c) {
  if (!(c.score > list[size - 1].score)) return;
  int64_t at = size - 1;
  for (; at > 0 && c.score > list[at - 1].score; at--)
    list[at] = list[at - 1];
  list[at] = c;
}

static void finish(beam_state *s, int64_t sentence, int64_t row, double score, int64_t length) {
  double per_token = score / (double)length;
  if (!(per_token > s->best[sentence])) return;
  s->best[sentence] = per_token;
  s->lengths[sentence] = (int32_t)(length - 1);
  memcpy(s->outputs + sentence * s->limit, s->prefixes + row * s->stride + 1,
         (size_t)(length - 1) * sizeof *s->outputs);
}

/* length: tokens in the prefixes, BOS included. */
static void extend_sentence(beam_state *s, int64_t sentence, int64_t length, const real *log_probabilities,
                            int64_t vocabulary, candidate *list) {
  int64_t first = sentence * s->beam;
  for (int64_t i = 0; i < s->beam; i++)
    list[i] = (candidate){-HUGE_VAL, first + i, LAB_BPE_EOS};
  for (int64_t row = first; row < first + s->beam; row++) {
    if (isinf(s->scores[row])) continue;
    const real *options = log_probabilities + row * vocabulary;
    finish(s, sentence, row, s->scores[row] + (double)options[LAB_BPE_EOS], length);
    for (int32_t token = LAB_BPE_UNK; token < vocabulary; token++)
      insert_candidate(list, s->beam, (candidate){s->scores[row] + (double)options[token], row, token});
  }
  for (int64_t i = 0; i < s->beam; i++) {
    int64_t row = first + i;
    s->parents[row] = list[i].row;
    memcpy(s->next_prefixes + row * s->stride, s->prefixes + list[i].row * s->stride,
           (size_t)length * sizeof *s->prefixes);
    s->next_prefixes[row * s->stride + length] = list[i].token;
    /* A prefix that is already worse per token than a finished one, at the most favourable length, is given up. */
    int hopeless = list[i].score / (double)(s->limit + 1) < s->best[sentence];
    s->scores[row] = hopeless ? -HUGE_VAL : list[i].score;
  }
}

static int any_open(const beam_state *s) {
  for (int64_t i = 0; i < s->sentences * s->beam; i++)
    if (!isinf(s->scores[i])) return 1;
  return 0;
}

static beam_state start(int64_t sentences, int64_t beam, int64_t limit, int32_t *outputs, int32_t *lengths) {
  size_t rows = (size_t)(sentences * beam), stride = (size_t)limit + 2;
  beam_state s = {.sentences = sentences, .beam = beam, .limit = limit, .stride = (int64_t)stride};
  s.prefixes = lab_alloc(rows * stride, sizeof *s.prefixes);
  s.next_prefixes = lab_alloc(rows * stride, sizeof *s.next_prefixes);
  s.scores = lab_alloc(rows, sizeof *s.scores);
  s.parents = lab_alloc(rows, sizeof *s.parents);
  s.best = lab_alloc((size_t)sentences, sizeof *s.best);
  s.outputs = outputs;
  s.lengths = lengths;
  for (int64_t row = 0; row < sentences * beam; row++) {
    s.prefixes[row * s.stride] = LAB_BPE_BOS;
    s.parents[row] = row;
    s.scores[row] = row % beam == 0 ? 0 : -HUGE_VAL; /* all rows of a sentence are equal at first: one counts */
  }
  for (int64_t i = 0; i < sentences; i++) {
    s.best[i] = -HUGE_VAL;
    lengths[i] = 0;
  }
  return s;
}

void beam_search(const beam_decoder *decoder, int64_t sentences, int64_t beam, int64_t limit, int32_t *outputs,
                 int32_t *lengths) {
  beam_state s = start(sentences, beam, limit, outputs, lengths);
  int64_t rows = sentences * beam;
  real *log_probabilities = lab_alloc((size_t)(rows * decoder->vocabulary), sizeof(real));
  candidate *list = lab_alloc((size_t)beam, sizeof *list);
  for (int64_t length = 1; length <= limit && any_open(&s); length++) {
    decoder->step(decoder->ctx, s.parents, s.prefixes, s.stride, length, rows, log_probabilities);
    for (int64_t i = 0; i < sentences; i++)
      extend_sentence(&s, i, length, log_probabilities, decoder->vocabulary, list);
    int32_t *hold = s.prefixes;
    s.prefixes = s.next_prefixes;
    s.next_prefixes = hold;
  }
  free(log_probabilities);
  free(list);
  free(s.prefixes);
  free(s.next_prefixes);
  free(s.scores);
  free(s.parents);
  free(s.best);
}
