/* SPDX-License-Identifier: MIT
 * A choice that the program makes during somebody's first call stays. The first call of a process looks for a choice,
 * reads the environment and publishes what it found. This program's own getenv makes the program's choice in between,
 * as another thread could: the order of events is the same in every run. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

static int hooked; /* the library is in its first call */

static char *from_environment(const char *name) {
  size_t length = strlen(name);
  for (char **entry = environ; entry && *entry; entry++)
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  return NULL;
}

/* In the place of the C library's. */
char *getenv(const char *name) {
  static char bad_isa[] = "nonsense", bytes[] = "777";
  if (hooked && strcmp(name, "RMSNORM_ISA") == 0) {
    T_EQ_STATUS(RMS_OK, rms_isa_force("scalar"));
    return bad_isa;
  }
  if (hooked && strcmp(name, "RMSNORM_STREAM_BYTES") == 0) {
    T_EQ_STATUS(RMS_OK, rms_stream_threshold_set(12345));
    return bytes;
  }
  return from_environment(name);
}

static void forced_meanwhile(void) {
  static const float x[4] = {1, 2, 3, 4};
  float y[4];
  hooked = 1;
  T_EQ_STATUS(RMS_OK, rms_norm_f32(y, x, NULL, 1, 4, 1e-5));
  T_EQ_STR("scalar", rms_isa_active());
  T_EQ_INT(12345, rms_stream_threshold());
  hooked = 0;
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"forced_meanwhile", forced_meanwhile}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
