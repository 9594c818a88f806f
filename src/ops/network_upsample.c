/// upsample_nearest, _linear, _bilinear, _bicubic and _trilinear with their gradients; grid_sampler_2d.
///
/// out (N, C, size...) from input (N, C, spatial...) of one to three spatial dimensions; the DIOPI function takes the
/// interpolation by name. Results keep the memory format of the tensor they come from. The library scales by the ratio
/// of the sizes: a call whose `scales` say otherwise goes to the CPU. grid_sampler_2d: zeros outside the image and
/// corners that are not aligned, which is what the standard's function does. Floating dtypes; no form is in place.
#include "network.h"
#include "table.h"

struct resize {
  struct dit_tensor_view *from, *given;
  int ndim;              ///< of the spatial dimensions
  const char *mode;      ///< NULL for nearest
  bool align;            ///< corners on top of each other
  diopiSize_t large;     ///< spatial sizes of the enlarged tensor
  const int64_t *sizes;  ///< of the result
  int64_t room[DIT_MAX_DIMS];
};

/// nearest1d, _linear1d, _bilinear2d, _bicubic2d, _trilinear3d: what comes after "aten::upsample_".
static void read_name(const struct dit_call *call, struct resize *resize) {
  static const char *const modes[] = {"linear", "bilinear", "bicubic", "trilinear"};
  const char *name = call->op->name + sizeof("aten::upsample_") - 1;
  resize->mode = NULL;
  for (int i = 0; i < 4; i++) {
    const size_t length = strlen(modes[i]);
    if (strncmp(name, modes[i], length) == 0) {
      resize->mode = modes[i];
      name += length;
      resize->ndim = name[0] - '0';
      return;
    }
  }
  resize->ndim = name[sizeof("nearest") - 1] - '0';
}

/// PyTorch steps by 1 / scale where a scale was given, the library by in / out: are they one number?
static bool is_ratio(const struct dit_value *scale, int64_t in, int64_t out, int dtype) {
  if (scale->tag == DIT_VALUE_NONE) {
    return true;
  }
  if (scale->tag != DIT_VALUE_DOUBLE) {
    return false;
  }
  if (scale->v.d <= 0) {
    return true;
  }
  const double step = 1.0 / scale->v.d;
  return dtype == DIT_DTYPE_F64 ? step == (double)in / (double)out : (float)step == (float)in / (float)out;
}

/// The arguments: (self, output_size, [align_corners], scales...) or (grad, output_size, input_size, ...).
static bool read(struct dit_call *call, bool backward, struct resize *resize) {
  read_name(call, resize);
  const diopiSize_t in = net_get_sizes(call, 2);
  int next = backward ? 3 : 2;
  resize->from = net_get(call, 0);
  resize->large = net_get_sizes(call, 1);
  resize->align = resize->mode && call->args[next].v.i != 0;
  next += resize->mode != NULL;
  const struct dit_tensor_view *from = resize->from;
  if (!from || !op_is_floating(from->dtype) || from->ndim != resize->ndim + 2 || resize->large.len != resize->ndim ||
      (backward && in.len != from->ndim) || !net_get_given(call, next + resize->ndim, &resize->given)) {
    return false;
  }
  op_copy_dims(resize->room, from->sizes, 2);
  for (int i = 0; i < resize->ndim; i++) {
    const int64_t small = backward ? in.data[2 + i] : from->sizes[2 + i], large = resize->large.data[i];
    if (small < 1 || large < 1 || (backward && from->sizes[2 + i] != large) ||
        (!resize->align && !is_ratio(&call->args[next + i], small, large, from->dtype))) {
      return false;
    }
    resize->room[2 + i] = backward ? small : large;
  }
  resize->sizes = resize->room;
  return !backward || (in.data[0] == from->sizes[0] && in.data[1] == from->sizes[1]);
}

static enum dit_status prepare(struct dit_call *call, const struct resize *resize, struct dit_tensor_view *out) {
  const struct dit_tensor_view *const inputs[1] = {resize->from};
  return net_prepare(call, resize->given, inputs, 1, resize->from->ndim, resize->sizes, op_suggest_format(resize->from),
                     resize->from->dtype, out);
}

enum dit_status op_upsample(struct dit_call *call) {
  struct resize resize;
  struct dit_tensor_view out;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(read(call, false, &resize) &&
           (resize.mode ? OP_HAS(call, diopiUpsampleLinear) : OP_HAS(call, diopiUpsampleNearest)));
  DIT_RETURN_IF_NOT_OK(prepare(call, &resize, &out));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), x = op_handle(call, &rooms[1], resize.from);
  DIT_RETURN_IF_NOT_OK(
      resize.mode ? OP_DIOPI(call, &context, diopiUpsampleLinear, o, x, resize.large, resize.align, resize.mode)
                  : OP_DIOPI(call, &context, diopiUpsampleNearest, o, x, resize.large));
  return op_return(call, 0, &out);
}

enum dit_status op_upsample_backward(struct dit_call *call) {
  struct resize resize;
  struct dit_tensor_view out;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(read(call, true, &resize) &&
           (resize.mode ? OP_HAS(call, diopiUpsampleLinearBackward) : OP_HAS(call, diopiUpsampleNearestBackward)));
  DIT_RETURN_IF_NOT_OK(prepare(call, &resize, &out));
  op_context_init(&context, call);
  const diopiSize_t in = net_get_sizes(call, 2);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), g = op_handle(call, &rooms[1], resize.from);
  DIT_RETURN_IF_NOT_OK(resize.mode ? OP_DIOPI(call, &context, diopiUpsampleLinearBackward, o, g, resize.large, in,
                                              resize.align, resize.mode)
                                   : OP_DIOPI(call, &context, diopiUpsampleNearestBackward, o, g, resize.large, in));
  return op_return(call, 0, &out);
}

/// grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners).
enum dit_status op_grid_sample(struct dit_call *call) {
  static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
  struct dit_tensor_view *input = net_get(call, 0), *grid = net_get(call, 1), out;
  const int64_t mode = call->args[2].v.i;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiGridSample) && input && grid && input->ndim == 4 && grid->ndim == 4 &&
           op_is_floating(input->dtype) && grid->dtype == input->dtype && grid->sizes[0] == input->sizes[0] &&
           grid->sizes[3] == 2 && input->sizes[2] > 0 && input->sizes[3] > 0 && mode >= 0 && mode <= 2 &&
           call->args[3].v.i == 0 && call->args[4].v.i == 0);
  const int64_t sizes[4] = {input->sizes[0], input->sizes[1], grid->sizes[1], grid->sizes[2]};
  DIT_RETURN_IF_NOT_OK(net_new(call, 4, sizes, 0, input->dtype, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiGridSample, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], input), op_handle(call, &rooms[2], grid), modes[mode]));
  return op_return(call, 0, &out);
}
