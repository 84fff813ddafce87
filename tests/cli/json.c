/* SPDX-License-Identifier: MIT
 * The JSON that the command writes: escapes, nesting, numbers that JSON does not have. */
#include "../../cli/json.h"
#include "harness.h"

#include <math.h>

static void document(void) {
  static const char expected[] = "{\n"
                                 "  \"text\": \"a \\\"b\\\" \\\\ \\u000a\\u0001 \xc3\xa9\",\n"
                                 "  \"list\": [1, -9223372036854775808, true],\n"
                                 "  \"objects\": [\n"
                                 "    {\"real\": 0.125, \"none\": null, \"infinite\": null},\n"
                                 "    {\"deep\": [\n"
                                 "        []\n"
                                 "      ]}\n"
                                 "  ],\n"
                                 "  \"empty\": {}\n"
                                 "}\n";
  char text[sizeof expected + 64] = "";
  FILE *file = tmpfile();
  if (!T_CHECK(file != NULL)) return;
  cli_json j = {.stream = file};
  cli_json_open(&j, NULL, '{');
  cli_json_text(&j, "text", "a \"b\" \\ \n\x01 \xc3\xa9");
  cli_json_open(&j, "list", '[');
  cli_json_int(&j, NULL, 1);
  cli_json_int(&j, NULL, INT64_MIN);
  cli_json_flag(&j, NULL, 5);
  cli_json_close(&j);
  cli_json_open(&j, "objects", '[');
  cli_json_open(&j, NULL, '{');
  cli_json_real(&j, "real", 0.125);
  cli_json_real(&j, "none", (double)NAN);
  cli_json_real(&j, "infinite", (double)-INFINITY);
  cli_json_close(&j);
  cli_json_open(&j, NULL, '{');
  cli_json_open(&j, "deep", '[');
  cli_json_open(&j, NULL, '[');
  cli_json_close(&j);
  cli_json_close(&j);
  cli_json_close(&j);
  cli_json_close(&j);
  cli_json_open(&j, "empty", '{');
  cli_json_close(&j);
  cli_json_close(&j);
  rewind(file);
  size_t length = fread(text, 1, sizeof text - 1, file);
  text[length] = 0;
  fclose(file);
  T_EQ_STR(expected, text);
  T_EQ_INT(0, j.depth);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"document", document}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
