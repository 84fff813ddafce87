/* SPDX-License-Identifier: MIT
 *
 * Work that is cut into numbered tasks.
 */
#ifndef LAB_TASKS_H
#define LAB_TASKS_H

#include "rmsnorm.h"

/* Runs task(arg, 0) ... task(arg, count - 1), on the executor's threads in any order, or one after the other on this
 * thread where the executor is NULL. */
void run_tasks(const rms_executor *executor, int64_t count, void (*task)(void *arg, int64_t index), void *arg);

#endif
