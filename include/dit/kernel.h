/// Kernels of a vendor: what the C operators of src/ops launch once shapes, dtypes and outputs are settled.
///
/// Rules for every slot: views are device tensors on one device; all shape checks are done, but any strides (expanded,
/// negative-free, permuted, offset) and any dtype may come: answer DIT_ERR_UNSUPPORTED *before writing* for what is not
/// implemented. Inputs and outputs either do not overlap or are the very same elements (in-place). Work is enqueued on
/// `stream` (NULL: the default stream) and may outlive the call, so views are copied, never kept. Kernels are
/// deterministic. A NULL slot means not implemented. Exported by a vendor library as
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

  /// out[i] = a[i] op b[i] with a and b broadcast to out (stride 0 already set by the caller: all three have out's
  /// sizes). Operands are converted to `compute` (promoted dtype; float for half types) element by element; out has its
  /// own dtype. An operand without DIT_TENSOR_ON_DEVICE is one number in host memory (all strides 0) that must be read
  /// before the slot returns.
  enum dit_status (*binary)(void *stream, enum dit_binary_kind kind, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *a, const struct dit_tensor_view *b, struct dit_scalar alpha,
                            int compute, struct dit_error *err);
  /// out[i] = f(in[i]); same sizes, same dtype.
  enum dit_status (*unary)(void *stream, enum dit_unary_kind kind, const struct dit_tensor_view *out,
                           const struct dit_tensor_view *in, struct dit_error *err);
  /// out = beta * bias + alpha * a @ b for `batch` independent matrices: a (B,M,K), b (B,K,N), out (B,M,N), bias
  /// broadcast to out or NULL. All are 3-d views (batch stride 0 allowed on inputs), one dtype. beta == 0 ignores bias
  /// (NaN included); K == 0 gives beta * bias.
  enum dit_status (*gemm)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                          const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha,
                          double beta, struct dit_error *err);
  /// Softmax (or log-softmax) over dimension `dim` (0 <= dim < ndim); out may be wider than in (half input, float
  /// output).
  enum dit_status (*softmax)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in, int dim,
                             bool log, struct dit_error *err);
  /// Reduce the dimensions whose bit is set in `mask`; out keeps all dimensions of `in`, the reduced ones with size 1.
  enum dit_status (*reduce)(void *stream, enum dit_reduce_kind kind, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);
  /// out[i] = in[i] with conversion between any two dtypes, as PyTorch casts.
  enum dit_status (*copy)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          struct dit_error *err);
  /// out[i] = value, converted as PyTorch's fill_ does.
  enum dit_status (*fill)(void *stream, const struct dit_tensor_view *out, struct dit_scalar value,
                          struct dit_error *err);
  /// Bernoulli keep-mask and scaled copy: mask[i] = u(i) < keep, out[i] = in[i] * mask[i] * scale; u from philox(seed,
  /// offset + i / 4).
  enum dit_status (*dropout)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *mask,
                             const struct dit_tensor_view *in, double keep, double scale, uint64_t seed,
                             uint64_t offset, struct dit_error *err);

  /// Recurrent cells. All views are 2-d with stride 1 in the last dimension, one floating dtype (accumulated in float
  /// for half types); biases are 1-d or NULL, both or none. N rows, H hidden units. LSTM: gates = input_gates +
  /// hidden_gates (+ biases), (N,4H) in the order i f g o; cy = f * cx + i * g, hy = o * tanh(cy); workspace (N,4H)
  /// gets the activated gates.
  enum dit_status (*lstm_cell)(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *cy,
                               const struct dit_tensor_view *workspace, const struct dit_tensor_view *input_gates,
                               const struct dit_tensor_view *hidden_gates, const struct dit_tensor_view *cx,
                               const struct dit_tensor_view *input_bias, const struct dit_tensor_view *hidden_bias,
                               struct dit_error *err);
  /// grad_gates (N,4H) and grad_cx (N,H) from grad_hy or grad_cy (one of them may be NULL).
  enum dit_status (*lstm_cell_backward)(void *stream, const struct dit_tensor_view *grad_gates,
                                        const struct dit_tensor_view *grad_cx, const struct dit_tensor_view *grad_hy,
                                        const struct dit_tensor_view *grad_cy, const struct dit_tensor_view *cx,
                                        const struct dit_tensor_view *cy, const struct dit_tensor_view *workspace,
                                        struct dit_error *err);
  /// GRU: r, z = sigmoid(input + hidden), n = tanh(input_n + r * hidden_n), hy = n + z * (hx - n); gates (N,3H) in the
  /// order r z n; workspace (N,5H) gets r, z, n, hx, hidden_n (with its bias).
  enum dit_status (*gru_cell)(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *workspace,
                              const struct dit_tensor_view *input_gates, const struct dit_tensor_view *hidden_gates,
                              const struct dit_tensor_view *hx, const struct dit_tensor_view *input_bias,
                              const struct dit_tensor_view *hidden_bias, struct dit_error *err);
  enum dit_status (*gru_cell_backward)(void *stream, const struct dit_tensor_view *grad_input_gates,
                                       const struct dit_tensor_view *grad_hidden_gates,
                                       const struct dit_tensor_view *grad_hx, const struct dit_tensor_view *grad_hy,
                                       const struct dit_tensor_view *workspace, struct dit_error *err);

  /// out (1-d, the input's integer dtype) = counts of in's elements in out's number of equal bins over [low, high]; the
  /// last bin holds high too, values outside are left out. low == high: the range of the data.
  enum dit_status (*histogram)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                               int64_t low, int64_t high, struct dit_error *err);
};

DIT_EXTERN_C_END

#endif
