/// Convolutions by oneDNN: tensors in its terms, and the choice of what it is given.
///
/// The half types always go there: they would be widened otherwise. float32 goes there where it is quicker than our
/// own code (measured, bench/ops). A tensor without overlap is read and written as it lies, channels-last included;
/// others through a copy. The bias of a transposed convolution is added in float32.
#include "conv.h"
#include "dense.h"
#include "engine/onednn.h"
#include "engine/reduce.h"

/// For tests and benchmarks: calls that oneDNN ran and calls that it handed back in this library, and which library it
/// is or why there is none; and a switch.
DIT_API const char *dit_host_onednn_describe(uint64_t *run, uint64_t *refused);
DIT_API void dit_host_onednn_enable(int enabled);

const char *dit_host_onednn_describe(uint64_t *run, uint64_t *refused) {
  onednn_get_counts(run, refused);
  return onednn_describe();
}

void dit_host_onednn_enable(int enabled) {
  onednn_set_enabled(enabled != 0);
}

/// A tensor given to oneDNN, itself or a row-major copy.
struct side {
  struct dense copy;
  struct onednn_tensor tensor;
};

/// Does no element lie on another one?
static bool is_plain(const struct dit_tensor_view *view) {
  int order[DIT_MAX_DIMS], count = 0;
  for (int dim = 0; dim < view->ndim; dim++) {
    if (view->sizes[dim] > 1) {
      int at = count++;
      for (; at > 0 && view->strides[order[at - 1]] > view->strides[dim]; at--) {
        order[at] = order[at - 1];
      }
      order[at] = dim;
    }
  }
  int64_t least = 1;
  for (int i = 0; i < count; i++) {
    if (view->strides[order[i]] < least) {
      return false;
    }
    least = view->strides[order[i]] * view->sizes[order[i]];
  }
  return true;
}

/// Strides as (batch, channel, spatial[3]); dimensions of size 1 get what a row-major tensor has there.
static void set_strides(const struct dit_tensor_view *view, int spatial, const int64_t *strides, int64_t out[5]) {
  int64_t next = 1;
  for (int i = 4; i >= 0; i--) {
    const int dim = i >= 2 ? view->ndim - 5 + i : i - 1 + view->ndim - 1 - spatial;
    const bool absent = i >= 2 ? i < 5 - spatial : dim < 0;
    const int64_t size = absent ? 1 : view->sizes[dim];
    out[i] = size > 1 ? strides[dim] : next;
    next = out[i] * size;
  }
}

/// An absent tensor is an error. `dtype` is the view's, or float32 for a result.
static bool open_side(struct side *side, const struct dit_tensor_view *view, int spatial, int dtype, bool result) {
  int64_t dense[DIT_MAX_DIMS];
  if (dtype == view->dtype && is_plain(view)) {
    side->tensor.data = view->data;
    set_strides(view, spatial, view->strides, side->tensor.strides);
    return true;
  }
  if (!(result ? dense_reserve(&side->copy, view, dtype) : dense_read(&side->copy, view, dtype))) {
    return false;
  }
  dit_shape_set_contiguous(view->ndim, view->sizes, dense);
  side->tensor.data = side->copy.data;
  set_strides(view, spatial, dense, side->tensor.strides);
  return true;
}

/// Is it given to oneDNN? Its gradient of a few input channels is slow, and that of kernels of one element with steps.
static bool is_good(const struct conv_call *call, enum onednn_conv kind) {
  const struct conv_shape *s = &call->shape;
  const bool few = s->in_channels / s->groups < 8 && (s->groups == 1 || s->groups != s->in_channels);
  const bool sparse = call->x.dtype == DIT_DTYPE_F32 && s->kernel[0] * s->kernel[1] * s->kernel[2] == 1 &&
                      s->stride[0] * s->stride[1] * s->stride[2] > 1;
  return call->x.dtype != DIT_DTYPE_F64 && !(kind == ONEDNN_CONV_INPUT && (few || sparse)) && onednn_is_available();
}

/// x[n][c][...] += bias[c] for float data.
static void add_bias(const struct conv_shape *s, const struct onednn_tensor *x, const float *bias) {
  for (int64_t i = 0; i < s->batch * s->in_channels * s->in[0] * s->in[1]; i++) {
    const int64_t y = i % s->in[1], z = i / s->in[1] % s->in[0], c = i / s->in[1] / s->in[0] % s->in_channels;
    const int64_t n = i / s->in[1] / s->in[0] / s->in_channels, *strides = x->strides;
    float *line = (float *)x->data + n * strides[0] + c * strides[1] + z * strides[2] + y * strides[3];
    for (int64_t j = 0; j < s->in[2]; j++) {
      line[j * strides[4]] += bias[c];
    }
  }
}

/// The tensors of one kind of convolution in their roles; `bias` is absent or the call's.
struct conv_roles {
  enum onednn_conv kind;
  const struct dit_tensor_view *in, *weight, *out, *bias;
};

/// In `dtype`: that of the tensors, or float32.
static bool run_dtype(const struct conv_call *call, const struct conv_roles *roles, int dtype) {
  const int spatial = call->weight.ndim - 2;
  const bool input = roles->kind == ONEDNN_CONV_INPUT, weight = roles->kind == ONEDNN_CONV_WEIGHT;
  const bool added = input && roles->bias->handle;
  struct side sides[3] = {{.copy = {0}}};
  struct dense bias = {0};
  struct onednn_conv_call job = {
      .kind = roles->kind, .shape = &call->shape, .dtype = dtype, .result = added ? DIT_DTYPE_F32 : dtype};
  bool done = open_side(&sides[0], roles->in, spatial, input ? job.result : dtype, input) &&
              open_side(&sides[1], roles->weight, spatial, dtype, weight) &&
              open_side(&sides[2], roles->out, spatial, dtype, !input && !weight) &&
              dense_read(&bias, roles->bias, added ? DIT_DTYPE_F32 : dtype);
  if (done) {
    job.in = sides[0].tensor;
    job.weight = sides[1].tensor;
    job.out = sides[2].tensor;
    job.bias = added ? NULL : bias.data;
    done = onednn_convolve(&job);
  }
  if (done && added) {
    add_bias(&call->shape, &sides[0].tensor, bias.data);
  }
  for (int i = 0; i < 3; i++) {
    if (done && i == (input ? 0 : weight ? 1 : 2)) {
      dense_store(&sides[i].copy);
    }
    dense_close(&sides[i].copy);
  }
  dense_close(&bias);
  return done;
}

/// A half type that the CPU or the library lacks is widened, except for depthwise ones: our own loops are quicker then.
static bool run_kind(const struct conv_call *call, enum onednn_conv kind, const struct dit_tensor_view *in,
                     const struct dit_tensor_view *weight, const struct dit_tensor_view *out,
                     const struct dit_tensor_view *bias) {
  const struct conv_roles roles = {kind, in, weight, out, bias};
  const int dtype = call->x.dtype;
  const bool depthwise = call->shape.groups > 1 && call->shape.groups == call->shape.in_channels;
  if (!is_good(call, kind)) {
    return false;
  }
  return run_dtype(call, &roles, dtype) ||
         (dtype != DIT_DTYPE_F32 && !depthwise && run_dtype(call, &roles, DIT_DTYPE_F32));
}

bool conv_onednn_forward(const struct conv_call *call) {
  return call->transposed ? run_kind(call, ONEDNN_CONV_INPUT, &call->out, &call->weight, &call->x, &call->bias)
                          : run_kind(call, ONEDNN_CONV_FORWARD, &call->x, &call->weight, &call->out, &call->bias);
}

/// grad_bias of the half types: the gradient would be widened for it alone.
static bool sum_bias(const struct conv_call *call) {
  const struct dit_tensor_view *grad = &call->out;
  const int channel = grad->ndim - (call->weight.ndim - 2) - 1;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  struct dit_tensor_view o = call->grad_bias;
  for (int dim = 0; dim < grad->ndim; dim++) {
    sizes[dim] = dim == channel ? o.sizes[0] : 1;
    strides[dim] = dim == channel ? call->grad_bias.strides[0] : 0;
  }
  o.ndim = grad->ndim;
  o.sizes = sizes;
  o.strides = strides;
  o.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  const uint32_t mask = ((1u << grad->ndim) - 1) & ~(1u << channel);
  return reduce_launch(NULL, REDUCE_SUM, 0, &o, grad, mask, NULL) == DIT_OK;
}

void conv_onednn_backward(struct conv_call *call) {
  const struct dit_tensor_view absent = {0};
  if (call->grad_x.handle &&
      (call->transposed ? run_kind(call, ONEDNN_CONV_FORWARD, &call->out, &call->weight, &call->grad_x, &absent)
                        : run_kind(call, ONEDNN_CONV_INPUT, &call->grad_x, &call->weight, &call->out, &absent))) {
    call->grad_x = absent;
  }
  if (call->grad_weight.handle &&
      (call->transposed ? run_kind(call, ONEDNN_CONV_WEIGHT, &call->out, &call->grad_weight, &call->x, &absent)
                        : run_kind(call, ONEDNN_CONV_WEIGHT, &call->x, &call->grad_weight, &call->out, &absent))) {
    call->grad_weight = absent;
  }
  const bool half = call->x.dtype == DIT_DTYPE_F16 || call->x.dtype == DIT_DTYPE_BF16;
  if (call->grad_bias.handle && half && !call->grad_x.handle && !call->grad_weight.handle && call->out.numel > 0 &&
      sum_bias(call)) {
    call->grad_bias = absent;
  }
}
