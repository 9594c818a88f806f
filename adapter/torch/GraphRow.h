// A row of a graph without the dispatcher: its arguments are plain C values that are made once for a plan.
#pragma once

#include <memory>
#include <vector>

#include "Call.h"
#include "GraphMemory.h"

namespace ditorch {

// Is the argument a tensor, or a list with one?
bool hasTensor(const dit_graph &graph, const dit_graph_arg &arg);

class GraphRow {
 public:
  // Can rows of this operator be called so at all, with arguments of these kinds? `values` has those that no run and no
  // plan changes; a node with tensors of the CPU goes through the dispatcher.
  static bool isPossible(const Operator &op, const c10::FunctionSchema &schema, const dit_graph &graph,
                         const dit_graph_node &node, const std::vector<c10::IValue> &values);

  // `values`: all arguments but those with tensors. Null: they are not what C takes.
  static std::unique_ptr<GraphRow> make(const Operator &op, const dit_graph_plan &plan, const dit_graph_node &node,
                                        std::vector<c10::IValue> values);

  enum class Outcome {
    kDeclined,   // nothing has run: the dispatcher's way is next
    kElsewhere,  // a result lies in memory of its own though it has a place in the arena
    kDone,
  };
  Outcome run(GraphMemory &memory) const;

 private:
  struct Read {  // a tensor among the arguments
    int argument, element;
    int32_t tensor;
    int64_t at;  // bytes from where its storage begins
  };
  struct Slot;
  struct State;
  GraphRow(const Operator &op, const dit_graph_plan &plan, const dit_graph_node &node) : op_(op), node_(node) {
    results_.reserve(static_cast<size_t>(node.nouts));
    for (int k = 0; k < node.nouts; k++) {
      results_.push_back(node.outs[k] >= 0 ? describe(plan, node.outs[k]) : dit_tensor_view{});
    }
  }
  static dit_tensor_view describe(const dit_graph_plan &plan, int32_t index);
  void addTensor(const dit_graph_plan &plan, int argument, int element, int32_t index, dit_tensor_view &view);
  static dit_status newTensor(dit_call *call, int ndim, const int64_t *sizes, const int64_t *strides, int dtype,
                              dit_tensor_view *out);
  static void getStorage(const dit_tensor_view *view, void **base, size_t *size);
  bool takeFrom(GraphMemory &memory, size_t k, const dit_value &value) const;

  const Operator &op_;
  const dit_graph_node &node_;
  std::vector<c10::IValue> values_;
  CallState lists_;
  std::vector<dit_value> args_;
  std::vector<dit_tensor_view> elements_;  // of all lists of tensors
  std::vector<Read> reads_;
  std::vector<dit_tensor_view> results_;
};

}  // namespace ditorch
