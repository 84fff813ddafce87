/* SPDX-License-Identifier: MIT
 *
 * Plain text and the cloze questions made from it.
 */
#include "data/text.h"

#include <stdio.h>
#include <string.h>

#include "data/synth.h"
#include "harness.h"
#include "temp.h"

static lab_error error;

static void reading(void) {
  lab_text text;
  T_EQ_INT(0, lab_text_read(&text, temp_write_text("t.txt", "Zwölf Boxkämpfer.\n"), &error));
  T_EQ_INT(20, text.size);
  T_EQ_STR("t.txt", text.origin);
  lab_text_free(&text);
  T_EQ_INT(0, lab_text_read(&text, temp_write_gzip("t.gz", "packed", 6), &error));
  T_EQ_STR("packed", text.bytes);
  lab_text_free(&text);
  const struct {
    const char *bytes;
    size_t size;
    const char *reason;
  } bad[] = {{"", 0, "empty"},
             {"a\0b", 3, "NUL"},
             {"\xff", 1, "UTF-8"},
             {"\xc3", 1, "UTF-8"},
             {"\xc0\xaf", 2, "UTF-8"},
             {"\xed\xa0\x80", 3, "UTF-8"},
             {"\xf4\x90\x80\x80", 4, "UTF-8"},
             {"\xe0\x80\xaf", 3, "UTF-8"},
             {"a\x80", 2, "UTF-8"}};
  for (size_t i = 0; i < T_COUNT(bad); i++) {
    const char *path = temp_write("bad.txt", bad[i].bytes, bad[i].size);
    t_context("bad text %zu", i);
    T_EQ_INT(-1, lab_text_read(&text, path, &error));
    T_CHECK(temp_names(error.text, path) && strstr(error.text, bad[i].reason));
    T_CHECK(text.bytes == NULL);
  }
}

static void damaged_gzip(void) {
  lab_text text;
  char zeros[4096] = {0}, bytes[512];
  memset(zeros, 'x', sizeof zeros);
  const char *path = temp_write_gzip("d.gz", zeros, sizeof zeros);
  FILE *file = fopen(path, "rb");
  if (!T_CHECK(file != NULL)) return;
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  path = temp_write("cut.gz", bytes, size - 9);
  T_EQ_INT(-1, lab_text_read(&text, path, &error));
  T_CHECK(temp_names(error.text, path) && strstr(error.text, "ends too early"));
  bytes[size - 8] ^= 1; /* the checksum */
  path = temp_write("sum.gz", bytes, size);
  T_EQ_INT(-1, lab_text_read(&text, path, &error));
  T_CHECK(temp_names(error.text, path) && strstr(error.text, "damaged"));
}

static int count_of(const int32_t *ids, int32_t length, int32_t id) {
  int count = 0;
  for (int32_t i = 0; i < length; i++)
    count += ids[i] == id;
  return count;
}

static void questions(void) {
  lab_cloze cloze, again;
  lab_cloze_options options = {.entities = 3, .passage_words = 40, .vocabulary = 45, .questions = 300, .seed = 3};
  if (!T_EQ_INT(0, lab_synth_cloze(&cloze, &options, &error))) return;
  T_EQ_INT(0, lab_synth_cloze(&again, &options, &error));
  T_EQ_INT(300, cloze.count);
  T_EQ_INT(3, cloze.entities);
  T_CHECK(cloze.vocabulary <= 45 && cloze.synthetic);
  int answers[3] = {0};
  for (int64_t i = 0; i < cloze.count; i++) {
    const lab_question *q = &cloze.items[i];
    const int32_t *passage = cloze.ids + q->passage, *query = cloze.ids + q->query;
    if (!T_CHECK(q->answer >= 0 && q->answer < 3)) return;
    answers[q->answer]++;
    for (int32_t mark = 0; mark < 3; mark++)
      T_CHECK(count_of(passage, q->passage_length, LAB_CLOZE_ENTITY + mark) > 0);
    T_CHECK(count_of(query, q->query_length, LAB_CLOZE_BLANK) > 0);
    T_EQ_INT(0, count_of(passage, q->passage_length, LAB_CLOZE_BLANK));
    T_EQ_INT(0, count_of(query, q->query_length, LAB_CLOZE_ENTITY + q->answer)); /* the answer is not given away */
    T_CHECK(q->passage_length <= 80 && q->query_length <= 60);
    for (int32_t j = 0; j < q->passage_length; j++)
      T_CHECK(passage[j] > LAB_CLOZE_PAD && passage[j] < cloze.vocabulary);
  }
  for (int i = 0; i < 3; i++)
    T_CHECK(answers[i] > 60); /* a third of 300 each: five standard deviations below is 59 */
  T_EQ_INT(cloze.ids_count, again.ids_count);
  T_EQ_BYTES(cloze.ids, again.ids, (size_t)cloze.ids_count * sizeof *cloze.ids);
  T_EQ_STR("<blank>", cloze.words[LAB_CLOZE_BLANK]);
  T_EQ_STR("@2", cloze.words[LAB_CLOZE_ENTITY + 2]);
  lab_cloze_free(&cloze);
  lab_cloze_free(&again);
}

static void cutting(void) {
  lab_cloze cloze;
  lab_cloze_options options = {.questions = 400, .seed = 4};
  if (!T_EQ_INT(0, lab_synth_cloze(&cloze, &options, &error))) return;
  lab_cloze_split split = lab_cloze_cut(&cloze, 30, 1000);
  T_EQ_INT(40, split.test.count);
  T_EQ_INT(30, split.dev.count);
  T_CHECK(split.train.count > 280 && split.train.count < 330);
  T_CHECK(split.train.items[split.train.count - 1].last_sentence < split.dev.items[0].first_sentence);
  T_CHECK(split.dev.items[29].last_sentence < split.test.items[0].first_sentence);
  lab_cloze_free(&cloze);
}

static void cloze_errors(void) {
  lab_cloze cloze;
  lab_text text;
  T_EQ_INT(0, lab_text_read(&text, temp_write_text("few.txt", "No names here. Not one. Nothing at all to ask for."),
                            &error));
  T_EQ_INT(-1, lab_cloze_make(&cloze, &text, &(lab_cloze_options){.seed = 1}, &error));
  T_CHECK(strstr(error.text, "few.txt: gives 0 cloze questions") != NULL);
  T_EQ_INT(-1, lab_cloze_make(&cloze, &text, &(lab_cloze_options){.entities = 1}, &error));
  T_EQ_INT(-1, lab_cloze_make(&cloze, &text, &(lab_cloze_options){.entities = 65}, &error));
  T_EQ_INT(-1, lab_cloze_make(&cloze, &text, &(lab_cloze_options){.vocabulary = 5}, &error));
  lab_text_free(&text);
}

static const t_case cases[] = {{"reading", reading},
                               {"damaged_gzip", damaged_gzip},
                               {"questions", questions},
                               {"cutting", cutting},
                               {"cloze_errors", cloze_errors}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
