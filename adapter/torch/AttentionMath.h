// Attention composed of operators of the device: what no kernel takes (masks, dropout, windows, groups of heads).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

#include "Common.h"

namespace ditorch::attention {

using OptionalTensor = std::optional<at::Tensor>;

// 1 / sqrt(D) unless given.
double getScale(const at::Tensor &query, std::optional<double> scale);

// Which keys a query may look at: key j of T for query i of S when low <= j - i <= high. Without bounds, all.
struct Band {
  std::optional<int64_t> low, high;

  bool isOpen() const { return !low.has_value() && !high.has_value(); }
  static Band causal(bool is_causal) { return is_causal ? Band{std::nullopt, 0} : Band{}; }
};

// softmax(scale Q K^T + bias within the band) V, of which dropout leaves out a part of the weights.
struct Problem {
  at::Tensor query, key, value;  // (B, H, S, D), (B, G, T, D), (B, G, T, E): G divides H
  OptionalTensor bias;           // numbers or, true where a key counts, booleans; broadcasts to (B, H, S, T)
  Band band;
  double scale = 1;
  double dropout = 0;
  at::Tensor uniform = {};  // (B, H, S, T) in [0, 1): weights at numbers up to `dropout` are left out
};

// Output (B, H, S, E) like the query, logarithm of the sums (B, H, S). A row of which everything is masked gives zeros
// and -inf.
std::tuple<at::Tensor, at::Tensor> compose(const Problem &problem);

// Gradients of query, key, value and, where `wants_bias`, of the bias.
std::array<at::Tensor, 4> composeBackward(const Problem &problem, const at::Tensor &grad, const at::Tensor &output,
                                          const at::Tensor &logsumexp, bool wants_bias);

// The softmax itself (B, H, S, T), negative where dropout left out.
at::Tensor composeWeights(const Problem &problem, const at::Tensor &logsumexp);

}  // namespace ditorch::attention
