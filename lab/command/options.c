/* SPDX-License-Identifier: MIT */
#include "command/options.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

const char *family_name(lab_family family) {
  static const char *const names[FAMILIES] = {"rnnsearch", "transformer", "convpool", "reader", "order", "lm"};
  return names[family];
}

/* ---- the table of options ---- */

/* Who uses an option: a set of families and tasks. */
enum {
  RNNSEARCH = 1 << FAMILY_RNNSEARCH,
  TRANSFORMER = 1 << FAMILY_TRANSFORMER,
  CONVPOOL = 1 << FAMILY_CONVPOOL,
  READER = 1 << FAMILY_READER,
  ORDER = 1 << FAMILY_ORDER,
  LM = 1 << FAMILY_LM,
  MODELS = (1 << FAMILIES) - 1,
  TRAIN = 1 << FAMILIES, /* training, not psweep and init */
  INIT = 1 << (FAMILIES + 1),
  THEORY = 1 << (FAMILIES + 2),
  PAIRS = RNNSEARCH | TRANSFORMER | ORDER,
  STACKS = TRANSFORMER | LM
};

typedef struct lab_option {
  const char *name;
  cli_type type;
  size_t offset;
  int users;
  double low, high; /* of a number */
  const char *argument, *help;
} lab_option;

#define AT(field)          offsetof(lab_options, field)
#define FLAG(name, f, u)   name, CLI_FLAG, AT(f), u, 0, 0, NULL
#define TEXT(name, f, u)   name, CLI_STRING, AT(f), u, 0, 0
#define COUNT(name, f, u)  name, CLI_INT, AT(f), u
#define NUMBER(name, f, u) name, CLI_REAL, AT(f), u

static const lab_option table[] = {
    {TEXT("norms", norms, TRAIN | INIT), "LIST",
     "none,layer,rms,prms,l2; for convpool batch, for the others prms-local (default none,layer,rms,prms)"},
    {TEXT("norm", norms, TRAIN | INIT), "LIST", "the same"},
    {NUMBER("p", p, TRAIN | INIT), 1e-9, 1, "P",
     "share of the row that pRMSNorm measures (default 0.25, convpool 0.5; with --full the\npaper's 0.0625, convpool "
     "0.125)"},
    {COUNT("ranks", ranks, TRAIN | INIT), 1, 1024, "N",
     "prms-local: every row's columns lie on N ranks, each with a statistic of its own (default 4)"},
    {TEXT("subset", subset, MODELS), "S", "pRMSNorm measures the first elements or spread ones (default first)"},
    {TEXT("engine", engine, MODELS), "E", "library (default) or textbook: each norm as un-fused passes over memory"},
    {NUMBER("eps", eps, MODELS), 0, 1, "E", "inside the root (default 1e-5)"},
    {COUNT("runs", runs, TRAIN), 1, 1000, "N", "seeds, for mean and spread (default 2; with --full 1)"},
    {COUNT("seed", seed, MODELS | THEORY), 1, 1e9, "N", "first seed (default 1)"},
    {COUNT("threads", threads, MODELS), 1, 256, "N",
     "threads (default: one per shard, at most the CPU's); never changes a result"},
    {COUNT("shards", shards, MODELS), 1, 1024, "N", "parts of a batch that can run at once (default 2, with --full 8)"},
    {FLAG("full", full, MODELS), "the paper's sizes: months on two cores"},
    {COUNT("timing", timing, TRAIN), 0, 100000, "N",
     "steps of the comparison of times, each norm on both engines (default 30, with --full none)"},
    {TEXT("out", out, MODELS | THEORY), "DIR",
     "where the report goes (default lab-out, or lab-out-2 and so on if there is one)"},
    {FLAG("replace", replace, MODELS | THEORY), "replace a report that is already in --out DIR"},
    {TEXT("checkpoints", checkpoints, TRAIN), "DIR", "keep the state of every run in DIR, at the end and when stopped"},
    {COUNT("every", every, TRAIN), 1, 1e9, "N", "and every N steps"},
    {FLAG("resume", resume, TRAIN), "go on from the files in the --checkpoints folder, where there are any"},
    {FLAG("quiet", quiet, MODELS | THEORY), "no progress on stderr"},
    {COUNT("steps", steps, MODELS), 1, 1e8, "N", "training steps"},
    {COUNT("batch", batch, MODELS), 1, 4096, "N", "examples in a batch"},
    {NUMBER("rate", rate, MODELS), 1e-12, 1e30, "R", "learning rate of Adam"},
    {COUNT("warmup", warmup, MODELS), 1, 1e8, "N", "steps over which the rate rises"},
    {NUMBER("clip", clip, MODELS), 0, 1e30, "C", "largest gradient norm; 0: no limit"},
    {NUMBER("dropout", dropout, MODELS & ~ORDER), 0, 0.99, "D", "probability of dropping; 0: none"},
    {NUMBER("noise", noise, CONVPOOL), 0, 100, "D", "deviation of the noise on convpool's images; 0: none"},
    {COUNT("width", width, MODELS & ~CONVPOOL), 1, 4096, "N", "model or state width"},
    {COUNT("embed", embed, MODELS & ~STACKS), 1, 4096, "N",
     "width of embeddings; convpool: channels of the first layers (the paper: 96)"},
    {COUNT("hidden", hidden, STACKS), 1, 16384, "N", "inner width of the transformer's feed-forward layers"},
    {COUNT("layers", layers, STACKS), 1, 64, "N", "transformer layers"},
    {COUNT("heads", heads, STACKS), 1, 64, "N", "attention heads"},
    {COUNT("length", length, LM), 1, 2048, "N", "window of the language model"},
    {FLAG("pre", pre_norm, STACKS), "norm before each sub-layer (default but for --full)"},
    {FLAG("post", post_norm, STACKS), "norm after each residual sum (default with --full)"},
    {COUNT("beam", beam, RNNSEARCH | TRANSFORMER), 1, 64, "N", "beam width of translation"},
    {COUNT("tested", tested, MODELS), 1, 20000, "N", "examples of the test set that are scored, its last ones"},
    {TEXT("source", source, PAIRS), "FILE", "sentences, one a line (with --target)"},
    {TEXT("target", target, PAIRS), "FILE", "their translations"},
    {TEXT("mo", catalogue, PAIRS), "FILE", "a gettext catalogue instead"},
    {TEXT("language", language, PAIRS), "L", "every installed catalogue of a language (default: a fixed few, German)"},
    {COUNT("pairs", pairs, PAIRS), 1, 1e8, "N", "at most this many sentence pairs"},
    {COUNT("max-words", max_words, PAIRS), 3, 200, "N", "longest sentence; the shortest has 3 words"},
    {COUNT("merges", merges, PAIRS), 1, 100000, "N", "byte-pair merges of the vocabulary"},
    {TEXT("text", text, READER | LM), "FILE", "text for lm and reader"},
    {TEXT("images", images, CONVPOOL), "DIR", "idx files or CIFAR-10 batches (default: Fashion-MNIST where installed)"},
    {FLAG("synthetic", synthetic, MODELS), "built-in data even if real data is installed"},
};

enum { OPTIONS = sizeof table / sizeof table[0] };

static const char examples[] =
    "  rmsnorm lab                                    three models, four norms, two seeds: five minutes on two cores\n"
    "  rmsnorm lab transformer --runs 5               mean and spread over five seeds\n"
    "  rmsnorm lab lm --text book.txt --norms layer,rms\n"
    "  mpirun -n 2 rmsnorm lab scaling lm             the time of a step on one process and on two\n"
    "  rmsnorm lab invariance                         the paper's table of invariances, found by experiment\n";

static const char notes[] =
    "MODEL: rnnsearch, transformer, convpool (these three without a MODEL), reader, order, lm; or all.\n"
    "invariance, rate: the paper's theory, measured. psweep [MODEL]: over p. init [MODEL]: weights that start around\n"
    "0.2. scaling [MODEL]: the time of a step on 1, 2, ... processes, and an estimate for more machines. mpirun -n N\n"
    "rmsnorm lab ... trains on N processes with the bits of one (docs/distributed.md). Exit codes: 0 done, 1 an "
    "experiment's answer is no, 2 bad usage, bad input or too little memory, 130 "
    "stopped\n"
    "by Ctrl-C, 143 by SIGTERM (what was done by then is in the report).\n";

static void *field_of(const lab_options *o, const lab_option *option) {
  return (char *)(uintptr_t)o + option->offset;
}

/* Values that mark an option as not given while the command line is read. */
static const int64_t not_given = INT64_MIN;
static const double not_given_real = -1e308;

static void leave_open(lab_options *o) {
  *o = (lab_options){.task = TASK_TRAIN};
  for (int i = 0; i < OPTIONS; i++) {
    if (table[i].type == CLI_INT) *(int64_t *)field_of(o, &table[i]) = not_given;
    if (table[i].type == CLI_REAL) *(double *)field_of(o, &table[i]) = not_given_real;
  }
}

static int parse_words(lab_options *o, int *argc, char **argv) {
  cli_option options[OPTIONS + 1] = {{0}};
  for (int i = 0; i < OPTIONS; i++)
    options[i] = (cli_option){.name = table[i].name,
                              .type = table[i].type,
                              .value = field_of(o, &table[i]),
                              .argument = table[i].argument,
                              .help = table[i].help};
  const cli_command command = {
      .name = "lab",
      .usage = "[MODEL...] [OPTION...]\n       rmsnorm lab invariance | rate | psweep [MODEL] | init [MODEL] | scaling "
               "[MODEL] [OPTION...]",
      .summary =
          "Trains the models of \"Root Mean Square Layer Normalization\" with each norm and compares quality and "
          "time.",
      .examples = examples,
      .options = options,
      .notes = notes};
  return cli_parse(&command, argc, argv);
}

static int given(const lab_options *o, const lab_option *option) {
  const void *field = field_of(o, option);
  switch (option->type) {
  case CLI_FLAG:
    return *(const int *)field;
  case CLI_STRING:
    return *(const char *const *)field != NULL;
  case CLI_INT:
    return *(const int64_t *)field != not_given;
  case CLI_REAL:
    return *(const double *)field != not_given_real;
  }
  return 0;
}

/* ---- what is asked for ---- */

static int add_family(lab_options *o, const char *word) {
  for (int i = 0; i < FAMILIES; i++) {
    if (strcmp(word, family_name((lab_family)i)) != 0) continue;
    for (int j = 0; j < o->family_count; j++)
      if (o->families[j] == (lab_family)i) return cli_error(word, "named twice; --runs N trains with more seeds");
    o->families[o->family_count++] = (lab_family)i;
    return CLI_OK;
  }
  return cli_error(word, "unknown model; see 'rmsnorm lab --help'");
}

static void default_families(lab_options *o) {
  static const lab_family three[] = {FAMILY_RNNSEARCH, FAMILY_TRANSFORMER, FAMILY_CONVPOOL};
  if (o->family_count > 0 || o->task == TASK_INVARIANCE || o->task == TASK_RATE) return;
  o->family_count = o->task == TASK_TRAIN ? 3 : 1;
  memcpy(o->families, three, sizeof three);
}

static int read_subject(lab_options *o, int count, char **words) {
  static const char *const tasks[TASKS] = {"", "invariance", "rate", "psweep", "init", "scaling"};
  int first = 0;
  for (int task = 1; count > 0 && task < TASKS; task++)
    if (strcmp(words[0], tasks[task]) == 0) {
      o->task = (lab_task)task;
      first = 1;
    }
  int most = o->task == TASK_TRAIN ? FAMILIES : o->task == TASK_INVARIANCE || o->task == TASK_RATE ? 1 : 2;
  if (o->task != TASK_TRAIN && count > most)
    return cli_error(words[most], "one word too many: '%s' takes %s", words[0], most == 1 ? "none" : "one model");
  if (o->task == TASK_TRAIN && count == 1 && strcmp(words[0], "all") == 0) {
    for (int i = 0; i < FAMILIES; i++)
      o->families[o->family_count++] = (lab_family)i;
    return CLI_OK;
  }
  for (int i = first; i < count; i++)
    if (add_family(o, words[i]) != CLI_OK) return CLI_BAD;
  default_families(o);
  return CLI_OK;
}

static int users_of(const lab_options *o) {
  if (o->task == TASK_INVARIANCE || o->task == TASK_RATE) return THEORY;
  int users = o->task == TASK_TRAIN ? TRAIN : o->task == TASK_INIT ? INIT : 0;
  for (int i = 0; i < o->family_count; i++)
    users |= 1 << o->families[i];
  return users;
}

/* "rnnsearch, transformer": the models that use an option. */
static void list_models(int users, char *text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < FAMILIES && used < size; i++)
    if (users & 1 << i)
      used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", family_name((lab_family)i));
}

static int check_use(const lab_options *o, const lab_option *option) {
  char name[32], models[96];
  if (option->users & users_of(o)) return CLI_OK;
  snprintf(name, sizeof name, "--%s", option->name);
  list_models(option->users, models, sizeof models);
  if (!models[0]) return cli_error(name, "belongs to training (rmsnorm lab [MODEL...])");
  return cli_error(name, "nothing that is asked for uses it; it belongs to %s",
                   (option->users & MODELS) == MODELS ? "the models" : models);
}

static int check_bounds(const lab_options *o, const lab_option *option) {
  char name[32];
  double value =
      option->type == CLI_INT ? (double)*(const int64_t *)field_of(o, option) : *(const double *)field_of(o, option);
  if (value >= option->low && value <= option->high) return CLI_OK;
  snprintf(name, sizeof name, "--%s", option->name);
  if (option->type == CLI_INT)
    return cli_error(name, "%lld is outside %.0f..%.0f", (long long)*(const int64_t *)field_of(o, option), option->low,
                     option->high);
  if (option->low > 0) return cli_error(name, "%.10g is outside (0, %g]", value, option->high);
  return cli_error(name, "%.10g is outside [%g, %g]", value, option->low, option->high);
}

static int check_together(const lab_options *o) {
  if (o->pre_norm && o->post_norm) return cli_error(NULL, "--pre and --post exclude each other");
  if ((o->source == NULL) != (o->target == NULL)) return cli_error(NULL, "--source and --target go together");
  if ((o->source != NULL) + (o->catalogue != NULL) + (o->language != NULL) + o->synthetic > 1)
    return cli_error(NULL, "--source, --mo, --language and --synthetic exclude each other");
  if (o->synthetic && (o->images != NULL || o->text != NULL))
    return cli_error(NULL, "--synthetic excludes --images and --text");
  if (o->resume && o->checkpoints == NULL) return cli_error("--resume", "needs --checkpoints DIR");
  if (o->every != UNSET && o->checkpoints == NULL) return cli_error("--every", "needs --checkpoints DIR");
  if (o->replace && o->out == NULL) return cli_error("--replace", "needs --out DIR");
  if (o->engine != NULL && strcmp(o->engine, "library") != 0 && strcmp(o->engine, "textbook") != 0)
    return cli_error("--engine", "%s is neither library nor textbook", o->engine);
  if (o->subset != NULL && strcmp(o->subset, "first") != 0 && strcmp(o->subset, "spread") != 0)
    return cli_error("--subset", "%s is neither first nor spread", o->subset);
  return CLI_OK;
}

static int check_local(const lab_options *o, const norm_kind *norms, int count) {
  int local = 0;
  for (int i = 0; i < count; i++)
    local |= norms[i] == NORM_PRMS_LOCAL;
  if (!local && o->ranks != UNSET) return cli_error("--ranks", "belongs to --norms prms-local");
  if (local && o->engine != NULL && strcmp(o->engine, "textbook") == 0)
    return cli_error("--engine", "prms-local has no textbook form");
  return CLI_OK;
}

int options_parse(lab_options *o, int argc, char **argv) {
  leave_open(o);
  int code = parse_words(o, &argc, argv);
  if (code >= 0) return code;
  if (read_subject(o, argc, argv) != CLI_OK) return CLI_BAD;
  for (int i = 0; i < OPTIONS; i++) {
    const lab_option *option = &table[i];
    int number = option->type == CLI_INT || option->type == CLI_REAL;
    if (given(o, option)) {
      if (check_use(o, option) != CLI_OK || (number && check_bounds(o, option) != CLI_OK)) return CLI_BAD;
    } else if (option->type == CLI_INT) {
      *(int64_t *)field_of(o, option) = UNSET;
    } else if (option->type == CLI_REAL) {
      *(double *)field_of(o, option) = (double)NAN;
    }
  }
  if (check_together(o) != CLI_OK) return CLI_BAD;
  norm_kind norms[NORM_KINDS];
  lab_error error;
  int count = o->norms != NULL ? options_norms(o, "", norms, &error) : 0;
  if (count < 0) return cli_error(NULL, "%s", error.text);
  return check_local(o, norms, count) == CLI_OK ? -1 : CLI_BAD;
}

int options_norms(const lab_options *o, const char *otherwise, norm_kind norms[NORM_KINDS], lab_error *error) {
  const char *at = o->norms != NULL ? o->norms : otherwise;
  int count = 0;
  for (;;) {
    size_t length = strcspn(at, ",");
    int kind = 0;
    while (kind < NORM_KINDS &&
           (strlen(norm_name((norm_kind)kind)) != length || strncmp(norm_name((norm_kind)kind), at, length) != 0))
      kind++;
    if (kind == NORM_KINDS)
      return lab_fail(error, "--norms: '%.*s' is none of none, layer, rms, prms, l2, batch, prms-local", (int)length,
                      at);
    for (int i = 0; i < count; i++)
      if (norms[i] == (norm_kind)kind) return lab_fail(error, "--norms: %.*s is named twice", (int)length, at);
    norms[count++] = (norm_kind)kind;
    if (at[length] == '\0') return count;
    at += length + 1;
  }
}
