/// Memory: when each storage is first written and last used, and where in the arena those lie that nobody else sees.
///
/// Largest first, each at the lowest place that no storage of an overlapping life has taken.
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

static struct piece make_piece(int64_t bytes, int32_t first, int32_t last, int32_t number, int64_t *place) {
  return (struct piece){(bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, 0, first, last, number, place};
}

static int32_t list_pieces(struct dit_graph_plan *plan, struct piece *pieces, int64_t *largest) {
  int32_t count = 0;
  for (int32_t i = 0; i < plan->graph->nstorages; i++) {
    struct dit_graph_storage *storage = &plan->storages[i];
    if (storage->place != DIT_PLACE_ARENA || storage->first < 0) {
      continue;  // never written down: it lives in registers, or in a workspace
    }
    *largest = storage->bytes > *largest ? storage->bytes : *largest;
    if (storage->bytes <= GRAPH_MOST_BYTES) {
      pieces[count++] = make_piece(storage->bytes, storage->first, storage->last, i, &storage->at);
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
  if (!pieces) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  find_lives(plan);
  if (!list_releases(plan, list)) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a plan");
  }
  int64_t largest = 0;
  const int32_t count = list_pieces(plan, pieces, &largest);
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
  for (int32_t i = 0; i < count; i++) {
    pieces[i].at = find_place(pieces, i);
    *pieces[i].place = pieces[i].at;
    const int64_t end = pieces[i].at + pieces[i].bytes;
    plan->arena = end > plan->arena ? end : plan->arena;
  }
  if (count && plan->arena == 0) {
    plan->arena = 1;  // what has no elements has an address: NULL means that it is not there
  }
  return DIT_OK;
}
