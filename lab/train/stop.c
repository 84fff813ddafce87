/* SPDX-License-Identifier: MIT */
#include "train/stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  static const char text[] = "\nstopping after this step; a second signal ends at once\n";
  interrupted = signal_number;
  signal(signal_number, SIG_DFL);
  ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
  (void)written; /* nothing can be done without a stderr */
}

void stop_on_interrupt(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  interrupted = 0;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

int stop_requested(void) {
  return interrupted;
}

const char *stop_reason(void) {
  return interrupted == SIGTERM ? "SIGTERM" : "Ctrl-C";
}
