/* SPDX-License-Identifier: MIT
 *
 * gettext .mo catalogues: a header of seven 32-bit words, two tables of (length, offset), and the strings.
 */
#define _POSIX_C_SOURCE 200809L
#include "data/pairs.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct catalogue {
  const char *path;
  const unsigned char *bytes;
  int64_t size;
  int big_endian;
  uint32_t count, sources, targets; /* messages; offsets of the two tables */
} catalogue;

typedef struct message {
  const char *text; /* NUL-terminated at text[length] */
  uint32_t length;
} message;

static uint32_t word_at(const catalogue *mo, int64_t offset) {
  const unsigned char *b = mo->bytes + offset;
  if (mo->big_endian) return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
  return (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0];
}

static int open_catalogue(catalogue *mo, lab_error *error) {
  if (mo->size < 28) return lab_fail(error, "%s: too short for a .mo catalogue", mo->path);
  uint32_t magic = word_at(mo, 0);
  if (magic != 0x950412de) {
    mo->big_endian = 1;
    if (word_at(mo, 0) != 0x950412de) return lab_fail(error, "%s: not a .mo catalogue (wrong magic number)", mo->path);
  }
  uint32_t revision = word_at(mo, 4);
  if (revision >> 16 > 1)
    return lab_fail(error, "%s: .mo format revision %" PRIu32 " is not known", mo->path, revision >> 16);
  mo->count = word_at(mo, 8);
  mo->sources = word_at(mo, 12);
  mo->targets = word_at(mo, 16);
  uint64_t table = (uint64_t)mo->count * 8;
  if (mo->sources + table > (uint64_t)mo->size || mo->targets + table > (uint64_t)mo->size)
    return lab_fail(error, "%s: the tables of %" PRIu32 " messages reach beyond the end of the file", mo->path,
                    mo->count);
  return 0;
}

static int read_message(message *out, const catalogue *mo, uint32_t table, uint32_t i, lab_error *error) {
  out->length = word_at(mo, (int64_t)table + 8 * (int64_t)i);
  uint64_t offset = word_at(mo, (int64_t)table + 8 * (int64_t)i + 4);
  if (offset + out->length >= (uint64_t)mo->size)
    return lab_fail(error, "%s: message %" PRIu32 " reaches beyond the end of the file", mo->path, i);
  out->text = (const char *)mo->bytes + offset;
  if (out->text[out->length] != 0)
    return lab_fail(error, "%s: message %" PRIu32 " does not end with a NUL", mo->path, i);
  /* A NUL inside separates plural forms; each form must be text. */
  for (uint32_t at = 0; at < out->length;) {
    size_t form = strlen(out->text + at);
    if (!lab_is_text(out->text + at, (int64_t)form))
      return lab_fail(error, "%s: message %" PRIu32 " is not UTF-8", mo->path, i);
    at += (uint32_t)form + 1;
  }
  return 0;
}

/* Charset names are compared without regard to case; only those that are UTF-8 already are taken. */
static int charset_is_utf8(const char *name) {
  static const char *const known[] = {"utf-8", "utf8", "us-ascii", "ascii"};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    size_t i = 0;
    while (known[k][i] && (name[i] | 0x20) == (known[k][i] | 0x20))
      i++;
    if (!known[k][i] && (name[i] == 0 || strchr(" ;\t\r\n", name[i]))) return 1;
  }
  return 0;
}

static int check_header(const catalogue *mo, const char *header, lab_error *error) {
  const char *charset = strstr(header, "charset=");
  if (!charset) return 0;
  charset += strlen("charset=");
  if (charset_is_utf8(charset)) return 0;
  return lab_fail(error, "%s: charset %.*s is not UTF-8", mo->path, (int)strcspn(charset, " ;\t\r\n"), charset);
}

/* The next plural form after this one; NULL when there is none. */
static const char *next_form(message whole, const char *form) {
  const char *next = form + strlen(form) + 1;
  return next <= whole.text + whole.length ? next : NULL;
}

static void add_message(lab_pairs *pairs, message source, message target) {
  const char *s = strchr(source.text, '\004'); /* what comes before is the context */
  s = s ? s + 1 : source.text;
  const char *t = target.text;
  if (*s && *t) lab_pairs_add(pairs, s, t);
  s = next_form(source, s);
  t = next_form(target, t);
  if (s && t && *s && *t) lab_pairs_add(pairs, s, t);
}

static int add_messages(lab_pairs *pairs, const catalogue *mo, lab_error *error) {
  for (uint32_t i = 0; i < mo->count; i++) {
    message source, target;
    if (read_message(&source, mo, mo->sources, i, error) < 0) return -1;
    if (read_message(&target, mo, mo->targets, i, error) < 0) return -1;
    if (source.length == 0) {
      if (check_header(mo, target.text, error) < 0) return -1;
    } else {
      add_message(pairs, source, target);
    }
  }
  return 0;
}

static void drop_after(lab_pairs *pairs, int64_t count) {
  while (pairs->count > count) {
    pairs->count--;
    free(pairs->items[pairs->count].source);
    free(pairs->items[pairs->count].target);
  }
}

int lab_pairs_read_mo(lab_pairs *pairs, const char *path, lab_error *error) {
  char *bytes;
  catalogue mo = {.path = path};
  if (lab_read_file(&bytes, &mo.size, path, error) < 0) return -1;
  mo.bytes = (const unsigned char *)bytes;
  int64_t before = pairs->count;
  int status = open_catalogue(&mo, error);
  if (status == 0) status = add_messages(pairs, &mo, error);
  free(bytes);
  if (status < 0) {
    drop_after(pairs, before); /* all of a file or nothing of it */
    return -1;
  }
  pairs->files++;
  const char *slash = strrchr(path, '/');
  snprintf(pairs->origin, sizeof pairs->origin, "gettext catalogue %.120s", slash ? slash + 1 : path);
  return 0;
}

static int is_catalogue(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 3 && strcmp(entry->d_name + length - 3, ".mo") == 0;
}

/* Not alphasort: the order must not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_folder(lab_pairs *pairs, const char *folder) {
  struct dirent **entries;
  int count = scandir(folder, &entries, is_catalogue, by_name), read = 0;
  if (count < 0) return 0;
  for (int i = 0; i < count; i++) {
    char path[1024];
    lab_error ignored;
    int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    if (length < (int)sizeof path && lab_pairs_read_mo(pairs, path, &ignored) == 0) read++;
    free(entries[i]);
  }
  free(entries);
  return read;
}

int lab_pairs_read_installed(lab_pairs *pairs, const char *root, const char *language, lab_error *error) {
  static const char *const places[] = {"/usr/share/locale", "/usr/lib/libreoffice/program/resource"};
  if (!*language || strspn(language, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_@") != strlen(language))
    return lab_fail(error, "'%s' is not a language name such as de or pt_BR", language);
  int read = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    char folder[768];
    int length = snprintf(folder, sizeof folder, "%s%s/%s/LC_MESSAGES", root ? root : "", places[i], language);
    if (length < (int)sizeof folder) read += read_folder(pairs, folder);
  }
  if (read > 0) snprintf(pairs->origin, sizeof pairs->origin, "%d gettext catalogues (en-%.40s)", read, language);
  return read;
}

int lab_pairs_read_named(lab_pairs *pairs, const char *root, const char *language, const char *const *names,
                         lab_error *error) {
  int missing = 0, count = 0;
  for (int pass = 0; pass < 2 && missing == 0; pass++)
    for (count = 0; names[count]; count++) {
      char path[768];
      snprintf(path, sizeof path, "%s/usr/share/locale/%s/LC_MESSAGES/%s.mo", root ? root : "", language, names[count]);
      if (pass == 0)
        missing += access(path, R_OK) != 0;
      else if (lab_pairs_read_mo(pairs, path, error) < 0)
        return -1;
    }
  if (missing > 0) return missing;
  size_t used = (size_t)snprintf(pairs->origin, sizeof pairs->origin, "gettext catalogues (en-%s):", language);
  for (int i = 0; i < count && used < sizeof pairs->origin; i++)
    used += (size_t)snprintf(pairs->origin + used, sizeof pairs->origin - used, " %s", names[i]);
  return 0;
}
