/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700 /* realpath, mkstemp */
#include "npy.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = PATH_MAX + 16 };

typedef struct pending {
  char target[PATH_BYTES];    /* where the file will be, links followed                */
  char temporary[PATH_BYTES]; /* "": nothing to rename                                 */
  int direct;                 /* standard output, a device or a pipe: no temporary file */
} pending;

/* What a signal must remove. */
static pending files[NPY_OUTPUTS_MAX];
static volatile sig_atomic_t file_count;

static void remove_temporaries(void) {
  for (int i = 0; i < file_count; i++)
    if (files[i].temporary[0]) unlink(files[i].temporary);
}

static void on_signal(int number) {
  remove_temporaries();
  signal(number, SIG_DFL);
  raise(number);
}

static void watch_signals(void) {
  const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
  struct sigaction action = {.sa_handler = on_signal}, old;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(numbers[i], &action, NULL);
  signal(SIGXFSZ, SIG_IGN); /* a file size limit then is an error like a full disk */
}

static const char *type_text(rms_dtype dtype) {
  switch (dtype) {
  case RMS_F32:
    return "<f4";
  case RMS_F64:
    return "<f8";
  case RMS_F16:
    return "<f2";
  case RMS_BF16:
    return "<V2";
  case RMS_I8:
    return "|i1";
  case RMS_F8E4M3:
  case RMS_F8E5M2: /* NumPy has no name for them: their bytes */
    return "|u1";
  case RMS_AS_X:
  case RMS_Q8_0:
    break;
  }
  return "";
}

static int write_array(FILE *file, const npy_array *array) {
  char shape[NPY_DIMS_MAX * 24], header[sizeof shape + 128];
  npy_shape_text(array, shape, sizeof shape);
  int length = snprintf(header, sizeof header - 64, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        type_text(array->dtype), shape);
  while ((10 + length + 1) % 64) /* the data starts at a multiple of 64 */
    header[length++] = ' ';
  header[length++] = '\n';
  const unsigned char start[10] = {
      0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(length & 255), (unsigned char)(length >> 8)};
  return fwrite(start, 1, sizeof start, file) == sizeof start &&
                 fwrite(header, 1, (size_t)length, file) == (size_t)length &&
                 fwrite(array->data, 1, array->bytes, file) == array->bytes && fflush(file) == 0
             ? 0
             : -1;
}

static int fail_with(int reason) {
  errno = reason;
  return -1;
}

/* A file that does not exist yet: its real folder and its name. A dangling link is followed to where it points. */
static int resolve_new(const char *path, pending *p) {
  enum { LINKS_MAX = 40 };
  char current[PATH_MAX], copy[PATH_MAX], link[PATH_MAX], folder[PATH_MAX];
  struct stat status;
  strcpy(current, path);
  for (int links = 0; links < LINKS_MAX; links++) {
    if (current[strlen(current) - 1] == '/') return fail_with(EISDIR);
    strcpy(copy, current);
    if (!realpath(dirname(copy), folder)) return -1;
    strcpy(copy, current);
    if (snprintf(p->target, sizeof p->target, "%s/%s", strcmp(folder, "/") ? folder : "", basename(copy)) >= PATH_MAX)
      return fail_with(ENAMETOOLONG);
    if (lstat(p->target, &status) != 0 || !S_ISLNK(status.st_mode)) return 0;
    ssize_t length = readlink(p->target, link, sizeof link - 1);
    if (length < 0) return -1;
    link[length] = 0;
    int used =
        snprintf(current, sizeof current, "%s%s%s", link[0] == '/' ? "" : folder, link[0] == '/' ? "" : "/", link);
    if (used >= (int)sizeof current) return fail_with(ENAMETOOLONG);
  }
  return fail_with(ELOOP);
}

/* The number of an open file of this process that a path names (/dev/stdout, /dev/fd/N), or -1. Such a file is written
 * where it stands, whatever it is: a pipe, or a log that `>>` opened. */
static int descriptor_of(const char *path) {
  static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
  if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
  if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    const char *number = path + strlen(folders[i]);
    if (strncmp(path, folders[i], strlen(folders[i])) != 0 || !*number || strlen(number) > 6) continue;
    if (strspn(number, "0123456789") == strlen(number)) return atoi(number);
  }
  return -1;
}

/* Where an output goes, links followed. */
static int resolve(const char *path, pending *p) {
  struct stat status;
  *p = (pending){.direct = strcmp(path, "-") == 0};
  if (!*path || strlen(path) >= PATH_MAX) return fail_with(*path ? ENAMETOOLONG : ENOENT);
  if (p->direct || descriptor_of(path) >= 0) {
    p->direct = 1;
    strcpy(p->target, path);
    return 0;
  }
  if (stat(path, &status) != 0) return resolve_new(path, p);
  if (S_ISDIR(status.st_mode)) return fail_with(EISDIR);
  p->direct = !S_ISREG(status.st_mode);
  return realpath(path, p->target) ? 0 : -1;
}

static int same_target(int count, int *which) {
  for (int i = 1; i < count; i++)
    for (int j = 0; j < i; j++)
      if (strcmp(files[i].target, files[j].target) == 0 && strncmp(files[i].target, "/dev/", 5) != 0) {
        *which = i;
        return 1;
      }
  return 0;
}

/* The mode of the file that is replaced, or that of a new file. */
static mode_t mode_for(const char *target) {
  struct stat status;
  mode_t mask = umask(0);
  umask(mask);
  return stat(target, &status) == 0 ? status.st_mode & 0777 : 0666 & ~mask;
}

static int write_temporary(pending *p, const npy_array *array) {
  char name[PATH_BYTES];
  if (snprintf(name, sizeof name, "%s.XXXXXX", p->target) >= (int)sizeof name) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int descriptor = mkstemp(name);
  if (descriptor < 0) return -1;
  strcpy(p->temporary, name);
  FILE *file = fdopen(descriptor, "wb");
  if (!file) {
    close(descriptor);
    return -1;
  }
  int code = fchmod(descriptor, mode_for(p->target)) || write_array(file, array);
  int failure = errno;
  if (fclose(file) != 0 && !code) return -1;
  errno = failure;
  return code ? -1 : 0;
}

static int write_direct(const pending *p, const npy_array *array) {
  if (strcmp(p->target, "-") == 0) return write_array(stdout, array);
  int descriptor = descriptor_of(p->target);
  if (descriptor >= 0 && (descriptor = dup(descriptor)) < 0) return -1;
  FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : fopen(p->target, "wb");
  if (!file) return -1;
  int code = write_array(file, array), failure = errno;
  if (fclose(file) != 0 && !code) return -1;
  errno = failure;
  return code;
}

int npy_write_all(const npy_output *outputs, int count, char *reason, size_t reason_size) {
  int i = 0;
  for (; i < count; i++)
    if (resolve(outputs[i].path, &files[i])) goto failed;
  if (same_target(count, &i)) {
    snprintf(reason, reason_size, "named for two outputs");
    return i;
  }
  file_count = count;
  watch_signals();
  for (i = 0; i < count; i++)
    if (!files[i].direct && write_temporary(&files[i], outputs[i].array)) goto failed;
  for (i = 0; i < count; i++)
    if (files[i].direct && write_direct(&files[i], outputs[i].array)) goto failed;
  for (i = 0; i < count; i++) {
    if (files[i].direct) continue;
    if (rename(files[i].temporary, files[i].target)) goto failed;
    files[i].temporary[0] = 0;
  }
  file_count = 0;
  return -1;

failed:
  snprintf(reason, reason_size, "%s", strerror(errno));
  remove_temporaries();
  file_count = 0;
  return i;
}
