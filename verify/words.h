/* SPDX-License-Identifier: MIT
 *
 * What somebody may have meant by a word that is unknown. */
#ifndef RMSNORM_VERIFY_WORDS_H
#define RMSNORM_VERIFY_WORDS_H

/* The word of `words` (NULL-terminated) that is nearest to `text`, or NULL if none is near. */
const char *verify_nearest_word(const char *text, const char *const *words);

#endif
