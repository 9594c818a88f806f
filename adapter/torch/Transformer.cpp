// The encoder layer that torch.nn.TransformerEncoderLayer calls as one operator when it does not train, composed of
// operators of the device.
//
//   attention(x) = proj(softmax(q k^T / sqrt(d) with masked scores -inf) v)
//   norm first:  y = src + attention(norm1(src));    out = y + ffn(norm2(y))
//   else:        y = norm1(src + attention(src));    out = norm2(y + ffn(y))
#include <ATen/ATen.h>
#include <torch/library.h>

#include "Common.h"

namespace ditorch {
namespace {

// PyTorch's kinds of mask, in which true (or any number but 0, such as -inf) marks what is left out.
enum MaskType : int64_t { kSource = 0, kPadding = 1, kBoth = 2 };

// What scaled_dot_product_attention takes: true marks what counts; (batch, heads, queries, keys) after broadcasting.
std::optional<at::Tensor> convertMask(const std::optional<at::Tensor> &mask, std::optional<int64_t> type) {
  if (!mask.has_value() || !mask->defined()) {
    return std::nullopt;
  }
  TORCH_CHECK(type.has_value() && *type >= kSource && *type <= kBoth,
              "mask_type must be 0 (source), 1 (padding) or 2 (both), not ", type.value_or(-1));
  const at::Tensor kept = mask->to(at::kBool).logical_not();
  return *type == kPadding ? kept.unsqueeze(1).unsqueeze(1) : kept;
}

at::Tensor attend(const at::Tensor &x, int64_t heads, const at::Tensor &qkv_weight, const at::Tensor &qkv_bias,
                  const at::Tensor &proj_weight, const at::Tensor &proj_bias, const std::optional<at::Tensor> &mask) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const std::vector<at::Tensor> parts = at::linear(x, qkv_weight, qkv_bias).chunk(3, -1);
  std::vector<at::Tensor> split;
  for (const at::Tensor &part : parts) {
    split.push_back(part.reshape({batch, length, heads, width / heads}).transpose(1, 2));
  }
  const at::Tensor y = at::scaled_dot_product_attention(split[0], split[1], split[2], mask);
  return at::linear(y.transpose(1, 2).reshape({batch, length, width}), proj_weight, proj_bias);
}

at::Tensor encode(const at::Tensor &src, int64_t width, int64_t heads, const at::Tensor &qkv_weight,
                  const at::Tensor &qkv_bias, const at::Tensor &proj_weight, const at::Tensor &proj_bias, bool use_gelu,
                  bool norm_first, double eps, const at::Tensor &norm_weight_1, const at::Tensor &norm_bias_1,
                  const at::Tensor &norm_weight_2, const at::Tensor &norm_bias_2, const at::Tensor &ffn_weight_1,
                  const at::Tensor &ffn_bias_1, const at::Tensor &ffn_weight_2, const at::Tensor &ffn_bias_2,
                  const std::optional<at::Tensor> &mask, std::optional<int64_t> mask_type) {
  TORCH_CHECK(src.dim() == 3 && src.size(2) == width && heads > 0 && width % heads == 0,
              "expected a source of (batch, length, ", width, ") and a width that ", heads, " heads divide, not ",
              src.sizes());
  const auto norm1 = [&](const at::Tensor &x) { return at::layer_norm(x, {width}, norm_weight_1, norm_bias_1, eps); };
  const auto norm2 = [&](const at::Tensor &x) { return at::layer_norm(x, {width}, norm_weight_2, norm_bias_2, eps); };
  const auto feed = [&](const at::Tensor &x) {
    const at::Tensor hidden = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), ffn_weight_2, ffn_bias_2);
  };
  const auto attention = [&](const at::Tensor &x) {
    return attend(x, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, convertMask(mask, mask_type));
  };
  if (norm_first) {
    const at::Tensor y = src + attention(norm1(src));
    return y + feed(norm2(y));
  }
  const at::Tensor y = norm1(src + attention(src));
  return norm2(y + feed(y));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_transformer_encoder_layer_fwd", &encode);
}

}  // namespace
}  // namespace ditorch
