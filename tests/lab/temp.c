/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include "temp.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char folder[512];

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *level) {
  (void)status, (void)type, (void)level;
  return remove(path);
}

static void remove_folder(void) {
  nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void give_up(const char *what) {
  perror(what);
  exit(1);
}

const char *temp_path(const char *name) {
  static char paths[8][1024];
  static int next;
  if (!folder[0]) {
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/rmsnorm-lab-XXXXXX", place && *place ? place : "/tmp");
    if (!mkdtemp(folder)) give_up(folder);
    atexit(remove_folder);
  }
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
  }
  return path;
}

const char *temp_write(const char *name, const void *bytes, size_t size) {
  const char *path = temp_path(name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) give_up(path);
  return path;
}

const char *temp_write_text(const char *name, const char *text) {
  return temp_write(name, text, strlen(text));
}

const char *temp_write_gzip(const char *name, const void *bytes, size_t size) {
  const char *path = temp_path(name);
  gzFile file = gzopen(path, "wb");
  if (!file || gzwrite(file, bytes, (unsigned)size) != (int)size || gzclose(file) != Z_OK) give_up(path);
  return path;
}

int temp_names(const char *error, const char *path) {
  return strncmp(error, path, strlen(path)) == 0 && error[strlen(path)] == ':' && !strchr(error, '\n');
}
