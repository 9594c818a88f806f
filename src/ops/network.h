/// What the operators of networks, of indexing and of random numbers share: arguments as checked views, results of a
/// memory format, results that the library makes itself.
///
/// An argument that this layer does not take is DIT_ERR_UNSUPPORTED before anything was made: the CPU's kernel runs
/// instead, and words the error where there is one. Depends on infer.h and diopi_call.h.
#ifndef DIT_OPS_NETWORK_H
#define DIT_OPS_NETWORK_H

#include <stddef.h>
#include <string.h>

#include "diopi_call.h"
#include "dit/gate.h"
#include "infer.h"

/// Leave with DIT_ERR_UNSUPPORTED unless the condition holds.
#define NET_NEED(condition)       \
  do {                            \
    if (!(condition)) {           \
      return DIT_ERR_UNSUPPORTED; \
    }                             \
  } while (0)

/// A tensor on the device of a dtype that C operators compute with; NULL when the argument is none.
static inline struct dit_tensor_view *net_get(struct dit_call *call, int index) {
  struct dit_tensor_view *view = op_get_tensor(call, index);
  return view && op_is_device(view) && op_is_plain(view->dtype) && view->ndim <= DIT_MAX_DIMS ? view : NULL;
}
/// A tensor on the device of any dtype of the standard, for operators that only move elements.
static inline struct dit_tensor_view *net_get_moved(struct dit_call *call, int index) {
  struct dit_tensor_view *view = op_get_tensor(call, index);
  return view && op_is_device(view) && op_is_moved(view->dtype) && view->ndim <= DIT_MAX_DIMS ? view : NULL;
}
/// The same for an argument that may be absent (NULL); false when it is there and unusable.
static inline bool net_get_optional(struct dit_call *call, int index, struct dit_tensor_view **out) {
  const struct dit_value *value = &call->args[index];
  *out = net_get(call, index);
  return *out || value->tag == DIT_VALUE_NONE || (value->tag == DIT_VALUE_TENSOR && !value->v.tensor.handle);
}
/// The out= tensor of an OP_OUT row at `index`, NULL for other rows; false when it is missing or unusable.
static inline bool net_get_given(struct dit_call *call, int index, struct dit_tensor_view **out) {
  *out = call->op->target == OP_OUT ? net_get(call, index) : NULL;
  return *out || call->op->target != OP_OUT;
}
/// The same for the dtypes that move.
static inline bool net_get_given_moved(struct dit_call *call, int index, struct dit_tensor_view **out) {
  *out = call->op->target == OP_OUT ? net_get_moved(call, index) : NULL;
  return *out || call->op->target != OP_OUT;
}
static inline bool net_is_index(const struct dit_tensor_view *view) {
  return view && (view->dtype == DIT_DTYPE_I64 || view->dtype == DIT_DTYPE_I32);
}
/// A list of integers as DIOPI passes it; empty when the argument is none.
static inline diopiSize_t net_get_sizes(const struct dit_call *call, int index) {
  const struct dit_value *value = &call->args[index];
  diopiSize_t sizes = {NULL, 0};
  if (value->tag == DIT_VALUE_INTS) {
    sizes.data = value->v.ints.data;
    sizes.len = value->v.ints.size;
  }
  return sizes;
}
/// Element `position` of a list of bools.
static inline bool net_wants(const struct dit_call *call, int index, int position) {
  diopiSize_t wanted = net_get_sizes(call, index);
  return position < wanted.len && wanted.data[position] != 0;
}
static inline double net_get_double(const struct dit_call *call, int index) {
  const struct dit_value *value = &call->args[index];
  return value->tag == DIT_VALUE_DOUBLE ? value->v.d : (double)value->v.i;
}
/// A dimension from -ndim to ndim - 1 made non-negative (a 0-d tensor counts as 1-d); false when out of range.
static inline bool net_wrap_dim(int64_t *dim, int ndim) {
  int64_t range = ndim > 0 ? ndim : 1;
  if (*dim < -range || *dim >= range) {
    return false;
  }
  *dim += *dim < 0 ? range : 0;
  return true;
}
/// A 0-d tensor as one of one element, the others as they are; `room` outlives the result.
struct net_lifted {
  struct dit_tensor_view view;
  int64_t one;
};
static inline const struct dit_tensor_view *net_lift(const struct dit_tensor_view *view, struct net_lifted *room) {
  if (!view || view->ndim > 0) {
    return view;
  }
  room->one = 1;
  room->view = *view;
  room->view.ndim = 1;
  room->view.sizes = room->view.strides = &room->one;
  return &room->view;
}
/// A tensor that may be written: no two elements at one place.
static inline bool net_is_writable(const struct dit_tensor_view *view) {
  return view->flags & DIT_TENSOR_DENSE || dit_tensor_get_internal_overlap(view) != DIT_OVERLAP_YES;
}
/// An index value out of range, which a library refuses before it writes. A call that makes a new tensor goes to
/// PyTorch's CPU kernel, which says it with its own exception and words. That kernel may have written a part of a given
/// tensor before it finds the value: there the library's text stays, and the framework raises an IndexError with it; of
/// scatter and index_add it is a RuntimeError in PyTorch.
static inline enum dit_status net_check_range(const struct dit_call *call, enum dit_status status) {
  if (status != DIT_ERR_RANGE) {
    return status;
  }
  if (call->op->target == OP_NEW) {
    return DIT_ERR_UNSUPPORTED;
  }
  return strncmp(call->op->name, "aten::scatter", 13) == 0 || strncmp(call->op->name, "aten::index_add", 15) == 0
             ? DIT_ERR_DEVICE
             : status;
}
/// Exactly the same elements of memory as another tensor's, or none of them.
static inline bool net_is_apart(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return !a || !b || a->storage != b->storage;
}

/// Does the dtype hold the number, as PyTorch wants it (infinities and NaN in floating types; no fractions in others)?
bool net_fits(int dtype, struct dit_scalar value);

/// A new tensor in a memory format (0 row-major, 2 channels_last, 3 channels_last_3d).
enum dit_status net_new(struct dit_call *call, int ndim, const int64_t *sizes, int format, int dtype,
                        struct dit_tensor_view *out);
/// empty_like: dense strides in the order of the tensor's own.
enum dit_status net_new_like(struct dit_call *call, const struct dit_tensor_view *like, int dtype,
                             struct dit_tensor_view *out);
/// A result of `format`: new, or an out= tensor that has these sizes already or takes row-major ones.
enum dit_status net_prepare(struct dit_call *call, struct dit_tensor_view *given,
                            const struct dit_tensor_view *const *inputs, int count, int ndim, const int64_t *sizes,
                            int format, int dtype, struct dit_tensor_view *out);
/// After a function that made its result itself: keep the view (its tensor lives as long as the call), then op_finish.
enum dit_status net_finish_made(struct dit_call *call, struct diopiContext *context, int function, diopiError_t code,
                                diopiTensorHandle_t made, struct dit_tensor_view *out);
/// Return `view` when it is wanted, else an absent tensor.
static inline void net_return_optional(struct dit_call *call, int index, bool wanted,
                                       const struct dit_tensor_view *view) {
  call->rets[index].tag = DIT_VALUE_NONE;
  if (wanted) {
    (void)op_return(call, index, view);
  }
}

#endif
