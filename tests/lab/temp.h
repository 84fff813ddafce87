/* SPDX-License-Identifier: MIT
 *
 * Files that a test makes: in a folder of its own that is removed at the end.
 */
#ifndef RMSNORM_TESTS_LAB_TEMP_H
#define RMSNORM_TESTS_LAB_TEMP_H

#include <stddef.h>

/* The path of a file in the folder, parent folders made; valid until eight further calls. */
const char *temp_path(const char *name);
/* Writes the bytes and returns the path. temp_write_gzip packs them. */
const char *temp_write(const char *name, const void *bytes, size_t size);
const char *temp_write_text(const char *name, const char *text);
const char *temp_write_gzip(const char *name, const void *bytes, size_t size);

/* 1 if the error is one line that begins with the path. */
int temp_names(const char *error, const char *path);

#endif
