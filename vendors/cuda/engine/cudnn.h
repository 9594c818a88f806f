/// cuDNN where it is installed: looked up at run time, no header is needed to build. Only what convolution uses.
///
/// Convolutions go through the graph interface of versions 8 and 9: what cuDNN finds out about a shape (its engine, its
/// plan) is found out once and kept. The numbers are those of cudnn_graph.h.
#ifndef DIT_CUDA_ENGINE_CUDNN_H
#define DIT_CUDA_ENGINE_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/conv.h"

enum cudnn_number {
  CUDNN_SUCCESS = 0,
  CUDNN_FLOAT = 0,
  CUDNN_DOUBLE = 1,
  CUDNN_HALF = 2,
  CUDNN_BFLOAT16 = 9,
  CUDNN_CROSS_CORRELATION = 1,
};

/// Kinds of descriptors.
enum cudnn_descriptor {
  CUDNN_CONVOLUTION = 1,
  CUDNN_ENGINE = 2,
  CUDNN_CONFIG = 3,
  CUDNN_HEURISTIC = 4,
  CUDNN_PLAN = 5,
  CUDNN_CONVOLVE_FORWARD = 10,
  CUDNN_CONVOLVE_FILTER = 11,
  CUDNN_CONVOLVE_DATA = 12,
  CUDNN_GRAPH = 15,
  CUDNN_PACK = 16,
  CUDNN_TENSOR = 17,
};

/// Types of attributes.
enum cudnn_type {
  CUDNN_TYPE_HANDLE = 0,
  CUDNN_TYPE_DATA_TYPE = 1,
  CUDNN_TYPE_INT64 = 3,
  CUDNN_TYPE_FLOAT = 4,
  CUDNN_TYPE_DOUBLE = 5,
  CUDNN_TYPE_POINTER = 6,
  CUDNN_TYPE_CONVOLUTION_MODE = 7,
  CUDNN_TYPE_HEURISTIC_MODE = 8,
  CUDNN_TYPE_NOTE = 11,
  CUDNN_TYPE_DESCRIPTOR = 15,
};

enum cudnn_attribute {
  CUDNN_CONVOLUTION_DTYPE = 100,
  CUDNN_CONVOLUTION_MODE = 101,
  CUDNN_CONVOLUTION_DILATION = 102,
  CUDNN_CONVOLUTION_STRIDE = 103,
  CUDNN_CONVOLUTION_PADDING_AFTER = 104,
  CUDNN_CONVOLUTION_PADDING_BEFORE = 105,
  CUDNN_CONVOLUTION_NDIM = 106,
  CUDNN_HEURISTIC_MODE = 200,
  CUDNN_HEURISTIC_GRAPH = 201,
  CUDNN_HEURISTIC_RESULTS = 202,
  CUDNN_CONFIG_ENGINE = 300,
  CUDNN_PLAN_HANDLE = 400,
  CUDNN_PLAN_CONFIG = 401,
  CUDNN_PLAN_ROOM = 402,
  /// Of the three operations, each: alpha, beta, the convolution, and three tensors.
  CUDNN_FORWARD_ALPHA = 700,
  CUDNN_FORWARD_BETA = 701,
  CUDNN_FORWARD_CONVOLUTION = 702,
  CUDNN_FORWARD_WEIGHT = 703,
  CUDNN_FORWARD_IN = 704,
  CUDNN_FORWARD_OUT = 705,
  CUDNN_DATA_ALPHA = 706,
  CUDNN_DATA_BETA = 707,
  CUDNN_DATA_CONVOLUTION = 708,
  CUDNN_DATA_WEIGHT = 709,
  CUDNN_DATA_IN = 710,
  CUDNN_DATA_OUT = 711,
  CUDNN_FILTER_ALPHA = 712,
  CUDNN_FILTER_BETA = 713,
  CUDNN_FILTER_CONVOLUTION = 714,
  CUDNN_FILTER_WEIGHT = 715,
  CUDNN_FILTER_IN = 716,
  CUDNN_FILTER_OUT = 717,
  CUDNN_GRAPH_HANDLE = 800,
  CUDNN_GRAPH_OPERATIONS = 801,
  CUDNN_TENSOR_ALIGNMENT = 900,
  CUDNN_TENSOR_DTYPE = 901,
  CUDNN_TENSOR_SIZES = 902,
  CUDNN_TENSOR_STRIDES = 903,
  CUDNN_TENSOR_ID = 906,
  CUDNN_PACK_IDS = 1000,
  CUDNN_PACK_POINTERS = 1001,
  CUDNN_PACK_ROOM = 1003,
  CUDNN_ENGINE_NOTES = 1303,
};

enum cudnn_heuristic { CUDNN_HEURISTIC_FALLBACK = 2, CUDNN_HEURISTIC_A = 3 };

/// What an engine says about its numbers.
enum cudnn_note {
  CUDNN_NOTE_TENSOR_CORE = 0,
  CUDNN_NOTE_DOWN_CONVERT = 1,
  CUDNN_NOTE_REDUCED_SUMS = 2,
  CUDNN_NOTE_FFT = 3,
  CUDNN_NOTE_ANY_ORDER = 4,  ///< not the same sums in every run
  CUDNN_NOTE_WINOGRAD = 5,
};

#define CUDNN_FUNCTIONS(X)                                                                                          \
  X(cudnnCreate, (void **handle))                                                                                   \
  X(cudnnSetStream, (void *handle, void *stream))                                                                   \
  X(cudnnCreateTensorDescriptor, (void **tensor))                                                                   \
  X(cudnnSetTensorNdDescriptor, (void *tensor, int dtype, int count, const int *sizes, const int *strides))         \
  X(cudnnDestroyTensorDescriptor, (void *tensor))                                                                   \
  X(cudnnAddTensor,                                                                                                 \
    (void *handle, const void *alpha, void *a, const void *a_data, const void *beta, void *c, void *c_data))        \
  X(cudnnBackendCreateDescriptor, (int kind, void **descriptor))                                                    \
  X(cudnnBackendDestroyDescriptor, (void *descriptor))                                                              \
  X(cudnnBackendFinalize, (void *descriptor))                                                                       \
  X(cudnnBackendSetAttribute, (void *descriptor, int name, int type, int64_t count, const void *values))            \
  X(cudnnBackendGetAttribute, (void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *values)) \
  X(cudnnBackendExecute, (void *handle, void *plan, void *pack))

struct cudnn {
#define CUDNN_MEMBER(name, parameters) int(*name) parameters;
  CUDNN_FUNCTIONS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
};

/// The functions, or NULL: not installed, or option cuda_cudnn is "none".
const struct cudnn *cudnn_get(void);
/// A handle of the device for work on the stream, made in the current context; NULL when that fails. Between lock and
/// unlock it is the caller's, and so are all plans.
void *cudnn_lock(int device, void *stream);
void cudnn_unlock(void);

/// One product: everything that a plan depends on. Compared as bytes: set to zero first. Operands: the convolution's
/// input, its weight and its result, or their gradients.
struct cudnn_key {
  int32_t device, mode;           ///< mode: enum conv_kernel_mode
  int32_t dtype, ndim;            ///< dtype: cuDNN's; ndim: of the tensors
  int32_t alignment, is_rounded;  ///< is_rounded: float32 may be multiplied as TF32
  int64_t sizes[3][5], strides[3][5];
  int64_t padding[3], stride[3], dilation[3];
};
struct cudnn_plan {
  struct cudnn_key key;
  void *plan, *config;  ///< plan NULL: cuDNN has none for this product
  void *bias, *result;  ///< tensors for the bias, made when one is given for the first time
  int64_t room;         ///< bytes of device memory that it works in
};
/// The plan of a product, made at its first use; NULL where cuDNN has none. Called between lock and unlock.
struct cudnn_plan *cudnn_plan_get(const struct cudnn *functions, void *handle, const struct cudnn_key *key);
/// Run it: `data` in the order of the key's operands.
bool cudnn_plan_run(const struct cudnn *functions, void *handle, const struct cudnn_plan *plan, void *const data[3],
                    void *room);

/// One product of kernels/conv.h by cuDNN: enum conv_kernel_mode, operands as there, `bias` contiguous or NULL. False
/// where cuDNN is missing or does not take it: then nothing was written.
bool conv_cudnn(struct conv_call *call, int mode, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                const struct dit_tensor_view *c, const void *bias);

#endif
