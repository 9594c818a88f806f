/// Parameters of the built-in matrix product. Plain C.
#ifndef DIT_CUDA_KERNELS_GEMM_H
#define DIT_CUDA_KERNELS_GEMM_H

#include <stdint.h>

#define GEMM_KERNEL_THREADS 256
#define GEMM_KERNEL_TILE 64

/// out = beta * bias + alpha * a @ b; strides of batch, row and column in elements. bias may be NULL.
struct gemm_kernel {
  void *out;
  const void *a, *b, *bias;
  int64_t batch, rows, columns, depth;
  int64_t out_strides[3], a_strides[3], b_strides[3], bias_strides[3];
  double alpha, beta;
};

#endif
