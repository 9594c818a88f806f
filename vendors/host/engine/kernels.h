/// Functions of the engine over whole tensors, for the operators of ops/ and for the device's kernel table.
///
/// The rules of dit/kernel.h hold for all: shapes are checked, any strides and dtypes may come, DIT_ERR_UNSUPPORTED
/// comes before anything is written, the work is queued on `stream` (NULL: done at once) with its arguments by value.
#ifndef DIT_HOST_ENGINE_KERNELS_H
#define DIT_HOST_ENGINE_KERNELS_H

#include "dit/kernel.h"

/// out = beta * bias + alpha * a @ b for `batch` independent matrices: a (B,M,K), b (B,K,N), out (B,M,N), bias
/// broadcast to out or NULL. All are 3-d views (batch stride 0 allowed on inputs), one dtype. beta == 0 ignores bias
/// (NaN included); K == 0 gives beta * bias.
enum dit_status kernel_gemm(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                            const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha,
                            double beta, struct dit_error *err);
/// Softmax (or log-softmax) over dimension `dim` (0 <= dim < ndim); out may be wider than in (half input, float
/// output).
enum dit_status kernel_softmax(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                               int dim, bool log, struct dit_error *err);
/// out[i] = value, converted as PyTorch's fill_ does.
enum dit_status kernel_fill(void *stream, const struct dit_tensor_view *out, struct dit_scalar value,
                            struct dit_error *err);
/// Bernoulli keep-mask and scaled copy: mask[i] = u(i) < keep, out[i] = in[i] * mask[i] * scale; u from philox(seed,
/// offset + i / 4).
enum dit_status kernel_dropout(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *mask,
                               const struct dit_tensor_view *in, double keep, double scale, uint64_t seed,
                               uint64_t offset, struct dit_error *err);
/// Write `scalar` as one element of `dtype` (PyTorch's conversion); false for a dtype without conversion.
bool kernel_store_scalar(struct dit_scalar scalar, int dtype, void *dst);

// The slots of struct dit_kernel_vtable

enum dit_status kernel_copy(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            struct dit_error *err);
enum dit_status kernel_lstm_cell(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *cy,
                                 const struct dit_tensor_view *workspace, const struct dit_tensor_view *input_gates,
                                 const struct dit_tensor_view *hidden_gates, const struct dit_tensor_view *cx,
                                 const struct dit_tensor_view *input_bias, const struct dit_tensor_view *hidden_bias,
                                 struct dit_error *err);
enum dit_status kernel_lstm_cell_backward(void *stream, const struct dit_tensor_view *grad_gates,
                                          const struct dit_tensor_view *grad_cx,
                                          const struct dit_tensor_view *grad_bias,
                                          const struct dit_tensor_view *grad_hy, const struct dit_tensor_view *grad_cy,
                                          const struct dit_tensor_view *cx, const struct dit_tensor_view *cy,
                                          const struct dit_tensor_view *workspace, struct dit_error *err);
enum dit_status kernel_gru_cell(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *workspace,
                                const struct dit_tensor_view *input_gates, const struct dit_tensor_view *hidden_gates,
                                const struct dit_tensor_view *hx, const struct dit_tensor_view *input_bias,
                                const struct dit_tensor_view *hidden_bias, struct dit_error *err);
enum dit_status kernel_gru_cell_backward(void *stream, const struct dit_tensor_view *grad_input_gates,
                                         const struct dit_tensor_view *grad_hidden_gates,
                                         const struct dit_tensor_view *grad_hx,
                                         const struct dit_tensor_view *grad_input_bias,
                                         const struct dit_tensor_view *grad_hidden_bias,
                                         const struct dit_tensor_view *grad_hy, const struct dit_tensor_view *workspace,
                                         struct dit_error *err);
enum dit_status kernel_histogram(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                                 int64_t low, int64_t high, struct dit_error *err);
enum dit_status kernel_fold(void *stream, enum dit_kernel_fold fold, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);
enum dit_status kernel_bitwise_xor(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                                   const struct dit_tensor_view *b, struct dit_error *err);

#endif
