/* SPDX-License-Identifier: MIT
 *
 * Sentence pairs: text files, catalogues, cleaning, the split.
 */
#include "data/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "samples.h"
#include "temp.h"

static lab_error error;

static void text_files(void) {
  lab_pairs pairs = {0};
  const char *en = temp_write_text("a.en", "one house\r\n\ntwo birds\nthree\n"),
             *de = temp_write_text("a.de", "ein Haus\nleer\nzwei Vögel\ndrei");
  T_EQ_INT(0, lab_pairs_read_text(&pairs, en, de, &error));
  if (T_EQ_INT(3, pairs.count)) { /* the empty line is no pair */
    T_EQ_STR("one house", pairs.items[0].source);
    T_EQ_STR("ein Haus", pairs.items[0].target);
    T_EQ_STR("zwei Vögel", pairs.items[1].target);
    T_EQ_STR("drei", pairs.items[2].target);
  }
  T_EQ_STR("a.en + a.de", pairs.origin);
  const char *packed = temp_write_gzip("a.de.gz", "x\ny\nz\nw\n", 8);
  T_EQ_INT(0, lab_pairs_read_text(&pairs, en, packed, &error));
  T_EQ_INT(6, pairs.count); /* added to what was there */
  lab_pairs_free(&pairs);
}

static void text_errors(void) {
  lab_pairs pairs = {0};
  const char *good = temp_write_text("good", "a\nb\n"), *longer = temp_write_text("longer", "a\nb\nc\n");
  const char *empty = temp_write_text("empty", ""), *latin = temp_write("latin", "a\nM\xfcnchen\n", 10);
  T_EQ_INT(-1, lab_pairs_read_text(&pairs, good, longer, &error));
  T_CHECK(strstr(error.text, "has 2 lines but") && strstr(error.text, "has 3"));
  T_EQ_INT(-1, lab_pairs_read_text(&pairs, good, empty, &error));
  T_CHECK(temp_names(error.text, empty));
  T_EQ_INT(-1, lab_pairs_read_text(&pairs, latin, good, &error));
  T_CHECK(temp_names(error.text, latin) && strstr(error.text, "not UTF-8"));
  T_EQ_INT(-1, lab_pairs_read_text(&pairs, temp_path("missing"), good, &error));
  T_CHECK(strstr(error.text, "No such file"));
  T_EQ_INT(0, pairs.count);
}

static const sample_message catalogue[] = {
    SAMPLE_MESSAGE("", "Project-Id-Version: x\nContent-Type: text/plain; charset=UTF-8\n"),
    SAMPLE_MESSAGE("%d file\0%d files", "%d Datei\0%d Dateien"), SAMPLE_MESSAGE("Open", "Öffnen"),
    SAMPLE_MESSAGE("menu\004Close", "Schließen"), SAMPLE_MESSAGE("untranslated", "")};

static void catalogues(void) {
  for (int big_endian = 0; big_endian < 2; big_endian++) {
    lab_pairs pairs = {0};
    sample mo;
    sample_mo(&mo, catalogue, T_COUNT(catalogue), big_endian);
    T_EQ_INT(0, lab_pairs_read_mo(&pairs, temp_write("x.mo", mo.bytes, mo.size), &error));
    if (T_EQ_INT(4, pairs.count)) {
      T_EQ_STR("%d file", pairs.items[0].source);
      T_EQ_STR("%d Datei", pairs.items[0].target);
      T_EQ_STR("%d files", pairs.items[1].source);
      T_EQ_STR("%d Dateien", pairs.items[1].target);
      T_EQ_STR("Öffnen", pairs.items[2].target);
      T_EQ_STR("Close", pairs.items[3].source);
    }
    lab_pairs_free(&pairs);
  }
}

/* Reads a catalogue that was damaged at one place and expects the reason. */
static void expect_refusal(const sample *mo, const char *reason) {
  lab_pairs pairs = {0};
  const char *path = temp_write("bad.mo", mo->bytes, mo->size);
  T_EQ_INT(-1, lab_pairs_read_mo(&pairs, path, &error));
  T_CHECK(temp_names(error.text, path));
  if (!T_CHECK(strstr(error.text, reason) != NULL)) fprintf(stderr, "    wanted '%s', got '%s'\n", reason, error.text);
  T_EQ_INT(0, pairs.count);
  lab_pairs_free(&pairs);
}

static void catalogue_errors(void) {
  sample mo;
  sample_mo(&mo, catalogue, T_COUNT(catalogue), 0);
  sample bad = mo;
  bad.size = 27;
  expect_refusal(&bad, "too short");
  bad = mo;
  bad.bytes[0] = 0;
  expect_refusal(&bad, "wrong magic");
  bad = mo;
  bad.bytes[6] = 9;
  expect_refusal(&bad, "revision 9");
  bad = mo;
  bad.bytes[11] = 0xff; /* four billion messages */
  expect_refusal(&bad, "reach beyond the end");
  bad = mo;
  bad.bytes[28 + 8 * 2 + 2] = 0x7f; /* a long third message */
  expect_refusal(&bad, "message 2 reaches beyond");
  bad = mo;
  bad.bytes[28 + 8 * 2]--; /* one byte shorter: no NUL after it */
  expect_refusal(&bad, "message 2 does not end");
  bad = mo;
  bad.bytes[bad.size - 3] = 0xff; /* inside the last translation that is not empty */
  expect_refusal(&bad, "message 3 is not UTF-8");
  sample latin;
  sample_mo(&latin, (sample_message[]){SAMPLE_MESSAGE("", "Content-Type: text/plain; charset=ISO-8859-1\n")}, 1, 0);
  expect_refusal(&latin, "charset ISO-8859-1 is not UTF-8");
  sample_mo(&latin, (sample_message[]){SAMPLE_MESSAGE("", "charset=\033[31mred\n")}, 1, 0);
  expect_refusal(&latin, "charset ?[31mred is not UTF-8");
}

static void installed(void) {
  sample mo;
  lab_pairs pairs = {0};
  sample_mo(&mo, catalogue, T_COUNT(catalogue), 0);
  temp_write("root/usr/share/locale/xx/LC_MESSAGES/b.mo", mo.bytes, mo.size);
  temp_write("root/usr/share/locale/xx/LC_MESSAGES/broken.mo", mo.bytes, mo.size - 1);
  temp_write("root/usr/share/locale/xx/LC_MESSAGES/readme.txt", mo.bytes, mo.size);
  temp_write("root/usr/lib/libreoffice/program/resource/xx/LC_MESSAGES/a.mo", mo.bytes, mo.size);
  const char *root = temp_path("root");
  T_EQ_INT(2, lab_pairs_read_installed(&pairs, root, "xx", &error));
  T_EQ_INT(8, pairs.count);
  T_EQ_STR("2 gettext catalogues (en-xx)", pairs.origin);
  T_EQ_INT(0, lab_pairs_read_installed(&pairs, root, "yy", &error));
  T_EQ_INT(-1, lab_pairs_read_installed(&pairs, root, "../etc", &error));
  T_EQ_INT(-1, lab_pairs_read_installed(&pairs, root, "", &error));
  lab_pairs_free(&pairs);
}

/* A fixed few: others that are installed change nothing, and one that is missing leaves nothing behind. */
static void named(void) {
  sample mo;
  lab_pairs pairs = {0};
  sample_mo(&mo, catalogue, T_COUNT(catalogue), 0);
  temp_write("root2/usr/share/locale/xx/LC_MESSAGES/b.mo", mo.bytes, mo.size);
  temp_write("root2/usr/share/locale/xx/LC_MESSAGES/c.mo", mo.bytes, mo.size);
  temp_write("root2/usr/share/locale/xx/LC_MESSAGES/other.mo", mo.bytes, mo.size);
  temp_write("root2/usr/share/locale/xx/LC_MESSAGES/broken.mo", mo.bytes, mo.size - 1);
  const char *root = temp_path("root2");
  T_EQ_INT(0, lab_pairs_read_named(&pairs, root, "xx", (const char *const[]){"b", "c", NULL}, &error));
  T_EQ_INT(8, pairs.count);
  T_EQ_STR("gettext catalogues (en-xx): b c", pairs.origin);
  lab_pairs_free(&pairs);
  T_EQ_INT(2, lab_pairs_read_named(&pairs, root, "xx", (const char *const[]){"b", "d", "e", NULL}, &error));
  T_EQ_INT(0, pairs.count);
  T_EQ_INT(-1, lab_pairs_read_named(&pairs, root, "xx", (const char *const[]){"broken", NULL}, &error));
  T_CHECK(strstr(error.text, "broken.mo"));
  lab_pairs_free(&pairs);
}

/* One side through the cleaning; the other is the same text with "x" before it, so that neither equals the other. */
static void expect_clean(const char *text, const char *cleaned) {
  lab_pairs pairs = {0};
  char target[256];
  snprintf(target, sizeof target, "x %s", text);
  lab_pairs_add(&pairs, text, target);
  lab_pairs_clean(&pairs, 1, 40);
  t_context("'%s'", text);
  if (!cleaned)
    T_EQ_INT(0, pairs.count);
  else if (T_EQ_INT(1, pairs.count))
    T_EQ_STR(cleaned, pairs.items[0].source);
  lab_pairs_free(&pairs);
}

static void cleaning(void) {
  expect_clean("&Open file...", "Open file");
  expect_clean("E_xit now:", "Exit now");
  expect_clean("~Paste special\xe2\x80\xa6", "Paste special");
  expect_clean("Salt & pepper", "Salt & pepper");
  expect_clean("&lt;none&gt; &amp; more", "<none> & more");
  expect_clean("set LC_ALL first", "set LC_ALL first");
  expect_clean("keep a_b_c whole", "keep a_b_c whole");
  expect_clean("a <b>bold</b> word, 3 < 4", "a bold word, 3 < 4");
  expect_clean("%1$d of %-5.2lf%% done", "%s of %s%% done");
  expect_clean("100% sure", "100% sure");
  expect_clean("  two\n lines\tand\xc2\xa0more ", "two lines and more");
  expect_clean("...", "...");
  expect_clean(" \n", NULL);
}

static void filtering(void) {
  lab_pairs pairs = {0};
  lab_pairs_add(&pairs, "too short", "zu kurz hier");
  lab_pairs_add(&pairs, "the same text", "the same text");
  lab_pairs_add(&pairs, "copy %d files now", "Dateien jetzt kopieren");
  lab_pairs_add(&pairs, "Open the file", "Datei öffnen");
  lab_pairs_add(&pairs, "open the File!", "Die Datei öffnen");
  lab_pairs_add(&pairs, "one two three four five six", "eins");
  lab_pairs_clean(&pairs, 3, 5);
  if (T_EQ_INT(1, pairs.count)) T_EQ_STR("Datei öffnen", pairs.items[0].target);
  lab_pairs_free(&pairs);
}

static lab_pairs numbered(int count, int backwards) {
  lab_pairs pairs = {0};
  for (int i = 0; i < count; i++) {
    char source[32], target[32];
    int n = backwards ? count - 1 - i : i;
    snprintf(source, sizeof source, "source %d", n);
    snprintf(target, sizeof target, "target %d", n);
    lab_pairs_add(&pairs, source, target);
  }
  return pairs;
}

static void splitting(void) {
  enum { COUNT = 200 };
  lab_pairs a = numbered(COUNT, 0), b = numbered(COUNT, 1), c = numbered(COUNT, 0);
  lab_pairs_split x = lab_pairs_cut(&a, 5, 15, 500), y = lab_pairs_cut(&b, 5, 15, 500),
                  z = lab_pairs_cut(&c, 6, 15, 500);
  T_EQ_INT(165, x.train.count);
  T_EQ_INT(15, x.dev.count);
  T_EQ_INT(20, x.test.count); /* a tenth */
  int same = 0, seen[COUNT] = {0}, all = 0;
  for (int i = 0; i < COUNT; i++) {
    T_EQ_STR(x.train.items[i].source, y.train.items[i].source); /* the parts lie one after another */
    T_EQ_STR(x.train.items[i].source + 7, x.train.items[i].target + 7);
    same += strcmp(x.train.items[i].source, z.train.items[i].source) == 0;
    seen[atoi(x.train.items[i].source + 7)]++;
  }
  for (int i = 0; i < COUNT; i++)
    all += seen[i] == 1;
  T_EQ_INT(COUNT, all);
  T_CHECK(same < COUNT / 10); /* about one in COUNT by chance */
  T_CHECK(x.test.items == x.train.items + 165 && x.dev.items == x.test.items + x.test.count);
  lab_pairs none = {0};
  T_EQ_INT(0, lab_pairs_cut(&none, 1, 5, 5).train.count);
  lab_pairs_free(&a);
  lab_pairs_free(&b);
  lab_pairs_free(&c);
}

static const t_case cases[] = {{"text_files", text_files}, {"text_errors", text_errors},
                               {"catalogues", catalogues}, {"catalogue_errors", catalogue_errors},
                               {"installed", installed},   {"named", named},
                               {"cleaning", cleaning},     {"filtering", filtering},
                               {"splitting", splitting}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
