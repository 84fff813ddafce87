/* SPDX-License-Identifier: MIT
 *
 * The kernels for one data type, in the order in which they build on each other: each file uses what stands above it,
 * and forward.h and backward.h, the drivers, come last. */
#include "real.h"
#include "elements.h"
#include "activation.h"
#include "statistic.h"
#include "gains.h"
#include "batch.h"
#include "forward_segment.h"
#include "forward_common.h"
#include "short_sums.h"
#include "forward_short.h"
#include "forward_row.h"
#include "stepwise.h"
#include "forward.h"
#include "backward_segment.h"
#include "backward_scaled.h"
#include "backward_common.h"
#include "backward_measure.h"
#include "backward_short.h"
#include "backward_stepwise.h"
#include "backward.h"
#include "columns.h"
#ifndef WIDE_OUTSIDE
#include "tile.h"
#include "forward_tile.h"
#endif
#if !T_IS_F64 && !defined(WIDE_OUTSIDE)
#include "quantise.h"
#include "quantise_rows.h"
#endif
#undef T
#undef T_NAME
#undef T_IS_F64
