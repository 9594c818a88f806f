/// Convolution by cuDNN (see cudnn.h): which plan a call needs. Sums have one order alone; float32 is rounded to TF32
/// where option cuda_tf32 allows it.
#include "cudnn.h"
#include "dit/runtime.h"
#include "driver.h"
#include "kernels/conv.h"
#include "launch.h"

static int get_dtype(int dtype) {
  return dtype == DIT_DTYPE_F32   ? CUDNN_FLOAT
         : dtype == DIT_DTYPE_F64 ? CUDNN_DOUBLE
         : dtype == DIT_DTYPE_F16 ? CUDNN_HALF
                                  : CUDNN_BFLOAT16;
}

/// Row-major, or with the input channels innermost: cuDNN's engines take no other weights.
static bool is_plain(const struct dit_tensor_view *view) {
  int64_t next = 1;
  bool is_last = true;
  for (int i = 0; i < view->ndim; i++) {
    const int dim = i == 0 ? 1 : i == view->ndim - 1 ? 0 : view->ndim - i;
    is_last = is_last && (view->sizes[dim] == 1 || view->strides[dim] == next);
    next *= view->sizes[dim];
  }
  return is_last || view->flags & DIT_TENSOR_CONTIGUOUS;
}

/// (N, C, spatial...) with its strides; without N it has one image, and one spatial dimension becomes two: cuDNN has
/// at least two.
static bool set_tensor(struct cudnn_key *key, int operand, const struct dit_tensor_view *view, int spatial) {
  const int lead = spatial + 2 - view->ndim, shift = spatial == 1;
  for (int i = 0; i < spatial + 2; i++) {
    const int to = i < 2 ? i : i + shift;
    key->sizes[operand][to] = i < lead ? 1 : view->sizes[i - lead];
    key->strides[operand][to] = i < lead ? view->numel : view->strides[i - lead];
    if (key->strides[operand][to] < 1) {
      return false;
    }
  }
  if (shift) {
    key->sizes[operand][2] = 1;
    key->strides[operand][2] = key->sizes[operand][3] * key->strides[operand][3];
  }
  return true;
}

static bool set_key(struct cudnn_key *key, const struct conv_call *call, int mode,
                    const struct dit_tensor_view *const operands[3]) {
  const struct conv_shape *s = &call->shape;
  const int spatial = call->weight.ndim - 2, ndim = spatial < 2 ? 2 : spatial;
  const uintptr_t addresses =
      (uintptr_t)operands[0]->data | (uintptr_t)operands[1]->data | (uintptr_t)operands[2]->data;
  key->mode = mode;
  key->dtype = get_dtype(call->x.dtype);
  key->ndim = ndim + 2;
  key->alignment = addresses % 16 == 0 ? 16 : (int32_t)dit_dtype_get_size(call->x.dtype);
  key->is_rounded = key->dtype == CUDNN_FLOAT && launch_allows_tf32();
  for (int i = 0; i < ndim; i++) {
    key->padding[i] = s->padding[3 - ndim + i];
    key->stride[i] = s->stride[3 - ndim + i];
    key->dilation[i] = s->dilation[3 - ndim + i];
  }
  return is_plain(operands[1]) && set_tensor(key, 0, operands[0], spatial) &&
         set_tensor(key, 1, operands[1], spatial) && set_tensor(key, 2, operands[2], spatial);
}

/// A tensor of cuDNN's older interface, which adds a bias.
static void *make_tensor(const struct cudnn *f, const struct cudnn_key *key, const int64_t *sizes,
                         const int64_t *strides) {
  int sizes32[5], strides32[5];
  void *tensor = NULL;
  for (int i = 0; i < key->ndim; i++) {
    if (sizes[i] > INT32_MAX || strides[i] > INT32_MAX) {
      return NULL;
    }
    sizes32[i] = (int)sizes[i];
    strides32[i] = (int)strides[i];
  }
  if (f->cudnnCreateTensorDescriptor(&tensor) != CUDNN_SUCCESS) {
    return NULL;
  }
  if (f->cudnnSetTensorNdDescriptor(tensor, key->dtype, key->ndim, sizes32, strides32) != CUDNN_SUCCESS) {
    f->cudnnDestroyTensorDescriptor(tensor);
    return NULL;
  }
  return tensor;
}

static bool prepare_bias(const struct cudnn *f, struct cudnn_plan *plan, int64_t channels) {
  const int made = plan->key.mode == CONV_KERNEL_INPUT ? 0 : 2;
  const int64_t sizes[5] = {1, channels, 1, 1, 1}, strides[5] = {channels, 1, 1, 1, 1};
  plan->bias = plan->bias ? plan->bias : make_tensor(f, &plan->key, sizes, strides);
  plan->result =
      plan->result ? plan->result : make_tensor(f, &plan->key, plan->key.sizes[made], plan->key.strides[made]);
  return plan->bias && plan->result;
}

static bool run(struct conv_call *call, const struct cudnn *f, const struct cudnn_key *key, void *const data[3],
                const void *bias) {
  static const float single[1] = {1};
  static const double wide[1] = {1};
  const void *one = key->dtype == CUDNN_DOUBLE ? (const void *)wide : single;
  void *handle = cudnn_lock(key->device, call->frame->stream), *room = NULL;
  struct cudnn_plan *plan = handle ? cudnn_plan_get(f, handle, key) : NULL;
  bool done = plan && (!bias || prepare_bias(f, plan, call->bias.numel));
  if (done && plan->room > 0) {
    room = scratch_take(call->frame->context, (size_t)plan->room);
    done = room != NULL;
  }
  done = done && cudnn_plan_run(f, handle, plan, data, room);
  if (done && bias) {
    void *result = data[key->mode == CONV_KERNEL_INPUT ? 0 : 2];
    done = f->cudnnAddTensor(handle, one, plan->bias, bias, one, plan->result, result) == CUDNN_SUCCESS;
  }
  cudnn_unlock();
  return done;
}

bool conv_cudnn(struct conv_call *call, int mode, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                const struct dit_tensor_view *c, const void *bias) {
  struct cudnn_key key = {.device = dit_device_get_current()};
  struct context_guard guard;
  struct dit_error err = {.message = ""};
  const struct cudnn *f = cudnn_get();
  const struct dit_tensor_view *operands[3] = {mode == CONV_KERNEL_INPUT ? c : b, mode == CONV_KERNEL_WEIGHT ? c : a,
                                               mode == CONV_KERNEL_FORWARD ? c
                                               : mode == CONV_KERNEL_INPUT ? b
                                                                           : a};
  void *const data[3] = {operands[0]->data, operands[1]->data, operands[2]->data};
  const struct conv_shape *s = &call->shape;
  const bool is_half = frame_has_dtype(DTYPES_HALF, call->x.dtype);
  if (bias && is_half) {
    return false;  // the sum would be rounded before the bias is added
  }
  if (is_half && mode == CONV_KERNEL_INPUT && (s->in_channels / s->groups % 8 || s->out_channels / s->groups % 8)) {
    return false;  // its engines for odd channels round in between
  }
  if (!f || a->numel == 0 || b->numel == 0 || !set_key(&key, call, mode, operands) || launch_check(&err) != DIT_OK ||
      context_enter(&guard, key.device, &err) != DIT_OK) {
    return false;
  }
  const bool done = run(call, f, &key, data, bias);
  context_leave(&guard);
  return done;
}
