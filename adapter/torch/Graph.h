// A graph that is loaded: its calls of operators and its plans.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "Call.h"
#include "GraphRow.h"
#include "dit/ledger.h"

namespace ditorch {

struct GraphCall {
  std::optional<c10::OperatorHandle> op;
  std::vector<c10::IValue> arguments;  // those that no run changes
  std::vector<int> changing;           // places of the others,
  std::vector<c10::TypePtr> types;     // and what the operator takes there
  dit_ledger_entry *island = nullptr;
  const Operator *row = nullptr;  // what C can be asked for without the dispatcher
};

struct FreeGraphPlan {
  void operator()(dit_graph_plan *plan) const { dit_graph_plan_destroy(plan); }
};
struct FreeGraph {
  void operator()(dit_graph *graph) const { dit_graph_destroy(graph); }
};

struct GraphPlan {
  std::unique_ptr<dit_graph_plan, FreeGraphPlan> plan;
  std::vector<std::unique_ptr<GraphRow>> rows;  // by node; null: through the dispatcher
};

struct Graph {
  std::unique_ptr<dit_graph, FreeGraph> ir;
  std::vector<GraphCall> calls;  // by node; empty for those of regions
  std::vector<size_t> places;    // by input: which of the tensors, or of the integers
  size_t tensor_count = 0, number_count = 0;
  int64_t device = 0;  // where it runs when nobody says
  std::mutex mutex;
  std::map<std::vector<int64_t>, std::shared_ptr<GraphPlan>> plans;  // by symbols and device
  std::deque<std::vector<int64_t>> ages;                             // the plan that was used longest ago comes first
  std::string refusal;                                               // why the engine could make no plan of it
  std::vector<int64_t> last_key;                                     // of the plan that ran last
  std::shared_ptr<GraphPlan> last;
};

// Raises where there is none.
std::shared_ptr<Graph> findGraph(int64_t number);

}  // namespace ditorch
