/// Shapes, strides and memory overlap, with PyTorch's definitions.
///
/// Invariant: nothing but dit_tensor_gather and dit_tensor_scatter touches tensor data; products that do not fit are
/// errors or wrap, never undefined behaviour. Depends on dtype and error.
#include <inttypes.h>
#include <string.h>

#include "dit/tensor.h"

/// Dimensions PyTorch itself allows: the stack arrays below hold any tensor that can exist.
enum { SHAPE_LIMIT = 64 };

enum dit_status dit_shape_get_numel(int ndim, const int64_t *sizes, int64_t *numel, struct dit_error *err) {
  bool has_zero = false, overflows = false;
  int64_t product = 1;
  for (int i = 0; i < ndim; i++) {
    if (sizes[i] < 0) {
      return dit_error_set(err, DIT_ERR_INVALID, "size %" PRId64 " of dimension %d is negative; sizes must be >= 0",
                           sizes[i], i);
    }
    has_zero |= sizes[i] == 0;
    overflows |= __builtin_mul_overflow(product, sizes[i], &product);
  }
  if (overflows && !has_zero) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the number of elements of a shape with %d dimensions does not fit into 64 bits", ndim);
  }
  *numel = has_zero ? 0 : product;
  return DIT_OK;
}

void dit_shape_set_contiguous(int ndim, const int64_t *sizes, int64_t *strides) {
  uint64_t stride = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    strides[i] = (int64_t)stride;
    stride *= sizes[i] > 1 ? (uint64_t)sizes[i] : 1;
  }
}

bool dit_shape_is_contiguous(int ndim, const int64_t *sizes, const int64_t *strides) {
  bool matches = true;
  uint64_t expected = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    if (sizes[i] == 0) {
      return true;
    }
    if (sizes[i] != 1) {
      matches &= strides[i] == (int64_t)expected;
      expected *= (uint64_t)sizes[i];
    }
  }
  return matches;
}

bool dit_shape_is_dense(int ndim, const int64_t *sizes, const int64_t *strides) {
  if (dit_shape_is_contiguous(ndim, sizes, strides)) {
    return true;
  }
  int order[SHAPE_LIMIT];
  int count = 0;
  for (int i = 0; i < ndim; i++) {
    if (sizes[i] < 2) {
      continue;
    }
    if (count == SHAPE_LIMIT) {
      return false;
    }
    int place = count++;
    while (place > 0 && strides[order[place - 1]] > strides[i]) {
      order[place] = order[place - 1];
      place--;
    }
    order[place] = i;
  }
  uint64_t expected = 1;
  for (int i = 0; i < count; i++) {
    if (strides[order[i]] != (int64_t)expected) {
      return false;
    }
    expected *= (uint64_t)sizes[order[i]];
  }
  return true;
}

enum dit_status dit_shape_broadcast(int ndim, const int64_t *sizes, int *out_ndim, int64_t *out_sizes,
                                    struct dit_error *err) {
  if (ndim > DIT_MAX_DIMS || *out_ndim > DIT_MAX_DIMS) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "a tensor has %d dimensions; at most %d are supported",
                         ndim > *out_ndim ? ndim : *out_ndim, DIT_MAX_DIMS);
  }
  int result_ndim = ndim > *out_ndim ? ndim : *out_ndim;
  int shift_a = result_ndim - *out_ndim, shift_b = result_ndim - ndim;
  int64_t result[DIT_MAX_DIMS];
  for (int i = result_ndim - 1; i >= 0; i--) {
    int64_t a = i >= shift_a ? out_sizes[i - shift_a] : 1;
    int64_t b = i >= shift_b ? sizes[i - shift_b] : 1;
    if (a != b && a != 1 && b != 1) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "The size of tensor a (%" PRId64 ") must match the size of tensor b (%" PRId64
                           ") at non-singleton dimension %d",
                           a, b, i);
    }
    result[i] = a == 1 ? b : a;
  }
  if (result_ndim > 0) {
    memcpy(out_sizes, result, sizeof(int64_t) * (size_t)result_ndim);
  }
  *out_ndim = result_ndim;
  return DIT_OK;
}

void dit_tensor_get_span(const struct dit_tensor_view *view, int64_t *low, int64_t *high) {
  *low = *high = 0;
  if (view->numel == 0) {
    return;
  }
  int64_t first = 0, last = 0;
  for (int i = 0; i < view->ndim; i++) {
    int64_t reach = (view->sizes[i] - 1) * view->strides[i];
    if (reach < 0) {
      first += reach;
    } else {
      last += reach;
    }
  }
  int64_t size = (int64_t)dit_dtype_get_size(view->dtype);
  *low = first * size;
  *high = (last + 1) * size;
}

static bool is_dense_view(const struct dit_tensor_view *view) {
  return (view->flags & (DIT_TENSOR_DENSE | DIT_TENSOR_CONTIGUOUS)) ||
         dit_shape_is_dense(view->ndim, view->sizes, view->strides);
}

enum dit_overlap dit_tensor_get_internal_overlap(const struct dit_tensor_view *view) {
  if (is_dense_view(view)) {
    return DIT_OVERLAP_NO;
  }
  for (int i = 0; i < view->ndim; i++) {
    if (view->strides[i] == 0 && view->sizes[i] > 1) {
      return DIT_OVERLAP_YES;
    }
  }
  return DIT_OVERLAP_UNKNOWN;
}

static bool has_equal_strides(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->strides, b->strides, sizeof(int64_t) * (size_t)a->ndim) == 0);
}

enum dit_alias dit_tensor_get_alias(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  if (a == b || (a->handle && a->handle == b->handle)) {
    return DIT_ALIAS_FULL;
  }
  if (a->numel == 0 || b->numel == 0) {
    return DIT_ALIAS_NO;
  }
  if (!is_dense_view(a) || !is_dense_view(b)) {
    return DIT_ALIAS_UNKNOWN;
  }
  if (!a->storage || a->storage != b->storage) {
    return DIT_ALIAS_NO;
  }
  uintptr_t a_begin = (uintptr_t)a->data, a_end = a_begin + (uintptr_t)a->numel * dit_dtype_get_size(a->dtype);
  uintptr_t b_begin = (uintptr_t)b->data, b_end = b_begin + (uintptr_t)b->numel * dit_dtype_get_size(b->dtype);
  if (a_begin == b_begin && a_end == b_end) {
    return has_equal_strides(a, b) ? DIT_ALIAS_FULL : DIT_ALIAS_PARTIAL;
  }
  return a_begin < b_end && b_begin < a_end ? DIT_ALIAS_PARTIAL : DIT_ALIAS_NO;
}

static void move_elements(const struct dit_tensor_view *view, char *packed, bool to_tensor) {
  const size_t width = dit_dtype_get_size(view->dtype);
  const int inner = view->ndim - 1;
  const int64_t length = view->ndim ? view->sizes[inner] : 1;
  const int64_t step = view->ndim ? view->strides[inner] * (int64_t)width : 0;
  int64_t index[SHAPE_LIMIT] = {0}, offset = 0;
  for (int64_t row = 0; view->numel > 0 && row < view->numel / length; row++) {
    char *element = (char *)view->data + offset * (int64_t)width;
    for (int64_t i = 0; i < length; i++, element += step, packed += width) {
      memcpy(to_tensor ? element : packed, to_tensor ? packed : element, width);
    }
    for (int dim = inner - 1; dim >= 0; dim--) {
      offset += view->strides[dim];
      if (++index[dim] < view->sizes[dim]) {
        break;
      }
      offset -= index[dim] * view->strides[dim];
      index[dim] = 0;
    }
  }
}

void dit_tensor_gather(const struct dit_tensor_view *view, void *out) {
  move_elements(view, out, false);
}

void dit_tensor_scatter(const struct dit_tensor_view *view, const void *in) {
  move_elements(view, (char *)in, true);
}
