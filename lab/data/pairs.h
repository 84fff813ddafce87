/* SPDX-License-Identifier: MIT
 *
 * Sentence pairs for translation and retrieval, from parallel text files and from gettext catalogues.
 *
 *   lab_pairs pairs = {0};
 *   if (lab_pairs_read_installed(&pairs, NULL, "de", &error) < 0) ...
 *   lab_pairs_clean(&pairs, 3, 40);
 *   lab_pairs_split split = lab_pairs_cut(&pairs, seed, 500, 500);
 *   ... split.train.items[i].source ...
 *   lab_pairs_free(&pairs);
 *
 * Each call of lab_pairs_read_installed, lab_pairs_read_mo and lab_pairs_read_text adds to the set.
 */
#ifndef LAB_DATA_PAIRS_H
#define LAB_DATA_PAIRS_H

#include "base/base.h"

/* Both sides are UTF-8, one line, single spaces, NUL-terminated. */
typedef struct lab_pair {
  char *source, *target;
} lab_pair;

typedef struct lab_pairs {
  lab_pair *items;
  int64_t count, capacity;
  int64_t files;    /* how many files were read */
  int synthetic;    /* 1: made by lab_synth_pairs */
  char origin[160]; /* for people: "12 gettext catalogues (de)", "train.en + train.de" */
} lab_pairs;

/* Adds the lines of two text files (plain or gzip), line n with line n. An error if one is not UTF-8, has more lines
 * than the other or is empty. */
int lab_pairs_read_text(lab_pairs *pairs, const char *source_path, const char *target_path, lab_error *error);

/* Adds the translated messages of a gettext .mo catalogue (either byte order): msgid -> msgstr; for plural messages the
 * singular and the first plural as two pairs. Contexts and the header entry are dropped; a catalogue whose header names
 * a charset other than UTF-8 (or ASCII) is refused. */
int lab_pairs_read_mo(lab_pairs *pairs, const char *path, lab_error *error);

/* Adds every catalogue of a language ("de", "fr", "pt_BR") that the system has, from /usr/share/locale/LANG/LC_MESSAGES
 * and from LibreOffice, in alphabetical order. Files that cannot be read as catalogues are passed over. Returns the
 * number of catalogues read; 0 if there are none. `root` is put before the paths (a test's own tree); NULL or "" for
 * the system. */
int lab_pairs_read_installed(lab_pairs *pairs, const char *root, const char *language, lab_error *error);

/* Adds these catalogues of a language (names without ".mo", ending with NULL) from /usr/share/locale. Returns how many
 * are missing; none of the others is added then. */
int lab_pairs_read_named(lab_pairs *pairs, const char *root, const char *language, const char *const *names,
                         lab_error *error);

/* Makes sentences out of interface texts: removes accelerator marks (&, _, ~), markup tags and the dots or colon at the
 * end; makes every printf directive "%s"; joins lines. Then drops pairs that are equal on both sides, whose sides hold
 * different numbers of directives, whose source has fewer than min_words or either side more than max_words words, and
 * all but the first of the pairs whose sources are the same letters and digits (so that no test sentence differs from a
 * training sentence by a comma alone). */
void lab_pairs_clean(lab_pairs *pairs, int min_words, int max_words);

typedef struct lab_pairs_slice {
  const lab_pair *items; /* belongs to the lab_pairs it was cut from */
  int64_t count;
} lab_pairs_slice;

typedef struct lab_pairs_split {
  lab_pairs_slice train, dev, test;
} lab_pairs_split;

/* Shuffles by seed and cuts. dev is for choosing settings; training and scores leave it alone. dev and test are each
 * lowered to a tenth of the pairs where the set is small. The order before the call does not matter (the pairs are
 * sorted first), so the split depends on the set and the seed alone. */
lab_pairs_split lab_pairs_cut(lab_pairs *pairs, uint64_t seed, int64_t dev, int64_t test);

/* Adds one pair; the strings are copied. */
void lab_pairs_add(lab_pairs *pairs, const char *source, const char *target);
void lab_pairs_free(lab_pairs *pairs);

#endif
