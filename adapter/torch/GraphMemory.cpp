#include "GraphMemory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>

#include "Allocator.h"

namespace ditorch {
namespace {

at::Tensor makeAlias(const at::Tensor &base, const dit_graph_tensor &tensor, const dit_graph_layout &layout,
                     int64_t at_byte) {
  const auto dtype = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(tensor.dtype));
  auto alias = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                                        base.key_set(), dtype);
  auto *impl = alias.unsafeGetTensorImpl();
  const int64_t begin = base.storage_offset() * static_cast<int64_t>(base.element_size()) + at_byte;
  impl->set_sizes_and_strides(c10::IntArrayRef(layout.sizes, tensor.ndim),
                              c10::IntArrayRef(layout.strides, tensor.ndim),
                              begin / static_cast<int64_t>(dtype.itemsize()) + layout.offset);
  return alias;
}

}  // namespace

at::Tensor getPlaced(const GraphMemory &memory, int32_t index) {
  const dit_graph_tensor &tensor = memory.plan.graph->tensors[index];
  return makeAlias(memory.arena, tensor, memory.plan.layouts[index], memory.plan.storages[tensor.storage].at);
}

at::Tensor getTensor(const GraphMemory &memory, int32_t index) {
  const dit_graph_tensor &tensor = memory.plan.graph->tensors[index];
  if (isInArena(memory, tensor.storage)) {
    return getPlaced(memory, index);
  }
  const at::Tensor &base = memory.bases[static_cast<size_t>(tensor.storage)];
  return index == memory.plan.storages[tensor.storage].tensor || !base.defined()
             ? base
             : makeAlias(base, tensor, memory.plan.layouts[index], 0);
}

bool hasLayout(const at::Tensor &tensor, const dit_graph_tensor &wanted, const dit_graph_layout &layout) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  if (impl->dim() != wanted.ndim || static_cast<int>(tensor.scalar_type()) != wanted.dtype) {
    return false;
  }
  const auto sizes = impl->sizes(), strides = impl->strides();
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] != layout.sizes[d] || (strides[d] != layout.strides[d] && layout.sizes[d] > 1 && layout.numel > 0)) {
      return false;
    }
  }
  return true;
}

at::Tensor makeTensor(const GraphMemory &memory, int32_t index) {
  const dit_graph_tensor &tensor = memory.plan.graph->tensors[index];
  const dit_graph_layout &layout = memory.plan.layouts[index];
  return at::detail::empty_strided_generic(c10::IntArrayRef(layout.sizes, tensor.ndim),
                                           c10::IntArrayRef(layout.strides, tensor.ndim), deviceAllocator(),
                                           kDeviceKeys, static_cast<c10::ScalarType>(tensor.dtype));
}

at::Tensor makeTensor(const GraphMemory &memory, int32_t index, c10::Device device) {
  const dit_graph_tensor &tensor = memory.plan.graph->tensors[index];
  const dit_graph_layout &layout = memory.plan.layouts[index];
  return at::empty_strided(c10::IntArrayRef(layout.sizes, tensor.ndim), c10::IntArrayRef(layout.strides, tensor.ndim),
                           at::TensorOptions().dtype(static_cast<c10::ScalarType>(tensor.dtype)).device(device));
}

at::Tensor inLayout(const GraphMemory &memory, int32_t index, const at::Tensor &tensor) {
  const dit_graph_tensor &wanted = memory.plan.graph->tensors[index];
  if (C10_LIKELY(hasLayout(tensor, wanted, memory.plan.layouts[index]))) {
    return tensor;
  }
  const c10::IntArrayRef sizes(memory.plan.layouts[index].sizes, wanted.ndim);
  TORCH_CHECK(tensor.sizes() == sizes, "a compiled graph got a tensor of ", tensor.sizes(),
              " where it was traced with ", sizes);
  return makeTensor(memory, index, tensor.device()).copy_(tensor);
}

void takeResult(GraphMemory &memory, int32_t index, const at::Tensor &result) {
  const auto storage = static_cast<size_t>(memory.plan.graph->tensors[index].storage);
  at::Tensor taken = inLayout(memory, index, result);
  if (memory.arena.defined() && taken.has_storage() && taken.is_alias_of(memory.arena)) {
    taken = makeTensor(memory, index).copy_(taken);  // an operator that gives back what it got: its place is reused
  }
  memory.data[storage] = taken.data_ptr();
  memory.bases[storage] = std::move(taken);
}

}  // namespace ditorch
