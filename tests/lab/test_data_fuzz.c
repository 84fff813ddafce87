/* SPDX-License-Identifier: MIT
 *
 * Damaged files: every truncation and every single flipped bit of a small valid file of each format, then random
 * damage. A loader either reads what is there or fails with one line that names the file; it never crashes, and on
 * failure it leaves nothing behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/images.h"
#include "data/pairs.h"
#include "data/text.h"
#include "harness.h"
#include "samples.h"
#include "temp.h"

typedef struct loader {
  const char *name;
  /* Loads, reads every byte of the result and frees it; returns the loader's status and 1 in *clean if a failure left
   * nothing. */
  int (*load)(const char *path, lab_error *error, int *clean);
} loader;

static volatile unsigned checksum; /* keeps the reading of results from being optimised away */

static void read_bytes(const void *bytes, size_t size) {
  const unsigned char *b = bytes;
  unsigned sum = 0;
  for (size_t i = 0; i < size; i++)
    sum += b[i];
  checksum += sum;
}

static int load_mo(const char *path, lab_error *error, int *clean) {
  lab_pairs pairs = {0};
  int status = lab_pairs_read_mo(&pairs, path, error);
  *clean = pairs.count == 0;
  for (int64_t i = 0; i < pairs.count; i++) {
    read_bytes(pairs.items[i].source, strlen(pairs.items[i].source));
    read_bytes(pairs.items[i].target, strlen(pairs.items[i].target));
  }
  lab_pairs_clean(&pairs, 1, 40);
  lab_pairs_free(&pairs);
  return status;
}

static char other_side[1024];

static int load_lines(const char *path, lab_error *error, int *clean) {
  lab_pairs pairs = {0};
  int status = lab_pairs_read_text(&pairs, path, other_side, error);
  *clean = pairs.count == 0;
  lab_pairs_clean(&pairs, 1, 40);
  lab_pairs_free(&pairs);
  return status;
}

static int finish_images(lab_images *images, int status, int *clean) {
  *clean = images->count == 0 && !images->pixels && !images->labels;
  if (status == 0) {
    read_bytes(images->pixels, (size_t)(images->count * images->channels * images->height * images->width));
    read_bytes(images->labels, (size_t)images->count);
    lab_images_sample(images, 3, 1);
  }
  lab_images_free(images);
  return status;
}

static int load_images(const char *path, lab_error *error, int *clean) {
  lab_images images = {0};
  return finish_images(&images, lab_images_read_idx(&images, path, other_side, error), clean);
}

static int load_labels(const char *path, lab_error *error, int *clean) {
  lab_images images = {0};
  return finish_images(&images, lab_images_read_idx(&images, other_side, path, error), clean);
}

static int load_cifar(const char *path, lab_error *error, int *clean) {
  lab_images images = {0};
  return finish_images(&images, lab_images_read_cifar(&images, path, error), clean);
}

static int load_text(const char *path, lab_error *error, int *clean) {
  lab_text text;
  lab_cloze cloze;
  lab_error ignored;
  int status = lab_text_read(&text, path, error);
  *clean = text.bytes == NULL;
  if (status == 0 && lab_cloze_make(&cloze, &text, &(lab_cloze_options){.passage_words = 20}, &ignored) == 0)
    lab_cloze_free(&cloze);
  lab_text_free(&text);
  return status;
}

/* Returns whether the file could be read. */
static int try_file(const loader *l, const void *bytes, size_t size) {
  const char *path = temp_write("damaged", bytes, size);
  lab_error error = {{0}};
  int clean = 0, status = l->load(path, &error, &clean);
  if (status >= 0) return 1;
  T_CHECK(clean);
  T_CHECK(strstr(error.text, path) && !strchr(error.text, '\n') && strlen(error.text) > strlen(path) + 5);
  return 0;
}

/* Damages the file in all the simple ways; bits are flipped in its first `header` bytes. */
static void damage(const loader *l, const sample *good, size_t header) {
  static sample bad;
  t_rng rng = t_rng_make((uint64_t)header);
  T_EQ_INT(1, try_file(l, good->bytes, good->size));
  for (size_t size = 0; size < good->size; size += size < header ? 1 : 61)
    try_file(l, good->bytes, size);
  for (size_t bit = 0; bit < 8 * (header < good->size ? header : good->size); bit++) {
    bad = *good;
    bad.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    t_context("%s, bit %zu", l->name, bit);
    try_file(l, bad.bytes, bad.size);
  }
  for (int round = 0; round < 300; round++) {
    bad = *good;
    for (int64_t i = t_random_below(&rng, 8); i >= 0; i--)
      bad.bytes[t_random_below(&rng, (int64_t)bad.size)] = (unsigned char)t_random(&rng);
    bad.size = (size_t)t_random_below(&rng, (int64_t)bad.size + 1);
    t_context("%s, round %d", l->name, round);
    try_file(l, bad.bytes, bad.size);
  }
}

static void catalogues(void) {
  static const sample_message messages[] = {SAMPLE_MESSAGE("", "Content-Type: text/plain; charset=UTF-8\n"),
                                            SAMPLE_MESSAGE("%d file\0%d files", "%d Datei\0%d Dateien"),
                                            SAMPLE_MESSAGE("menu\004Close <b>it</b> &now", "Jetzt schließen")};
  static sample mo;
  sample_mo(&mo, messages, T_COUNT(messages), 0);
  damage(&(loader){"mo", load_mo}, &mo, mo.size);
  sample_mo(&mo, messages, T_COUNT(messages), 1);
  damage(&(loader){"mo, big-endian", load_mo}, &mo, 28);
}

static void images(void) {
  static sample pixels, labels, batch;
  sample_idx_images(&pixels, 6, 3, 3);
  sample_idx_labels(&labels, 6);
  snprintf(other_side, sizeof other_side, "%s", temp_write("labels", labels.bytes, labels.size));
  damage(&(loader){"idx images", load_images}, &pixels, 40);
  snprintf(other_side, sizeof other_side, "%s", temp_write("images", pixels.bytes, pixels.size));
  damage(&(loader){"idx labels", load_labels}, &labels, labels.size);
  sample_cifar(&batch, 2);
  damage(&(loader){"CIFAR-10", load_cifar}, &batch, 16);
}

static sample of_text(const char *text) {
  sample s = {.size = strlen(text)};
  memcpy(s.bytes, text, s.size);
  return s;
}

static void texts(void) {
  static sample text;
  text = of_text("Then Anna met Björn. Later Björn saw Anna… So Anna & <b>Cleo</b> told %s to go.\nAnd Dora left.\n");
  damage(&(loader){"text", load_text}, &text, text.size);
  text = of_text("Größe ändern…\r\n&Datei <b>öffnen</b> %-5d\n€ 100%\n");
  snprintf(other_side, sizeof other_side, "%s", temp_write_text("lines", "one\ntwo %s\nthree\n"));
  damage(&(loader){"lines", load_lines}, &text, text.size);
}

/* The packed form of a file: damage here meets zlib first, and what passes meets the loader. */
static void packed(void) {
  static sample pixels, labels, gzip;
  sample_idx_images(&pixels, 6, 3, 3);
  sample_idx_labels(&labels, 6);
  snprintf(other_side, sizeof other_side, "%s", temp_write_gzip("labels.gz", labels.bytes, labels.size));
  FILE *file = fopen(temp_write_gzip("pixels.gz", pixels.bytes, pixels.size), "rb");
  if (!T_CHECK(file != NULL)) return;
  gzip.size = fread(gzip.bytes, 1, sizeof gzip.bytes, file);
  fclose(file);
  damage(&(loader){"gzip", load_images}, &gzip, gzip.size);
}

static const t_case cases[] = {{"catalogues", catalogues}, {"images", images}, {"texts", texts}, {"packed", packed}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
