/// Memory: when each storage is first written and last used, and where in the arena those lie that nobody else sees.
///
/// Largest first, each at the lowest place that no storage of an overlapping life has taken. A result of an elementwise
/// region takes the place of an operand that nobody needs any more and that it walks in the same way: engines read an
/// element before they write it, as they have to for inputs that are changed.
#include <stdlib.h>
#include <string.h>

#include "graph_internal.h"

#define ALIGNMENT 64

static void use(struct dit_graph_plan *plan, int32_t tensor, int32_t step) {
  struct dit_graph_storage *storage = &plan->storages[plan->graph->tensors[tensor].storage];
  storage->first = storage->first < 0 ? step : storage->first;
  storage->last = step > storage->last ? step : storage->last;
}

static void use_arg(struct dit_graph_plan *plan, const struct dit_graph_arg *arg, int32_t step) {
  if (arg->tag == DIT_ARG_TENSOR) {
    use(plan, (int32_t)arg->dim.value, step);
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    use_arg(plan, &plan->graph->args[arg->first + i], step);
  }
}

static void find_lives(struct dit_graph_plan *plan) {
  const struct dit_graph *graph = plan->graph;
  for (int32_t i = 0; i < graph->nstorages; i++) {
    plan->storages[i].first = plan->storages[i].last = -1;
  }
  for (int32_t i = 0; i < plan->nsteps; i++) {
    const struct dit_graph_step *step = &plan->steps[i];
    if (step->kind == DIT_NODE_REGION || step->kind == DIT_NODE_OPAQUE) {
      for (int32_t k = 0; k < step->noperands; k++) {
        use(plan, step->tensors[k], i);
      }
      continue;
    }
    const struct dit_graph_node *node = &graph->nodes[step->node];
    for (int k = 0; k < node->nargs; k++) {
      use_arg(plan, &graph->args[node->first_arg + k], i);
    }
    for (int k = 0; k < node->nouts; k++) {
      if (node->outs[k] >= 0) {
        use(plan, node->outs[k], i);
      }
    }
  }
  for (int32_t i = 0; i < graph->noutputs; i++) {
    if (graph->outputs[i].tensor >= 0) {
      use(plan, graph->outputs[i].tensor, plan->nsteps);
    }
  }
}

/// Memory of the arena: a storage's, or a step's workspace.
struct piece {
  int64_t bytes, at;
  int32_t first, last;
  int32_t number;
  int64_t *place;  ///< where `at` is told
};

static int compare(const void *a, const void *b) {
  const struct piece *left = a, *right = b;
  return left->bytes != right->bytes ? (left->bytes < right->bytes) - (left->bytes > right->bytes)
                                     : (left->number > right->number) - (left->number < right->number);
}

static int64_t find_place(const struct piece *pieces, int32_t placed) {
  const struct piece *mine = &pieces[placed];
  int64_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t i = 0; i < placed; i++) {
      const struct piece *other = &pieces[i];
      if (other->first > mine->last || mine->first > other->last) {
        continue;
      }
      if (at < other->at + other->bytes && other->at < at + mine->bytes) {
        at = other->at + other->bytes;
        moved = true;
      }
    }
  }
  return at;
}

/// Which storages the framework may give back after each step: those that nobody uses later. One of the arena may be
/// among its own too, where an operator did not write to the memory that it was given.
static bool list_releases(struct dit_graph_plan *plan, struct graph_piece **list) {
  plan->releases = graph_pool_take(list, (size_t)plan->nsteps + 3, sizeof *plan->releases);
  plan->released = graph_pool_take(list, (size_t)plan->graph->nstorages, sizeof *plan->released);
  if (!plan->releases || !plan->released) {
    return false;
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t i = 0; i < plan->graph->nstorages; i++) {
      const struct dit_graph_storage *storage = &plan->storages[i];
      if (storage->last < 0 || storage->last >= plan->nsteps) {
        continue;
      }
      if (pass == 0) {
        plan->releases[storage->last + 2]++;
      } else {
        plan->released[plan->releases[storage->last + 1]++] = i;
      }
    }
    for (int32_t i = 0; pass == 0 && i < plan->nsteps; i++) {
      plan->releases[i + 2] += plan->releases[i + 1];
    }
  }
  return true;
}

/// Places that storages share, each with those that come after it in the same place.
struct sharing {
  int32_t *root;  ///< per storage: the first one in its place
  int32_t *last;  ///< per storage that is a root: the step that uses the place for the last time
};

/// Do two operands of a region begin at the same element of their memory, and go on alike?
static bool is_same_walk(const struct dit_graph_plan *plan, const struct dit_graph_step *step, int a, int b) {
  const struct dit_region_operand *left = &step->region->operands[a], *right = &step->region->operands[b];
  return left->dtype == right->dtype && memcmp(left->strides, right->strides, sizeof left->strides) == 0 &&
         plan->layouts[step->tensors[a]].offset == 0 && plan->layouts[step->tensors[b]].offset == 0;
}

/// Is every element of a region read before one is written to its place? Rows are read again behind their folds, and
/// those with sine or cosine that are far from zero, too.
static bool reads_once(const struct dit_region *region) {
  for (int i = 0; i < region->nops; i++) {
    const struct dit_region_op *op = &region->ops[i];
    for (int k = 0; op->level == DIT_LEVEL_ELEMENT && k < dit_region_op_get_arity(op->op); k++) {
      const struct dit_region_op *from = &region->ops[op->args[k]];
      if (from->level == DIT_LEVEL_ROW && from->op != DIT_REGION_LOAD && from->op != DIT_REGION_NUMBER) {
        return false;
      }
    }
    if (op->op == DIT_REGION_SIN || op->op == DIT_REGION_COS) {
      return false;
    }
  }
  return region->kind != DIT_REGION_COLUMNS;
}

static int32_t get_storage(const struct dit_graph_plan *plan, const struct dit_graph_step *step, int operand) {
  return plan->graph->tensors[step->tensors[operand]].storage;
}

/// The storage whose place the result `out` of step `at` may take; -1: none.
static int32_t find_shared(const struct dit_graph_plan *plan, const struct sharing *sharing, int32_t at, int out) {
  const struct dit_graph_step *step = &plan->steps[at];
  for (int i = 0; i < step->noperands; i++) {
    const int32_t index = get_storage(plan, step, i);
    const struct dit_graph_storage *storage = &plan->storages[index];
    if (storage->place != DIT_PLACE_ARENA || storage->last != at || storage->first >= at ||
        sharing->last[sharing->root[index]] != at ||
        plan->storages[sharing->root[index]].bytes < plan->storages[get_storage(plan, step, out)].bytes) {
      continue;
    }
    bool fits = true;
    for (int k = 0; k < step->noperands && fits; k++) {
      fits = get_storage(plan, step, k) != index || is_same_walk(plan, step, k, out);
    }
    if (fits) {
      return index;
    }
  }
  return -1;
}

static void share_places(const struct dit_graph_plan *plan, struct sharing *sharing) {
  for (int32_t i = 0; i < plan->graph->nstorages; i++) {
    sharing->root[i] = i;
    sharing->last[i] = plan->storages[i].last;
  }
  for (int32_t i = 0; i < plan->nsteps; i++) {
    const struct dit_graph_step *step = &plan->steps[i];
    for (int k = 0; step->kind == DIT_NODE_REGION && reads_once(step->region) && k < step->noperands; k++) {
      const int32_t made = get_storage(plan, step, k);
      const struct dit_graph_storage *storage = &plan->storages[made];
      if (step->region->operands[k].stored < 0 || storage->place != DIT_PLACE_ARENA || storage->first != i ||
          storage->last <= i || sharing->root[made] != made) {
        continue;
      }
      const int32_t shared = find_shared(plan, sharing, i, k);
      if (shared >= 0) {
        sharing->root[made] = sharing->root[shared];
        sharing->last[sharing->root[made]] = storage->last;
      }
    }
  }
}

static struct piece make_piece(int64_t bytes, int32_t first, int32_t last, int32_t number, int64_t *place) {
  return (struct piece){(bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, 0, first, last, number, place};
}

static int32_t list_pieces(struct dit_graph_plan *plan, const struct sharing *sharing, struct piece *pieces,
                           int64_t *largest) {
  int32_t count = 0;
  for (int32_t i = 0; i < plan->graph->nstorages; i++) {
    struct dit_graph_storage *storage = &plan->storages[i];
    if (storage->place != DIT_PLACE_ARENA || storage->first < 0) {
      continue;  // never written down: it lives in registers, or in a workspace
    }
    *largest = storage->bytes > *largest ? storage->bytes : *largest;
    if (storage->bytes <= GRAPH_MOST_BYTES && sharing->root[i] == i) {
      pieces[count++] = make_piece(storage->bytes, storage->first, sharing->last[i], i, &storage->at);
    }
  }
  for (int32_t i = 0; i < plan->nsteps; i++) {
    struct dit_graph_step *step = &plan->steps[i];
    *largest = step->workspace > *largest ? step->workspace : *largest;
    if (step->workspace > 0 && step->workspace <= GRAPH_MOST_BYTES) {
      pieces[count++] = make_piece(step->workspace, i, i, plan->graph->nstorages + i, &step->workspace_at);
    }
  }
  return count;
}

enum dit_status graph_place(struct dit_graph_plan *plan, struct graph_piece **list, struct dit_error *err) {
  struct piece *pieces = graph_pool_take(list, (size_t)plan->graph->nstorages + (size_t)plan->nsteps, sizeof *pieces);
  struct sharing sharing = {graph_pool_take(list, (size_t)plan->graph->nstorages, sizeof *sharing.root),
                            graph_pool_take(list, (size_t)plan->graph->nstorages, sizeof *sharing.last)};
  if (!pieces || !sharing.root || !sharing.last) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  find_lives(plan);
  if (!list_releases(plan, list)) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  share_places(plan, &sharing);
  int64_t largest = 0;
  const int32_t count = list_pieces(plan, &sharing, pieces, &largest);
  if (largest > GRAPH_MOST_BYTES) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: a tensor of %lld bytes", (long long)largest);
  }
  if (count) {
    qsort(pieces, (size_t)count, sizeof *pieces, compare);
  }
  for (int32_t i = 0; i < count; i++) {  // no place lies beyond the sum
    if (__builtin_add_overflow(plan->unplanned, pieces[i].bytes, &plan->unplanned)) {
      return dit_error_set(err, DIT_ERR_NOMEM, "graph: more memory than there is");
    }
  }
  for (int32_t i = 0; i < plan->graph->nstorages; i++) {
    const int64_t bytes = sharing.root[i] != i ? make_piece(plan->storages[i].bytes, 0, 0, i, NULL).bytes : 0;
    if (__builtin_add_overflow(plan->unplanned, bytes, &plan->unplanned)) {
      return dit_error_set(err, DIT_ERR_NOMEM, "graph: more memory than there is");
    }
  }
  for (int32_t i = 0; i < count; i++) {
    pieces[i].at = find_place(pieces, i);
    *pieces[i].place = pieces[i].at;
    const int64_t end = pieces[i].at + pieces[i].bytes;
    plan->arena = end > plan->arena ? end : plan->arena;
  }
  for (int32_t i = 0; i < plan->graph->nstorages; i++) {
    plan->storages[i].at = plan->storages[sharing.root[i]].at;
  }
  if (count && plan->arena == 0) {
    plan->arena = 1;  // what has no elements has an address: NULL means that it is not there
  }
  return DIT_OK;
}
