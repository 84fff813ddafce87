/* SPDX-License-Identifier: MIT
 *
 * Labelled images: MNIST-style idx files (Debian's dataset-fashion-mnist) and CIFAR-10 binary batches,
 * plain or gzip. */
#ifndef LAB_DATA_IMAGES_H
#define LAB_DATA_IMAGES_H

#include "base/base.h"

typedef struct lab_images {
  int64_t count;
  int channels, height, width;
  int classes;      /* labels are 0 .. classes-1 */
  uint8_t *pixels;  /* count x channels x height x width, 0..255 */
  uint8_t *labels;  /* count */
  int synthetic;    /* 1: made by lab_synth_images */
  char origin[160]; /* for people: "Fashion-MNIST (/usr/share/datasets/...)" */
} lab_images;

/* Reads an idx3-ubyte file of images and the idx1-ubyte file of their labels. The set must be zeros on entry. */
int lab_images_read_idx(lab_images *images, const char *images_path, const char *labels_path, lab_error *error);

/* Reads a CIFAR-10 binary batch: records of one label byte and 3x32x32 pixel bytes. Called again it adds to the set. */
int lab_images_read_cifar(lab_images *images, const char *path, lab_error *error);

/* Reads the training and test set of a folder that holds either {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] or
 * data_batch_1..5.bin and test_batch.bin. folder NULL: where Debian installs Fashion-MNIST.
 * Returns 1 if read, 0 if the folder holds neither, -1 on an error. */
int lab_images_read_folder(lab_images *train, lab_images *test, const char *folder, lab_error *error);

/* Keeps `count` images chosen by seed, in an order that depends on the seed alone; all of them (shuffled) if there are
 * not more. */
void lab_images_sample(lab_images *images, int64_t count, uint64_t seed);

void lab_images_free(lab_images *images);

#endif
