/* SPDX-License-Identifier: MIT
 *
 * Subword vocabulary: byte-pair merges learned from a corpus.
 *
 * A line is cut into words (letters, digits or other marks, a space before it belonging to it); merges never cross
 * words. The symbols are the four marks below, the bytes seen in the corpus, and one symbol per merge. Decoding gives
 * back exactly the bytes of the line (but for bytes never seen in the corpus, which become LAB_BPE_UNK and decode to
 * "?").
 */
#ifndef LAB_BPE_H
#define LAB_BPE_H

#include "base/base.h"

enum { LAB_BPE_PAD = 0, LAB_BPE_BOS = 1, LAB_BPE_EOS = 2, LAB_BPE_UNK = 3, LAB_BPE_FIRST = 4 };

typedef struct lab_bpe lab_bpe;

/* Learns up to `merges` merges (fewer when no pair occurs twice) from lines given one by one: most frequent pair first,
 * ties to the pair seen first, so that the result depends on the lines alone. */
lab_bpe *lab_bpe_create(void);
void lab_bpe_count_line(lab_bpe *bpe, const char *line);
void lab_bpe_learn(lab_bpe *bpe, int32_t merges);
void lab_bpe_free(lab_bpe *bpe);

/* Number of ids; ids are 0 .. size-1. Valid after lab_bpe_learn, as are all functions below. */
int32_t lab_bpe_size(const lab_bpe *bpe);

/* Writes at most `limit` ids of the line (no BOS or EOS) and returns how many the whole line has; with limit 0 ids may
 * be NULL. Not thread-safe: a cache of words is kept. */
int64_t lab_bpe_encode(lab_bpe *bpe, const char *line, int32_t *ids, int64_t limit);

/* The text of ids as a NUL-terminated string of the caller's (free it). Stops at LAB_BPE_EOS; skips the other marks. */
char *lab_bpe_decode(const lab_bpe *bpe, const int32_t *ids, int64_t count);

/* The bytes of one symbol, for people; marks are "<pad>", "<s>", "</s>", "<unk>". */
const char *lab_bpe_symbol(const lab_bpe *bpe, int32_t id);

#endif
