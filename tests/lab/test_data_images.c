/* SPDX-License-Identifier: MIT
 *
 * Images: idx files, CIFAR-10 batches, folders of either, sampling.
 */
#include "data/images.h"

#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "samples.h"
#include "temp.h"

static lab_error error;

static void idx(void) {
  lab_images images = {0};
  sample pixels, labels;
  sample_idx_images(&pixels, 12, 5, 7);
  sample_idx_labels(&labels, 12);
  const char *paths[2][2] = {
      {temp_write("i", pixels.bytes, pixels.size), temp_write("l", labels.bytes, labels.size)},
      {temp_write_gzip("i.gz", pixels.bytes, pixels.size), temp_write_gzip("l.gz", labels.bytes, labels.size)}};
  for (int packed = 0; packed < 2; packed++) {
    if (!T_EQ_INT(0, lab_images_read_idx(&images, paths[packed][0], paths[packed][1], &error))) return;
    T_EQ_INT(12, images.count);
    T_EQ_INT(1, images.channels);
    T_EQ_INT(5, images.height);
    T_EQ_INT(7, images.width);
    T_EQ_INT(10, images.classes);
    T_EQ_INT(3 + 34, images.pixels[3 * 35 + 34]);
    T_EQ_INT(1, images.labels[11]);
    lab_images_free(&images);
  }
}

static void refuse_idx(const sample *pixels, const sample *labels, int of_labels, const char *reason) {
  lab_images images = {0};
  const char *i = temp_write("bad-i", pixels->bytes, pixels->size),
             *l = temp_write("bad-l", labels->bytes, labels->size);
  T_EQ_INT(-1, lab_images_read_idx(&images, i, l, &error));
  T_CHECK(strncmp(error.text, of_labels ? l : i, strlen(i)) == 0);
  if (!T_CHECK(strstr(error.text, reason) != NULL)) fprintf(stderr, "    wanted '%s', got '%s'\n", reason, error.text);
  T_CHECK(images.pixels == NULL && images.count == 0);
}

static void idx_errors(void) {
  sample pixels, labels, bad;
  sample_idx_images(&pixels, 12, 5, 7);
  sample_idx_labels(&labels, 12);
  bad = pixels;
  bad.size = 15;
  refuse_idx(&bad, &labels, 0, "too short");
  bad = pixels;
  bad.size--;
  refuse_idx(&bad, &labels, 0, "the header speaks of 436 bytes, the file has 435");
  bad = pixels;
  bad.size++;
  refuse_idx(&bad, &labels, 0, "the header speaks of");
  refuse_idx(&labels, &labels, 0, "not an idx3 file");
  refuse_idx(&pixels, &pixels, 1, "not an idx1 file");
  bad = pixels;
  memset(bad.bytes + 4, 0xff, 12); /* sizes whose product overflows 64 bits */
  refuse_idx(&bad, &labels, 0, "the header speaks of");
  sample_idx_labels(&bad, 11);
  refuse_idx(&pixels, &bad, 1, "has 11 labels");
  sample_idx_images(&bad, 0, 5, 7);
  refuse_idx(&bad, &labels, 0, "holds no images");
  lab_images images = {0};
  T_EQ_INT(-1, lab_images_read_idx(&images, temp_path("absent"), temp_path("absent"), &error));
  T_CHECK(strstr(error.text, "No such file") != NULL);
  T_EQ_INT(-1, lab_images_read_idx(&images, temp_path("."), temp_path("."), &error));
  T_CHECK(strstr(error.text, "not a regular file") != NULL);
}

static void cifar(void) {
  lab_images images = {0};
  sample batch;
  sample_cifar(&batch, 4);
  const char *path = temp_write("batch.bin", batch.bytes, batch.size);
  T_EQ_INT(0, lab_images_read_cifar(&images, path, &error));
  T_EQ_INT(0, lab_images_read_cifar(&images, path, &error)); /* adds */
  T_EQ_INT(8, images.count);
  T_EQ_INT(3, images.channels);
  T_EQ_INT(32, images.height);
  T_EQ_INT(2, images.pixels[6 * 3072]);
  T_EQ_INT(3, images.labels[7]);
  path = temp_write("cut.bin", batch.bytes, batch.size - 1);
  T_EQ_INT(-1, lab_images_read_cifar(&images, path, &error));
  T_CHECK(temp_names(error.text, path) && strstr(error.text, "whole number"));
  batch.bytes[2 * 3073] = 10;
  path = temp_write("label.bin", batch.bytes, batch.size);
  T_EQ_INT(-1, lab_images_read_cifar(&images, path, &error));
  T_CHECK(temp_names(error.text, path) && strstr(error.text, "record 2 has label 10"));
  path = temp_write("empty.bin", "", 0);
  T_EQ_INT(-1, lab_images_read_cifar(&images, path, &error));
  T_EQ_INT(8, images.count);
  lab_images_free(&images);
}

static void folders(void) {
  lab_images train, test;
  sample pixels, labels, batch;
  sample_idx_images(&pixels, 20, 4, 4);
  sample_idx_labels(&labels, 20);
  temp_write_gzip("fashion/train-images-idx3-ubyte.gz", pixels.bytes, pixels.size);
  temp_write_gzip("fashion/train-labels-idx1-ubyte.gz", labels.bytes, labels.size);
  T_EQ_INT(-1, lab_images_read_folder(&train, &test, temp_path("fashion"), &error));
  T_CHECK(strstr(error.text, "has neither t10k-images-idx3-ubyte nor") != NULL);
  temp_write("fashion/t10k-images-idx3-ubyte", pixels.bytes, pixels.size);
  temp_write("fashion/t10k-labels-idx1-ubyte", labels.bytes, labels.size);
  if (T_EQ_INT(1, lab_images_read_folder(&train, &test, temp_path("fashion"), &error))) {
    T_EQ_INT(20, train.count);
    T_EQ_INT(20, test.count);
    T_CHECK(strncmp(train.origin, "Fashion-MNIST", 13) == 0);
    lab_images_free(&train);
    lab_images_free(&test);
  }
  sample_cifar(&batch, 2);
  for (int i = 1; i <= 5; i++) {
    char name[64];
    snprintf(name, sizeof name, "cifar/data_batch_%d.bin", i);
    temp_write(name, batch.bytes, batch.size);
  }
  temp_write("cifar/test_batch.bin", batch.bytes, 3073);
  if (T_EQ_INT(1, lab_images_read_folder(&train, &test, temp_path("cifar"), &error))) {
    T_EQ_INT(10, train.count);
    T_EQ_INT(1, test.count);
    lab_images_free(&train);
    lab_images_free(&test);
  }
  temp_write("other/readme", "x", 1);
  T_EQ_INT(0, lab_images_read_folder(&train, &test, temp_path("other"), &error));
}

static void sampling(void) {
  lab_images a = {0}, b = {0};
  sample pixels, labels;
  sample_idx_images(&pixels, 50, 2, 2);
  sample_idx_labels(&labels, 50);
  const char *i = temp_write("s-i", pixels.bytes, pixels.size), *l = temp_write("s-l", labels.bytes, labels.size);
  T_EQ_INT(0, lab_images_read_idx(&a, i, l, &error));
  T_EQ_INT(0, lab_images_read_idx(&b, i, l, &error));
  lab_images_sample(&a, 20, 9);
  lab_images_sample(&b, 100, 9);
  T_EQ_INT(20, a.count);
  T_EQ_INT(50, b.count);
  T_EQ_BYTES(b.pixels, a.pixels, 20 * 4); /* a smaller sample is the beginning of a larger one */
  int seen[50] = {0}, all = 0;
  for (int k = 0; k < 50; k++) {
    T_EQ_INT(b.pixels[4 * k] % 10, b.labels[k]); /* labels stay with their images */
    seen[b.pixels[4 * k]] = 1;
  }
  for (int k = 0; k < 50; k++)
    all += seen[k];
  T_EQ_INT(50, all);
  lab_images_free(&a);
  lab_images_free(&b);
}

static const t_case cases[] = {
    {"idx", idx}, {"idx_errors", idx_errors}, {"cifar", cifar}, {"folders", folders}, {"sampling", sampling}};

int main(int argc, char **argv) {
  return t_main(argc, argv, cases, T_COUNT(cases));
}
