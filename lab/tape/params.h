/* SPDX-License-Identifier: MIT
 *
 * The parameters of a model: named matrices in one block of memory, with one block of gradients per shard,
 * and Adam. */
#ifndef LAB_PARAMS_H
#define LAB_PARAMS_H

#include "rmsnorm.h"
#include "tape/tape.h"

typedef enum param_kind {
  PARAM_TRAINED = 0,
  /* A running average (batch normalization's statistics): the forward of each shard leaves its observation in the
   * gradient, and the update takes the mean over the shards instead of Adam. */
  PARAM_RUNNING = 1
} param_kind;

typedef struct param {
  char name[64];
  int64_t rows, cols, offset;
  param_kind kind;
  double start, limit; /* initial values: uniform in start +- limit; limit 0: all `start` */
} param;

enum { PARAM_BLOCK = 8192 }; /* what one task of Adam works on */

typedef struct params {
  param *items;
  int64_t count, capacity;
  int64_t size;        /* elements of all, gaps for alignment included */
  int64_t blocks;      /* of PARAM_BLOCK elements, the last one filled up */
  int64_t part, end;   /* the elements that this process updates, whole blocks: base/cluster.h */
  int shards;          /* of a batch, over all processes */
  int first, own;      /* the shards that this process has */
  int added_up;        /* 1: the first of `grads` is the sum over all shards, in [part, end) */
  real *value, *m, *v; /* size each: the parameters, and Adam's moments, of which [part, end) are kept up */
  real *grads;         /* own x size */
} params;

/* First every matrix is declared (the return value is its id), then the memory is taken. */
int64_t params_constant(params *p, const char *name, int64_t rows, int64_t cols, double start, param_kind kind);
int64_t params_uniform(params *p, const char *name, int64_t rows, int64_t cols, double limit);
/* The random values are functions of the seed and the parameter's name; they spread around `centre`. */
/* This process takes its part of the shards (base/cluster.h). */
void params_allocate(params *p, int shards, uint64_t seed, double centre);
/* Together: brings Adam's moments of all parts to every process. */
void params_collect_moments(params *p);
void params_free(params *p);
int64_t params_trained(const params *p); /* number of trained elements */

/* A window on a parameter for the operations of one shard; its gradient counts if the shard is this process's. */
tensor *tape_param(tape *t, const params *p, int shard, int64_t id);

typedef struct adam_config {
  double rate, beta1, beta2, epsilon, clip; /* clip: largest norm of the whole gradient; 0: none */
} adam_config;

/* Together (base/cluster.h): adds up the shards' gradients in order unless they are added up already, clips, updates,
 * and clears the gradients. Returns the gradient's norm. */
double adam_step(params *p, const adam_config *config, int64_t step, const rms_executor *executor);

#endif
