/* SPDX-License-Identifier: MIT */
#include "words.h"

#include <string.h>

enum { WORD_MAX = 64 };

static int edit_distance(const char *a, const char *b) {
  size_t length = strlen(b);
  int row[WORD_MAX + 1];
  if (strlen(a) > WORD_MAX || length > WORD_MAX) return WORD_MAX;
  for (size_t j = 0; j <= length; j++)
    row[j] = (int)j;
  for (size_t i = 0; a[i]; i++) {
    int diagonal = row[0];
    row[0] = (int)i + 1;
    for (size_t j = 0; j < length; j++) {
      int above = row[j + 1], best = diagonal + (a[i] != b[j]);
      if (above + 1 < best) best = above + 1;
      if (row[j] + 1 < best) best = row[j] + 1;
      row[j + 1] = best;
      diagonal = above;
    }
  }
  return row[length];
}

const char *verify_nearest_word(const char *text, const char *const *words) {
  const char *nearest = NULL;
  int best = 3;
  for (; *words; words++) {
    int distance = edit_distance(text, *words);
    if (distance < best && distance < (int)strlen(*words)) {
      best = distance;
      nearest = *words;
    }
  }
  return nearest;
}
