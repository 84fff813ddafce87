/* SPDX-License-Identifier: MIT
 *
 * The kernel of the operator with a quantised result. */
#ifndef PN_TORCH_QUANTISED_H
#define PN_TORCH_QUANTISED_H

#include "torch_operands.h"

namespace pn {

/* For the CPU or for the device whose library is loaded. */
named_kernel quantised_kernel(bool device);

} // namespace pn

#endif
