// What graphs, their plans and the engine tell of themselves.
#include <torch/library.h>

#include <sstream>

#include "Graph.h"
#include "dit/runtime.h"

namespace ditorch {
namespace {

std::vector<std::string> listOperations() {
  std::vector<std::string> names;
  for (int i = 0; i < DIT_REGION_OP_COUNT; i++) {
    names.emplace_back(dit_region_op_get_name(i));
  }
  return names;
}

std::string getEngine() {
  const dit_graph_engine *engine = dit_runtime_get_graph_engine();
  return engine != nullptr ? engine->name : "";
}

// What the engine says that its programs, and what it refuses, depend on; empty: nothing.
std::string getFingerprint() {
  const dit_graph_engine *engine = dit_runtime_get_graph_engine();
  uint8_t bytes[32];
  if (engine == nullptr || engine->fingerprint == nullptr ||
      engine->fingerprint(dit_device_get_current(), bytes, nullptr) != DIT_OK) {
    return "";
  }
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

void settleEngine() {
  const dit_graph_engine *engine = dit_runtime_get_graph_engine();
  if (engine != nullptr && engine->settle != nullptr) {
    engine->settle();
  }
}

// Does the engine run an operation on tensors of these dtypes (-1: a number; the result's comes last)?
bool supportsOperation(int64_t op, int64_t folded, int64_t ndim, c10::IntArrayRef dtypes) {
  const std::vector<int> numbers(dtypes.begin(), dtypes.end());
  TORCH_CHECK(static_cast<int64_t>(numbers.size()) == dit_region_op_get_arity(static_cast<int>(op)) + 1,
              "graph: ", numbers.size(), " dtypes for operation ", op);
  return dit_graph_engine_supports(dit_runtime_get_graph_engine(), 0, static_cast<int>(op), static_cast<int>(folded),
                                   static_cast<int>(ndim), numbers.data());
}

bool hasRow(const std::string &name, const std::string &overload) {
  int count = 0;
  const dit_op *table = dit_op_get_table(&count);
  for (int i = 0; i < count; i++) {
    if (name == table[i].name && overload == table[i].overload) {
      return true;
    }
  }
  return false;
}

// One more run of what PyTorch runs in the place of a piece of a graph.
void countIsland(const std::string &name) {
  if (dit_ledger_entry *entry = dit_ledger_get(name.c_str())) {
    dit_ledger_add(entry, DIT_LEDGER_C, 0, 0);
  }
}

const char *const kKinds[] = {"pointwise", "rows", "columns"};

// As the inside of a JSON string.
std::string escapeText(const char *text) {
  std::string out;
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(*text) < ' ' ? ' ' : *text;
  }
  return out;
}

// What a subgraph runs, in the order of the graph: operations and operators by name.
void listNodes(std::ostringstream &out, const dit_graph_plan &plan, const dit_graph_step &step) {
  const auto index = static_cast<int32_t>(&step - plan.steps);
  const char *between = "";
  for (int32_t i = 0; i < plan.graph->nnodes; i++) {
    const dit_graph_node &node = plan.graph->nodes[i];
    if (plan.step_of[i] == index) {
      const bool is_call = node.kind == DIT_NODE_ROW || node.kind == DIT_NODE_ISLAND;
      out << between << (is_call ? node.name : dit_region_op_get_name(node.op));
      between = " ";
    }
  }
}

void describeSubgraph(std::ostringstream &out, const dit_graph_plan &plan, const dit_graph_step &step) {
  char engine[160] = "";
  if (plan.engine->describe_graph != nullptr) {
    plan.engine->describe_graph(step.executable, engine, sizeof engine);
  }
  out << R"({"kind": "subgraph", "name": ")" << escapeText(plan.engine->name) << R"(", "nodes": )" << step.nodes
      << ", \"inputs\": " << step.nreads << ", \"outputs\": " << step.noperands - step.nreads
      << ", \"workspace\": " << step.workspace << ", \"from\": \"" << (step.is_kept ? "disk" : "compiler")
      << "\", \"runs\": \"" << escapeText(engine) << "\", \"operations\": \"";
  listNodes(out, plan, step);
  out << "\"}";
}

void describeStep(std::ostringstream &out, const GraphPlan &made, const dit_graph_step &step) {
  const dit_graph_plan &plan = *made.plan;
  const dit_graph_node &node = plan.graph->nodes[step.node];
  if (step.kind == DIT_NODE_OPAQUE) {
    return describeSubgraph(out, plan, step);
  }
  if (step.kind != DIT_NODE_REGION) {
    out << "{\"kind\": \"" << (step.kind == DIT_NODE_ROW ? "row" : "island") << "\", \"name\": \"" << node.name
        << "\", \"direct\": " << (made.rows[static_cast<size_t>(step.node)] ? "true" : "false") << ", \"reason\": \""
        << escapeText(node.reason) << "\"}";
    return;
  }
  char engine[64] = "";
  if (plan.engine->describe != nullptr) {
    plan.engine->describe(step.executable, engine, sizeof engine);
  }
  out << "{\"kind\": \"region\", \"name\": \"" << kKinds[step.region->kind] << "\", \"nodes\": " << step.nodes
      << ", \"operands\": " << step.region->noperands << ", \"runs\": \"" << engine << "\", \"sizes\": [";
  for (int d = 0; d < step.region->ndim; d++) {
    out << (d ? ", " : "") << step.region->sizes[d];
  }
  out << "], \"operations\": \"";
  for (int i = 0; i < step.region->nops; i++) {
    out << (i ? " " : "") << dit_region_op_get_name(step.region->ops[i].op);
  }
  out << "\"}";
}

// Why the engine could make no plan of the graph; empty: it could.
std::string getRefusal(int64_t number) {
  const auto graph = findGraph(number);
  const std::lock_guard<std::mutex> lock(graph->mutex);
  return graph->refusal;
}

// What every step moves at least and took while it was timed, in the order of graph_describe's plans and steps: bytes,
// nanoseconds, runs.
std::vector<int64_t> measureGraph(int64_t number) {
  const auto graph = findGraph(number);
  const std::lock_guard<std::mutex> lock(graph->mutex);
  std::vector<int64_t> out;
  for (const auto &[key, made] : graph->plans) {
    const dit_graph_plan *plan = made->plan.get();
    for (int32_t i = 0; i < plan->nsteps; i++) {
      out.insert(out.end(), {dit_graph_plan_get_step_bytes(plan, i), plan->step_ns[i], plan->step_runs[i]});
    }
  }
  return out;
}

void setTiming(bool on) {
  dit_graph_set_timing(on);
}

// The source of every region, in the same order; empty: a step that is none, or that no code was written for.
std::vector<std::string> listSources(int64_t number) {
  const auto graph = findGraph(number);
  const std::lock_guard<std::mutex> lock(graph->mutex);
  const auto append = [](void *context, const void *bytes, size_t size, dit_error * /*err*/) {
    static_cast<std::string *>(context)->append(static_cast<const char *>(bytes), size);
    return DIT_OK;
  };
  std::vector<std::string> out;
  for (const auto &[key, made] : graph->plans) {
    const dit_graph_plan *plan = made->plan.get();
    for (int32_t i = 0; i < plan->nsteps; i++) {
      const dit_graph_step &step = plan->steps[i];
      std::string &source = out.emplace_back();
      if (step.kind == DIT_NODE_REGION && plan->engine->describe_source != nullptr &&
          plan->engine->describe_source(step.executable, append, &source, nullptr) != DIT_OK) {
        source.clear();
      }
    }
  }
  return out;
}

// The plans that a graph has at the moment, as JSON.
std::string describeGraph(int64_t number) {
  const auto graph = findGraph(number);
  const std::lock_guard<std::mutex> lock(graph->mutex);
  std::ostringstream out;
  out << "[";
  bool first = true;
  for (const auto &[key, made] : graph->plans) {
    const dit_graph_plan *plan = made->plan.get();
    out << (first ? "" : ", ") << "{\"nodes\": " << plan->graph->nnodes << ", \"regions\": " << plan->nregions
        << ", \"subgraphs\": " << plan->nopaques << ", \"rows\": " << plan->nrows << ", \"islands\": " << plan->nislands
        << ", \"arena\": " << plan->arena << ", \"unplanned\": " << plan->unplanned << ", \"refusals\": [";
    for (const dit_graph_refusal *refusal = plan->refusals; refusal != nullptr; refusal = refusal->next) {
      out << "{\"nodes\": " << refusal->nodes << ", \"reason\": \"" << escapeText(refusal->reason) << "\"}"
          << (refusal->next != nullptr ? ", " : "");
    }
    out << "], \"steps\": [";
    for (int32_t i = 0; i < plan->nsteps; i++) {
      out << (i ? ", " : "");
      describeStep(out, *made, plan->steps[i]);
    }
    out << "]}";
    first = false;
  }
  out << "]";
  return out.str();
}

TORCH_LIBRARY_FRAGMENT(ditorch, m) {
  m.def("graph_engine() -> str", &getEngine);
  m.def("graph_fingerprint() -> str", &getFingerprint);
  m.def("graph_settle() -> ()", &settleEngine);
  m.def("graph_operations() -> str[]", &listOperations);
  m.def("graph_supports(int op, int folded, int ndim, int[] dtypes) -> bool", &supportsOperation);
  m.def("graph_refusal(int graph) -> str", &getRefusal);
  m.def("graph_has_row(str name, str overload) -> bool", &hasRow);
  m.def("graph_count(str island) -> ()", &countIsland);
  m.def("graph_describe(int graph) -> str", &describeGraph);
  m.def("graph_measure(int graph) -> int[]", &measureGraph);
  m.def("graph_set_timing(bool on) -> ()", &setTiming);
  m.def("graph_sources(int graph) -> str[]", &listSources);
}

}  // namespace
}  // namespace ditorch
