/* SPDX-License-Identifier: MIT
 * usage: unit_active [NAME]. Says which instruction set the library chose by itself; with NAME, it must be that one. */
#include "harness.h"

#include <stdio.h>

static const char *wanted;

static void active(void) {
  const char *name = rms_isa_active();
  printf("active: %s\n", name ? name : "none");
  if (wanted)
    T_EQ_STR(wanted, name);
  else
    T_CHECK(name != NULL);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {{"active", active}};
  if (argc > 1) wanted = argv[1];
  return t_main(1, argv, cases, T_COUNT(cases));
}
