/* SPDX-License-Identifier: MIT
 *
 * Synthetic data: the same from the same seed, distinct, said to be synthetic, and learnable: simple counting or
 * comparing already beats chance by far.
 */
#include "data/synth.h"

#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "harness.h"

static void pairs_are_distinct(void) {
  lab_pairs a = {0}, b = {0}, c = {0};
  lab_synth_pairs(&a, 3000, 7);
  lab_synth_pairs(&b, 3000, 7);
  lab_synth_pairs(&c, 3000, 8);
  T_EQ_INT(3000, a.count);
  T_CHECK(a.synthetic && strncmp(a.origin, "synthetic", 9) == 0);
  lab_strings seen = {0};
  int same = 0;
  for (int64_t i = 0; i < a.count; i++) {
    T_EQ_STR(a.items[i].source, b.items[i].source);
    T_EQ_STR(a.items[i].target, b.items[i].target);
    same += strcmp(a.items[i].source, c.items[i].source) == 0;
    lab_strings_add(&seen, a.items[i].source, strlen(a.items[i].source));
  }
  T_EQ_INT(3000, seen.count);
  T_CHECK(same < 30);
  lab_pairs_clean(&a, 3, 40); /* survives what real pairs go through */
  T_EQ_INT(3000, a.count);
  lab_strings_free(&seen);
  lab_pairs_free(&a);
  lab_pairs_free(&b);
  lab_pairs_free(&c);
}

/* Where an English noun stands, its counterpart must stand too: counted over all sentences with "dog". */
static void pairs_are_learnable(void) {
  lab_pairs pairs = {0};
  lab_synth_pairs(&pairs, 3000, 7);
  int with_dog = 0, translated = 0, verb_last = 0;
  for (int64_t i = 0; i < pairs.count; i++) {
    const char *source = pairs.items[i].source, *target = pairs.items[i].target;
    if (strstr(source, " dog")) {
      with_dog++;
      translated += strstr(target, "kelu") != NULL;
    }
    size_t length = strlen(target);
    verb_last += length > 4 && (strcmp(target + length - 4, "it .") == 0 || strcmp(target + length - 4, "en .") == 0);
  }
  T_CHECK(with_dog > 100);
  T_EQ_INT(with_dog, translated);
  T_EQ_INT(3000, verb_last);
  lab_pairs_free(&pairs);
}

/* The label of the nearest of `count` images. */
static int nearest(const lab_images *images, const uint8_t *pixels, int64_t size) {
  int64_t best = INT64_MAX;
  int label = -1;
  for (int64_t i = 0; i < images->count; i++) {
    int64_t distance = 0;
    for (int64_t p = 0; p < size; p++) {
      int64_t d = (int64_t)images->pixels[i * size + p] - pixels[p];
      distance += d * d;
    }
    if (distance < best) {
      best = distance;
      label = images->labels[i];
    }
  }
  return label;
}

static void images_are_learnable(void) {
  enum { SIZE = 16 * 16, TEST = 200 };
  lab_images train, test;
  lab_synth_images(&train, 2000, 1, 16, 16, 1);
  lab_synth_images(&test, TEST, 1, 16, 16, 2);
  T_CHECK(train.synthetic && train.classes == 10 && strncmp(train.origin, "synthetic", 9) == 0);
  int right = 0, seen[10] = {0}, kinds = 0;
  for (int64_t i = 0; i < TEST; i++) {
    right += nearest(&train, test.pixels + i * SIZE, SIZE) == test.labels[i];
    seen[test.labels[i]] = 1;
  }
  for (int i = 0; i < 10; i++)
    kinds += seen[i];
  T_EQ_INT(10, kinds);
  T_CHECK(right > 42); /* chance gives 20 with a standard deviation of 4.2; nearest neighbours is a poor learner here */
  lab_images_free(&train);
  lab_images_free(&test);
}

static void images_of_colour(void) {
  lab_images a, b;
  lab_synth_images(&a, 20, 3, 32, 24, 5);
  lab_synth_images(&b, 20, 3, 32, 24, 5);
  T_EQ_INT(3, a.channels);
  T_EQ_BYTES(a.pixels, b.pixels, (size_t)20 * 3 * 32 * 24);
  T_EQ_BYTES(a.labels, b.labels, 20);
  lab_images_free(&a);
  lab_images_free(&b);
}

static void stories(void) {
  lab_text a, b;
  lab_synth_text(&a, 5000, 1);
  lab_synth_text(&b, 5000, 1);
  T_CHECK(a.size >= 5000 && a.size < 6000 && a.synthetic && (int64_t)strlen(a.bytes) == a.size);
  T_EQ_STR(a.bytes, b.bytes);
  T_CHECK(lab_is_text(a.bytes, a.size));
  lab_text_free(&a);
  lab_text_free(&b);
}

/* A scene is nearer to one that shares its words than to one that does not. */
static void scenes(void) {
  lab_scenes s;
  lab_synth_scenes(&s, 500, 64, 3);
  T_EQ_INT(500, s.count);
  lab_strings seen = {0};
  double near = 0, far = 0;
  int64_t near_count = 0, far_count = 0;
  for (int64_t i = 0; i < s.count; i++) {
    lab_strings_add(&seen, s.captions[i], strlen(s.captions[i]));
    for (int64_t j = 0; j < i; j++) {
      double distance = 0;
      for (int d = 0; d < s.dims; d++) {
        double step = (double)s.features[i * s.dims + d] - (double)s.features[j * s.dims + d];
        distance += step * step;
      }
      size_t subject = (size_t)(strstr(s.captions[i], " is ") - s.captions[i]);
      int same_start = strncmp(s.captions[i], s.captions[j], subject) == 0;
      *(same_start ? &near : &far) += distance;
      *(same_start ? &near_count : &far_count) += 1;
    }
  }
  T_EQ_INT(500, seen.count);
  T_CHECK(near_count > 100 && near / (double)near_count < 0.8 * far / (double)far_count);
  lab_strings_free(&seen);
  lab_scenes_free(&s);
}

static const t_case cases[] = {{"pairs_are_distinct", pairs_are_distinct},
                               {"pairs_are_learnable", pairs_are_learnable},
                               {"images_are_learnable", images_are_learnable},
                               {"images_of_colour", images_of_colour},
                               {"stories", stories},
                               {"scenes", scenes}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
