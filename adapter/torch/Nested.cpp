// Nested tensors with strides, as far as PyTorch's kernels for the CPU's ones are not made of operators (Door.cpp).
//
// Layer norm runs over the last dimensions, which all parts share, so the buffer is one dense tensor of rows. Sums read
// the buffer itself: where the host cannot read it, a copy of it.
#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/_nested_sum_backward_native.h>
#include <ATen/ops/sum_native.h>
#include <torch/library.h>

#include "Common.h"
#include "Staging.h"

namespace ditorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// (rows, width) over the parts' numbers in their order.
Tensor toRows(const Tensor &nested, int64_t width) {
  return at::native::get_nested_tensor_impl(nested.contiguous())->get_buffer().view({-1, width});
}

Tensor toNested(const Tensor &rows, const Tensor &like) {
  return at::native::wrap_buffer(rows.reshape({-1}), at::native::get_nested_tensor_impl(like)->get_nested_sizes());
}

Tensor flatten(const OptionalTensor &tensor) {
  return isGiven(tensor) ? tensor->reshape({-1}) : Tensor();
}

std::tuple<Tensor, Tensor, Tensor> normalize(const Tensor &input, c10::IntArrayRef shape, const OptionalTensor &weight,
                                             const OptionalTensor &bias, double eps) {
  const int64_t width = c10::multiply_integers(shape);
  for (size_t i = 0; i < shape.size(); i++) {
    TORCH_CHECK(input.size(input.dim() - static_cast<int64_t>(shape.size() - i)) == shape[i],
                "Given normalized_shape=", shape, ", expected the last dimensions of every part to be the same");
  }
  auto [rows, mean, rstd] = at::native_layer_norm(toRows(input, width), {width}, flatten(weight), flatten(bias), eps);
  return {toNested(rows, input), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> normalizeBackward(const Tensor &grad, const Tensor &input, c10::IntArrayRef shape,
                                                     const Tensor &mean, const Tensor &rstd,
                                                     const OptionalTensor &weight, const OptionalTensor &bias,
                                                     std::array<bool, 3> wanted) {
  const int64_t width = c10::multiply_integers(shape);
  auto [rows, grad_weight, grad_bias] = at::native_layer_norm_backward(
      toRows(grad, width), toRows(input, width), {width}, mean, rstd, flatten(weight), flatten(bias), wanted);
  return {wanted[0] ? toNested(rows, input) : Tensor(), wanted[1] ? grad_weight.view(shape) : Tensor(),
          wanted[2] ? grad_bias.view(shape) : Tensor()};
}

// The same nested tensor over a buffer elsewhere.
Tensor move(const Tensor &nested, c10::Device device) {
  const auto *impl = at::native::get_nested_tensor_impl(nested);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(impl->get_unsafe_storage_as_tensor().to(device),
                                                               impl->get_nested_sizes(), impl->get_nested_strides(),
                                                               impl->get_storage_offsets());
}

Tensor sum(const Tensor &self, c10::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  if (isHostAccessible()) {
    return at::native::NestedTensor_sum_dim_CPU(self, dim, keepdim, dtype);
  }
  return move(at::native::NestedTensor_sum_dim_CPU(move(self, c10::kCPU), dim, keepdim, dtype), self.device());
}

Tensor sumBackward(const Tensor &grad, const Tensor &self, c10::OptionalIntArrayRef dim, bool keepdim) {
  if (isHostAccessible()) {
    return at::native::_nested_sum_backward_cpu(grad, self, dim, keepdim);
  }
  return move(at::native::_nested_sum_backward_cpu(move(grad, c10::kCPU), move(self, c10::kCPU), dim, keepdim),
              self.device());
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("sum.dim_IntList", &sum);
  m.impl("_nested_sum_backward", &sumBackward);
  m.impl("native_layer_norm", &normalize);
  m.impl("native_layer_norm_backward", &normalizeBackward);
}

}  // namespace
}  // namespace ditorch
