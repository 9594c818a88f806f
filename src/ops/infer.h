/// What operators share before a kernel runs: type promotion, broadcasting, output layout, overlap rules.
///
/// Metadata equals PyTorch's CPU results exactly: the same dtype, sizes and strides for every combination of inputs.
/// Anything this layer does not cover is DIT_ERR_UNSUPPORTED before an output was made, resized or written. Depends on
/// src/core.
#ifndef DIT_OPS_INFER_H
#define DIT_OPS_INFER_H

#include <string.h>

#include "dit/kernel.h"
#include "dit/op.h"

#define OP_MAX_INPUTS 4

/// Where the result goes.
enum op_target {
  OP_NEW,      ///< a new tensor
  OP_INPLACE,  ///< the first argument
  OP_OUT,      ///< an out= argument
};

/// Sizes and strides of a result. `contiguous`: strides were not filled in, row-major is meant.
struct op_layout {
  int ndim;
  bool contiguous;
  int64_t sizes[DIT_MAX_DIMS];
  int64_t strides[DIT_MAX_DIMS];
};

/// Room for the value of a Scalar argument seen as a 0-d tensor.
union op_number {
  double d;
  int64_t i;
  uint8_t b;
};

/// True for a call slot that exists in this vendor's table (later slots of an older vendor count as NULL).
#define OP_HAS_KERNEL(call, slot) \
  ((call)->kernels && offsetof(struct dit_kernel_vtable, slot) < (call)->kernels->struct_size && (call)->kernels->slot)

/// The dtypes C operators compute with: bool, (u)int8..int64, half, bfloat16, float, double.
static inline bool op_is_plain(int dtype) {
  const uint32_t plain = 1u << DIT_DTYPE_U8 | 1u << DIT_DTYPE_I8 | 1u << DIT_DTYPE_I16 | 1u << DIT_DTYPE_I32 |
                         1u << DIT_DTYPE_I64 | 1u << DIT_DTYPE_F16 | 1u << DIT_DTYPE_F32 | 1u << DIT_DTYPE_F64 |
                         1u << DIT_DTYPE_BOOL | 1u << DIT_DTYPE_BF16;
  return dtype >= 0 && dtype < 32 && (plain >> dtype & 1);
}
static inline bool op_is_floating(int dtype) {
  return dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}
static inline bool op_is_complex(int dtype) {
  return dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}
/// The dtypes of elementwise operators, products and sums: the plain ones and complex64, complex128.
static inline bool op_is_element(int dtype) {
  return op_is_plain(dtype) || op_is_complex(dtype);
}
/// The dtypes of operators that only move elements: every dtype of the standard.
static inline bool op_is_moved(int dtype) {
  return op_is_element(dtype) || dtype == DIT_DTYPE_C32 || dtype == DIT_DTYPE_U16 || dtype == DIT_DTYPE_U32 ||
         dtype == DIT_DTYPE_U64;
}
static inline bool op_is_half(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}
static inline bool op_is_device(const struct dit_tensor_view *view) {
  return view->flags & DIT_TENSOR_ON_DEVICE;
}
/// Does `dim` (negative ones count from the end) name a dimension of view? A tensor without dimensions has one.
static inline bool op_is_dim(const struct dit_tensor_view *view, int64_t dim) {
  const int64_t wrap = view->ndim > 0 ? view->ndim : 1;
  return dim >= -wrap && dim < wrap;
}
static inline bool op_same_sizes(const struct dit_tensor_view *a, int ndim, const int64_t *sizes) {
  if (a->ndim != ndim) {
    return false;
  }
  for (int i = 0; i < ndim; i++) {
    if (a->sizes[i] != sizes[i]) {
      return false;
    }
  }
  return true;
}
/// The argument as a tensor, NULL when it is none.
static inline struct dit_tensor_view *op_get_tensor(struct dit_call *call, int index) {
  struct dit_value *value = &call->args[index];
  return value->tag == DIT_VALUE_TENSOR && value->v.tensor.handle ? &value->v.tensor : NULL;
}
static inline enum dit_status op_return(struct dit_call *call, int index, const struct dit_tensor_view *view) {
  call->rets[index].tag = DIT_VALUE_TENSOR;
  call->rets[index].v.tensor = *view;
  return DIT_OK;
}

/// torch.result_type of `count` views (wrapped numbers and 0-d tensors promote weakly); -1 when PyTorch refuses.
int op_promote(const struct dit_call *call, const struct dit_tensor_view *const *inputs, int count);
/// The same with integers and bool turned into the call's default dtype (true division, exp ...).
int op_promote_floating(const struct dit_call *call, const struct dit_tensor_view *const *inputs, int count);
/// torch.can_cast(from, to).
bool op_can_cast(int from, int to);
/// DIT_ERR_INVALID with PyTorch's text when an out= tensor cannot take the result type.
enum dit_status op_check_cast(int from, int to, struct dit_error *err);
/// Only plain dtypes, at most DIT_MAX_DIMS dimensions, and CPU tensors only when they are 0-d; else
/// DIT_ERR_UNSUPPORTED.
enum dit_status op_check_input(const struct dit_tensor_view *view);
/// The same with complex64 and complex128.
enum dit_status op_check_element(const struct dit_tensor_view *view);

/// Can the dtype hold this number? (PyTorch's checked_convert; a floating point number and an integer dtype: in range.)
bool op_number_fits(int dtype, const struct dit_scalar *value);
/// Read a Scalar argument. DIT_ERR_UNSUPPORTED for complex numbers and anything that is no number.
enum dit_status op_read_scalar(const struct dit_value *value, struct dit_scalar *out);
/// The Scalar as a wrapped 0-d CPU tensor over `room`.
enum dit_status op_wrap_scalar(const struct dit_value *value, union op_number *room, struct dit_tensor_view *out);

/// Broadcast all inputs: fills sizes, ndim and whether all inputs already had that shape.
enum dit_status op_broadcast(const struct dit_tensor_view *const *inputs, int count, struct op_layout *layout,
                             bool *same_shape, struct dit_error *err);
/// The strides PyTorch's TensorIterator gives a new elementwise result over these inputs, computed in dtype `common`.
void op_infer_strides(const struct dit_tensor_view *const *inputs, int count, int common, bool same_shape,
                      struct op_layout *layout);
/// PyTorch's infer_dense_strides: dense strides in the order of `strides`.
void op_infer_dense(int ndim, const int64_t *sizes, const int64_t *strides, int64_t *out);
/// suggest_memory_format(): 0 contiguous, 2 channels_last, 3 channels_last_3d (PyTorch's numbers).
int op_suggest_format(const struct dit_tensor_view *view);
/// Strides of a memory format for 4-d (2) or 5-d (3) sizes.
void op_set_channels_last(int ndim, const int64_t *sizes, int64_t *strides);

/// TensorIterator's overlap rules for one written tensor: internal overlap, and partial overlap with any input.
enum dit_status op_check_overlap(const struct dit_tensor_view *out, const struct dit_tensor_view *const *inputs,
                                 int count, struct dit_error *err);
/// The checks of a given tensor, in PyTorch's order: first this one (overlap; also device and dtype), then
/// broadcasting, then op_check_inplace, then op_check_cast. Nothing to check for OP_NEW.
enum dit_status op_check_given(struct dit_call *call, enum op_target target,
                               const struct dit_tensor_view *const *inputs, int count,
                               const struct dit_tensor_view *out);
/// An in-place result keeps its shape.
enum dit_status op_check_inplace(const struct dit_tensor_view *out, const struct op_layout *layout,
                                 struct dit_error *err);
/// Make or resize the result of an elementwise operator: `out` is the checked tensor for OP_INPLACE and OP_OUT, and is
/// filled with a new one of dtype `common` for OP_NEW.
enum dit_status op_prepare(struct dit_call *call, enum op_target target, const struct dit_tensor_view *const *inputs,
                           int count, int common, struct op_layout *layout, bool same_shape,
                           struct dit_tensor_view *out);
/// The same where the result's dtype is not the one that the inputs are converted to (comparisons).
enum dit_status op_prepare_as(struct dit_call *call, enum op_target target, const struct dit_tensor_view *const *inputs,
                              int count, int common, int result, struct op_layout *layout, bool same_shape,
                              struct dit_tensor_view *out);
/// Make or resize a row-major result. A given tensor must have `dtype` and may share no memory with the inputs, else
/// DIT_ERR_UNSUPPORTED.
enum dit_status op_prepare_contiguous(struct dit_call *call, struct dit_tensor_view *given,
                                      const struct dit_tensor_view *const *inputs, int count, int ndim,
                                      const int64_t *sizes, int dtype, struct dit_tensor_view *out);
/// `view` expanded to `layout`'s sizes; `strides` is the caller's room.
void op_expand(const struct dit_tensor_view *view, const struct op_layout *layout, int64_t *strides,
               struct dit_tensor_view *out);

/// Sizes or strides of `ndim` dimensions; the source may be NULL when there are none.
static inline void op_copy_dims(int64_t *target, const int64_t *source, int ndim) {
  if (ndim > 0) {
    memcpy(target, source, sizeof(int64_t) * (size_t)ndim);
  }
}

#endif
