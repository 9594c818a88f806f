// Scaled dot product attention: the vendor's or the CPU's flash kernels, or PyTorch's own composition.
//
// The "overrideable" operators are the entry PyTorch keeps for out-of-tree devices. They call the operator of the CPU's
// flash attention, which the vendor's library runs where it can (src/ops/network_attention.c) and the CPU over device
// memory else. Where the vendor has attention, but not for these arguments, it is composed here of other operators;
// with dropout, and in the few other cases the flash kernel declines, PyTorch composes it of matmul and softmax.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "Common.h"
#include "Storage.h"
#include "dit/diopi.h"

namespace ditorch {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor aliasIfDevice(const at::Tensor &tensor) {
  return tensor.defined() && tensor.device().type() == kDevice ? aliasAsCpu(tensor) : tensor;
}

OptionalTensor aliasIfDevice(const OptionalTensor &tensor) {
  return tensor.has_value() && tensor->defined() ? OptionalTensor(aliasIfDevice(*tensor)) : std::nullopt;
}

// The vendor has attention, but neither with a mask nor causal over lengths that differ.
bool isComposed(const at::Tensor &query, const at::Tensor &key, const OptionalTensor &mask, bool is_causal) {
  const dit_diopi_library *library = dit_diopi_get_active();
  if (library == nullptr || library->functions.diopiFlashAttention == nullptr || query.dim() != 4 || key.dim() != 4) {
    return false;
  }
  return (mask.has_value() && mask->defined()) || (is_causal && query.size(2) != key.size(2));
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

double getScale(const at::Tensor &query, std::optional<double> scale) {
  return scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(query.size(3)));
}

// Half precision computes in float32.
at::Tensor widen(const at::Tensor &tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

// scale Q K^T + mask, (B, H, S, T); causal means that query i sees the keys 0 to i.
at::Tensor computeScores(const at::Tensor &query, const at::Tensor &key, const OptionalTensor &mask, bool is_causal,
                         double scale) {
  at::Tensor scores = at::matmul(widen(query), widen(key).transpose(-2, -1)).mul_(scale);
  if (mask.has_value() && mask->defined()) {
    scores.add_(*mask);
  }
  if (is_causal) {
    const at::Tensor hidden = at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).triu(1);
    scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }
  return scores;
}

// Output like the query, logarithm of the sums (B, H, S). A row of which everything is masked gives zeros and -inf.
std::tuple<at::Tensor, at::Tensor> compose(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                                           const OptionalTensor &mask, bool is_causal, double scale) {
  const at::Tensor scores = computeScores(query, key, mask, is_causal, scale);
  const at::Tensor largest = scores.amax(-1, true).clamp_min_(std::numeric_limits<float>::lowest());
  const at::Tensor weights = at::sub(scores, largest).exp_();
  const at::Tensor sums = weights.sum(-1, true);
  const at::Tensor output = at::matmul(weights, widen(value)).div_(sums.masked_fill(sums.eq(0), 1));
  return {at::empty_like(query).copy_(output), sums.log().add_(largest).squeeze(-1)};
}

// Gradients lie in memory as (B, S, H, D), as those of flash attention do.
at::Tensor arrange(const at::Tensor &gradient, const at::Tensor &like) {
  const auto sizes = like.sizes();
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, like.options()).transpose(1, 2).copy_(gradient);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> composeBackward(const at::Tensor &grad, const at::Tensor &query,
                                                               const at::Tensor &key, const at::Tensor &value,
                                                               const OptionalTensor &mask, const at::Tensor &output,
                                                               const at::Tensor &logsumexp, bool is_causal,
                                                               double scale) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor sums = logsumexp.masked_fill(logsumexp.eq(-infinity), infinity).unsqueeze(-1);
  const at::Tensor weights = computeScores(query, key, mask, is_causal, scale).sub_(sums).exp_();
  const at::Tensor dy = widen(grad);
  const at::Tensor products = at::mul(dy, widen(output)).sum(-1, true);
  const at::Tensor scores = at::matmul(dy, widen(value).transpose(-2, -1)).sub_(products).mul_(weights).mul_(scale);
  return {arrange(at::matmul(scores, widen(key)), query),
          arrange(at::matmul(scores.transpose(-2, -1), widen(query)), key),
          arrange(at::matmul(weights.transpose(-2, -1), dy), value)};
}

using ForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                 at::Tensor, at::Tensor>;

ForwardResult attend(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                     const OptionalTensor &bias, double dropout, bool is_causal, bool, std::optional<double> scale) {
  auto [output, logsumexp] =
      isComposed(query, key, bias, is_causal)
          ? compose(query, key, value, bias, is_causal, getScale(query, scale))
          : at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, is_causal, bias, scale);
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
  auto [grad_query, grad_key, grad_value] =
      isComposed(query, key, mask, is_causal)
          ? composeBackward(grad, query, key, value, mask, output, logsumexp, is_causal, getScale(query, scale))
          : at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, query, key, value, output, logsumexp,
                                                                     dropout, is_causal, mask, scale);
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
