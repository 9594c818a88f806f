/// Matrix products by cuBLASLt, where it is there.
#ifndef DIT_CUDA_ENGINE_CUBLASLT_H
#define DIT_CUDA_ENGINE_CUBLASLT_H

#include <stdbool.h>

#include "dit/error.h"
#include "kernels/gemm.h"

/// Is the library there, and does it take the strides? A bias is taken as a row that is repeated (beta 1, not float64)
/// or as a matrix of rows, like the result.
bool cublaslt_takes(int dtype, const struct gemm_kernel *task);
/// DIT_ERR_UNSUPPORTED, before anything is written, where the library does not take it: the built-in kernel is next.
DIT_NODISCARD enum dit_status cublaslt_multiply(void *stream, int dtype, const struct gemm_kernel *task,
                                                struct dit_error *err);

#endif
