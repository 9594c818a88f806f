#include "ProcessGroupReduce.h"

#include <ATen/ATen.h>

namespace ditorch {
namespace {

using Op = c10d::ReduceOp::RedOpType;

const char *getName(Op op) {
  static constexpr const char *names[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                          "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};
  return names[op <= Op::UNUSED ? op : Op::UNUSED];
}

bool isBitwise(Op op) {
  return op == Op::BAND || op == Op::BOR || op == Op::BXOR;
}

// The dtype in which gloo can reduce numbers of `dtype` without losing anything.
at::ScalarType widen(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return dtype;
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
    case at::kUInt64:
      return at::kLong;
    default:
      return at::kFloat;
  }
}

}  // namespace

Reduction::Reduction(const c10d::ReduceOp &op, at::ScalarType dtype, int size, const char *what)
    : op_(op.op_), inner_(op.op_), element_(dtype), size_(size) {
  TORCH_CHECK_VALUE(op_ < Op::UNUSED, what, ": unknown ReduceOp ", static_cast<int>(op_));
  TORCH_CHECK_VALUE(!isBitwise(op_) || c10::isIntegralType(dtype, /*includeBool=*/true), what, ": ReduceOp.",
                    getName(op_), " needs integers or booleans, not ", dtype);
  if (c10::isComplexType(dtype)) {
    TORCH_CHECK_VALUE(op_ == Op::SUM || op_ == Op::AVG || op_ == Op::PREMUL_SUM, what, " does not support ReduceOp.",
                      getName(op_), " on complex tensors");
    element_ = c10::toRealValueType(dtype);
    per_element_ = 2;
  } else if (dtype == at::kBool) {
    TORCH_CHECK_TYPE(op_ != Op::AVG, what, ": Cannot use ReduceOp.AVG with Boolean inputs");
    TORCH_CHECK_TYPE(op_ != Op::PREMUL_SUM, what, ": Cannot use ReduceOp.PREMUL_SUM with Boolean inputs");
    element_ = at::kByte;
    inner_ = op_ == Op::SUM ? Op::MAX : op_ == Op::PRODUCT ? Op::MIN : op_;
  }
  wide_ = widen(element_);
  if (op_ == Op::AVG || op_ == Op::PREMUL_SUM) {
    inner_ = Op::SUM;
    TORCH_CHECK_TYPE(dtype != at::kUInt64, what, ": ReduceOp.", getName(op_), " is not supported for UInt64");
  }
  flip_sign_ = dtype == at::kUInt64 && (op_ == Op::MIN || op_ == Op::MAX);
  if (op_ == Op::PREMUL_SUM) {
    TORCH_CHECK_TYPE(c10::isFloatingType(element_), what, ": ReduceOp.PREMUL_SUM needs floating point, not ", dtype);
    const auto *supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK_VALUE(supplement != nullptr, what,
                      ": ReduceOp.PREMUL_SUM has no factor; make it with "
                      "torch.distributed._make_nccl_premul_sum(factor)");
    factor_ = supplement->double_factor;
    if (supplement->tensor_factor.defined()) {
      const at::Tensor &tensor = supplement->tensor_factor;
      tensor_factor_ = Buffer(tensor);
    }
  }
}

double Reduction::getFactor() const {
  if (tensor_factor_.numel() == 0) {
    return factor_;
  }
  Buffer buffer = tensor_factor_;
  return buffer.elements().item().toDouble();
}

at::Tensor Reduction::prepare(const at::Tensor &elements, bool keep) const {
  const at::Tensor numbers = viewFlat(elements, element_, 0, elements.numel() * per_element_);
  at::Tensor ready = numbers;
  if (wide_ != element_) {
    ready = numbers.to(wide_);
  } else if (keep) {
    ready = numbers.clone();
  }
  if (flip_sign_) {
    ready.bitwise_xor_(std::numeric_limits<int64_t>::min());
  }
  if (op_ == Op::PREMUL_SUM) {
    ready.mul_(getFactor());
  }
  return ready;
}

void Reduction::combine(at::Tensor &total, const at::Tensor &other) const {
  switch (inner_) {
    case Op::SUM:
      total.add_(other);
      return;
    case Op::PRODUCT:
      total.mul_(other);
      return;
    case Op::MIN:
      at::minimum_out(total, total, other);
      return;
    case Op::MAX:
      at::maximum_out(total, total, other);
      return;
    case Op::BAND:
      total.bitwise_and_(other);
      return;
    case Op::BOR:
      total.bitwise_or_(other);
      return;
    default:
      total.bitwise_xor_(other);
  }
}

void Reduction::conclude(at::Tensor total, const at::Tensor &elements) const {
  if (op_ == Op::AVG) {
    if (c10::isIntegralType(wide_, /*includeBool=*/false)) {
      total.div_(size_, "trunc");
    } else {
      total.div_(size_);
    }
  }
  if (flip_sign_) {
    total.bitwise_xor_(std::numeric_limits<int64_t>::min());
  }
  const at::Tensor numbers = viewFlat(elements, element_, 0, elements.numel() * per_element_);
  if (!total.is_alias_of(numbers) || total.data_ptr() != numbers.data_ptr()) {
    numbers.copy_(total);
  }
}

}  // namespace ditorch
