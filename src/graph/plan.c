/// A plan: a graph with numbers for its symbols. Layouts, fusion, regions and subgraphs, memory; and its run.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dit/ledger.h"
#include "dit/log.h"
#include "dit/runtime.h"
#include "graph_internal.h"

#define MAX_NODES 20000  // the closure of who waits for whom takes a bit for each pair

struct plan_memory {
  struct dit_graph_plan plan;
  struct graph_piece *list;
  struct graph_program *programs;
};

int64_t dit_graph_plan_get_dim(const struct dit_graph_plan *plan, struct dit_graph_dim dim) {
  return dim.kind == DIT_DIM_CONST    ? dim.value
         : dim.kind == DIT_DIM_SYMBOL ? plan->symbols[dim.value]
                                      : plan->dims[dim.value];
}

static bool evaluate(int op, int64_t a, int64_t b, int64_t *out) {
  switch (op) {
    case DIT_EXPR_ADD:
      return !__builtin_add_overflow(a, b, out);
    case DIT_EXPR_SUB:
      return !__builtin_sub_overflow(a, b, out);
    case DIT_EXPR_MUL:
      return !__builtin_mul_overflow(a, b, out);
    case DIT_EXPR_MIN:
      *out = a < b ? a : b;
      return true;
    case DIT_EXPR_MAX:
      *out = a > b ? a : b;
      return true;
    default: {
      if (b == 0 || (b == -1 && a == INT64_MIN)) {
        return false;
      }
      const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
      *out = op == DIT_EXPR_FLOORDIV ? quotient : a - quotient * b;
      return true;
    }
  }
}

int64_t graph_get_span(const struct dit_graph_layout *layout, int ndim, int dtype) {
  int64_t last = 0, bytes;
  bool is_empty = false;
  for (int d = 0; d < ndim; d++) {
    int64_t reach;
    const int64_t size = layout->sizes[d] > 0 ? layout->sizes[d] : 1;  // what has no elements is walked, too
    is_empty |= layout->sizes[d] == 0;
    if (__builtin_mul_overflow(size - 1, layout->strides[d], &reach) || __builtin_add_overflow(last, reach, &last)) {
      return -1;
    }
  }
  const bool is_beyond = last >= GRAPH_MOST_BYTES ||
                         __builtin_mul_overflow(last + 1, (int64_t)dit_dtype_get_size(dtype), &bytes) ||
                         bytes > GRAPH_MOST_BYTES;
  return is_beyond ? -1 : is_empty ? 0 : bytes;
}

static enum dit_status set_layout(struct dit_graph_plan *plan, int32_t index, struct dit_error *err) {
  const struct dit_graph_tensor *tensor = &plan->graph->tensors[index];
  struct dit_graph_layout *layout = &plan->layouts[index];
  layout->offset = dit_graph_plan_get_dim(plan, tensor->offset);
  bool is_empty = false;
  layout->numel = 1;
  for (int d = 0; d < tensor->ndim; d++) {
    layout->sizes[d] = dit_graph_plan_get_dim(plan, tensor->sizes[d]);
    layout->strides[d] = dit_graph_plan_get_dim(plan, tensor->strides[d]);
    is_empty |= layout->sizes[d] == 0;
    if (layout->sizes[d] < 0 || layout->strides[d] < 0 ||
        __builtin_mul_overflow(layout->numel, layout->sizes[d] > 0 ? layout->sizes[d] : 1, &layout->numel)) {
      return dit_error_set(err, DIT_ERR_INVALID, "graph: tensor %d has size %lld and stride %lld in dimension %d",
                           index, (long long)layout->sizes[d], (long long)layout->strides[d], d);
    }
  }
  layout->numel = is_empty ? 0 : layout->numel;
  if (layout->offset < 0 || layout->offset > GRAPH_MOST_BYTES / (int64_t)dit_dtype_get_size(tensor->dtype) ||
      graph_get_span(layout, tensor->ndim, tensor->dtype) < 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "graph: tensor %d lies outside of any memory", index);
  }
  return DIT_OK;
}

static enum dit_status define(struct dit_graph_plan *plan, int32_t tensor, int place, struct dit_error *err) {
  struct dit_graph_storage *storage = &plan->storages[plan->graph->tensors[tensor].storage];
  if (storage->place != DIT_PLACE_NONE) {
    return DIT_OK;  // a written input
  }
  storage->place = (uint8_t)place;
  storage->tensor = tensor;
  storage->bytes =
      graph_get_span(&plan->layouts[tensor], plan->graph->tensors[tensor].ndim, plan->graph->tensors[tensor].dtype);
  if (plan->layouts[tensor].offset != 0) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "graph: tensor %d does not begin where its memory begins", tensor);
  }
  return DIT_OK;
}

static void own(struct dit_graph_plan *plan, const struct dit_graph_arg *arg) {
  if (arg->tag == DIT_ARG_TENSOR) {
    struct dit_graph_storage *storage = &plan->storages[plan->graph->tensors[arg->dim.value].storage];
    storage->place = storage->place == DIT_PLACE_ARENA ? DIT_PLACE_OWN : storage->place;
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    own(plan, &plan->graph->args[arg->first + i]);
  }
}

/// Memory that the framework may see: what islands read, and what leaves the graph. `fusion` NULL: none is made yet.
static void own_seen(struct dit_graph_plan *plan, const struct graph_fusion *fusion) {
  const struct dit_graph *graph = plan->graph;
  for (int32_t i = 0; i < graph->nnodes; i++) {
    const struct dit_graph_node *node = &graph->nodes[i];
    const uint8_t kind = fusion ? fusion->groups[fusion->group_of[i]].kind : node->kind;
    for (int k = 0; kind == DIT_NODE_ISLAND && k < node->nargs; k++) {
      own(plan, &graph->args[node->first_arg + k]);
    }
  }
  for (int32_t i = 0; i < graph->noutputs; i++) {
    if (graph->outputs[i].tensor >= 0) {
      const struct dit_graph_arg arg = {.tag = DIT_ARG_TENSOR, .dim.value = graph->outputs[i].tensor};
      own(plan, &arg);
    }
  }
}

/// What subgraphs make is theirs to write, also where an operator of the framework would have made it.
static void place_subgraphs(struct dit_graph_plan *plan, const struct graph_fusion *fusion) {
  const struct dit_graph *graph = plan->graph;
  for (int32_t i = 0; i < graph->nnodes; i++) {
    const struct dit_graph_node *node = &graph->nodes[i];
    for (int k = 0; fusion->groups[fusion->group_of[i]].kind == DIT_NODE_OPAQUE && k < node->nouts; k++) {
      if (node->outs[k] >= 0) {
        struct dit_graph_storage *storage = &plan->storages[graph->tensors[node->outs[k]].storage];
        storage->place = storage->place == DIT_PLACE_CALL ? DIT_PLACE_ARENA : storage->place;
      }
    }
  }
  own_seen(plan, fusion);
}

/// Where each storage comes from, and that every tensor lies inside of its own.
static enum dit_status set_storages(struct dit_graph_plan *plan, struct dit_error *err) {
  const struct dit_graph *graph = plan->graph;
  memset(plan->storages, 0, (size_t)graph->nstorages * sizeof *plan->storages);
  for (int32_t i = 0; i < graph->ninputs; i++) {
    if (graph->inputs[i].tensor >= 0) {
      DIT_RETURN_IF_NOT_OK(define(plan, graph->inputs[i].tensor, DIT_PLACE_INPUT, err));
    }
  }
  for (int32_t i = 0; i < graph->nnodes; i++) {
    const struct dit_graph_node *node = &graph->nodes[i];
    const bool fuses = node->kind == DIT_NODE_POINT || node->kind == DIT_NODE_REDUCE;
    const int place = fuses || node->is_given ? DIT_PLACE_ARENA : DIT_PLACE_CALL;
    for (int k = 0; k < node->nouts; k++) {
      if (node->outs[k] >= 0) {
        DIT_RETURN_IF_NOT_OK(define(plan, node->outs[k], place, err));
      }
    }
  }
  own_seen(plan, NULL);
  for (int32_t i = 0; i < graph->ntensors; i++) {
    const struct dit_graph_storage *storage = &plan->storages[graph->tensors[i].storage];
    const int64_t span = graph_get_span(&plan->layouts[i], graph->tensors[i].ndim, graph->tensors[i].dtype);
    const int64_t width = (int64_t)dit_dtype_get_size(graph->tensors[i].dtype);
    if (span > 0 && plan->layouts[i].offset * width + span > storage->bytes) {
      return dit_error_set(err, DIT_ERR_INVALID, "graph: tensor %d reaches beyond its memory of %lld bytes", i,
                           (long long)storage->bytes);
    }
  }
  return DIT_OK;
}

/// A subgraph that the engine has refused: its nodes run by regions and rows, in the next attempt.
static enum dit_status note_refusal(struct plan_memory *memory, const struct graph_fusion *fusion, int32_t group,
                                    struct graph_refused *refused, const char *reason, struct dit_error *err) {
  struct dit_graph_plan *plan = &memory->plan;
  struct dit_graph_refusal *refusal = graph_pool_take(&memory->list, 1, sizeof *refusal);
  if (!refusal) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  refusal->next = plan->refusals;
  refusal->nodes = fusion->groups[group].nnodes;
  snprintf(refusal->reason, sizeof refusal->reason, "%.150s", reason);
  plan->refusals = refusal;
  for (int32_t n = 0; n < plan->graph->nnodes; n++) {
    refused->subgraph[n] |= fusion->group_of[n] == group;
  }
  refused->again = true;
  char name[224];
  snprintf(name, sizeof name, "graph engine %s refuses a subgraph: %s", plan->engine->name, refusal->reason);
  struct dit_ledger_entry *entry = dit_ledger_get(name);
  if (entry) {
    dit_ledger_add(entry, DIT_LEDGER_C, 0, 0);
  }
  dit_log_write_once(
      "graph refusal", DIT_LOG_WARNING,
      "the graph engine '%s' refuses a subgraph of %d nodes, which runs by regions and operators instead: "
      "%s; `ditorch compile --explain` lists all of them",
      plan->engine->name, (int)refusal->nodes, refusal->reason);
  return DIT_OK;
}

static enum dit_status make_subgraph(struct plan_memory *memory, const struct graph_fusion *fusion, int32_t group,
                                     struct graph_refused *refused, struct dit_graph_step *step,
                                     struct dit_error *err) {
  struct dit_graph_plan *plan = &memory->plan;
  struct graph_subgraph subgraph;
  struct graph_program *program = NULL;
  struct dit_error why = {.message = ""};
  DIT_RETURN_IF_NOT_OK(graph_write_subgraph(plan, &memory->list, fusion, group, &subgraph, err));
  if (graph_find_program(plan, &memory->list, &subgraph, &memory->programs, &program, &why) != DIT_OK) {
    return note_refusal(memory, fusion, group, refused, why.message, err);
  }
  step->executable = program->program;
  step->workspace = program->workspace;
  step->is_kept = program->is_kept;
  step->tensors = subgraph.tensors;
  step->noperands = subgraph.noperands;
  step->nreads = subgraph.nreads;
  return DIT_OK;
}

/// Programs of subgraphs stay in their list; regions are each step's own.
static void release_steps(struct dit_graph_plan *plan) {
  for (int32_t i = 0; i < plan->nsteps; i++) {
    if (plan->steps[i].executable && plan->steps[i].kind == DIT_NODE_REGION) {
      plan->engine->release(plan->steps[i].executable);
    }
  }
  plan->nsteps = 0;
}

static enum dit_status take_steps(struct plan_memory *memory, const struct graph_fusion *fusion,
                                  struct dit_error *err) {
  struct dit_graph_plan *plan = &memory->plan;
  plan->steps = graph_pool_take(&memory->list, (size_t)fusion->ngroups, sizeof *plan->steps);
  plan->step_of = graph_pool_take(&memory->list, (size_t)plan->graph->nnodes, sizeof *plan->step_of);
  int32_t *places = graph_pool_take(&memory->list, (size_t)fusion->ngroups, sizeof *places);
  if (!plan->steps || !plan->step_of || !places) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  plan->nrows = plan->nislands = plan->nregions = plan->nopaques = 0;
  for (int32_t i = 0; i < fusion->ngroups; i++) {
    const struct graph_group *group = &fusion->groups[fusion->order[i]];
    struct dit_graph_step *step = &plan->steps[i];
    places[fusion->order[i]] = i;
    step->kind = group->kind;
    step->node = group->first;
    step->nodes = group->nnodes;
    plan->nrows += group->kind == DIT_NODE_ROW;
    plan->nislands += group->kind == DIT_NODE_ISLAND;
    plan->nregions += group->kind == DIT_NODE_REGION;
    plan->nopaques += group->kind == DIT_NODE_OPAQUE;
  }
  for (int32_t n = 0; n < plan->graph->nnodes; n++) {
    plan->step_of[n] = places[fusion->group_of[n]];
  }
  plan->nsteps = fusion->ngroups;
  return DIT_OK;
}

/// Subgraphs first: when one is refused, the regions will be others.
static enum dit_status make_steps(struct plan_memory *memory, const struct graph_fusion *fusion,
                                  struct graph_refused *refused, struct dit_error *err) {
  struct dit_graph_plan *plan = &memory->plan;
  DIT_RETURN_IF_NOT_OK(take_steps(memory, fusion, err));
  for (int32_t i = 0; i < plan->nsteps; i++) {
    if (plan->steps[i].kind == DIT_NODE_OPAQUE) {
      DIT_RETURN_IF_NOT_OK(make_subgraph(memory, fusion, fusion->order[i], refused, &plan->steps[i], err));
    }
  }
  for (int32_t i = 0; !refused->again && i < plan->nsteps; i++) {
    if (plan->steps[i].kind == DIT_NODE_REGION) {
      DIT_RETURN_IF_NOT_OK(
          graph_build_region(plan, &memory->list, fusion, fusion->order[i], refused, &plan->steps[i], err));
    }
  }
  return DIT_OK;
}

/// One attempt; `refused` says what of it the engine does not make.
static enum dit_status try_fusion(struct plan_memory *memory, const struct graph_fusion *fusion,
                                  struct graph_refused *refused, struct dit_error *err) {
  release_steps(&memory->plan);
  refused->again = false;
  place_subgraphs(&memory->plan, fusion);
  return make_steps(memory, fusion, refused, err);
}

/// Groups, regions and subgraphs: as an earlier plan found them, else until the engine makes all of them. `scratch`
/// owns what is not needed afterwards.
static enum dit_status divide(struct plan_memory *memory, struct graph_piece **scratch, struct dit_error *err) {
  struct dit_graph_plan *plan = &memory->plan;
  const size_t nodes = (size_t)plan->graph->nnodes;
  struct graph_refused refused = {.subgraph = graph_pool_take(scratch, nodes, sizeof *refused.subgraph),
                                  .limit = graph_pool_take(scratch, nodes, sizeof *refused.limit)};
  if (!refused.subgraph || !refused.limit) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  struct graph_fusion fusion = {0};
  int32_t *signature = NULL;
  if (!graph_mistake_is_set() && graph_known_find(plan, scratch, &signature, &fusion)) {
    DIT_RETURN_IF_NOT_OK(try_fusion(memory, &fusion, &refused, err));
    if (!refused.again) {
      plan->is_repeated = true;
      return DIT_OK;
    }
    signature = NULL;
  }
  int attempts = 0;
  do {  // every attempt that is not the last one leaves out more
    DIT_RETURN_IF_NOT_OK(set_storages(plan, err));
    fusion = (struct graph_fusion){0};
    DIT_RETURN_IF_NOT_OK(graph_fuse(plan, scratch, &refused, &fusion, err));
    DIT_RETURN_IF_NOT_OK(try_fusion(memory, &fusion, &refused, err));
    attempts++;
  } while (refused.again);
  if (signature && attempts == 1) {
    graph_known_add(plan, signature, &fusion);
  }
  return DIT_OK;
}

static bool take_tables(struct plan_memory *memory, const struct dit_graph *graph) {
  struct dit_graph_plan *plan = &memory->plan;
  plan->layouts = graph_pool_take(&memory->list, (size_t)graph->ntensors, sizeof *plan->layouts);
  plan->storages = graph_pool_take(&memory->list, (size_t)graph->nstorages, sizeof *plan->storages);
  plan->dims = graph_pool_take(&memory->list, (size_t)graph->nexprs, sizeof *plan->dims);
  plan->symbols = graph_pool_take(&memory->list, (size_t)graph->nsymbols, sizeof *plan->symbols);
  return plan->layouts && plan->storages && plan->dims && plan->symbols;
}

static enum dit_status fill_plan(struct plan_memory *memory, const int64_t *symbols, struct dit_error *err) {
  struct dit_graph_plan *plan = &memory->plan;
  const struct dit_graph *graph = plan->graph;
  if (!take_tables(memory, graph)) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  if (graph->nsymbols) {
    memcpy(plan->symbols, symbols, (size_t)graph->nsymbols * sizeof *symbols);
  }
  for (int32_t i = 0; i < graph->nexprs; i++) {
    const struct dit_graph_expr *expr = &graph->exprs[i];
    const int64_t a = dit_graph_plan_get_dim(plan, expr->a), b = dit_graph_plan_get_dim(plan, expr->b);
    if (!evaluate(expr->op, a, b, &plan->dims[i])) {
      return dit_error_set(err, DIT_ERR_INVALID, "graph: expression %d has no value for %lld and %lld", i, (long long)a,
                           (long long)b);
    }
  }
  for (int32_t i = 0; i < graph->ntensors; i++) {
    DIT_RETURN_IF_NOT_OK(set_layout(plan, i, err));
  }
  DIT_RETURN_IF_NOT_OK(set_storages(plan, err));
  graph_mistake_layouts(plan);
  struct graph_piece *scratch = NULL;
  const enum dit_status status = divide(memory, &scratch, err);
  graph_pool_free(scratch);
  DIT_RETURN_IF_NOT_OK(status);
  DIT_RETURN_IF_NOT_OK(graph_place(plan, &memory->list, err));
  graph_mistake_places(plan);
  plan->step_ns = graph_pool_take(&memory->list, (size_t)plan->nsteps, sizeof *plan->step_ns);
  plan->step_runs = graph_pool_take(&memory->list, (size_t)plan->nsteps, sizeof *plan->step_runs);
  return plan->step_ns && plan->step_runs ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
}

enum dit_status dit_graph_plan_create(const struct dit_graph *graph, const int64_t *symbols,
                                      const struct dit_graph_engine *engine, int device, struct dit_graph_plan **out,
                                      struct dit_error *err) {
  if (graph->nnodes > MAX_NODES) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "graph: %d nodes; at most %d", graph->nnodes, MAX_NODES);
  }
  for (int32_t i = 0; !engine && i < graph->nnodes; i++) {
    if (graph->nodes[i].kind == DIT_NODE_POINT || graph->nodes[i].kind == DIT_NODE_REDUCE) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "graph: the device has no engine for fused operations");
    }
  }
  struct plan_memory *memory = dit_calloc(1, sizeof *memory);
  if (!memory) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  memory->plan.graph = graph;
  memory->plan.engine = engine;
  memory->plan.device = device;
  const enum dit_status status = fill_plan(memory, symbols, err);
  if (status != DIT_OK) {
    dit_graph_plan_destroy(&memory->plan);
    return status;
  }
  *out = &memory->plan;
  return DIT_OK;
}

void dit_graph_plan_destroy(struct dit_graph_plan *plan) {
  if (!plan) {
    return;
  }
  struct plan_memory *memory = (struct plan_memory *)plan;  // its first member
  release_steps(plan);
  for (struct graph_program *program = memory->programs; program; program = program->next) {
    plan->engine->release_graph(program->program);
  }
  graph_pool_free(memory->list);
  dit_free(memory);
}

static enum dit_status run_subgraph(const struct dit_graph_plan *plan, const struct dit_graph_step *step, int32_t at,
                                    void *stream, void *arena, void **data, const struct dit_graph_host *host,
                                    struct dit_error *err) {
  void *few[64], **operands = few;
  if (step->noperands > 64 && !(operands = dit_malloc((size_t)step->noperands * sizeof *operands))) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory to run a subgraph");
  }
  enum dit_status status = DIT_OK;
  for (int32_t i = 0; i < step->noperands && status == DIT_OK; i++) {
    const int32_t index = plan->graph->tensors[step->tensors[i]].storage;
    const struct dit_graph_storage *storage = &plan->storages[index];
    if (storage->place == DIT_PLACE_OWN && storage->first == at && !data[index]) {
      status = host->allocate(host->self, index, &data[index], err);
    }
    operands[i] = data[index];
  }
  if (status == DIT_OK) {
    status = plan->engine->run_graph(step->executable, plan->device, stream, operands,
                                     step->workspace > 0 ? (char *)arena + step->workspace_at : NULL, err);
  }
  if (operands != few) {
    dit_free(operands);
  }
  return status;
}

static enum dit_status run_region(const struct dit_graph_plan *plan, const struct dit_graph_step *step, int32_t at,
                                  void *stream, void **data, const struct dit_graph_host *host, struct dit_error *err) {
  void *operands[DIT_REGION_MAX_OPERANDS];
  for (int32_t i = 0; i < step->noperands; i++) {
    const struct dit_graph_tensor *tensor = &plan->graph->tensors[step->tensors[i]];
    const struct dit_graph_storage *storage = &plan->storages[tensor->storage];
    if (storage->place == DIT_PLACE_OWN && storage->first == at && !data[tensor->storage]) {
      DIT_RETURN_IF_NOT_OK(host->allocate(host->self, tensor->storage, &data[tensor->storage], err));
    }
    const int64_t offset = plan->layouts[step->tensors[i]].offset * (int64_t)dit_dtype_get_size(tensor->dtype);
    operands[i] = data[tensor->storage] ? (char *)data[tensor->storage] + offset : NULL;
  }
  return plan->engine->run(step->executable, plan->device, stream, operands, err);
}

static void release_unused(const struct dit_graph_plan *plan, int32_t step, const struct dit_graph_host *host) {
  for (int32_t i = plan->releases[step]; i < plan->releases[step + 1]; i++) {
    host->release(host->self, plan->released[i]);
  }
}

static atomic_bool is_timed;

void dit_graph_set_timing(bool on) {
  atomic_store(&is_timed, on);
}

static int64_t get_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/// What was enqueued is done. Without a device (an engine of a test) steps run in the caller.
static enum dit_status wait_for_stream(const struct dit_graph_plan *plan, void *stream, struct dit_error *err) {
  const struct dit_device_vtable *device = dit_runtime_get_vtable();
  return device ? device->stream_synchronize(plan->device, stream, err) : DIT_OK;
}

static enum dit_status run_step(const struct dit_graph_plan *plan, int32_t i, void *stream, void *arena, void **data,
                                const struct dit_graph_host *host, struct dit_error *err) {
  const struct dit_graph_step *step = &plan->steps[i];
  return step->kind == DIT_NODE_REGION   ? run_region(plan, step, i, stream, data, host, err)
         : step->kind == DIT_NODE_OPAQUE ? run_subgraph(plan, step, i, stream, arena, data, host, err)
                                         : host->call(host->self, step->node, data, err);
}

static enum dit_status run_timed(const struct dit_graph_plan *plan, int32_t i, void *stream, void *arena, void **data,
                                 const struct dit_graph_host *host, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wait_for_stream(plan, stream, err));
  const int64_t begin = get_ns();
  DIT_RETURN_IF_NOT_OK(run_step(plan, i, stream, arena, data, host, err));
  DIT_RETURN_IF_NOT_OK(wait_for_stream(plan, stream, err));
  __atomic_fetch_add(&plan->step_ns[i], get_ns() - begin, __ATOMIC_RELAXED);
  __atomic_fetch_add(&plan->step_runs[i], 1, __ATOMIC_RELAXED);
  return DIT_OK;
}

static int64_t get_tensor_bytes(const struct dit_graph_plan *plan, int32_t tensor) {
  return plan->layouts[tensor].numel * (int64_t)dit_dtype_get_size(plan->graph->tensors[tensor].dtype);
}

static int64_t get_argument_bytes(const struct dit_graph_plan *plan, const struct dit_graph_arg *arg) {
  int64_t bytes = arg->tag == DIT_ARG_TENSOR ? get_tensor_bytes(plan, (int32_t)arg->dim.value) : 0;
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    bytes += get_argument_bytes(plan, &plan->graph->args[arg->first + i]);
  }
  return bytes;
}

int64_t dit_graph_plan_get_step_bytes(const struct dit_graph_plan *plan, int32_t index) {
  const struct dit_graph_step *step = &plan->steps[index];
  const struct dit_graph_node *node = &plan->graph->nodes[step->node];
  const bool is_call = step->kind == DIT_NODE_ROW || step->kind == DIT_NODE_ISLAND;
  int64_t bytes = 0;
  for (int32_t i = 0; i < step->noperands; i++) {
    bytes += get_tensor_bytes(plan, step->tensors[i]);
  }
  for (int k = 0; is_call && k < node->nargs; k++) {
    bytes += get_argument_bytes(plan, &plan->graph->args[node->first_arg + k]);
  }
  for (int k = 0; is_call && k < node->nouts; k++) {
    bytes += node->outs[k] >= 0 ? get_tensor_bytes(plan, node->outs[k]) : 0;
  }
  return bytes;
}

enum dit_status dit_graph_plan_run(const struct dit_graph_plan *plan, void *stream, void *arena, void **data,
                                   const struct dit_graph_host *host, struct dit_error *err) {
  for (int32_t i = 0; i < plan->graph->nstorages; i++) {
    if (plan->storages[i].place == DIT_PLACE_ARENA) {
      data[i] = (char *)arena + plan->storages[i].at;
    }
  }
  const bool times = atomic_load_explicit(&is_timed, memory_order_relaxed);
  for (int32_t i = 0; i < plan->nsteps; i++) {
    if (host->observe) {
      DIT_RETURN_IF_NOT_OK(host->observe(host->self, i, false, err));
    }
    DIT_RETURN_IF_NOT_OK((times ? run_timed : run_step)(plan, i, stream, arena, data, host, err));
    if (host->observe) {
      DIT_RETURN_IF_NOT_OK(host->observe(host->self, i, true, err));
    }
    release_unused(plan, i, host);
  }
  return DIT_OK;
}
