/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"

static int need_help(const char *argument) {
  return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static void print_option(const cli_option *option) {
  char left[64];
  int width = option->letter ? snprintf(left, sizeof left, "-%c, --%s", option->letter, option->name)
                             : snprintf(left, sizeof left, "--%s", option->name);
  if (option->argument) snprintf(left + width, sizeof left - (size_t)width, " %s", option->argument);
  if (strlen(left) > 22)
    printf("  %s\n%25s", left, "");
  else
    printf("  %-22s ", left);
  for (const char *c = option->help; *c; c++) {
    putchar(*c);
    if (*c == '\n') printf("%25s", "");
  }
  putchar('\n');
}

static void print_help(const cli_command *command) {
  printf("Usage: rmsnorm %s %s\n\n%s\n\nExamples:\n%s\nOptions:\n", command->name, command->usage, command->summary,
         command->examples);
  for (const cli_option *option = command->options; option->name; option++)
    print_option(option);
  printf("  %-22s this text\n", "-h, --help");
  if (command->notes) printf("\n%s", command->notes);
}

static const cli_option *find_option(const cli_command *command, const char *argument, size_t length) {
  for (const cli_option *option = command->options; option->name; option++) {
    if (argument[1] != '-') {
      if (length == 2 && option->letter == argument[1]) return option;
    } else if (strlen(option->name) == length - 2 && memcmp(option->name, argument + 2, length - 2) == 0) {
      return option;
    }
  }
  return NULL;
}

static int unknown_option(const cli_command *command, const char *argument, size_t length) {
  const char *names[64];
  size_t count = 0;
  for (const cli_option *option = command->options; option->name && count < 62; option++)
    names[count++] = option->name;
  names[count++] = "help";
  names[count] = NULL;
  char word[64];
  const char *near = NULL;
  if (argument[1] == '-' && length - 2 < sizeof word) {
    memcpy(word, argument + 2, length - 2);
    word[length - 2] = 0;
    near = verify_nearest_word(word, names);
  }
  if (near) return cli_error(NULL, "unknown option '%.*s'; did you mean '--%s'?", (int)length, argument, near);
  return cli_error(NULL, "unknown option '%.*s'; see 'rmsnorm %s --help'", (int)length, argument, command->name);
}

static int set_option(const cli_option *option, const char *text) {
  char *end = NULL;
  errno = 0;
  switch (option->type) {
  case CLI_FLAG:
    *(int *)option->value = 1;
    return CLI_OK;
  case CLI_STRING:
    *(const char **)option->value = text;
    return CLI_OK;
  case CLI_INT: {
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno) return cli_error(NULL, "--%s: '%s' is not a whole number", option->name, text);
    *(int64_t *)option->value = number;
    return CLI_OK;
  }
  case CLI_REAL: {
    double number = strtod(text, &end);
    if (end == text || *end) return cli_error(NULL, "--%s: '%s' is not a number", option->name, text);
    *(double *)option->value = number;
    return CLI_OK;
  }
  }
  return CLI_BAD;
}

int cli_parse(const cli_command *command, int *argc, char **argv) {
  for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++) {
    if (need_help(argv[i])) {
      print_help(command);
      return CLI_OK;
    }
  }
  int kept = 0, options_end = 0;
  for (int i = 1; i < *argc; i++) {
    char *argument = argv[i];
    if (options_end || argument[0] != '-' || !argument[1]) {
      argv[kept++] = argument;
      continue;
    }
    if (strcmp(argument, "--") == 0) {
      options_end = 1;
      continue;
    }
    const char *equals = argument[1] == '-' ? strchr(argument, '=') : NULL;
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    const cli_option *option = find_option(command, argument, length);
    if (!option) return unknown_option(command, argument, length);
    const char *text = equals ? equals + 1 : NULL;
    if (option->type == CLI_FLAG && text) return cli_error(NULL, "--%s takes no value", option->name);
    if (option->type != CLI_FLAG && !text) {
      if (i + 1 == *argc) return cli_error(NULL, "--%s needs a value: %s", option->name, option->argument);
      text = argv[++i];
    }
    if (set_option(option, text) != CLI_OK) return CLI_BAD;
  }
  *argc = kept;
  return -1;
}
