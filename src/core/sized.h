/* SPDX-License-Identifier: MIT
 *
 * Structs of callers that were compiled with an older or newer header: rmsnorm.h, section 8. */
#ifndef RMS_CORE_SIZED_H
#define RMS_CORE_SIZED_H

#include <stddef.h>
#include "../../include/rmsnorm.h"

/* A struct of another size than the library's, in `room`: extended with zeros, or cut where nothing but zeros is lost.
 * NULL if something else would be lost: the call asks for what this library does not know. */
const void *rms_resized(const void *given, size_t given_size, void *room, size_t known_size);

/* The caller's struct itself where the sizes agree, as they nearly always do. */
static inline const void *rms_sized(const void *given, size_t given_size, void *room, size_t known_size) {
  return given_size == known_size ? given : rms_resized(given, given_size, room, known_size);
}

/* Room for the structs of a call, where they have another size. */
typedef struct {
  rms_spec spec;
  rms_forward_args args;
} rms_forward_structs;

typedef struct {
  rms_spec spec;
  rms_backward_args args;
} rms_backward_structs;

/* Both structs of a call as this library knows them. */
static inline rms_status rms_take_forward(const rms_spec **spec, size_t spec_size, const rms_forward_args **args,
                                          size_t args_size, rms_forward_structs *room) {
  if (!*spec || !*args) return RMS_E_ARGUMENT;
  *spec = (const rms_spec *)rms_sized(*spec, spec_size, &room->spec, sizeof room->spec);
  *args = (const rms_forward_args *)rms_sized(*args, args_size, &room->args, sizeof room->args);
  return *spec && *args ? RMS_OK : RMS_E_VERSION;
}

static inline rms_status rms_take_backward(const rms_spec **spec, size_t spec_size, const rms_backward_args **args,
                                           size_t args_size, rms_backward_structs *room) {
  if (!*spec || !*args) return RMS_E_ARGUMENT;
  *spec = (const rms_spec *)rms_sized(*spec, spec_size, &room->spec, sizeof room->spec);
  *args = (const rms_backward_args *)rms_sized(*args, args_size, &room->args, sizeof room->args);
  return *spec && *args ? RMS_OK : RMS_E_VERSION;
}

#endif
