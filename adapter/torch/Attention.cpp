// Scaled dot product attention: the CPU's flash kernels over device memory, or PyTorch's own composition.
//
// The "overrideable" operators are the entry PyTorch keeps for out-of-tree devices. They borrow the CPU's flash
// attention, which takes no dropout; with dropout, and in the few other cases the flash kernel declines, PyTorch
// composes attention from matmul and softmax.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "Common.h"
#include "Storage.h"

namespace ditorch {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor aliasIfDevice(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDevice ? aliasAsCpu(tensor) : tensor;
}

OptionalTensor aliasIfDevice(const OptionalTensor &tensor) {
  return tensor.has_value() && tensor->defined() ? OptionalTensor(aliasIfDevice(*tensor)) : std::nullopt;
}

int64_t chooseAttention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                        const OptionalTensor &mask, double dropout, bool is_causal, std::optional<double> scale,
                        bool enable_gqa) {
  const bool needs_mask_grad = mask.has_value() && mask->defined() && mask->requires_grad();
  const bool same_device = query.device() == key.device() && query.device() == value.device();
  // Tracing (torch.compile, fake tensors) has no memory to look at.
  const bool is_traced = query.key_set().has(c10::DispatchKey::Python) || !query.has_storage();
  if (dropout > 0 || enable_gqa || needs_mask_grad || !same_device || query.is_nested() || is_traced) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  const int64_t choice = at::_fused_sdp_choice(aliasIfDevice(query), aliasIfDevice(key), aliasIfDevice(value),
                                               aliasIfDevice(mask), dropout, is_causal, scale, enable_gqa);
  return static_cast<int64_t>(choice == static_cast<int64_t>(at::SDPBackend::flash_attention)
                                  ? at::SDPBackend::overrideable
                                  : at::SDPBackend::math);
}

using ForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                 at::Tensor, at::Tensor>;

ForwardResult attend(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                     const OptionalTensor &bias, double dropout, bool is_causal, bool, std::optional<double> scale) {
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, is_causal, bias, scale);
  return {output,          logsumexp,    at::Tensor(), at::Tensor(), query.sym_size(2),
          key.sym_size(2), at::Tensor(), at::Tensor(), at::Tensor()};
}

using BackwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

BackwardResult attendBackward(const at::Tensor &grad, const at::Tensor &query, const at::Tensor &key,
                              const at::Tensor &value, const at::Tensor &bias, std::array<bool, 4> wanted,
                              const at::Tensor &output, const at::Tensor &logsumexp, const at::Tensor &,
                              const at::Tensor &, c10::SymInt, c10::SymInt, double dropout, bool is_causal,
                              const at::Tensor &, const at::Tensor &, std::optional<double> scale) {
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, output, logsumexp, dropout, is_causal, mask, scale);
  return {grad_query, grad_key, grad_value, wanted[3] && bias.defined() ? at::zeros_like(bias) : at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", &attend);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attendBackward);
  m.impl("_fused_sdp_choice", &chooseAttention);
}

}  // namespace
}  // namespace ditorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &ditorch::chooseAttention)
}  // namespace at::native
