/// Broadcasting, output strides, overlap rules, outputs: the shape half of infer.h.
///
/// The stride rules are those of PyTorch's TensorIterator: results of contiguous, channels_last or equally strided
/// dense inputs keep that layout; otherwise dimensions are ordered by an insertion sort over the inputs' strides with
/// ambiguous comparisons.
#include <stdio.h>
#include <string.h>

#include "infer.h"

enum dit_status op_broadcast(const struct dit_tensor_view *const *inputs, int count, struct op_layout *layout,
                             bool *same_shape, struct dit_error *err) {
  bool same = true;
  layout->ndim = 0;
  for (int i = 0; i < count; i++) {
    same = same && (i == 0 || op_same_sizes(inputs[i], inputs[0]->ndim, inputs[0]->sizes));
    DIT_RETURN_IF_NOT_OK(dit_shape_broadcast(inputs[i]->ndim, inputs[i]->sizes, &layout->ndim, layout->sizes, err));
  }
  *same_shape = same;
  return DIT_OK;
}

/// 1: the dimension with (stride0, size0) belongs after the other one; -1: before; 0: ambiguous.
static int compare_strides(int64_t stride0, int64_t stride1, int64_t size0, int64_t size1) {
  if (stride0 == 0 || stride1 == 0) {
    return 0;
  }
  if (stride0 != stride1) {
    return stride0 < stride1 ? -1 : 1;
  }
  return size0 > size1 ? 1 : 0;
}

struct order {
  int count;  ///< of stride sets
  const int64_t *sizes;
  int64_t strides[OP_MAX_INPUTS][DIT_MAX_DIMS];
};

static int order_compare(const struct order *order, int dim0, int dim1) {
  for (int i = 0; i < order->count; i++) {
    int result =
        compare_strides(order->strides[i][dim0], order->strides[i][dim1], order->sizes[dim0], order->sizes[dim1]);
    if (result != 0) {
      return result;
    }
  }
  return 0;
}

/// perm[0] becomes the fastest dimension.
static void order_sort(const struct order *order, int ndim, int *perm) {
  for (int i = 0; i < ndim; i++) {
    perm[i] = ndim - 1 - i;
  }
  for (int i = 1; i < ndim; i++) {
    int dim1 = i;
    for (int dim0 = i - 1; dim0 >= 0; dim0--) {
      int comparison = order_compare(order, perm[dim0], perm[dim1]);
      if (comparison > 0) {
        int swap = perm[dim0];
        perm[dim0] = perm[dim1];
        perm[dim1] = swap;
        dim1 = dim0;
      } else if (comparison < 0) {
        break;
      }
    }
  }
}

void op_infer_dense(int ndim, const int64_t *sizes, const int64_t *strides, int64_t *out) {
  struct order order;
  int perm[DIT_MAX_DIMS];
  order.count = 1;
  order.sizes = sizes;
  op_copy_dims(order.strides[0], strides, ndim);
  order_sort(&order, ndim, perm);
  int64_t next = 1;
  for (int i = 0; i < ndim; i++) {
    out[perm[i]] = next;
    next *= sizes[perm[i]] > 1 ? sizes[perm[i]] : 1;
  }
}

void op_set_channels_last(int ndim, const int64_t *sizes, int64_t *strides) {
  int64_t next = 1;
  for (int i = 0; i < ndim; i++) {
    int dim = i == 0 ? 1 : i == ndim - 1 ? 0 : ndim - i;  // C, W, H, (D,) N
    strides[dim] = next;
    next *= sizes[dim] > 1 ? sizes[dim] : 1;
  }
}

/// is_contiguous(channels_last) of a 4-d tensor.
static bool is_channels_last(int ndim, const int64_t *sizes, const int64_t *strides) {
  static const int order[4] = {1, 3, 2, 0};
  int64_t expected = 1;
  if (ndim != 4) {
    return false;
  }
  for (int i = 0; i < 4; i++) {
    if (sizes[order[i]] != 1) {
      if (strides[order[i]] != expected) {
        return false;
      }
      expected *= sizes[order[i]];
    }
  }
  return true;
}

int op_suggest_format(const struct dit_tensor_view *view) {
  if ((view->ndim != 4 && view->ndim != 5) || view->strides[1] == 0) {
    return 0;
  }
  int64_t least = 0;
  for (int i = 0; i < view->ndim; i++) {
    int dim = i == 0 ? 1 : i == view->ndim - 1 ? 0 : view->ndim - i;
    if (view->sizes[dim] == 0 || view->strides[dim] < least || (dim == 0 && least == view->strides[1])) {
      return 0;
    }
    least = view->strides[dim] * (view->sizes[dim] > 1 ? view->sizes[dim] : 1);
  }
  return view->ndim == 4 ? 2 : 3;
}

/// The inputs as the iterator sees them: one that must be converted first counts with the strides of the converted
/// copy.
struct seen {
  const int64_t *strides;
  int64_t room[DIT_MAX_DIMS];
};

static void see_input(const struct dit_tensor_view *view, int common, struct seen *seen) {
  seen->strides = view->strides;
  if (view->dtype != common && op_is_device(view) && !(view->flags & DIT_TENSOR_DENSE)) {
    op_infer_dense(view->ndim, view->sizes, view->strides, seen->room);
    seen->strides = seen->room;
  }
}

/// TensorIterator's fast setup for inputs of one shape; false when the general rule decides.
static bool infer_fast(const struct dit_tensor_view *const *inputs, const struct seen *seen, int count,
                       struct op_layout *layout) {
  bool contiguous = true, channels_last = true, dense = true, equal = true;
  for (int i = 0; i < count; i++) {
    const int64_t *strides = seen[i].strides;
    contiguous = contiguous && dit_shape_is_contiguous(layout->ndim, layout->sizes, strides);
    channels_last = channels_last && is_channels_last(layout->ndim, layout->sizes, strides);
    dense = dense && (strides != inputs[i]->strides || inputs[i]->flags & DIT_TENSOR_DENSE);
    equal = equal && (i == 0 || layout->ndim == 0 ||
                      memcmp(strides, seen[0].strides, sizeof(int64_t) * (size_t)layout->ndim) == 0);
  }
  if (contiguous) {
    layout->contiguous = true;
  } else if (channels_last) {
    op_set_channels_last(4, layout->sizes, layout->strides);
  } else if (dense && equal) {
    op_copy_dims(layout->strides, seen[0].strides, layout->ndim);
  } else {
    return false;
  }
  return true;
}

static void infer_sorted(const struct dit_tensor_view *const *inputs, const struct seen *seen, int count,
                         struct op_layout *layout) {
  struct order order;
  int perm[DIT_MAX_DIMS], ndim = layout->ndim;
  order.count = count;
  order.sizes = layout->sizes;
  for (int i = 0; i < count; i++) {
    int offset = ndim - inputs[i]->ndim;
    for (int dim = 0; dim < ndim; dim++) {
      bool broadcast = dim < offset || (inputs[i]->sizes[dim - offset] == 1 && layout->sizes[dim] != 1);
      order.strides[i][dim] = broadcast ? 0 : seen[i].strides[dim - offset];
    }
  }
  order_sort(&order, ndim, perm);
  int64_t next = 1;
  layout->contiguous = true;
  for (int i = 0; i < ndim; i++) {
    layout->contiguous = layout->contiguous && perm[i] == ndim - 1 - i;
    layout->strides[perm[i]] = next;
    next *= layout->sizes[perm[i]];
  }
}

void op_infer_strides(const struct dit_tensor_view *const *inputs, int count, int common, bool same_shape,
                      struct op_layout *layout) {
  struct seen seen[OP_MAX_INPUTS];
  layout->contiguous = false;
  for (int i = 0; i < count; i++) {
    see_input(inputs[i], common, &seen[i]);
  }
  if (!same_shape || !infer_fast(inputs, seen, count, layout)) {
    infer_sorted(inputs, seen, count, layout);
  }
}

enum dit_status op_check_overlap(const struct dit_tensor_view *out, const struct dit_tensor_view *const *inputs,
                                 int count, struct dit_error *err) {
  if (!(out->flags & DIT_TENSOR_DENSE) && dit_tensor_get_internal_overlap(out) == DIT_OVERLAP_YES) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "unsupported operation: more than one element of the written-to tensor refers to a single "
                         "memory location. Please clone() the tensor before performing the operation.");
  }
  for (int i = 0; i < count; i++) {
    if (inputs[i]->handle != out->handle && inputs[i]->storage == out->storage &&
        dit_tensor_get_alias(out, inputs[i]) == DIT_ALIAS_PARTIAL) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "unsupported operation: some elements of the input tensor and the written-to tensor refer "
                           "to a single memory location. Please clone() the tensor before performing the operation.");
    }
  }
  return DIT_OK;
}

static int print_sizes(char *text, size_t room, int ndim, const int64_t *sizes) {
  size_t used = (size_t)snprintf(text, room, "[");
  for (int i = 0; i < ndim && used < room; i++) {
    used += (size_t)snprintf(text + used, room - used, "%s%lld", i ? ", " : "", (long long)sizes[i]);
  }
  if (used < room) {
    used += (size_t)snprintf(text + used, room - used, "]");
  }
  return (int)used;
}

enum dit_status op_check_given(struct dit_call *call, enum op_target target,
                               const struct dit_tensor_view *const *inputs, int count,
                               const struct dit_tensor_view *out) {
  if (target == OP_NEW) {
    return DIT_OK;
  }
  if (!op_is_device(out) || out->ndim > DIT_MAX_DIMS || !op_is_element(out->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return op_check_overlap(out, inputs, count, call->err);
}

enum dit_status op_check_inplace(const struct dit_tensor_view *out, const struct op_layout *layout,
                                 struct dit_error *err) {
  if (op_same_sizes(out, layout->ndim, layout->sizes)) {
    return DIT_OK;
  }
  char have[256], want[256];
  print_sizes(have, sizeof(have), out->ndim, out->sizes);
  print_sizes(want, sizeof(want), layout->ndim, layout->sizes);
  return dit_error_set(err, DIT_ERR_INVALID, "output with shape %s doesn't match the broadcast shape %s", have, want);
}

/// An out= tensor of another size; only row-major results can be resized here.
static enum dit_status resize_out(struct dit_call *call, const struct dit_tensor_view *const *inputs, int count,
                                  const struct op_layout *layout, struct dit_tensor_view *out) {
  for (int i = 0; i < count; i++) {
    if (inputs[i]->storage == out->storage) {
      return DIT_ERR_UNSUPPORTED;  // resizing would move an input's memory
    }
  }
  if (!layout->contiguous) {
    return DIT_ERR_UNSUPPORTED;  // the resized tensor would have to be restrided
  }
  return call->services->resize(call, out, layout->ndim, layout->sizes);
}

enum dit_status op_prepare_as(struct dit_call *call, enum op_target target, const struct dit_tensor_view *const *inputs,
                              int count, int common, int result, struct op_layout *layout, bool same_shape,
                              struct dit_tensor_view *out) {
  if (target != OP_NEW && op_same_sizes(out, layout->ndim, layout->sizes)) {
    return DIT_OK;
  }
  op_infer_strides(inputs, count, common, same_shape, layout);
  if (target == OP_NEW) {
    return call->services->new_tensor(call, layout->ndim, layout->sizes, layout->contiguous ? NULL : layout->strides,
                                      result, out);
  }
  return resize_out(call, inputs, count, layout, out);
}

enum dit_status op_prepare(struct dit_call *call, enum op_target target, const struct dit_tensor_view *const *inputs,
                           int count, int common, struct op_layout *layout, bool same_shape,
                           struct dit_tensor_view *out) {
  return op_prepare_as(call, target, inputs, count, common, common, layout, same_shape, out);
}

enum dit_status op_prepare_contiguous(struct dit_call *call, struct dit_tensor_view *given,
                                      const struct dit_tensor_view *const *inputs, int count, int ndim,
                                      const int64_t *sizes, int dtype, struct dit_tensor_view *out) {
  if (!given) {
    return call->services->new_tensor(call, ndim, sizes, NULL, dtype, out);
  }
  if (given->dtype != dtype || !op_is_device(given) || given->ndim > DIT_MAX_DIMS ||
      (!(given->flags & DIT_TENSOR_DENSE) && dit_tensor_get_internal_overlap(given) == DIT_OVERLAP_YES)) {
    return DIT_ERR_UNSUPPORTED;
  }
  for (int i = 0; i < count; i++) {
    if (inputs[i]->storage == given->storage) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  if (!op_same_sizes(given, ndim, sizes)) {
    DIT_RETURN_IF_NOT_OK(call->services->resize(call, given, ndim, sizes));
  }
  *out = *given;
  return DIT_OK;
}

void op_expand(const struct dit_tensor_view *view, const struct op_layout *layout, int64_t *strides,
               struct dit_tensor_view *out) {
  int offset = layout->ndim - view->ndim;
  int64_t numel = 1;
  for (int dim = 0; dim < layout->ndim; dim++) {
    bool broadcast = dim < offset || (view->sizes[dim - offset] == 1 && layout->sizes[dim] != 1);
    strides[dim] = broadcast ? 0 : view->strides[dim - offset];
    numel *= layout->sizes[dim];
  }
  *out = *view;
  out->sizes = layout->sizes;
  out->strides = strides;
  out->ndim = layout->ndim;
  if (numel != view->numel || offset != 0) {
    out->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  }
  out->numel = numel;
}
