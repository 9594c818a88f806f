/// The pieces of torch.nn.SyncBatchNorm: statistics of one process, their union over all, and the gradients.
///
/// batch_norm_stats                       mean, 1 / sqrt(var + eps) per channel (dimension 1) of this process
/// batch_norm_gather_stats_with_counts    the same of all processes, from (processes, C); running statistics in place
/// batch_norm_elemt                       (input - mean) * invstd * weight + bias
/// batch_norm_backward_reduce             sums of grad and of grad * (input - mean), gradients of weight and bias
/// batch_norm_backward_elemt              the gradient of the input from the sums over all processes
///
/// Statistics are float32 for half inputs, else of the input's dtype; results like the input keep its memory format.
/// PyTorch has no CPU kernel for these: what the library refuses is an error.
#include "network.h"
#include "table.h"

static bool is_input(const struct dit_tensor_view *input) {
  return input && input->ndim >= 2 && op_is_floating(input->dtype) && input->numel > 0;
}

/// `count` of the views have one element per channel.
static bool are_channels(const struct dit_tensor_view *input, struct dit_tensor_view *const *views, int count) {
  for (int i = 0; i < count; i++) {
    if (views[i] && (!op_is_floating(views[i]->dtype) || !op_same_sizes(views[i], 1, input->sizes + 1))) {
      return false;
    }
  }
  return true;
}

static int get_stat_dtype(const struct dit_tensor_view *input) {
  return op_is_half(input->dtype) ? DIT_DTYPE_F32 : input->dtype;
}

enum dit_status op_batch_norm_stats(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), made[2];
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiBatchNormStats) && is_input(input));
  for (int i = 0; i < 2; i++) {
    DIT_RETURN_IF_NOT_OK(net_new(call, 1, input->sizes + 1, 0, get_stat_dtype(input), &made[i]));
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBatchNormStats, op_handle(call, &rooms[0], &made[0]),
                                op_handle(call, &rooms[1], &made[1]), op_handle(call, &rooms[2], input),
                                net_get_double(call, 1)));
  (void)op_return(call, 1, &made[1]);
  return op_return(call, 0, &made[0]);
}

/// (input, mean, invstd, running_mean, running_var, momentum, eps, counts)
enum dit_status op_batch_norm_gather_stats(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *mean = net_get(call, 1), *invstd = net_get(call, 2), *running[2],
                         *counts = net_get(call, 7), made[2];
  struct diopiContext context;
  struct diopiTensor rooms[8];
  NET_NEED(OP_HAS(call, diopiBatchNormGatherStatsWithCounts) && mean && invstd && counts && mean->ndim == 2 &&
           op_same_sizes(invstd, 2, mean->sizes) && net_get_optional(call, 3, &running[0]) &&
           net_get_optional(call, 4, &running[1]));
  for (int i = 0; i < 2; i++) {
    DIT_RETURN_IF_NOT_OK(net_new(call, 1, mean->sizes + 1, 0, mean->dtype, &made[i]));
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBatchNormGatherStatsWithCounts,
                                op_handle(call, &rooms[0], &made[0]), op_handle(call, &rooms[1], &made[1]),
                                op_handle(call, &rooms[2], input), op_handle(call, &rooms[3], mean),
                                op_handle(call, &rooms[4], invstd), op_handle(call, &rooms[5], running[0]),
                                op_handle(call, &rooms[6], running[1]), (float)net_get_double(call, 5),
                                (float)net_get_double(call, 6), op_handle(call, &rooms[7], counts)));
  (void)op_return(call, 1, &made[1]);
  return op_return(call, 0, &made[0]);
}

/// (input, weight, bias, mean, invstd, eps)
enum dit_status op_batch_norm_elemt(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *views[4], *given, out;
  struct diopiContext context;
  struct diopiTensor rooms[6];
  views[2] = net_get(call, 3);
  views[3] = net_get(call, 4);
  NET_NEED(OP_HAS(call, diopiBatchNormElemt) && is_input(input) && net_get_optional(call, 1, &views[0]) &&
           net_get_optional(call, 2, &views[1]) && views[2] && views[3] && are_channels(input, views, 4) &&
           net_get_given(call, 6, &given));
  const struct dit_tensor_view *const inputs[1] = {input};
  DIT_RETURN_IF_NOT_OK(
      net_prepare(call, given, inputs, 1, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBatchNormElemt, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], input), op_handle(call, &rooms[2], views[0]),
                                op_handle(call, &rooms[3], views[1]), op_handle(call, &rooms[4], views[2]),
                                op_handle(call, &rooms[5], views[3]), (float)net_get_double(call, 5)));
  return op_return(call, 0, &out);
}

/// (grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g)
enum dit_status op_batch_norm_backward_reduce(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *views[3], made[4];
  struct diopiContext context;
  struct diopiTensor rooms[9];
  bool wanted[4];
  views[1] = net_get(call, 2);
  views[2] = net_get(call, 3);
  NET_NEED(OP_HAS(call, diopiBatchNormBackwardReduce) && is_input(input) && grad && grad->dtype == input->dtype &&
           op_same_sizes(grad, input->ndim, input->sizes) && net_get_optional(call, 4, &views[0]) && views[1] &&
           views[2] && are_channels(input, views, 3));
  wanted[0] = wanted[1] = call->args[5].v.i != 0;
  wanted[2] = call->args[6].v.i != 0;
  wanted[3] = call->args[7].v.i != 0;
  for (int i = 0; i < 4; i++) {
    const int dtype = i > 1 && views[0] ? views[0]->dtype : views[1]->dtype;
    if (wanted[i]) {
      DIT_RETURN_IF_NOT_OK(net_new(call, 1, input->sizes + 1, 0, dtype, &made[i]));
    }
  }
  diopiTensorHandle_t results[4];
  for (int i = 0; i < 4; i++) {
    results[i] = op_handle(call, &rooms[i], wanted[i] ? &made[i] : NULL);
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBatchNormBackwardReduce, results[0], results[1], results[2],
                                results[3], op_handle(call, &rooms[4], grad), op_handle(call, &rooms[5], input),
                                op_handle(call, &rooms[6], views[1]), op_handle(call, &rooms[7], views[2]),
                                op_handle(call, &rooms[8], views[0]), wanted[0], wanted[2], wanted[3]));
  for (int i = 0; i < 4; i++) {
    net_return_optional(call, i, wanted[i], &made[i]);
  }
  return DIT_OK;
}

/// (grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count)
enum dit_status op_batch_norm_backward_elemt(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *views[5], *count = net_get(call, 7), out;
  static const int places[5] = {4, 2, 3, 5, 6};
  struct diopiContext context;
  struct diopiTensor rooms[9];
  diopiTensorHandle_t handles[5];
  NET_NEED(OP_HAS(call, diopiBatchNormBackwardElemt) && is_input(input) && grad && grad->dtype == input->dtype &&
           op_same_sizes(grad, input->ndim, input->sizes) && count && net_get_optional(call, 4, &views[0]));
  for (int i = 0; i < 5; i++) {
    views[i] = net_get(call, places[i]);
    NET_NEED(views[i] || i == 0);
    handles[i] = op_handle(call, &rooms[i], views[i]);
  }
  NET_NEED(are_channels(input, views, 5));
  DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, op_suggest_format(input), input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBatchNormBackwardElemt, op_handle(call, &rooms[5], &out),
                                op_handle(call, &rooms[6], grad), op_handle(call, &rooms[7], input), handles[1],
                                handles[2], handles[0], handles[3], handles[4], op_handle(call, &rooms[8], count)));
  return op_return(call, 0, &out);
}
