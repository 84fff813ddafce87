/* SPDX-License-Identifier: MIT
 *
 * Interface texts -> sentences. Each step rewrites a string in place; none makes it longer.
 */
#include "data/pairs.h"

#include <stdlib.h>
#include <string.h>

static int is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
static int is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
static int is_digit(char c) {
  return c >= '0' && c <= '9';
}
/* Bytes beyond ASCII are taken for letters: they mostly are. */
static int is_letter(char c) {
  return is_lower(c) || is_upper(c) || (unsigned char)c >= 0x80;
}

/* <b>, </span>, <a href="...">: what begins like a tag and ends with '>'. */
static void remove_tags(char *text) {
  char *out = text;
  for (const char *in = text; *in;) {
    const char *end = in[0] == '<' && (is_lower(in[1]) || is_upper(in[1]) || in[1] == '/') ? strchr(in, '>') : NULL;
    if (end)
      in = end + 1;
    else
      *out++ = *in++;
  }
  *out = 0;
}

static void decode_entities(char *text) {
  static const struct {
    const char *name;
    char value;
  } entities[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}};
  char *out = text;
  for (const char *in = text; *in;) {
    size_t used = 1;
    char value = *in;
    for (size_t i = 0; *in == '&' && i < sizeof entities / sizeof *entities; i++)
      if (strncmp(in, entities[i].name, strlen(entities[i].name)) == 0) {
        used = strlen(entities[i].name);
        value = entities[i].value;
      }
    *out++ = value;
    in += used;
  }
  *out = 0;
}

/* A mark is one &, _ or ~ right before a letter, as in "&Open", "E_xit", "~Paste". "R & D", "LC_ALL", "a_b_c" have
 * none. */
static void remove_accelerator(char *text, char mark) {
  char *at = strchr(text, mark);
  if (!at || strchr(at + 1, mark) || !is_letter(at[1])) return;
  int identifier = at > text && (is_upper(at[-1]) || is_digit(at[-1])) && is_upper(at[1]);
  if (!identifier) memmove(at, at + 1, strlen(at));
}

/* "%d", "%-5.2lf", "%1$s" -> "%s"; "100 %" and "%%" stay. Returns how many there were. */
static int unify_directives(char *text) {
  int count = 0;
  char *out = text;
  for (const char *in = text; *in;) {
    if (in[0] == '%' && in[1] == '%') {
      *out++ = *in++;
      *out++ = *in++;
      continue;
    }
    if (in[0] == '%') {
      const char *end = in + 1 + strspn(in + 1, "0123456789$.*+-#'");
      end += strspn(end, "hlLqjzt");
      if (*end && strchr("diouxXeEfFgGaAcsp", *end) && !is_letter(end[1])) {
        *out++ = '%';
        *out++ = 's';
        in = end + 1;
        count++;
        continue;
      }
    }
    *out++ = *in++;
  }
  *out = 0;
  return count;
}

/* Bytes of white space at s: ASCII or a no-break space in UTF-8 (U+00A0, U+202F); 0 if none. */
static size_t space_at(const char *s) {
  if (*s && ((unsigned char)*s <= ' ' || *s == 0x7f)) return 1;
  if (strncmp(s, "\xc2\xa0", 2) == 0) return 2;
  if (strncmp(s, "\xe2\x80\xaf", 3) == 0) return 3;
  return 0;
}

/* Single spaces, none at the ends. Returns the number of words. */
static int join_words(char *text) {
  int words = 0;
  char *out = text;
  for (const char *in = text; *in;) {
    size_t space = space_at(in);
    if (space) {
      in += space;
      continue;
    }
    if (words++ > 0) *out++ = ' ';
    while (*in && !space_at(in))
      *out++ = *in++;
  }
  *out = 0;
  return words;
}

static void trim_end(char *text) {
  static const char *const tails[] = {"...", "\xe2\x80\xa6", ":", " "};
  for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
    size_t length = strlen(text), tail = strlen(tails[i]);
    if (length > tail && strcmp(text + length - tail, tails[i]) == 0) text[length - tail] = 0;
  }
}

/* Cleans one side; returns the number of words. */
static int clean_side(char *text, int *directives) {
  remove_tags(text);
  remove_accelerator(text, '&'); /* before entities become '&' */
  decode_entities(text);
  remove_accelerator(text, '_');
  remove_accelerator(text, '~');
  *directives = unify_directives(text);
  join_words(text);
  trim_end(text);
  return join_words(text);
}

static uint64_t letters_hash(const char *text) {
  uint64_t hash = LAB_HASH_START;
  for (; *text; text++) {
    char c = is_upper(*text) ? (char)(*text | 0x20) : *text;
    if (is_letter(c) || is_digit(c)) hash = lab_hash(hash, &c, 1);
  }
  return hash;
}

/* A set of hashes with open addressing; 0 marks a free place. Returns 1 if the hash was not in it. */
static int insert(uint64_t *table, size_t mask, uint64_t hash) {
  if (hash == 0) hash = 1;
  size_t place = (size_t)hash & mask;
  while (table[place] && table[place] != hash)
    place = (place + 1) & mask;
  if (table[place]) return 0;
  table[place] = hash;
  return 1;
}

void lab_pairs_clean(lab_pairs *pairs, int min_words, int max_words) {
  size_t places = 16;
  while (places < 2 * (size_t)pairs->count)
    places *= 2;
  uint64_t *seen = lab_alloc(places, sizeof *seen);
  int64_t kept = 0;
  for (int64_t i = 0; i < pairs->count; i++) {
    lab_pair pair = pairs->items[i];
    int source_directives, target_directives;
    int source_words = clean_side(pair.source, &source_directives);
    int target_words = clean_side(pair.target, &target_directives);
    int good = source_words >= min_words && source_words <= max_words && target_words >= 1 &&
               target_words <= max_words && source_directives == target_directives &&
               strcmp(pair.source, pair.target) != 0;
    if (good && insert(seen, places - 1, letters_hash(pair.source))) {
      pairs->items[kept++] = pair;
    } else {
      free(pair.source);
      free(pair.target);
    }
  }
  pairs->count = kept;
  free(seen);
}
