/// Plans that are wrong on purpose: how the precision check is itself tested. Nothing here runs unless a mistake was
/// set, and no mistake reaches outside of the plan's memory.
#include "graph_internal.h"

static struct {
  enum dit_graph_mistake kind;
  int32_t which, seen, place;
} chosen = {.place = -1};

void dit_graph_set_mistake(enum dit_graph_mistake mistake, int32_t which) {
  chosen.kind = mistake;
  chosen.which = which;
  chosen.seen = 0;
  chosen.place = -1;
}

int32_t dit_graph_get_mistake(void) {
  return chosen.place;
}

bool graph_mistake_is_set(void) {
  return chosen.kind != DIT_MISTAKE_NONE;
}

static bool is_turn(enum dit_graph_mistake kind) {
  return chosen.kind == kind && chosen.seen++ == chosen.which;
}

void graph_mistake_region(struct dit_region *region, int32_t step) {
  if (chosen.kind == DIT_MISTAKE_TAIL && region->ndim && region->sizes[0] > 1 &&
      (region->kind != DIT_REGION_ROWS || region->ndim > 1) && is_turn(DIT_MISTAKE_TAIL)) {
    region->sizes[0] -= (region->sizes[0] + 3) / 4;
    chosen.place = step;
  }
  for (int i = 0; chosen.kind == DIT_MISTAKE_INDEX && i < region->noperands; i++) {
    struct dit_region_operand *operand = &region->operands[i];
    for (int d = 0; operand->stored < 0 && d < region->ndim; d++) {
      if (region->sizes[d] > 1 && operand->strides[d] > 0 && is_turn(DIT_MISTAKE_INDEX)) {
        operand->strides[d] = 0;
        chosen.place = step;
      }
    }
  }
}

void graph_mistake_layouts(struct dit_graph_plan *plan) {
  for (int32_t i = 0; chosen.kind == DIT_MISTAKE_ALIAS && i < plan->graph->ntensors; i++) {
    struct dit_graph_layout *layout = &plan->layouts[i];
    const int ndim = plan->graph->tensors[i].ndim;
    if (plan->storages[plan->graph->tensors[i].storage].tensor == i || layout->numel < 2) {
      continue;
    }
    if (layout->offset > 0) {
      if (is_turn(DIT_MISTAKE_ALIAS)) {
        layout->offset = 0;
        chosen.place = i;
      }
      continue;
    }
    for (int d = 0; d + 1 < ndim; d++) {
      if (layout->sizes[d] == layout->sizes[d + 1] && layout->sizes[d] > 1 &&
          layout->strides[d] != layout->strides[d + 1] && is_turn(DIT_MISTAKE_ALIAS)) {
        const int64_t kept = layout->strides[d];
        layout->strides[d] = layout->strides[d + 1];
        layout->strides[d + 1] = kept;
        chosen.place = i;
      }
    }
  }
}

void graph_mistake_places(struct dit_graph_plan *plan) {
  for (int32_t a = 0; chosen.kind == DIT_MISTAKE_REUSE && a < plan->graph->nstorages; a++) {
    const struct dit_graph_storage *kept = &plan->storages[a];
    for (int32_t b = 0; b < plan->graph->nstorages; b++) {
      struct dit_graph_storage *late = &plan->storages[b];
      if (a == b || kept->place != DIT_PLACE_ARENA || late->place != DIT_PLACE_ARENA || kept->first < 0 ||
          late->first <= kept->first || late->first >= kept->last || !kept->bytes || !late->bytes ||
          !is_turn(DIT_MISTAKE_REUSE)) {
        continue;
      }
      late->at = kept->at;
      const int64_t end = late->at + late->bytes;
      plan->arena = end > plan->arena ? end : plan->arena;
      chosen.place = a;
      return;
    }
  }
}
