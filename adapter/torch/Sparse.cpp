// Sparse tensors of the device.
//
// Making one, asking for its parts and copying it touch nothing but metadata, or consist of operators on the dense
// parts: PyTorch's own CPU code does that for any device. Every other operator for which the CPU has a kernel for
// sparse tensors goes through a door of its own to the CPU fallback (Fallback.cpp).
#include "Sparse.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "Operator.h"

namespace ditorch {
namespace {

at::SparseTensorImpl *getCoo(const at::Tensor &tensor) {
  return static_cast<at::SparseTensorImpl *>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl *getCompressed(const at::Tensor &tensor) {
  return static_cast<at::SparseCsrTensorImpl *>(tensor.unsafeGetTensorImpl());
}

at::Tensor rebuildCoo(const at::Tensor &tensor, c10::DeviceType device, const PartMap &map) {
  const auto *from = getCoo(tensor);
  const auto key = device == kDevice ? c10::DispatchKey::SparsePrivateUse1 : c10::DispatchKey::SparseCPU;
  auto made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), tensor.dtype());
  auto *to = getCoo(made);
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), tensor.sizes());
  to->set_indices_and_values_unsafe(map(from->indices()), map(from->values()));
  to->set_coalesced(from->coalesced());
  return made;
}

at::Tensor rebuildCompressed(const at::Tensor &tensor, c10::DeviceType device, const PartMap &map) {
  const auto *from = getCompressed(tensor);
  const auto key = device == kDevice ? c10::DispatchKey::SparseCsrPrivateUse1 : c10::DispatchKey::SparseCsrCPU;
  const at::Tensor values = map(from->values());
  auto made = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), values.device(),
                                                               tensor.layout(), tensor.dtype());
  getCompressed(made)->set_member_tensors(map(from->compressed_indices()), map(from->plain_indices()), values,
                                          tensor.sizes());
  return made;
}

void assignCoo(const at::Tensor &to_tensor, const at::Tensor &from_tensor, const PartMap &map) {
  auto *to = getCoo(to_tensor);
  const auto *from = getCoo(from_tensor);
  const at::Tensor indices = map(from->indices()), values = map(from->values());
  const bool same_parts = indices.is_same(to->indices()) && values.is_same(to->values());
  if (to_tensor.sizes() != from_tensor.sizes() || to->sparse_dim() != from->sparse_dim()) {
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from_tensor.sizes());
  }
  if (!same_parts) {
    to->set_indices_and_values_unsafe(indices, values);
  }
  if (to->coalesced() != from->coalesced()) {
    to->set_coalesced(from->coalesced());
  }
}

void assignCompressed(const at::Tensor &to_tensor, const at::Tensor &from_tensor, const PartMap &map) {
  auto *to = getCompressed(to_tensor);
  const auto *from = getCompressed(from_tensor);
  const at::Tensor compressed = map(from->compressed_indices()), plain = map(from->plain_indices());
  const at::Tensor values = map(from->values());
  if (to_tensor.sizes() != from_tensor.sizes() || !compressed.is_same(to->compressed_indices()) ||
      !plain.is_same(to->plain_indices()) || !values.is_same(to->values())) {
    to->set_member_tensors(compressed, plain, values, from_tensor.sizes());
  }
  if (to_tensor.layout() != from_tensor.layout()) {
    to->set_layout(from_tensor.layout());
  }
}

// With the call's device as the current one, as PyTorch's own registrations do.
template <auto kFunction>
struct Guarded;
template <class Result, class... Args, Result (*kFunction)(Args...)>
struct Guarded<kFunction> {
  static Result call(Args... args) {
    c10::OptionalDeviceGuard guard;
    (setDevice(guard, args), ...);
    return kFunction(std::forward<Args>(args)...);
  }

 private:
  static void setDevice(c10::OptionalDeviceGuard &guard, const std::optional<at::Device> &device) {
    if (device.has_value() && device->type() == kDevice) {
      guard.reset_device(*device);
    }
  }
  static void setDevice(c10::OptionalDeviceGuard &guard, const at::Tensor &tensor) {
    if (!guard.current_device().has_value() && tensor.defined() && tensor.device().type() == kDevice) {
      guard.reset_device(tensor.device());
    }
  }
  template <class Other>
  static void setDevice(c10::OptionalDeviceGuard &, const Other &) {}
};

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("empty.memory_format", &Guarded<&at::native::empty_sparse>::call);
  m.impl("empty_like", &Guarded<&at::native::empty_like_sparse_coo>::call);
  m.impl("_sparse_coo_tensor_with_dims", &Guarded<&at::native::new_with_dims_sparse>::call);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         &Guarded<&at::native::new_with_dims_and_tensor_sparse_symint>::call);
  m.impl("clone", &Guarded<&at::native::clone_sparse>::call);
  m.impl("copy_", &Guarded<&at::native::copy_sparse_wrapper_>::call);
  m.impl("copy_sparse_to_sparse_", &Guarded<&at::native::copy_sparse_>::call);
  m.impl("sparse_dim", &Guarded<&at::native::sparse_dim_sparse>::call);
  m.impl("dense_dim", &Guarded<&at::native::dense_dim_sparse>::call);
  m.impl("_nnz", &Guarded<&at::native::_nnz_sparse>::call);
  m.impl("_indices", &Guarded<&at::native::_indices_sparse>::call);
  m.impl("_values", &Guarded<&at::native::_values_sparse>::call);
  m.impl("indices", &Guarded<&at::native::indices_sparse>::call);
  m.impl("values", &Guarded<&at::native::values_sparse>::call);
  m.impl("is_coalesced", &Guarded<&at::native::is_coalesced_sparse>::call);
  m.impl("_coalesced_", &Guarded<&at::native::_coalesced_sparse_>::call);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("empty.memory_format", &Guarded<&at::native::empty_sparse_compressed>::call);
  m.impl("empty_like", &Guarded<&at::native::empty_like_sparse_csr>::call);
  m.impl("clone", &Guarded<&at::native::clone_sparse_compressed>::call);
  m.impl("copy_", &Guarded<&at::native::copy_sparse_compressed_>::call);
  m.impl("sparse_dim", &Guarded<&at::native::sparse_dim_sparse_csr>::call);
  m.impl("dense_dim", &Guarded<&at::native::dense_dim_sparse_csr>::call);
  m.impl("_nnz", &Guarded<&at::native::_nnz_sparse_csr>::call);
  m.impl("crow_indices", &Guarded<&at::native::crow_indices_sparse_csr>::call);
  m.impl("col_indices", &Guarded<&at::native::col_indices_sparse_csr>::call);
  m.impl("ccol_indices", &Guarded<&at::native::ccol_indices_sparse_csr>::call);
  m.impl("row_indices", &Guarded<&at::native::row_indices_sparse_csr>::call);
  m.impl("values", &Guarded<&at::native::values_sparse_csr>::call);
}

template <bool kCompressed>
void enterUnregistered(const c10::OperatorHandle &handle, torch::jit::Stack *stack) {
  const auto cpu_key = kCompressed ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCPU;
  // In PyTorch's words, which programs look for.
  TORCH_CHECK_NOT_IMPLEMENTED(
      handle.hasKernelForDispatchKey(cpu_key), "Could not run '", c10::toString(handle.operator_name()),
      "' with arguments from the '", kCompressed ? "SparseCsrCUDA" : "SparseCUDA",
      "' backend: PyTorch's CPU, which computes with sparse tensors for the ditorch device, has no such kernel. Use "
      "dense tensors (.to_dense()) or another layout for this part.");
  // A collective ends after its call: nobody would write its result back.
  TORCH_CHECK_NOT_IMPLEMENTED(
      handle.operator_name().name.rfind("c10d::", 0) != 0, "Could not run '", c10::toString(handle.operator_name()),
      "' with arguments from the 'SparseCUDA' backend: ",
      "collectives of sparse tensors are not supported on the ditorch device. Use dense tensors "
      "(.to_dense()), or the CPU (.cpu()) for this part.");
  enterSparse(handle, cpu_key, stack);
}

// After the operators above: those keep what they have.
void registerDoors(c10::DispatchKey key, c10::DispatchKey cpu_key) {
  auto *library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);  // lives as long as we do
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    const auto handle = dispatcher.findSchema(name);
    if (!handle.has_value() || name.name.rfind("aten::", 0) != 0 || !handle->hasKernelForDispatchKey(cpu_key) ||
        handle->hasKernelForDispatchKey(key)) {
      continue;
    }
    library->impl(c10::toString(name).c_str() + sizeof("aten::") - 1,
                  torch::CppFunction::makeFromBoxedKernel(makeSparseDoor(*handle, cpu_key)));
  }
}

const bool registered = [] {
  registerDoors(c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCPU);
  registerDoors(c10::DispatchKey::SparseCsrPrivateUse1, c10::DispatchKey::SparseCsrCPU);
  return true;
}();

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&enterUnregistered<false>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&enterUnregistered<true>>());
}

}  // namespace

bool isSparse(const at::Tensor &tensor) {
  switch (tensor.layout()) {
    case c10::kSparse:
    case c10::kSparseCsr:
    case c10::kSparseCsc:
    case c10::kSparseBsr:
    case c10::kSparseBsc:
      return true;
    default:
      return false;
  }
}

at::Tensor rebuildSparse(const at::Tensor &tensor, c10::DeviceType device, const PartMap &map) {
  const at::Tensor made =
      tensor.layout() == c10::kSparse ? rebuildCoo(tensor, device, map) : rebuildCompressed(tensor, device, map);
  made.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(
      tensor.unsafeGetTensorImpl()->allow_tensor_metadata_change());
  return made;
}

void assignSparse(const at::Tensor &to, const at::Tensor &from, const PartMap &map) {
  if (to.layout() == c10::kSparse) {
    assignCoo(to, from, map);
  } else {
    assignCompressed(to, from, map);
  }
}

}  // namespace ditorch
