/* SPDX-License-Identifier: MIT
 *
 * Beam search over many sentences at once.
 */
#ifndef LAB_BEAM_H
#define LAB_BEAM_H

#include "tape/tape.h"

/* What a decoder of `rows` = sentences*beam hypotheses does per step: row i continues what row parents[i] was; its last
 * token is tokens[i], its whole prefix (BOS first) prefixes[i*stride .. + length). Writes log probabilities of the next
 * token, rows x vocabulary. */
typedef struct beam_decoder {
  void *ctx;
  int64_t vocabulary;
  void (*step)(void *ctx, const int64_t *parents, const int32_t *prefixes, int64_t stride, int64_t length, int64_t rows,
               real *log_probabilities);
} beam_decoder;

/* Best hypothesis of each sentence by log probability over length; at most `limit` tokens, EOS not among them.
 * outputs: sentences x limit, lengths: sentences. */
void beam_search(const beam_decoder *decoder, int64_t sentences, int64_t beam, int64_t limit, int32_t *outputs,
                 int32_t *lengths);

#endif
