#include "AttentionMath.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace ditorch::attention {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Half precision computes in float32.
at::Tensor widen(const at::Tensor &tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

// Key and value heads serve groups of query heads: each is repeated for its group.
at::Tensor repeatHeads(const at::Tensor &tensor, int64_t heads) {
  const int64_t groups = tensor.size(1);
  if (groups == heads) {
    return tensor;
  }
  TORCH_CHECK(groups > 0 && heads % groups == 0,
              "Number of heads in key and value must divide the number of heads in "
              "query, got ",
              groups, " and ", heads);
  return tensor.repeat_interleave(heads / groups, 1);
}

at::Tensor sumHeads(const at::Tensor &gradient, int64_t groups) {
  const int64_t heads = gradient.size(1);
  return groups == heads ? gradient : gradient.unflatten(1, {groups, heads / groups}).sum(2);
}

// What lies outside of the band, (S, T).
at::Tensor findHidden(const Problem &problem) {
  const auto options = problem.query.options().dtype(at::kBool);
  const at::Tensor all = at::ones({problem.query.size(2), problem.key.size(2)}, options);
  at::Tensor hidden = problem.band.high.has_value() ? all.triu(*problem.band.high + 1) : at::zeros_like(all);
  if (problem.band.low.has_value()) {
    hidden.logical_or_(all.tril(*problem.band.low - 1));
  }
  return hidden;
}

at::Tensor computeScores(const Problem &problem) {
  const at::Tensor key = repeatHeads(widen(problem.key), problem.query.size(1));
  at::Tensor scores = at::matmul(widen(problem.query), key.transpose(-2, -1)).mul_(problem.scale);
  if (isGiven(problem.bias)) {
    if (problem.bias->scalar_type() == at::kBool) {
      scores.masked_fill_(problem.bias->logical_not(), -kInfinity);
    } else {
      scores.add_(*problem.bias);
    }
  }
  if (!problem.band.isOpen()) {
    scores.masked_fill_(findHidden(problem), -kInfinity);
  }
  return scores;
}

// exp(scores - logsumexp); zeros where everything is masked.
at::Tensor computeWeights(const Problem &problem, const at::Tensor &logsumexp) {
  const at::Tensor sums = logsumexp.masked_fill(logsumexp.eq(-kInfinity), kInfinity).unsqueeze(-1);
  return computeScores(problem).sub_(sums).exp_();
}

// Ones over the part that stays, zeros over what is left out.
at::Tensor computeKept(const Problem &problem, const at::Tensor &like) {
  const double factor = problem.dropout < 1 ? 1 / (1 - problem.dropout) : 0;
  return problem.uniform.gt(problem.dropout).to(like.scalar_type()).mul_(factor);
}

// Gradients lie in memory as (B, S, H, D), as those of flash attention do.
at::Tensor arrange(const at::Tensor &gradient, const at::Tensor &like) {
  const auto sizes = like.sizes();
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, like.options()).transpose(1, 2).copy_(gradient);
}

bool isEmpty(const Problem &problem) {
  return problem.query.numel() == 0 || problem.key.numel() == 0 || problem.value.numel() == 0;
}

}  // namespace

double getScale(const at::Tensor &query, std::optional<double> scale) {
  return scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
}

std::tuple<at::Tensor, at::Tensor> compose(const Problem &problem) {
  const auto sizes = problem.query.sizes();
  const at::Tensor output =
      problem.value.size(3) == sizes[3]
          ? at::empty_like(problem.query)
          : at::empty({sizes[0], sizes[2], sizes[1], problem.value.size(3)}, problem.query.options()).transpose(1, 2);
  if (isEmpty(problem)) {
    const auto type = problem.query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return {output.zero_(), at::full({sizes[0], sizes[1], sizes[2]}, -kInfinity, problem.query.options().dtype(type))};
  }
  const at::Tensor scores = computeScores(problem);
  const at::Tensor largest = scores.amax(-1, true).clamp_min_(std::numeric_limits<float>::lowest());
  at::Tensor weights = at::sub(scores, largest).exp_();
  const at::Tensor sums = weights.sum(-1, true);
  if (problem.dropout > 0) {
    weights.mul_(computeKept(problem, weights));
  }
  const at::Tensor value = repeatHeads(widen(problem.value), sizes[1]);
  output.copy_(at::matmul(weights, value).div_(sums.masked_fill(sums.eq(0), 1)));
  return {output, sums.log().add_(largest).squeeze(-1)};
}

std::array<at::Tensor, 4> composeBackward(const Problem &problem, const at::Tensor &grad, const at::Tensor &output,
                                          const at::Tensor &logsumexp, bool wants_bias) {
  const auto sizes = problem.query.sizes();
  wants_bias = wants_bias && isGiven(problem.bias);
  if (isEmpty(problem)) {
    return {at::zeros_like(problem.query), at::zeros_like(problem.key), at::zeros_like(problem.value),
            wants_bias ? at::zeros_like(*problem.bias) : at::Tensor()};
  }
  const at::Tensor weights = computeWeights(problem, logsumexp);
  const at::Tensor dy = widen(grad);
  const at::Tensor value = repeatHeads(widen(problem.value), sizes[1]);
  at::Tensor scores = at::matmul(dy, value.transpose(-2, -1));
  at::Tensor used = weights;
  if (problem.dropout > 0) {
    const at::Tensor kept = computeKept(problem, weights);
    scores.mul_(kept);
    used = at::mul(weights, kept);
  }
  scores.sub_(at::mul(dy, widen(output)).sum(-1, true)).mul_(weights);
  at::Tensor grad_bias;
  if (wants_bias) {
    grad_bias = scores.sum_to_size(problem.bias->sizes()).to(problem.bias->scalar_type());
  }
  scores = scores.mul(problem.scale);  // not in place: the bias may have the same numbers for its gradient
  const at::Tensor key = repeatHeads(widen(problem.key), sizes[1]);
  const int64_t groups = problem.key.size(1);
  return {arrange(at::matmul(scores, key), problem.query),
          arrange(sumHeads(at::matmul(scores.transpose(-2, -1), widen(problem.query)), groups), problem.key),
          arrange(sumHeads(at::matmul(used.transpose(-2, -1), dy), problem.value.size(1)), problem.value), grad_bias};
}

at::Tensor composeWeights(const Problem &problem, const at::Tensor &logsumexp) {
  at::Tensor weights = computeWeights(problem, logsumexp);
  if (problem.dropout > 0) {
    weights = at::where(problem.uniform.gt(problem.dropout), weights, weights.neg());
  }
  return weights.to(problem.query.scalar_type());
}

}  // namespace ditorch::attention
