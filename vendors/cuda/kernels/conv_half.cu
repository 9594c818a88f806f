/// Convolution of half types by matrix instructions (conv.cuh).
#include "conv.cuh"

typedef matrix_tiles<half_bits, 64, 64> small_f16;
typedef matrix_tiles<half_bits, 128, 128> large_f16;
typedef matrix_tiles<bfloat_bits, 64, 64> small_bf16;
typedef matrix_tiles<bfloat_bits, 128, 128> large_bf16;
CONV_KERNELS(f16, small, small_f16)
CONV_KERNELS(f16, large, large_f16)
CONV_KERNELS(bf16, small, small_bf16)
CONV_KERNELS(bf16, large, large_bf16)
CONV_JOIN(f16, half_bits)
CONV_JOIN(bf16, bfloat_bits)
