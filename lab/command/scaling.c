/* SPDX-License-Identifier: MIT
 *
 * `lab scaling`: the time of a training step on 1, 2, 4, ... of the processes of the job, and from it an estimate for
 * more machines. What a machine does of a step: its part of the shards, the exchange of gradients, and Adam on all
 * parameters.
 */
#include <math.h>
#include <stdio.h>

#include "base/cluster.h"
#include "command/experiment.h"

enum { MOST_POINTS = 16, COLUMNS = 6 };

/* What the estimate needs to know of the training. */
typedef struct scale_facts {
  int64_t steps, batch, gradient_bytes;
  int shards;
} scale_facts;

typedef struct scale_point {
  int processes;
  double step, exchange, optimiser; /* seconds */
} scale_point;

/* What the estimate assumes of a network, for one message between two machines. */
static const struct network {
  const char *name;
  double latency, bandwidth; /* seconds; bytes per second in each direction */
} networks[] = {{"10 Gbit/s, 30 us", 30e-6, 1.25e9}, {"200 Gbit/s, 2 us", 2e-6, 25e9}};

static const int machines[] = {8, 32, 128};

/* The first step, which takes the memory, does not count. */
static void warm_up(trainer *t) {
  trainer_step(t);
  t->seconds[0] = (double)NAN;
  t->exchange_seconds = t->optimiser_seconds = 0;
}

/* A step on the first `processes` processes; the others wait. Returns what contest_run does. */
static int measure(lab_context *x, lab_family family, scale_point *point, scale_facts *facts) {
  const int taken = cluster_rank() < point->processes;
  int result = 0;
  cluster_use(point->processes);
  if (taken) {
    model_config config;
    train_config train;
    char title[64];
    lab_options whole = *x->options; /* --steps are those that are measured */
    whole.steps = UNSET;
    settings_of_family(&whole, family, &config, &train);
    config.norm.kind = NORM_RMS;
    config.seed = settings_seed(x->options);
    facts->steps = train.steps;
    const int64_t steps = x->options->steps != UNSET ? x->options->steps : x->options->full ? 2 : 20;
    train.steps = steps + 1;
    trainer *t = make_trainer(x, family, &config, &train);
    warm_up(t);
    const char *label = "rms";
    contest c = {.trainers = &t, .labels = &label, .count = 1};
    snprintf(title, sizeof title, "%s on %d of the processes", family_name(family), point->processes);
    result = contest_run(&c, title, x->options->quiet, 0, NULL, NULL);
    trainers_seconds_per_step(&t, 1, &point->step);
    point->exchange = t->exchange_seconds / (double)steps;
    point->optimiser = t->optimiser_seconds / (double)steps;
    facts->gradient_bytes = t->m->params.size * (int64_t)sizeof(real);
    facts->batch = config.sizes.batch;
    facts->shards = config.shards;
    trainer_free(t);
  }
  cluster_use(0);
  return cluster_most(result);
}

/* Each machine sends a part of its gradient to every other and gets all updated parts back: 2 (n - 1) messages one
 * after the other, and 2 (n - 1)/n of the gradient in each direction. */
static double exchange_seconds(const struct network *network, int count, double gradient_bytes) {
  return 2.0 * (count - 1) * network->latency + 2 * gradient_bytes * (count - 1) / count / network->bandwidth;
}

static void add_row(lab_section *section, const char *const *row) {
  lab_section_row(section, COLUMNS, row);
  for (int j = 0; j < COLUMNS; j++)
    printf(j < 2 ? "%-20s" : "  %12s", row[j]);
  putchar('\n');
}

static void add_figures(lab_section *section, const char *who, const char *how, double step, double exchange,
                        double alone, double steps) {
  char cells[4][32];
  snprintf(cells[0], sizeof cells[0], "%.4g", 1000 * step);
  snprintf(cells[1], sizeof cells[1], "%.4g", 1000 * exchange);
  snprintf(cells[2], sizeof cells[2], "%.2f", alone / step);
  snprintf(cells[3], sizeof cells[3], "%.3g", steps * step / 3600);
  const char *row[COLUMNS] = {who, how, cells[0], cells[1], cells[2], cells[3]};
  add_row(section, row);
}

/* A shard is at least one example. Said once. */
static void add_refusal(lab_section *section, int count, int64_t batch, int first) {
  char who[32], why[32];
  snprintf(who, sizeof who, "%d: too many", count);
  snprintf(why, sizeof why, "batch of %lld", (long long)batch);
  const char *row[COLUMNS] = {who, why, "-", "-", "-", "-"};
  if (first) add_row(section, row);
}

static void report_points(lab_context *x, lab_family family, const scale_point *points, int count,
                          const scale_facts *facts) {
  static const char *const head[COLUMNS] = {"processes",    "network",  "ms a step",
                                            "exchange, ms", "speed-up", "hours in all"};
  const double bytes = (double)facts->gradient_bytes, steps = (double)facts->steps;
  const double alone = points[0].step, parted = alone - points[0].optimiser;
  char title[96], who[32];
  snprintf(title, sizeof title, "Scaling (%s, one norm, %.1f MB of gradients)", family_name(family), bytes / 1e6);
  lab_section *section = lab_report_add_section(x->report, "scaling", title,
                                                "Measured on processes of this job; estimated for machines of this "
                                                "speed with one shard of a batch each: the work "
                                                "on examples divides by their number. The sums over the shards and "
                                                "Adam divide by it too, but by no more than the "
                                                "shards of this run, since each machine adds up as many shards as "
                                                "there are. The exchange takes 2(n-1) messages and "
                                                "2(n-1)/n of the gradient over the network, at the latency and "
                                                "bandwidth that are named. Hours are those of the whole "
                                                "training.");
  add_row(section, head);
  for (int i = 0; i < count; i++) {
    snprintf(who, sizeof who, "%d measured", points[i].processes);
    add_figures(section, who, "of this job", points[i].step, points[i].exchange, alone, steps);
  }
  for (size_t n = 0; n < sizeof networks / sizeof *networks; n++)
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
      if (machines[i] > facts->batch) {
        add_refusal(section, machines[i], facts->batch, n == 0);
        continue;
      }
      const double sums = points[0].optimiser / (machines[i] < facts->shards ? machines[i] : facts->shards);
      const double exchange = exchange_seconds(&networks[n], machines[i], bytes);
      snprintf(who, sizeof who, "%d estimated", machines[i]);
      add_figures(section, who, networks[n].name, parted / machines[i] + sums + exchange, exchange, alone, steps);
    }
}

int scaling_run(lab_context *x, lab_error *error) {
  (void)error;
  lab_family family = x->options->families[0];
  scale_point points[MOST_POINTS];
  scale_facts facts = {0};
  int count = 0, result = 0;
  for (int n = 1; result == 0 && count < MOST_POINTS; n = 2 * n < cluster_size() ? 2 * n : cluster_size()) {
    points[count] = (scale_point){.processes = n};
    result = measure(x, family, &points[count++], &facts);
    if (n == cluster_size()) break;
  }
  if (result == 0) report_points(x, family, points, count, &facts);
  return result;
}
