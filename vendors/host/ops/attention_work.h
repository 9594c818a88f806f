/// The work of flash attention, after attention.c has checked the arguments.
#ifndef DIT_HOST_OPS_ATTENTION_WORK_H
#define DIT_HOST_OPS_ATTENTION_WORK_H

#include "engine/attention.h"
#include "flash.h"

/// Views that a call lacks have no handle. `shape` has no sequence ends, seed and offset yet.
struct attention_call {
  struct frame *frame;
  struct attention_shape shape;
  struct dit_tensor_view q, k, v, out, lse, slopes, cum_q, cum_k;
  struct dit_tensor_view grad, grad_q, grad_k, grad_v, mask;
  /// Sizes and strides of views that were brought into the order (batch, row, head, element): q, k, v, out and so on.
  int64_t dims[8][8];
  int arranged;
  int64_t mask_dims[DIT_MAX_DIMS];
  diopiSize_t list_q, list_k;  ///< ends of sequences on the host; data NULL: in cum_q and cum_k
  bool seeded;                 ///< the shape has seed and offset already
  const struct flash_names *names;
  diopiGeneratorHandle_t generator;
  int work;     ///< dtype to compute in
  bool packed;  ///< VarLen
};

/// On the frame's stream.
diopiError_t attention_run_forward(struct attention_call *call);
diopiError_t attention_run_backward(struct attention_call *call);

/// Seed and offset for dropout into the shape; `draw` moves the generator on.
diopiError_t attention_read_generator(struct attention_call *call, bool draw);

#endif
