// A row of a graph without the dispatcher.
//
// A plan knows the layout of every tensor, so a call only fills in addresses. The handle of a tensor that C sees is no
// tensor of PyTorch's but a Slot. A result that nobody outside of the graph sees is written at its place in the arena
// when the row asks for exactly the layout that the graph was traced with; it gets memory of its own otherwise.
#include "GraphRow.h"

#include <ATen/EmptyTensor.h>

#include <forward_list>

#include "Allocator.h"

namespace ditorch {

bool hasTensor(const dit_graph &graph, const dit_graph_arg &arg) {
  bool found = arg.tag == DIT_ARG_TENSOR;
  for (int i = 0; arg.tag == DIT_ARG_LIST && i < arg.count; i++) {
    found = found || hasTensor(graph, graph.args[arg.first + i]);
  }
  return found;
}

namespace {

constexpr size_t kFew = 6;

dit_status refuseResize(dit_call *call, dit_tensor_view *, int, const int64_t *) {
  return dit_error_set(call->err, DIT_ERR_UNSUPPORTED, "a row of a graph resizes no tensor");
}

bool isHostTensor(const dit_graph &graph, int32_t index) {
  return (graph.tensors[index].flags & DIT_GRAPH_HOST) != 0;
}

// Are these values that C takes without seeing a tensor of PyTorch's?
bool isConvertible(const Operator &op, const c10::IValue &value) {
  CallState lists;
  dit_value out;
  return convertArgument(out, value, op, lists) && out.tag != DIT_VALUE_TENSOR && out.tag != DIT_VALUE_TENSORS;
}

bool isArgumentPossible(const Operator &op, const dit_graph &graph, const dit_graph_arg &arg,
                        const c10::IValue &value) {
  switch (arg.tag) {
    case DIT_ARG_TENSOR:
      return !isHostTensor(graph, static_cast<int32_t>(arg.dim.value));
    case DIT_ARG_DEVICE:
      return false;
    case DIT_ARG_LIST:
      if (!hasTensor(graph, arg)) {
        return value.isNone() || isConvertible(op, value);  // of numbers; none yet where a size is a symbol
      }
      for (int i = 0; i < arg.count; i++) {
        const dit_graph_arg &element = graph.args[arg.first + i];
        if (element.tag != DIT_ARG_NONE &&
            (element.tag != DIT_ARG_TENSOR || isHostTensor(graph, static_cast<int32_t>(element.dim.value)))) {
          return false;
        }
      }
      return true;
    case DIT_ARG_INT:
      return arg.dim.kind != DIT_DIM_CONST || isConvertible(op, value);
    default:
      return isConvertible(op, value);
  }
}

// Is this the layout that the plan has for the view?
bool isPlanned(const dit_tensor_view &view, int ndim, const int64_t *sizes, const int64_t *strides, int dtype) {
  if (view.dtype != dtype || view.ndim != ndim) {
    return false;
  }
  for (int d = 0; d < ndim; d++) {
    if (view.sizes[d] != sizes[d] ||
        (strides != nullptr && strides[d] != view.strides[d] && sizes[d] > 1 && view.numel > 0)) {
      return false;
    }
  }
  return strides != nullptr || (view.flags & DIT_TENSOR_CONTIGUOUS) != 0;
}

}  // namespace

// Behind a view's handle.
struct GraphRow::Slot {
  void *base = nullptr;
  size_t bytes = 0;
  int32_t tensor = -1;  // of the graph; -1: the row's own
  bool is_result = false;
  at::Tensor made;  // memory of its own
};

// One call.
struct GraphRow::State {
  const GraphRow &row;
  GraphMemory &memory;
  Slot few[kFew];
  size_t count = 0;
  std::forward_list<Slot> more;
  uint32_t taken = 0;  // results that have their place, a bit each

  State(const GraphRow &of, GraphMemory &in) : row(of), memory(in) {}
  Slot &add() { return count < kFew ? few[count++] : more.emplace_front(); }
};

void GraphRow::getStorage(const dit_tensor_view *view, void **base, size_t *size) {
  const auto *slot = static_cast<const Slot *>(view->handle);
  *base = slot->base;
  *size = slot->bytes;
}

dit_tensor_view GraphRow::describe(const dit_graph_plan &plan, int32_t index) {
  const dit_graph_tensor &tensor = plan.graph->tensors[index];
  const dit_graph_layout &layout = plan.layouts[index];
  dit_tensor_view view{};
  view.sizes = layout.sizes;
  view.strides = layout.strides;
  view.numel = layout.numel;
  view.storage = &plan.storages[tensor.storage];
  view.ndim = tensor.ndim;
  view.dtype = tensor.dtype;
  view.device_index = static_cast<int8_t>(plan.device);
  view.flags = static_cast<uint8_t>(
      DIT_TENSOR_ON_DEVICE |
      (dit_shape_is_contiguous(tensor.ndim, layout.sizes, layout.strides) ? DIT_TENSOR_CONTIGUOUS : 0) |
      (dit_shape_is_dense(tensor.ndim, layout.sizes, layout.strides) ? DIT_TENSOR_DENSE : 0));
  return view;
}

bool GraphRow::isPossible(const Operator &op, const c10::FunctionSchema &schema, const dit_graph &graph,
                          const dit_graph_node &node, const std::vector<c10::IValue> &values) {
  if (op.c_op == nullptr || op.writes || op.nargs > DIT_MAX_ARGS || op.nrets > DIT_MAX_RETS) {
    return false;
  }
  for (const auto &result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  for (int k = 0; k < node.nouts; k++) {
    if (node.outs[k] >= 0 && isHostTensor(graph, node.outs[k])) {
      return false;
    }
  }
  for (int i = 0; i < node.nargs; i++) {
    if (!isArgumentPossible(op, graph, graph.args[node.first_arg + i], values[static_cast<size_t>(i)])) {
      return false;
    }
  }
  return true;
}

void GraphRow::addTensor(const dit_graph_plan &plan, int argument, int element, int32_t index, dit_tensor_view &view) {
  view = describe(plan, index);
  const auto width = static_cast<int64_t>(dit_dtype_get_size(view.dtype));
  reads_.push_back({argument, element, index, plan.layouts[index].offset * width});
}

std::unique_ptr<GraphRow> GraphRow::make(const Operator &op, const dit_graph_plan &plan, const dit_graph_node &node,
                                         std::vector<c10::IValue> values) {
  std::unique_ptr<GraphRow> row(new GraphRow(op, plan, node));
  row->values_ = std::move(values);
  row->args_.resize(static_cast<size_t>(node.nargs));
  for (int i = 0; i < node.nargs; i++) {
    const dit_graph_arg &arg = plan.graph->args[node.first_arg + i];
    dit_value &value = row->args_[static_cast<size_t>(i)];
    if (arg.tag == DIT_ARG_TENSOR) {
      value.tag = DIT_VALUE_TENSOR;
      row->addTensor(plan, i, -1, static_cast<int32_t>(arg.dim.value), value.v.tensor);
    } else if (hasTensor(*plan.graph, arg)) {
      value.tag = DIT_VALUE_TENSORS;
      value.v.tensors = {nullptr, arg.count};
      for (int e = 0; e < arg.count; e++) {
        const dit_graph_arg &element = plan.graph->args[arg.first + e];
        dit_tensor_view &view = row->elements_.emplace_back();
        if (element.tag == DIT_ARG_TENSOR) {
          row->addTensor(plan, i, static_cast<int>(row->elements_.size()) - 1, static_cast<int32_t>(element.dim.value),
                         view);
        }
      }
    } else if (!convertArgument(value, row->values_[static_cast<size_t>(i)], op, row->lists_) ||
               value.tag == DIT_VALUE_TENSOR || value.tag == DIT_VALUE_TENSORS) {
      return nullptr;
    }
  }
  return row;
}

dit_status GraphRow::newTensor(dit_call *call, int ndim, const int64_t *sizes, const int64_t *strides, int dtype,
                               dit_tensor_view *out) {
  return guardService(call, [&] {
    auto &state = *static_cast<State *>(call->host);
    const GraphRow &row = state.row;
    for (size_t k = 0; k < row.results_.size(); k++) {
      const int32_t index = row.node_.outs[k];
      const dit_graph_plan &plan = state.memory.plan;
      if (index < 0 || (state.taken >> k & 1) != 0 || !isPlanned(row.results_[k], ndim, sizes, strides, dtype) ||
          plan.storages[plan.graph->tensors[index].storage].place != DIT_PLACE_ARENA) {
        continue;
      }
      state.taken |= 1U << k;
      const int32_t storage = plan.graph->tensors[index].storage;
      Slot &slot = state.add();
      slot.base = state.memory.data[static_cast<size_t>(storage)];
      slot.bytes = static_cast<size_t>(plan.storages[storage].bytes);
      slot.tensor = index;
      slot.is_result = true;
      *out = row.results_[k];
      out->data = slot.base;
      out->handle = &slot;
      return;
    }
    const c10::IntArrayRef shape(sizes, static_cast<size_t>(ndim));
    const auto type = static_cast<c10::ScalarType>(dtype);
    at::TensorBase made =
        strides ? at::detail::empty_strided_generic(shape, c10::IntArrayRef(strides, static_cast<size_t>(ndim)),
                                                    deviceAllocator(), kDeviceKeys, type)
                : at::detail::empty_generic(shape, deviceAllocator(), kDeviceKeys, type, std::nullopt);
    fillView(*out, made);
    Slot &slot = state.add();
    slot.base = out->data;
    slot.bytes = made.storage().nbytes();
    slot.made = at::Tensor(std::move(made));
    out->handle = &slot;
  });
}

// Result `k` is `value`; false: it has a place in the arena and does not lie there.
bool GraphRow::takeFrom(GraphMemory &memory, size_t k, const dit_value &value) const {
  const int32_t index = node_.outs[k];
  const auto storage = static_cast<size_t>(memory.plan.graph->tensors[index].storage);
  if (value.tag != DIT_VALUE_TENSOR || value.v.tensor.handle == nullptr) {
    memory.data[storage] = nullptr;  // this call has no such result
    return true;
  }
  const auto &slot = *static_cast<const Slot *>(value.v.tensor.handle);
  if (slot.is_result && slot.tensor == index) {
    return true;
  }
  if (slot.made.defined()) {
    takeResult(memory, index, slot.made);
  } else {  // an argument, or at the place of another result: neither may be shared
    const at::Tensor given = slot.is_result ? getPlaced(memory, slot.tensor) : getTensor(memory, slot.tensor);
    takeResult(memory, index, given.clone());
  }
  return memory.plan.storages[storage].place != DIT_PLACE_ARENA;
}

GraphRow::Outcome GraphRow::run(GraphMemory &memory) const {
  static const dit_call_services services = {newTensor, refuseResize, reserveRandom, getStorage};
  State state(*this, memory);
  c10::SmallVector<Slot, 8> slots(reads_.size());
  c10::SmallVector<dit_tensor_view, 8> elements(elements_.begin(), elements_.end());
  dit_value args[DIT_MAX_ARGS], rets[DIT_MAX_RETS];
  dit_tensor_view *next = elements.data();
  for (size_t i = 0; i < args_.size(); i++) {
    args[i] = args_[i];
    if (args[i].tag == DIT_VALUE_TENSORS) {
      args[i].v.tensors.data = next;
      next += args[i].v.tensors.size;
    }
  }
  for (size_t i = 0; i < reads_.size(); i++) {
    const Read &read = reads_[i];
    dit_value &arg = args[read.argument];
    dit_tensor_view &view = read.element < 0 ? arg.v.tensor : elements[static_cast<size_t>(read.element)];
    const auto storage = static_cast<size_t>(memory.plan.graph->tensors[read.tensor].storage);
    void *const base = memory.data[storage];
    if (base == nullptr && !memory.bases[storage].defined()) {  // an operator has given none
      arg.tag = read.element < 0 ? DIT_VALUE_NONE : arg.tag;
      continue;
    }
    slots[i].base = base;
    slots[i].bytes = static_cast<size_t>(memory.plan.storages[storage].bytes);
    slots[i].tensor = read.tensor;
    view.data = base != nullptr ? static_cast<char *>(base) + read.at : nullptr;
    view.handle = &slots[i];
  }
  if (!callRow(op_, args, rets, memory.device.index(), services, &state)) {
    return Outcome::kDeclined;
  }
  bool is_placed = true;
  for (size_t k = 0; k < results_.size() && k < op_.nrets; k++) {
    if (node_.outs[k] >= 0) {
      is_placed = takeFrom(memory, k, rets[k]) && is_placed;
    }
  }
  return is_placed ? Outcome::kDone : Outcome::kElsewhere;
}

}  // namespace ditorch
