// The one door from PyTorch's dispatcher: every operator of the device comes through here.
//
// Each operator that has a CPU kernel or a C implementation gets a boxed functor of its own (composite kernels would
// outrank a catch-all and silently decompose); the catch-all serves the rest, such as operators of other libraries.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "Controls.h"
#include "Direct.h"
#include "Operator.h"
#include "Profiler.h"
#include "Staging.h"
#include "Storage.h"
#include "dit/fault.h"
#include "dit/log.h"
#include "dit/op.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

// What C does not take is composed of other operators of the device where PyTorch has such a kernel, else the CPU's.
void runRest(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (op.composite) {
    runComposite(op, handle, stack);
  } else {
    runFallback(op, handle, stack);
  }
}

void runPlain(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (op.c_op == nullptr || !runC(op, stack)) {
    runRest(op, handle, stack);
  }
}

void runOperator(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (controls::isActive()) {
    controls::run(op, handle, stack, &runPlain);
  } else {
    runPlain(op, handle, stack);
  }
}

void collectTensors(const IValue *values, size_t count, std::vector<at::Tensor> &out) {
  for (size_t i = 0; i < count; i++) {
    if (values[i].isTensor() && values[i].toTensor().defined()) {
      out.push_back(values[i].toTensor());
    } else if (values[i].isTensorList()) {
      for (const at::Tensor &tensor : values[i].toTensorVector()) {
        out.push_back(tensor);
      }
    }
  }
}

std::vector<dit_tensor_view> viewAll(const std::vector<at::Tensor> &tensors) {
  std::vector<dit_tensor_view> views;
  for (const at::Tensor &tensor : tensors) {
    if (tensor.layout() == c10::kStrided && tensor.has_storage()) {
      fillView(views.emplace_back(), tensor);
    }
  }
  return views;
}

bool isStaged(const at::Tensor &tensor) {
  return tensor.device().type() == kDevice && tensor.layout() == c10::kStrided && tensor.has_storage();
}

// The damage where the host cannot read the device's memory: to copies, which are sent back. Arguments and results that
// share memory share its copy.
void damageStaged(uint64_t token, c10::DeviceIndex device, const std::vector<at::Tensor> &inputs,
                  const std::vector<at::Tensor> &outputs) {
  Stage stage(device);
  std::vector<at::Tensor> copies[2];
  for (const auto *tensors : {&inputs, &outputs}) {
    for (const at::Tensor &tensor : *tensors) {
      if (isStaged(tensor) && tensor.device().index() == device) {
        stage.note(tensor, /*reads=*/true);
      }
    }
  }
  stage.fetch();
  for (const auto *tensors : {&inputs, &outputs}) {
    for (const at::Tensor &tensor : *tensors) {
      if (!isStaged(tensor)) {
        copies[tensors == &outputs].push_back(tensor);
      } else if (tensor.device().index() == device) {
        copies[tensors == &outputs].push_back(stage.get(tensor));
      }
    }
  }
  const auto input_views = viewAll(copies[0]), output_views = viewAll(copies[1]);
  dit_fault_after(token, input_views.data(), static_cast<int>(input_views.size()), output_views.data(),
                  static_cast<int>(output_views.size()));
  for (const auto *tensors : {&inputs, &outputs}) {
    for (const at::Tensor &tensor : *tensors) {
      if (isStaged(tensor) && tensor.device().index() == device) {
        stage.send(stage.get(tensor), tensor);
      }
    }
  }
}

// An operator without results is its effect: the arguments that it writes stand for them.
void collectWritten(const Operator &op, const c10::IValue *arguments, std::vector<at::Tensor> &out) {
  for (size_t i = 0; i < op.nargs && op.nrets == 0; i++) {
    if (op.isWritten(i)) {
      collectTensors(arguments + i, 1, out);
    }
  }
}

// The slow way in, taken only while a fault rule is set.
void runWithFaults(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  collectTensors(stack->data() + (stack->size() - op.nargs), op.nargs, inputs);
  collectWritten(op, stack->data() + (stack->size() - op.nargs), outputs);
  const auto input_views = viewAll(inputs);
  uint64_t token = 0;
  const int device = dit_device_get_current();
  profiler::Span slow(profiler::Work::kFault, op.name.c_str(), device);
  const uint64_t count = dit_fault_get_count();
  DIT_CHECK(dit_fault_before(op.name.c_str(), input_views.data(), static_cast<int>(input_views.size()), &token, &err));
  if (dit_fault_get_count() != count) {
    slow.finish();
  }
  runOperator(op, handle, stack);
  if (token == 0) {
    return;
  }
  collectTensors(stack->data() + (stack->size() - op.nrets), op.nrets, outputs);
  if (!isHostAccessible()) {
    damageStaged(token, static_cast<c10::DeviceIndex>(device), inputs, outputs);
    return;
  }
  for (const at::Tensor &tensor : outputs) {
    if (tensor.device().type() == kDevice) {
      synchronizeCurrentStream(tensor.device().index());
    }
  }
  const auto output_views = viewAll(outputs);
  dit_fault_after(token, input_views.data(), static_cast<int>(input_views.size()), output_views.data(),
                  static_cast<int>(output_views.size()));
}

void enterUncompared(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (C10_UNLIKELY(dit_fault_is_active()) && !controls::isForced(op)) {
    runWithFaults(op, handle, stack);
  } else {
    runOperator(op, handle, stack);
  }
}

void enter(const Operator &op, const c10::OperatorHandle &handle, Stack *stack) {
  if (controls::isComparing()) {
    controls::runCompared(op, handle, stack, &enterUncompared);
  } else {
    enterUncompared(op, handle, stack);
  }
}

template <controls::Runner kRun>
class Door final : public c10::OperatorKernel {
 public:
  explicit Door(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key = c10::DispatchKey::CPU)
      : op_(handle, cpu_key) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, Stack *stack) { kRun(op_, handle, stack); }

 private:
  Operator op_;
};

template <controls::Runner kRun>
c10::BoxedKernel makeDoor(const c10::OperatorHandle &handle) {
  return c10::BoxedKernel::makeFromFunctor(std::make_unique<Door<kRun>>(handle));
}

const Operator &lookUp(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key) {
  static std::mutex mutex;
  static auto *known = new std::map<c10::DispatchKey, std::unordered_map<c10::OperatorName, std::unique_ptr<Operator>>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto &entry = (*known)[cpu_key][handle.operator_name()];
  if (!entry) {
    entry = std::make_unique<Operator>(handle, cpu_key);
  }
  return *entry;
}

bool hasCpuKernel(const c10::OperatorHandle &handle) {
  for (const c10::DispatchKey key :
       {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd,
        c10::DispatchKey::CompositeExplicitAutogradNonFunctional, c10::DispatchKey::CompositeImplicitAutograd}) {
    if (handle.hasKernelForDispatchKey(key)) {
      return true;
    }
  }
  return false;
}

void enterUnregistered(const c10::OperatorHandle &handle, Stack *stack) {
  const Operator &op = lookUp(handle, c10::DispatchKey::CPU);
  TORCH_CHECK_NOT_IMPLEMENTED(op.c_op != nullptr || hasCpuKernel(handle), "the operator '",
                              c10::toString(handle.operator_name()),
                              "' is not implemented on the ditorch device: it has neither a C implementation nor a CPU "
                              "kernel to fall back to. Move its inputs to the CPU or use another operator.");
  enter(op, handle, stack);
}

template <int kLayout>
void refuse(const c10::OperatorHandle &handle, Stack *) {
  static constexpr const char *layouts[] = {"quantized", "nested"};
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, layouts[kLayout], " tensors are not supported on ", showDevice(c10::Device(kDevice)), " by ditorch (in '",
      c10::toString(handle.operator_name()), "'); use dense tensors, or keep this part on the CPU");
}

// Kernels of the CPU that are made of operators and serve any device: those of nested tensors work on buffers, the
// others make nested tensors of dense ones.
template <DispatchKey kKey>
void redispatchTo(const c10::OperatorHandle &handle, Stack *stack) {
  handle.redispatchBoxed(c10::DispatchKeySet(kKey), stack);
}

// Written by hand in Nested.cpp.
bool isHandWrittenNested(const std::string &name) {
  return name == "aten::native_layer_norm" || name == "aten::native_layer_norm_backward" ||
         name == "aten::sum.dim_IntList" || name == "aten::_nested_sum_backward";
}

bool makesNested(const std::string &name) {
  return name == "aten::_nested_from_padded" || name == "aten::_nested_tensor_from_mask" ||
         name == "aten::_nested_view_from_buffer";
}

// Written by hand in Factory.cpp, View.cpp, Attention.cpp and Transformer.cpp.
const std::unordered_set<std::string> &handWritten() {
  static const auto *names =
      new std::unordered_set<std::string>{"aten::empty.memory_format",
                                          "aten::empty_strided",
                                          "aten::_copy_from",
                                          "aten::_copy_from_and_resize",
                                          "aten::_local_scalar_dense",
                                          "aten::resize_",
                                          "aten::_resize_output_",
                                          "aten::_efficientzerotensor",
                                          "aten::set_.source_Storage_storage_offset",
                                          "aten::set_.source_Tensor",
                                          "aten::set_.source_Storage",
                                          "aten::set_",
                                          "aten::as_strided",
                                          "aten::view",
                                          "aten::_reshape_alias",
                                          "aten::unfold",
                                          "aten::view_as_real",
                                          "aten::view_as_complex",
                                          "aten::_has_compatible_shallow_copy_type",
                                          "aten::record_stream",
                                          "aten::_nested_tensor_from_mask_left_aligned",
                                          "aten::_fused_sdp_choice",
                                          "aten::_transformer_encoder_layer_fwd",
                                          "aten::_scaled_dot_product_fused_attention_overrideable",
                                          "aten::_scaled_dot_product_fused_attention_overrideable_backward"};
  return *names;
}

bool wantsDoor(const c10::OperatorHandle &handle, const std::string &name) {
  if (handWritten().count(name) || handle.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    return false;
  }
  return handle.hasKernelForDispatchKey(c10::DispatchKey::CPU) || isWholesale(name) || Operator(handle).c_op != nullptr;
}

// The operators that were given a door; complete when this library is loaded.
std::unordered_set<std::string> &listDoors() {
  static auto *names = new std::unordered_set<std::string>;
  return *names;
}

void registerOperators() {
  static auto *library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static auto *nested =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::NestedTensorPrivateUse1, __FILE__, __LINE__);
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &operator_name : dispatcher.getAllOpNames()) {
    if (operator_name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto handle = dispatcher.findSchema(operator_name);
    if (!handle.has_value()) {
      continue;
    }
    const std::string name = c10::toString(operator_name);
    const char *short_name = name.c_str() + sizeof("aten::") - 1;
    if (handle->hasKernelForDispatchKey(DispatchKey::NestedTensorCPU) && !isHandWrittenNested(name)) {
      nested->impl(short_name,
                   torch::CppFunction::makeFromBoxedFunction<&redispatchTo<DispatchKey::NestedTensorCPU>>());
    }
    if (makesNested(name)) {
      library->impl(short_name, torch::CppFunction::makeFromBoxedFunction<&redispatchTo<DispatchKey::CPU>>());
      continue;
    }
    if (!wantsDoor(*handle, name)) {
      continue;
    }
    listDoors().insert(name);
    if (isDirect(name) && Operator(*handle).c_op != nullptr) {
      registerDirect(*handle, name, makeDoor<enter>(*handle), makeDoor<runRest>(*handle));
    } else {
      library->impl(short_name, torch::CppFunction::makeFromBoxedKernel(makeDoor<enter>(*handle)));
    }
  }
}

const bool registered = (registerOperators(), true);

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&enterUnregistered>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse<0>>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse<1>>());
}

}  // namespace

c10::BoxedKernel makeSparseDoor(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key) {
  return c10::BoxedKernel::makeFromFunctor(std::make_unique<Door<enter>>(handle, cpu_key));
}

void enterSparse(const c10::OperatorHandle &handle, c10::DispatchKey cpu_key, Stack *stack) {
  enter(lookUp(handle, cpu_key), handle, stack);
}

const Operator &findOperator(const c10::OperatorHandle &handle) {
  return lookUp(handle, c10::DispatchKey::CPU);
}

bool hasDoor(const std::string &name) {
  return listDoors().count(name) > 0;
}

}  // namespace ditorch
