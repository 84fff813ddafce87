/* SPDX-License-Identifier: MIT
 *
 * A file that appears under its name only once it is whole: it is written beside its name first, then
 * renamed. */
#ifndef LAB_FILE_H
#define LAB_FILE_H

#include <stdio.h>

#include "base/base.h"

typedef struct lab_file {
  FILE *stream;
  char path[1024], part[1032];
} lab_file;

int lab_file_open(lab_file *file, const char *path, lab_error *error);
/* Ends the writing. If it failed before (`good` 0, errno says why), nothing is left behind and the call is an error. */
int lab_file_close(lab_file *file, int good, lab_error *error);

/* Makes the folder and those above it where they are missing. */
int lab_make_folder(const char *folder, lab_error *error);

#endif
