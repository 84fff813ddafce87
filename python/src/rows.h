/* SPDX-License-Identifier: MIT
 *
 * Rows of tensors of any shape and strides as the outer x inner rows of an rms_view. */
#ifndef PN_ROWS_H
#define PN_ROWS_H

#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_rows pn_rows;

/* Memory for temporaries: where the tensors of the call are. */
typedef struct {
  void *data;
  void *owner;
} pn_block;

typedef struct {
  /* 64-byte aligned; false: there is none left. */
  bool (*allocate)(void *context, int64_t bytes, pn_block *block);
  /* Between t and dense memory in the order of the walk; back: into t. False: it failed. */
  bool (*copy)(void *context, const pn_rows *rows, const pn_tensor *t, void *dense, bool back);
  void (*release)(void *context, const pn_block *block);
  void *context;
} pn_memory;

/* That of the CPU. */
extern const pn_memory pn_host_memory;

/* A temporary that stands for a tensor whose memory no rms_view can describe. */
typedef struct {
  const pn_tensor *tensor;
  pn_block block;
  bool written; /* an output: copied back at the end */
} pn_staged;

enum { PN_MAX_STAGED = 16 };

/* How the rows of all tensors of a call are walked: the leading dimensions in the order of x's memory, cut into outer
 * and inner behind dimension `cut` of that order. */
struct pn_rows {
  const pn_memory *memory;
  int count;              /* leading dimensions that have more than one element */
  int order[PN_MAX_DIMS]; /* the outermost first */
  int cut;                /* -1: one level */
  bool heads_alone;       /* that level is the inner one */
  bool contiguous;        /* tensors whose elements of a row lie apart are staged; otherwise they may fit */
  bool apart;             /* one that does fits */
  int64_t outer, inner, cols;
  int staged_count;
  pn_staged staged[PN_MAX_STAGED];
};

/* The order of x. per_head: the last leading dimension is the inner one; no elements of a row lie apart then. */
void pn_rows_begin(pn_rows *rows, const pn_memory *memory, const pn_tensor *x, bool per_head, bool contiguous);

/* Lets the walk fit t if it can: the cut may be placed where t needs it, once. False: t has to be staged. Tensors that
 * were added before still fit. */
bool pn_rows_fit(pn_rows *rows, const pn_tensor *t);

/* With every tensor added: counts the rows. */
void pn_rows_end(pn_rows *rows, const pn_tensor *x);

/* Whether the elements of a row of t lie apart, as the channels of images do that come first. */
bool pn_rows_apart(const pn_tensor *t);

/* Strides of a tensor that fits, in elements, into a view. */
void pn_rows_strides(const pn_rows *rows, const pn_tensor *t, rms_view *view);

/* True if t (whose last dimension is a row of any length) is dense in the order of the walk. */
bool pn_rows_dense(const pn_rows *rows, const pn_tensor *t);

/* Dense memory in the order of the walk for t; an input is copied into it. NULL: it could not be had. */
void *pn_rows_stage(pn_rows *rows, const pn_tensor *t, bool output);

/* How many tensors this process has staged: the tests use it to see that views are read where they are. */
int64_t pn_rows_staged_ever(void);

/* Copies staged outputs back if `done`, and frees everything staged. False: a copy failed. */
bool pn_rows_release(pn_rows *rows, bool done);

/* True if two elements of t lie in the same place. */
bool pn_overlaps_itself(const pn_tensor *t);

/* True if the bytes from the first to the last element of the two meet. */
bool pn_bounds_meet(const pn_tensor *a, const pn_tensor *b);

#ifdef __cplusplus
}
#endif

#endif
