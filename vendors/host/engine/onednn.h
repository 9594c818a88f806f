/// Convolutions and matrix products by oneDNN, where it was found and has good code for them.
///
/// Every function returns false, with nothing written or with a result that must be written again, when the library
/// is missing or does not take the problem; the caller then uses its own code. Results do not depend on the number of
/// threads. dtypes: float32, bfloat16, float16 (as far as the CPU has it); accumulation in float32.
#ifndef DIT_HOST_ENGINE_ONEDNN_H
#define DIT_HOST_ENGINE_ONEDNN_H

#include "conv.h"

/// "oneDNN 3.2.0 (path)", or why there is none.
const char *onednn_describe(void);
bool onednn_is_available(void);
/// Do without it, or use it again, from the next call on. For measurements.
void onednn_set_enabled(bool enabled);
/// Calls that ran and calls that were handed back, since the start.
void onednn_get_counts(uint64_t *run, uint64_t *refused);

/// Any strides without overlap, in elements: (batch, channel, spatial[3]), of weights (out channel, in channel within
/// its group, spatial[3]).
struct onednn_tensor {
  char *data;
  int64_t strides[5];
};

enum onednn_conv { ONEDNN_CONV_FORWARD, ONEDNN_CONV_INPUT, ONEDNN_CONV_WEIGHT };

/// One convolution or gradient (see conv.h) on `in`, `weight` and `out`, of which one is the result. `dtype` is that of
/// the operands, `result` that of the result: the same, or float32. `bias` (out_channels neighbouring elements of
/// `dtype`, or NULL) is for the forward one.
struct onednn_conv_call {
  enum onednn_conv kind;
  const struct conv_shape *shape;
  struct onednn_tensor in, weight, out;
  const void *bias;
  int dtype, result;
};
bool onednn_convolve(const struct onednn_conv_call *call);

/// out = a @ b, + bias where `bias` is set, + out where `adds`, for `batch` matrices. Strides in elements of batch,
/// row, column; `bias` has one element per column.
struct onednn_gemm_call {
  int64_t batch, m, n, k;
  char *a, *b, *out;
  int64_t a_strides[3], b_strides[3], out_strides[3];
  const void *bias;
  bool adds;
  int dtype;
};
bool onednn_multiply(const struct onednn_gemm_call *call);

#endif
