/// A tensor as row-major elements of a work type: its own memory where it is that already, else a copy.
///
/// Operators whose loops want neighbouring elements (convolution, pooling, attention) read their inputs and write their
/// outputs through it, so that they take any strides and the half types without loops of their own. Used inside
/// frame_run, where device memory is open.
#ifndef DIT_HOST_OPS_DENSE_H
#define DIT_HOST_OPS_DENSE_H

#include "dit/tensor.h"
#include "frame.h"

struct dense {
  void *data;                   ///< NULL for an absent or empty tensor
  struct dit_tensor_view view;  ///< the tensor; its sizes and strides are borrowed
  int dtype;
  bool owned;  ///< data is a copy
};

/// For an input: its elements as `dtype`. An absent tensor (handle NULL) gives data NULL. False without memory.
bool dense_read(struct dense *dense, const struct dit_tensor_view *view, int dtype);
/// For an output: room for its elements, not initialised.
bool dense_reserve(struct dense *dense, const struct dit_tensor_view *view, int dtype);
/// The same for loops that convert by themselves (struct row_data): a tensor of a half type keeps it, a contiguous one
/// stays where it is; dense->dtype says which type it became.
bool dense_read_data(struct dense *dense, const struct dit_tensor_view *view, int dtype);
bool dense_reserve_data(struct dense *dense, const struct dit_tensor_view *view, int dtype);
/// Bring an output's elements to the tensor, where a copy was used.
void dense_store(struct dense *dense);
/// Release the copy. A struct of zeros is allowed.
void dense_close(struct dense *dense);

/// The error of a call whose copies found no memory.
diopiError_t dense_fail(struct frame *frame);

/// The type to work in: float for the half types, int64 for integers and bool, else the type itself.
static inline int dense_get_work(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
      return DIT_DTYPE_F32;
    case DIT_DTYPE_F32:
    case DIT_DTYPE_F64:
      return dtype;
    default:
      return DIT_DTYPE_I64;
  }
}

#endif
