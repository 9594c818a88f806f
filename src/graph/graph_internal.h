/// What the files of src/graph share.
#ifndef DIT_GRAPH_INTERNAL_H
#define DIT_GRAPH_INTERNAL_H

#include "dit/alloc.h"
#include "dit/graph.h"

/// Zeroed memory that lives as long as the list; NULL when there is none.
struct graph_piece;
void *graph_pool_take(struct graph_piece **list, size_t count, size_t size);
void graph_pool_free(struct graph_piece *list);

static inline bool graph_is_fold(int op) {
  return op == DIT_REGION_SUM || op == DIT_REGION_MAX || op == DIT_REGION_MIN;
}

/// What a region reads: the same elements in the same order are loaded once.
struct graph_load {
  int32_t tensor;
  uint8_t level;
  int64_t strides[DIT_GRAPH_MAX_DIMS];
};

/// A step before it has memory: nodes that run together.
struct graph_group {
  uint8_t kind;         ///< enum dit_graph_node_kind: ROW, ISLAND or REGION
  uint8_t region_kind;  ///< enum dit_region_kind
  int32_t nouter, ninner;
  int64_t space[DIT_GRAPH_MAX_DIMS];          ///< sizes without ones: the outer dimensions, then those of a row
  int32_t first, last;                        ///< nodes
  int32_t nnodes, nvalues, nloads, npending;  ///< pending: results that somebody outside may still need
  struct graph_load loads[DIT_REGION_MAX_OPERANDS];
};

/// Fusion: which group each node belongs to, and the order of the groups.
struct graph_fusion {
  int32_t ngroups;
  struct graph_group *groups;
  int32_t *group_of;  ///< per node
  uint8_t *level;     ///< per node of a region: enum dit_region_level
  int32_t *producer;  ///< per storage: the node that defines it; -1: an input
  int32_t *order;     ///< groups in the order they run
};

/// Strides of a tensor over the group's space at a level: of the node's shape `shape`, which tensor `tensor` is
/// broadcast to. False: the shape is not of this space.
bool graph_map(const struct dit_graph_plan *plan, const struct graph_group *group, int level, int32_t shape,
               int32_t tensor, int64_t *strides);

/// Do two tensors begin at the same element of one memory, with the same dtype?
bool graph_is_same_begin(const struct dit_graph_plan *plan, int32_t tensor, int32_t other);

DIT_NODISCARD enum dit_status graph_fuse(struct dit_graph_plan *plan, struct graph_piece **list,
                                         struct graph_fusion *fusion, struct dit_error *err);
DIT_NODISCARD enum dit_status graph_build_region(struct dit_graph_plan *plan, struct graph_piece **list,
                                                 const struct graph_fusion *fusion, int32_t group,
                                                 struct dit_graph_step *step, struct dit_error *err);
/// Places of the storages that regions write and nobody else sees: the arena.
DIT_NODISCARD enum dit_status graph_place(struct dit_graph_plan *plan, struct graph_piece **list,
                                          struct dit_error *err);

/// Bytes from the first to behind the last element; -1 beyond the range of int64.
int64_t graph_get_span(const struct dit_graph_layout *layout, int ndim, int dtype);

/// Mistakes on purpose (mistake.c); nothing where none is set.
void graph_mistake_region(struct dit_region *region, int32_t step);
void graph_mistake_layouts(struct dit_graph_plan *plan);
void graph_mistake_places(struct dit_graph_plan *plan);

#endif
