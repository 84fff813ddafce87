/* SPDX-License-Identifier: MIT
 *
 * QK norm, in place, on a fused qkv tensor [token][q heads | k heads | v heads][dim]. Two strides describe the rows of
 * a slice, so nothing is copied. The queries have one weight per head; the keys' weight is shared by the heads. */
#include <rmsnorm.h>
#include <math.h>
#include <stdio.h>

enum { TOKENS = 5, Q_HEADS = 4, KV_HEADS = 2, HEADS = Q_HEADS + 2 * KV_HEADS, DIM = 64 };
static const double EPS = 1e-6;

static float qkv[TOKENS][HEADS][DIM], before[TOKENS][HEADS][DIM];
static float q_weight[Q_HEADS][DIM], k_weight[DIM];

static void fill(void) {
  unsigned state = 1;
  for (int i = 0; i < TOKENS * HEADS * DIM; i++) {
    state = state * 1664525u + 1013904223u;
    (&before[0][0][0])[i] = (&qkv[0][0][0])[i] = ((float)(state >> 8) - 8388608.0f) / 1048576.0f;
  }
  for (int j = 0; j < DIM; j++) {
    k_weight[j] = 1.0f + (float)j / DIM;
    for (int h = 0; h < Q_HEADS; h++)
      q_weight[h][j] = 0.5f * (float)(h + 1);
  }
}

/* Normalises `heads` heads of every token, beginning with head `first`. */
static rms_status normalise(int first, int heads, const float *weight, int weight_per_head) {
  rms_spec spec = {.cols = DIM, .eps = EPS, .weight_per_inner = weight_per_head};
  const int64_t token_stride = (int64_t)HEADS * DIM;
  rms_forward_args args = {
      .outer = TOKENS,
      .inner = heads,
      .x = {.data = &qkv[0][first][0], .dtype = RMS_F32, .outer_stride = token_stride},
      .y = {.data = &qkv[0][first][0], .outer_stride = token_stride},
      .weight = weight,
  };
  return rms_forward(&spec, &args, NULL);
}

static const float *weight_of(int head) {
  if (head < Q_HEADS) return q_weight[head];
  return head < Q_HEADS + KV_HEADS ? k_weight : NULL;
}

/* How many elements differ from a plain loop by more than rounding explains. No sum of DIM squares, in whatever order,
 * is off by more than DIM roundings of 2^-24; 8 more for the rest of the formula. The values must not be touched at
 * all. */
static int misses(void) {
  const double bound = (DIM + 8) * ldexp(1, -24);
  int count = 0;
  for (int t = 0; t < TOKENS; t++)
    for (int h = 0; h < HEADS; h++) {
      const float *x = before[t][h], *g = weight_of(h);
      double sum = 0;
      for (int j = 0; j < DIM; j++)
        sum += (double)x[j] * (double)x[j];
      for (int j = 0; j < DIM; j++) {
        const double want = g ? (double)x[j] / sqrt(sum / DIM + EPS) * (double)g[j] : (double)x[j];
        const double allowed = g ? bound * fabs(want) : 0;
        count += !(fabs((double)qkv[t][h][j] - want) <= allowed);
      }
    }
  return count;
}

int main(void) {
  fill();
  rms_status status = normalise(0, Q_HEADS, &q_weight[0][0], 1);
  if (status == RMS_OK) status = normalise(Q_HEADS, KV_HEADS, k_weight, 0);
  if (status != RMS_OK) return fprintf(stderr, "qkv: %s\n", rms_status_string(status)), 1;

  const int wrong = misses();
  printf("queries and keys of %d tokens normalised in place; %d elements differ from a plain loop\n", TOKENS, wrong);
  return wrong > 0;
}
