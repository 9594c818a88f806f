/// convolution and convolution_backward, forward and transposed, of one and two spatial dimensions (three where the
/// library has them).
///
/// out (N, O, H', W') from input (N, C, H, W) and weight (O, C / groups, kH, kW); H' = (H + 2 p - d (k - 1) - 1) / s +
/// 1. Transposed: weight (C, O / groups, kH, kW), H' = (H - 1) s - 2 p + d (k - 1) + 1 + output padding. Results and
/// gradients are channels_last when the input or the weight is, else row-major, whatever the incoming gradient is. A
/// convolution over one dimension runs as one over two, of height 1.
#include "dit/window.h"
#include "network.h"
#include "table.h"

enum { SPATIAL = 3 };

/// One call: arguments in the shape of DIOPI's 2-d or 3-d functions.
struct conv {
  struct dit_tensor_view *input, *weight, *bias;
  int spatial;  ///< of the call: 1, 2 or 3
  bool transposed;
  int64_t groups;
  int64_t stride[SPATIAL], padding[SPATIAL], dilation[SPATIAL], output_padding[SPATIAL];
  int64_t out_sizes[DIT_MAX_DIMS];
  int format;
};

/// One number per spatial dimension; a single one counts for all.
static bool read_list(const struct dit_call *call, int index, int spatial, int64_t least, int64_t *out) {
  const diopiSize_t list = net_get_sizes(call, index);
  if (list.len != spatial && list.len != 1) {
    return false;
  }
  for (int i = 0; i < spatial; i++) {
    out[i] = list.data[list.len == 1 ? 0 : i];
    if (out[i] < least || out[i] > INT32_MAX) {
      return false;
    }
  }
  return true;
}

static bool infer_sizes(struct conv *conv) {
  const int64_t *input = conv->input->sizes, *weight = conv->weight->sizes;
  const int64_t outputs = conv->transposed ? weight[1] * conv->groups : weight[0];
  if (conv->groups < 1 || outputs % conv->groups != 0 || input[1] % conv->groups != 0 ||
      input[1] != (conv->transposed ? weight[0] : weight[1] * conv->groups)) {
    return false;
  }
  conv->out_sizes[0] = input[0];
  conv->out_sizes[1] = outputs;
  for (int i = 0; i < conv->spatial; i++) {
    const struct dit_window window = {input[2 + i],     weight[2 + i],     conv->stride[i],
                                      conv->padding[i], conv->dilation[i], false};
    conv->out_sizes[2 + i] =
        conv->transposed ? dit_window_get_transposed(&window, conv->output_padding[i]) : dit_window_count(&window);
    if (conv->out_sizes[2 + i] < 1) {
      return false;
    }
  }
  return !conv->bias || op_same_sizes(conv->bias, 1, conv->out_sizes + 1);
}

/// The arguments from `first` on: stride, padding, dilation, transposed, output_padding, groups.
static bool read(struct dit_call *call, int first, struct conv *conv) {
  const struct dit_tensor_view *input = conv->input, *weight = conv->weight;
  if (!input || !weight || input->ndim < 3 || input->ndim > 5 || weight->ndim != input->ndim || input->numel == 0 ||
      weight->numel == 0 || !op_is_floating(input->dtype) || weight->dtype != input->dtype ||
      (conv->bias && conv->bias->dtype != input->dtype)) {
    return false;
  }
  conv->spatial = input->ndim - 2;
  conv->transposed = call->args[first + 3].v.i != 0;
  conv->groups = call->args[first + 5].v.i;
  if (!read_list(call, first, conv->spatial, 1, conv->stride) ||
      !read_list(call, first + 1, conv->spatial, 0, conv->padding) ||
      !read_list(call, first + 2, conv->spatial, 1, conv->dilation) ||
      !read_list(call, first + 4, conv->spatial, 0, conv->output_padding) || !infer_sizes(conv)) {
    return false;
  }
  const int wanted = conv->spatial == 3 ? 3 : 2;
  conv->format = op_suggest_format(input) == wanted || op_suggest_format(weight) == wanted ? wanted : 0;
  return true;
}

/// A tensor over one spatial dimension as one of height 1; the others as they are.
struct lifted {
  struct dit_tensor_view view;
  int64_t sizes[4], strides[4];
};

static const struct dit_tensor_view *lift(const struct dit_tensor_view *view, struct lifted *room) {
  if (!view || view->ndim != 3) {
    return view;
  }
  room->view = *view;
  room->view.ndim = 4;
  for (int i = 0; i < 4; i++) {
    const int from = i < 2 ? i : 2;
    room->sizes[i] = i == 2 ? 1 : view->sizes[from];
    room->strides[i] = i == 2 ? view->sizes[2] * view->strides[2] : view->strides[from];
  }
  room->view.sizes = room->sizes;
  room->view.strides = room->strides;
  return &room->view;
}

/// The lists of a call over one dimension get a neutral number for the height in front.
static diopiSize_t make_list(const struct conv *conv, const int64_t *list, int64_t neutral, int64_t *room) {
  diopiSize_t sizes = {list, conv->spatial};
  if (conv->spatial == 1) {
    room[0] = neutral;
    room[1] = list[0];
    sizes.data = room;
    sizes.len = 2;
  }
  return sizes;
}

struct lists {
  diopiSize_t stride, padding, dilation, output_padding;
  int64_t rooms[4][2];
};

static void make_lists(const struct conv *conv, struct lists *lists) {
  lists->stride = make_list(conv, conv->stride, 1, lists->rooms[0]);
  lists->padding = make_list(conv, conv->padding, 0, lists->rooms[1]);
  lists->dilation = make_list(conv, conv->dilation, 1, lists->rooms[2]);
  lists->output_padding = make_list(conv, conv->output_padding, 0, lists->rooms[3]);
}

static bool has_forward(struct dit_call *call, const struct conv *conv) {
  if (conv->spatial == 3) {
    return conv->transposed ? OP_HAS(call, diopiConvTranspose3d) : OP_HAS(call, diopiConvolution3d);
  }
  return conv->transposed ? OP_HAS(call, diopiConvTranspose2d) : OP_HAS(call, diopiConvolution2d);
}

static bool has_backward(struct dit_call *call, const struct conv *conv) {
  if (conv->spatial == 3) {
    return conv->transposed ? OP_HAS(call, diopiConvTranspose3dBackward) : OP_HAS(call, diopiConvolution3dBackward);
  }
  return conv->transposed ? OP_HAS(call, diopiConvTranspose2dBackward) : OP_HAS(call, diopiConvolution2dBackward);
}

enum dit_status op_convolution(struct dit_call *call) {
  struct conv conv = {.input = net_get(call, 0), .weight = net_get(call, 1)};
  struct dit_tensor_view out;
  struct lifted lifts[3];
  struct lists lists;
  struct diopiContext context;
  struct diopiTensor rooms[4];
  NET_NEED(net_get_optional(call, 2, &conv.bias) && read(call, 3, &conv) && has_forward(call, &conv));
  DIT_RETURN_IF_NOT_OK(net_new(call, conv.input->ndim, conv.out_sizes, conv.format, conv.input->dtype, &out));
  make_lists(&conv, &lists);
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], lift(&out, &lifts[0])),
                      x = op_handle(call, &rooms[1], lift(conv.input, &lifts[1])),
                      w = op_handle(call, &rooms[2], lift(conv.weight, &lifts[2])),
                      b = op_handle(call, &rooms[3], conv.bias);
#define TRANSPOSED(name)                                                                                     \
  OP_DIOPI(call, &context, name, o, x, w, b, lists.stride, lists.padding, lists.output_padding, conv.groups, \
           lists.dilation)
#define FORWARD(name) \
  OP_DIOPI(call, &context, name, o, x, w, b, lists.stride, lists.padding, lists.dilation, conv.groups)
  DIT_RETURN_IF_NOT_OK(conv.transposed
                           ? conv.spatial == 3 ? TRANSPOSED(diopiConvTranspose3d) : TRANSPOSED(diopiConvTranspose2d)
                       : conv.spatial == 3 ? FORWARD(diopiConvolution3d)
                                           : FORWARD(diopiConvolution2d));
#undef TRANSPOSED
#undef FORWARD
  return op_return(call, 0, &out);
}

/// New gradients of input, weight and bias, as wanted.
static enum dit_status make_gradients(struct dit_call *call, const struct conv *conv, const bool *wanted,
                                      struct dit_tensor_view *made) {
  const struct dit_tensor_view *input = conv->input, *weight = conv->weight;
  if (wanted[0]) {
    DIT_RETURN_IF_NOT_OK(net_new(call, input->ndim, input->sizes, conv->format, input->dtype, &made[0]));
  }
  if (wanted[1]) {
    DIT_RETURN_IF_NOT_OK(net_new(call, weight->ndim, weight->sizes, conv->format, weight->dtype, &made[1]));
  }
  return wanted[2] ? net_new(call, 1, conv->out_sizes + 1, 0, weight->dtype, &made[2]) : DIT_OK;
}

/// `first`: where the stride is among the arguments.
static enum dit_status run_backward(struct dit_call *call, int first) {
  struct conv conv = {.input = net_get(call, 1), .weight = net_get(call, 2)};
  struct dit_tensor_view *grad = net_get(call, 0), made[3];
  struct lifted lifts[5];
  struct lists lists;
  struct diopiContext context;
  struct diopiTensor rooms[6];
  bool wanted[3];
  NET_NEED(grad && read(call, first, &conv) && has_backward(call, &conv) && grad->dtype == conv.input->dtype &&
           op_same_sizes(grad, conv.input->ndim, conv.out_sizes));
  for (int i = 0; i < 3; i++) {
    wanted[i] = net_wants(call, first + 6, i);
  }
  DIT_RETURN_IF_NOT_OK(make_gradients(call, &conv, wanted, made));
  make_lists(&conv, &lists);
  op_context_init(&context, call);
  diopiSize_t bias_sizes = {conv.out_sizes + 1, 1};
  diopiTensorHandle_t gx = op_handle(call, &rooms[0], wanted[0] ? lift(&made[0], &lifts[0]) : NULL),
                      gw = op_handle(call, &rooms[1], wanted[1] ? lift(&made[1], &lifts[1]) : NULL),
                      gb = op_handle(call, &rooms[2], wanted[2] ? &made[2] : NULL),
                      g = op_handle(call, &rooms[3], lift(grad, &lifts[2])),
                      x = op_handle(call, &rooms[4], lift(conv.input, &lifts[3])),
                      w = op_handle(call, &rooms[5], lift(conv.weight, &lifts[4]));
  diopiSize_t *sizes = wanted[2] ? &bias_sizes : NULL;
#define TRANSPOSED(name)                                                                                  \
  OP_DIOPI(call, &context, name, gx, gw, gb, g, x, w, sizes, lists.stride, lists.padding, lists.dilation, \
           lists.output_padding, conv.groups)
#define FORWARD(name) \
  OP_DIOPI(call, &context, name, gx, gw, gb, g, x, w, sizes, lists.stride, lists.padding, lists.dilation, conv.groups)
  DIT_RETURN_IF_NOT_OK(conv.transposed     ? conv.spatial == 3 ? TRANSPOSED(diopiConvTranspose3dBackward)
                                                               : TRANSPOSED(diopiConvTranspose2dBackward)
                           : conv.spatial == 3 ? FORWARD(diopiConvolution3dBackward)
                                           : FORWARD(diopiConvolution2dBackward));
#undef TRANSPOSED
#undef FORWARD
  for (int i = 0; i < 3; i++) {
    net_return_optional(call, i, wanted[i], &made[i]);
  }
  return DIT_OK;
}

enum dit_status op_convolution_backward(struct dit_call *call) {
  return run_backward(call, 4);
}
/// The overrideable form: no sizes of the bias before the stride.
enum dit_status op_convolution_backward_bare(struct dit_call *call) {
  return run_backward(call, 3);
}
