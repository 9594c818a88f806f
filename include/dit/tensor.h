/// Tensor views: the plain C description of a tensor that somebody else owns.
#ifndef DIT_TENSOR_H
#define DIT_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/dtype.h"
#include "dit/error.h"

DIT_EXTERN_C_BEGIN

/// Most dimensions the C operators take; a tensor with more is DIT_ERR_UNSUPPORTED (PyTorch itself stops at 64).
#define DIT_MAX_DIMS 24

enum dit_tensor_flag {
  DIT_TENSOR_CONTIGUOUS = 1 << 0,      ///< row-major without gaps (also true for empty tensors)
  DIT_TENSOR_WRAPPED_NUMBER = 1 << 1,  ///< a Python number that became a 0-d CPU tensor: promotes weakly
  DIT_TENSOR_ON_DEVICE = 1 << 2,       ///< lives on the accelerator; otherwise a CPU tensor
  DIT_TENSOR_DENSE = 1 << 3,           ///< non-overlapping and dense in some dimension order
};

/// A borrowed view. `data` already includes the storage offset; it may be NULL only when numel is 0.
/// `sizes` and `strides` (in elements) have `ndim` entries and live as long as the call they were passed to.
struct dit_tensor_view {
  void *data;
  const int64_t *sizes;
  const int64_t *strides;
  int64_t numel;
  const void *storage;  ///< identity of the storage: equal for tensors that may share memory
  void *handle;         ///< the framework's own object, opaque to C; NULL for an absent tensor
  int32_t ndim;
  int16_t dtype;        ///< enum dit_dtype
  int8_t device_index;  ///< -1 for CPU tensors
  uint8_t flags;        ///< enum dit_tensor_flag
};

/// A scalar argument as the framework passed it.
enum dit_scalar_kind { DIT_SCALAR_BOOL, DIT_SCALAR_INT, DIT_SCALAR_DOUBLE, DIT_SCALAR_COMPLEX };
struct dit_scalar {
  enum dit_scalar_kind kind;
  union {
    int64_t i;  ///< BOOL (0 or 1) and INT
    double d;
    struct {
      double re, im;
    } c;
  } v;
};

/// Can an element of the dtype hold the number? Fractions are cut off and rounding is allowed; an infinity is held by
/// floating dtypes, a negative number by unsigned ones, where it wraps. A complex number needs a complex dtype.
DIT_API bool dit_scalar_fits(struct dit_scalar scalar, int dtype);

/// Number of elements of a shape; DIT_ERR_INVALID for a negative size or when the product overflows int64.
DIT_API DIT_NODISCARD enum dit_status dit_shape_get_numel(int ndim, const int64_t *sizes, int64_t *numel,
                                                          struct dit_error *err);
/// Row-major strides for `sizes` (size 0 counts as 1, as in PyTorch).
DIT_API void dit_shape_set_contiguous(int ndim, const int64_t *sizes, int64_t *strides);
/// PyTorch's definition: dimensions of size 1 are ignored, empty tensors are contiguous.
DIT_API bool dit_shape_is_contiguous(int ndim, const int64_t *sizes, const int64_t *strides);
/// PyTorch's is_non_overlapping_and_dense.
DIT_API bool dit_shape_is_dense(int ndim, const int64_t *sizes, const int64_t *strides);
/// Broadcast `sizes` into the running result `out_sizes`/`out_ndim` (start with out_ndim = 0). On mismatch
/// DIT_ERR_INVALID with PyTorch's text: "The size of tensor a (3) must match the size of tensor b (4) at non-singleton
/// dimension 0".
DIT_API DIT_NODISCARD enum dit_status dit_shape_broadcast(int ndim, const int64_t *sizes, int *out_ndim,
                                                          int64_t *out_sizes, struct dit_error *err);
/// The lowest and one-past-highest byte a view can touch, relative to view->data; both 0 when empty.
DIT_API void dit_tensor_get_span(const struct dit_tensor_view *view, int64_t *low, int64_t *high);

enum dit_overlap { DIT_OVERLAP_NO, DIT_OVERLAP_YES, DIT_OVERLAP_UNKNOWN };
/// Does the tensor reach the same element by two indices? (PyTorch's has_internal_overlap: an expanded dimension is
/// YES, dense is NO, anything else UNKNOWN.)
DIT_API enum dit_overlap dit_tensor_get_internal_overlap(const struct dit_tensor_view *view);
enum dit_alias { DIT_ALIAS_NO, DIT_ALIAS_FULL, DIT_ALIAS_PARTIAL, DIT_ALIAS_UNKNOWN };
/// PyTorch's get_overlap_status: FULL = same elements in the same order, PARTIAL = dense spans that intersect.
DIT_API enum dit_alias dit_tensor_get_alias(const struct dit_tensor_view *a, const struct dit_tensor_view *b);
/// Exact answers that the flags of a view cannot give. Both questions ask for whole numbers within bounds that solve
/// one linear equation. Layouts that occur (views of dense tensors) take a handful of steps; one that would take
/// thousands is DIT_OVERLAP_UNKNOWN. Shared: is there a byte that an element of `a` and an element of `b` both cover?
/// Repeated: do two indices of one tensor reach the same element?
DIT_API enum dit_overlap dit_tensor_get_shared(const struct dit_tensor_view *a, const struct dit_tensor_view *b);
DIT_API enum dit_overlap dit_tensor_get_repeated(const struct dit_tensor_view *view);

/// The elements of a tensor that the host can read, in row-major order and packed: out of it, and into it.
DIT_API void dit_tensor_gather(const struct dit_tensor_view *view, void *out);
DIT_API void dit_tensor_scatter(const struct dit_tensor_view *view, const void *in);

DIT_EXTERN_C_END

#endif
