/* SPDX-License-Identifier: MIT
 *
 * The rmsnorm command: finds the subcommand and runs it. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"
#include "rmsnorm.h"

#ifdef RMSNORM_HAVE_LAB
#include "command/lab.h"
#else
static int lab_main(int argc, char **argv) {
  (void)argc, (void)argv;
  return cli_error(
      NULL, "this build has no lab: install libopenblas-dev, zlib1g-dev and libjansson-dev, then build again with "
            "-DRMSNORM_LAB=on");
}
#endif

static const struct subcommand {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *summary;
} SUBCOMMANDS[] = {
    {"info", cmd_info, "this machine and this build: CPU, instruction sets, caches, bandwidth"},
    {"check", cmd_check, "every operation on this machine against an exact oracle"},
    {"bench", cmd_bench, "speed of every operation against a plain copy of the same bytes"},
    {"apply", cmd_apply, "normalise NumPy files, forward or backward"},
    {"lab", lab_main, "the experiments of the RMSNorm paper"},
};
enum { SUBCOMMAND_COUNT = sizeof SUBCOMMANDS / sizeof SUBCOMMANDS[0] };

static void print_usage(FILE *stream) {
  fputs("Usage: rmsnorm COMMAND [ARGUMENT...]\n\n"
        "RMSNorm, partial RMSNorm and LayerNorm, forward and backward.\n\n"
        "Examples:\n"
        "  rmsnorm apply x.npy -o y.npy --weight w.npy --eps 1e-6\n"
        "  rmsnorm check\n"
        "  rmsnorm bench --short\n\n"
        "Commands:\n",
        stream);
  for (int i = 0; i < SUBCOMMAND_COUNT; i++)
    fprintf(stream, "  %-8s %s\n", SUBCOMMANDS[i].name, SUBCOMMANDS[i].summary);
  fputs("\n'rmsnorm help COMMAND' tells more about a command; 'rmsnorm --version' prints the version.\n"
        "Exit codes: 0 done, 1 a check missed, 2 bad usage, bad input or too little memory.\n",
        stream);
}

static int unknown_command(const char *word) {
  const char *names[SUBCOMMAND_COUNT + 1] = {NULL};
  for (int i = 0; i < SUBCOMMAND_COUNT; i++)
    names[i] = SUBCOMMANDS[i].name;
  const char *near = verify_nearest_word(word, names);
  if (near) return cli_error(NULL, "unknown command '%s'; did you mean '%s'?", word, near);
  return cli_error(NULL, "unknown command '%s'; see 'rmsnorm --help'", word);
}

/* words[0] names the subcommand. */
static int run_subcommand(int count, char **words) {
  for (int i = 0; i < SUBCOMMAND_COUNT; i++)
    if (strcmp(words[0], SUBCOMMANDS[i].name) == 0) return SUBCOMMANDS[i].run(count, words);
  return unknown_command(words[0]);
}

static int run(int argc, char **argv) {
  if (argc < 2) {
    print_usage(stderr);
    return CLI_BAD;
  }
  const char *word = argv[1];
  int help = strcmp(word, "help") == 0;
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || (help && argc == 2)) {
    print_usage(stdout);
    return CLI_OK;
  }
  if (help) { /* `help lab` is `lab --help` */
    char flag[] = "--help", *words[] = {argv[2], flag, NULL};
    return argc > 3 ? cli_error(argv[3], "'help' takes one command") : run_subcommand(2, words);
  }
  if (strcmp(word, "--version") == 0) {
    printf("rmsnorm %s\n", rms_version());
    return CLI_OK;
  }
  return run_subcommand(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
  int code = run(argc, argv);
  cli_progress(NULL);
  if (code != CLI_OK) return code; /* reported already */
  if (fflush(stdout) != 0 || ferror(stdout)) return cli_error("standard output", "%s", strerror(errno));
  return CLI_OK;
}
