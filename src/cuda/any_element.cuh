/* SPDX-License-Identifier: MIT
 *
 * Elements one by one, of a type that is known at run time, at any address. */
#ifndef RMS_CUDA_ANY_ELEMENT_CUH
#define RMS_CUDA_ANY_ELEMENT_CUH

#include "element.cuh"

namespace rms_cuda {

__device__ __forceinline__ float round_as(float v, rms_dtype type) {
  if (type == RMS_BF16) return __bfloat162float(__float2bfloat16_rn(v));
  return type == RMS_F16 ? __half2float(__float2half_rn(v)) : v;
}

/* An element at any address. `bytewise`: it may not be aligned to its size. */
__device__ __forceinline__ float load_element(const char *p, rms_dtype type, bool bytewise) {
  uint32_t bits;
  if (!bytewise) {
    bits = type == RMS_F32 ? *reinterpret_cast<const uint32_t *>(p) : *reinterpret_cast<const uint16_t *>(p);
  } else {
    bits = (uint8_t)p[0] | (uint32_t)(uint8_t)p[1] << 8;
    if (type == RMS_F32) bits |= (uint32_t)(uint8_t)p[2] << 16 | (uint32_t)(uint8_t)p[3] << 24;
  }
  if (type == RMS_F32) return __uint_as_float(bits);
  if (type == RMS_BF16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half((unsigned short)bits));
}

__device__ __forceinline__ void store_element(char *p, float v, rms_dtype type, bool bytewise) {
  uint32_t bits = type == RMS_F32    ? __float_as_uint(v)
                  : type == RMS_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(v))
                                     : __half_as_ushort(__float2half_rn(v));
  if (!bytewise) {
    if (type == RMS_F32)
      *reinterpret_cast<uint32_t *>(p) = bits;
    else
      *reinterpret_cast<uint16_t *>(p) = (uint16_t)bits;
    return;
  }
  for (int i = 0; i < (type == RMS_F32 ? 4 : 2); i++)
    p[i] = (char)(bits >> 8 * i);
}

} // namespace rms_cuda

#endif
