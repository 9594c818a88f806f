/// cuDNN where it is installed: looked up at run time, no header is needed to build. Only what convolution uses.
///
/// The functions, numbers and structs are those of cuDNN's plain C interface, which versions 8 and 9 share.
#ifndef DIT_CUDA_ENGINE_CUDNN_H
#define DIT_CUDA_ENGINE_CUDNN_H

#include <stdbool.h>
#include <stddef.h>

#include "ops/conv.h"

enum cudnn_number {
  CUDNN_SUCCESS = 0,
  CUDNN_FLOAT = 0,
  CUDNN_DOUBLE = 1,
  CUDNN_HALF = 2,
  CUDNN_BFLOAT16 = 9,
  CUDNN_NCHW = 0,
  CUDNN_NHWC = 1,
  CUDNN_CROSS_CORRELATION = 1,
  CUDNN_DEFAULT_MATH = 0,
  CUDNN_TENSOR_OP_MATH = 1,
  CUDNN_FMA_MATH = 3,  ///< float32 as float32
  CUDNN_FORWARD_IMPLICIT_GEMM = 0,
  CUDNN_FORWARD_PRECOMPUTED_GEMM = 1,
  CUDNN_DATA_ORDERED = 1,  ///< the same sums in every run, as the next
  CUDNN_FILTER_ORDERED = 1,
};

#define CUDNN_FUNCTIONS(X)                                                                                    \
  X(cudnnCreate, (void **handle))                                                                             \
  X(cudnnSetStream, (void *handle, void *stream))                                                             \
  X(cudnnCreateTensorDescriptor, (void **tensor))                                                             \
  X(cudnnSetTensorNdDescriptor, (void *tensor, int dtype, int count, const int *sizes, const int *strides))   \
  X(cudnnDestroyTensorDescriptor, (void *tensor))                                                             \
  X(cudnnCreateFilterDescriptor, (void **filter))                                                             \
  X(cudnnSetFilterNdDescriptor, (void *filter, int dtype, int format, int count, const int *sizes))           \
  X(cudnnDestroyFilterDescriptor, (void *filter))                                                             \
  X(cudnnCreateConvolutionDescriptor, (void **conv))                                                          \
  X(cudnnSetConvolutionNdDescriptor,                                                                          \
    (void *conv, int count, const int *padding, const int *stride, const int *dilation, int mode, int dtype)) \
  X(cudnnSetConvolutionGroupCount, (void *conv, int groups))                                                  \
  X(cudnnSetConvolutionMathType, (void *conv, int math))                                                      \
  X(cudnnDestroyConvolutionDescriptor, (void *conv))                                                          \
  X(cudnnGetConvolutionForwardWorkspaceSize,                                                                  \
    (void *handle, void *x, void *w, void *conv, void *y, int algorithm, size_t *size))                       \
  X(cudnnConvolutionForward,                                                                                  \
    (void *handle, const void *alpha, void *x, const void *x_data, void *w, const void *w_data, void *conv,   \
     int algorithm, void *room, size_t size, const void *beta, void *y, void *y_data))                        \
  X(cudnnGetConvolutionBackwardDataWorkspaceSize,                                                             \
    (void *handle, void *w, void *dy, void *conv, void *dx, int algorithm, size_t *size))                     \
  X(cudnnConvolutionBackwardData,                                                                             \
    (void *handle, const void *alpha, void *w, const void *w_data, void *dy, const void *dy_data, void *conv, \
     int algorithm, void *room, size_t size, const void *beta, void *dx, void *dx_data))                      \
  X(cudnnGetConvolutionBackwardFilterWorkspaceSize,                                                           \
    (void *handle, void *x, void *dy, void *conv, void *dw, int algorithm, size_t *size))                     \
  X(cudnnConvolutionBackwardFilter,                                                                           \
    (void *handle, const void *alpha, void *x, const void *x_data, void *dy, const void *dy_data, void *conv, \
     int algorithm, void *room, size_t size, const void *beta, void *dw, void *dw_data))                      \
  X(cudnnAddTensor,                                                                                           \
    (void *handle, const void *alpha, void *a, const void *a_data, const void *beta, void *c, void *c_data))

struct cudnn {
#define CUDNN_MEMBER(name, parameters) int(*name) parameters;
  CUDNN_FUNCTIONS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
};

/// The functions, or NULL: not installed, or option cuda_cudnn is "none".
const struct cudnn *cudnn_get(void);
/// A handle of the device, made in the current context; NULL when that fails. Between lock and unlock it is the
/// caller's.
void *cudnn_lock(int device);
void cudnn_unlock(void);

/// One product of kernels/conv.h by cuDNN: enum conv_kernel_mode, operands as there, `bias` contiguous or NULL. False
/// where cuDNN is missing or does not take it: then nothing was written.
bool conv_cudnn(struct conv_call *call, int mode, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                const struct dit_tensor_view *c, const void *bias);

#endif
