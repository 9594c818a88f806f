/// Losses and their gradients: mse_loss, smooth_l1_loss, binary_cross_entropy (with and without logits), nll_loss over
/// classes and over images.
///
/// reduction 0 keeps every element, 1 is the mean, 2 the sum; both of the latter give a 0-d tensor. Input, target and
/// weight have one floating dtype and, but for binary_cross_entropy_with_logits' weights, one shape; anything else goes
/// to the CPU.
#include "network.h"
#include "table.h"

static bool read_reduction(const struct dit_call *call, int index, diopiReduction_t *out) {
  const int64_t reduction = call->args[index].v.i;
  *out = (diopiReduction_t)reduction;
  return call->args[index].tag == DIT_VALUE_INT && reduction >= 0 && reduction <= 2;
}

static bool is_pair(const struct dit_tensor_view *input, const struct dit_tensor_view *target) {
  return input && target && input->numel > 0 && op_is_floating(input->dtype) && input->dtype == target->dtype &&
         op_same_sizes(target, input->ndim, input->sizes);
}

/// What the gradient of a loss may be: 0-d after a reduction, else of the input's shape (or broadcast to it).
static bool is_loss_gradient(const struct dit_tensor_view *grad, const struct dit_tensor_view *input,
                             diopiReduction_t reduction) {
  return grad && grad->dtype == input->dtype &&
         (reduction == ReductionNone ? op_same_sizes(grad, input->ndim, input->sizes) : grad->numel == 1);
}

/// A result per element with the strides of TensorIterator over both inputs, or 0-d.
static enum dit_status prepare_loss(struct dit_call *call, const struct dit_tensor_view *input,
                                    const struct dit_tensor_view *target, diopiReduction_t reduction,
                                    struct dit_tensor_view *given, struct dit_tensor_view *out) {
  const struct dit_tensor_view *inputs[2] = {input, target};
  struct op_layout layout;
  bool same_shape;
  if (given) {
    return op_prepare_contiguous(call, given, inputs, 2, reduction == ReductionNone ? input->ndim : 0, input->sizes,
                                 input->dtype, out);
  }
  if (reduction != ReductionNone) {
    return net_new(call, 0, NULL, 0, input->dtype, out);
  }
  DIT_RETURN_IF_NOT_OK(op_broadcast(inputs, 2, &layout, &same_shape, call->err));
  return op_prepare(call, OP_NEW, inputs, 2, input->dtype, &layout, same_shape, out);
}

/// mse_loss(self, target, reduction) and smooth_l1_loss(self, target, reduction, beta).
enum dit_status op_distance_loss(struct dit_call *call) {
  const bool smooth = call->op->function == DIT_DIOPI_diopiSmoothL1Loss;
  struct dit_tensor_view *input = net_get(call, 0), *target = net_get(call, 1), *given, out;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  diopiReduction_t reduction;
  NET_NEED((smooth ? OP_HAS(call, diopiSmoothL1Loss) : OP_HAS(call, diopiMSELoss)) && is_pair(input, target) &&
           read_reduction(call, 2, &reduction) && net_get_given(call, smooth ? 4 : 3, &given));
  const double beta = smooth ? net_get_double(call, 3) : 0;
  NET_NEED(beta >= 0);
  DIT_RETURN_IF_NOT_OK(prepare_loss(call, input, target, reduction, given, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), x = op_handle(call, &rooms[1], input),
                      t = op_handle(call, &rooms[2], target);
  DIT_RETURN_IF_NOT_OK(smooth ? OP_DIOPI(call, &context, diopiSmoothL1Loss, o, x, t, reduction, beta)
                              : OP_DIOPI(call, &context, diopiMSELoss, o, x, t, reduction));
  return op_return(call, 0, &out);
}

/// The same with grad_output in front.
enum dit_status op_distance_loss_backward(struct dit_call *call) {
  const bool smooth = call->op->function == DIT_DIOPI_diopiSmoothL1LossBackward;
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *target = net_get(call, 2), *given, out;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  diopiReduction_t reduction;
  NET_NEED((smooth ? OP_HAS(call, diopiSmoothL1LossBackward) : OP_HAS(call, diopiMSELossBackward)) &&
           is_pair(input, target) && read_reduction(call, 3, &reduction) && is_loss_gradient(grad, input, reduction) &&
           net_get_given(call, smooth ? 5 : 4, &given));
  const double beta = smooth ? net_get_double(call, 4) : 0;
  NET_NEED(beta >= 0);
  const struct dit_tensor_view *const inputs[3] = {grad, input, target};
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 3, input->ndim, input->sizes, 0, input->dtype, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), g = op_handle(call, &rooms[1], grad),
                      x = op_handle(call, &rooms[2], input), t = op_handle(call, &rooms[3], target);
  DIT_RETURN_IF_NOT_OK(smooth ? OP_DIOPI(call, &context, diopiSmoothL1LossBackward, o, g, x, t, reduction, beta)
                              : OP_DIOPI(call, &context, diopiMSELossBackward, o, g, x, t, reduction));
  return op_return(call, 0, &out);
}

/// A weight that broadcasts to the input, expanded; false when it is of another dtype or shape.
struct weight {
  struct dit_tensor_view *view, expanded;
  int64_t strides[DIT_MAX_DIMS];
};
static bool read_weight(struct dit_call *call, int index, const struct dit_tensor_view *input, struct weight *weight) {
  struct op_layout layout;
  bool same_shape;
  if (!net_get_optional(call, index, &weight->view)) {
    return false;
  }
  if (!weight->view) {
    return true;
  }
  const struct dit_tensor_view *views[2] = {input, weight->view};
  if (weight->view->dtype != input->dtype || op_broadcast(views, 2, &layout, &same_shape, NULL) != DIT_OK ||
      !op_same_sizes(input, layout.ndim, layout.sizes)) {
    return false;
  }
  op_expand(weight->view, &layout, weight->strides, &weight->expanded);
  weight->expanded.sizes = input->sizes;
  weight->view = &weight->expanded;
  return true;
}

/// binary_cross_entropy(self, target, weight, reduction). Element results keep the input's strides. Out= forms are left
/// to the CPU, whose kernel computes in the given tensor before it has the result's size.
enum dit_status op_bce(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *target = net_get(call, 1), out;
  struct weight weight;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  diopiReduction_t reduction;
  NET_NEED(OP_HAS(call, diopiBCELoss) && is_pair(input, target) && read_weight(call, 2, input, &weight) &&
           read_reduction(call, 3, &reduction));
  DIT_RETURN_IF_NOT_OK(reduction == ReductionNone ? net_new_like(call, input, input->dtype, &out)
                                                  : net_new(call, 0, NULL, 0, input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBCELoss, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], input), op_handle(call, &rooms[2], target),
                                op_handle(call, &rooms[3], weight.view), reduction));
  return op_return(call, 0, &out);
}

enum dit_status op_bce_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *target = net_get(call, 2), out;
  struct weight weight;
  struct diopiContext context;
  struct diopiTensor rooms[5];
  diopiReduction_t reduction;
  NET_NEED(OP_HAS(call, diopiBCELossBackward) && is_pair(input, target) && read_weight(call, 3, input, &weight) &&
           read_reduction(call, 4, &reduction) && is_loss_gradient(grad, input, reduction));
  DIT_RETURN_IF_NOT_OK(net_new_like(call, input, input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBCELossBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input),
                                op_handle(call, &rooms[3], target), op_handle(call, &rooms[4], weight.view),
                                reduction));
  return op_return(call, 0, &out);
}

/// binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction).
enum dit_status op_bce_logits(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *target = net_get(call, 1), out;
  struct weight weights[2];
  struct diopiContext context;
  struct diopiTensor rooms[5];
  diopiReduction_t reduction;
  NET_NEED(OP_HAS(call, diopiBCEWithLogits) && is_pair(input, target) && read_weight(call, 2, input, &weights[0]) &&
           read_weight(call, 3, input, &weights[1]) && read_reduction(call, 4, &reduction));
  DIT_RETURN_IF_NOT_OK(prepare_loss(call, input, target, reduction, NULL, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBCEWithLogits, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], input), op_handle(call, &rooms[2], target),
                                op_handle(call, &rooms[3], weights[0].view),
                                op_handle(call, &rooms[4], weights[1].view), reduction));
  return op_return(call, 0, &out);
}

/// (N, C), (C) or (N, C, H, W) with int64 targets of the shape without C; the weight has C elements.
static bool is_classes(const struct dit_tensor_view *input, const struct dit_tensor_view *target,
                       const struct dit_tensor_view *weight, bool images) {
  if (!input || !target || input->numel == 0 || !op_is_floating(input->dtype) || target->dtype != DIT_DTYPE_I64 ||
      (images ? input->ndim != 4 : input->ndim < 1 || input->ndim > 2)) {
    return false;
  }
  const int channel = input->ndim == 1 ? 0 : 1;
  if (target->ndim != input->ndim - 1) {
    return false;
  }
  for (int i = 0; i < target->ndim; i++) {
    if (target->sizes[i] != input->sizes[i < channel ? i : i + 1]) {
      return false;
    }
  }
  return !weight || (weight->dtype == input->dtype && op_same_sizes(weight, 1, input->sizes + channel));
}

/// The operators over images have their own names.
static bool is_over_images(const struct dit_call *call) {
  return strncmp(call->op->name, "aten::nll_loss2d", sizeof("aten::nll_loss2d") - 1) == 0;
}

/// A new result or the out= tensor at position `index` of the results.
static enum dit_status prepare_result(struct dit_call *call, int index, const struct dit_tensor_view *input,
                                      const struct dit_tensor_view *target, int ndim, const int64_t *sizes,
                                      struct dit_tensor_view *out) {
  struct dit_tensor_view *given;
  const struct dit_tensor_view *const inputs[2] = {input, target};
  NET_NEED(net_get_given(call, call->nargs - call->nrets + index, &given));
  return net_prepare(call, given, inputs, 2, ndim, sizes, 0, input->dtype, out);
}

/// nll_loss_forward and nll_loss2d_forward(self, target, weight, reduction, ignore_index).
enum dit_status op_nll_loss(struct dit_call *call) {
  struct dit_tensor_view *input = net_get(call, 0), *target = net_get(call, 1), *weight, out, total;
  struct diopiContext context;
  struct diopiTensor rooms[5];
  diopiReduction_t reduction;
  NET_NEED(OP_HAS(call, diopiNLLLossV2) && net_get_optional(call, 2, &weight) &&
           is_classes(input, target, weight, is_over_images(call)) && read_reduction(call, 3, &reduction));
  const bool each = reduction == ReductionNone && input->ndim > 1;
  DIT_RETURN_IF_NOT_OK(prepare_result(call, 0, input, target, each ? target->ndim : 0, target->sizes, &out));
  DIT_RETURN_IF_NOT_OK(prepare_result(call, 1, input, target, 0, NULL, &total));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(net_check_range(
      call,
      OP_DIOPI(call, &context, diopiNLLLossV2, op_handle(call, &rooms[0], &out), op_handle(call, &rooms[1], &total),
               op_handle(call, &rooms[2], input), op_handle(call, &rooms[3], target),
               op_handle(call, &rooms[4], weight), reduction, call->args[4].v.i)));
  (void)op_return(call, 1, &total);
  return op_return(call, 0, &out);
}

/// The same with grad_output in front and total_weight behind.
enum dit_status op_nll_loss_backward(struct dit_call *call) {
  const bool images = is_over_images(call);
  struct dit_tensor_view *grad = net_get(call, 0), *input = net_get(call, 1), *target = net_get(call, 2), *weight,
                         *total = net_get(call, 6), out;
  struct diopiContext context;
  struct diopiTensor rooms[6];
  diopiReduction_t reduction;
  NET_NEED(OP_HAS(call, diopiNLLLossV2Backward) && net_get_optional(call, 3, &weight) &&
           is_classes(input, target, weight, images) && read_reduction(call, 4, &reduction) && grad && total &&
           grad->dtype == input->dtype && total->dtype == input->dtype && total->numel == 1);
  const bool each = reduction == ReductionNone && input->ndim > 1;
  NET_NEED(each ? op_same_sizes(grad, target->ndim, target->sizes) : grad->numel == 1);
  DIT_RETURN_IF_NOT_OK(images && call->op->target == OP_NEW
                           ? net_new_like(call, input, input->dtype, &out)
                           : prepare_result(call, 0, input, target, input->ndim, input->sizes, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiNLLLossV2Backward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], input),
                                op_handle(call, &rooms[3], target), op_handle(call, &rooms[4], weight),
                                op_handle(call, &rooms[5], total), reduction, call->args[5].v.i));
  return op_return(call, 0, &out);
}
