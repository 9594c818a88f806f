/// cat: tensors joined along one dimension, converted to the promoted dtype.
///
/// One-dimensional empty tensors are skipped (PyTorch's legacy rule). The result is channels_last when all inputs
/// suggest it, else row-major. The vendor's function joins tensors of one dtype; otherwise each input is one strided
/// copy into its slice of the result.
#include <stddef.h>
#include <string.h>

#include "invoke.h"
#include "table.h"

enum { MAX_LIST = 64 };

static bool is_skipped(const struct dit_tensor_view *view) {
  return view->numel == 0 && view->ndim == 1;
}

/// Shape, dtype and strides of the result; DIT_ERR_UNSUPPORTED for everything that PyTorch refuses.
static enum dit_status infer(const struct dit_tensor_view *tensors, int64_t count, int64_t *dim,
                             struct op_layout *layout, int *dtype) {
  const struct dit_tensor_view *first = NULL;
  int format = -1;
  *dtype = -1;
  for (int64_t i = 0; i < count; i++) {
    const struct dit_tensor_view *view = &tensors[i];
    if (!view->handle || !op_is_moved(view->dtype) || !op_is_device(view) || view->ndim == 0 ||
        view->ndim > DIT_MAX_DIMS) {
      return DIT_ERR_UNSUPPORTED;
    }
    *dtype = i == 0 ? view->dtype : dit_dtype_promote(*dtype, view->dtype);
    int suggested = op_suggest_format(view);
    format = format < 0 || format == suggested ? suggested : 0;
    first = first || is_skipped(view) ? first : view;
  }
  first = first || count == 0 ? first : &tensors[0];
  if (!first || *dtype < 0 || !op_is_moved(*dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  *dim += *dim < 0 ? first->ndim : 0;
  if (*dim < 0 || *dim >= first->ndim) {
    return DIT_ERR_UNSUPPORTED;
  }
  layout->ndim = first->ndim;
  op_copy_dims(layout->sizes, first->sizes, first->ndim);
  layout->sizes[*dim] = 0;
  for (int64_t i = 0; i < count; i++) {
    if (is_skipped(&tensors[i])) {
      continue;
    }
    if (tensors[i].ndim != layout->ndim) {
      return DIT_ERR_UNSUPPORTED;
    }
    for (int d = 0; d < layout->ndim; d++) {
      if (d != *dim && tensors[i].sizes[d] != layout->sizes[d]) {
        return DIT_ERR_UNSUPPORTED;
      }
    }
    layout->sizes[*dim] += tensors[i].sizes[*dim];
  }
  layout->contiguous = format == 0;
  if (format != 0) {
    op_set_channels_last(layout->ndim, layout->sizes, layout->strides);
  }
  return DIT_OK;
}

static enum dit_status prepare(struct dit_call *call, const struct dit_tensor_view *tensors, int64_t count,
                               const struct op_layout *layout, int dtype, struct dit_tensor_view *given,
                               struct dit_tensor_view *out) {
  if (!given) {
    return call->services->new_tensor(call, layout->ndim, layout->sizes, layout->contiguous ? NULL : layout->strides,
                                      dtype, out);
  }
  if (!op_is_moved(given->dtype) || !op_can_cast(dtype, given->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  for (int64_t i = 0; i < count; i++) {
    if (tensors[i].storage == given->storage) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  if (!op_same_sizes(given, layout->ndim, layout->sizes) && !layout->contiguous) {
    return DIT_ERR_UNSUPPORTED;
  }
  return op_prepare_contiguous(call, given, NULL, 0, layout->ndim, layout->sizes, given->dtype, out);
}

/// By the vendor's own function: all tensors of the result's dtype, without those that are skipped.
static enum dit_status join(struct dit_call *call, const struct dit_tensor_view *tensors, int64_t count, int64_t dim,
                            const struct dit_tensor_view *out) {
  struct diopiContext context;
  struct diopiTensor out_room, rooms[MAX_LIST];
  diopiConstTensorHandle_t handles[MAX_LIST];
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!is_skipped(&tensors[i])) {
      handles[kept] = op_handle(call, &rooms[kept], &tensors[i]);
      kept++;
    }
  }
  op_context_init(&context, call);
  return OP_DIOPI(call, &context, diopiCat, op_handle(call, &out_room, out), handles, kept, dim);
}

/// By strided copies into the slices of the result.
static enum dit_status copy_slices(struct dit_call *call, const struct dit_tensor_view *tensors, int64_t count,
                                   int64_t dim, const struct dit_tensor_view *out) {
  int64_t begin = 0;
  for (int64_t i = 0; i < count; i++) {
    if (tensors[i].numel == 0) {
      begin += is_skipped(&tensors[i]) ? 0 : tensors[i].sizes[dim];
      continue;
    }
    struct dit_tensor_view slice = *out;
    slice.data = (char *)out->data + begin * out->strides[dim] * (int64_t)dit_dtype_get_size(out->dtype);
    slice.sizes = tensors[i].sizes;
    slice.numel = tensors[i].numel;
    bool contiguous = dit_shape_is_contiguous(slice.ndim, slice.sizes, slice.strides);
    slice.flags = (uint8_t)((slice.flags & ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE)) |
                            (contiguous ? DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE : 0));
    DIT_RETURN_IF_NOT_OK(op_copy(call, &slice, &tensors[i]));
    begin += tensors[i].sizes[dim];
  }
  return DIT_OK;
}

enum dit_status op_cat(struct dit_call *call) {
  struct dit_tensor_view *given = call->op->target == OP_OUT ? op_get_tensor(call, 2) : NULL, out;
  struct op_layout layout;
  int dtype;
  if (call->args[0].tag != DIT_VALUE_TENSORS || (call->op->target == OP_OUT && !given)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct dit_tensor_view *tensors = call->args[0].v.tensors.data;
  int64_t count = call->args[0].v.tensors.size, dim = call->args[1].v.i;
  DIT_RETURN_IF_NOT_OK(infer(tensors, count, &dim, &layout, &dtype));
  bool joins = OP_HAS(call, diopiCat) && count <= MAX_LIST && (!given || given->dtype == dtype);
  for (int64_t i = 0; i < count; i++) {
    joins = joins && tensors[i].dtype == dtype;
  }
  if (!joins && !op_can_copy(call)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(prepare(call, tensors, count, &layout, dtype, given, &out));
  if (out.numel == 0) {
    return op_return(call, 0, &out);
  }
  enum dit_status status = joins ? join(call, tensors, count, dim, &out) : DIT_ERR_UNSUPPORTED;
  if (status == DIT_ERR_UNSUPPORTED && op_can_copy(call)) {
    status = copy_slices(call, tensors, count, dim, &out);
  }
  DIT_RETURN_IF_NOT_OK(status);
  return op_return(call, 0, &out);
}
