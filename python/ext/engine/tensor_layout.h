/// Tensor metadata straight from torch's tensor object, where its layout could be verified.
#ifndef DIT_EXT_ENGINE_TENSOR_LAYOUT_H
#define DIT_EXT_ENGINE_TENSOR_LAYOUT_H

#include "engine/engine.h"

/// What is read: sizes and strides are borrowed from the tensor.
struct engine_layout {
  uint64_t keys;  ///< the dispatch key set
  const int64_t *sizes, *strides;
  void *data;
  int64_t numel;
  int32_t ndim;
  int16_t dtype;
  int8_t device_type, device_index;
  bool may_require_grad;  ///< false: certainly does not require grad
};

/// Find the layout with probe tensors; once. Any doubt leaves it unknown, which is no error.
void engine_layout_load(void);
/// False when the layout is unknown or the tensor has more than five dimensions.
bool engine_layout_read(PyObject *tensor, struct engine_layout *out);
/// Something read did not agree with torch's own answer: never read again.
void engine_layout_distrust(void);
/// For tests and the doctor.
bool engine_layout_is_known(void);

#endif
