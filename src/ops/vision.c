/// Operators of torchvision that the standard has: nms, roi_align and its gradient.
///
/// They arrive under torchvision's own names when that library is loaded; nothing here depends on it. boxes (N, 4) and
/// scores (N) of one floating dtype; the result of nms has as many elements as boxes stay, so the library makes it.
/// roi_align: input (N, C, H, W), rois (K, 5), both of one floating dtype, row-major results.
#include <stddef.h>

#include "invoke.h"
#include "network.h"
#include "table.h"

static struct dit_tensor_view *get_floating(struct dit_call *call, int index, int ndim) {
  struct dit_tensor_view *view = net_get(call, index);
  return view && view->ndim == ndim && op_is_floating(view->dtype) ? view : NULL;
}

enum dit_status op_nms(struct dit_call *call) {
  const struct dit_tensor_view *boxes = get_floating(call, 0, 2), *scores = get_floating(call, 1, 1);
  struct dit_tensor_view out = {0};
  struct diopiContext context;
  struct diopiTensor rooms[2];
  diopiTensorHandle_t made = NULL;
  NET_NEED(OP_HAS(call, diopiNms) && boxes && scores && boxes->dtype == scores->dtype && boxes->sizes[1] == 4 &&
           boxes->sizes[0] == scores->sizes[0]);
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiNms);
  }
  const diopiError_t code = call->diopi->functions.diopiNms(
      &context, &made, op_handle(call, &rooms[0], boxes), op_handle(call, &rooms[1], scores), net_get_double(call, 2));
  DIT_RETURN_IF_NOT_OK(net_finish_made(call, &context, DIT_DIOPI_diopiNms, code, made, &out));
  return op_return(call, 0, &out);
}

/// roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)
enum dit_status op_roi_align(struct dit_call *call) {
  const struct dit_tensor_view *input = get_floating(call, 0, 4), *rois = get_floating(call, 1, 2);
  struct dit_tensor_view out = {0};
  const struct dit_tensor_view *outs[1] = {&out};
  NET_NEED(OP_HAS(call, diopiRoiAlign) && input && rois && input->dtype == rois->dtype && rois->sizes[1] == 5);
  const int64_t sizes[4] = {rois->sizes[0], input->sizes[1], call->args[3].v.i, call->args[4].v.i};
  NET_NEED(sizes[2] > 0 && sizes[3] > 0);
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 4, sizes, NULL, input->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}

/// _roi_align_backward(grad, rois, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width,
/// sampling_ratio, aligned)
enum dit_status op_roi_align_backward(struct dit_call *call) {
  const struct dit_tensor_view *grad = get_floating(call, 0, 4), *rois = get_floating(call, 1, 2);
  struct dit_tensor_view out = {0};
  const struct dit_tensor_view *outs[1] = {&out};
  NET_NEED(OP_HAS(call, diopiRoiAlignBackward) && grad && rois && grad->dtype == rois->dtype && rois->sizes[1] == 5 &&
           grad->sizes[0] == rois->sizes[0]);
  int64_t sizes[4];
  for (int dim = 0; dim < 4; dim++) {
    sizes[dim] = call->args[5 + dim].v.i;
    NET_NEED(sizes[dim] >= 0);
  }
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 4, sizes, NULL, grad->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}
