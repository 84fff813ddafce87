/* SPDX-License-Identifier: MIT
 *
 * Small well-formed files of each format, made by the tests.
 */
#ifndef RMSNORM_TESTS_LAB_SAMPLES_H
#define RMSNORM_TESTS_LAB_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

typedef struct sample {
  unsigned char bytes[16384];
  size_t size;
} sample;

/* A message of a catalogue; lengths are given because of the NULs between plural forms. */
typedef struct sample_message {
  const char *source, *target;
  size_t source_length, target_length;
} sample_message;

#define SAMPLE_MESSAGE(source, target)                                                                                 \
  { source, target, sizeof(source) - 1, sizeof(target) - 1 }

void sample_mo(sample *out, const sample_message *messages, uint32_t count, int big_endian);
/* `count` images of rows x cols whose pixel j of image i is i + j, or their labels i % 10. */
void sample_idx_images(sample *out, uint32_t count, uint32_t rows, uint32_t cols);
void sample_idx_labels(sample *out, uint32_t count);
/* Records with label i % 10 and pixels i. */
void sample_cifar(sample *out, int records);

#endif
