/// Connectionist temporal classification: the losses of a batch, and their gradient.
///
/// log_probs (T, N, C) or (T, C), targets (N, S) or one after the other; the lengths are lists of numbers or int64
/// tensors of N. Results: the losses (N) or (), and log_alpha (N, T, 2 S + 1), S the longest target. The framework
/// reduces the losses. Wrong lengths and targets are left to the CPU's kernel, which words the errors.
#include "network.h"
#include "table.h"

/// Lengths on the device; a list of numbers is put into a new tensor.
static enum dit_status get_lengths(struct dit_call *call, int index, int64_t batch, struct dit_tensor_view *out) {
  struct dit_tensor_view *given = net_get(call, index);
  if (given) {
    NET_NEED(net_is_index(given) && given->numel == batch && given->ndim <= 1);
    *out = *given;
    return DIT_OK;
  }
  const diopiSize_t list = net_get_sizes(call, index);
  DIT_RETURN_IF_NOT_OK(net_new(call, 1, &batch, 0, DIT_DTYPE_I64, out));
  for (int64_t i = 0; i < batch; i++) {
    const int64_t one = 1;
    struct dit_tensor_view element = *out;
    struct diopiContext context;
    struct diopiTensor room;
    diopiScalar_t number;
    element.data = (int64_t *)out->data + i;
    element.sizes = element.strides = &one;
    element.numel = 1;
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiFill, op_handle(call, &room, &element),
                                  op_scalar(&number, (struct dit_scalar){DIT_SCALAR_INT, {.i = list.data[i]}})));
  }
  return DIT_OK;
}

struct ctc {
  struct dit_tensor_view *probs, *targets;
  int64_t steps, batch, classes, longest;
};

/// Everything that can be checked without reading the device. A list of lengths is, a tensor of them is not.
static bool read_ctc(struct dit_call *call, int first, int64_t blank, struct ctc *ctc) {
  const struct dit_tensor_view *probs = ctc->probs = net_get(call, first);
  const struct dit_tensor_view *targets = ctc->targets = net_get(call, first + 1);
  if (!probs || !targets || (probs->ndim != 2 && probs->ndim != 3) || probs->numel == 0 ||
      (probs->dtype != DIT_DTYPE_F32 && probs->dtype != DIT_DTYPE_F64) || !net_is_index(targets) || targets->ndim < 1 ||
      targets->ndim > 2) {
    return false;
  }
  ctc->steps = probs->sizes[0];
  ctc->batch = probs->ndim == 3 ? probs->sizes[1] : 1;
  ctc->classes = probs->sizes[probs->ndim - 1];
  ctc->longest = 0;
  const diopiSize_t inputs = net_get_sizes(call, first + 2), labels = net_get_sizes(call, first + 3);
  const int64_t width = targets->ndim == 2 ? targets->sizes[1] : targets->numel;
  int64_t total = 0;
  if (blank < 0 || blank >= ctc->classes || inputs.len != ctc->batch || labels.len != ctc->batch ||
      (targets->ndim == 2 && targets->sizes[0] != ctc->batch)) {
    return false;
  }
  for (int64_t i = 0; i < ctc->batch; i++) {
    if (inputs.data[i] < 0 || inputs.data[i] > ctc->steps || labels.data[i] < 0 || labels.data[i] > width) {
      return false;
    }
    total += labels.data[i];
    ctc->longest = labels.data[i] > ctc->longest ? labels.data[i] : ctc->longest;
  }
  return targets->ndim == 2 || total == targets->numel;
}

enum dit_status op_ctc_loss(struct dit_call *call) {
  struct ctc ctc;
  struct dit_tensor_view lengths[2], losses, out, alpha;
  struct diopiContext context;
  struct diopiTensor rooms[7];
  const int64_t blank = call->args[4].v.i;
  NET_NEED(OP_HAS(call, diopiCTCLoss) && OP_HAS(call, diopiFill) && read_ctc(call, 0, blank, &ctc));
  const int64_t sizes[3] = {ctc.batch, ctc.steps, 2 * ctc.longest + 1};
  const int single = ctc.probs->ndim == 2;  // without a batch the losses are one number
  for (int i = 0; i < 2; i++) {
    DIT_RETURN_IF_NOT_OK(get_lengths(call, 2 + i, ctc.batch, &lengths[i]));
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, 1, sizes, 0, ctc.probs->dtype, &out));
  DIT_RETURN_IF_NOT_OK(net_new(call, single ? 0 : 1, sizes, 0, ctc.probs->dtype, &losses));
  DIT_RETURN_IF_NOT_OK(net_new(call, single ? 2 : 3, single ? sizes + 1 : sizes, 0, ctc.probs->dtype, &alpha));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiCTCLoss, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &losses), op_handle(call, &rooms[2], &alpha),
                                op_handle(call, &rooms[3], ctc.probs), op_handle(call, &rooms[4], ctc.targets),
                                op_handle(call, &rooms[5], &lengths[0]), op_handle(call, &rooms[6], &lengths[1]), blank,
                                ReductionNone, false));
  (void)op_return(call, 1, &alpha);
  return op_return(call, 0, &losses);
}

enum dit_status op_ctc_loss_backward(struct dit_call *call) {
  struct ctc ctc;
  struct dit_tensor_view *grad = net_get(call, 0), *losses = net_get(call, 5), *alpha = net_get(call, 6);
  struct dit_tensor_view lengths[2], out;
  struct diopiContext context;
  struct diopiTensor rooms[8];
  const int64_t blank = call->args[7].v.i;
  NET_NEED(OP_HAS(call, diopiCTCLossBackward) && OP_HAS(call, diopiFill) && read_ctc(call, 1, blank, &ctc) && grad &&
           losses && alpha && grad->dtype == ctc.probs->dtype && losses->dtype == ctc.probs->dtype &&
           alpha->dtype == ctc.probs->dtype && grad->numel == ctc.batch && losses->numel == ctc.batch);
  for (int i = 0; i < 2; i++) {
    DIT_RETURN_IF_NOT_OK(get_lengths(call, 3 + i, ctc.batch, &lengths[i]));
  }
  DIT_RETURN_IF_NOT_OK(net_new(call, ctc.probs->ndim, ctc.probs->sizes, 0, ctc.probs->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiCTCLossBackward, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], grad), op_handle(call, &rooms[2], ctc.probs),
                                op_handle(call, &rooms[3], ctc.targets), op_handle(call, &rooms[4], &lengths[0]),
                                op_handle(call, &rooms[5], &lengths[1]), op_handle(call, &rooms[6], losses),
                                op_handle(call, &rooms[7], alpha), blank, ReductionNone, call->args[8].v.i != 0));
  return op_return(call, 0, &out);
}
