/// Parameters of the kernels of CTC loss. Plain C.
#ifndef DIT_CUDA_KERNELS_CTC_H
#define DIT_CUDA_KERNELS_CTC_H

#include <stdint.h>

#define CTC_KERNEL_THREADS 256

/// Contiguous tensors of any floating, the middle three of any integer dtype. `lines`: two lines of states per sample.
struct ctc_kernel {
  const char *probs, *targets, *inputs, *labels, *grad;
  char *nll, *alpha, *out;
  double *lines, *losses;
  int64_t steps, batch, classes, width;
  int64_t target_stride, target_count;  ///< stride 0: all labels one after the other
  int64_t blank;
  int16_t probs_dtype, targets_dtype, inputs_dtype, labels_dtype, grad_dtype, nll_dtype, alpha_dtype, out_dtype;
  int32_t reduction;  ///< 0 none, 1 mean, 2 sum
  int32_t zero_infinity;
};

#endif
