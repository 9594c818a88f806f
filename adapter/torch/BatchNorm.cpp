// The operators of torch.nn.SyncBatchNorm, which PyTorch has for CUDA alone, composed of operators of the device. They
// are what the door runs where the vendor's library lacks these functions, so they stand in the slot from which it
// takes composite kernels (runComposite); gather_stats is not in the standard.
//
// With x of shape (N, C, ...), sums over all dimensions but C, and n elements per channel over all ranks:
//   stats            mean, 1 / sqrt(var + eps) of one rank (biased variance)
//   gather_stats     the same of all ranks together from theirs (Chan's update), and the running statistics (unbiased)
//   elemt            (x - mean) * invstd * weight + bias
//   backward_reduce  sum dy, sum dy * (x - mean), and the gradients of weight and bias
//   backward_elemt   (dy - sum_dy / n - (x - mean) * invstd^2 * sum_dy_xmu / n) * invstd * weight
// Statistics are float32 for half precision inputs, else of the input's dtype.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "Common.h"

namespace ditorch {
namespace {

using Optional = std::optional<at::Tensor>;
using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor toStatistics(const at::Tensor &tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

// All dimensions but the channels.
std::vector<int64_t> listReduced(const at::Tensor &input) {
  TORCH_CHECK_VALUE(input.dim() >= 2, "SyncBatchNorm: the input must have at least 2 dimensions, not ", input.dim());
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); dim++) {
    dims.push_back(dim);
  }
  return dims;
}

// A value per channel, in the shape that broadcasts against the input.
at::Tensor perChannel(const at::Tensor &values, const at::Tensor &input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.reshape(shape);
}

Pair computeStats(const at::Tensor &input, double eps) {
  const auto [var, mean] = at::var_mean(toStatistics(input), listReduced(input), /*correction=*/at::Scalar(0));
  return {mean, var.add(eps).rsqrt()};
}

void updateRunning(const Optional &running, const at::Tensor &value, double momentum) {
  if (isGiven(running)) {
    running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
  }
}

Pair gatherStatsWithCounts(const at::Tensor &, const at::Tensor &mean, const at::Tensor &invstd,
                           const Optional &running_mean, const Optional &running_var, double momentum, double eps,
                           const at::Tensor &counts) {
  const at::Tensor n = counts.reshape({-1, 1}).to(mean.scalar_type());
  const at::Tensor total = n.sum();
  const at::Tensor all_mean = mean.mul(n).sum(0).div_(total);
  // sum of squares around the common mean: each rank's own, and the distance of its mean
  const at::Tensor own = invstd.pow(-2).sub_(eps).mul_(n);
  const at::Tensor squares = own.add_(mean.sub(all_mean).square_().mul_(n)).sum(0);
  updateRunning(running_mean, all_mean, momentum);
  updateRunning(running_var, squares.div(total.sub(1)), momentum);
  return {all_mean, squares.div(total).add_(eps).rsqrt_()};
}

Pair gatherStats(const at::Tensor &input, const at::Tensor &mean, const at::Tensor &invstd,
                 const Optional &running_mean, const Optional &running_var, double momentum, double eps,
                 int64_t count) {
  const at::Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gatherStatsWithCounts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

at::Tensor normalize(const at::Tensor &input, const Optional &weight, const Optional &bias, const at::Tensor &mean,
                     const at::Tensor &invstd, double) {
  const at::Tensor scale = isGiven(weight) ? invstd.mul(weight->to(invstd.scalar_type())) : invstd;
  at::Tensor result = toStatistics(input).sub(perChannel(mean, input)).mul_(perChannel(scale, input));
  if (isGiven(bias)) {
    result.add_(perChannel(bias->to(invstd.scalar_type()), input));
  }
  return result.to(input.scalar_type());
}

at::Tensor &normalizeOut(const at::Tensor &input, const Optional &weight, const Optional &bias, const at::Tensor &mean,
                         const at::Tensor &invstd, double eps, at::Tensor &out) {
  const at::Tensor result = normalize(input, weight, bias, mean, invstd, eps);
  return out.resize_(result.sizes()).copy_(result);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> reduceBackward(
    const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean, const at::Tensor &invstd,
    const Optional &weight, bool input_grad, bool weight_grad, bool bias_grad) {
  const std::vector<int64_t> dims = listReduced(input);
  const at::Tensor dy = toStatistics(grad);
  const at::Tensor sum_dy = dy.sum(dims);
  const at::Tensor sum_dy_xmu = toStatistics(input).sub(perChannel(mean, input)).mul_(dy).sum(dims);
  const auto dtype = isGiven(weight) ? weight->scalar_type() : input.scalar_type();
  at::Tensor grad_weight, grad_bias;
  if (weight_grad) {
    grad_weight = sum_dy_xmu.mul(invstd).to(dtype);
  }
  if (bias_grad) {
    grad_bias = sum_dy.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  }
  if (!input_grad) {
    return {at::Tensor(), at::Tensor(), grad_weight, grad_bias};
  }
  return {sum_dy, sum_dy_xmu, grad_weight, grad_bias};
}

at::Tensor elementsBackward(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean,
                            const at::Tensor &invstd, const Optional &weight, const at::Tensor &sum_dy,
                            const at::Tensor &sum_dy_xmu, const at::Tensor &count) {
  const at::Tensor n = count.sum().to(mean.scalar_type());
  const at::Tensor slope = invstd.square().mul_(sum_dy_xmu).div_(n);
  const at::Tensor scale = isGiven(weight) ? invstd.mul(weight->to(invstd.scalar_type())) : invstd;
  at::Tensor result = toStatistics(input).sub(perChannel(mean, input)).mul_(perChannel(slope, input)).neg_();
  result.add_(toStatistics(grad)).sub_(perChannel(sum_dy.div(n), input)).mul_(perChannel(scale, input));
  return result.to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_gather_stats", &gatherStats);
}
TORCH_LIBRARY_IMPL(aten, MAIA, m) {
  m.impl("batch_norm_stats", &computeStats);
  m.impl("batch_norm_gather_stats_with_counts", &gatherStatsWithCounts);
  m.impl("batch_norm_elemt", &normalize);
  m.impl("batch_norm_elemt.out", &normalizeOut);
  m.impl("batch_norm_backward_reduce", &reduceBackward);
  m.impl("batch_norm_backward_elemt", &elementsBackward);
}

}  // namespace
}  // namespace ditorch
