/* SPDX-License-Identifier: MIT
 *
 * Kernels for torch's dispatcher. The operators are defined in Python (rmsnorm/_torch_ops.py); here are their kernels,
 * which reach torch through its stable C interface alone: functions that are looked up in the torch that is loaded. */
#ifndef PN_TORCH_KERNELS_H
#define PN_TORCH_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the kernels for the CPU. The path is that of the loaded libtorch_cpu. NULL, or the name of a function that
 * this torch lacks. */
const char *pn_torch_register(const char *libtorch_cpu);

/* The same, afterwards, for CUDA: the loaded libtorch_cuda, and librmsnorm_cuda, which this loads. The key is "CUDA".
 * Tests, which have no GPU, give NULL, a library with the same functions on the CPU's memory, and the key "CPU". */
const char *pn_torch_register_cuda(const char *libtorch_cuda, const char *library, const char *key);

/* Takes the kernels away again. */
void pn_torch_unregister(void);

#ifdef __cplusplus
}
#endif

#endif
