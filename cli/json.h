/* SPDX-License-Identifier: MIT
 *
 * JSON as it is written: one document, its members in the order of the calls.
 *
 *   cli_json j = {.stream = stdout};
 *   cli_json_open(&j, NULL, '{');
 *   cli_json_text(&j, "name", "a \"quoted\" one");      key: NULL in a list
 *   cli_json_open(&j, "list", '[');
 *   cli_json_real(&j, NULL, 0.5);                       what JSON has no number for is null
 *   cli_json_close(&j);
 *   cli_json_close(&j);                                 the last one also ends the line */
#ifndef RMSNORM_CLI_JSON_H
#define RMSNORM_CLI_JSON_H

#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH_MAX = 8 };

typedef struct cli_json {
  FILE *stream;
  int depth;
  struct {
    char close;
    int members, in_lines;
  } open[JSON_DEPTH_MAX];
} cli_json;

void cli_json_open(cli_json *j, const char *key, char bracket); /* '{' or '[' */
void cli_json_close(cli_json *j);
void cli_json_text(cli_json *j, const char *key, const char *text);
void cli_json_real(cli_json *j, const char *key, double value);
void cli_json_int(cli_json *j, const char *key, int64_t value);
void cli_json_flag(cli_json *j, const char *key, int value);

#endif
