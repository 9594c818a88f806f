/// A group of nodes as a region for the engine: values in the order of the nodes, operands for what comes from outside
/// and for what somebody outside needs, dimensions that can be walked as one put together.
#include <math.h>
#include <string.h>

#include "graph_internal.h"

struct builder {
  struct dit_graph_plan *plan;
  const struct dit_graph *graph;
  const struct graph_fusion *fusion;
  const struct graph_group *group;
  int32_t index;  ///< of the group
  struct dit_region region;
  struct dit_region_op ops[DIT_REGION_MAX_OPS];
  struct dit_region_operand operands[DIT_REGION_MAX_OPERANDS];
  int32_t tensors[DIT_REGION_MAX_OPERANDS];
  uint8_t loaded_level[DIT_REGION_MAX_OPERANDS];
  int16_t value_of_operand[DIT_REGION_MAX_OPERANDS];
  bool is_full;
};

static int add_op(struct builder *builder, struct dit_region_op op) {
  if (builder->region.nops == DIT_REGION_MAX_OPS) {
    builder->is_full = true;
    return 0;
  }
  builder->ops[builder->region.nops] = op;
  return builder->region.nops++;
}

static int add_operand(struct builder *builder, int32_t tensor, int stored, const int64_t *strides) {
  if (builder->region.noperands == DIT_REGION_MAX_OPERANDS) {
    builder->is_full = true;
    return 0;
  }
  const int at = builder->region.noperands++;
  struct dit_region_operand *operand = &builder->operands[at];
  memset(operand, 0, sizeof *operand);
  operand->dtype = builder->graph->tensors[tensor].dtype;
  operand->stored = (int16_t)stored;
  memcpy(operand->strides, strides, sizeof operand->strides);
  builder->tensors[at] = tensor;
  return at;
}

static int find_load(struct builder *builder, int32_t shape, int32_t tensor, int level) {
  int64_t strides[DIT_GRAPH_MAX_DIMS];
  if (!graph_map(builder->plan, builder->group, level, shape, tensor, strides)) {
    builder->is_full = true;
    return 0;
  }
  for (int i = 0; i < builder->region.noperands; i++) {
    if (builder->operands[i].stored < 0 && builder->loaded_level[i] == level &&
        graph_is_same_begin(builder->plan, builder->tensors[i], tensor) &&
        memcmp(builder->operands[i].strides, strides, sizeof strides) == 0) {
      return builder->value_of_operand[i];
    }
  }
  const int at = add_operand(builder, tensor, -1, strides);
  const struct dit_region_op op = {.op = DIT_REGION_LOAD,
                                   .level = (uint8_t)level,
                                   .dtype = builder->graph->tensors[tensor].dtype,
                                   .operand = (int16_t)at};
  builder->loaded_level[at] = (uint8_t)level;
  builder->value_of_operand[at] = (int16_t)add_op(builder, op);
  return builder->value_of_operand[at];
}

static int add_number(struct builder *builder, const struct dit_graph_arg *arg, int dtype, int level) {
  struct dit_region_op op = {.op = DIT_REGION_NUMBER, .level = (uint8_t)level, .dtype = (int16_t)dtype};
  if (arg->tag == DIT_ARG_DOUBLE) {
    op.number = arg->number;
    op.integer = fabs(arg->number) < 9e18 ? (int64_t)arg->number : 0;
  } else {
    op.integer = arg->tag == DIT_ARG_INT ? dit_graph_plan_get_dim(builder->plan, arg->dim) : arg->dim.value;
    op.number = (double)op.integer;
  }
  for (int i = 0; i < builder->region.nops; i++) {
    const struct dit_region_op *other = &builder->ops[i];
    if (other->op == DIT_REGION_NUMBER && other->dtype == op.dtype && other->level == op.level &&
        memcmp(&other->number, &op.number, sizeof op.number) == 0 && other->integer == op.integer) {
      return i;
    }
  }
  return add_op(builder, op);
}

/// Numbers have the dtype of the tensors that they stand beside.
static int get_number_dtype(const struct builder *builder, const struct dit_graph_node *node, int k) {
  const bool picks = node->op == DIT_REGION_WHERE;
  if (picks && k == 0) {
    return DIT_DTYPE_BOOL;
  }
  for (int i = picks ? 1 : 0; i < node->nargs; i++) {
    const struct dit_graph_arg *arg = &builder->graph->args[node->first_arg + i];
    if (arg->tag == DIT_ARG_TENSOR) {
      return builder->graph->tensors[arg->dim.value].dtype;
    }
  }
  return builder->graph->tensors[node->outs[0]].dtype;
}

static void add_node(struct builder *builder, int32_t index, int16_t *value_of_node) {
  const struct dit_graph_node *node = &builder->graph->nodes[index];
  const int level = builder->fusion->level[index];
  struct dit_region_op op = {.op = (uint8_t)node->op, .level = (uint8_t)level};
  op.dtype = builder->graph->tensors[node->outs[0]].dtype;
  for (int k = 0; k < node->nargs; k++) {
    const struct dit_graph_arg *arg = &builder->graph->args[node->first_arg + k];
    if (arg->tag != DIT_ARG_TENSOR) {
      op.args[k] = (int16_t)add_number(builder, arg, get_number_dtype(builder, node, k), level);
      continue;
    }
    const int32_t tensor = (int32_t)arg->dim.value;
    const int32_t producer = builder->fusion->producer[builder->graph->tensors[tensor].storage];
    if (producer >= 0 && builder->fusion->group_of[producer] == builder->index) {
      op.args[k] = value_of_node[producer];
      continue;
    }
    const bool folds = node->kind == DIT_NODE_REDUCE;
    op.args[k] = (int16_t)find_load(builder, folds ? tensor : node->outs[0], tensor, folds ? DIT_LEVEL_ELEMENT : level);
  }
  value_of_node[index] = (int16_t)add_op(builder, op);
}

bool graph_is_seen(const struct dit_graph_plan *plan, const struct graph_fusion *fusion, int32_t storage) {
  const uint8_t place = plan->storages[storage].place;
  return place == DIT_PLACE_INPUT || place == DIT_PLACE_OWN || fusion->seen[storage];
}

/// Does anybody outside of the group see the result of this node?
static bool is_seen(const struct builder *builder, int32_t index) {
  const struct dit_graph *graph = builder->graph;
  return graph_is_seen(builder->plan, builder->fusion, graph->tensors[graph->nodes[index].outs[0]].storage);
}

static bool can_merge(const struct builder *builder, const int64_t *sizes, int d) {
  for (int i = 0; i < builder->region.noperands; i++) {
    const int64_t *strides = builder->operands[i].strides;
    if (strides[d] != strides[d + 1] * sizes[d + 1]) {
      return false;
    }
  }
  return true;
}

static void merge(struct builder *builder, int64_t *sizes, int *count, int d) {
  sizes[d] *= sizes[d + 1];
  for (int k = d + 1; k + 1 < *count; k++) {
    sizes[k] = sizes[k + 1];
  }
  for (int i = 0; i < builder->region.noperands; i++) {
    int64_t *strides = builder->operands[i].strides;
    for (int k = d; k + 1 < *count; k++) {
      strides[k] = strides[k + 1];
    }
    strides[*count - 1] = 0;
  }
  --*count;
}

/// Should dimension `d` be walked inside of `e`? 1: yes, -1: no, 0: no operand tells. Results come first: they are
/// last.
static int compare_walks(const struct builder *builder, int d, int e) {
  for (int i = builder->region.noperands - 1; i >= 0; i--) {
    const int64_t *strides = builder->operands[i].strides;
    if (strides[d] != strides[e] && strides[d] != 0 && strides[e] != 0) {
      return strides[d] < strides[e] ? 1 : -1;
    }
  }
  return 0;
}

static void swap(struct builder *builder, int64_t *sizes, int d, int e) {
  const int64_t size = sizes[d];
  sizes[d] = sizes[e];
  sizes[e] = size;
  for (int i = 0; i < builder->region.noperands; i++) {
    int64_t *strides = builder->operands[i].strides;
    const int64_t stride = strides[d];
    strides[d] = strides[e];
    strides[e] = stride;
  }
}

/// Elements that lie side by side are walked one behind the other, whatever the order of the dimensions (channels_last,
/// transposed): an insertion sort, which leaves alone what no operand decides.
static void sort_dimensions(struct builder *builder, int64_t *sizes, int count) {
  for (int i = 1; i < count; i++) {
    int at = i;
    for (int d = i - 1; d >= 0; d--) {
      const int order = compare_walks(builder, d, at);
      if (order > 0) {
        swap(builder, sizes, d, at);
        at = d;
      } else if (order < 0) {
        break;
      }
    }
  }
}

/// False: a row that is more than one walk.
static bool set_dimensions(struct builder *builder) {
  const struct graph_group *group = builder->group;
  int64_t sizes[DIT_GRAPH_MAX_DIMS + 1];
  int outer = group->nouter, count = group->nouter + group->ninner;
  memcpy(sizes, group->space, (size_t)count * sizeof *sizes);
  const bool splits = group->region_kind != DIT_REGION_POINTWISE;
  if (!splits) {
    sort_dimensions(builder, sizes, count);
  }
  for (int d = count - 2; d >= 0; d--) {
    if ((!splits || d + 1 != outer) && can_merge(builder, sizes, d)) {
      merge(builder, sizes, &count, d);
      outer -= d + 1 < outer;
    }
  }
  if ((splits && count == outer) || count == 0) {  // rows of one element
    if (count == DIT_GRAPH_MAX_DIMS) {
      return false;
    }
    sizes[count++] = 1;
  }
  builder->region.ndim = count;
  memcpy(builder->region.sizes, sizes, (size_t)count * sizeof *sizes);
  return !splits || count == outer + 1;
}

/// The engine has no way to run the region: smaller ones are tried. One of a single node cannot be made smaller.
static enum dit_status refuse(const struct builder *builder, struct graph_refused *refused, const char *reason,
                              struct dit_error *err) {
  const struct graph_group *group = builder->group;
  if (group->nnodes == 1) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "graph: the engine '%s' does not run %s: %s",
                         builder->plan->engine->name, dit_region_op_get_name(builder->graph->nodes[group->first].op),
                         reason);
  }
  for (int32_t n = group->first; n <= group->last; n++) {
    if (builder->fusion->group_of[n] == builder->index) {
      refused->limit[n] = group->nnodes / 2;
    }
  }
  refused->again = true;
  return DIT_OK;
}

static enum dit_status finish(struct builder *builder, struct graph_piece **list, struct graph_refused *refused,
                              struct dit_graph_step *step, struct dit_error *err) {
  struct dit_region *region = graph_pool_take(list, 1, sizeof *region);
  struct dit_region_op *ops = graph_pool_take(list, (size_t)builder->region.nops, sizeof *ops);
  struct dit_region_operand *operands = graph_pool_take(list, (size_t)builder->region.noperands, sizeof *operands);
  int32_t *tensors = graph_pool_take(list, (size_t)builder->region.noperands, sizeof *tensors);
  if (!region || !ops || !operands || !tensors) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a region");
  }
  memcpy(ops, builder->ops, (size_t)builder->region.nops * sizeof *ops);
  memcpy(operands, builder->operands, (size_t)builder->region.noperands * sizeof *operands);
  memcpy(tensors, builder->tensors, (size_t)builder->region.noperands * sizeof *tensors);
  *region = builder->region;
  region->ops = ops;
  region->operands = operands;
  step->kind = DIT_NODE_REGION;
  step->node = builder->group->first;
  step->nodes = builder->group->nnodes;
  step->noperands = region->noperands;
  step->tensors = tensors;
  step->region = region;
  graph_mistake_region(region, (int32_t)(step - builder->plan->steps));
  const struct dit_graph_engine *engine = builder->plan->engine;
  if (engine->supports && !engine->supports(region)) {
    return refuse(builder, refused, "it does not support the region", err);
  }
  struct dit_error why = {.message = ""};
  const enum dit_status status = engine->compile(region, builder->plan->device, &step->executable, &why);
  return status == DIT_OK ? DIT_OK : refuse(builder, refused, why.message, err);
}

enum dit_status graph_build_region(struct dit_graph_plan *plan, struct graph_piece **list,
                                   const struct graph_fusion *fusion, int32_t index, struct graph_refused *refused,
                                   struct dit_graph_step *step, struct dit_error *err) {
  const struct dit_graph *graph = plan->graph;
  struct builder state = {
      .plan = plan, .graph = graph, .fusion = fusion, .group = &fusion->groups[index], .index = index};
  struct builder *builder = &state;
  int16_t *values = fusion->values;
  builder->region.kind = (enum dit_region_kind)builder->group->region_kind;
  for (int32_t n = builder->group->first; n <= builder->group->last; n++) {
    if (fusion->group_of[n] == index) {
      add_node(builder, n, values);
    }
  }
  for (int32_t n = builder->group->first; n <= builder->group->last; n++) {
    if (fusion->group_of[n] != index || !is_seen(builder, n)) {
      continue;
    }
    const struct dit_graph_node *node = &graph->nodes[n];
    const bool folds = node->kind == DIT_NODE_REDUCE;
    const int32_t shape = folds ? (int32_t)graph->args[node->first_arg].dim.value : node->outs[0];
    int64_t strides[DIT_GRAPH_MAX_DIMS];
    if (!graph_map(plan, builder->group, folds ? DIT_LEVEL_ELEMENT : fusion->level[n], shape, node->outs[0], strides)) {
      return dit_error_set(err, DIT_ERR_INTERNAL, "graph: a result that has no place in its region");
    }
    (void)add_operand(builder, node->outs[0], values[n], strides);
  }
  if (builder->is_full || !set_dimensions(builder)) {
    return dit_error_set(err, DIT_ERR_INTERNAL, "graph: a region that cannot be written down");
  }
  return finish(builder, list, refused, step, err);
}
