/// Fusion: nodes become groups that run as one region, or as one subgraph where the engine takes those. A node joins a
/// region of the same index space when it reads what the group makes element for element; it joins a subgraph whatever
/// it reads; and in both cases only when nothing that runs between them would have to wait for both.
///
/// Invariant: the groups and what they wait for are a graph without cycles; `waits` keeps its closure, a bit per group.
#include <string.h>

#include "graph_internal.h"

#define RECENT 12  // groups of the same space that a node may join without reading from them

struct fuser {
  struct dit_graph_plan *plan;
  const struct dit_graph *graph;
  struct graph_fusion *fusion;
  uint64_t *waits;  ///< [group][words]
  int32_t words;
  int32_t *writer;       ///< per storage: the last node that wrote to it; -1: none
  int32_t *reader_head;  ///< per storage: chain of nodes that have read it
  int32_t *reader_next;
  int32_t *reader_node;
  int32_t nreaders, max_readers;
  int32_t *uses;    ///< per storage: arguments that read it
  int32_t *inside;  ///< per storage: those of the group that makes it
  int32_t last_ordered;
  int32_t *needs;  ///< groups that a node waits for
  int32_t nneeds;
  uint8_t *taken;  ///< per node: the engine takes it in a subgraph
  struct graph_piece **list;
  const struct graph_refused *refused;
};

static bool waits_for(const struct fuser *fuser, int32_t group, int32_t other) {
  return fuser->waits[(size_t)group * (size_t)fuser->words + (size_t)(other / 64)] >> (other % 64) & 1;
}

static void add_wait(struct fuser *fuser, int32_t group, int32_t other) {
  if (group == other || waits_for(fuser, group, other)) {
    return;
  }
  const size_t words = (size_t)fuser->words;
  for (int32_t g = 0; g < fuser->fusion->ngroups; g++) {
    if (g != group && !waits_for(fuser, g, group)) {
      continue;
    }
    for (size_t w = 0; w < words; w++) {
      fuser->waits[(size_t)g * words + w] |= fuser->waits[(size_t)other * words + w];
    }
    fuser->waits[(size_t)g * words + (size_t)(other / 64)] |= UINT64_C(1) << (other % 64);
  }
}

static int get_space(const struct dit_graph_plan *plan, int32_t tensor, int64_t *space) {
  int count = 0;
  for (int d = 0; d < plan->graph->tensors[tensor].ndim; d++) {
    if (plan->layouts[tensor].sizes[d] != 1) {
      space[count++] = plan->layouts[tensor].sizes[d];
    }
  }
  return count;
}

int graph_get_space(const struct dit_graph_plan *plan, int32_t node, int64_t *space) {
  const struct dit_graph_node *made = &plan->graph->nodes[node];
  const int32_t in = made->nargs ? (int32_t)plan->graph->args[made->first_arg].dim.value : -1;
  return get_space(plan, made->kind == DIT_NODE_POINT ? made->outs[0] : in, space);
}

bool graph_map(const struct dit_graph_plan *plan, const struct graph_group *group, int level, int32_t shape,
               int32_t tensor, int64_t *strides) {
  const struct dit_graph_layout *whole = &plan->layouts[shape], *part = &plan->layouts[tensor];
  const int ndim = plan->graph->tensors[shape].ndim, own = plan->graph->tensors[tensor].ndim;
  const int wanted = level == DIT_LEVEL_ROW ? group->nouter : group->nouter + group->ninner;
  int at = 0;
  memset(strides, 0, DIT_GRAPH_MAX_DIMS * sizeof *strides);
  if (own > ndim) {
    return false;
  }
  for (int d = 0; d < ndim; d++) {
    const int k = d - (ndim - own);
    const int64_t size = k < 0 ? 1 : part->sizes[k];
    if (size != whole->sizes[d] && size != 1) {
      return false;
    }
    if (whole->sizes[d] == 1) {
      continue;
    }
    if (at == wanted || group->space[at] != whole->sizes[d]) {
      return false;
    }
    strides[at++] = size == 1 ? 0 : part->strides[k];
  }
  return at == wanted;
}

bool graph_is_same_begin(const struct dit_graph_plan *plan, int32_t tensor, int32_t other) {
  const struct dit_graph_tensor *a = &plan->graph->tensors[tensor], *b = &plan->graph->tensors[other];
  return a->storage == b->storage && a->dtype == b->dtype &&
         plan->layouts[tensor].offset == plan->layouts[other].offset;
}

/// Over the group's whole space: where a fold's result lies. Folded dimensions have stride 0.
static bool map_result(const struct fuser *fuser, const struct graph_group *group, int32_t node, int64_t *strides) {
  const struct dit_graph_node *made = &fuser->graph->nodes[node];
  if (made->kind == DIT_NODE_POINT) {
    return graph_map(fuser->plan, group, fuser->fusion->level[node], made->outs[0], made->outs[0], strides);
  }
  const int32_t in = (int32_t)fuser->graph->args[made->first_arg].dim.value;
  return graph_map(fuser->plan, group, DIT_LEVEL_ELEMENT, in, made->outs[0], strides);
}

/// Can dimensions [from, to) of the space be walked as one?
static bool is_one_walk(const struct graph_group *group, const int64_t *strides, int from, int to) {
  for (int d = from; d + 1 < to; d++) {
    if (strides[d] != strides[d + 1] * group->space[d + 1]) {
      return false;
    }
  }
  return true;
}

/// The dimensions that the last one of the region stands for must be one walk for every operand.
static bool suits_rows(const struct graph_group *group, const int64_t *strides) {
  return group->region_kind == DIT_REGION_POINTWISE ||
         is_one_walk(group, strides, group->nouter, group->nouter + group->ninner);
}

static int64_t get_row(const struct graph_group *group) {
  int64_t row = 1;
  for (int d = group->nouter; d < group->nouter + group->ninner; d++) {
    row *= group->space[d];
  }
  return row;
}

/// Rows that no region keeps close: it folds them, and whatever needs the folds is for the next one.
static bool is_long(const struct graph_group *group) {
  return group->region_kind == DIT_REGION_ROWS && get_row(group) > DIT_REGION_MAX_ROW;
}

static int32_t get_tensor(const struct fuser *fuser, const struct dit_graph_node *node, int k) {
  const struct dit_graph_arg *arg = &fuser->graph->args[node->first_arg + k];
  return arg->tag == DIT_ARG_TENSOR ? (int32_t)arg->dim.value : -1;
}

static bool can_read(const struct fuser *fuser, int32_t group_index, int32_t node_index, int level, int32_t tensor) {
  const struct graph_group *group = &fuser->fusion->groups[group_index];
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  const int32_t shape = node->kind == DIT_NODE_REDUCE ? tensor : node->outs[0];
  const int32_t storage = fuser->graph->tensors[tensor].storage;
  const int32_t writer = fuser->writer[storage];
  int64_t mine[DIT_GRAPH_MAX_DIMS], theirs[DIT_GRAPH_MAX_DIMS];
  if (!graph_map(fuser->plan, group, level, shape, tensor, mine) || !suits_rows(group, mine)) {
    return false;
  }
  if (writer < 0 || fuser->fusion->group_of[writer] != group_index) {
    return true;
  }
  const struct dit_graph_node *made = &fuser->graph->nodes[writer];
  if (made->kind == DIT_NODE_REDUCE && is_long(group)) {
    return false;
  }
  const int made_level = fuser->fusion->level[writer];
  if (fuser->fusion->producer[storage] != writer || (made->kind == DIT_NODE_REDUCE && made->folded < 0) ||
      (made_level == DIT_LEVEL_ELEMENT && level == DIT_LEVEL_ROW)) {
    return false;  // an input that the group has changed, columns that are not complete, or a part of a row
  }
  return map_result(fuser, group, writer, theirs) && memcmp(mine, theirs, sizeof mine) == 0 &&
         fuser->plan->layouts[tensor].offset == fuser->plan->layouts[made->outs[0]].offset &&
         fuser->graph->tensors[tensor].dtype == fuser->graph->tensors[made->outs[0]].dtype;
}

/// A written input: whoever read it in this group read the same elements.
static bool can_write(const struct fuser *fuser, int32_t group_index, int32_t node_index, int level) {
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  const int32_t storage = fuser->graph->tensors[node->outs[0]].storage;
  const struct graph_group *group = &fuser->fusion->groups[group_index];
  int64_t mine[DIT_GRAPH_MAX_DIMS], theirs[DIT_GRAPH_MAX_DIMS];
  if (!graph_map(fuser->plan, group, level, node->kind == DIT_NODE_REDUCE ? get_tensor(fuser, node, 0) : node->outs[0],
                 node->outs[0], mine) ||
      !suits_rows(group, mine)) {
    return false;
  }
  if (fuser->fusion->producer[storage] >= 0 || fuser->plan->storages[storage].place != DIT_PLACE_INPUT) {
    return true;
  }
  if (level == DIT_LEVEL_ROW ||
      (fuser->writer[storage] >= 0 && fuser->fusion->group_of[fuser->writer[storage]] == group_index)) {
    return false;
  }
  for (int32_t r = fuser->reader_head[storage]; r >= 0; r = fuser->reader_next[r]) {
    const int32_t other = fuser->reader_node[r];
    if (fuser->fusion->group_of[other] != group_index) {
      continue;
    }
    const struct dit_graph_node *reader = &fuser->graph->nodes[other];
    for (int k = 0; k < reader->nargs; k++) {
      const int32_t tensor = get_tensor(fuser, reader, k);
      if (tensor < 0 || fuser->graph->tensors[tensor].storage != storage) {
        continue;
      }
      const int32_t shape = reader->kind == DIT_NODE_REDUCE ? tensor : reader->outs[0];
      if (fuser->fusion->level[other] != DIT_LEVEL_ELEMENT || reader->kind == DIT_NODE_REDUCE ||
          !graph_map(fuser->plan, group, DIT_LEVEL_ELEMENT, shape, tensor, theirs) ||
          memcmp(mine, theirs, sizeof mine) != 0 ||
          fuser->plan->layouts[tensor].offset != fuser->plan->layouts[node->outs[0]].offset) {
        return false;
      }
    }
  }
  return true;
}

static bool has_space(const struct graph_group *group, int count, const int64_t *space, int level) {
  const int wanted = level == DIT_LEVEL_ROW ? group->nouter : group->nouter + group->ninner;
  return count == wanted && memcmp(space, group->space, (size_t)count * sizeof *space) == 0;
}

/// The kind that the group has with this node in it, and the node's level; -1: it does not fit.
static int find_level(const struct fuser *fuser, struct graph_group *group, int32_t node_index) {
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  int64_t space[DIT_GRAPH_MAX_DIMS];
  if (node->kind == DIT_NODE_POINT) {
    const int count = get_space(fuser->plan, node->outs[0], space);
    if (has_space(group, count, space, DIT_LEVEL_ELEMENT)) {
      return DIT_LEVEL_ELEMENT;
    }
    return group->region_kind == DIT_REGION_ROWS && !is_long(group) && has_space(group, count, space, DIT_LEVEL_ROW)
               ? DIT_LEVEL_ROW
               : -1;
  }
  const int32_t in = get_tensor(fuser, node, 0);
  const int ndim = fuser->graph->tensors[in].ndim;
  const int count = get_space(fuser->plan, in, space);
  int front = 0, front_dims = node->folded > 0 ? ndim - node->folded : -node->folded;
  for (int d = 0; d < front_dims; d++) {
    front += fuser->plan->layouts[in].sizes[d] != 1;
  }
  const enum dit_region_kind kind = node->folded > 0 ? DIT_REGION_ROWS : DIT_REGION_COLUMNS;
  if (!has_space(group, count, space, DIT_LEVEL_ELEMENT)) {
    return -1;
  }
  if (group->region_kind == DIT_REGION_POINTWISE) {
    group->region_kind = (uint8_t)kind;
    group->nouter = front;
    group->ninner = count - front;
  }
  return group->region_kind == kind && group->nouter == front ? DIT_LEVEL_ELEMENT : -1;
}

/// Would all that is in the group already be one walk per row in its new kind?
static bool suits_members(const struct fuser *fuser, int32_t group_index) {
  const struct graph_group *group = &fuser->fusion->groups[group_index];
  int64_t strides[DIT_GRAPH_MAX_DIMS];
  for (int32_t n = group->first; group->nnodes && n <= group->last; n++) {
    if (fuser->fusion->group_of[n] != group_index) {
      continue;
    }
    const struct dit_graph_node *node = &fuser->graph->nodes[n];
    const int32_t shape = node->kind == DIT_NODE_REDUCE ? get_tensor(fuser, node, 0) : node->outs[0];
    const int level = node->kind == DIT_NODE_REDUCE ? DIT_LEVEL_ELEMENT : fuser->fusion->level[n];
    if (!graph_map(fuser->plan, group, level, shape, node->outs[0], strides) || !suits_rows(group, strides)) {
      return false;
    }
    for (int k = 0; k < node->nargs; k++) {
      const int32_t tensor = get_tensor(fuser, node, k);
      if (tensor >= 0 &&
          (!graph_map(fuser->plan, group, level, shape, tensor, strides) || !suits_rows(group, strides))) {
        return false;
      }
    }
  }
  return true;
}

static bool is_made_here(const struct fuser *fuser, int32_t group_index, int32_t storage) {
  const int32_t producer = fuser->fusion->producer[storage];
  return producer >= 0 && fuser->fusion->group_of[producer] == group_index;
}

/// Does somebody outside of the group that makes the storage read it, as far as is known?
static bool is_pending(const struct fuser *fuser, int32_t storage) {
  return fuser->plan->storages[storage].place != DIT_PLACE_ARENA || fuser->inside[storage] < fuser->uses[storage];
}

static void count_out(struct fuser *fuser, int32_t group_index, int32_t node_index) {
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  for (int k = 0; k < node->nargs; k++) {
    const int32_t tensor = get_tensor(fuser, node, k);
    const int32_t storage = tensor < 0 ? -1 : fuser->graph->tensors[tensor].storage;
    if (storage >= 0 && is_made_here(fuser, group_index, storage)) {
      fuser->inside[storage]--;
    }
  }
}

/// Counts what the node adds to the group: values, loads, results for others. False: it does not fit.
static bool count_in(struct fuser *fuser, int32_t group_index, int32_t node_index, int level) {
  struct graph_group *group = &fuser->fusion->groups[group_index];
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  int32_t npending = group->npending + 1;
  group->nvalues++;
  for (int k = 0; k < node->nargs; k++) {
    const int32_t tensor = get_tensor(fuser, node, k);
    if (tensor < 0) {
      group->nvalues++;
      continue;
    }
    const int32_t storage = fuser->graph->tensors[tensor].storage;
    if (is_made_here(fuser, group_index, storage)) {
      continue;
    }
    struct graph_load load = {.tensor = tensor, .level = (uint8_t)level};
    (void)graph_map(fuser->plan, group, level, node->kind == DIT_NODE_REDUCE ? tensor : node->outs[0], tensor,
                    load.strides);
    bool is_known = false;
    for (int i = 0; i < group->nloads && !is_known; i++) {
      is_known = group->loads[i].level == level && graph_is_same_begin(fuser->plan, group->loads[i].tensor, tensor) &&
                 memcmp(group->loads[i].strides, load.strides, sizeof load.strides) == 0;
    }
    if (!is_known && group->nloads == DIT_REGION_MAX_OPERANDS) {
      return false;
    }
    if (!is_known) {
      group->loads[group->nloads++] = load;
      group->nvalues++;
    }
  }
  for (int k = 0; k < node->nargs; k++) {  // results that the node is the last one to need
    const int32_t tensor = get_tensor(fuser, node, k);
    const int32_t storage = tensor < 0 ? -1 : fuser->graph->tensors[tensor].storage;
    if (storage >= 0 && is_made_here(fuser, group_index, storage)) {
      fuser->inside[storage]++;
      npending -= !is_pending(fuser, storage);
    }
  }
  group->npending = npending;
  if (group->nvalues > DIT_REGION_MAX_OPS || group->nloads + npending > DIT_REGION_MAX_OPERANDS) {
    count_out(fuser, group_index, node_index);
    return false;
  }
  return true;
}

/// Would the group have to wait for something that waits for it?
static bool is_cycle(const struct fuser *fuser, int32_t group_index) {
  for (int i = 0; i < fuser->nneeds; i++) {
    if (fuser->needs[i] != group_index && waits_for(fuser, fuser->needs[i], group_index)) {
      return true;
    }
  }
  return false;
}

static bool is_full(const struct fuser *fuser, const struct graph_group *group, int32_t node_index) {
  const int32_t limit = fuser->refused->limit[node_index];
  return (limit && group->nnodes >= limit) || (group->limit && group->nnodes >= group->limit);
}

static bool try_join(struct fuser *fuser, int32_t group_index, int32_t node_index) {
  struct graph_group *group = &fuser->fusion->groups[group_index];
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  const struct graph_group before = *group;
  if (group->kind != (fuser->taken[node_index] ? DIT_NODE_OPAQUE : DIT_NODE_REGION) || is_cycle(fuser, group_index)) {
    return false;
  }
  if (group->kind == DIT_NODE_OPAQUE) {
    return true;
  }
  if (is_full(fuser, group, node_index)) {
    return false;
  }
  const int level = find_level(fuser, group, node_index);
  bool fits = level >= 0 && (group->region_kind == before.region_kind || suits_members(fuser, group_index));
  for (int k = 0; fits && k < node->nargs; k++) {
    const int32_t tensor = get_tensor(fuser, node, k);
    fits = tensor < 0 || can_read(fuser, group_index, node_index, level, tensor);
  }
  fits = fits && can_write(fuser, group_index, node_index, level);
  fits = fits && count_in(fuser, group_index, node_index, level);
  if (!fits) {
    *group = before;
    return false;
  }
  fuser->fusion->level[node_index] = node->kind == DIT_NODE_REDUCE ? DIT_LEVEL_ROW : (uint8_t)level;
  return true;
}

static void enter(struct fuser *fuser, int32_t group_index, int32_t node_index) {
  struct graph_group *group = &fuser->fusion->groups[group_index];
  fuser->fusion->group_of[node_index] = group_index;
  group->first = group->nnodes ? group->first : node_index;
  group->last = node_index;
  group->nnodes++;
  const int32_t limit = fuser->refused->limit[node_index];
  group->limit = limit && (!group->limit || limit < group->limit) ? limit : group->limit;
  for (int i = 0; i < fuser->nneeds; i++) {
    add_wait(fuser, group_index, fuser->needs[i]);
  }
}

static void need(struct fuser *fuser, int32_t node) {
  if (node >= 0) {
    fuser->needs[fuser->nneeds++] = fuser->fusion->group_of[node];
  }
}

static void visit_arg(struct fuser *fuser, const struct dit_graph_arg *arg, int32_t reader) {
  if (arg->tag == DIT_ARG_TENSOR) {
    const int32_t storage = fuser->graph->tensors[arg->dim.value].storage;
    if (reader < 0) {
      need(fuser, fuser->writer[storage]);
    } else {
      fuser->reader_node[fuser->nreaders] = reader;
      fuser->reader_next[fuser->nreaders] = fuser->reader_head[storage];
      fuser->reader_head[storage] = fuser->nreaders++;
    }
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    visit_arg(fuser, &fuser->graph->args[arg->first + i], reader);
  }
}

static void collect_needs(struct fuser *fuser, int32_t node_index) {
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  fuser->nneeds = 0;
  for (int k = 0; k < node->nargs; k++) {
    visit_arg(fuser, &fuser->graph->args[node->first_arg + k], -1);
  }
  for (int k = 0; k < node->nouts; k++) {  // a written input waits for whoever read or wrote it before
    if (node->outs[k] >= 0) {
      const int32_t storage = fuser->graph->tensors[node->outs[k]].storage;
      need(fuser, fuser->writer[storage]);
      for (int32_t r = fuser->reader_head[storage]; r >= 0; r = fuser->reader_next[r]) {
        need(fuser, fuser->reader_node[r]);
      }
    }
  }
  if (graph_draws(node)) {
    need(fuser, fuser->last_ordered);  // in the program's order
  }
}

static int32_t find_group(struct fuser *fuser, int32_t node_index) {
  for (int i = 0; i < fuser->nneeds; i++) {
    if (try_join(fuser, fuser->needs[i], node_index)) {
      return fuser->needs[i];
    }
  }
  int tried = 0;
  const uint8_t kind = fuser->taken[node_index] ? DIT_NODE_OPAQUE : DIT_NODE_REGION;
  for (int32_t g = fuser->fusion->ngroups - 1; g >= 0 && tried < RECENT; g--) {
    if (fuser->fusion->groups[g].kind == kind) {
      tried++;
      if (try_join(fuser, g, node_index)) {
        return g;
      }
    }
  }
  return -1;
}

static enum dit_status start_group(struct fuser *fuser, int32_t node_index, int32_t *out, struct dit_error *err) {
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  const int32_t index = fuser->fusion->ngroups++;
  struct graph_group *group = &fuser->fusion->groups[index];
  *out = index;
  if (fuser->taken[node_index]) {
    group->kind = DIT_NODE_OPAQUE;
    return DIT_OK;
  }
  if (node->kind != DIT_NODE_POINT && node->kind != DIT_NODE_REDUCE) {
    group->kind = node->kind;
    return DIT_OK;
  }
  if (!fuser->plan->engine->compile) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "graph: the engine '%s' does not run %s, and makes no regions",
                         fuser->plan->engine->name, dit_region_op_get_name(node->op));
  }
  group->kind = DIT_NODE_REGION;
  group->region_kind = DIT_REGION_POINTWISE;
  group->loads = graph_pool_take(fuser->list, DIT_REGION_MAX_OPERANDS, sizeof *group->loads);
  if (!group->loads) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory to fuse in");
  }
  group->nouter = graph_get_space(fuser->plan, node_index, group->space);
  if (!try_join(fuser, index, node_index)) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "graph: node %d (%s): shapes that do not go together", node_index,
                         dit_region_op_get_name(node->op));
  }
  return DIT_OK;
}

static enum dit_status fuse_node(struct fuser *fuser, int32_t node_index, struct dit_error *err) {
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  collect_needs(fuser, node_index);
  int32_t group = -1;
  if (node->kind == DIT_NODE_POINT || node->kind == DIT_NODE_REDUCE || fuser->taken[node_index]) {
    group = find_group(fuser, node_index);
  }
  if (group < 0) {
    DIT_RETURN_IF_NOT_OK(start_group(fuser, node_index, &group, err));
  }
  enter(fuser, group, node_index);
  for (int k = 0; k < node->nargs; k++) {
    visit_arg(fuser, &fuser->graph->args[node->first_arg + k], node_index);
  }
  for (int k = 0; k < node->nouts; k++) {
    if (node->outs[k] >= 0) {
      const int32_t storage = fuser->graph->tensors[node->outs[k]].storage;
      fuser->writer[storage] = node_index;
      if (fuser->plan->storages[storage].place != DIT_PLACE_INPUT) {
        fuser->fusion->producer[storage] = node_index;
      }
    }
  }
  if (graph_draws(node)) {
    fuser->last_ordered = node_index;
  }
  return DIT_OK;
}

static bool is_ready(const struct fuser *fuser, const uint64_t *done, int32_t group) {
  for (int32_t w = 0; w < fuser->words; w++) {
    if (fuser->waits[(size_t)group * (size_t)fuser->words + (size_t)w] & ~done[w]) {
      return false;
    }
  }
  return true;
}

/// The groups in an order in which nobody waits for a later one; the earliest last node first. `ending`: the group
/// whose last node this is, -1: of none; `done`: a bit per group.
static void sort_groups(struct fuser *fuser, int32_t *ending, uint64_t *done) {
  struct graph_fusion *fusion = fuser->fusion;
  for (int32_t n = 0; n < fuser->graph->nnodes; n++) {
    ending[n] = fusion->groups[fusion->group_of[n]].last == n ? fusion->group_of[n] : -1;
  }
  int32_t begin = 0;
  for (int32_t at = 0; at < fusion->ngroups; at++) {
    while (ending[begin] < 0) {
      begin++;
    }
    int32_t n = begin;  // no cycles: there is always one
    while (ending[n] < 0 || !is_ready(fuser, done, ending[n])) {
      n++;
    }
    fusion->order[at] = ending[n];
    done[ending[n] / 64] |= UINT64_C(1) << (ending[n] % 64);
    ending[n] = -1;
  }
}

static void see_arg(struct graph_fusion *fusion, const struct dit_graph *graph, const struct dit_graph_arg *arg,
                    int32_t group) {
  if (arg->tag == DIT_ARG_TENSOR) {
    const int32_t storage = graph->tensors[arg->dim.value].storage, producer = fusion->producer[storage];
    fusion->seen[storage] |= producer >= 0 && fusion->group_of[producer] != group;
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    see_arg(fusion, graph, &graph->args[arg->first + i], group);
  }
}

static void find_seen(struct graph_fusion *fusion, const struct dit_graph *graph) {
  for (int32_t n = 0; n < graph->nnodes; n++) {
    for (int k = 0; k < graph->nodes[n].nargs; k++) {
      see_arg(fusion, graph, &graph->args[graph->nodes[n].first_arg + k], fusion->group_of[n]);
    }
  }
}

static void count_uses(struct fuser *fuser, const struct dit_graph_arg *arg) {
  if (arg->tag == DIT_ARG_TENSOR) {
    fuser->uses[fuser->graph->tensors[arg->dim.value].storage]++;
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    count_uses(fuser, &fuser->graph->args[arg->first + i]);
  }
}

static bool is_of_host(const struct dit_graph *graph, const struct dit_graph_arg *arg) {
  if (arg->tag == DIT_ARG_TENSOR) {
    return (graph->tensors[arg->dim.value].flags & DIT_GRAPH_HOST) != 0;
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    if (is_of_host(graph, &graph->args[arg->first + i])) {
      return true;
    }
  }
  return false;
}

/// Does the engine take the node in a subgraph?
static bool is_taken(const struct fuser *fuser, int32_t node_index) {
  const struct dit_graph_engine *engine = fuser->plan->engine;
  const struct dit_graph_node *node = &fuser->graph->nodes[node_index];
  if (!engine || !engine->compile_graph || fuser->refused->subgraph[node_index] || graph_draws(node)) {
    return false;
  }
  for (int k = 0; k < node->nargs; k++) {
    if (is_of_host(fuser->graph, &fuser->graph->args[node->first_arg + k])) {
      return false;
    }
  }
  for (int k = 0; k < node->nouts; k++) {
    if (node->outs[k] >= 0 && (fuser->graph->tensors[node->outs[k]].flags & DIT_GRAPH_HOST)) {
      return false;
    }
  }
  return engine->supports_node(fuser->graph, node_index, fuser->plan->device);
}

enum dit_status graph_fuse(struct dit_graph_plan *plan, struct graph_piece **list, const struct graph_refused *refused,
                           struct graph_fusion *fusion, struct dit_error *err) {
  const struct dit_graph *graph = plan->graph;
  const size_t nodes = (size_t)graph->nnodes, storages = (size_t)graph->nstorages;
  size_t uses = (size_t)graph->nargs;
  for (int32_t i = 0; i < graph->nnodes; i++) {  // a pool argument may be used by several nodes, and by lists
    for (int32_t k = 0; k < graph->nodes[i].nargs; k++) {
      uses += 1 + (size_t)graph->args[graph->nodes[i].first_arg + k].count;
    }
  }
  struct fuser fuser = {.plan = plan, .graph = graph, .fusion = fusion, .last_ordered = -1, .refused = refused};
  fuser.words = (graph->nnodes + 63) / 64;
  fusion->groups = graph_pool_take(list, nodes, sizeof *fusion->groups);
  fusion->group_of = graph_pool_take(list, nodes, sizeof *fusion->group_of);
  fusion->level = graph_pool_take(list, nodes, 1);
  fusion->order = graph_pool_take(list, nodes, sizeof *fusion->order);
  fusion->producer = graph_pool_take(list, storages, sizeof *fusion->producer);
  fuser.waits = graph_pool_take(list, nodes * (size_t)fuser.words, sizeof *fuser.waits);
  fuser.writer = graph_pool_take(list, storages, sizeof *fuser.writer);
  fuser.uses = graph_pool_take(list, storages, sizeof *fuser.uses);
  fuser.inside = graph_pool_take(list, storages, sizeof *fuser.inside);
  fuser.reader_head = graph_pool_take(list, storages, sizeof *fuser.reader_head);
  fuser.reader_next = graph_pool_take(list, uses, sizeof *fuser.reader_next);
  fuser.reader_node = graph_pool_take(list, uses, sizeof *fuser.reader_node);
  fuser.needs = graph_pool_take(list, 2 * uses + nodes + 2, sizeof *fuser.needs);
  fuser.taken = graph_pool_take(list, nodes, 1);
  fusion->seen = graph_pool_take(list, storages, 1);
  fusion->values = graph_pool_take(list, nodes, sizeof *fusion->values);
  int32_t *ending = graph_pool_take(list, nodes, sizeof *ending);
  uint64_t *done = graph_pool_take(list, (size_t)fuser.words, sizeof *done);
  fuser.list = list;
  if (!fusion->groups || !fusion->group_of || !fusion->level || !fusion->order || !fusion->producer || !fuser.waits ||
      !fuser.writer || !fuser.uses || !fuser.inside || !fuser.reader_head || !fuser.reader_next || !fuser.reader_node ||
      !fuser.needs || !fuser.taken || !fusion->seen || !fusion->values || !ending || !done) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory to fuse in");
  }
  for (size_t i = 0; i < storages; i++) {
    fuser.writer[i] = fuser.reader_head[i] = fusion->producer[i] = -1;
  }
  memset(fusion->group_of, -1, nodes * sizeof *fusion->group_of);
  for (int32_t i = 0; i < graph->nnodes; i++) {
    for (int32_t k = 0; k < graph->nodes[i].nargs; k++) {
      count_uses(&fuser, &graph->args[graph->nodes[i].first_arg + k]);
    }
    fuser.taken[i] = is_taken(&fuser, i);
  }
  for (int32_t i = 0; i < graph->nnodes; i++) {
    DIT_RETURN_IF_NOT_OK(fuse_node(&fuser, i, err));
  }
  sort_groups(&fuser, ending, done);
  find_seen(fusion, graph);
  return DIT_OK;
}
