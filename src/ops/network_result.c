/// Results of the operators of networks (see network.h).
#include "network.h"

bool net_fits(int dtype, struct dit_scalar value) {
  if (!op_is_moved(dtype) || dtype == DIT_DTYPE_C32 || (value.kind == DIT_SCALAR_COMPLEX && !op_is_complex(dtype))) {
    return false;
  }
  const enum dit_dtype_class class = dit_dtype_get_class(dtype);
  const bool is_whole = class != DIT_DTYPE_CLASS_FLOAT && class != DIT_DTYPE_CLASS_COMPLEX;
  if (is_whole && value.kind == DIT_SCALAR_DOUBLE) {
    return false;
  }
  if (class == DIT_DTYPE_CLASS_BOOL || class == DIT_DTYPE_CLASS_UINT) {
    return value.v.i >= 0 && (class == DIT_DTYPE_CLASS_UINT ? op_number_fits(dtype, &value) : value.v.i <= 1);
  }
  return op_number_fits(dtype, &value);
}

enum dit_status net_new(struct dit_call *call, int ndim, const int64_t *sizes, int format, int dtype,
                        struct dit_tensor_view *out) {
  int64_t strides[DIT_MAX_DIMS];
  if (format == 0) {
    return call->services->new_tensor(call, ndim, sizes, NULL, dtype, out);
  }
  op_set_channels_last(ndim, sizes, strides);
  return call->services->new_tensor(call, ndim, sizes, strides, dtype, out);
}

enum dit_status net_new_like(struct dit_call *call, const struct dit_tensor_view *like, int dtype,
                             struct dit_tensor_view *out) {
  int64_t strides[DIT_MAX_DIMS];
  if (like->flags & DIT_TENSOR_DENSE) {
    return call->services->new_tensor(call, like->ndim, like->sizes, like->strides, dtype, out);
  }
  op_infer_dense(like->ndim, like->sizes, like->strides, strides);
  return call->services->new_tensor(call, like->ndim, like->sizes, strides, dtype, out);
}

enum dit_status net_prepare(struct dit_call *call, struct dit_tensor_view *given,
                            const struct dit_tensor_view *const *inputs, int count, int ndim, const int64_t *sizes,
                            int format, int dtype, struct dit_tensor_view *out) {
  if (!given) {
    return net_new(call, ndim, sizes, format, dtype, out);
  }
  NET_NEED(format == 0 || op_same_sizes(given, ndim, sizes));
  return op_prepare_contiguous(call, given, inputs, count, ndim, sizes, dtype, out);
}

enum dit_status net_finish_made(struct dit_call *call, struct diopiContext *context, int function, diopiError_t code,
                                diopiTensorHandle_t made, struct dit_tensor_view *out) {
  const bool owned = code == diopiSuccess && made && dit_diopi_context_owns(context, made) && op_is_device(&made->view);
  if (owned) {
    *out = made->view;
  }
  DIT_RETURN_IF_NOT_OK(op_finish(call, context, function, code));
  if (!owned) {
    return dit_error_set(call->err, DIT_ERR_DEVICE,
                         "%s reported success without a result made by diopiRequireTensor on the device",
                         dit_diopi_get_functions(NULL)[function].name);
  }
  return DIT_OK;
}
