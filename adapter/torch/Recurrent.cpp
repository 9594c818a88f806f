// The fused recurrent cells, which torch.nn.LSTM and GRU call on every accelerator, composed of other operators of the
// device where the vendor has none. PyTorch has them for CUDA alone; on CPU tensors these run too.
//
// Formulas and layouts of the workspaces as in dit/kernel.h: a workspace written by a vendor's cell and one from here
// are the same.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "Common.h"

namespace ditorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor addBias(const Tensor &gates, const OptionalTensor &bias) {
  return isGiven(bias) ? gates + *bias : gates;
}

Tensor sumRows(const Tensor &gates, bool wanted) {
  return wanted ? gates.sum(0) : Tensor();
}

std::tuple<Tensor, Tensor, Tensor> lstmCell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &cx,
                                            const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  const auto gates = addBias(addBias(input_gates + hidden_gates, input_bias), hidden_bias).chunk(4, 1);
  const Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  const Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstmCellBackward(const OptionalTensor &grad_hy, const OptionalTensor &grad_cy,
                                                    const Tensor &cx, const Tensor &cy, const Tensor &workspace,
                                                    bool has_bias) {
  const bool has_hy = isGiven(grad_hy), has_cy = isGiven(grad_cy);
  if (!has_hy && !has_cy) {
    return {};
  }
  const Tensor from_hy = has_hy ? *grad_hy : at::zeros_like(cx), from_cy = has_cy ? *grad_cy : at::zeros_like(cx);
  const auto parts = workspace.chunk(4, 1);
  const Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  const Tensor bent = cy.tanh(), grad = from_cy + from_hy * o * (1 - bent * bent);
  const Tensor gates = at::cat(
      {grad * g * i * (1 - i), grad * cx * f * (1 - f), grad * i * (1 - g * g), from_hy * bent * o * (1 - o)}, 1);
  return {gates, grad * f, sumRows(gates, has_bias)};
}

std::tuple<Tensor, Tensor> gruCell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &hx,
                                   const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  const auto a = addBias(input_gates, input_bias).chunk(3, 1), b = addBias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor r = (a[0] + b[0]).sigmoid(), z = (a[1] + b[1]).sigmoid(), n = (a[2] + r * b[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, b[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gruCellBackward(const Tensor &grad_hy, const Tensor &workspace,
                                                                   bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const Tensor &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3], &hidden = parts[4];
  const Tensor grad_n = grad_hy * (1 - z) * (1 - n * n), grad_r = grad_n * hidden * r * (1 - r);
  const Tensor grad_z = grad_hy * (hx - n) * z * (1 - z);
  const Tensor input = at::cat({grad_r, grad_z, grad_n}, 1), recurrent = at::cat({grad_r, grad_z, grad_n * r}, 1);
  return {input, recurrent, grad_hy * z, sumRows(input, has_bias), sumRows(recurrent, has_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CompositeExplicitAutograd, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstmCell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstmCellBackward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gruCell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gruCellBackward));
}

}  // namespace ditorch
