// The way into plain C: an operator's boxed arguments become a struct dit_call.
#include "Call.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>

#include <mutex>

#include "Allocator.h"
#include "Controls.h"
#include "Gate.h"
#include "Generator.h"
#include "Profiler.h"
#include "Storage.h"
#include "dit/diopi.h"
#include "dit/kernel.h"
#include "dit/runtime.h"

namespace ditorch {

void fillView(dit_tensor_view &view, const at::TensorBase &tensor) {
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  const auto sizes = impl->sizes();
  const c10::Device device = impl->device();
  view.data = const_cast<void *>(impl->data());
  view.sizes = sizes.data();
  view.strides = impl->strides().data();
  view.numel = impl->numel();
  view.storage = impl->unsafe_storage().unsafeGetStorageImpl();
  view.handle = impl;
  view.ndim = static_cast<int32_t>(sizes.size());
  view.dtype = static_cast<int16_t>(c10::typeMetaToScalarType(impl->dtype()));
  view.device_index = device.type() == kDevice ? device.index() : static_cast<int8_t>(-1);
  view.flags = static_cast<uint8_t>((impl->is_contiguous() ? DIT_TENSOR_CONTIGUOUS : 0) |
                                    (impl->is_wrapped_number() ? DIT_TENSOR_WRAPPED_NUMBER : 0) |
                                    (device.type() == kDevice ? DIT_TENSOR_ON_DEVICE : 0) |
                                    (impl->is_non_overlapping_and_dense() ? DIT_TENSOR_DENSE : 0));
}

dit_status reserveRandom(dit_call *call, void *generator, uint64_t count, uint64_t *seed, uint64_t *offset) {
  return guardService(call, [&] {
    auto *impl = generator ? static_cast<Generator *>(generator)
                           : defaultGenerator(static_cast<c10::DeviceIndex>(call->device)).get<Generator>();
    const std::lock_guard<std::mutex> lock(impl->mutex_);
    *seed = impl->current_seed();
    *offset = impl->reserve(count);
  });
}

namespace {

using c10::IValue;
using torch::jit::Stack;

at::Tensor borrow(void *handle) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
      static_cast<c10::TensorImpl *>(handle)));
}

dit_status newTensor(dit_call *call, int ndim, const int64_t *sizes, const int64_t *strides, int dtype,
                     dit_tensor_view *out) {
  return guardService(call, [&] {
    auto *state = static_cast<CallState *>(call->host);
    const c10::IntArrayRef shape(sizes, static_cast<size_t>(ndim));
    const auto type = static_cast<c10::ScalarType>(dtype);
    at::TensorBase made =
        strides ? at::detail::empty_strided_generic(shape, c10::IntArrayRef(strides, static_cast<size_t>(ndim)),
                                                    deviceAllocator(), kDeviceKeys, type)
                : at::detail::empty_generic(shape, deviceAllocator(), kDeviceKeys, type, std::nullopt);
    fillView(*out, made);
    state->made.emplace_back(std::move(made));
  });
}

dit_status resizeTensor(dit_call *call, dit_tensor_view *io, int ndim, const int64_t *sizes) {
  return guardService(call, [&] {
    at::Tensor tensor = borrow(io->handle);
    if (tensor.numel() != 0) {
      TORCH_WARN("An output with one or more elements was resized since it had shape ", tensor.sizes(),
                 ", which does not match the required output shape ",
                 c10::IntArrayRef(sizes, static_cast<size_t>(ndim)),
                 ". This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless "
                 "they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero "
                 "elements with t.resize_(0).");
    }
    tensor.resize_(c10::IntArrayRef(sizes, static_cast<size_t>(ndim)));
    fillView(*io, tensor);
  });
}

void getStorage(const dit_tensor_view *view, void **base, size_t *size) {
  const auto &storage = static_cast<const c10::TensorImpl *>(view->handle)->unsafe_storage();
  *base = const_cast<void *>(storage.data());
  *size = storage.nbytes();
}

const dit_call_services services = {newTensor, resizeTensor, reserveRandom, getStorage};

bool convertTensors(dit_value &out, const IValue &value, CallState &state) {
  auto &views = state.tensor_lists.emplace_back();
  for (const IValue &element : value.toListRef()) {
    dit_tensor_view view{};
    if (element.isTensor() && element.toTensor().defined()) {
      if (!isPlain(element.toTensor())) {
        return false;
      }
      fillView(view, element.toTensor());
    }
    views.push_back(view);
  }
  out.tag = DIT_VALUE_TENSORS;
  out.v.tensors = {views.data(), static_cast<int64_t>(views.size())};
  return true;
}

// A list of Scalars, when all are floating point numbers.
bool convertNumbers(dit_value &out, const IValue &value, CallState &state) {
  auto &list = state.double_lists.emplace_back();
  for (const IValue &element : value.toListRef()) {
    if (!element.isDouble()) {
      return false;
    }
    list.push_back(element.toDouble());
  }
  out.tag = DIT_VALUE_DOUBLES;
  out.v.doubles = {list.data(), static_cast<int64_t>(list.size())};
  return true;
}

// A lazily conjugated or negated input is made real first. Where the operator writes, or where PyTorch's kernel gives a
// lazy result for it, that way is taken.
C10_NOINLINE bool convertLazy(dit_value &out, const at::Tensor &tensor, const Operator &op, CallState &state) {
  if (op.writes || op.name == "aten::dot" || op.name == "aten::vdot" || tensor.layout() != c10::kStrided ||
      tensor.device().type() != kDevice) {
    return false;
  }
  // The layout of its result depends on that.
  if (op.name == "aten::linalg_solve_triangular" && tensor.dim() >= 2 && tensor.transpose(-2, -1).is_contiguous()) {
    return false;
  }
  at::Tensor plain = tensor.resolve_conj().resolve_neg();
  if (!isPlain(plain)) {
    return false;
  }
  out.tag = DIT_VALUE_TENSOR;
  fillView(out.v.tensor, plain);
  state.made.push_back(std::move(plain));
  return true;
}

bool convert(dit_value &out, const IValue &value, const Operator &op, CallState &state) {
  if (value.isTensor()) {
    const at::Tensor &tensor = value.toTensor();
    if (!tensor.defined()) {
      out.tag = DIT_VALUE_NONE;
      return true;
    }
    if (C10_UNLIKELY(!isPlain(tensor))) {
      return convertLazy(out, tensor, op, state);
    }
    out.tag = DIT_VALUE_TENSOR;
    fillView(out.v.tensor, tensor);
  } else if (value.isInt()) {
    out.tag = DIT_VALUE_INT;
    out.v.i = value.toInt();
  } else if (value.isDouble()) {
    out.tag = DIT_VALUE_DOUBLE;
    out.v.d = value.toDouble();
  } else if (value.isBool()) {
    out.tag = DIT_VALUE_BOOL;
    out.v.i = value.toBool();
  } else if (value.isNone()) {
    out.tag = DIT_VALUE_NONE;
  } else if (value.isIntList()) {
    auto &list = state.int_lists.emplace_back(value.toIntVector());
    out.tag = DIT_VALUE_INTS;
    out.v.ints = {list.data(), static_cast<int64_t>(list.size())};
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    return convertTensors(out, value, state);
  } else if (value.isBoolList()) {
    auto &list = state.int_lists.emplace_back();
    for (const bool element : value.toBoolList()) {
      list.push_back(element);
    }
    out.tag = DIT_VALUE_INTS;
    out.v.ints = {list.data(), static_cast<int64_t>(list.size())};
  } else if (value.isString()) {
    out.tag = DIT_VALUE_STRING;
    out.v.string = value.toStringRef().c_str();
  } else if (value.isDoubleList()) {
    auto &list = state.double_lists.emplace_back(value.toDoubleVector());
    out.tag = DIT_VALUE_DOUBLES;
    out.v.doubles = {list.data(), static_cast<int64_t>(list.size())};
  } else if (value.isList()) {
    return convertNumbers(out, value, state);
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    out.tag = DIT_VALUE_COMPLEX;
    out.v.complex = {number.real(), number.imag()};
  } else if (value.isGenerator() && value.toGenerator().device().type() == kDevice) {
    out.tag = DIT_VALUE_GENERATOR;
    out.v.generator = value.toGenerator().unsafeGetGeneratorImpl();
  } else {
    return false;
  }
  return true;
}

IValue convertBack(const dit_value &value, CallState &state) {
  switch (value.tag) {
    case DIT_VALUE_TENSORS:
      return takeTensors(value);
    case DIT_VALUE_INT:
      return value.v.i;
    case DIT_VALUE_DOUBLE:
      return value.v.d;
    case DIT_VALUE_BOOL:
      return value.v.i != 0;
    default:
      return takeTensor(value, state);
  }
}

void pushResults(const Operator &op, const dit_value *rets, CallState &state, Stack *stack) {
  IValue results[DIT_MAX_RETS];
  for (size_t i = 0; i < op.nrets; i++) {
    results[i] = convertBack(rets[i], state);
  }
  torch::jit::drop(*stack, op.nargs);
  for (size_t i = 0; i < op.nrets; i++) {
    stack->push_back(std::move(results[i]));
  }
}

// The common device of all tensor arguments; -1 when the call must take the careful way (lists, mixed devices).
int findDevice(const Operator &op, const dit_value *values) {
  int device = -1;
  for (size_t i = 0; i < op.nargs; i++) {
    const dit_value &value = values[i];
    if (value.tag == DIT_VALUE_TENSOR) {
      const int index = value.v.tensor.device_index;
      if (index < 0 ? !op.takes_cpu_lengths && (value.v.tensor.ndim != 0 || op.isWritten(i))
                    : device >= 0 && device != index) {
        return -1;
      }
      device = index >= 0 ? index : device;
    } else if (value.tag == DIT_VALUE_TENSORS) {
      for (int64_t k = 0; k < value.v.tensors.size; k++) {
        const dit_tensor_view &view = value.v.tensors.data[k];
        if (view.handle == nullptr) {
          continue;
        }
        if (view.device_index < 0 || (device >= 0 && device != view.device_index)) {
          return -1;
        }
        device = view.device_index;
      }
    }
  }
  return device;
}

template <typename Function>
void visitViews(dit_value *values, size_t count, Function &&function) {
  for (size_t i = 0; i < count; i++) {
    if (values[i].tag == DIT_VALUE_TENSOR) {
      function(i, values[i].v.tensor);
    } else if (values[i].tag == DIT_VALUE_TENSORS) {
      for (int64_t k = 0; k < values[i].v.tensors.size; k++) {
        auto &view = const_cast<dit_tensor_view &>(values[i].v.tensors.data[k]);  // the list is the call's own
        if (view.handle != nullptr) {
          function(i, view);
        }
      }
    }
  }
}

// A lazy copy (torch._lazy_clone) that the operator writes to becomes a real one first.
void separateWritten(const Operator &op, dit_value *args) {
  bool moved = false;
  visitViews(args, op.nargs, [&](size_t i, dit_tensor_view &view) {
    if (op.isWritten(i)) {
      moved = separateStorage(static_cast<c10::StorageImpl *>(const_cast<void *>(view.storage))) || moved;
    }
  });
  if (C10_UNLIKELY(moved)) {
    visitViews(args, op.nargs, [](size_t, dit_tensor_view &view) {
      view.data = const_cast<void *>(static_cast<c10::TensorImpl *>(view.handle)->data());
    });
  }
}

// Bytes of an element, by enum dit_dtype.
constexpr uint8_t kWidths[DIT_DTYPE_COUNT] = {
#define DIT_WIDTH(suffix, number, name, bits, klass) (bits) / 8,
    DIT_DTYPE_LIST(DIT_WIDTH)
#undef DIT_WIDTH
};
static_assert(kWidths[DIT_DTYPE_C128] == 16 && kWidths[DIT_DTYPE_U64] == 8, "the list is in the order of its numbers");

uint64_t countBytes(const dit_value *values, size_t count) {
  const auto count_one = [](const dit_tensor_view &view) {
    return view.dtype < DIT_DTYPE_COUNT ? static_cast<uint64_t>(view.numel) * kWidths[view.dtype] : 0;
  };
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    if (values[i].tag == DIT_VALUE_TENSOR) {
      bytes += count_one(values[i].v.tensor);
    } else if (values[i].tag == DIT_VALUE_TENSORS) {
      for (int64_t k = 0; k < values[i].v.tensors.size; k++) {
        bytes += count_one(values[i].v.tensors.data[k]);
      }
    }
  }
  return bytes;
}

}  // namespace

at::Tensor takeTensor(const dit_value &value, CallState &state) {
  if (value.tag != DIT_VALUE_TENSOR) {
    return at::Tensor();
  }
  for (at::Tensor &tensor : state.made) {
    if (tensor.unsafeGetTensorImpl() == value.v.tensor.handle) {
      return std::move(tensor);
    }
  }
  return borrow(value.v.tensor.handle);
}

std::vector<at::Tensor> takeTensors(const dit_value &value) {
  std::vector<at::Tensor> list;
  list.reserve(static_cast<size_t>(value.v.tensors.size));
  for (int64_t i = 0; i < value.v.tensors.size; i++) {
    list.push_back(borrow(value.v.tensors.data[i].handle));
  }
  return list;
}

bool convertArgument(dit_value &out, const at::IValue &value, const Operator &op, CallState &state) {
  return convert(out, value, op, state);
}

bool callRow(const Operator &op, dit_value *args, dit_value *rets, int device, const dit_call_services &services,
             void *host) {
  const bool timing = dit_ledger_get_timing();
  const uint64_t start = timing ? now() : 0;
  dit_error err;
  err.message[0] = '\0';
  dit_call call;
  call.op = op.c_op;
  call.nargs = static_cast<int>(op.nargs);
  call.nrets = static_cast<int>(op.nrets);
  call.args = args;
  call.rets = rets;
  call.device = device;
  call.default_dtype = static_cast<int>(c10::get_default_dtype_as_scalartype());
  call.stream = dit_stream_get_current_raw(device);
  call.kernels = profiler::isTracing() ? profiler::traceKernels(op.name.c_str(), device) : dit_runtime_get_kernels();
  call.diopi = dit_diopi_get_active();
  call.observer = profiler::isTracing()  ? profiler::traceOperators(op.name.c_str(), device)
                  : controls::isActive() ? controls::getObserver()
                                         : nullptr;
  call.services = &services;
  call.host = host;
  call.err = &err;
  const Gate &gate = findGate(op.c_op);
  const dit_status status = dit_op_run(&call, &gate.arguments);
  if (status == DIT_ERR_UNSUPPORTED || (status == DIT_ERR_INVALID && gate.has_rest)) {
    return false;  // a wrong argument, before anything was written: PyTorch's own kernel has the words for it
  }
  check(status, err);
  const uint64_t bytes = countBytes(args, op.nargs) + countBytes(rets, op.nrets);
  dit_ledger_add(op.ledger, DIT_LEDGER_C, bytes, timing ? now() - start : 0);
  return true;
}

bool callC(const Operator &op, dit_value *args, dit_value *rets, CallState &state) {
  const int device = findDevice(op, args);
  if (C10_UNLIKELY(device < 0)) {
    return false;
  }
  c10::OptionalDeviceGuard guard;
  if (C10_UNLIKELY(dit_device_get_current() != device)) {
    guard.reset_device(c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
  }
  if (op.writes) {
    separateWritten(op, args);
  }
  return callRow(op, args, rets, device, services, &state);
}

bool runC(const Operator &op, Stack *stack) {
  if (C10_UNLIKELY(op.nargs > DIT_MAX_ARGS || op.nrets > DIT_MAX_RETS)) {
    return false;
  }
  dit_value args[DIT_MAX_ARGS];
  dit_value rets[DIT_MAX_RETS];
  CallState state;
  const IValue *inputs = stack->data() + (stack->size() - op.nargs);
  for (size_t i = 0; i < op.nargs; i++) {
    if (C10_UNLIKELY(!convert(args[i], inputs[i], op, state))) {
      return false;
    }
  }
  if (!callC(op, args, rets, state)) {
    return false;
  }
  if (C10_UNLIKELY(op.written_list >= 0)) {
    for (const IValue &element : inputs[op.written_list].toListRef()) {
      if (element.isTensor()) {
        countVersion(element.toTensor());
      }
    }
  }
  if (C10_LIKELY(op.nrets == 1)) {
    IValue result = convertBack(rets[0], state);
    torch::jit::drop(*stack, op.nargs);
    stack->push_back(std::move(result));
  } else {
    pushResults(op, rets, state, stack);
  }
  return true;
}

}  // namespace ditorch
