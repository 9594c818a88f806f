/// Convolution of float32 and float64 (conv.cuh).
#include "conv.cuh"

typedef scalar_tiles<float, 64, 64> small_f32;
typedef scalar_tiles<float, 128, 128> large_f32;
typedef scalar_tiles<double, 64, 64> small_f64;
CONV_KERNELS(f32, small, small_f32)
CONV_KERNELS(f32, large, large_f32)
CONV_KERNELS(f64, small, small_f64)
CONV_JOIN(f32, float)
CONV_JOIN(f64, double)
