/* SPDX-License-Identifier: MIT
 *
 * The kernels for one data type, in the order in which they build on each other. */
#include "real.h"
#include "statistic.h"
#include "forward.h"
#include "forward_short.h"
#include "forward_fast.h"
#include "backward.h"
#include "backward_rows.h"
#undef T
#undef T_NAME
#undef T_IS_F64
