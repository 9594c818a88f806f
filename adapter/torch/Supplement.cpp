#include "Supplement.h"

#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linalg_lu_factor_ex.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/lu_unpack.h>
#include <ATen/ops/resize_as.h>
#include <ATen/ops/zeros.h>

#include "Common.h"

namespace ditorch {
namespace {

using c10::IValue;
using torch::jit::Stack;

constexpr int64_t kPanel = 64;  // columns that are factored before the rest is updated by a product

// Columns [begin, end) of a, rows from `begin` on: A = L U with the L of ones on the diagonal, in place. Returns the
// number (from 1) of the first pivot that is 0, or 0; its column is not divided, as LAPACK does it.
template <typename T>
int32_t factorPanel(at::TensorAccessor<T, 2> a, int64_t begin, int64_t end) {
  int32_t info = 0;
  for (int64_t k = begin; k < end; k++) {
    const T pivot = a[k][k];
    if (pivot == T(0)) {
      info = info != 0 ? info : static_cast<int32_t>(k + 1);
      continue;
    }
    for (int64_t i = k + 1; i < a.size(0); i++) {
      const T factor = a[i][k] / pivot;
      a[i][k] = factor;
      for (int64_t j = k + 1; j < end; j++) {
        a[i][j] -= factor * a[k][j];
      }
    }
  }
  return info;
}

// One matrix on the CPU, in place.
int32_t factorMatrix(const at::Tensor &a) {
  const int64_t rows = a.size(0), columns = a.size(1), steps = std::min(rows, columns);
  int32_t info = 0;
  for (int64_t begin = 0; begin < steps; begin += kPanel) {
    const int64_t end = std::min(begin + kPanel, steps);
    const int32_t found = AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
        a.scalar_type(), "lu_factor", [&] { return factorPanel<scalar_t>(a.accessor<scalar_t, 2>(), begin, end); });
    info = info != 0 ? info : found;
    if (end == columns) {
      continue;
    }
    const at::Tensor lower = a.slice(0, begin, end).slice(1, begin, end);
    at::Tensor right = a.slice(0, begin, end).slice(1, end);
    right.copy_(at::linalg_solve_triangular(lower, right, /*upper=*/false, /*left=*/true, /*unitriangular=*/true));
    if (end < rows) {
      at::Tensor rest = a.slice(0, end).slice(1, end);
      rest.addmm_(a.slice(0, end).slice(1, begin, end), right, 1, -1);
    }
  }
  return info;
}

struct Factors {
  at::Tensor lu, pivots, info;
};

// The pivots of a factorisation without exchanges are the rows themselves.
Factors factorUnpivoted(const at::Tensor &self) {
  const at::IntArrayRef batch = self.sizes().slice(0, self.dim() - 2);
  const int64_t steps = std::min(self.size(-2), self.size(-1));
  const at::Tensor lu = self.to(at::kCPU, self.scalar_type(), false, /*copy=*/true).resolve_conj().contiguous();
  at::Tensor info = at::zeros(batch, at::dtype(at::kInt));
  const at::Tensor matrices = lu.view({info.numel(), self.size(-2), self.size(-1)});
  for (int64_t i = 0; i < info.numel(); i++) {
    info.data_ptr<int32_t>()[i] = factorMatrix(matrices.select(0, i));
  }
  std::vector<int64_t> pivot_sizes = batch.vec();
  pivot_sizes.push_back(steps);
  const at::Tensor pivots = at::arange(1, steps + 1, at::dtype(at::kInt)).expand(pivot_sizes).contiguous();
  const c10::Device device = self.device();
  return {lu.mT().contiguous().to(device).mT(), pivots.to(device), info.to(device)};  // columns lie together
}

void assignOutput(const at::Tensor &out, const at::Tensor &result) {
  if (out.sizes() != result.sizes()) {
    out.resize_as_(result);
  }
  out.copy_(result);
}

// Results take the place of the arguments on the stack: themselves, or the tensors of out= that get them.
void returnResults(const Operator &op, Stack *stack, size_t first_out, const std::vector<at::Tensor> &results) {
  const std::vector<IValue> args(stack->end() - static_cast<std::ptrdiff_t>(op.nargs), stack->end());
  torch::jit::drop(*stack, op.nargs);
  for (size_t i = 0; i < results.size(); i++) {
    const bool has_out = first_out + i < args.size();
    if (has_out) {
      assignOutput(args[first_out + i].toTensor(), results[i]);
    }
    stack->emplace_back(has_out ? args[first_out + i] : IValue(results[i]));
  }
}

bool runUnpivoted(const Operator &op, Stack *stack) {
  const bool is_factor = op.name.rfind("aten::linalg_lu_factor_ex", 0) == 0;
  if (!is_factor && op.name != "aten::linalg_lu" && op.name != "aten::linalg_lu.out") {
    return false;
  }
  const IValue *args = stack->data() + (stack->size() - op.nargs);
  const at::Tensor self = args[0].toTensor();
  const auto type = self.scalar_type();
  const bool right_type =
      type == at::kFloat || type == at::kDouble || type == at::kComplexFloat || type == at::kComplexDouble;
  if (args[1].toBool() || self.dim() < 2 || !right_type) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Factors factors = factorUnpivoted(self);
  if (is_factor) {
    if (args[2].toBool()) {
      at::_linalg_check_errors(factors.info, "torch.linalg.lu_factor_ex", self.dim() == 2);
    }
    returnResults(op, stack, 3, {factors.lu, factors.pivots, factors.info});
  } else {
    const auto [p, l, u] = at::lu_unpack(factors.lu, factors.pivots, true, /*unpack_pivots=*/false);
    returnResults(op, stack, 2, {p, l, u});
  }
  return true;
}

// Lists of tensors whose dtype differs from the parameters' become copies of the parameters' dtype.
bool runMixedAdam(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (op.name.rfind("aten::_fused_adam", 0) != 0) {
    return false;
  }
  IValue *args = stack->data() + (stack->size() - op.nargs);
  const std::vector<IValue> given(args, args + 5);  // params, grads, the averages, the averages of squares, maxima
  const auto params = given[0].toTensorVector();
  bool is_mixed = false;
  for (size_t i = 2; i < given.size(); i++) {
    const auto list = given[i].toTensorVector();
    for (size_t j = 0; j < list.size() && j < params.size(); j++) {
      is_mixed = is_mixed || list[j].scalar_type() != params[j].scalar_type();
    }
  }
  if (!is_mixed) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<std::vector<at::Tensor>> lists;
  for (size_t i = 2; i < given.size(); i++) {
    lists.push_back(given[i].toTensorVector());
    for (size_t j = 0; j < lists.back().size() && j < params.size(); j++) {
      lists.back()[j] = lists.back()[j].to(params[j].scalar_type());
    }
    args[i] = lists.back();
  }
  handle.redispatchBoxed(kDeviceKeys, stack);
  for (size_t i = 2; i < given.size(); i++) {
    const auto list = given[i].toTensorVector();
    for (size_t j = 0; j < list.size(); j++) {
      if (!list[j].is_same(lists[i - 2][j])) {
        list[j].copy_(lists[i - 2][j]);
      }
    }
  }
  return true;
}

}  // namespace

bool runSupplement(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  return runUnpivoted(op, stack) || runMixedAdam(op, handle, stack);
}

}  // namespace ditorch
