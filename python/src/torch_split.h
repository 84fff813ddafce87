/* SPDX-License-Identifier: MIT
 *
 * Kernels of the operators in two halves, for rows whose columns are spread over processes. */
#ifndef PN_TORCH_SPLIT_H
#define PN_TORCH_SPLIT_H

#include "torch_operands.h"

namespace pn {

/* For the CPU or for the device whose library is loaded; the last one has no name. */
const named_kernel *split_kernels(bool device);

} // namespace pn

#endif
