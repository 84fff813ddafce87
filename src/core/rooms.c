/* SPDX-License-Identifier: MIT */
#include "rooms.h"
#include <stdatomic.h>
#include <stdlib.h>

enum { ROOM_LINE = 64 };

/* In a line of its own in front of each room. */
typedef struct {
  _Alignas(ROOM_LINE) atomic_flag taken;
} room_state;

static room_state *state_of_room(char *room) {
  return (room_state *)(void *)(room - sizeof(room_state));
}

bool rms_open_rooms(rms_rooms *rooms, int64_t count, int64_t bytes) {
  rooms->count = 0;
  rooms->memory = NULL;
  if (count == 0 || bytes == 0) return true;
  if (bytes > (PTRDIFF_MAX - 2 * ROOM_LINE) / count - 2 * ROOM_LINE) return false;
  rooms->pitch = (bytes + ROOM_LINE - 1) / ROOM_LINE * ROOM_LINE + (int64_t)sizeof(room_state);
  rooms->memory = malloc((size_t)(count * rooms->pitch + ROOM_LINE));
  if (!rooms->memory) return false;
  const uintptr_t start = ((uintptr_t)rooms->memory + ROOM_LINE - 1) / ROOM_LINE * ROOM_LINE;
  rooms->first = (char *)start + sizeof(room_state);
  rooms->count = count;
  for (int64_t i = 0; i < count; i++)
    rms_release_room(rooms->first + i * rooms->pitch);
  return true;
}

void rms_close_rooms(const rms_rooms *rooms) {
  free(rooms->memory);
}

char *rms_claim_room(const rms_rooms *rooms) {
  for (int64_t i = 0;; i = i + 1 < rooms->count ? i + 1 : 0) {
    char *room = rooms->first + i * rooms->pitch;
    if (!atomic_flag_test_and_set_explicit(&state_of_room(room)->taken, memory_order_acquire)) return room;
  }
}

void rms_release_room(char *room) {
  atomic_flag_clear_explicit(&state_of_room(room)->taken, memory_order_release);
}
