/// Kernels of a vendor: what the C operators of src/ops launch once shapes, dtypes and outputs are settled.
///
/// Rules for every slot: views are device tensors on one device; all shape checks are done, but any strides (expanded, negative-free,
/// permuted, offset) and any dtype may come: answer DIT_ERR_UNSUPPORTED *before writing* for what is not
/// implemented. Inputs and outputs either do not overlap or are the very same elements (in-place). Work is enqueued on `stream`
/// (NULL: the default stream) and may outlive the call, so views are copied, never kept. Kernels are deterministic.
/// A NULL slot means not implemented. Exported by a vendor library as
///   const struct dit_kernel_vtable *dit_vendor_get_kernels(void);   (optional symbol)
#ifndef DIT_KERNEL_H
#define DIT_KERNEL_H

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

#define DIT_KERNEL_ABI_VERSION 1

enum dit_binary_kind {
  DIT_BINARY_ADD,  ///< a + alpha * b
  DIT_BINARY_SUB,  ///< a - alpha * b
  DIT_BINARY_MUL,
  DIT_BINARY_DIV,  ///< true division; integer inputs arrive with a floating output
  DIT_BINARY_COUNT
};

enum dit_unary_kind {
  DIT_UNARY_RELU,
  DIT_UNARY_GELU,       ///< exact, erf
  DIT_UNARY_GELU_TANH,  ///< tanh approximation
  DIT_UNARY_COUNT
};

enum dit_reduce_kind { DIT_REDUCE_SUM, DIT_REDUCE_MEAN, DIT_REDUCE_COUNT };

struct dit_kernel_vtable {
  uint32_t abi_version;  ///< DIT_KERNEL_ABI_VERSION
  uint32_t struct_size;  ///< sizeof(struct dit_kernel_vtable) when the vendor was built; later slots count as NULL

  /// out[i] = a[i] op b[i] with a and b broadcast to out (stride 0 already set by the caller: all three have out's sizes). Operands are
  /// converted to `compute` (promoted dtype; float for half types) element by element; out has its own dtype. An operand without
  /// DIT_TENSOR_ON_DEVICE is one number in host memory (all strides 0) that must be read before the slot returns.
  enum dit_status (*binary)(void *stream, enum dit_binary_kind kind, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *a, const struct dit_tensor_view *b, struct dit_scalar alpha,
                            int compute, struct dit_error *err);
  /// out[i] = f(in[i]); same sizes, same dtype.
  enum dit_status (*unary)(void *stream, enum dit_unary_kind kind, const struct dit_tensor_view *out,
                           const struct dit_tensor_view *in, struct dit_error *err);
  /// out = beta * bias + alpha * a @ b for `batch` independent matrices: a (B,M,K), b (B,K,N), out (B,M,N), bias broadcast to out or NULL.
  /// All are 3-d views (batch stride 0 allowed on inputs), one dtype. beta == 0 ignores bias (NaN included); K == 0 gives beta * bias.
  enum dit_status (*gemm)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                          const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha, double beta,
                          struct dit_error *err);
  /// Softmax (or log-softmax) over dimension `dim` (0 <= dim < ndim); out may be wider than in (half input, float output).
  enum dit_status (*softmax)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in, int dim,
                             bool log, struct dit_error *err);
  /// Reduce the dimensions whose bit is set in `mask`; out keeps all dimensions of `in`, the reduced ones with size 1.
  enum dit_status (*reduce)(void *stream, enum dit_reduce_kind kind, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);
  /// out[i] = in[i] with conversion between any two dtypes, as PyTorch casts.
  enum dit_status (*copy)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          struct dit_error *err);
  /// out[i] = value, converted as PyTorch's fill_ does.
  enum dit_status (*fill)(void *stream, const struct dit_tensor_view *out, struct dit_scalar value, struct dit_error *err);
  /// Bernoulli keep-mask and scaled copy: mask[i] = u(i) < keep, out[i] = in[i] * mask[i] * scale; u from philox(seed, offset + i / 4).
  enum dit_status (*dropout)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *mask,
                             const struct dit_tensor_view *in, double keep, double scale, uint64_t seed, uint64_t offset,
                             struct dit_error *err);
};

DIT_EXTERN_C_END

#endif
