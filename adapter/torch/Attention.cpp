// Scaled dot product attention: the choice of a kernel, and the entry that PyTorch keeps for out-of-tree devices.
//
// The "overrideable" operators call the operator of the CPU's flash attention, which the vendor's library runs where it
// can (src/ops/network_attention.c) and the CPU over device memory else. Where the vendor has attention, but not for
// these arguments, it is composed of other operators (AttentionMath.h). The kernels that programs name, flash,
// efficient and cuDNN's, are in AttentionFused.cpp.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "AttentionMath.h"
#include "dit/diopi.h"

namespace ditorch {
namespace {

using at::SDPBackend;
using attention::Band;
using attention::getScale;
using attention::OptionalTensor;

// The CPU's kernel wants a mask of its kind.
bool isPlainMask(const at::Tensor &mask, const at::Tensor &query) {
  return (mask.dim() == 2 || mask.dim() == 4) &&
         (mask.scalar_type() == query.scalar_type() || mask.scalar_type() == at::kFloat);
}

// Groups of query heads that share a head of key and value: the kernels take them as they are.
bool hasGroups(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value) {
  return key.size(1) > 0 && query.size(1) % key.size(1) == 0 && key.size(1) == value.size(1);
}

// The vendor has attention, but neither with a mask nor causal over lengths that differ; no kernel has dropout.
bool isComposed(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value, const OptionalTensor &mask,
                double dropout, bool is_causal) {
  const dit_diopi_library *library = dit_diopi_get_active();
  const bool has_vendor = library != nullptr && library->functions.diopiFlashAttention != nullptr;
  return dropout > 0 || !hasGroups(query, key, value) || value.size(3) != query.size(3) || query.numel() == 0 ||
         key.numel() == 0 || (isGiven(mask) && (has_vendor || !isPlainMask(*mask, query))) ||
         (has_vendor && is_causal && query.size(2) != key.size(2));
}

// Sizes of traced tensors may be symbols: unknown counts as different.
bool isSame(const c10::SymInt &a, const c10::SymInt &b) {
  return TORCH_GUARD_OR_FALSE(a.sym_eq(b));
}

bool haveSame(const at::Tensor &a, const at::Tensor &b, int64_t dim) {
  return isSame(a.sym_size(dim), b.sym_size(dim));
}

bool hasSymGroups(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value) {
  return TORCH_GUARD_OR_FALSE(key.sym_size(1).sym_gt(0)) && isSame(query.sym_size(1) % key.sym_size(1), 0) &&
         haveSame(key, value, 1);
}

// Tensors that the fused operators take.
bool isFusable(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value, const OptionalTensor &mask,
               bool is_causal, bool enable_gqa) {
  const auto type = query.scalar_type();
  const bool right_type = type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  if (query.is_nested() || key.is_nested() || value.is_nested() || query.dim() != 4 || key.dim() != 4 ||
      value.dim() != 4 || !right_type || key.scalar_type() != type || value.scalar_type() != type ||
      query.device() != key.device() || query.device() != value.device() || (isGiven(mask) && is_causal)) {
    return false;
  }
  const bool right_heads =
      enable_gqa ? hasSymGroups(query, key, value) : haveSame(query, key, 1) && haveSame(query, value, 1);
  return right_heads && haveSame(query, key, 0) && haveSame(query, value, 0) && haveSame(query, key, 3) &&
         haveSame(key, value, 2) && isSame(query.sym_stride(3), 1) && isSame(key.sym_stride(3), 1) &&
         isSame(value.sym_stride(3), 1) && (!isGiven(mask) || mask->device() == query.device());
}

// What the kernels do without composing: then they are better than PyTorch's composition.
bool isFast(const at::Tensor &query, const at::Tensor &value, const OptionalTensor &mask, double dropout) {
  const bool right_mask = !isGiven(mask) || (!mask->requires_grad() && (mask->dim() == 2 || mask->dim() == 4));
  return dropout == 0 && right_mask && haveSame(query, value, 3) && TORCH_GUARD_OR_FALSE(query.sym_numel().sym_gt(0)) &&
         TORCH_GUARD_OR_FALSE(value.sym_numel().sym_gt(0));
}

// CUDA's fused kernels have no float64, so programs differentiate it twice, and forward: they check gradients in it.
bool isDifferentiated(const at::Tensor &tensor) {
  return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined();
}

bool needsDerivatives(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value) {
  return query.scalar_type() == at::kDouble &&
         (isDifferentiated(query) || isDifferentiated(key) || isDifferentiated(value));
}

SDPBackend chooseFused() {
  const auto &context = at::globalContext();
  // The entry for out-of-tree devices stands for flash attention too: the operator of that name is CUDA's.
  return context.userEnabledFlashSDP() || context.userEnabledOverrideableSDP() ? SDPBackend::overrideable
         : context.userEnabledMemEfficientSDP()                                ? SDPBackend::efficient_attention
         : context.userEnabledCuDNNSDP()                                       ? SDPBackend::cudnn_attention
                                                                               : SDPBackend::error;
}

int64_t chooseAttention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                        const OptionalTensor &mask, double dropout, bool is_causal, std::optional<double>,
                        bool enable_gqa) {
  const bool math = at::globalContext().userEnabledMathSDP();
  const SDPBackend fused = chooseFused();
  // Fake tensors (torch.compile) are asked for their sizes alone; other tensors without memory (vmap's) are composed.
  const bool is_traced = query.key_set().has(c10::DispatchKey::Python);
  if (math &&
      ((!is_traced && !query.has_storage()) || fused == SDPBackend::error || needsDerivatives(query, key, value))) {
    return static_cast<int64_t>(SDPBackend::math);
  }
  TORCH_CHECK(math || fused != SDPBackend::error,
              "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both "
              "the math kernel and the fused kernels.");
  // PyTorch has no gradient of the mask for cuDNN's attention.
  const bool lacks_gradient = fused == SDPBackend::cudnn_attention && isGiven(mask) && mask->requires_grad();
  const bool fusable = !lacks_gradient && isFusable(query, key, value, mask, is_causal, enable_gqa);
  if (fusable && (!math || isFast(query, value, mask, dropout))) {
    return static_cast<int64_t>(fused);
  }
  TORCH_CHECK(math, "No available kernel. Aborting execution. The fused kernels of ", showDevice(query.device()),
              " take dense query, key and value of four dimensions, of one floating point dtype, with matching "
              "batches, heads and lengths and a last dimension without gaps, and not a mask and is_causal together");
  return static_cast<int64_t>(SDPBackend::math);
}

attention::Problem makeProblem(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                               const OptionalTensor &bias, bool is_causal, std::optional<double> scale) {
  return {query, key, value, bias, Band::causal(is_causal), getScale(query, scale)};
}

// The result in the layout that tracing was told (python/ditorch/fake_layouts.py).
at::Tensor settle(const at::Tensor &made, const at::Tensor &wanted) {
  return made.strides() == wanted.strides() ? made : wanted.copy_(made);
}

// As large as the query, in the order of its memory.
at::Tensor settleOutput(const at::Tensor &output, const at::Tensor &query, const at::Tensor &value) {
  return output.numel() == 0 || value.size(3) != query.size(3) ? output : settle(output, at::empty_like(query));
}

// (B, H, S), in the order (B, S, H) of memory.
at::Tensor settleSums(const at::Tensor &sums) {
  const at::Tensor packed = sums.transpose(1, 2);
  return packed.is_contiguous() ? sums : packed.contiguous().transpose(1, 2);
}

using ForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                 at::Tensor, at::Tensor>;

ForwardResult attend(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                     const OptionalTensor &bias, double dropout, bool is_causal, bool, std::optional<double> scale) {
  at::Tensor output, logsumexp, seed, offset;
  if (dropout > 0) {
    std::tie(output, logsumexp, seed, offset) =
        at::_scaled_dot_product_efficient_attention(query, key, value, bias, true, dropout, is_causal, scale);
  } else if (isComposed(query, key, value, bias, dropout, is_causal)) {
    std::tie(output, logsumexp) = compose(makeProblem(query, key, value, bias, is_causal, scale));
  } else {
    std::tie(output, logsumexp) =
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, is_causal, bias, scale);
  }
  output = settleOutput(output, query, value);
  logsumexp = settleSums(logsumexp);
  return {output,          logsumexp, at::Tensor(), at::Tensor(), query.sym_size(2),
          key.sym_size(2), seed,      offset,       at::Tensor()};
}

using BackwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

BackwardResult attendBackward(const at::Tensor &grad, const at::Tensor &query, const at::Tensor &key,
                              const at::Tensor &value, const at::Tensor &bias, std::array<bool, 4> wanted,
                              const at::Tensor &output, const at::Tensor &logsumexp, const at::Tensor &,
                              const at::Tensor &, c10::SymInt, c10::SymInt, double dropout, bool is_causal,
                              const at::Tensor &seed, const at::Tensor &offset, std::optional<double> scale) {
  if (dropout > 0) {
    return at::_scaled_dot_product_efficient_attention_backward(grad, query, key, value, bias, output, logsumexp, seed,
                                                                offset, dropout, wanted, is_causal, scale);
  }
  const OptionalTensor mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  if (wanted[3] || isComposed(query, key, value, mask, dropout, is_causal)) {
    auto [grad_query, grad_key, grad_value, grad_bias] = attention::composeBackward(
        makeProblem(query, key, value, mask, is_causal, scale), grad, output, logsumexp, wanted[3]);
    return {grad_query, grad_key, grad_value, grad_bias};
  }
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, output, logsumexp, dropout, is_causal, mask, scale);
  return {grad_query, grad_key, grad_value, at::Tensor()};
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
