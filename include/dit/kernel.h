/// Kernels of a vendor for what the operator standard (diopi/functions.h) has no function for: copies that PyTorch's
/// own copy_ asks for outside of an operator call, the fused recurrent cells, histograms of integers, and what would
/// otherwise be made of several functions (minimum, sum without NaN, exclusive or). All other arithmetic is a DIOPI
/// library's.
///
/// Rules for every slot: views are device tensors on one device; all shape checks are done, but any strides (expanded,
/// negative-free, permuted, offset) and any dtype may come: answer DIT_ERR_UNSUPPORTED *before writing* for what is not
/// implemented. Inputs and outputs either do not overlap or are the very same elements (in-place). Work is enqueued on
/// `stream` (NULL: the default stream) and may outlive the call, so views are copied, never kept. Kernels are
/// deterministic. A NULL slot means not implemented: the work is done by PyTorch on the CPU. Exported by a vendor
/// library as
///   const struct dit_kernel_vtable *dit_vendor_get_kernels(void);   (optional symbol)
#ifndef DIT_KERNEL_H
#define DIT_KERNEL_H

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

/// A table of another version is refused: version 1 began with slots for arithmetic, which DIOPI libraries have now.
#define DIT_KERNEL_ABI_VERSION 2

enum dit_kernel_fold {
  DIT_KERNEL_FOLD_MIN,     ///< a NaN wins
  DIT_KERNEL_FOLD_NANSUM,  ///< floating types; a NaN counts as 0
};

struct dit_kernel_vtable {
  uint32_t abi_version;  ///< DIT_KERNEL_ABI_VERSION
  uint32_t struct_size;  ///< sizeof(struct dit_kernel_vtable) when the vendor was built; later slots count as NULL

  /// out[i] = in[i] with conversion between any two dtypes, as PyTorch casts.
  enum dit_status (*copy)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          struct dit_error *err);

  /// Recurrent cells. All views are 2-d with stride 1 in the last dimension, one floating dtype (accumulated in float
  /// for half types); biases are 1-d and contiguous, or NULL, both or none. N rows, H hidden units. LSTM: gates =
  /// input_gates + hidden_gates (+ biases), (N,4H) in the order i f g o; cy = f * cx + i * g, hy = o * tanh(cy);
  /// workspace (N,4H) gets the activated gates.
  enum dit_status (*lstm_cell)(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *cy,
                               const struct dit_tensor_view *workspace, const struct dit_tensor_view *input_gates,
                               const struct dit_tensor_view *hidden_gates, const struct dit_tensor_view *cx,
                               const struct dit_tensor_view *input_bias, const struct dit_tensor_view *hidden_bias,
                               struct dit_error *err);
  /// grad_gates (N,4H) and grad_cx (N,H) from grad_hy or grad_cy (one of them may be NULL); grad_bias (4H) or NULL: the
  /// sum of grad_gates over the rows.
  enum dit_status (*lstm_cell_backward)(void *stream, const struct dit_tensor_view *grad_gates,
                                        const struct dit_tensor_view *grad_cx, const struct dit_tensor_view *grad_bias,
                                        const struct dit_tensor_view *grad_hy, const struct dit_tensor_view *grad_cy,
                                        const struct dit_tensor_view *cx, const struct dit_tensor_view *cy,
                                        const struct dit_tensor_view *workspace, struct dit_error *err);
  /// GRU: r, z = sigmoid(input + hidden), n = tanh(input_n + r * hidden_n), hy = n + z * (hx - n); gates (N,3H) in the
  /// order r z n; workspace (N,5H) gets r, z, n, hx, hidden_n (with its bias).
  enum dit_status (*gru_cell)(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *workspace,
                              const struct dit_tensor_view *input_gates, const struct dit_tensor_view *hidden_gates,
                              const struct dit_tensor_view *hx, const struct dit_tensor_view *input_bias,
                              const struct dit_tensor_view *hidden_bias, struct dit_error *err);
  /// Both biases' gradients, the sums over the rows, or none of them.
  enum dit_status (*gru_cell_backward)(void *stream, const struct dit_tensor_view *grad_input_gates,
                                       const struct dit_tensor_view *grad_hidden_gates,
                                       const struct dit_tensor_view *grad_hx,
                                       const struct dit_tensor_view *grad_input_bias,
                                       const struct dit_tensor_view *grad_hidden_bias,
                                       const struct dit_tensor_view *grad_hy, const struct dit_tensor_view *workspace,
                                       struct dit_error *err);

  /// out (1-d, the input's integer dtype) = counts of in's elements in out's number of equal bins over [low, high]; the
  /// last bin holds high too, values outside are left out. low == high: the range of the data.
  enum dit_status (*histogram)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                               int64_t low, int64_t high, struct dit_error *err);

  /// The fold over the dimensions whose bit is set in `mask`. out has all dimensions of `in`, the reduced ones with
  /// size 1; both have one dtype, except that a sum may be wider than its input. `in` has elements.
  enum dit_status (*fold)(void *stream, enum dit_kernel_fold fold, const struct dit_tensor_view *out,
                          const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);
  /// out = a ^ b of integers or bool, all of one dtype and shape.
  enum dit_status (*bitwise_xor)(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                                 const struct dit_tensor_view *b, struct dit_error *err);
};

DIT_EXTERN_C_END

#endif
