/// Windows and borders: im2col (unfold of images), col2im (fold), unfold_backward, reflection and replication padding.
///
/// im2col   (N, C, H, W) -> (N, C kH kW, L), L the number of windows; col2im adds the windows up again. Both also
///          without N. Padding: pairs from the last dimension on; results of two spatial dimensions keep the memory
///          format, the others are row-major. Out= forms; nothing is in place.
#include "dit/window.h"
#include "invoke.h"
#include "network.h"
#include "table.h"

/// Lists of im2col and col2im: two numbers each.
struct window {
  diopiSize_t kernel, dilation, padding, stride;
};

/// The four lists from argument `first` on.
static bool read_window(const struct dit_call *call, int first, struct window *window) {
  diopiSize_t *lists[4] = {&window->kernel, &window->dilation, &window->padding, &window->stride};
  for (int i = 0; i < 4; i++) {
    *lists[i] = net_get_sizes(call, first + i);
    for (int64_t k = 0; k < 2; k++) {
      if (lists[i]->len != 2 || lists[i]->data[k] < (i == 2 ? 0 : 1) || lists[i]->data[k] > INT32_MAX) {
        return false;
      }
    }
  }
  return true;
}

/// Windows over an image of (height, width); 0 when none fits.
static int64_t count_windows(const struct window *window, const int64_t *image) {
  int64_t count = 1;
  for (int i = 0; i < 2; i++) {
    count *= dit_window_count(&(struct dit_window){image[i], window->kernel.data[i], window->stride.data[i],
                                                   window->padding.data[i], window->dilation.data[i], false});
  }
  return count;
}

static enum dit_status finish(struct dit_call *call, const struct dit_tensor_view *self, struct dit_tensor_view *given,
                              int ndim, const int64_t *sizes) {
  struct dit_tensor_view out;
  const struct dit_tensor_view *inputs[1] = {self}, *outs[1] = {&out};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 1, ndim, sizes, self->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}

enum dit_status op_im2col(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *given;
  struct window window;
  NET_NEED(OP_HAS(call, diopiIm2Col) && self && (self->ndim == 3 || self->ndim == 4) && op_is_floating(self->dtype) &&
           self->numel > 0 && read_window(call, 1, &window) && net_get_given(call, 5, &given));
  const int lead = self->ndim - 3;
  const int64_t windows = count_windows(&window, self->sizes + lead + 1);
  const int64_t rows = self->sizes[lead] * window.kernel.data[0] * window.kernel.data[1];
  const int64_t sizes[3] = {lead ? self->sizes[0] : rows, lead ? rows : windows, windows};
  NET_NEED(windows > 0);
  return finish(call, self, given, 2 + lead, sizes);
}

enum dit_status op_col2im(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *given;
  const diopiSize_t image = net_get_sizes(call, 1);
  struct window window;
  NET_NEED(OP_HAS(call, diopiCol2Im) && self && (self->ndim == 2 || self->ndim == 3) && op_is_floating(self->dtype) &&
           self->numel > 0 && image.len == 2 && image.data[0] > 0 && image.data[1] > 0 &&
           read_window(call, 2, &window) && net_get_given(call, 6, &given));
  const int lead = self->ndim - 2;
  const int64_t block = window.kernel.data[0] * window.kernel.data[1];
  NET_NEED(self->sizes[lead] % block == 0 && self->sizes[lead + 1] == count_windows(&window, image.data));
  int64_t sizes[4] = {self->sizes[0]};
  sizes[lead] = self->sizes[lead] / block;
  sizes[lead + 1] = image.data[0];
  sizes[lead + 2] = image.data[1];
  return finish(call, self, given, 3 + lead, sizes);
}

/// unfold_backward(grad, input_sizes, dim, size, step).
enum dit_status op_unfold_backward(struct dit_call *call) {
  struct dit_tensor_view *grad = op_get_tensor(call, 0);
  const diopiSize_t sizes = net_get_sizes(call, 1);
  int64_t dim = call->args[2].v.i;
  const int64_t size = call->args[3].v.i, step = call->args[4].v.i;
  NET_NEED(OP_HAS(call, diopiUnfoldBackward) && grad && op_is_device(grad) && op_is_element(grad->dtype) &&
           sizes.len > 0 && sizes.len < DIT_MAX_DIMS && grad->ndim == sizes.len + 1 &&
           net_wrap_dim(&dim, (int)sizes.len) && size > 0 && step > 0 && size <= sizes.data[dim]);
  return finish(call, grad, NULL, (int)sizes.len, sizes.data);
}

/// reflection_pad{1,2,3}d and replication_pad{1,2,3}d(self, padding).
enum dit_status op_pad(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *given, out;
  const diopiSize_t pad = net_get_sizes(call, 1);
  const bool reflects = strncmp(call->op->name, "aten::reflection", sizeof("aten::reflection") - 1) == 0;
  const int spatial = (int)(pad.len / 2);
  int64_t sizes[DIT_MAX_DIMS];
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiPad) && self && (self->ndim == spatial + 1 || self->ndim == spatial + 2) &&
           pad.len == 2 * spatial && spatial >= 1 && self->numel > 0 && net_get_given(call, 2, &given));
  op_copy_dims(sizes, self->sizes, self->ndim);
  for (int i = 0; i < spatial; i++) {
    const int dim = self->ndim - 1 - i;
    const int64_t before = pad.data[2 * i], behind = pad.data[2 * i + 1], size = self->sizes[dim];
    NET_NEED(!reflects || (before < size && behind < size));
    sizes[dim] += before + behind;
    NET_NEED(sizes[dim] > 0 && -before < size && -behind < size);
  }
  const struct dit_tensor_view *const inputs[1] = {self};
  DIT_RETURN_IF_NOT_OK(net_prepare(call, given, inputs, 1, self->ndim, sizes, spatial > 1 ? op_suggest_format(self) : 0,
                                   self->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiPad, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), pad, reflects ? "reflect" : "replicate", NULL));
  return op_return(call, 0, &out);
}
