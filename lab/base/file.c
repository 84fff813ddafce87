/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int lab_file_open(lab_file *file, const char *path, lab_error *error) {
  if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
    return lab_fail(error, "%.60s...: the path is too long", path);
  snprintf(file->part, sizeof file->part, "%s.part", file->path);
  file->stream = fopen(file->part, "wb");
  return file->stream ? 0 : lab_fail(error, "%s: %s", path, strerror(errno));
}

int lab_file_close(lab_file *file, int good, lab_error *error) {
  int reason = good ? 0 : errno;
  if (fclose(file->stream) != 0 && good) {
    good = 0;
    reason = errno;
  }
  if (good && rename(file->part, file->path) == 0) return 0;
  if (good) reason = errno;
  remove(file->part);
  return lab_fail(error, "%s: %s", file->path, reason ? strerror(reason) : "writing failed");
}

int lab_make_folder(const char *folder, lab_error *error) {
  char path[1024];
  if (!*folder || strlen(folder) > 900) return lab_fail(error, "'%.60s': not a usable folder name", folder);
  snprintf(path, sizeof path, "%s", folder);
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777); /* an error shows at the last folder, below */
    *slash = '/';
  }
  struct stat status;
  if (mkdir(path, 0777) != 0 && errno != EEXIST) return lab_fail(error, "%s: %s", folder, strerror(errno));
  if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return lab_fail(error, "%s: not a folder", folder);
  return 0;
}
