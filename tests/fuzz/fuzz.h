/* SPDX-License-Identifier: MIT
 *
 * A fuzz target is one unit that defines LLVMFuzzerTestOneInput: bytes in, a crash (or abort) on anything wrong. It
 * links with libFuzzer (RMSNORM_FUZZER=ON, clang) or with runner.c, which needs nothing. */
#ifndef RMSNORM_TESTS_FUZZ_H
#define RMSNORM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
