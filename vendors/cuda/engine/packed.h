/// Tensors as the kernels of rows want them: contiguous. A tensor that lies otherwise is copied to scratch memory of
/// the call, and back where it was written.
#ifndef DIT_CUDA_ENGINE_PACKED_H
#define DIT_CUDA_ENGINE_PACKED_H

#include "ops/frame.h"

struct packed {
  struct dit_tensor_view view;  ///< contiguous; data NULL where the tensor is absent
  int64_t strides[DIT_MAX_DIMS];
  bool is_copy;
};

/// For reading: the tensor, or a copy of it.
diopiError_t packed_read(struct packed *packed, struct frame *frame, const struct dit_tensor_view *view);
/// For writing; packed_store afterwards.
diopiError_t packed_reserve(struct packed *packed, struct frame *frame, const struct dit_tensor_view *view);
diopiError_t packed_store(const struct packed *packed, struct frame *frame, const struct dit_tensor_view *view);

#endif
