/* SPDX-License-Identifier: MIT
 *
 * Plain text for the language model, and cloze questions made from it for the reader.
 */
#ifndef LAB_DATA_TEXT_H
#define LAB_DATA_TEXT_H

#include "base/base.h"

typedef struct lab_text {
  char *bytes; /* UTF-8, size bytes and a NUL */
  int64_t size;
  int synthetic;
  char origin[160];
} lab_text;

/* Reads a text file (plain or gzip). An error if it is empty, holds a NUL byte or is not UTF-8. */
int lab_text_read(lab_text *text, const char *path, lab_error *error);
void lab_text_free(lab_text *text);

/* A question: a passage of sentences, and the sentence that follows it with one name replaced by a blank; the answer is
 * a name of the passage. A name is a word that is written with a capital inside sentences more often than not. As in
 * the CNN/Daily Mail task the candidates are anonymous: `entities` names of the passage, the answer among them, stand
 * as marks in a random order, so that only reading can tell which one is right.
 *
 * Word ids: LAB_CLOZE_PAD, LAB_CLOZE_UNKNOWN, LAB_CLOZE_BLANK, then the entity marks LAB_CLOZE_ENTITY + 0 ..
 * entities-1, then words by falling frequency. */
enum { LAB_CLOZE_PAD = 0, LAB_CLOZE_UNKNOWN = 1, LAB_CLOZE_BLANK = 2, LAB_CLOZE_ENTITY = 3 };

typedef struct lab_question {
  int64_t passage, query; /* where they begin in lab_cloze.ids */
  int32_t passage_length, query_length;
  int32_t answer;                        /* 0 .. entities-1 */
  int64_t first_sentence, last_sentence; /* of the text */
} lab_question;

typedef struct lab_cloze {
  lab_question *items; /* in the order of the text */
  int64_t count, capacity;
  int32_t *ids; /* storage of all passages and queries */
  int64_t ids_count, ids_capacity;
  char **words; /* vocabulary entries; words[id] for people to read */
  int32_t vocabulary;
  int32_t entities;
  int synthetic;
  char origin[160];
} lab_cloze;

typedef struct lab_cloze_options {
  int32_t entities;      /* candidates of a question; 0: 4, as in the "top 4" data of the paper */
  int32_t passage_words; /* about how long a passage is; 0: 60 */
  int32_t vocabulary;    /* ids at most, marks included; 0: 2000 */
  int64_t questions;     /* at most; 0: all that the text gives */
  uint64_t seed;
} lab_cloze_options;

/* An error if the text gives fewer than 20 questions. */
int lab_cloze_make(lab_cloze *cloze, const lab_text *text, const lab_cloze_options *options, lab_error *error);
void lab_cloze_free(lab_cloze *cloze);

typedef struct lab_cloze_slice {
  const lab_question *items;
  int64_t count;
} lab_cloze_slice;

typedef struct lab_cloze_split {
  lab_cloze_slice train, dev, test;
} lab_cloze_split;

/* Cuts by position in the text: the last questions are the test. Questions that share a sentence with the next part are
 * left out, so that no part has seen another. dev and test are lowered to a tenth of the questions where
 * there are few. */
lab_cloze_split lab_cloze_cut(const lab_cloze *cloze, int64_t dev, int64_t test);

#endif
