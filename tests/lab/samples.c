/* SPDX-License-Identifier: MIT */
#include "samples.h"

#include <stdlib.h>
#include <string.h>

static void put(sample *out, const void *bytes, size_t size) {
  if (out->size + size > sizeof out->bytes) abort();
  memcpy(out->bytes + out->size, bytes, size);
  out->size += size;
}

static void put_word(sample *out, uint32_t word, int big_endian) {
  unsigned char b[4];
  for (int i = 0; i < 4; i++)
    b[i] = (unsigned char)(word >> 8 * (big_endian ? 3 - i : i));
  put(out, b, 4);
}

void sample_mo(sample *out, const sample_message *messages, uint32_t count, int big_endian) {
  uint32_t at = 28 + 16 * count;
  uint32_t header[] = {0x950412de, 0, count, 28, 28 + 8 * count, 0, 28 + 16 * count};
  out->size = 0;
  for (int i = 0; i < 7; i++)
    put_word(out, header[i], big_endian);
  for (int target = 0; target < 2; target++)
    for (uint32_t i = 0; i < count; i++) {
      uint32_t length = (uint32_t)(target ? messages[i].target_length : messages[i].source_length);
      put_word(out, length, big_endian);
      put_word(out, at, big_endian);
      at += length + 1;
    }
  for (int target = 0; target < 2; target++)
    for (uint32_t i = 0; i < count; i++)
      if (target)
        put(out, messages[i].target, messages[i].target_length + 1);
      else
        put(out, messages[i].source, messages[i].source_length + 1);
}

void sample_idx_images(sample *out, uint32_t count, uint32_t rows, uint32_t cols) {
  out->size = 0;
  put_word(out, 0x00000803, 1);
  put_word(out, count, 1);
  put_word(out, rows, 1);
  put_word(out, cols, 1);
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < rows * cols; j++)
      put(out, &(unsigned char){(unsigned char)(i + j)}, 1);
}

void sample_idx_labels(sample *out, uint32_t count) {
  out->size = 0;
  put_word(out, 0x00000801, 1);
  put_word(out, count, 1);
  for (uint32_t i = 0; i < count; i++)
    put(out, &(unsigned char){(unsigned char)(i % 10)}, 1);
}

void sample_cifar(sample *out, int records) {
  unsigned char record[3073];
  out->size = 0;
  for (int i = 0; i < records; i++) {
    memset(record, i, sizeof record);
    record[0] = (unsigned char)(i % 10);
    put(out, record, sizeof record);
  }
}
