/// Convolution by cuDNN (see cudnn.h). Algorithms whose sums have one order alone; float32 is not rounded to TF32.
#include "cudnn.h"
#include "dit/runtime.h"
#include "driver.h"
#include "kernels/conv.h"
#include "launch.h"

#define MOST_ROOM ((size_t)1 << 30)

/// Descriptors of one product; those that were not made are NULL.
struct product {
  const struct cudnn *f;
  void *handle, *conv, *weight, *bias;
  void *in, *out;  ///< of the convolution: its input and result, or their gradients
  void *room;
  size_t size;
  int algorithm;
  const void *one, *zero;
};

static int get_dtype(int dtype) {
  return dtype == DIT_DTYPE_F32   ? CUDNN_FLOAT
         : dtype == DIT_DTYPE_F64 ? CUDNN_DOUBLE
         : dtype == DIT_DTYPE_F16 ? CUDNN_HALF
                                  : CUDNN_BFLOAT16;
}

/// (N, C, spatial...) with its strides; without N it has one image.
static bool set_tensor(const struct cudnn *f, void **tensor, const struct dit_tensor_view *view, int ndim) {
  int sizes[5], strides[5];
  const int lead = ndim + 2 - view->ndim;
  for (int i = 0; i < ndim + 2; i++) {
    const int64_t size = i < lead ? 1 : view->sizes[i - lead];
    const int64_t stride = i < lead ? view->numel : view->strides[i - lead];
    if (size > INT32_MAX || stride > INT32_MAX || stride < 1) {
      return false;
    }
    sizes[i] = (int)size;
    strides[i] = (int)stride;
  }
  return f->cudnnCreateTensorDescriptor(tensor) == CUDNN_SUCCESS &&
         f->cudnnSetTensorNdDescriptor(*tensor, get_dtype(view->dtype), ndim + 2, sizes, strides) == CUDNN_SUCCESS;
}

/// Packed with the input channels innermost.
static bool is_channels_last(const struct dit_tensor_view *view) {
  int64_t next = 1;
  for (int i = 0; i < view->ndim; i++) {
    const int dim = i == 0 ? 1 : i == view->ndim - 1 ? 0 : view->ndim - i;
    if (view->sizes[dim] != 1 && view->strides[dim] != next) {
      return false;
    }
    next *= view->sizes[dim];
  }
  return true;
}

static bool set_weight(const struct cudnn *f, void **weight, const struct dit_tensor_view *view) {
  const bool packed = view->flags & DIT_TENSOR_CONTIGUOUS;
  int sizes[5];
  if (!packed && !is_channels_last(view)) {
    return false;
  }
  for (int i = 0; i < view->ndim; i++) {
    if (view->sizes[i] > INT32_MAX) {
      return false;
    }
    sizes[i] = (int)view->sizes[i];
  }
  return f->cudnnCreateFilterDescriptor(weight) == CUDNN_SUCCESS &&
         f->cudnnSetFilterNdDescriptor(*weight, get_dtype(view->dtype), packed ? CUDNN_NCHW : CUDNN_NHWC, view->ndim,
                                       sizes) == CUDNN_SUCCESS;
}

static bool set_bias(const struct cudnn *f, void **bias, int dtype, int channels, int ndim) {
  int sizes[5] = {1, channels, 1, 1, 1}, strides[5] = {channels, 1, 1, 1, 1};
  return f->cudnnCreateTensorDescriptor(bias) == CUDNN_SUCCESS &&
         f->cudnnSetTensorNdDescriptor(*bias, get_dtype(dtype), ndim + 2, sizes, strides) == CUDNN_SUCCESS;
}

static bool set_convolution(const struct cudnn *f, void **conv, const struct conv_shape *s, int dtype, int ndim) {
  int padding[3], stride[3], dilation[3];
  for (int i = 0; i < ndim; i++) {
    padding[i] = (int)s->padding[3 - ndim + i];
    stride[i] = (int)s->stride[3 - ndim + i];
    dilation[i] = (int)s->dilation[3 - ndim + i];
  }
  const int math = dtype == DIT_DTYPE_F64   ? CUDNN_DEFAULT_MATH
                   : dtype == DIT_DTYPE_F32 ? CUDNN_FMA_MATH
                                            : CUDNN_TENSOR_OP_MATH;
  return f->cudnnCreateConvolutionDescriptor(conv) == CUDNN_SUCCESS &&
         f->cudnnSetConvolutionNdDescriptor(*conv, ndim, padding, stride, dilation, CUDNN_CROSS_CORRELATION,
                                            dtype == DIT_DTYPE_F64 ? CUDNN_DOUBLE : CUDNN_FLOAT) == CUDNN_SUCCESS &&
         f->cudnnSetConvolutionGroupCount(*conv, (int)s->groups) == CUDNN_SUCCESS &&
         f->cudnnSetConvolutionMathType(*conv, math) == CUDNN_SUCCESS;
}

/// The algorithm and the memory that it wants; false where there is none.
static bool choose(struct product *p, int mode) {
  const struct cudnn *f = p->f;
  if (mode == CONV_KERNEL_FORWARD) {
    for (p->algorithm = CUDNN_FORWARD_PRECOMPUTED_GEMM; p->algorithm >= CUDNN_FORWARD_IMPLICIT_GEMM; p->algorithm--) {
      if (f->cudnnGetConvolutionForwardWorkspaceSize(p->handle, p->in, p->weight, p->conv, p->out, p->algorithm,
                                                     &p->size) == CUDNN_SUCCESS &&
          p->size <= MOST_ROOM) {
        return true;
      }
    }
    return false;
  }
  p->algorithm = mode == CONV_KERNEL_INPUT ? CUDNN_DATA_ORDERED : CUDNN_FILTER_ORDERED;
  const int status = mode == CONV_KERNEL_INPUT
                         ? f->cudnnGetConvolutionBackwardDataWorkspaceSize(p->handle, p->weight, p->out, p->conv, p->in,
                                                                           p->algorithm, &p->size)
                         : f->cudnnGetConvolutionBackwardFilterWorkspaceSize(p->handle, p->in, p->out, p->conv,
                                                                             p->weight, p->algorithm, &p->size);
  return status == CUDNN_SUCCESS && p->size <= MOST_ROOM;
}

static bool multiply(const struct product *p, int mode, const void *a, const void *b, void *c) {
  const struct cudnn *f = p->f;
  if (mode == CONV_KERNEL_FORWARD) {
    return f->cudnnConvolutionForward(p->handle, p->one, p->in, b, p->weight, a, p->conv, p->algorithm, p->room,
                                      p->size, p->zero, p->out, c) == CUDNN_SUCCESS;
  }
  if (mode == CONV_KERNEL_INPUT) {
    return f->cudnnConvolutionBackwardData(p->handle, p->one, p->weight, a, p->out, b, p->conv, p->algorithm, p->room,
                                           p->size, p->zero, p->in, c) == CUDNN_SUCCESS;
  }
  return f->cudnnConvolutionBackwardFilter(p->handle, p->one, p->in, b, p->out, a, p->conv, p->algorithm, p->room,
                                           p->size, p->zero, p->weight, c) == CUDNN_SUCCESS;
}

static void destroy(struct product *p) {
  const struct cudnn *f = p->f;
  void *const tensors[] = {p->in, p->out, p->bias};
  for (int i = 0; i < 3; i++) {
    if (tensors[i]) {
      f->cudnnDestroyTensorDescriptor(tensors[i]);
    }
  }
  if (p->weight) {
    f->cudnnDestroyFilterDescriptor(p->weight);
  }
  if (p->conv) {
    f->cudnnDestroyConvolutionDescriptor(p->conv);
  }
}

bool conv_cudnn(struct conv_call *call, int mode, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                const struct dit_tensor_view *c, const void *bias) {
  static const float single[2] = {1, 0};
  static const double wide[2] = {1, 0};
  struct product p = {.f = cudnn_get()};
  struct context_guard guard;
  struct dit_error err = {.message = ""};
  const int device = dit_device_get_current(), ndim = call->weight.ndim - 2, dtype = call->x.dtype;
  const struct dit_tensor_view *in = mode == CONV_KERNEL_INPUT ? c : b, *weight = mode == CONV_KERNEL_WEIGHT ? c : a;
  const struct dit_tensor_view *out = mode == CONV_KERNEL_FORWARD ? c : mode == CONV_KERNEL_INPUT ? b : a;
  if (bias && frame_has_dtype(DTYPES_HALF, dtype)) {
    return false;  // the sum would be rounded before the bias is added
  }
  if (!p.f || a->numel == 0 || b->numel == 0 || launch_check(&err) != DIT_OK ||
      context_enter(&guard, device, &err) != DIT_OK) {
    return false;
  }
  p.one = dtype == DIT_DTYPE_F64 ? (const void *)&wide[0] : &single[0];
  p.zero = dtype == DIT_DTYPE_F64 ? (const void *)&wide[1] : &single[1];
  p.handle = cudnn_lock(device);
  bool done = p.handle && p.f->cudnnSetStream(p.handle, call->frame->stream) == CUDNN_SUCCESS &&
              set_tensor(p.f, &p.in, in, ndim) && set_tensor(p.f, &p.out, out, ndim) &&
              set_weight(p.f, &p.weight, weight) && set_convolution(p.f, &p.conv, &call->shape, dtype, ndim) &&
              (!bias || set_bias(p.f, &p.bias, dtype, (int)call->bias.numel, ndim)) && choose(&p, mode);
  if (done && p.size > 0) {
    p.room = scratch_take(call->frame->context, p.size);
    done = p.room != NULL;
  }
  done = done && multiply(&p, mode, a->data, b->data, c->data);
  if (done && bias) {
    void *result = mode == CONV_KERNEL_INPUT ? p.in : p.out;
    done = p.f->cudnnAddTensor(p.handle, p.one, p.bias, bias, p.one, result, c->data) == CUDNN_SUCCESS;
  }
  destroy(&p);
  cudnn_unlock();
  context_leave(&guard);
  return done;
}
