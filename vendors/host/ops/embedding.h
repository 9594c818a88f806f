/// The work of embedding tables, after embedding.c has checked the arguments.
#ifndef DIT_HOST_OPS_EMBEDDING_H
#define DIT_HOST_OPS_EMBEDDING_H

#include "layout.h"

struct embedding_task {
  struct frame *frame;
  struct dit_tensor_view out, table, indices;
  int64_t padding;
  bool scaled;
};

struct renorm_task {
  struct frame *frame;
  struct dit_tensor_view table, indices;
  double max_norm, norm_type;
};

/// Everything but the numbers in `indices` is checked; `table` is the gradient of the rows.
diopiError_t embedding_backward(struct embedding_task *task);
diopiError_t embedding_renorm(struct renorm_task *task);

#endif
