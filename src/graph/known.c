/// Fusions that are known: which nodes run together, and in which order, is the same for all sizes that fusion cannot
/// tell apart. A plan for new sizes then redoes layouts, regions and memory alone.
///
/// Fusion asks whether numbers (sizes, strides, offsets) are equal, whether they are 0 or 1, whether the dimensions of
/// a tensor are one walk, and whether a row is longer than DIT_REGION_MAX_ROW. The signature answers all of that: for
/// each number that symbols make which constant of the graph it is, or the first such number that is equal; the walks
/// of each tensor; the long rows. Two sets of sizes with one signature have one fusion.
///
/// Entries stay until their graph goes; what is read of them never changes.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph_internal.h"

#define MOST 64  // entries of a graph

struct entry {
  struct entry *next;
  const struct dit_graph_engine *engine;
  int device;
  int32_t *signature;
  struct graph_fusion fusion;
};

struct graph_known {
  pthread_mutex_t mutex;
  struct graph_piece *list;
  struct entry *entries;
  int count;
  int64_t *constants;  ///< of the graph's tensors, 0 and 1 among them, in order and each once
  size_t nconstants;
};

static int compare(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

static void collect(const struct dit_graph *graph, struct graph_known *known) {
  known->constants[0] = 0;
  known->constants[1] = 1;
  size_t count = 2;
  for (int32_t i = 0; i < graph->ntensors; i++) {
    const struct dit_graph_tensor *tensor = &graph->tensors[i];
    for (int d = 0; d < 2 * tensor->ndim; d++) {
      if (tensor->sizes[d].kind == DIT_DIM_CONST) {
        known->constants[count++] = tensor->sizes[d].value;
      }
    }
    if (tensor->offset.kind == DIT_DIM_CONST) {
      known->constants[count++] = tensor->offset.value;
    }
  }
  qsort(known->constants, count, sizeof *known->constants, compare);
  for (size_t i = 0; i < count; i++) {
    if (!known->nconstants || known->constants[known->nconstants - 1] != known->constants[i]) {
      known->constants[known->nconstants++] = known->constants[i];
    }
  }
}

struct graph_known *graph_known_create(const struct dit_graph *graph) {
  struct graph_piece *list = NULL;
  struct graph_known *known = graph_pool_take(&list, 1, sizeof *known);
  int64_t *constants =
      graph_pool_take(&list, (size_t)graph->ntensors * (2 * DIT_GRAPH_MAX_DIMS + 1) + 2, sizeof *constants);
  if (!known || !constants || pthread_mutex_init(&known->mutex, NULL)) {
    graph_pool_free(list);
    return NULL;
  }
  known->list = list;
  known->constants = constants;
  collect(graph, known);
  return known;
}

void graph_known_destroy(struct graph_known *known) {
  if (known) {
    pthread_mutex_destroy(&known->mutex);
    graph_pool_free(known->list);  // itself is in there
  }
}

/// Which dimensions of a tensor, those of size 1 left out, can be walked with the next one: a bit each.
static int32_t get_walks(const struct dit_graph_layout *layout, int ndim) {
  int32_t walks = 0;
  int before = -1;
  for (int d = 0; d < ndim; d++) {
    if (layout->sizes[d] == 1) {
      continue;
    }
    int64_t whole;
    if (before >= 0 && !__builtin_mul_overflow(layout->strides[d], layout->sizes[d], &whole) &&
        layout->strides[before] == whole) {
      walks |= 1 << before;
    }
    before = d;
  }
  return walks;
}

static int32_t is_long(const struct dit_graph_plan *plan, const struct dit_graph_node *node) {
  const int32_t in = (int32_t)plan->graph->args[node->first_arg].dim.value;
  const int ndim = plan->graph->tensors[in].ndim;
  int64_t row = 1;
  for (int d = ndim - node->folded; d < ndim; d++) {
    row *= plan->layouts[in].sizes[d];
  }
  return row > DIT_REGION_MAX_ROW;
}

static size_t get_length(const struct dit_graph *graph) {
  return (size_t)graph->nsymbols + (size_t)graph->nexprs + (size_t)graph->ntensors + (size_t)graph->nnodes;
}

/// Numbers that are equal get the place of the first of them. `slots`: a table of `mask` + 1 places, all -1.
static int32_t find_class(const int64_t *values, int32_t index, int32_t *slots, size_t mask) {
  size_t at = ((uint64_t)values[index] * UINT64_C(0x9E3779B97F4A7C15) >> 32) & mask;
  while (slots[at] >= 0 && values[slots[at]] != values[index]) {
    at = (at + 1) & mask;
  }
  slots[at] = slots[at] < 0 ? index : slots[at];
  return slots[at];
}

/// NULL: no memory.
static int32_t *sign(const struct dit_graph_plan *plan, const struct graph_known *known, struct graph_piece **list) {
  const struct dit_graph *graph = plan->graph;
  const size_t symbols = (size_t)graph->nsymbols, count = symbols + (size_t)graph->nexprs;
  size_t mask = 16;
  while (mask < 2 * count) {
    mask *= 2;
  }
  int32_t *signature = graph_pool_take(list, get_length(graph), sizeof *signature);
  int64_t *values = graph_pool_take(list, count, sizeof *values);
  int32_t *slots = graph_pool_take(list, mask, sizeof *slots);
  if (!signature || !values || !slots) {
    return NULL;
  }
  memset(slots, -1, mask * sizeof *slots);
  for (size_t i = 0; i < count; i++) {
    values[i] = i < symbols ? plan->symbols[i] : plan->dims[i - symbols];
    const int64_t *same = bsearch(&values[i], known->constants, known->nconstants, sizeof *known->constants, compare);
    signature[i] = same ? (int32_t)(same - known->constants) : -1 - find_class(values, (int32_t)i, slots, mask - 1);
  }
  int32_t *walks = signature + count;
  for (int32_t i = 0; i < graph->ntensors; i++) {
    walks[i] = get_walks(&plan->layouts[i], graph->tensors[i].ndim);
  }
  int32_t *rows = walks + graph->ntensors;
  for (int32_t i = 0; i < graph->nnodes; i++) {
    const struct dit_graph_node *node = &graph->nodes[i];
    rows[i] = node->kind == DIT_NODE_REDUCE && node->folded > 0 && is_long(plan, node);
  }
  return signature;
}

/// The groups have the sizes of this plan.
static bool set_spaces(const struct dit_graph_plan *plan, const struct graph_fusion *fusion) {
  for (int32_t i = 0; i < fusion->ngroups; i++) {
    struct graph_group *group = &fusion->groups[i];
    if (group->kind == DIT_NODE_REGION &&
        graph_get_space(plan, group->first, group->space) != group->nouter + group->ninner) {
      return false;
    }
  }
  return true;
}

bool graph_known_find(const struct dit_graph_plan *plan, struct graph_piece **list, int32_t **signature,
                      struct graph_fusion *fusion) {
  struct graph_known *known = plan->graph->known;
  *signature = known ? sign(plan, known, list) : NULL;
  if (!*signature) {
    return false;
  }
  pthread_mutex_lock(&known->mutex);
  const struct entry *entry = known->entries;
  pthread_mutex_unlock(&known->mutex);
  const size_t bytes = get_length(plan->graph) * sizeof **signature;
  while (entry && (entry->engine != plan->engine || entry->device != plan->device ||
                   memcmp(entry->signature, *signature, bytes) != 0)) {
    entry = entry->next;
  }
  if (!entry) {
    return false;
  }
  *fusion = entry->fusion;
  fusion->groups = graph_pool_take(list, (size_t)fusion->ngroups, sizeof *fusion->groups);
  fusion->values = graph_pool_take(list, (size_t)plan->graph->nnodes, sizeof *fusion->values);
  if (!fusion->groups || !fusion->values) {
    return false;
  }
  memcpy(fusion->groups, entry->fusion.groups, (size_t)fusion->ngroups * sizeof *fusion->groups);
  return set_spaces(plan, fusion);
}

static void *copy(struct graph_known *known, const void *from, size_t count, size_t size, bool *is_whole) {
  void *to = graph_pool_take(&known->list, count, size);
  *is_whole = *is_whole && to;
  if (to && count) {
    memcpy(to, from, count * size);
  }
  return to;
}

void graph_known_add(const struct dit_graph_plan *plan, const int32_t *signature, const struct graph_fusion *fusion) {
  struct graph_known *known = plan->graph->known;
  const size_t nodes = (size_t)plan->graph->nnodes, storages = (size_t)plan->graph->nstorages;
  const size_t groups = (size_t)fusion->ngroups;
  pthread_mutex_lock(&known->mutex);
  if (known->count < MOST) {
    bool is_whole = true;
    struct entry *entry = copy(known, &(struct entry){.fusion = *fusion}, 1, sizeof *entry, &is_whole);
    int32_t *signed_as = copy(known, signature, get_length(plan->graph), sizeof *signature, &is_whole);
    struct graph_fusion kept = {
        .ngroups = fusion->ngroups,
        .groups = copy(known, fusion->groups, groups, sizeof *fusion->groups, &is_whole),
        .group_of = copy(known, fusion->group_of, nodes, sizeof *fusion->group_of, &is_whole),
        .level = copy(known, fusion->level, nodes, sizeof *fusion->level, &is_whole),
        .producer = copy(known, fusion->producer, storages, sizeof *fusion->producer, &is_whole),
        .order = copy(known, fusion->order, groups, sizeof *fusion->order, &is_whole),
        .seen = copy(known, fusion->seen, storages, sizeof *fusion->seen, &is_whole)};
    if (is_whole) {
      *entry = (struct entry){known->entries, plan->engine, plan->device, signed_as, kept};
      known->entries = entry;
      known->count++;
    }
  }
  pthread_mutex_unlock(&known->mutex);
}
