/// What the pooling operators share: the windows of a call, and the work on dense planes.
#ifndef DIT_HOST_OPS_POOL_H
#define DIT_HOST_OPS_POOL_H

#include "dense.h"
#include "engine/pool.h"
#include "window.h"

/// The windows as an operator names them; lists that it does not have are absent.
struct pool_lists {
  diopiSize_t kernel, stride, padding, dilation;
  diopiSize_t output_size;
  bool ceil_mode, count_padding;
  bool adaptive;
  const int64_t *divisor;  ///< NULL: as many as the window has
};

/// One call. `pooled` is the result or its gradient; `x` the input, in a backward call its shape alone is read.
struct pool_call {
  struct frame *frame;
  struct pool_shape shape;
  int ndim;
  struct dit_tensor_view pooled, x, indices, grad_x;
  int64_t *tables;  ///< of run time
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  bool adaptive, count_padding;
  int64_t in_sizes[3], out_sizes[3];
};

/// Check shapes, lists and dtypes; `name` is that of `pooled`. `dtypes` are those the operator has.
diopiError_t pool_check(struct pool_call *call, const char *name, const struct pool_lists *lists, uint64_t dtypes);
/// The largest elements (indices optional), the means, and their gradients; everything is checked before.
diopiError_t pool_run_max(struct pool_call *call);
diopiError_t pool_run_mean(struct pool_call *call);
diopiError_t pool_run_max_backward(struct pool_call *call);
diopiError_t pool_run_mean_backward(struct pool_call *call);

/// The same where there is at least one element of `x`: what the device does.
diopiError_t pool_work_max(struct pool_call *call);
diopiError_t pool_work_mean(struct pool_call *call);
diopiError_t pool_work_max_backward(struct pool_call *call);
diopiError_t pool_work_mean_backward(struct pool_call *call);

#define POOL_MAX_DTYPES DTYPES_REAL
#define POOL_MEAN_DTYPES (DTYPES_FLOAT | DTYPE_BIT(I64))

#endif
