// The memory of one run of a graph, as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "Common.h"
#include "dit/graph.h"

namespace ditorch {

struct GraphMemory {
  const dit_graph_plan &plan;
  c10::Device device;
  std::vector<at::Tensor> bases;  // by storage: the tensor that owns it; undefined for what lies in the arena
  std::vector<void *> data;       // by storage: where it begins; null: it is not there (yet)
  at::Tensor arena;

  GraphMemory(const dit_graph_plan &of, c10::Device on)
      : plan(of),
        device(on),
        bases(static_cast<size_t>(of.graph->nstorages)),
        data(static_cast<size_t>(of.graph->nstorages)) {}
};

// Does the storage lie in the arena in this run? An operator may have put a result elsewhere.
inline bool isInArena(const GraphMemory &memory, int32_t storage) {
  return memory.plan.storages[storage].place == DIT_PLACE_ARENA &&
         !memory.bases[static_cast<size_t>(storage)].defined() && memory.data[static_cast<size_t>(storage)] != nullptr;
}

// Tensor `index` of the graph; undefined: an operator has given none.
at::Tensor getTensor(const GraphMemory &memory, int32_t index);

// The tensor that lies at its place in the arena.
at::Tensor getPlaced(const GraphMemory &memory, int32_t index);

// A new tensor with the layout and dtype of tensor `index`: of the graph's device, or of another one.
at::Tensor makeTensor(const GraphMemory &memory, int32_t index);
at::Tensor makeTensor(const GraphMemory &memory, int32_t index, c10::Device device);

// Has a tensor the layout and dtype that the plan was made for? Dimensions of size 1 may have any stride.
bool hasLayout(const at::Tensor &tensor, const dit_graph_tensor &wanted, const dit_graph_layout &layout);

// A tensor in the layout and dtype that the graph was traced with; one that has others is copied.
at::Tensor inLayout(const GraphMemory &memory, int32_t index, const at::Tensor &tensor);

// Tensor `index` is this one from now on, or a copy of it where its layout or its memory is not what it should be.
void takeResult(GraphMemory &memory, int32_t index, const at::Tensor &result);

}  // namespace ditorch
