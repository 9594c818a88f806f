// Graphs (dit/graph.h) from PyTorch's side: memory, calls of operators by name, and the few functions that Python
// needs.
//
// A row is called in C with what the plan knows (GraphRow.h). An operator that has none, or whose row does not take the
// call, and all of them while something watches operators or changes them (faults, controls, profilers, modes), are
// called through the dispatcher, so that all that is the same inside of a graph and outside.
#include "Graph.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "Allocator.h"
#include "Controls.h"
#include "Profiler.h"
#include "dit/fault.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

using c10::IValue;

constexpr size_t kKeptPlans = 32;

// One run.
struct Run : GraphMemory {
  Graph &graph;
  const GraphPlan &made;
  bool goes_direct = true;  // rows are called in C
  std::exception_ptr error;
  std::vector<at::Tensor> *seen = nullptr;  // of a traced run: copies, and six numbers for each
  std::vector<int64_t> *seen_rows = nullptr;

  Run(Graph &of, const GraphPlan &with, c10::Device on) : GraphMemory(*with.plan, on), graph(of), made(with) {}
};

// Arguments of calls

bool isChanging(const dit_graph &ir, const dit_graph_arg &arg) {
  if (arg.tag == DIT_ARG_LIST) {
    for (int i = 0; i < arg.count; i++) {
      if (isChanging(ir, ir.args[arg.first + i])) {
        return true;
      }
    }
  }
  return arg.tag == DIT_ARG_TENSOR || arg.tag == DIT_ARG_DEVICE ||
         (arg.tag == DIT_ARG_INT && arg.dim.kind != DIT_DIM_CONST);
}

c10::TypePtr getElement(c10::TypePtr type) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  const auto list = type->cast<c10::ListType>();
  return list ? list->getElementType() : type;
}

IValue makeArgument(const dit_graph &ir, const dit_graph_arg &arg, const c10::TypePtr &type, const Run *run);

IValue makeList(const dit_graph &ir, const dit_graph_arg &arg, const c10::TypePtr &type, const Run *run) {
  const c10::TypePtr element = getElement(type);
  if (element->cast<c10::TensorType>()) {
    c10::List<at::Tensor> list;
    for (int i = 0; i < arg.count; i++) {
      list.push_back(makeArgument(ir, ir.args[arg.first + i], element, run).toTensor());
    }
    return list;
  }
  if (element->cast<c10::OptionalType>()) {
    c10::List<std::optional<at::Tensor>> list;
    for (int i = 0; i < arg.count; i++) {
      const IValue value = makeArgument(ir, ir.args[arg.first + i], element, run);
      list.push_back(value.isTensor() ? std::optional<at::Tensor>(value.toTensor()) : std::nullopt);
    }
    return list;
  }
  c10::impl::GenericList list(element);
  for (int i = 0; i < arg.count; i++) {
    list.push_back(makeArgument(ir, ir.args[arg.first + i], element, run));
  }
  return list;
}

// What a Python number becomes where an operator takes a tensor.
at::Tensor makeNumber(const IValue &number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

IValue makeArgument(const dit_graph &ir, const dit_graph_arg &arg, const c10::TypePtr &type, const Run *run) {
  const auto optional = type->cast<c10::OptionalType>();
  const c10::TypePtr plain = optional ? optional->getElementType() : type;
  if (plain->cast<c10::TensorType>() &&
      (arg.tag == DIT_ARG_INT || arg.tag == DIT_ARG_DOUBLE || arg.tag == DIT_ARG_BOOL)) {
    return makeNumber(makeArgument(ir, arg, c10::NumberType::get(), run));
  }
  switch (arg.tag) {
    case DIT_ARG_TENSOR:
      return getTensor(*run, static_cast<int32_t>(arg.dim.value));
    case DIT_ARG_INT: {
      const int64_t value = arg.dim.kind == DIT_DIM_CONST ? arg.dim.value : dit_graph_plan_get_dim(&run->plan, arg.dim);
      return plain->cast<c10::FloatType>() ? IValue(static_cast<double>(value)) : IValue(value);
    }
    case DIT_ARG_DOUBLE:
      return arg.number;
    case DIT_ARG_BOOL:
      return arg.dim.value != 0;
    case DIT_ARG_DTYPE:
      return arg.dim.value;
    case DIT_ARG_STRING:
      return std::string(arg.text);
    case DIT_ARG_DEVICE:
      return run->device;
    case DIT_ARG_LIST:
      return makeList(ir, arg, plain, run);
    default:
      return plain->cast<c10::TensorType>() && !optional ? IValue(at::Tensor()) : IValue();
  }
}

GraphCall prepareCall(const dit_graph &ir, const dit_graph_node &node) {
  GraphCall call;
  call.op = c10::Dispatcher::singleton().findSchemaOrThrow(node.name, node.overload);
  const auto &arguments = call.op->schema().arguments();
  TORCH_CHECK(arguments.size() == static_cast<size_t>(node.nargs), "graph: ", node.name, " with ", node.nargs,
              " arguments instead of ", arguments.size());
  for (int i = 0; i < node.nargs; i++) {
    const dit_graph_arg &arg = ir.args[node.first_arg + i];
    if (isChanging(ir, arg)) {
      call.changing.push_back(i);
      call.types.push_back(arguments[static_cast<size_t>(i)].type());
      call.arguments.emplace_back();
    } else {
      call.arguments.push_back(makeArgument(ir, arg, arguments[static_cast<size_t>(i)].type(), nullptr));
    }
  }
  if (node.kind == DIT_NODE_ISLAND) {
    const std::string name = std::string("island ") + node.name + ": " + node.reason;
    call.island = dit_ledger_get(name.c_str());
  } else if (hasDoor(c10::toString(call.op->operator_name()))) {
    const Operator &op = findOperator(*call.op);
    call.row = GraphRow::isPossible(op, call.op->schema(), ir, node, call.arguments) ? &op : nullptr;
  }
  return call;
}

void takeReturned(Run &run, const dit_graph_node &node, int at, const at::Tensor &result) {
  if (at < node.nouts && node.outs[at] >= 0 && result.defined()) {
    takeResult(run, node.outs[at], result);
  }
}

void callBoxed(Run &run, int32_t index) {
  const dit_graph &ir = *run.graph.ir;
  const dit_graph_node &node = ir.nodes[index];
  const GraphCall &call = run.graph.calls[static_cast<size_t>(index)];
  torch::jit::Stack stack = call.arguments;
  for (size_t k = 0; k < call.changing.size(); k++) {
    const dit_graph_arg &arg = ir.args[node.first_arg + call.changing[k]];
    stack[static_cast<size_t>(call.changing[k])] = arg.tag == DIT_ARG_TENSOR
                                                       ? IValue(getTensor(run, static_cast<int32_t>(arg.dim.value)))
                                                       : makeArgument(ir, arg, call.types[k], &run);
  }
  call.op->callBoxed(stack);
  if (call.island != nullptr) {
    dit_ledger_add(call.island, DIT_LEDGER_C, 0, 0);
  }
  for (int k = 0; k < node.nouts; k++) {  // nothing lies at the place of a result that is none
    if (node.outs[k] >= 0) {
      run.data[static_cast<size_t>(ir.tensors[node.outs[k]].storage)] = nullptr;
    }
  }
  int at = 0;
  for (const IValue &value : stack) {
    if (value.isTensorList()) {
      for (const at::Tensor &tensor : value.toTensorVector()) {
        takeReturned(run, node, at++, tensor);
      }
    } else {
      takeReturned(run, node, at++, value.isTensor() ? value.toTensor() : at::Tensor());
    }
  }
}

// The row does not write to the places that plans give it: from the next run on they give none.
void takeNoMemory(Graph &graph, int32_t index) {
  const std::lock_guard<std::mutex> lock(graph.mutex);
  if (graph.ir->nodes[index].is_given) {
    dit_graph_give_memory(graph.ir.get(), index, false);
    graph.plans.clear();
    graph.ages.clear();
    graph.last.reset();
    graph.last_key.clear();
  }
}

void callOperator(Run &run, int32_t index) {
  const GraphRow *row = run.made.rows[static_cast<size_t>(index)].get();
  if (row == nullptr || !run.goes_direct) {
    return callBoxed(run, index);
  }
  const GraphRow::Outcome outcome = row->run(run);
  if (C10_LIKELY(outcome == GraphRow::Outcome::kDone)) {
    return;
  }
  takeNoMemory(run.graph, index);
  if (outcome == GraphRow::Outcome::kDeclined) {
    callBoxed(run, index);
  }
}

// C calls these; an exception waits in the run until C has returned.
template <typename Function>
dit_status guarded(void *self, dit_error *err, Function &&function) {
  auto &run = *static_cast<Run *>(self);
  try {
    function(run);
    return DIT_OK;
  } catch (...) {
    run.error = std::current_exception();
    return dit_error_set(err, DIT_ERR_INTERNAL, "an operator of a graph failed");
  }
}

dit_status allocate(void *self, int32_t storage, void **data, dit_error *err) {
  return guarded(self, err, [&](Run &run) {
    run.bases[storage] = makeTensor(run, run.plan.storages[storage].tensor);
    if (run.seen != nullptr) {  // what nobody writes must not be what an earlier run has left there
      run.bases[storage].fill_(run.bases[storage].is_floating_point() ? std::nan("") : 113);
    }
    *data = run.bases[storage].data_ptr();
  });
}

dit_status callNode(void *self, int32_t node, void **, dit_error *err) {
  return guarded(self, err, [&](Run &run) { callOperator(run, node); });
}

void release(void *self, int32_t storage) {
  static_cast<Run *>(self)->bases[storage].reset();
}

// Traced runs: what each step reads and writes, copied

void keepTensor(Run &run, int32_t step, bool is_after, int32_t index) {
  const at::Tensor tensor = getTensor(run, index);
  if (!tensor.defined()) {
    return;
  }
  const int32_t number = run.plan.graph->tensors[index].storage;
  const dit_graph_storage &storage = run.plan.storages[number];
  run.seen->push_back(tensor.clone());
  const bool in_arena = isInArena(run, number);
  run.seen_rows->insert(run.seen_rows->end(),
                        {step, is_after, index, storage.tensor, in_arena ? storage.at : -1, storage.bytes});
}

void keepArgument(Run &run, int32_t step, const dit_graph_arg &arg) {
  if (arg.tag == DIT_ARG_TENSOR) {
    keepTensor(run, step, false, static_cast<int32_t>(arg.dim.value));
  }
  for (int i = 0; arg.tag == DIT_ARG_LIST && i < arg.count; i++) {
    keepArgument(run, step, run.plan.graph->args[arg.first + i]);
  }
}

// What the step reads before it, and writes after it; a subgraph may write to what it is given.
bool isOperandOf(const Run &run, const dit_graph_step &step, int operand, bool is_after) {
  if (step.kind == DIT_NODE_REGION) {
    return (step.region->operands[operand].stored >= 0) == is_after;
  }
  const bool is_written = (run.plan.graph->tensors[step.tensors[operand]].flags & DIT_GRAPH_OWN) != 0;
  return is_after ? operand >= step.nreads || is_written : operand < step.nreads;
}

dit_status observe(void *self, int32_t index, bool is_after, dit_error *err) {
  return guarded(self, err, [&](Run &run) {
    const dit_graph_step &step = run.plan.steps[index];
    const dit_graph_node &node = run.plan.graph->nodes[step.node];
    const bool is_call = step.kind == DIT_NODE_ROW || step.kind == DIT_NODE_ISLAND;
    for (int i = 0; i < step.noperands; i++) {
      if (isOperandOf(run, step, i, is_after)) {
        keepTensor(run, index, is_after, step.tensors[i]);
      }
    }
    for (int i = 0; is_call && !is_after && i < node.nargs; i++) {
      keepArgument(run, index, run.plan.graph->args[node.first_arg + i]);
    }
    for (int i = 0; is_call && is_after && i < node.nouts; i++) {
      if (node.outs[i] >= 0) {
        keepTensor(run, index, true, node.outs[i]);
      }
    }
  });
}

// Graphs by number

std::mutex graphs_mutex;
std::map<int64_t, std::shared_ptr<Graph>> &listGraphs() {
  static auto *graphs = new std::map<int64_t, std::shared_ptr<Graph>>;
  return *graphs;
}

}  // namespace

std::shared_ptr<Graph> findGraph(int64_t number) {
  const std::lock_guard<std::mutex> lock(graphs_mutex);
  const auto found = listGraphs().find(number);
  TORCH_CHECK(found != listGraphs().end(), "no graph has the number ", number);
  return found->second;
}

namespace {

int64_t loadGraph(const at::Tensor &words, int64_t device) {
  TORCH_CHECK(words.scalar_type() == at::kLong && words.is_contiguous() && words.device().is_cpu(),
              "a graph is a contiguous CPU tensor of int64");
  auto graph = std::make_shared<Graph>();
  dit_graph *ir = nullptr;
  DIT_CHECK(dit_graph_load(words.const_data_ptr<int64_t>(), static_cast<size_t>(words.numel()), &ir, &err));
  graph->ir.reset(ir);
  graph->device = device;
  graph->calls.resize(static_cast<size_t>(ir->nnodes));
  for (int32_t i = 0; i < ir->nnodes; i++) {
    if (ir->nodes[i].kind == DIT_NODE_ROW || ir->nodes[i].kind == DIT_NODE_ISLAND) {
      const GraphCall &call = graph->calls[static_cast<size_t>(i)] = prepareCall(*ir, ir->nodes[i]);
      dit_graph_give_memory(ir, i, call.row != nullptr);
    }
  }
  for (int32_t i = 0; i < ir->ninputs; i++) {
    graph->places.push_back(ir->inputs[i].tensor >= 0 ? graph->tensor_count++ : graph->number_count++);
  }
  static int64_t last = 0;
  const std::lock_guard<std::mutex> lock(graphs_mutex);
  listGraphs()[++last] = std::move(graph);
  return last;
}

void freeGraph(int64_t number) {
  const std::lock_guard<std::mutex> lock(graphs_mutex);
  listGraphs().erase(number);
}

// A row that C cannot be asked for with the values of this plan: no plan gives it memory.
std::shared_ptr<GraphPlan> prepareRows(Graph &graph, std::unique_ptr<dit_graph_plan, FreeGraphPlan> made) {
  auto plan = std::make_shared<GraphPlan>();
  const dit_graph &ir = *graph.ir;
  plan->plan = std::move(made);
  plan->rows.resize(static_cast<size_t>(ir.nnodes));
  const Run values(graph, *plan, c10::Device(kDevice, static_cast<c10::DeviceIndex>(plan->plan->device)));
  for (int32_t s = 0; s < plan->plan->nsteps; s++) {
    const int32_t index = plan->plan->steps[s].node;
    const GraphCall &call = graph.calls[static_cast<size_t>(index)];
    if (plan->plan->steps[s].kind != DIT_NODE_ROW || call.row == nullptr) {
      continue;
    }
    const dit_graph_node &node = ir.nodes[index];
    std::vector<IValue> arguments = call.arguments;
    for (size_t k = 0; k < call.changing.size(); k++) {
      const dit_graph_arg &arg = ir.args[node.first_arg + call.changing[k]];
      if (!hasTensor(ir, arg)) {
        arguments[static_cast<size_t>(call.changing[k])] = makeArgument(ir, arg, call.types[k], &values);
      }
    }
    plan->rows[static_cast<size_t>(index)] = GraphRow::make(*call.row, *plan->plan, node, std::move(arguments));
    if (!plan->rows[static_cast<size_t>(index)] && node.is_given) {
      dit_graph_give_memory(graph.ir.get(), index, false);
      return nullptr;
    }
  }
  return plan;
}

std::shared_ptr<GraphPlan> makePlan(Graph &graph, const int64_t *symbols, int device) {
  std::shared_ptr<GraphPlan> plan;
  while (!plan) {
    dit_graph_plan *made = nullptr;
    dit_error err;
    err.message[0] = '\0';
    const dit_status status =
        dit_graph_plan_create(graph.ir.get(), symbols, dit_runtime_get_graph_engine(), device, &made, &err);
    if (status == DIT_ERR_UNSUPPORTED) {
      graph.refusal = err.message;
    }
    check(status, err);
    plan = prepareRows(graph, std::unique_ptr<dit_graph_plan, FreeGraphPlan>(made));
  }
  return plan;
}

std::shared_ptr<GraphPlan> findPlan(Graph &graph, std::vector<int64_t> key, int device) {
  const std::lock_guard<std::mutex> lock(graph.mutex);
  if (graph.last && graph.last_key == key) {
    return graph.last;
  }
  const auto found = graph.plans.find(key);
  if (found != graph.plans.end()) {
    graph.ages.erase(std::find(graph.ages.begin(), graph.ages.end(), key));
    graph.ages.push_back(key);
    graph.last_key = std::move(key);
    return graph.last = found->second;
  }
  std::shared_ptr<GraphPlan> made = makePlan(graph, key.data(), device);
  if (graph.ages.size() == kKeptPlans) {
    graph.plans.erase(graph.ages.front());
    graph.ages.pop_front();
  }
  graph.ages.push_back(key);
  graph.last = graph.plans[key] = std::move(made);
  graph.last_key = std::move(key);
  return graph.last;
}

// The values of the symbols, from the integers and the sizes of the tensors; the device comes last.
std::vector<int64_t> readSymbols(const Graph &graph, const std::vector<at::Tensor> &tensors, c10::IntArrayRef numbers,
                                 int device) {
  const dit_graph &ir = *graph.ir;
  TORCH_CHECK(tensors.size() == graph.tensor_count && numbers.size() == graph.number_count, "a graph of ",
              graph.tensor_count, " tensors and ", graph.number_count, " integers got ", tensors.size(), " and ",
              numbers.size());
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(ir.nsymbols) + 1);
  for (int32_t i = 0; i < ir.nsymbols; i++) {
    const dit_graph_symbol &symbol = ir.symbols[i];
    const size_t place = graph.places[static_cast<size_t>(symbol.input)];
    values.push_back(symbol.dim < 0 ? numbers[place] : tensors[place].size(symbol.dim));
  }
  values.push_back(device);
  return values;
}

// Tensors that a run of this thread gets for itself: nobody else holds them, so that each goes when its last step has
// run. A list that is an argument of an operator is held by its callers until the operator returns.
thread_local std::vector<at::Tensor> lent;

void lendTensors(std::vector<at::Tensor> tensors) {
  lent = std::move(tensors);
}

std::vector<at::Tensor> takeBack() {
  return std::exchange(lent, {});
}

void takeInputs(Run &run, const std::vector<at::Tensor> &tensors) {
  size_t place = 0;
  for (int32_t i = 0; i < run.plan.graph->ninputs; i++) {
    const int32_t index = run.plan.graph->inputs[i].tensor;
    if (index < 0) {
      continue;
    }
    const at::Tensor &tensor = tensors[place++];
    const int32_t storage = run.plan.graph->tensors[index].storage;
    const bool written = (run.plan.graph->tensors[index].flags & DIT_GRAPH_OWN) != 0;
    if (run.plan.storages[storage].last < 0) {  // nothing reads it
      continue;
    }
    TORCH_CHECK(!written || hasLayout(tensor, run.plan.graph->tensors[index], run.plan.layouts[index]),
                "a compiled graph that writes to a tensor got one with strides ", tensor.strides(),
                ", which it was not traced with; call torch._dynamo.reset() or make it contiguous");
    const bool is_host = (run.plan.graph->tensors[index].flags & DIT_GRAPH_HOST) != 0;
    run.goes_direct = run.goes_direct && (is_host || tensor.device() == run.device);
    run.bases[storage] = inLayout(run, index, tensor);
    run.data[static_cast<size_t>(storage)] = run.bases[storage].data_ptr();
  }
}

// Does nobody watch operators, or change what they do?
bool isQuiet() {
  return !dit_fault_is_active() && !controls::isActive() && !profiler::isTracing() && !at::hasCallbacks() &&
         !c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
}

using Results = std::tuple<std::vector<at::Tensor>, std::vector<int64_t>>;

Results runObserved(const std::shared_ptr<Graph> &graph, const std::vector<at::Tensor> &tensors,
                    c10::IntArrayRef numbers, int64_t device_index, std::vector<at::Tensor> *seen,
                    std::vector<int64_t> *rows, std::vector<int64_t> *step_of) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::Device device(kDevice, resolveIndex(static_cast<c10::DeviceIndex>(device_index)));
  const c10::DeviceGuard guard(device);
  std::vector<at::Tensor> own;
  if (tensors.empty() && graph->tensor_count > 0) {
    own.swap(lent);
  }
  const std::vector<at::Tensor> &given = tensors.empty() ? own : tensors;
  std::shared_ptr<GraphPlan> made;
  try {
    made = findPlan(*graph, readSymbols(*graph, given, numbers, device.index()), device.index());
  } catch (...) {
    if (!graph->refusal.empty()) {
      own.swap(lent);  // who runs the graph without the engine asks for them
    }
    throw;
  }
  const dit_graph_plan *plan = made->plan.get();
  const dit_graph &ir = *graph->ir;
  Run run(*graph, *made, device);
  run.goes_direct = isQuiet();
  takeInputs(run, given);
  own.clear();
  if (plan->arena > 0) {
    run.arena = at::detail::empty_generic({plan->arena}, deviceAllocator(), kDeviceKeys, at::kByte, std::nullopt);
    if (seen != nullptr) {
      run.arena.fill_(0xff);
    }
  }
  run.seen = seen;
  run.seen_rows = rows;
  const dit_graph_host host = {&run, allocate, callNode, release, seen != nullptr ? observe : nullptr};
  if (step_of != nullptr) {
    step_of->assign(plan->step_of, plan->step_of + ir.nnodes);
  }
  dit_error err;
  err.message[0] = '\0';
  const dit_status status =
      dit_graph_plan_run(plan, dit_stream_get_current_raw(device.index()),
                         run.arena.defined() ? run.arena.data_ptr() : nullptr, run.data.data(), &host, &err);
  if (run.error) {
    std::rethrow_exception(run.error);
  }
  check(status, err);
  Results results;
  for (int32_t i = 0; i < ir.noutputs; i++) {
    if (ir.outputs[i].tensor >= 0) {
      std::get<0>(results).push_back(getTensor(run, ir.outputs[i].tensor));
    } else if (ir.outputs[i].is_int) {
      std::get<1>(results).push_back(dit_graph_plan_get_dim(plan, ir.outputs[i].dim));
    }
  }
  return results;
}

Results runGraph(int64_t number, const std::vector<at::Tensor> &tensors, c10::IntArrayRef numbers, int64_t device) {
  return runObserved(findGraph(number), tensors, numbers, device, nullptr, nullptr, nullptr);
}

// The same without integers, on the graph's own device: what a call costs beside its steps counts.
std::vector<at::Tensor> callGraph(int64_t number, const std::vector<at::Tensor> &tensors) {
  const auto graph = findGraph(number);
  return std::get<0>(runObserved(graph, tensors, {}, graph->device, nullptr, nullptr, nullptr));
}

// A run that tells what each step read and wrote: copies; step, whether after it, tensor, the tensor that defines its
// memory, place in the arena or -1, bytes of each; the step of every node.
std::tuple<std::vector<at::Tensor>, std::vector<int64_t>, std::vector<int64_t>> traceGraph(
    int64_t number, const std::vector<at::Tensor> &tensors, c10::IntArrayRef numbers, int64_t device) {
  std::tuple<std::vector<at::Tensor>, std::vector<int64_t>, std::vector<int64_t>> seen;
  runObserved(findGraph(number), tensors, numbers, device, &std::get<0>(seen), &std::get<1>(seen), &std::get<2>(seen));
  return seen;
}

void setMistake(int64_t kind, int64_t which) {
  dit_graph_set_mistake(static_cast<dit_graph_mistake>(kind), static_cast<int32_t>(which));
}

int64_t getMistake() {
  return dit_graph_get_mistake();
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("graph_lend(Tensor[] tensors) -> ()", &lendTensors);
  m.def("graph_take_back() -> Tensor[]", &takeBack);
  m.def("graph_load(Tensor words, int device=0) -> int", &loadGraph);
  m.def("graph_free(int graph) -> ()", &freeGraph);
  m.def("graph_trace(int graph, Tensor[] tensors, int[] numbers, int device) -> (Tensor[], int[], int[])", &traceGraph);
  m.def("graph_set_mistake(int kind, int which) -> ()", &setMistake);
  m.def("graph_get_mistake() -> int", &getMistake);
  m.def("graph_call(int graph, Tensor[] tensors) -> Tensor[]", &callGraph);
  m.def("graph_run(int graph, Tensor[] tensors, int[] numbers, int device) -> (Tensor[], int[])", &runGraph);
}

}  // namespace
}  // namespace ditorch
