/* SPDX-License-Identifier: MIT
 *
 * What a unit of src/cpu/isa includes before the template. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "../convert.h"
#include "../exact.h"
#include "../kernels.h"
#include "cursor.h"
#include "power.h"

#ifndef KERNEL
#define KERNEL static /* of the functions that the table names: nothing where another unit's table does */
#endif
