/* SPDX-License-Identifier: MIT
 *
 * Ten kinds of drawings. A kind is a function of the place relative to the drawing's centre, in units of
 * its size. */
#include "data/synth.h"

#include <math.h>
#include <stdio.h>

enum { KINDS = 10 };

static int even(double value) {
  return ((int)floor(value) & 1) == 0;
}

/* 1 inside the drawing; u and v run from -1 to 1 across it. */
static int drawn(int kind, double u, double v) {
  double square = fmax(fabs(u), fabs(v)), radius = sqrt(u * u + v * v);
  switch (kind) {
  case 0:
    return radius < 1; /* disc            */
  case 1:
    return radius < 1 && radius > 0.6; /* ring            */
  case 2:
    return square < 0.9; /* square          */
  case 3:
    return square < 1 && square > 0.6; /* frame           */
  case 4:
    return square < 1 && (fabs(u) < 0.25 || fabs(v) < 0.25); /* upright cross   */
  case 5:
    return square < 1 && (fabs(u - v) < 0.35 || fabs(u + v) < 0.35); /* leaning cross   */
  case 6:
    return square < 1 && even(2.5 * (v + 1)); /* lying stripes   */
  case 7:
    return square < 1 && even(2.5 * (u + 1)); /* upright stripes */
  case 8:
    return square < 1 && even(2 * (u + 1)) == even(2 * (v + 1)); /* checks          */
  default:
    return fabs(v) < 1 && fabs(u) < (v + 1) / 2; /* triangle        */
  }
}

void lab_synth_images(lab_images *images, int64_t count, int channels, int height, int width, uint64_t seed) {
  int64_t size = (int64_t)channels * height * width;
  *images = (lab_images){
      .count = count, .channels = channels, .height = height, .width = width, .classes = KINDS, .synthetic = 1};
  snprintf(images->origin, sizeof images->origin, "synthetic drawings (seed %llu)", (unsigned long long)seed);
  images->pixels = lab_alloc((size_t)(count * size), 1);
  images->labels = lab_alloc((size_t)count, 1);
  lab_rng rng = lab_rng_make(seed, lab_hash(LAB_HASH_START, "synthetic images", 16));
  for (int64_t i = 0; i < count; i++) {
    int kind = (int)lab_rng_below(&rng, KINDS);
    images->labels[i] = (uint8_t)kind;
    double half = (0.2 + 0.2 * lab_rng_unit(&rng)) * (height < width ? height : width);
    double x = half + (width - 2 * half) * lab_rng_unit(&rng), y = half + (height - 2 * half) * lab_rng_unit(&rng);
    double noise = 20 + 30 * lab_rng_unit(&rng);
    for (int c = 0; c < channels; c++) {
      double ground = 40 + 60 * lab_rng_unit(&rng), ink = ground + 60 + 80 * lab_rng_unit(&rng);
      for (int64_t p = 0; p < (int64_t)height * width; p++) {
        double u = ((double)(p % width) + 0.5 - x) / half, v = ((double)(p / width) + 0.5 - y) / half;
        double value = (drawn(kind, u, v) ? ink : ground) + noise * lab_rng_normal(&rng);
        images->pixels[i * size + c * (int64_t)height * width + p] = (uint8_t)fmin(255, fmax(0, value));
      }
    }
  }
}
