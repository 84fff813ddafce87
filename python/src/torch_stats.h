/* SPDX-License-Identifier: MIT
 *
 * The statistics that a forward keeps for its backward: one tensor (1 or 2, leading dimensions of x, groups), dense in
 * x's order of rows. */
#ifndef PN_TORCH_STATS_H
#define PN_TORCH_STATS_H

#include "torch_shim.h"

namespace pn {

void make_stats(tensor &stats, const tensor &x, const rms_spec &spec, const place &at);

/* A tensor (leading dimensions of x, width), dense in x's order of rows. */
void make_rows(tensor &t, const tensor &x, int64_t width, int32_t dtype, const place &at);

/* An exception if they are not those of x. */
void check_stats(const pn_tensor &stats, const pn_tensor &x, const rms_spec &spec);

/* The i-th statistic: the tensor without its first dimension. */
pn_tensor statistic(const pn_tensor &stats, int i);

} // namespace pn

#endif
