/// Pooling over two or three dimensions: max (with indices), average, adaptive average and adaptive max, each with its
/// backward.
///
/// input (N, C, H, W) or (C, H, W), with depth (N, C, D, H, W) or (C, D, H, W);
/// H' = (H + 2 p - d (k - 1) - 1 [+ s - 1 with ceil_mode]) / s + 1, less one when the last window would begin in the
/// right padding. Results keep the input's memory format as PyTorch's do.
#include "dit/window.h"
#include "network.h"
#include "table.h"

#define MOST_DIMS 3

struct pool {
  int dims;  ///< 2 or 3
  int64_t kernel[MOST_DIMS], stride[MOST_DIMS], padding[MOST_DIMS], dilation[MOST_DIMS];
  bool ceil_mode;
  int64_t sizes[MOST_DIMS + 2];  ///< of the result
};

/// One number per dimension; a single one counts for all, none takes `absent`.
static bool read_list(const struct dit_call *call, int index, int dims, const int64_t *absent, int64_t least,
                      int64_t *out) {
  const diopiSize_t list = net_get_sizes(call, index);
  if ((list.len != dims && list.len > 1) || (list.len == 0 && !absent)) {
    return false;
  }
  for (int i = 0; i < dims; i++) {
    out[i] = list.len == 0 ? absent[i] : list.data[list.len == 1 ? 0 : i];
    if (out[i] < least || out[i] > INT32_MAX) {
      return false;
    }
  }
  return true;
}

static bool is_image(const struct dit_tensor_view *input, int dims) {
  return input && (input->ndim == dims + 1 || input->ndim == dims + 2) && input->numel > 0;
}
static bool is_pooled(const struct dit_tensor_view *input, int dims) {
  return is_image(input, dims) && op_is_floating(input->dtype);
}

/// Memory format of a result: with depth, only PyTorch's max keeps channels last.
static int get_format(const struct dit_tensor_view *input, int dims, bool is_max) {
  return input->ndim == dims + 2 && (dims == 2 || is_max) ? op_suggest_format(input) : 0;
}

static void set_sizes(const struct dit_tensor_view *input, int dims, const int64_t *out, int64_t *sizes) {
  op_copy_dims(sizes, input->sizes, input->ndim);
  op_copy_dims(sizes + input->ndim - dims, out, dims);
}

static bool infer_pool(const struct dit_tensor_view *input, struct pool *pool) {
  int64_t out[MOST_DIMS];
  for (int i = 0; i < pool->dims; i++) {
    const struct dit_window window = {.size = input->sizes[input->ndim - pool->dims + i],
                                      .kernel = pool->kernel[i],
                                      .stride = pool->stride[i],
                                      .padding = pool->padding[i],
                                      .dilation = pool->dilation[i],
                                      .ceil = pool->ceil_mode};
    out[i] = dit_window_count(&window);
    if (2 * window.padding > window.kernel || out[i] < 1) {
      return false;
    }
  }
  set_sizes(input, pool->dims, out, pool->sizes);
  return true;
}

/// kernel_size, stride, padding from `first` on; dilation and ceil_mode where the operator has them.
static bool read_pool(struct dit_call *call, const struct dit_tensor_view *input, int dims, int first, int dilation,
                      int ceil_mode, struct pool *pool) {
  static const int64_t none[MOST_DIMS] = {0, 0, 0}, one[MOST_DIMS] = {1, 1, 1};
  pool->dims = dims;
  pool->ceil_mode = call->args[ceil_mode].v.i != 0;
  op_copy_dims(pool->dilation, one, dims);
  return read_list(call, first, dims, NULL, 1, pool->kernel) &&
         read_list(call, first + 1, dims, pool->kernel, 1, pool->stride) &&
         read_list(call, first + 2, dims, none, 0, pool->padding) &&
         (dilation < 0 || read_list(call, dilation, dims, one, 1, pool->dilation)) && infer_pool(input, pool);
}

/// A list of the pool as DIOPI takes it.
#define LIST(values) ((diopiSize_t){values, dims})
/// Call the function for two dimensions or the one for three; their arguments are the same.
#define OP_DIOPI_POOL(call, context, before, after, ...)                      \
  (dims == 2 ? OP_DIOPI(call, context, diopi##before##2d##after, __VA_ARGS__) \
             : OP_DIOPI(call, context, diopi##before##3d##after, __VA_ARGS__))
#define OP_HAS_POOL(call, before, after) \
  (dims == 2 ? OP_HAS(call, diopi##before##2d##after) : OP_HAS(call, diopi##before##3d##after))

static enum dit_status run_max_pool(struct dit_call *call, int dims) {
  struct dit_tensor_view *input = net_get(call, 0), *given, *given_indices = NULL, out, indices;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS_POOL(call, MaxPool, WithIndices) && is_image(input, dims) && op_is_plain(input->dtype) &&
           input->dtype != DIT_DTYPE_BOOL && read_pool(call, input, dims, 1, 4, 5, &pool) &&
           net_get_given(call, 6, &given));
  NET_NEED(!given || (given_indices = net_get(call, 7)) != NULL);
  const struct dit_tensor_view *const inputs[1] = {input};
  const int format = get_format(input, dims, true);
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 1, input->ndim, pool.sizes, format, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given_indices, inputs, 1, input->ndim, pool.sizes, format, DIT_DTYPE_I64, &indices));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, MaxPool, WithIndices, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], &indices), op_handle(call, &rooms[2], input),
                                     LIST(pool.kernel), LIST(pool.stride), LIST(pool.padding), LIST(pool.dilation),
                                     pool.ceil_mode));
  (void)op_return(call, 1, &indices);
  return op_return(call, 0, &out);
}

static enum dit_status run_max_pool_backward(struct dit_call *call, int dims) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *indices = net_get(call, 7), *given, out;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS_POOL(call, MaxPool, Backward) && is_pooled(input, dims) && grad && net_is_index(indices) &&
           read_pool(call, input, dims, 2, 5, 6, &pool) && net_get_given(call, 8, &given) &&
           grad->dtype == input->dtype && op_same_sizes(grad, input->ndim, pool.sizes) &&
           op_same_sizes(indices, input->ndim, pool.sizes));
  const struct dit_tensor_view *const inputs[3] = {grad, input, indices};
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 3, input->ndim, input->sizes, get_format(input, dims, true),
                                   input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, MaxPool, Backward, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input),
                                     LIST(pool.kernel), LIST(pool.stride), LIST(pool.padding), LIST(pool.dilation),
                                     pool.ceil_mode, op_handle(call, &rooms[3], indices)));
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

/// PyTorch refuses windows that are larger than the input, in three dimensions alone.
static bool are_windows_inside(const struct dit_tensor_view *input, const struct pool *pool, int dims) {
  for (int i = 0; dims == 3 && i < dims; i++) {
    if (pool->kernel[i] > input->sizes[input->ndim - dims + i]) {
      return false;
    }
  }
  return true;
}

static enum dit_status run_avg_pool(struct dit_call *call, int dims) {
  struct dit_tensor_view *input = net_get(call, 0), *given, out;
  const int64_t *divisor;
  int64_t room;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS_POOL(call, AvgPool, ) && is_pooled(input, dims) && read_pool(call, input, dims, 1, -1, 4, &pool) &&
           are_windows_inside(input, &pool, dims) && read_divisor(call, 6, &room, &divisor) &&
           net_get_given(call, 7, &given));
  const struct dit_tensor_view *const inputs[1] = {input};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 1, input->ndim, pool.sizes, get_format(input, dims, false), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, AvgPool, , op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], input), LIST(pool.kernel), LIST(pool.stride),
                                     LIST(pool.padding), pool.ceil_mode, call->args[5].v.i != 0, divisor));
  return op_return(call, 0, &out);
}

static enum dit_status run_avg_pool_backward(struct dit_call *call, int dims) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *given, out;
  const int64_t *divisor;
  int64_t room;
  struct pool pool;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS_POOL(call, AvgPool, Backward) && is_pooled(input, dims) && grad &&
           read_pool(call, input, dims, 2, -1, 5, &pool) && read_divisor(call, 7, &room, &divisor) &&
           net_get_given(call, 8, &given) && grad->dtype == input->dtype &&
           op_same_sizes(grad, input->ndim, pool.sizes));
  const struct dit_tensor_view *const inputs[2] = {grad, input};
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 2, input->ndim, input->sizes, get_format(input, dims, false),
                                   input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, AvgPool, Backward, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input),
                                     LIST(pool.kernel), LIST(pool.stride), LIST(pool.padding), pool.ceil_mode,
                                     call->args[6].v.i != 0, divisor));
  return op_return(call, 0, &out);
}

static enum dit_status run_adaptive_avg_pool(struct dit_call *call, int dims) {
  struct dit_tensor_view *input = net_get(call, 0), *given, out;
  int64_t wanted[MOST_DIMS], sizes[MOST_DIMS + 2];
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS_POOL(call, AdaptiveAvgPool, ) && is_pooled(input, dims) &&
           read_list(call, 1, dims, NULL, 1, wanted) && net_get_given(call, 2, &given));
  set_sizes(input, dims, wanted, sizes);
  const struct dit_tensor_view *const inputs[1] = {input};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 1, input->ndim, sizes, get_format(input, dims, false), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, AdaptiveAvgPool, , op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], input), LIST(wanted)));
  return op_return(call, 0, &out);
}

/// grad and input agree but for the pooled sizes.
static bool is_gradient(const struct dit_tensor_view *grad, const struct dit_tensor_view *input, int dims) {
  return grad && grad->ndim == input->ndim && grad->dtype == input->dtype && grad->numel > 0 &&
         grad->sizes[0] == input->sizes[0] && (input->ndim == dims + 1 || grad->sizes[1] == input->sizes[1]);
}

static enum dit_status run_adaptive_avg_pool_backward(struct dit_call *call, int dims) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *given, out;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS_POOL(call, AdaptiveAvgPool, Backward) && is_pooled(input, dims) && is_gradient(grad, input, dims) &&
           net_get_given(call, 2, &given));
  const struct dit_tensor_view *const inputs[2] = {grad, input};
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 2, input->ndim, input->sizes, get_format(input, dims, false),
                                   input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, AdaptiveAvgPool, Backward, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input)));
  return op_return(call, 0, &out);
}

static enum dit_status run_adaptive_max_pool(struct dit_call *call, int dims) {
  struct dit_tensor_view *input = net_get(call, 0), *given, *given_indices = NULL, out, indices;
  int64_t wanted[MOST_DIMS], sizes[MOST_DIMS + 2];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS_POOL(call, AdaptiveMaxPool, WithIndices) && is_pooled(input, dims) &&
           read_list(call, 1, dims, NULL, 1, wanted) && net_get_given(call, 2, &given));
  NET_NEED(!given || (given_indices = net_get(call, 3)) != NULL);
  set_sizes(input, dims, wanted, sizes);
  const struct dit_tensor_view *const inputs[1] = {input};
  const int format = get_format(input, dims, false);
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 1, input->ndim, sizes, format, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given_indices, inputs, 1, input->ndim, sizes, format, DIT_DTYPE_I64, &indices));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, AdaptiveMaxPool, WithIndices, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], &indices), op_handle(call, &rooms[2], input),
                                     LIST(wanted)));
  (void)op_return(call, 1, &indices);
  return op_return(call, 0, &out);
}

static enum dit_status run_adaptive_max_pool_backward(struct dit_call *call, int dims) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *indices = net_get(call, 2), *given, out;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS_POOL(call, AdaptiveMaxPool, Backward) && is_pooled(input, dims) && is_gradient(grad, input, dims) &&
           net_is_index(indices) && op_same_sizes(indices, grad->ndim, grad->sizes) && net_get_given(call, 3, &given));
  const struct dit_tensor_view *const inputs[3] = {grad, input, indices};
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 3, input->ndim, input->sizes, get_format(input, dims, false),
                                   input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI_POOL(call, &context, AdaptiveMaxPool, Backward, op_handle(call, &rooms[0], &out),
                                     op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input),
                                     op_handle(call, &rooms[3], indices)));
  return op_return(call, 0, &out);
}

#define DEFINE(name)                                                   \
  enum dit_status op_##name##_pool2d(struct dit_call *call) {          \
    return run_##name##_pool(call, 2);                                 \
  }                                                                    \
  enum dit_status op_##name##_pool3d(struct dit_call *call) {          \
    return run_##name##_pool(call, 3);                                 \
  }                                                                    \
  enum dit_status op_##name##_pool2d_backward(struct dit_call *call) { \
    return run_##name##_pool_backward(call, 2);                        \
  }                                                                    \
  enum dit_status op_##name##_pool3d_backward(struct dit_call *call) { \
    return run_##name##_pool_backward(call, 3);                        \
  }
DEFINE(max)
DEFINE(avg)
DEFINE(adaptive_avg)
DEFINE(adaptive_max)
