/* SPDX-License-Identifier: MIT
 *
 * Rooms on the heap for the tiles of rows that are too wide for the stack (apart.h): one for each task of a call that
 * may run at once. They are allocated before anything is written, and a task claims one for as long as it runs. */
#ifndef RMS_CORE_ROOMS_H
#define RMS_CORE_ROOMS_H

#include <stdbool.h>
#include <stdint.h>

/* The state of a room; the rooms of a call follow each other, each behind the lines of its state. */
typedef struct {
  int64_t count, pitch; /* bytes from one room to the next */
  char *first;          /* aligned to a cache line         */
  void *memory;
} rms_rooms;

/* count rooms of so many bytes; none for count = 0 or bytes = 0. False: there is no memory, and nothing to close. */
bool rms_open_rooms(rms_rooms *rooms, int64_t count, int64_t bytes);
void rms_close_rooms(const rms_rooms *rooms);

/* A room for the calling task, aligned to a cache line. There is a free one unless the executor runs more tasks at once
 * than it said; then this waits until one of them ends, which none of them does for another. */
char *rms_claim_room(const rms_rooms *rooms);
void rms_release_room(char *room);

#endif
