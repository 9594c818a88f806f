/// Normalization: native_layer_norm, native_group_norm, native_batch_norm and _fused_rms_norm, each with its backward.
///
/// Statistics have the dtype of the input, or float32 when a half input meets float32 parameters ("mixed"). Layer and
/// RMS norm give row-major results; group and batch norm keep the input's memory format.
#include "invoke.h"
#include "network.h"
#include "table.h"

/// Input and parameters have dtypes that PyTorch takes together; `mixed` tells which rule it is.
static bool check_parameters(const struct dit_tensor_view *input, struct dit_tensor_view *const *parameters, int count,
                             bool *mixed) {
  int parameter = -1;
  for (int i = 0; i < count; i++) {
    if (!parameters[i]) {
      continue;
    }
    if (parameter >= 0 && parameters[i]->dtype != parameter) {
      return false;
    }
    parameter = parameters[i]->dtype;
  }
  *mixed = op_is_half(input->dtype) && parameter == DIT_DTYPE_F32;
  return op_is_floating(input->dtype) && (parameter < 0 || parameter == input->dtype || *mixed);
}

static int64_t multiply(const int64_t *sizes, int count) {
  int64_t product = 1;
  for (int i = 0; i < count; i++) {
    product *= sizes[i];
  }
  return product;
}

/// The trailing sizes are `shape`, and parameters have exactly that shape.
static bool check_normalized(const struct dit_tensor_view *input, diopiSize_t shape,
                             struct dit_tensor_view *const *parameters, int count) {
  const int64_t lead = input->ndim - shape.len;
  if (shape.len < 1 || lead < 0 || multiply(shape.data, (int)shape.len) == 0) {
    return false;
  }
  for (int64_t i = 0; i < shape.len; i++) {
    if (input->sizes[lead + i] != shape.data[i]) {
      return false;
    }
  }
  for (int i = 0; i < count; i++) {
    if (parameters[i] && !op_same_sizes(parameters[i], (int)shape.len, shape.data)) {
      return false;
    }
  }
  return true;
}

/// Gradients of an input without elements: those of the parameters are zero.
static enum dit_status return_zeros(struct dit_call *call, struct dit_tensor_view *made, const bool *wanted,
                                    int count) {
  for (int i = 0; i < count; i++) {
    if (wanted[i] && made[i].numel > 0) {
      DIT_RETURN_IF_NOT_OK(op_fill(call, &made[i], (struct dit_scalar){DIT_SCALAR_INT, {0}}));
    }
    net_return_optional(call, i, wanted[i], &made[i]);
  }
  return DIT_OK;
}

/// Sizes of the statistics: the leading ones, then ones.
static void fill_stat_sizes(const struct dit_tensor_view *input, int64_t normalized, int64_t *sizes) {
  for (int i = 0; i < input->ndim; i++) {
    sizes[i] = i < input->ndim - normalized ? input->sizes[i] : 1;
  }
}

enum dit_status op_layer_norm(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *parameters[2], out, mean, rstd;
  const diopiSize_t shape = net_get_sizes(call, 1);
  int64_t stat_sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[6];
  bool mixed;
  NET_NEED(OP_HAS(call, diopiLayerNorm) && input && net_get_optional(call, 2, &parameters[0]) &&
           net_get_optional(call, 3, &parameters[1]));
  NET_NEED(check_parameters(input, parameters, 2, &mixed) && check_normalized(input, shape, parameters, 2));
  const int stat = mixed ? DIT_DTYPE_F32 : input->dtype;
  fill_stat_sizes(input, shape.len, stat_sizes);
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, 0, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, stat_sizes, 0, stat, &mean));
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, stat_sizes, 0, stat, &rstd));
  (void)op_return(call, 1, &mean);
  (void)op_return(call, 2, &rstd);
  if (input->numel == 0) {
    return op_return(call, 0, &out);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiLayerNorm, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &mean), op_handle(call, &rooms[2], &rstd),
                                op_handle(call, &rooms[3], input), op_handle(call, &rooms[4], parameters[0]),
                                op_handle(call, &rooms[5], parameters[1]), shape, net_get_double(call, 4)));
  return op_return(call, 0, &out);
}

enum dit_status op_layer_norm_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *mean = net_get(call, 3),
                         *rstd = net_get(call, 4), *parameters[2], made[3];
  const diopiSize_t shape = net_get_sizes(call, 2);
  struct diopiContext context;
  struct diopiTensor rooms[9];
  bool mixed, wanted[3];
  NET_NEED(OP_HAS(call, diopiLayerNormBackward) && grad && input && mean && rstd &&
           net_get_optional(call, 5, &parameters[0]) && net_get_optional(call, 6, &parameters[1]));
  NET_NEED(check_parameters(input, parameters, 2, &mixed) && check_normalized(input, shape, parameters, 2) &&
           grad->dtype == input->dtype && op_same_sizes(grad, input->ndim, input->sizes));
  for (int i = 0; i < 3; i++) {
    struct dit_tensor_view *like = i == 0 ? input : parameters[i - 1];
    wanted[i] = net_wants(call, 7, i) && like;
    if (wanted[i]) {
      DIT_RETURN_IF_NOT_OK(net_new(call, like->ndim, like->sizes, 0, like->dtype, &made[i]));
    }
  }
  if (input->numel == 0) {
    return return_zeros(call, made, wanted, 3);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(
      call, &context, diopiLayerNormBackward, op_handle(call, &rooms[0], wanted[0] ? &made[0] : NULL),
      op_handle(call, &rooms[1], wanted[1] ? &made[1] : NULL), op_handle(call, &rooms[2], wanted[2] ? &made[2] : NULL),
      op_handle(call, &rooms[3], grad), op_handle(call, &rooms[4], input), op_handle(call, &rooms[5], parameters[0]),
      op_handle(call, &rooms[6], parameters[1]), op_handle(call, &rooms[7], mean), op_handle(call, &rooms[8], rstd),
      shape));
  for (int i = 0; i < 3; i++) {
    net_return_optional(call, i, wanted[i], &made[i]);
  }
  return DIT_OK;
}

enum dit_status op_rms_norm(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *weight, out, rstd;
  const diopiSize_t shape = net_get_sizes(call, 1);
  int64_t stat_sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(OP_HAS(call, diopiRMSNorm) && input && net_get_optional(call, 2, &weight) &&
           (!weight || weight->dtype == input->dtype) && check_normalized(input, shape, &weight, 1) &&
           op_is_floating(input->dtype));
  // PyTorch's default: the epsilon of the type that is computed in.
  const double epsilon = input->dtype == DIT_DTYPE_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
  const double eps = call->args[3].tag == DIT_VALUE_NONE ? epsilon : net_get_double(call, 3);
  const int stat = op_is_half(input->dtype) ? DIT_DTYPE_F32 : input->dtype;
  fill_stat_sizes(input, shape.len, stat_sizes);
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, 0, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, stat_sizes, 0, stat, &rstd));
  (void)op_return(call, 1, &rstd);
  if (input->numel == 0) {
    return op_return(call, 0, &out);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiRMSNorm, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &rstd), op_handle(call, &rooms[2], input), shape,
                                op_handle(call, &rooms[3], weight), NULL, eps));
  return op_return(call, 0, &out);
}

enum dit_status op_rms_norm_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *rstd = net_get(call, 3), *weight,
                         made[2];
  const diopiSize_t shape = net_get_sizes(call, 2);
  struct diopiContext context;
  struct diopiTensor rooms[6];
  NET_NEED(OP_HAS(call, diopiRMSNormBackward) && grad && input && rstd && net_get_optional(call, 4, &weight) &&
           (!weight || weight->dtype == input->dtype) && check_normalized(input, shape, &weight, 1) &&
           grad->dtype == input->dtype && op_same_sizes(grad, input->ndim, input->sizes));
  const bool wanted[2] = {net_wants(call, 5, 0), weight && net_wants(call, 5, 1)};
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, 0, input->dtype, &made[0]));
  if (wanted[1]) {
    DIT_RETURN_IF_NOT_OK(net_new(call, weight->ndim, weight->sizes, 0, weight->dtype, &made[1]));
  }
  if (input->numel == 0) {
    return return_zeros(call, made, wanted, 2);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiRMSNormBackward, op_handle(call, &rooms[0], &made[0]),
                                op_handle(call, &rooms[1], wanted[1] ? &made[1] : NULL), NULL,
                                op_handle(call, &rooms[2], grad), op_handle(call, &rooms[3], input),
                                op_handle(call, &rooms[4], weight), NULL, op_handle(call, &rooms[5], rstd), shape,
                                0.0));
  net_return_optional(call, 1, wanted[1], &made[1]);
  net_return_optional(call, 0, wanted[0], &made[0]);
  return DIT_OK;
}

/// (N, C, *) with N, C, HxW and groups as the arguments from `first` on say, dense in its memory format.
static bool check_groups(struct dit_call *call, int first, const struct dit_tensor_view *input,
                         const struct dit_tensor_view *parameter) {
  const int64_t n = call->args[first].v.i, c = call->args[first + 1].v.i, hw = call->args[first + 2].v.i,
                groups = call->args[first + 3].v.i;
  const int64_t channels[1] = {c};
  return input->ndim >= 2 && input->sizes[0] == n && input->sizes[1] == c && groups > 0 && c % groups == 0 &&
         multiply(input->sizes + 2, input->ndim - 2) == hw && c > 0 && hw > 0 &&
         (!parameter || op_same_sizes(parameter, 1, channels));
}

enum dit_status op_group_norm(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *parameters[2], out, mean, rstd;
  struct diopiContext context;
  struct diopiTensor rooms[6];
  bool mixed;
  NET_NEED(OP_HAS(call, diopiGroupNorm) && input && net_get_optional(call, 1, &parameters[0]) &&
           net_get_optional(call, 2, &parameters[1]));
  NET_NEED(check_parameters(input, parameters, 2, &mixed) && check_groups(call, 3, input, parameters[0]) &&
           check_groups(call, 3, input, parameters[1]));
  const int64_t stat_sizes[2] = {input->sizes[0], call->args[6].v.i};
  const int stat = mixed ? DIT_DTYPE_F32 : input->dtype;
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(net_new(call, 2, stat_sizes, 0, stat, &mean));
  DIT_RETURN_IF_NOT_OK(net_new(call, 2, stat_sizes, 0, stat, &rstd));
  (void)op_return(call, 1, &mean);
  (void)op_return(call, 2, &rstd);
  if (input->numel == 0) {
    return op_return(call, 0, &out);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiGroupNorm, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &mean), op_handle(call, &rooms[2], &rstd),
                                op_handle(call, &rooms[3], input), op_handle(call, &rooms[4], parameters[0]),
                                op_handle(call, &rooms[5], parameters[1]), call->args[6].v.i, net_get_double(call, 7)));
  return op_return(call, 0, &out);
}

enum dit_status op_group_norm_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *mean = net_get(call, 2),
                         *rstd = net_get(call, 3), *weight, made[3];
  struct diopiContext context;
  struct diopiTensor rooms[8];
  bool mixed, wanted[3];
  NET_NEED(OP_HAS(call, diopiGroupNormBackward) && grad && input && mean && rstd && net_get_optional(call, 4, &weight));
  NET_NEED(check_parameters(input, &weight, 1, &mixed) && check_groups(call, 5, input, weight) &&
           grad->dtype == input->dtype && op_same_sizes(grad, input->ndim, input->sizes));
  const int stat = mixed ? DIT_DTYPE_F32 : input->dtype;
  for (int i = 0; i < 3; i++) {
    wanted[i] = net_wants(call, 9, i);
    if (wanted[i]) {
      DIT_RETURN_IF_NOT_OK(
          i == 0 ? net_new(call, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &made[0])
                 : net_new(call, 1, input->sizes + 1, 0, weight ? weight->dtype : stat, &made[i]));
    }
  }
  if (input->numel == 0) {
    return return_zeros(call, made, wanted, 3);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(
      call, &context, diopiGroupNormBackward, op_handle(call, &rooms[0], wanted[0] ? &made[0] : NULL),
      op_handle(call, &rooms[1], wanted[1] ? &made[1] : NULL), op_handle(call, &rooms[2], wanted[2] ? &made[2] : NULL),
      op_handle(call, &rooms[3], grad), op_handle(call, &rooms[4], input), op_handle(call, &rooms[5], weight),
      op_handle(call, &rooms[6], mean), op_handle(call, &rooms[7], rstd), call->args[8].v.i));
  for (int i = 0; i < 3; i++) {
    net_return_optional(call, i, wanted[i], &made[i]);
  }
  return DIT_OK;
}

/// All of the four that are there are 1-d with the size of the channels.
static bool check_channels(const struct dit_tensor_view *input, struct dit_tensor_view *const *parameters) {
  for (int i = 0; i < 4; i++) {
    if (parameters[i] && !op_same_sizes(parameters[i], 1, input->sizes + 1)) {
      return false;
    }
  }
  return true;
}

static bool is_all_contiguous(const struct dit_tensor_view *input, struct dit_tensor_view *const *parameters) {
  bool all = input->flags & DIT_TENSOR_CONTIGUOUS;
  for (int i = 0; i < 4; i++) {
    all = all && (!parameters[i] || parameters[i]->flags & DIT_TENSOR_CONTIGUOUS);
  }
  return all;
}

/// Arguments: input, weight, bias, [running_mean, running_var,] training, momentum, eps. `given` counts those before
/// training, without the input: 4, or 2 where the running statistics are absent. `functional`: those stay as they are,
/// and the new ones are results.
static enum dit_status run_batch_norm(struct dit_call *call, int given, bool functional) {
  struct dit_tensor_view *input = net_get(call, 0), *parameters[4] = {NULL}, out, mean, invstd, running[2];
  struct diopiContext context;
  struct diopiTensor rooms[8];
  bool mixed;
  NET_NEED(OP_HAS(call, diopiBatchNorm) && input && input->ndim >= 2 && input->numel > 0);
  for (int i = 0; i < given; i++) {
    NET_NEED(net_get_optional(call, 1 + i, &parameters[i]));
  }
  const bool training = call->args[given + 1].v.i != 0;
  NET_NEED(check_parameters(input, parameters, 4, &mixed) && check_channels(input, parameters));
  NET_NEED(training || (parameters[2] && parameters[3]));
  const int64_t empty[1] = {0};
  const int format = is_all_contiguous(input, parameters) ? 0 : op_suggest_format(input);
  const int stat = mixed ? DIT_DTYPE_F32 : input->dtype;
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, format, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(net_new(call, 1, training ? input->sizes + 1 : empty, 0, stat, &mean));
  DIT_RETURN_IF_NOT_OK(net_new(call, 1, training ? input->sizes + 1 : empty, 0, stat, &invstd));
  for (int i = 0; functional && i < 2; i++) {
    NET_NEED(parameters[2 + i]);
    DIT_RETURN_IF_NOT_OK(net_new_like(call, parameters[2 + i], parameters[2 + i]->dtype, &running[i]));
    DIT_RETURN_IF_NOT_OK(op_copy(call, &running[i], parameters[2 + i]));
    parameters[2 + i] = &running[i];
    (void)op_return(call, 3 + i, &running[i]);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBatchNorm, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], training ? &mean : NULL),
                                op_handle(call, &rooms[2], training ? &invstd : NULL),
                                op_handle(call, &rooms[3], input), op_handle(call, &rooms[4], parameters[0]),
                                op_handle(call, &rooms[5], parameters[1]), op_handle(call, &rooms[6], parameters[2]),
                                op_handle(call, &rooms[7], parameters[3]), training, net_get_double(call, given + 2),
                                net_get_double(call, given + 3)));
  (void)op_return(call, 1, &mean);
  (void)op_return(call, 2, &invstd);
  return op_return(call, 0, &out);
}

enum dit_status op_batch_norm(struct dit_call *call) {
  return run_batch_norm(call, 4, false);
}
/// The overload no_stats.
enum dit_status op_batch_norm_bare(struct dit_call *call) {
  return run_batch_norm(call, 2, false);
}
enum dit_status op_batch_norm_functional(struct dit_call *call) {
  return run_batch_norm(call, 4, true);
}

enum dit_status op_batch_norm_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *parameters[5], made[3];
  const bool training = call->args[7].v.i != 0;
  struct diopiContext context;
  struct diopiTensor rooms[10];
  bool mixed, wanted[3];
  NET_NEED(OP_HAS(call, diopiBatchNormBackward) && grad && input && input->ndim >= 2 && input->numel > 0);
  for (int i = 0; i < 5; i++) {  // weight, running mean and variance, saved mean and invstd
    NET_NEED(net_get_optional(call, 2 + i, &parameters[i]));
  }
  struct dit_tensor_view *checked[4] = {parameters[0], parameters[1], parameters[2], NULL};
  NET_NEED(check_parameters(input, checked, 3, &mixed) && check_channels(input, checked) &&
           grad->dtype == input->dtype && op_same_sizes(grad, input->ndim, input->sizes) &&
           (training ? parameters[3] && parameters[4] : parameters[1] && parameters[2]));
  const bool contiguous = input->flags & DIT_TENSOR_CONTIGUOUS && grad->flags & DIT_TENSOR_CONTIGUOUS;
  const int stat = mixed ? DIT_DTYPE_F32 : input->dtype;
  for (int i = 0; i < 3; i++) {
    wanted[i] = net_wants(call, 9, i);
    if (wanted[i]) {
      DIT_RETURN_IF_NOT_OK(i == 0 ? net_new(call, input->ndim, input->sizes, contiguous ? 0 : op_suggest_format(input),
                                            input->dtype, &made[0])
                                  : net_new(call, 1, input->sizes + 1, 0, stat, &made[i]));
    }
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(
      call, &context, diopiBatchNormBackward, op_handle(call, &rooms[0], wanted[0] ? &made[0] : NULL),
      op_handle(call, &rooms[1], wanted[1] ? &made[1] : NULL), op_handle(call, &rooms[2], wanted[2] ? &made[2] : NULL),
      op_handle(call, &rooms[3], grad), op_handle(call, &rooms[4], input), op_handle(call, &rooms[5], parameters[0]),
      op_handle(call, &rooms[6], parameters[1]), op_handle(call, &rooms[7], parameters[2]),
      op_handle(call, &rooms[8], training ? parameters[3] : NULL),
      op_handle(call, &rooms[9], training ? parameters[4] : NULL), training, net_get_double(call, 8)));
  for (int i = 0; i < 3; i++) {
    net_return_optional(call, i, wanted[i], &made[i]);
  }
  return DIT_OK;
}
