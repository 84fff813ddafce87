/* SPDX-License-Identifier: MIT
 *
 * The kernels that quantise bf16, where its others stand in a unit with another vector: by a name of their own. */
#define RMS_BF16_QUANTISED bf16_quantised
#define T                  RMS_BF16
#define T_NAME             K_(RMS_BF16_QUANTISED, RMS_ISA)
#define T_IS_F64           0
#include "real.h"
#include "elements.h"
#include "gains.h"
#include "quantise.h"
#include "quantise_rows.h"
#undef T
#undef T_NAME
#undef T_IS_F64
