// One call of the device compared with the CPU's kernel on copies of its arguments, and arguments as text.
//
// Storages are copied whole, so that arguments that share memory go on sharing it. Compared are all results, and all
// arguments after the call: an operator that writes to an input it must not write to is found. Two numbers are close
// when |device - cpu| <= t * (|cpu| + largest |cpu|), with t 1e-12, 1e-5, 2e-3 and 1.6e-2 for float64, float32, float16
// and bfloat16 (the widest of the call's dtypes decides); integers and bools must be equal; NaN equals NaN.
#include "ControlsCompare.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <sstream>

#include "Common.h"
#include "Storage.h"
#include "dit/memory.h"
#include "dit/numerics.h"
#include "dit/runtime.h"

namespace ditorch::controls {
namespace {

using c10::IValue;

constexpr int64_t kShown = 10;  // values of a tensor in a block

// Storages of the device as storages of the CPU, each copied once.
class Copier {
 public:
  at::Tensor copy(const at::Tensor &tensor) {
    if (!tensor.defined() || tensor.device().type() != kDevice) {
      return tensor;  // of the CPU: nobody writes to it
    }
    const c10::Storage storage = copyStorage(tensor.storage(), tensor.device().index());
    auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    auto *impl = made.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    impl->_set_conj(tensor.is_conj());
    impl->_set_neg(tensor.is_neg());
    return made;
  }

  IValue copy(const IValue &value) {
    if (value.isTensor()) {
      return copy(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor &tensor : value.toTensorVector()) {
        list.push_back(copy(tensor));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor> &tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional<at::Tensor>(copy(*tensor)) : std::nullopt);
      }
      return list;
    }
    return value.isDevice() && value.toDevice().type() == kDevice ? IValue(c10::Device(c10::kCPU)) : value;
  }

 private:
  const c10::Storage &copyStorage(const c10::Storage &storage, c10::DeviceIndex device) {
    for (const auto &[from, to] : copied_) {
      if (from == storage.unsafeGetStorageImpl()) {
        return to;
      }
    }
    synchronizeCurrentStream(device);
    const auto size = static_cast<int64_t>(storage.nbytes());
    const at::Tensor bytes = at::empty({size}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    if (size > 0) {
      DIT_CHECK(
          dit_memory_copy(bytes.data_ptr(), -1, storage.data(), device, storage.nbytes(), device, 0, false, &err));
    }
    copied_.emplace_back(storage.unsafeGetStorageImpl(), bytes.storage());
    return copied_.back().second;
  }

  std::vector<std::pair<const c10::StorageImpl *, c10::Storage>> copied_;
};

std::string showMetadata(const at::Tensor &tensor) {
  std::ostringstream text;
  text << "numel: " << tensor.numel() << ", sizes: " << tensor.sizes() << ", stride: " << tensor.strides()
       << ", is_view: " << (tensor.is_view() ? "true" : "false") << ", dtype: " << tensor.scalar_type()
       << ", device: " << (tensor.device().type() == kDevice ? showDevice(tensor.device()) : tensor.device().str())
       << ", layout: " << tensor.layout() << ", requires_grad: " << (tensor.requires_grad() ? "true" : "false");
  if (tensor.layout() == c10::kStrided && tensor.has_storage()) {
    text << ", memory_format: " << tensor.suggest_memory_format()
         << ", data_ptr: " << tensor.unsafeGetTensorImpl()->data() << ", storage: " << tensor.storage().data()
         << ", storage_offset: " << tensor.storage_offset();
  }
  return text.str();
}

// The first values of a CPU tensor, row-major.
std::string showValues(const at::Tensor &tensor, int64_t most) {
  std::ostringstream text;
  const at::Tensor flat = tensor.resolve_conj().resolve_neg().reshape({-1});
  const int64_t count = std::min(most, flat.numel());
  text << "[";
  for (int64_t i = 0; i < count; i++) {
    text << (i ? ", " : "") << flat[i].item();
  }
  text << (count < flat.numel() ? ", ..." : "") << "]";
  return text.str();
}

double getTolerance(c10::ScalarType type) {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-12;
    case at::kFloat:
    case at::kComplexFloat:
      return 1e-5;
    case at::kHalf:
    case at::kComplexHalf:
      return 2e-3;
    case at::kBFloat16:
      return 1.6e-2;
    default:
      return 0;
  }
}

void listTensors(const IValue &value, std::vector<at::Tensor> &out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorVector()) {
      out.push_back(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor> &tensor : value.toOptionalTensorVector()) {
      out.push_back(tensor.value_or(at::Tensor()));
    }
  }
}

// "allclose", or what is wrong.
std::string judge(const at::Tensor &mine, const at::Tensor &wanted, double tolerance) {
  std::ostringstream text;
  if (mine.sizes() != wanted.sizes() || mine.scalar_type() != wanted.scalar_type()) {
    return "not_close, sizes or dtype differ";
  }
  dit_tensor_view a{}, b{};
  dit_tensor_stats stats;
  dit_compare_result result;
  fillView(a, mine);
  fillView(b, wanted);
  const bool exact = getTolerance(mine.scalar_type()) == 0;
  DIT_CHECK(dit_tensor_get_stats(&b, &stats, &err));
  double largest = 0;
  if (!exact && stats.finite > 0) {  // of the finite values: infinities must be equal
    largest = std::isfinite(stats.abs_max) ? stats.abs_max : stats.finite_norm;
  }
  const dit_compare_options options = {exact ? 0 : tolerance, exact ? 0 : tolerance * largest, true};
  DIT_CHECK(dit_tensor_compare(&a, &b, &options, &result, &err));
  if (result.allclose) {
    text << "allclose";
  } else {
    text << "not_close, " << result.over_tolerance << " of " << result.numel
         << " values, max diff: " << result.max_abs_diff << ", MAE: " << result.mean_abs_diff;
    if (result.nonfinite_mismatch > 0) {
      text << ", NaN or infinite on one side: " << result.nonfinite_mismatch;
    }
  }
  if (mine.strides() != wanted.strides()) {
    text << ", strides differ";
  }
  return text.str();
}

std::string compareTensors(const std::string &op, const std::string &name, const at::Tensor &device,
                           const at::Tensor &wanted, double tolerance) {
  if (!device.defined() && !wanted.defined()) {
    return "";
  }
  const std::string head = "autocompare:" + op + " " + name + ": ";
  if (!device.defined() || !wanted.defined()) {
    return head + (device.defined() ? "not_close, the CPU gives none\n" : "not_close, the device gives none\n");
  }
  Copier copier;
  const at::Tensor mine = copier.copy(device);
  std::string verdict;
  try {
    verdict = judge(mine.resolve_conj().resolve_neg(), wanted.resolve_conj().resolve_neg(), tolerance);
  } catch (const c10::Error &error) {
    verdict = std::string("not compared: ") + error.what_without_backtrace();
  }
  return head + verdict + "\n\tdevice: " + showMetadata(device) + "\n\t\t" + showValues(mine, kShown) +
         "\n\tcpu: " + showMetadata(wanted) + "\n\t\t" + showValues(wanted, kShown) + "\n";
}

}  // namespace

std::string describe(const std::string &op, const std::string &name, const IValue &value, bool values) {
  const std::string head = "\t[" + op + "]: " + name;
  std::vector<at::Tensor> tensors;
  std::ostringstream text;
  listTensors(value, tensors);
  if (tensors.empty()) {
    if (value.isDevice() && value.toDevice().type() == kDevice) {
      text << head << ": " << showDevice(value.toDevice()) << "\n";
    } else if (value.isGenerator()) {
      text << head << ": generator\n";
    } else {
      text << head << ": " << value << "\n";
    }
    return text.str();
  }
  for (size_t i = 0; i < tensors.size(); i++) {
    text << head << (value.isTensor() ? "" : "[" + std::to_string(i) + "]") << ": ";
    if (!tensors[i].defined()) {
      text << "undefined\n";
      continue;
    }
    text << showMetadata(tensors[i]) << "\n";
    if (values && tensors[i].layout() == c10::kStrided && tensors[i].has_storage()) {
      Copier copier;
      text << "\t\t" << showValues(copier.copy(tensors[i]), INT64_MAX) << "\n";
    }
  }
  return text.str();
}

Comparison::Comparison(const Operator &op, const c10::OperatorHandle &handle, const IValue *args)
    : op_(op), handle_(handle), device_args_(args, args + op.nargs) {
  Copier copier;
  for (const IValue &value : device_args_) {
    cpu_args_.push_back(copier.copy(value));
  }
}

std::string Comparison::finish(const IValue *rets) {
  std::vector<IValue> device_rets(rets, rets + op_.nrets);
  std::vector<IValue> stack = cpu_args_;
  std::string text = "autocompare:" + op_.name + "\n";
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    handle_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const std::exception &error) {
    return text + "\tthe CPU refuses what the device did: " + error.what() + "\n";
  }
  double tolerance = 0;
  std::vector<at::Tensor> mine, wanted;
  for (const IValue &value : device_args_) {
    listTensors(value, mine);
  }
  for (const at::Tensor &tensor : mine) {
    tolerance = tensor.defined() ? std::max(tolerance, getTolerance(tensor.scalar_type())) : tolerance;
  }
  const auto &schema = handle_.schema();
  const auto compare = [&](const IValue &device, const IValue &cpu, const std::string &name) {
    mine.clear();
    wanted.clear();
    listTensors(device, mine);
    listTensors(cpu, wanted);
    for (size_t i = 0; i < std::min(mine.size(), wanted.size()); i++) {
      const double own = mine[i].defined() ? getTolerance(mine[i].scalar_type()) : 0;
      text += compareTensors(op_.name, device.isTensor() ? name : name + "[" + std::to_string(i) + "]", mine[i],
                             wanted[i], std::max(tolerance, own));
    }
  };
  for (size_t i = 0; i < op_.nrets; i++) {
    compare(device_rets[i], stack[i], "result " + std::to_string(i));
  }
  for (size_t i = 0; i < op_.nargs; i++) {
    compare(device_args_[i], cpu_args_[i], schema.arguments()[i].name());
  }
  return text;
}

}  // namespace ditorch::controls
