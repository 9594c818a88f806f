/// Tensors of any type and strides as packed arrays: for the few steps of the judge that look at single elements.
#ifndef DIT_JUDGE_VALUES_H
#define DIT_JUDGE_VALUES_H

#include "dit/tensor.h"

/// Packed float64 (or complex128: pairs), row-major, with the shape of the view it was read from.
struct values {
  double *data;
  int64_t count;  ///< numbers: twice the elements of a complex tensor
  bool is_complex;
  struct dit_tensor_view view;  ///< of `data`; its sizes and strides point into this struct's own arrays
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
};

/// DIT_ERR_NOMEM, or what the walk says about the view. `values` must not be moved afterwards.
DIT_NODISCARD enum dit_status values_read(const struct dit_tensor_view *view, struct values *values,
                                          struct dit_error *err);
/// Accepts a struct that is all zero.
void values_reset(struct values *values);

/// The same shape?
bool views_agree(const struct dit_tensor_view *a, const struct dit_tensor_view *b);

#endif
