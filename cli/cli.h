/* SPDX-License-Identifier: MIT
 *
 * What the subcommands share: the option table, the help made from it, error lines and exit codes.
 *
 * A subcommand is a function cmd_NAME(argc, argv) with argv[0] = NAME. It returns the exit code:
 *   0  done         1  the job ran and its answer is no (a check missed)         2  bad usage or bad input
 * Data goes to stdout, progress and errors to stderr. An error is one line: "rmsnorm: FILE: reason". */
#ifndef RMSNORM_CLI_H
#define RMSNORM_CLI_H

#include <stdint.h>
#include <stdio.h>

#include "json.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD = 2 };

int cmd_info(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_apply(int argc, char **argv);

/* The GPUs of this machine; only in builds with CUDA. Text: the rest of a line and its end, any number of lines after
 * it starting with 19 spaces. JSON: the member "cuda". */
void info_cuda_text(FILE *stream);
void info_cuda_json(cli_json *j);

typedef enum cli_type {
  CLI_FLAG,   /* int *: set to 1      */
  CLI_STRING, /* const char **        */
  CLI_INT,    /* int64_t *            */
  CLI_REAL    /* double *             */
} cli_type;

typedef struct cli_option {
  const char *name; /* "eps": given as --eps E or --eps=E; the table ends with a NULL name */
  char letter;      /* 'o': also -o OUT; 0: none                                           */
  cli_type type;
  void *value;
  const char *argument; /* "E" in the help; NULL for a flag */
  const char *help;
} cli_option;

typedef struct cli_command {
  const char *name;     /* "apply"                                       */
  const char *usage;    /* "IN.npy -o OUT.npy [OPTION...]"               */
  const char *summary;  /* what it does, in a sentence or two            */
  const char *examples; /* whole lines                                   */
  const cli_option *options;
  const char *notes; /* whole lines after the options; NULL: none     */
} cli_command;

/* Sets the options' values and moves the other arguments to argv[0..*argc-1]. Returns a negative number to go on,
 * otherwise the exit code: --help was answered or an error was reported. */
int cli_parse(const cli_command *command, int *argc, char **argv);

/* Prints "rmsnorm: SUBJECT: reason" (no SUBJECT where it is NULL) and returns CLI_BAD. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int cli_error(const char *subject, const char *format, ...);

/* Negative to go on; an error line and CLI_BAD if RMSNORM_ISA or RMSNORM_STREAM_BYTES cannot be used. */
int cli_check_environment(void);

/* 1 if text to this stream may carry colour: a terminal that is not dumb, and no NO_COLOR. */
int cli_color(FILE *stream);

/* A line of progress on stderr that the next one replaces; shown on a terminal only. NULL clears it. */
void cli_progress(const char *text);

#endif
