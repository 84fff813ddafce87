/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "data/images.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char debian_folder[] = "/usr/share/datasets/fashion-mnist";

void lab_images_free(lab_images *images) {
  free(images->pixels);
  free(images->labels);
  *images = (lab_images){0};
}

/* ---- idx: 00 00 08 ndim, ndim big-endian sizes, then the bytes ---- */

static uint32_t big_endian_at(const char *bytes) {
  const unsigned char *b = (const unsigned char *)bytes;
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Reads the file and checks that it holds unsigned bytes in exactly `dimensions` dimensions; `sizes` gets them. */
static int read_idx(char **bytes, uint32_t *sizes, int dimensions, const char *path, lab_error *error) {
  int64_t size;
  if (lab_read_file(bytes, &size, path, error) < 0) return -1;
  const char *b = *bytes;
  int64_t header = 4 + 4 * (int64_t)dimensions;
  int status = 0;
  if (size < header)
    status = lab_fail(error, "%s: too short for the header of an idx%d file", path, dimensions);
  else if (b[0] != 0 || b[1] != 0 || b[2] != 8 || b[3] != dimensions)
    status = lab_fail(error, "%s: not an idx%d file of unsigned bytes (it begins with %08" PRIx32 ")", path, dimensions,
                      big_endian_at(b));
  double wanted = (double)header, product = 1;
  for (int i = 0; status == 0 && i < dimensions; i++) {
    sizes[i] = big_endian_at(b + 4 + 4 * i);
    product *= sizes[i]; /* below 2^96: as a double it cannot overflow, and is exact where the file could match */
  }
  wanted += product;
  if (status == 0 && (double)size != wanted)
    status = lab_fail(error, "%s: the header speaks of %.0f bytes, the file has %" PRId64, path, wanted, size);
  if (status < 0) free(*bytes);
  return status;
}

static int count_classes(const uint8_t *labels, int64_t count) {
  int classes = 0;
  for (int64_t i = 0; i < count; i++)
    if (labels[i] >= classes) classes = labels[i] + 1;
  return classes;
}

int lab_images_read_idx(lab_images *images, const char *images_path, const char *labels_path, lab_error *error) {
  uint32_t shape[3], label_count;
  char *pixels, *labels;
  if (read_idx(&pixels, shape, 3, images_path, error) < 0) return -1;
  if (read_idx(&labels, &label_count, 1, labels_path, error) < 0) {
    free(pixels);
    return -1;
  }
  int status = 0;
  if (shape[0] == 0 || shape[1] == 0 || shape[2] == 0)
    status = lab_fail(error, "%s: holds no images", images_path);
  else if (shape[1] > 4096 || shape[2] > 4096)
    status = lab_fail(error, "%s: images of %" PRIu32 " x %" PRIu32 " are too large", images_path, shape[1], shape[2]);
  else if (label_count != shape[0])
    status = lab_fail(error, "%s has %" PRIu32 " labels but %s has %" PRIu32 " images", labels_path, label_count,
                      images_path, shape[0]);
  if (status == 0) {
    *images = (lab_images){.count = shape[0], .channels = 1, .height = (int)shape[1], .width = (int)shape[2]};
    size_t bytes = (size_t)shape[0] * shape[1] * shape[2];
    memmove(pixels, pixels + 16, bytes);
    memmove(labels, labels + 8, label_count);
    images->pixels = (uint8_t *)pixels;
    images->labels = (uint8_t *)labels;
    images->classes = count_classes(images->labels, images->count);
    snprintf(images->origin, sizeof images->origin, "%.150s", images_path);
    return 0;
  }
  free(pixels);
  free(labels);
  return status;
}

/* ---- CIFAR-10 ---- */

enum { CIFAR_PIXELS = 3 * 32 * 32, CIFAR_RECORD = 1 + CIFAR_PIXELS };

int lab_images_read_cifar(lab_images *images, const char *path, lab_error *error) {
  char *bytes;
  int64_t size;
  if (lab_read_file(&bytes, &size, path, error) < 0) return -1;
  int status = 0;
  int64_t records = size / CIFAR_RECORD;
  if (size == 0 || size % CIFAR_RECORD != 0)
    status = lab_fail(error, "%s: %" PRId64 " bytes are not a whole number of CIFAR-10 records (%d bytes)", path, size,
                      CIFAR_RECORD);
  for (int64_t i = 0; status == 0 && i < records; i++)
    if ((uint8_t)bytes[i * CIFAR_RECORD] > 9)
      status =
          lab_fail(error, "%s: record %" PRId64 " has label %d, above 9", path, i, (uint8_t)bytes[i * CIFAR_RECORD]);
  if (status == 0) {
    int64_t total = images->count + records, held = images->count * CIFAR_PIXELS, labels_held = images->count;
    images->pixels = lab_grow(images->pixels, &held, total * CIFAR_PIXELS, 1);
    images->labels = lab_grow(images->labels, &labels_held, total, 1);
    for (int64_t i = 0; i < records; i++) {
      images->labels[images->count + i] = (uint8_t)bytes[i * CIFAR_RECORD];
      memcpy(images->pixels + (images->count + i) * CIFAR_PIXELS, bytes + i * CIFAR_RECORD + 1, CIFAR_PIXELS);
    }
    images->count = total;
    images->channels = 3;
    images->height = images->width = 32;
    images->classes = 10;
    snprintf(images->origin, sizeof images->origin, "%.150s", path);
  }
  free(bytes);
  return status;
}

/* ---- Folders ---- */

/* folder/name or folder/name.gz, whichever is there; 0 if neither is. */
static int find_file(char *path, size_t size, const char *folder, const char *name) {
  struct stat status;
  snprintf(path, size, "%s/%s", folder, name);
  if (stat(path, &status) == 0) return 1;
  snprintf(path, size, "%s/%s.gz", folder, name);
  return stat(path, &status) == 0;
}

static int read_idx_folder(lab_images *images, const char *folder, const char *prefix, lab_error *error) {
  char names[2][64], paths[2][1024];
  snprintf(names[0], sizeof names[0], "%s-images-idx3-ubyte", prefix);
  snprintf(names[1], sizeof names[1], "%s-labels-idx1-ubyte", prefix);
  for (int i = 0; i < 2; i++)
    if (!find_file(paths[i], sizeof paths[i], folder, names[i]))
      return lab_fail(error, "%s: has neither %s nor %s.gz", folder, names[i], names[i]);
  if (lab_images_read_idx(images, paths[0], paths[1], error) < 0) return -1;
  snprintf(images->origin, sizeof images->origin, "%s%.130s",
           strstr(folder, "fashion") ? "Fashion-MNIST, " : "idx images, ", folder);
  return 0;
}

static int read_cifar_folder(lab_images *train, lab_images *test, const char *folder, lab_error *error) {
  for (int i = 1; i <= 6; i++) {
    char name[32], path[1024];
    if (i <= 5)
      snprintf(name, sizeof name, "data_batch_%d.bin", i);
    else
      snprintf(name, sizeof name, "test_batch.bin");
    if (!find_file(path, sizeof path, folder, name))
      return lab_fail(error, "%s: has neither %s nor %s.gz", folder, name, name);
    if (lab_images_read_cifar(i <= 5 ? train : test, path, error) < 0) return -1;
  }
  snprintf(train->origin, sizeof train->origin, "CIFAR-10, %.130s", folder);
  snprintf(test->origin, sizeof test->origin, "CIFAR-10, %.130s", folder);
  return 0;
}

int lab_images_read_folder(lab_images *train, lab_images *test, const char *folder, lab_error *error) {
  char path[1024];
  int status = 0;
  if (!folder) folder = debian_folder;
  if (strlen(folder) > 900) return lab_fail(error, "%.60s...: the path is too long", folder);
  *train = *test = (lab_images){0};
  if (find_file(path, sizeof path, folder, "train-images-idx3-ubyte")) {
    status = read_idx_folder(train, folder, "train", error);
    if (status == 0) status = read_idx_folder(test, folder, "t10k", error);
  } else if (find_file(path, sizeof path, folder, "data_batch_1.bin")) {
    status = read_cifar_folder(train, test, folder, error);
  } else {
    return 0;
  }
  if (status == 0 && (train->height != test->height || train->width != test->width))
    status = lab_fail(error, "%s: training and test images have different sizes", folder);
  if (status == 0 && train->classes < test->classes)
    status = lab_fail(error, "%s: the test set has labels that the training set lacks", folder);
  if (status == 0) {
    test->classes = train->classes;
    return 1;
  }
  lab_images_free(train);
  lab_images_free(test);
  return -1;
}

void lab_images_sample(lab_images *images, int64_t count, uint64_t seed) {
  size_t size = (size_t)images->channels * (size_t)images->height * (size_t)images->width;
  if (count > images->count) count = images->count;
  lab_rng rng = lab_rng_make(seed, lab_hash(LAB_HASH_START, "images", 6));
  uint8_t *swap = lab_alloc(size, 1);
  for (int64_t i = 0; i < count; i++) {
    int64_t j = i + lab_rng_below(&rng, images->count - i);
    uint8_t *a = images->pixels + (size_t)i * size, *b = images->pixels + (size_t)j * size;
    memcpy(swap, a, size);
    memmove(a, b, size);
    memcpy(b, swap, size);
    uint8_t label = images->labels[i];
    images->labels[i] = images->labels[j];
    images->labels[j] = label;
  }
  free(swap);
  images->count = count;
}
