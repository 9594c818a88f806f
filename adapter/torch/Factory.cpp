// Making, resizing, copying and reading device tensors: the few operators that are not a computation.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/kaiser_window.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "Allocator.h"
#include "Operator.h"
#include "Profiler.h"
#include "Share.h"
#include "Staging.h"
#include "Storage.h"
#include "dit/diopi.h"
#include "dit/fault.h"
#include "dit/kernel.h"
#include "dit/memory.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

void checkOptions(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided, "tensors with layout ", *layout,
                              " are not supported on ", showDevice(c10::Device(kDevice)),
                              " by ditorch; use dense tensors, or the CPU for this part");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

c10::DeviceGuard guardFor(std::optional<at::Device> device) {
  return c10::DeviceGuard(
      c10::Device(kDevice, resolveIndex(device.has_value() ? device->index() : c10::DeviceIndex(-1))));
}

at::ScalarType typeOr(std::optional<at::ScalarType> dtype) {
  return dtype.value_or(c10::get_default_dtype_as_scalartype());
}

// torch.use_deterministic_algorithms(True) leaves no memory uninitialised: NaN, or the largest integer.
bool fillsMemory() {
  return at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory();
}

at::Tensor fillIfAsked(at::Tensor tensor) {
  if (C10_UNLIKELY(fillsMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  checkOptions(layout, pin_memory);
  const auto guard = guardFor(device);
  return fillIfAsked(at::detail::empty_generic(size, deviceAllocator(), kDeviceKeys, typeOr(dtype), memory_format));
}

at::Tensor emptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> layout, std::optional<at::Device> device,
                        std::optional<bool> pin_memory) {
  checkOptions(layout, pin_memory);
  const auto guard = guardFor(device);
  return fillIfAsked(at::detail::empty_strided_generic(size, stride, deviceAllocator(), kDeviceKeys, typeOr(dtype)));
}

// PyTorch's composite form calls a kernel that only the CPU and CUDA have.
template <typename... Numbers>
struct KaiserWindow {
  static at::Tensor make(int64_t length, Numbers... numbers, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
    checkOptions(layout, pin_memory);
    const auto guard = guardFor(device);
    return at::kaiser_window(length, numbers..., at::TensorOptions(typeOr(dtype)).device(at::kCPU))
        .to(guard.current_device());
  }
};

// Forward-mode AD uses lazily zero tensors; on the device they are simply zero.
at::Tensor zeroTensor(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                      std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return at::zeros(size, dtype, layout, device, pin_memory);
}

void growStorage(at::TensorImpl *impl) {
  if (impl->numel() == 0) {
    return;
  }
  const size_t needed =
      at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize(), impl->storage_offset());
  auto *storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    resizeStorage(storage, needed);
  }
}

const at::Tensor &resize(const at::Tensor &self, c10::IntArrayRef size, std::optional<at::MemoryFormat> memory_format) {
  auto *impl = self.unsafeGetTensorImpl();
  const size_t bytes = impl->unsafe_storage().nbytes();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    growStorage(impl);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(fillsMemory())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(bytes));
  }
  return self;
}

const at::Tensor &resizeOutput(const at::Tensor &self, c10::IntArrayRef size, at::Device device) {
  TORCH_CHECK(self.device() == device, "out Tensor doesn't have the correct device set");
  return self.sizes() == size ? self : ditorch::resize(self, size, std::nullopt);
}

// Copies

// A copy on whose way numbers are conjugated or negated: what a lazy view promised is done now, by the vendor's
// library.
dit_status launchFlip(const dit_tensor_view &in, const dit_tensor_view &out, c10::DeviceIndex device, bool conjugates,
                      dit_error &err) {
  const auto *library = dit_diopi_get_active();
  const auto function = library == nullptr ? nullptr
                        : conjugates       ? library->functions.diopiConj
                                           : library->functions.diopiNeg;
  if (function == nullptr || in.dtype != out.dtype || in.ndim > DIT_MAX_DIMS) {
    return DIT_ERR_UNSUPPORTED;
  }
  diopiContext context;
  diopiTensor from;
  diopiTensor to;
  dit_diopi_context_init(&context, device, dit_stream_get_current_raw(device));
  dit_diopi_tensor_init(&from, &in);
  dit_diopi_tensor_init(&to, &out);
  const diopiError_t code = function(&context, &to, &from);
  dit_diopi_context_reset(&context);
  return dit_diopi_library_check(library, conjugates ? "diopiConj" : "diopiNeg", code, &err);
}

void launchCopy(const at::Tensor &from, const at::Tensor &to, c10::DeviceIndex device) {
  dit_tensor_view in{};
  dit_tensor_view out{};
  separateStorage(to.storage().unsafeGetStorageImpl());
  fillView(in, from);
  fillView(out, to);
  dit_error err;
  err.message[0] = '\0';
  const bool conjugates = from.is_conj() != to.is_conj();
  const bool negates = from.is_neg() != to.is_neg();
  dit_status status = DIT_ERR_UNSUPPORTED;
  if (conjugates != negates) {
    status = launchFlip(in, out, device, conjugates, err);
  } else if (in.ndim <= DIT_MAX_DIMS && !conjugates) {
    status = copyElements(out, in, device, err);
  }
  static dit_ledger_entry *const ledger = dit_ledger_get("aten::_copy_from");
  if (status == DIT_ERR_UNSUPPORTED) {
    synchronizeCurrentStream(device);
    profiler::Span span(profiler::Work::kFallback, "aten::copy_", device);
    if (isHostAccessible()) {
      aliasAsCpu(to).copy_(aliasAsCpu(from));
    } else {
      copyOnHost(from, to);
    }
    span.finish();
  } else {
    check(status, err);
  }
  dit_ledger_add(ledger, status == DIT_OK ? DIT_LEDGER_C : DIT_LEDGER_FALLBACK, from.nbytes() + to.nbytes(), 0);
}

// Under fault rules. What converts goes by both names: a program's x.to(dtype) comes here as y.copy_(x).
void launchFaultyCopy(const at::Tensor &from, const at::Tensor &to, c10::DeviceIndex device) {
  const bool converts = from.scalar_type() != to.scalar_type();
  dit_tensor_view inputs[2] = {};
  uint64_t token = 0;
  fillView(inputs[0], from);
  fillView(inputs[1], to);
  DIT_CHECK(dit_fault_before(converts ? "aten::_to_copy|aten::copy_" : "aten::copy_", inputs, 2, &token, &err));
  launchCopy(from, to, device);
  if (token != 0) {
    synchronizeCurrentStream(device);
    fillView(inputs[1], to);
    dit_fault_after(token, inputs, 2, &inputs[1], 1);
  }
}

// Device to device. Across devices the source's stream finishes first and the destination's stream does the work.
void copyOnDevice(const at::Tensor &from, const at::Tensor &to) {
  const c10::DeviceGuard guard(to.device());
  if (C10_UNLIKELY(from.device() != to.device() && !isHostAccessible())) {
    copyBetweenClosed(from, to);
    return;
  }
  if (from.device() != to.device()) {
    synchronizeCurrentStream(from.device().index());
  }
  (C10_UNLIKELY(dit_fault_is_active()) ? launchFaultyCopy : launchCopy)(from, to, to.device().index());
  if (from.device() != to.device()) {
    synchronizeCurrentStream(to.device().index());
  }
}

// Between CPU and device.
void copyAcross(const at::Tensor &from, const at::Tensor &to, bool non_blocking) {
  const bool to_device = to.device().type() == kDevice;
  const c10::DeviceIndex device = (to_device ? to : from).device().index();
  const c10::DeviceGuard guard(c10::Device(kDevice, device));
  profiler::Span span(to_device ? profiler::Work::kCopyIn : profiler::Work::kCopyOut, "aten::copy_", device,
                      to.nbytes());
  if (isOneBlock(from, to)) {
    const bool async = non_blocking && dit_host_is_pinned((to_device ? from : to).const_data_ptr());
    DIT_CHECK(dit_memory_copy(to.mutable_data_ptr(), to_device ? device : -1, from.const_data_ptr(),
                              to_device ? -1 : device, to.nbytes(), device, dit_stream_get_current(device), async,
                              &err));
    span.finish();
    return;
  }
  if (isHostAccessible()) {
    synchronizeCurrentStream(device);
    (to_device ? aliasAsCpu(to) : to).copy_(to_device ? from : aliasAsCpu(from));
  } else {
    copyAcrossClosed(from, to);
  }
  span.finish();
}

at::Tensor copyFrom(const at::Tensor &from, const at::Tensor &to, bool non_blocking) {
  if (to.numel() == 0) {
    return to;
  }
  at::assert_no_internal_overlap(to);
  at::assert_no_partial_overlap(to, from);
  if (C10_UNLIKELY(from.sizes() != to.sizes())) {
    return copyFrom(from.expand(to.sizes()), to, non_blocking);
  }
  if (from.device().type() == kDevice && to.device().type() == kDevice) {
    copyOnDevice(from, to);
  } else {
    TORCH_CHECK(from.device().is_cpu() || to.device().is_cpu(), "cannot copy from ", showDevice(from.device()), " to ",
                showDevice(to.device()), ": one of them must be the CPU or both the ditorch device");
    copyAcross(from, to, non_blocking);
  }
  return to;
}

at::Tensor copyFromAndResize(const at::Tensor &from, const at::Tensor &to) {
  if (to.sizes() != from.sizes()) {
    to.resize_(from.sizes());
  }
  return copyFrom(from, to, false);
}

at::Scalar item(const at::Tensor &self) {
  const c10::DeviceGuard guard(self.device());
  const c10::DeviceIndex device = self.device().index();
  profiler::Span span(profiler::Work::kCopyOut, "aten::_local_scalar_dense", device, self.nbytes());
  if (!isHostAccessible()) {
    const at::Scalar value = fetchNumber(self);
    span.finish();
    return value;
  }
  synchronizeCurrentStream(device);
  const at::Scalar value = aliasAsCpu(self).item();
  span.finish();
  return value;
}

// Asked by nn.TransformerEncoder before it packs a padded batch into a nested tensor: "no" keeps the batch dense.
bool isMaskLeftAligned(const at::Tensor &, const at::Tensor &) {
  return false;
}

void recordStream(at::Tensor &self, c10::Stream stream) {
  recordStreamOf(self.storage().data_ptr(), stream.id());
}

// PrivateUse1 is not in PyTorch's set of dense backends; without this answer Module.cuda() would make new Parameters,
// untie shared weights and strand optimizers.
bool hasCompatibleType(const at::Tensor &self, const at::Tensor &from) {
  const auto is_dense = [](const at::Tensor &tensor) {
    return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
           (tensor.device().is_cpu() || tensor.device().type() == kDevice) &&
           !tensor.key_set().has(c10::DispatchKey::Python);
  };
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &emptyStrided);
  m.impl("_efficientzerotensor", &zeroTensor);
  m.impl("kaiser_window", &KaiserWindow<>::make);
  m.impl("kaiser_window.periodic", &KaiserWindow<bool>::make);
  m.impl("kaiser_window.beta", &KaiserWindow<bool, double>::make);
  m.impl("resize_", &resize);
  m.impl("_resize_output_", &resizeOutput);
  m.impl("_copy_from", &copyFrom);
  m.impl("_copy_from_and_resize", &copyFromAndResize);
  m.impl("_local_scalar_dense", &item);
  m.impl("record_stream", &recordStream);
  m.impl("_nested_tensor_from_mask_left_aligned", &isMaskLeftAligned);
  m.impl("_has_compatible_shallow_copy_type", &hasCompatibleType);
}
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_has_compatible_shallow_copy_type", &hasCompatibleType);
}
// copy_ -> _copy_from -> resolve_conj -> copy_ would recurse for ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace ditorch
