/// The host vendor's kernels, one function per slot of struct dit_kernel_vtable; contracts in dit/kernel.h.
#ifndef DIT_HOST_OPS_KERNELS_H
#define DIT_HOST_OPS_KERNELS_H

#include "dit/kernel.h"

enum dit_status kernel_binary(void *stream, enum dit_binary_kind kind, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *a, const struct dit_tensor_view *b, struct dit_scalar alpha,
                              int compute, struct dit_error *err);
enum dit_status kernel_unary(void *stream, enum dit_unary_kind kind, const struct dit_tensor_view *out,
                             const struct dit_tensor_view *in, struct dit_error *err);
enum dit_status kernel_gemm(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                            const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha,
                            double beta, struct dit_error *err);
enum dit_status kernel_softmax(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                               int dim, bool log, struct dit_error *err);
enum dit_status kernel_reduce(void *stream, enum dit_reduce_kind kind, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err);
enum dit_status kernel_copy(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            struct dit_error *err);
enum dit_status kernel_fill(void *stream, const struct dit_tensor_view *out, struct dit_scalar value,
                            struct dit_error *err);
enum dit_status kernel_dropout(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *mask,
                               const struct dit_tensor_view *in, double keep, double scale, uint64_t seed,
                               uint64_t offset, struct dit_error *err);
enum dit_status kernel_lstm_cell(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *cy,
                                 const struct dit_tensor_view *workspace, const struct dit_tensor_view *input_gates,
                                 const struct dit_tensor_view *hidden_gates, const struct dit_tensor_view *cx,
                                 const struct dit_tensor_view *input_bias, const struct dit_tensor_view *hidden_bias,
                                 struct dit_error *err);
enum dit_status kernel_lstm_cell_backward(void *stream, const struct dit_tensor_view *grad_gates,
                                          const struct dit_tensor_view *grad_cx, const struct dit_tensor_view *grad_hy,
                                          const struct dit_tensor_view *grad_cy, const struct dit_tensor_view *cx,
                                          const struct dit_tensor_view *cy, const struct dit_tensor_view *workspace,
                                          struct dit_error *err);
enum dit_status kernel_gru_cell(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *workspace,
                                const struct dit_tensor_view *input_gates, const struct dit_tensor_view *hidden_gates,
                                const struct dit_tensor_view *hx, const struct dit_tensor_view *input_bias,
                                const struct dit_tensor_view *hidden_bias, struct dit_error *err);
enum dit_status kernel_gru_cell_backward(void *stream, const struct dit_tensor_view *grad_input_gates,
                                         const struct dit_tensor_view *grad_hidden_gates,
                                         const struct dit_tensor_view *grad_hx, const struct dit_tensor_view *grad_hy,
                                         const struct dit_tensor_view *workspace, struct dit_error *err);
enum dit_status kernel_histogram(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                                 int64_t low, int64_t high, struct dit_error *err);

/// Write `scalar` as one element of `dtype` (PyTorch's conversion); false for a dtype without conversion.
bool kernel_store_scalar(struct dit_scalar scalar, int dtype, void *dst);

#endif
