/* SPDX-License-Identifier: MIT
 *
 * Kernels for torch's dispatcher. The operators are defined in Python (rmsnorm/_torch_ops.py); here are their CPU
 * kernels, which reach torch through its stable C interface alone: functions that are looked up in the torch that is
 * loaded. */
#ifndef PN_TORCH_KERNELS_H
#define PN_TORCH_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the kernels. path: the loaded libtorch_cpu. NULL, or the name of a function that this torch lacks. */
const char *pn_torch_register(const char *path);

/* Takes the kernels away again. */
void pn_torch_unregister(void);

#ifdef __cplusplus
}
#endif

#endif
