/* SPDX-License-Identifier: MIT
 *
 * Checkpoints are safetensors files: parameters under their own names, Adam's moments as "adam.m/NAME" and
 * "adam.v/NAME", the curve as "curve" (steps x 3 doubles). The metadata holds the settings and the step.
 */
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cluster.h"
#include "train/safetensors.h"

#ifdef LAB_DOUBLE
#define REAL_NAME "F64"
#else
#define REAL_NAME "F32"
#endif

typedef struct block {
  const char *prefix;
  real *data;
} block;

enum { BLOCKS = 3 };

static void list_blocks(const params *p, block blocks[BLOCKS]) {
  blocks[0] = (block){"", p->value};
  blocks[1] = (block){"adam.m/", p->m};
  blocks[2] = (block){"adam.v/", p->v};
}

static void settings_of(const trainer *t, char *text, size_t size) {
  const model_config *c = &t->m->config;
  const model_sizes *z = &c->sizes;
  const train_config *g = &t->config;
  snprintf(text, size,
           "%s norm=%s engine=%d p=%g spread=%d eps=%g seed=%" PRIu64 " shards=%d centre=%g width=%" PRId64
           " embed=%" PRId64 " hidden=%" PRId64 " layers=%" PRId64 " heads=%" PRId64 " length=%" PRId64
           " batch=%" PRId64 " dropout=%g noise=%g smoothing=%g pre=%d steps=%" PRId64 " rate=%g warmup=%" PRId64
           " decay=%d beta=%g,%g clip=%g data=%s",
           t->m->kind->family, norm_name(c->norm.kind), (int)c->norm.engine, c->norm.p, c->norm.spread, c->norm.eps,
           c->seed, c->shards, c->centre, z->width, z->embed, z->hidden, z->layers, z->heads, z->length, z->batch,
           z->dropout, z->noise, z->smoothing, z->pre_norm, g->steps, g->rate, g->warmup, g->decay, g->beta1, g->beta2,
           g->clip, t->data);
  size_t used = strlen(text);
  if (c->norm.kind == NORM_PRMS_LOCAL) snprintf(text + used, size - used, " ranks=%d", c->norm.ranks);
}

int checkpoint_write(const trainer *t, const char *path, lab_error *error) {
  const params *p = &t->m->params;
  block blocks[BLOCKS];
  list_blocks(p, blocks);
  safetensors file = {0};
  char settings[1024], step[32];
  settings_of(t, settings, sizeof settings);
  snprintf(step, sizeof step, "%" PRId64, t->step);
  safetensors_note(&file, "format", "rmsnorm-lab-1");
  safetensors_note(&file, "settings", settings);
  safetensors_note(&file, "step", step);
  for (int b = 0; b < BLOCKS; b++)
    for (int64_t i = 0; i < p->count; i++) {
      const param *item = &p->items[i];
      char name[96];
      snprintf(name, sizeof name, "%s%s", blocks[b].prefix, item->name);
      safetensors_add(&file, name, REAL_NAME, item->rows, item->cols, blocks[b].data + item->offset,
                      (int64_t)sizeof(real));
    }
  safetensors_add(&file, "curve", "F64", t->step, 3, t->curve, (int64_t)sizeof(double));
  int result = safetensors_write(&file, path, error);
  safetensors_free(&file);
  return result;
}

/* The tensor must be there with this type and shape. */
static const void *find(const safetensors *file, const char *path, const char *name, const char *dtype, int64_t rows,
                        int64_t cols, lab_error *error) {
  const safetensor *found = safetensors_find(file, name);
  if (found == NULL) {
    lab_fail(error, "%s: not a checkpoint of this model: %s is missing", path, name);
    return NULL;
  }
  if (strcmp(found->dtype, dtype) != 0 || found->rows != rows || found->cols != cols) {
    lab_fail(error, "%s: not a checkpoint of this model: %s is %s %" PRId64 "x%" PRId64 ", not %s %" PRId64 "x%" PRId64,
             path, name, found->dtype, found->rows, found->cols, dtype, rows, cols);
    return NULL;
  }
  return found->data;
}

static int check_notes(const trainer *t, const safetensors *file, const char *path, int64_t *step, lab_error *error) {
  char settings[1024];
  settings_of(t, settings, sizeof settings);
  const char *format = safetensors_noted(file, "format"), *written = safetensors_noted(file, "settings");
  const char *step_text = safetensors_noted(file, "step");
  if (format == NULL || written == NULL || step_text == NULL || strcmp(format, "rmsnorm-lab-1") != 0)
    return lab_fail(error, "%s: not a checkpoint of the lab", path);
  if (strcmp(settings, written) != 0)
    return lab_fail(error, "%s: made with other settings: %.150s; not: %.150s", path, written, settings);
  char *end;
  *step = strtoll(step_text, &end, 10);
  if (*end != '\0' || *step < 0 || *step > t->config.steps) return lab_fail(error, "%s: bad step number", path);
  return 0;
}

/* With copy = 0 everything is checked and nothing changed. */
static int take_tensors(trainer *t, const safetensors *file, const char *path, int copy, lab_error *error) {
  params *p = &t->m->params;
  block blocks[BLOCKS];
  list_blocks(p, blocks);
  for (int b = 0; b < BLOCKS; b++)
    for (int64_t i = 0; i < p->count; i++) {
      const param *item = &p->items[i];
      char name[96];
      snprintf(name, sizeof name, "%s%s", blocks[b].prefix, item->name);
      const void *data = find(file, path, name, REAL_NAME, item->rows, item->cols, error);
      if (data == NULL) return -1;
      if (copy) memcpy(blocks[b].data + item->offset, data, (size_t)(item->rows * item->cols) * sizeof(real));
    }
  return 0;
}

int checkpoint_read(trainer *t, const char *path, lab_error *error) {
  safetensors file = {0};
  int64_t step = 0;
  const void *curve = NULL;
  int result = safetensors_read(&file, path, error);
  if (result == 0) result = check_notes(t, &file, path, &step, error);
  if (result == 0) result = take_tensors(t, &file, path, 0, error);
  if (result == 0 && (curve = find(&file, path, "curve", "F64", step, 3, error)) == NULL) result = -1;
  if (result == 0) {
    take_tensors(t, &file, path, 1, error);
    trainer_restore(t, step, curve);
  }
  safetensors_free(&file);
  return result;
}

void checkpoint_share(trainer *t) {
  int64_t step = t->step;
  cluster_share(&step, sizeof step);
  if (cluster_size() == 1 || step == 0) return;
  block blocks[BLOCKS];
  list_blocks(&t->m->params, blocks);
  for (int b = 0; b < BLOCKS; b++)
    cluster_share(blocks[b].data, (size_t)t->m->params.size * sizeof(real));
  lab_point *curve = lab_alloc((size_t)step, sizeof *curve);
  if (cluster_rank() == 0) memcpy(curve, t->curve, (size_t)step * sizeof *curve);
  cluster_share(curve, (size_t)step * sizeof *curve);
  if (cluster_rank() > 0) trainer_restore(t, step, curve);
  free(curve);
}
