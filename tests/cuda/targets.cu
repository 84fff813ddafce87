/* SPDX-License-Identifier: MIT
 *
 * The list of `rmsnorm bench --device cuda`: every entry is a problem, and there is a copy to compare it with. */
#include "../../cli/bench/cuda_targets.h"
#include <cstdio>
#include "../../cli/bench/cuda_memory.h"
extern "C" {
#include "../../cli/bench/traffic.h"
}

int main() {
  int failures = 0;
  for (const Target &target : targets) {
    verify_problem problem;
    verify_case described;
    char message[256] = "its tensors have no size";
    if (verify_problem_parse(target.problem, &problem, message, sizeof message) ||
        verify_case_describe(&described, &problem)) {
      printf("FAILED %s: %s\n", target.problem, message), failures++;
      continue;
    }
    const traffic moved = traffic_of(&described);
    if (moved.read_count > COPY_READS || moved.write_count < 1 || moved.write_count > COPY_WRITES) {
      printf("FAILED %s: reads %d tensors and writes %d\n", target.problem, moved.read_count, moved.write_count);
      failures++;
    }
  }
  printf("%d problems, %d failures\n", (int)(sizeof targets / sizeof *targets), failures);
  return failures != 0;
}
