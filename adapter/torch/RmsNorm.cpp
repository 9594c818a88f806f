// The gradients of RMS norm where the vendor has none for the arguments. PyTorch has them as one operator for CUDA
// alone; here they are composed of operators of the device. With x' = x / rms(x) and g = dy * weight:
//   dx = (g - x' * mean(g * x')) / rms(x),   dweight = sum of dy * x' over the leading dimensions
// Half precision computes in float32.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "Common.h"

namespace ditorch {
namespace {

at::Tensor widen(const at::Tensor &tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor &grad, const at::Tensor &input, at::IntArrayRef shape,
                                            const at::Tensor &rstd, const std::optional<at::Tensor> &weight,
                                            std::array<bool, 2> wanted) {
  const bool weighted = isGiven(weight);
  const at::Tensor dy = widen(grad), normal = widen(input).mul(rstd);
  const int64_t leading = input.dim() - static_cast<int64_t>(shape.size());
  at::Tensor grad_input, grad_weight;
  if (wanted[0]) {
    std::vector<int64_t> dims;
    for (int64_t dim = leading; dim < input.dim(); dim++) {
      dims.push_back(dim);
    }
    const at::Tensor g = weighted ? dy.mul(widen(*weight)) : dy;
    grad_input = at::sub(g, normal.mul(at::mul(g, normal).mean(dims, true))).mul(rstd).to(input.scalar_type());
  }
  if (wanted[1] && weighted) {
    const at::Tensor products = at::mul(dy, normal).reshape({-1, weight->numel()});
    grad_weight = products.sum(0).reshape(weight->sizes()).to(weight->scalar_type());
  }
  return {grad_input, grad_weight};
}

TORCH_LIBRARY_IMPL(aten, CompositeExplicitAutograd, m) {
  m.impl("_fused_rms_norm_backward", &backward);
}

}  // namespace
}  // namespace ditorch
