/* SPDX-License-Identifier: MIT */
#include "base/tasks.h"

void run_tasks(const rms_executor *executor, int64_t count, void (*task)(void *arg, int64_t index), void *arg) {
  if (executor != NULL) {
    executor->run(executor->ctx, count, task, arg);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    task(arg, i);
}
