/// What list operators share: lists of runs, and the norm of one tensor.
#ifndef DIT_HOST_OPS_FOREACH_H
#define DIT_HOST_OPS_FOREACH_H

#include "elementwise.h"

/// Tensors that a number, or a tensor of one element, is added to or multiplied by. Everything was checked.
struct foreach_list {
  struct frame *frame;
  const void *context;
  int64_t count;
  diopiError_t (*prepare)(const struct foreach_list *list, int64_t number, struct elementwise *e);
  bool is_product;
};
struct foreach_norms {
  struct frame *frame;
  diopiTensorHandle_t *outs;  ///< 0-d
  diopiConstTensorHandle_t *inputs;
  int64_t count;
  double p;
};

/// On the frame's stream.
diopiError_t foreach_run_list(const struct foreach_list *list);
diopiError_t foreach_run_norms(const struct foreach_norms *list);

/// The p-norm of all elements (infinity: the largest magnitude, 0: the number of elements that are not 0), accumulated
/// in double, block by block on the calling thread. Device memory is open. DIT_ERR_UNSUPPORTED for other than float
/// types.
enum dit_status foreach_get_norm(const struct dit_tensor_view *view, double p, double *out);

#endif
