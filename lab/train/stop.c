/* SPDX-License-Identifier: MIT */
#include "train/stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/cluster.h"

static volatile sig_atomic_t interrupted, silent;
static int agreed;

static void on_interrupt(int signal_number) {
  static const char text[] = "\nstopping after this step; a second signal ends at once\n";
  interrupted = signal_number;
  signal(signal_number, SIG_DFL);
  if (silent) return;
  ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  (void)written; /* nothing can be done without a stderr */
}

void stop_on_interrupt(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  interrupted = agreed = 0;
  silent = cluster_rank() > 0;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (cluster_size() > 1) sigaction(SIGUSR1, &action, NULL);
}

int stop_requested(void) {
  return agreed = cluster_most(interrupted);
}

int stop_signal(void) {
  return agreed;
}

const char *stop_reason(void) {
  return agreed == SIGTERM ? "SIGTERM" : agreed == SIGUSR1 ? "SIGUSR1" : "Ctrl-C";
}
