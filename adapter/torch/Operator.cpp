#include "Operator.h"

#include <ATen/core/ivalue.h>

#include <unordered_map>
#include <vector>

#include "Gate.h"
#include "Staging.h"

namespace ditorch {
namespace {

const dit_op *findCOperator(const c10::OperatorName &name) {
  static const auto *table = [] {
    auto *made = new std::unordered_map<c10::OperatorName, const dit_op *>;
    int count = 0;
    const dit_op *ops = dit_op_get_table(&count);
    for (int i = 0; i < count; i++) {
      made->emplace(c10::OperatorName(ops[i].name, ops[i].overload), &ops[i]);
    }
    return made;
  }();
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

// Advanced indexing: CUDA reads the index tensors of these families from the CPU as well.
bool takesCpuIndices(const std::string &name) {
  for (const char *family :
       {"aten::index.", "aten::index_put", "aten::_index_put", "aten::_unsafe_index", "aten::_unsafe_masked_index"}) {
    if (name.rfind(family, 0) == 0) {
      return true;
    }
  }
  return false;
}

bool isInference(const std::string &name) {
  return name.rfind("dlinfer::", 0) == 0;
}

// Operators of which the CPU has a kernel while the composite one is views and one copy, or other operators of the
// device.
bool isComposed(const std::string &name) {
  for (const char *composed : {"aten::pixel_shuffle", "aten::pixel_unshuffle", "aten::native_channel_shuffle",
                               "aten::narrow_copy", "aten::all.dims", "aten::any.dims"}) {
    if (name == composed) {
      return true;
    }
  }
  return false;
}

// A composite kernel that is not the CPU's own and serves unknown devices.
bool isComposite(const c10::OperatorHandle &handle, const std::string &name) {
  if (name.rfind("aten::batch_norm_", 0) == 0 && !handle.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    return true;  // BatchNorm.cpp
  }
  if (isInference(name)) {  // composed by Python, on the device where the CPU's kernel would have to fetch the caches
    return !isHostAccessible() && handle.hasKernelForDispatchKey(c10::DispatchKey::MAIA);
  }
  return (isComposed(name) || !handle.hasKernelForDispatchKey(c10::DispatchKey::CPU)) && !isWholesale(name) &&
         (handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
          handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
          handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd));
}

// A Scalar, an optional one, or a list of them.
bool isNumber(const c10::TypePtr &type) {
  if (type->kind() == c10::TypeKind::NumberType) {
    return true;
  }
  return (type->kind() == c10::TypeKind::OptionalType || type->kind() == c10::TypeKind::ListType) &&
         isNumber(type->containedType(0));
}

// Bit i: argument i is a number.
uint32_t findNumbers(const c10::FunctionSchema &schema) {
  uint32_t bits = 0;
  for (size_t i = 0; i < schema.arguments().size() && i < DIT_MAX_ARGS; i++) {
    bits |= static_cast<uint32_t>(isNumber(schema.arguments()[i].real_type())) << i;
  }
  return bits;
}

// One for each row of the table in C; written when the operator's door is made.
Gate &gateOf(const dit_op *row) {
  int count = 0;
  const dit_op *first = dit_op_get_table(&count);
  static auto *gates = new std::vector<Gate>(static_cast<size_t>(count));
  return (*gates)[static_cast<size_t>(row - first)];
}

class DeviceCheck {
 public:
  explicit DeviceCheck(const Operator &op) : op_(op) {}

  void visit(const at::Tensor &tensor, bool written, bool is_number) {
    if (!tensor.defined()) {
      return;
    }
    const c10::Device device = tensor.device();
    if (device.type() == kDevice) {
      if (common_ >= 0 && common_ != device.index()) {
        fail(c10::Device(kDevice, common_), device);
      }
      common_ = device.index();
    } else if (written ? !op_.takes_cpu_outputs : !is_number && !isArgument(tensor)) {
      other_ = device;
      has_other_ = true;
    }
  }

  c10::DeviceIndex finish() const {
    if (common_ >= 0 && has_other_) {
      fail(c10::Device(kDevice, common_), other_);
    }
    return common_;
  }

 private:
  // What an operator may read from the CPU beside tensors of the device.
  bool isArgument(const at::Tensor &tensor) const {
    return tensor.dim() == 0 || (op_.takes_cpu_indices && c10::isIntegralType(tensor.scalar_type(), true));
  }

  [[noreturn]] void fail(c10::Device a, c10::Device b) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", showDevice(a),
                " and ", showDevice(b), "! (when running ", op_.name, ")");
  }

  const Operator &op_;
  c10::DeviceIndex common_ = -1;
  c10::Device other_{c10::kCPU};
  bool has_other_ = false;
};

}  // namespace

const Gate &findGate(const dit_op *row) {
  return gateOf(row);
}

bool isWholesale(const std::string &name) {
  return name == "aten::mode.values" || name == "aten::conj_physical_" || name == "aten::convolution" ||
         name == "aten::convolution_backward" || name.rfind("aten::_foreach_", 0) == 0;
}

Operator::Operator(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key)
    : name(c10::toString(handle.operator_name())),
      cpu_key(cpu_key),
      c_op(isForSparse() ? nullptr : findCOperator(handle.operator_name())),
      ledger(dit_ledger_get(name.c_str())),
      nargs(handle.schema().arguments().size()),
      nrets(handle.schema().returns().size()),
      takes_cpu_indices(takesCpuIndices(name) || isInference(name)),
      takes_cpu_lengths(isInference(name)) {
  is_foreach = name.rfind("aten::_foreach_", 0) == 0;
  takes_cpu_outputs = name == "aten::fill_.Tensor";
  const auto &args = handle.schema().arguments();
  for (size_t i = 0; i < nargs; i++) {
    if (args[i].name() == "generator") {
      generator_arg = static_cast<int>(i);
    } else if (args[i].name() == "device") {
      device_arg = static_cast<int>(i);
    } else if (args[i].name() == "lr" && name.rfind("aten::_fused_", 0) == 0) {
      rate_arg = static_cast<int>(i);
    }
    const bool is_written = args[i].alias_info() != nullptr && args[i].alias_info()->isWrite();
    writes = writes || is_written;
    written |= is_written && i < 64 ? uint64_t{1} << i : 0;
    if (is_written && written_list < 0 && is_foreach) {
      written_list = static_cast<int>(i);
    }
  }
  composite = !isForSparse() && isComposite(handle, name);
  if (c_op != nullptr) {
    const bool has_rest = composite || isWholesale(name) || handle.hasKernelForDispatchKey(c10::DispatchKey::CPU);
    gateOf(c_op) = takes_cpu_lengths ? Gate{{0, 0}, false}
                                     : Gate{{findNumbers(handle.schema()), static_cast<uint32_t>(written)}, has_rest};
  }
  hidden_randomness = generator_arg < 0 && handle.hasTag(at::Tag::nondeterministic_seeded);
}

c10::DeviceIndex findCommonDevice(const Operator &op, const c10::IValue *args) {
  DeviceCheck check(op);
  for (size_t i = 0; i < op.nargs; i++) {
    if (args[i].isTensor()) {
      const bool is_rate = static_cast<int>(i) == op.rate_arg && args[i].toTensor().numel() == 1;
      check.visit(args[i].toTensor(), op.isWritten(i), is_rate);
    } else if (args[i].isTensorList() || args[i].isOptionalTensorList()) {
      for (const c10::IValue &element : args[i].toListRef()) {
        if (element.isTensor()) {
          check.visit(element.toTensor(), op.isWritten(i), false);
        }
      }
    }
  }
  return check.finish();
}

}  // namespace ditorch
