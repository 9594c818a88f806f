// The CPU fallback: run the CPU kernel over the device's memory, without copying arguments or results; where the host
// cannot read that memory, over copies of it (StagedLoan.h).
//
// Arguments are lent to the kernel as CPU tensors over the same memory (tensors that share storage go on sharing it, so
// overlap checks and undeclared mutations such as batch norm's running statistics work as on the CPU). While the kernel
// runs, the CPU allocator hands out device memory, so its results are adopted by changing their label. A sparse tensor
// is lent as a sparse tensor of the CPU over its lent indices and values.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/sum.h>
#include <c10/core/DeviceGuard.h>

#include <exception>
#include <mutex>

#include "Allocator.h"
#include "Controls.h"
#include "Generator.h"
#include "Operator.h"
#include "Profiler.h"
#include "Sparse.h"
#include "StagedLoan.h"
#include "Staging.h"
#include "Storage.h"
#include "Supplement.h"
#include "Widen.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

using c10::IValue;
using torch::jit::Stack;

// The slot of a device that has no kernels of its own holds the composite one.
constexpr c10::DispatchKeySet kComposite(c10::DispatchKey::MAIA);

// The tensors of one call: device tensors, their CPU aliases, and the way back.
class Loan {
 public:
  using Memory = LendMemory;
  static constexpr bool kCopies = false;

  // `tells_autograd`: the CPU tensors require gradients where the device's do.
  Loan(c10::DeviceIndex device, bool tells_autograd) : device_(device), tells_autograd_(tells_autograd) {}

  // Before the arguments are lent: what is queued for them is done.
  void prepare(const Operator &, const c10::OperatorHandle &, const IValue *) { synchronizeCurrentStream(device_); }

  at::Tensor lend(const at::Tensor &tensor) {
    if (!tensor.defined() || tensor.device().type() != kDevice) {
      return tensor;
    }
    if (isSparse(tensor)) {
      return lendSparse(tensor);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "tensors with layout ", tensor.layout(),
                                " are not supported on ", showDevice(tensor.device()),
                                " by ditorch; use dense or sparse tensors, or the CPU for this part");
    auto *storage = tensor.storage().unsafeGetStorageImpl();
    for (const Entry &entry : entries_) {
      if (entry.device.is_same(tensor)) {
        return entry.cpu;  // out= of an argument: its shape is not the kernel's to change
      }
    }
    for (const Entry &entry : entries_) {
      if (entry.storage == storage) {
        return add(tensor, storage, entry.cpu.storage());
      }
    }
    return add(tensor, storage, aliasAsCpu(storage));
  }

  // The device tensor for a result of the CPU kernel.
  at::Tensor takeBack(const at::Tensor &result) {
    if (!result.defined()) {
      return result;
    }
    for (const Entry &entry : entries_) {
      if (entry.cpu.is_same(result)) {
        return entry.device;
      }
    }
    if (isSparse(result)) {
      return takeBackSparse(result);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == c10::kStrided && !result.is_quantized() && !result.is_nested(),
                                "quantized, nested and mkldnn tensors are not supported on ",
                                showDevice(c10::Device(kDevice, device_)),
                                " by ditorch; use dense or sparse tensors, or the CPU for this part");
    if (result.device().type() == kDevice) {
      return result;
    }
    result_bytes_ += result.nbytes();
    auto *storage = result.storage().unsafeGetStorageImpl();
    for (const Entry &entry : entries_) {
      if (entry.cpu.storage().unsafeGetStorageImpl() == storage) {
        return wrap(result, entry.device.storage());
      }
    }
    for (const auto &[cpu, adopted] : adopted_) {
      if (cpu.unsafeGetStorageImpl() == storage) {
        return wrap(result, adopted);
      }
    }
    return wrap(result, adopt(result.storage()));
  }

  // Carry a resize of a written argument (out=), and its conjugate and negative bits, over to the device tensor.
  void writeBack() {
    for (const Entry &entry : entries_) {
      auto *cpu_storage = entry.cpu.storage().unsafeGetStorageImpl();
      auto *device_storage = entry.device.storage().unsafeGetStorageImpl();
      if (cpu_storage->data() != device_storage->data() && isLent(cpu_storage->data_ptr())) {
        const size_t size = cpu_storage->nbytes();
        device_storage->set_data_ptr_noswap(
            adoptLent(cpu_storage->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU))), device_));
        device_storage->set_nbytes(size);
      }
      if (entry.cpu.sizes() != entry.device.sizes() || entry.cpu.strides() != entry.device.strides()) {
        entry.device.unsafeGetTensorImpl()->set_sizes_and_strides(entry.cpu.sizes(), entry.cpu.strides(),
                                                                  entry.cpu.storage_offset());
      }
      copyBits(entry.cpu, entry.device);
    }
    for (const Sparse &entry : sparse_) {
      assignSparse(entry.device, entry.cpu, [this](const at::Tensor &part) { return takeBack(part); });
    }
  }

  // Bytes of all arguments and of the new results.
  uint64_t countBytes() const {
    uint64_t bytes = result_bytes_;
    for (const Entry &entry : entries_) {
      bytes += entry.cpu.nbytes();
    }
    return bytes;
  }

 private:
  struct Entry {
    at::Tensor device;
    at::Tensor cpu;
    c10::StorageImpl *storage;  // of the device tensor, before the call
  };

  struct Sparse {
    at::Tensor device;
    at::Tensor cpu;
  };

  at::Tensor lendSparse(const at::Tensor &tensor) {
    for (const Sparse &entry : sparse_) {
      if (entry.device.is_same(tensor)) {
        return entry.cpu;
      }
    }
    const at::Tensor cpu = rebuildSparse(tensor, c10::kCPU, [this](const at::Tensor &part) { return lend(part); });
    tellAutograd(tensor, cpu);
    sparse_.push_back({tensor, cpu});
    return cpu;
  }

  void tellAutograd(const at::Tensor &tensor, const at::Tensor &cpu) const {
    if (tells_autograd_ && tensor.requires_grad()) {
      cpu.unsafeGetTensorImpl()->set_requires_grad(true);
    }
  }

  at::Tensor takeBackSparse(const at::Tensor &result) {
    for (const Sparse &entry : sparse_) {
      if (entry.cpu.is_same(result)) {
        return entry.device;
      }
    }
    if (result.device().type() == kDevice) {
      return result;
    }
    return rebuildSparse(result, kDevice, [this](const at::Tensor &part) { return takeBack(part); });
  }

  at::Tensor add(const at::Tensor &tensor, c10::StorageImpl *storage, c10::Storage alias) {
    entries_.push_back({tensor, aliasAsCpu(tensor, std::move(alias)), storage});
    tellAutograd(tensor, entries_.back().cpu);
    return entries_.back().cpu;
  }

  static at::Tensor wrap(const at::Tensor &cpu, const c10::Storage &storage) {
    return viewStorage(storage, kDeviceKeys, cpu, cpu.storage_offset());
  }

  // Lent memory changes its label; other memory (made before the call or by a library of its own) is copied.
  c10::Storage adopt(const c10::Storage &cpu) {
    auto *impl = cpu.unsafeGetStorageImpl();
    const size_t size = impl->nbytes();
    c10::DataPtr data;
    if (isLent(impl->data_ptr())) {
      data = adoptLent(impl->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU))), device_);
    } else {
      const c10::DeviceGuard guard(c10::Device(kDevice, device_));
      data = deviceAllocator()->allocate(size);
      DIT_CHECK(dit_memory_copy(data.get(), device_, impl->data(), -1, size, device_, 0, false, &err));
    }
    c10::Storage device(c10::Storage::use_byte_size_t(), size, std::move(data), deviceAllocator(), /*resizable=*/true);
    adopted_.emplace_back(cpu, device);
    return device;
  }

  c10::DeviceIndex device_;
  bool tells_autograd_;
  uint64_t result_bytes_ = 0;
  c10::SmallVector<Entry, 6> entries_;
  c10::SmallVector<Sparse, 1> sparse_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> adopted_;
};

template <class Loan>
void lendArgument(const Operator &op, Loan &loan, IValue &value) {
  if (value.isTensor()) {
    value = loan.lend(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> lent;
    lent.reserve(value.toTensorList().size());
    for (const at::Tensor &tensor : value.toTensorVector()) {
      lent.push_back(loan.lend(tensor));
    }
    value = std::move(lent);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> lent;
    for (const std::optional<at::Tensor> &tensor : value.toOptionalTensorVector()) {
      lent.push_back(tensor.has_value() ? std::optional<at::Tensor>(loan.lend(*tensor)) : std::nullopt);
    }
    value = std::move(lent);
  } else if (value.isDevice() && value.toDevice().type() == kDevice) {
    value = c10::Device(c10::kCPU);
  } else if (value.isStream()) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op.name, " takes a stream and has no implementation on the ditorch device");
  }
}

template <class Loan>
void takeBackResult(Loan &loan, IValue &value) {
  if (value.isTensor()) {
    value = loan.takeBack(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> taken;
    taken.reserve(value.toTensorList().size());
    for (const at::Tensor &tensor : value.toTensorVector()) {
      taken.push_back(loan.takeBack(tensor));
    }
    value = std::move(taken);
  }
}

// For operators that draw from the CPU's default generator without taking one: it continues from the device's state
// during the call and has its own state back afterwards.
class HiddenRandomness {
 public:
  HiddenRandomness(bool active, c10::DeviceIndex device) {
    if (active) {
      const at::Generator borrowed = borrowCpuGenerator(at::Generator(), device);
      swap_.lock();
      held_ = true;
      saved_ = at::detail::getDefaultCPUGenerator().get_state();
      at::Generator target = at::detail::getDefaultCPUGenerator();
      target.set_state(borrowed.get_state());
    }
  }
  ~HiddenRandomness() {
    if (held_) {
      at::Generator target = at::detail::getDefaultCPUGenerator();
      target.set_state(saved_);
      swap_.unlock();
    }
  }

 private:
  static inline std::mutex swap_;
  bool held_ = false;
  at::Tensor saved_;
};

// Does a _foreach_ operator have lists over several devices, or its scalars in a tensor? Then it is one operator per
// entry, as on CUDA, and each says for itself what it takes.
bool isScattered(const Operator &op, const IValue *args) {
  std::optional<c10::Device> common;
  for (size_t i = 0; i < op.nargs; i++) {
    if (args[i].isTensor() && args[i].toTensor().defined() && args[i].toTensor().dim() > 0) {
      return true;
    }
    if (!args[i].isTensorList()) {
      continue;
    }
    for (const IValue &element : args[i].toListRef()) {
      const c10::Device device = element.toTensor().device();
      if (common.value_or(device) != device) {
        return true;
      }
      common = device;
    }
  }
  return false;
}

c10::DeviceIndex findDevice(const Operator &op, const IValue *args) {
  c10::DeviceIndex device = findCommonDevice(op, args);
  if (device >= 0) {
    return resolveIndex(device);
  }
  const bool named = op.device_arg >= 0 && args[op.device_arg].isDevice();
  const bool elsewhere = !named || args[op.device_arg].toDevice().type() != kDevice;
  // A generator alone leads here too: the CPU's kernels do not draw from it.
  TORCH_CHECK(!elsewhere || op.generator_arg < 0 || !args[op.generator_arg].isGenerator() ||
                  args[op.generator_arg].toGenerator().device().type() != kDevice,
              "Expected a 'cpu' device type for generator but found '", showDevice(c10::Device(kDevice)), "'");
  return resolveIndex(elsewhere ? c10::DeviceIndex(-1) : args[op.device_arg].toDevice().index());
}

}  // namespace

void runComposite(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  const c10::DeviceIndex device = findDevice(op, stack->data() + (stack->size() - op.nargs));
  const c10::DeviceGuard guard(c10::Device(kDevice, device));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  handle.redispatchBoxed(kComposite, stack);
}

namespace {

template <class Loan>
void runWithLoan(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  const uint64_t start = now();
  if (controls::isComparing()) {
    controls::noteFallback(op);
  }
  IValue *args = stack->data() + (stack->size() - op.nargs);
  if (C10_UNLIKELY(op.is_foreach && isScattered(op, args))) {
    const at::AutoDispatchBelowAutograd below_autograd;
    handle.redispatchBoxed(kComposite, stack);
    return;
  }
  const c10::DeviceIndex device = findDevice(op, args);
  const c10::DeviceGuard guard(c10::Device(kDevice, device));
  // The kernel of torch.sparse.mm(a, b, "amax") saves what the backward pass reads only when someone wants gradients.
  Loan loan(device, op.isForSparse());
  loan.prepare(op, handle, args);
  for (size_t i = 0; i < op.nargs; i++) {
    lendArgument(op, loan, args[i]);
  }
  if (op.generator_arg >= 0) {
    IValue &value = args[op.generator_arg];
    value = borrowCpuGenerator(value.isGenerator() ? value.toGenerator() : at::Generator(), device);
  }
  {
    const typename Loan::Memory memory(device);
    const HiddenRandomness randomness(op.hidden_randomness, device);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    profiler::Span span(profiler::Work::kFallback, op.name.c_str(), device);
    handle.redispatchBoxed(c10::DispatchKeySet(op.cpu_key), stack);
    span.finish();
  }
  if (op.writes || Loan::kCopies) {
    loan.writeBack();
  }
  IValue *rets = stack->data() + (stack->size() - op.nrets);
  for (size_t i = 0; i < op.nrets; i++) {
    takeBackResult(loan, rets[i]);
  }
  dit_ledger_add(op.ledger, DIT_LEDGER_FALLBACK, loan.countBytes(), now() - start);
}

void runCpuKernel(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (C10_LIKELY(isHostAccessible())) {
    runWithLoan<Loan>(op, handle, stack);
  } else {
    runWithLoan<StagedLoan>(op, handle, stack);
  }
}

// nansum of complex numbers, which CUDA has and the CPU has not: the sum of what is a number.
bool runNansum(const Operator &op, Stack *stack) {
  const IValue *args = stack->data() + (stack->size() - op.nargs);
  if (op.name.rfind("aten::nansum", 0) != 0 || !args[0].toTensor().is_complex()) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor &self = args[0].toTensor();
  const at::Tensor numbers = self.masked_fill(self.isnan(), 0);
  const auto dims = args[1].isNone() ? std::vector<int64_t>() : args[1].toIntVector();
  const at::OptionalIntArrayRef dim = args[1].isNone() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
  const auto dtype = args[3].toOptional<at::ScalarType>();
  at::Tensor result = op.nargs > 4 ? args[4].toTensor() : at::Tensor();
  if (result.defined()) {
    at::sum_out(result, numbers, dim, args[2].toBool(), dtype);
  } else {
    result = at::sum(numbers, dim, args[2].toBool(), dtype);
  }
  torch::jit::drop(*stack, op.nargs);
  stack->emplace_back(std::move(result));
  return true;
}

}  // namespace

void runFallback(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  IValue *args = stack->data() + (stack->size() - op.nargs);
  if (runNansum(op, stack) || runSupplement(op, handle, stack)) {
    return;
  }
  if (C10_LIKELY(!hasHalf(op, args))) {
    runCpuKernel(op, handle, stack);
    return;
  }
  if (isRoughInHalf(op)) {
    runWidened(op, handle, stack);
    return;
  }
  const std::vector<IValue> kept(args, args + op.nargs);
  const size_t base = stack->size() - op.nargs;
  const auto restore = [&] {
    stack->resize(base);
    stack->insert(stack->end(), kept.begin(), kept.end());
  };
  try {
    runCpuKernel(op, handle, stack);
  } catch (const c10::NotImplementedError &) {  // the dtype, which is found before anything is written
    const std::exception_ptr refusal = std::current_exception();
    restore();
    try {
      runWidened(op, handle, stack);
    } catch (const c10::NotImplementedError &) {
      std::rethrow_exception(refusal);
    }
  }
}

}  // namespace ditorch
