/// Pooling over two dimensions: max (with indices), average, adaptive average and adaptive max, each with its backward.
///
/// input (N, C, H, W) or (C, H, W); H' = (H + 2 p - d (k - 1) - 1 [+ s - 1 with ceil_mode]) / s + 1, less one when the
/// last window would begin in the right padding. Results keep the input's memory format.
#include "network.h"
#include "table.h"

struct pool {
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  bool ceil_mode;
  int64_t sizes[4];  ///< of the result
};

/// Two numbers; a single one counts for both, none takes `absent`.
static bool read_pair(const struct dit_call *call, int index, const int64_t *absent, int64_t least, int64_t *out) {
  const diopiSize_t list = net_get_sizes(call, index);
  if (list.len > 2 || (list.len == 0 && !absent)) {
    return false;
  }
  for (int i = 0; i < 2; i++) {
    out[i] = list.len == 0 ? absent[i] : list.data[list.len == 1 ? 0 : i];
    if (out[i] < least || out[i] > INT32_MAX) {
      return false;
    }
  }
  return true;
}

static bool is_image(const struct dit_tensor_view *input) {
  return input && (input->ndim == 3 || input->ndim == 4) && input->numel > 0;
}
static bool is_pooled(const struct dit_tensor_view *input) {
  return is_image(input) && op_is_floating(input->dtype);
}

static void set_sizes(const struct dit_tensor_view *input, const int64_t *out, int64_t *sizes) {
  op_copy_dims(sizes, input->sizes, input->ndim);
  sizes[input->ndim - 2] = out[0];
  sizes[input->ndim - 1] = out[1];
}

static bool infer_pool(const struct dit_tensor_view *input, struct pool *pool) {
  int64_t out[2];
  for (int i = 0; i < 2; i++) {
    const int64_t size = input->sizes[input->ndim - 2 + i], step = pool->stride[i], pad = pool->padding[i];
    const int64_t room = size + 2 * pad - pool->dilation[i] * (pool->kernel[i] - 1) - 1;
    if (2 * pad > pool->kernel[i] || room < 0) {
      return false;
    }
    out[i] = (room + (pool->ceil_mode ? step - 1 : 0)) / step + 1;
    if (pool->ceil_mode && (out[i] - 1) * step >= size + pad) {
      out[i]--;
    }
    if (out[i] < 1) {
      return false;
    }
  }
  set_sizes(input, out, pool->sizes);
  return true;
}

/// kernel_size, stride, padding from `first` on; dilation and ceil_mode where the operator has them.
static bool read_pool(struct dit_call *call, const struct dit_tensor_view *input, int first, int dilation,
                      int ceil_mode, struct pool *pool) {
  static const int64_t none[2] = {0, 0}, one[2] = {1, 1};
  pool->ceil_mode = call->args[ceil_mode].v.i != 0;
  op_copy_dims(pool->dilation, one, 2);
  return read_pair(call, first, NULL, 1, pool->kernel) && read_pair(call, first + 1, pool->kernel, 1, pool->stride) &&
         read_pair(call, first + 2, none, 0, pool->padding) &&
         (dilation < 0 || read_pair(call, dilation, one, 1, pool->dilation)) && infer_pool(input, pool);
}

static diopiSize_t pair(const int64_t *values) {
  diopiSize_t sizes = {values, 2};
  return sizes;
}

enum dit_status op_max_pool2d(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *given, *given_indices = NULL, out, indices;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiMaxPool2dWithIndices) && is_image(input) && op_is_plain(input->dtype) &&
           input->dtype != DIT_DTYPE_BOOL && read_pool(call, input, 1, 4, 5, &pool) && net_get_given(call, 6, &given));
  NET_NEED(!given || (given_indices = net_get(call, 7)) != NULL);
  const struct dit_tensor_view *const inputs[1] = {input};
  const int format = op_suggest_format(input);
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 1, input->ndim, pool.sizes, format, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given_indices, inputs, 1, input->ndim, pool.sizes, format, DIT_DTYPE_I64, &indices));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMaxPool2dWithIndices, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &indices), op_handle(call, &rooms[2], input),
                                pair(pool.kernel), pair(pool.stride), pair(pool.padding), pair(pool.dilation),
                                pool.ceil_mode));
  (void)op_return(call, 1, &indices);
  return op_return(call, 0, &out);
}

enum dit_status op_max_pool2d_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *indices = net_get(call, 7), *given, out;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiMaxPool2dBackward) && is_pooled(input) && grad && net_is_index(indices) &&
           read_pool(call, input, 2, 5, 6, &pool) && net_get_given(call, 8, &given) && grad->dtype == input->dtype &&
           op_same_sizes(grad, input->ndim, pool.sizes) && op_same_sizes(indices, input->ndim, pool.sizes));
  const struct dit_tensor_view *const inputs[3] = {grad, input, indices};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 3, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMaxPool2dBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input), pair(pool.kernel),
                                pair(pool.stride), pair(pool.padding), pair(pool.dilation), pool.ceil_mode,
                                op_handle(call, &rooms[3], indices)));
  return op_return(call, 0, &out);
}

/// divisor_override as DIOPI takes it; false for 0, which PyTorch refuses.
static bool read_divisor(struct dit_call *call, int index, int64_t *room, const int64_t **out) {
  *out = NULL;
  if (call->args[index].tag == DIT_VALUE_NONE) {
    return true;
  }
  *room = call->args[index].v.i;
  *out = room;
  return *room != 0;
}

enum dit_status op_avg_pool2d(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *given, out;
  const int64_t *divisor;
  int64_t room;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiAvgPool2d) && is_pooled(input) && read_pool(call, input, 1, -1, 4, &pool) &&
           read_divisor(call, 6, &room, &divisor) && net_get_given(call, 7, &given));
  const struct dit_tensor_view *const inputs[1] = {input};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 1, input->ndim, pool.sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAvgPool2d, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], input), pair(pool.kernel), pair(pool.stride),
                                pair(pool.padding), pool.ceil_mode, call->args[5].v.i != 0, divisor));
  return op_return(call, 0, &out);
}

enum dit_status op_avg_pool2d_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *given, out;
  const int64_t *divisor;
  int64_t room;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiAvgPool2dBackward) && is_pooled(input) && grad &&
           read_pool(call, input, 2, -1, 5, &pool) && read_divisor(call, 7, &room, &divisor) &&
           net_get_given(call, 8, &given) && grad->dtype == input->dtype &&
           op_same_sizes(grad, input->ndim, pool.sizes));
  const struct dit_tensor_view *const inputs[2] = {grad, input};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 2, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAvgPool2dBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input), pair(pool.kernel),
                                pair(pool.stride), pair(pool.padding), pool.ceil_mode, call->args[6].v.i != 0,
                                divisor));
  return op_return(call, 0, &out);
}

enum dit_status op_adaptive_avg_pool2d(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *given, out;
  int64_t wanted[2], sizes[4];
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiAdaptiveAvgPool2d) && is_pooled(input) && read_pair(call, 1, NULL, 1, wanted) &&
           net_get_given(call, 2, &given));
  set_sizes(input, wanted, sizes);
  const struct dit_tensor_view *const inputs[1] = {input};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 1, input->ndim, sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAdaptiveAvgPool2d, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], input), pair(wanted)));
  return op_return(call, 0, &out);
}

/// grad and input agree but for the last two sizes.
static bool is_gradient(const struct dit_tensor_view *grad, const struct dit_tensor_view *input) {
  return grad && grad->ndim == input->ndim && grad->dtype == input->dtype && grad->numel > 0 &&
         grad->sizes[0] == input->sizes[0] && (input->ndim == 3 || grad->sizes[1] == input->sizes[1]);
}

enum dit_status op_adaptive_avg_pool2d_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), out;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiAdaptiveAvgPool2dBackward) && is_pooled(input) && is_gradient(grad, input));
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAdaptiveAvgPool2dBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input)));
  return op_return(call, 0, &out);
}

enum dit_status op_adaptive_max_pool2d(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *given, *given_indices = NULL, out, indices;
  int64_t wanted[2], sizes[4];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiAdaptiveMaxPool2dWithIndices) && is_pooled(input) && read_pair(call, 1, NULL, 1, wanted) &&
           net_get_given(call, 2, &given));
  NET_NEED(!given || (given_indices = net_get(call, 3)) != NULL);
  set_sizes(input, wanted, sizes);
  const struct dit_tensor_view *const inputs[1] = {input};
  const int format = op_suggest_format(input);
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 1, input->ndim, sizes, format, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given_indices, inputs, 1, input->ndim, sizes, format, DIT_DTYPE_I64, &indices));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAdaptiveMaxPool2dWithIndices, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &indices), op_handle(call, &rooms[2], input), pair(wanted)));
  (void)op_return(call, 1, &indices);
  return op_return(call, 0, &out);
}

enum dit_status op_adaptive_max_pool2d_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *indices = net_get(call, 2), *given, out;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiAdaptiveMaxPool2dBackward) && is_pooled(input) && is_gradient(grad, input) &&
           net_is_index(indices) && op_same_sizes(indices, grad->ndim, grad->sizes) && net_get_given(call, 3, &given));
  const struct dit_tensor_view *const inputs[3] = {grad, input, indices};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 3, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiAdaptiveMaxPool2dBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input),
                                op_handle(call, &rooms[3], indices)));
  return op_return(call, 0, &out);
}
