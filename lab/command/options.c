/* SPDX-License-Identifier: MIT */
#include "command/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

const char *family_name(lab_family family) {
  static const char *const names[FAMILIES] = {"rnnsearch", "transformer", "convpool", "reader", "order", "lm"};
  return names[family];
}

int family_by_name(const char *name) {
  for (int i = 0; i < FAMILIES; i++)
    if (strcmp(name, family_name((lab_family)i)) == 0) return i;
  return -1;
}

int second_family(const lab_options *o, lab_family otherwise, lab_family *family, lab_error *error) {
  *family = otherwise;
  if (o->word_count < 2) return 0;
  int found = family_by_name(o->words[1]);
  if (found < 0 || o->word_count > 2)
    return lab_fail(error, "%s: takes one model at most; %s is none", o->words[0], o->words[o->word_count - 1]);
  *family = (lab_family)found;
  return 0;
}

/* ---- the table of options ---- */

typedef enum option_type { FLAG, STRING, COUNT, REAL } option_type;

typedef struct option {
  const char *name;
  option_type type;
  size_t offset;
  const char *argument, *help;
} option;

#define AT(field) offsetof(lab_options, field)

static const option table[] = {
    {"norms", STRING, AT(norms), "LIST",
     "none,layer,rms,prms,l2 and, for convpool, batch (default none,layer,rms,prms)"},
    {"norm", STRING, AT(norms), "LIST", "the same"},
    {"p", REAL, AT(p), "P",
     "share of the row that pRMSNorm measures (default 0.25; with --full the paper's\n"
     "                       0.0625, convpool 0.125)"},
    {"subset", STRING, AT(subset), "S",
     "pRMSNorm measures the first elements or spread ones (default first; convpool: spread)"},
    {"engine", STRING, AT(engine), "E", "library (default) or textbook: each norm as un-fused passes over memory"},
    {"eps", REAL, AT(eps), "E", "inside the root (default 1e-5)"},
    {"runs", COUNT, AT(runs), "N", "repeat with N seeds, for mean and spread (default 1)"},
    {"seed", COUNT, AT(seed), "N", "first seed (default 1)"},
    {"threads", COUNT, AT(threads), "N", "threads (default: one per shard, at most the CPU's); never changes a result"},
    {"shards", COUNT, AT(shards), "N", "parts of a batch that can run at once (default 2, with --full 8)"},
    {"full", FLAG, AT(full), NULL, "the paper's sizes: months on two cores"},
    {"out", STRING, AT(out), "DIR", "where the report goes (default lab-out)"},
    {"checkpoints", STRING, AT(checkpoints), "DIR", "keep the state of every run in DIR, at the end and on Ctrl-C"},
    {"every", COUNT, AT(every), "N", "and every N steps"},
    {"resume", FLAG, AT(resume), NULL, "go on from the files in the --checkpoints folder, where there are any"},
    {"quiet", FLAG, AT(quiet), NULL, "no progress on stderr"},
    {"steps", COUNT, AT(steps), "N", "training steps"},
    {"batch", COUNT, AT(batch), "N", "examples in a batch"},
    {"rate", REAL, AT(rate), "R", "learning rate of Adam"},
    {"warmup", COUNT, AT(warmup), "N", "steps over which the rate rises"},
    {"clip", REAL, AT(clip), "C", "largest gradient norm"},
    {"dropout", REAL, AT(dropout), "D", "probability of dropping (0 = default; a negative one switches it off)"},
    {"noise", REAL, AT(noise), "D", "deviation of the noise on convpool's images (0 = default; negative: none)"},
    {"width", COUNT, AT(width), "N", "model or state width"},
    {"embed", COUNT, AT(embed), "N", "width of embeddings; convpool: channels of the first layers (the paper: 96)"},
    {"hidden", COUNT, AT(hidden), "N", "inner width of the transformer's feed-forward layers"},
    {"layers", COUNT, AT(layers), "N", "transformer layers"},
    {"heads", COUNT, AT(heads), "N", "attention heads"},
    {"length", COUNT, AT(length), "N", "window of the language model"},
    {"pre", FLAG, AT(pre_norm), NULL, "transformer: norm before each sub-layer (default but for --full)"},
    {"post", FLAG, AT(post_norm), NULL, "transformer: norm after each residual sum (default with --full)"},
    {"beam", COUNT, AT(beam), "N", "beam width of translation"},
    {"tested", COUNT, AT(tested), "N", "examples of the test set that are scored"},
    {"source", STRING, AT(source), "FILE", "sentences, one a line (with --target)"},
    {"target", STRING, AT(target), "FILE", "their translations"},
    {"mo", STRING, AT(catalogue), "FILE", "a gettext catalogue instead"},
    {"language", STRING, AT(language), "L", "of the installed catalogues (default de)"},
    {"pairs", COUNT, AT(pairs), "N", "at most this many sentence pairs"},
    {"max-words", COUNT, AT(max_words), "N", "longest sentence"},
    {"merges", COUNT, AT(merges), "N", "byte-pair merges of the vocabulary"},
    {"text", STRING, AT(text), "FILE", "text for lm and reader"},
    {"images", STRING, AT(images), "DIR", "idx files or CIFAR-10 batches (default: Fashion-MNIST where installed)"},
    {"synthetic", FLAG, AT(synthetic), NULL, "built-in data even if real data is installed"},
    {"help", FLAG, AT(help), NULL, "this text"},
};

enum { OPTIONS = sizeof table / sizeof table[0] };

void options_help(void) {
  puts("usage: rmsnorm lab [MODEL...] [OPTION...]\n"
       "       rmsnorm lab invariance | rate | psweep | init [OPTION...]\n\n"
       "Trains the models of \"Root Mean Square Layer Normalization\" with each norm and compares quality and time.\n"
       "MODEL: rnnsearch, transformer, convpool (these three without a MODEL), reader, order, lm; or all.\n"
       "invariance, rate: the paper's theory, measured. psweep: over p. init: weights that start around 0.2.\n");
  for (int i = 0; i < OPTIONS; i++) {
    char left[40];
    snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].argument ? " " : "",
             table[i].argument ? table[i].argument : "");
    printf("  %-20s %s\n", left, table[i].help);
  }
  puts("\nrmsnorm lab                                    three models, four norms, under three minutes\n"
       "rmsnorm lab transformer --runs 3               mean and spread over three seeds\n"
       "rmsnorm lab order --engine textbook            what the paper's frameworks did\n"
       "rmsnorm lab lm --text book.txt --norms layer,rms");
}

static const option *find_option(const char *name, size_t length) {
  for (int i = 0; i < OPTIONS; i++)
    if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0) return &table[i];
  return NULL;
}

static int set_value(lab_options *o, const option *opt, const char *text, lab_error *error) {
  char *field = (char *)o + opt->offset, *end = NULL;
  errno = 0;
  if (opt->type == STRING) {
    memcpy(field, &text, sizeof text);
    return 0;
  }
  if (opt->type == COUNT) {
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > 1000000000)
      return lab_fail(error, "--%s: %s is not a whole number from 1 to 1000000000", opt->name, text);
    int64_t number = value;
    memcpy(field, &number, sizeof number);
    return 0;
  }
  double value = strtod(text, &end);
  if (end == text || *end != '\0' || !isfinite(value))
    return lab_fail(error, "--%s: %s is not a number", opt->name, text);
  memcpy(field, &value, sizeof value);
  return 0;
}

static int check_ranges(const lab_options *o, lab_error *error) {
  if (o->p < 0 || o->p > 1) return lab_fail(error, "--p: must be above 0 and at most 1");
  if (o->eps < 0 || o->rate < 0 || o->clip < 0)
    return lab_fail(error, "--eps, --rate and --clip: must not be negative");
  if (o->dropout >= 1) return lab_fail(error, "--dropout: must be below 1");
  if (o->shards > 64) return lab_fail(error, "--shards: at most 64");
  if (o->threads > 256) return lab_fail(error, "--threads: at most 256");
  if (o->pre_norm && o->post_norm) return lab_fail(error, "--pre and --post exclude each other");
  if ((o->source == NULL) != (o->target == NULL)) return lab_fail(error, "--source and --target go together");
  if (o->resume && o->checkpoints == NULL) return lab_fail(error, "--resume needs --checkpoints DIR");
  if (o->engine != NULL && strcmp(o->engine, "library") != 0 && strcmp(o->engine, "textbook") != 0)
    return lab_fail(error, "--engine: %s is neither library nor textbook", o->engine);
  if (o->subset != NULL && strcmp(o->subset, "first") != 0 && strcmp(o->subset, "spread") != 0)
    return lab_fail(error, "--subset: %s is neither first nor spread", o->subset);
  norm_kind norms[NORM_KINDS];
  return options_norms(o, norms, error) < 0 ? -1 : 0;
}

int options_parse(lab_options *o, int argc, char **argv, lab_error *error) {
  *o = (lab_options){0};
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strncmp(word, "--", 2) != 0) {
      if (o->word_count == (int)(sizeof o->words / sizeof o->words[0]))
        return lab_fail(error, "%s: too many words", word);
      o->words[o->word_count++] = word;
      continue;
    }
    const char *equals = strchr(word, '=');
    size_t length = equals != NULL ? (size_t)(equals - word - 2) : strlen(word + 2);
    const option *opt = find_option(word + 2, length);
    if (opt == NULL) return lab_fail(error, "%s: unknown option; see rmsnorm lab --help", word);
    if (opt->type == FLAG) {
      if (equals != NULL) return lab_fail(error, "%s: takes no value", word);
      *(int *)(void *)((char *)o + opt->offset) = 1;
      continue;
    }
    const char *text = equals != NULL ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
    if (text == NULL) return lab_fail(error, "%s: needs a value", word);
    if (set_value(o, opt, text, error) < 0) return -1;
  }
  return check_ranges(o, error);
}

int options_norms(const lab_options *o, norm_kind norms[NORM_KINDS], lab_error *error) {
  const char *at = o->norms != NULL ? o->norms : "none,layer,rms,prms";
  int count = 0;
  for (;;) {
    size_t length = strcspn(at, ",");
    int kind = 0;
    while (kind < NORM_KINDS &&
           (strlen(norm_name((norm_kind)kind)) != length || strncmp(norm_name((norm_kind)kind), at, length) != 0))
      kind++;
    if (kind == NORM_KINDS)
      return lab_fail(error, "--norms: %.*s is none of none, layer, rms, prms, l2, batch", (int)length, at);
    for (int i = 0; i < count; i++)
      if (norms[i] == (norm_kind)kind) return lab_fail(error, "--norms: %.*s is named twice", (int)length, at);
    norms[count++] = (norm_kind)kind;
    if (at[length] == '\0') return count;
    at += length + 1;
  }
}
