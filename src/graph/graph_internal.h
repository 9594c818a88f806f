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

/// Does the node draw random numbers? Those run in the program's order, each by itself.
static inline bool graph_draws(const struct dit_graph_node *node) {
  return node->kind != DIT_NODE_POINT && node->kind != DIT_NODE_REDUCE && node->folded != 0;
}

/// What a region reads: the same elements in the same order are loaded once.
struct graph_load {
  int32_t tensor;
  uint8_t level;
  int64_t strides[DIT_GRAPH_MAX_DIMS];
};

/// A step before it has memory: nodes that run together.
struct graph_group {
  uint8_t kind;         ///< enum dit_graph_node_kind: ROW, ISLAND, REGION or OPAQUE
  uint8_t region_kind;  ///< enum dit_region_kind
  int32_t nouter, ninner;
  int64_t space[DIT_GRAPH_MAX_DIMS];          ///< sizes without ones: the outer dimensions, then those of a row
  int32_t first, last;                        ///< nodes
  int32_t nnodes, nvalues, nloads, npending;  ///< pending: results that somebody outside may still need
  int32_t limit;                              ///< most nodes; 0: no limit
  struct graph_load *loads;                   ///< REGION, while it is made: room for DIT_REGION_MAX_OPERANDS
};

/// What the engine has refused of a graph so far: what the next attempt at a plan leaves out.
struct graph_refused {
  uint8_t *subgraph;  ///< per node: not in a subgraph any more
  int32_t *limit;     ///< per node: most nodes of a region that it is in; 0: no limit
  bool again;         ///< this attempt is over
};

/// Fusion: which group each node belongs to, and the order of the groups.
struct graph_fusion {
  int32_t ngroups;
  struct graph_group *groups;
  int32_t *group_of;  ///< per node
  uint8_t *level;     ///< per node of a region: enum dit_region_level
  int32_t *producer;  ///< per storage: the node that defines it; -1: an input
  int32_t *order;     ///< groups in the order they run
  uint8_t *seen;      ///< per storage: a node of another group than its producer's reads it
  int16_t *values;    ///< per node: room for a region's values while it is written
};

/// Strides of a tensor over the group's space at a level: of the node's shape `shape`, which tensor `tensor` is
/// broadcast to. False: the shape is not of this space.
bool graph_map(const struct dit_graph_plan *plan, const struct graph_group *group, int level, int32_t shape,
               int32_t tensor, int64_t *strides);

/// Do two tensors begin at the same element of one memory, with the same dtype?
bool graph_is_same_begin(const struct dit_graph_plan *plan, int32_t tensor, int32_t other);

DIT_NODISCARD enum dit_status graph_fuse(struct dit_graph_plan *plan, struct graph_piece **list,
                                         const struct graph_refused *refused, struct graph_fusion *fusion,
                                         struct dit_error *err);
/// Sizes without ones of what a node walks over; how many.
int graph_get_space(const struct dit_graph_plan *plan, int32_t node, int64_t *space);

/// Fusions that plans of one graph share (known.c). NULL: there is no memory for it, and every plan fuses.
struct graph_known *graph_known_create(const struct dit_graph *graph);
void graph_known_destroy(struct graph_known *known);  ///< NULL allowed
/// The fusion of a plan whose layouts are set; `list` owns what is made. False: it is not known yet, and may be added
/// under the signature; NULL: it may not.
bool graph_known_find(const struct dit_graph_plan *plan, struct graph_piece **list, int32_t **signature,
                      struct graph_fusion *fusion);
void graph_known_add(const struct dit_graph_plan *plan, const int32_t *signature, const struct graph_fusion *fusion);

/// A region that the engine refuses is noted in `refused`.
DIT_NODISCARD enum dit_status graph_build_region(struct dit_graph_plan *plan, struct graph_piece **list,
                                                 const struct graph_fusion *fusion, int32_t group,
                                                 struct graph_refused *refused, struct dit_graph_step *step,
                                                 struct dit_error *err);
/// Does a node outside of the group that makes the storage read it, or does somebody outside of the graph?
bool graph_is_seen(const struct dit_graph_plan *plan, const struct graph_fusion *fusion, int32_t storage);

/// A subgraph as words: what it reads (memory that comes from outside) and makes for others.
struct graph_subgraph {
  int64_t *words;
  size_t count;
  int32_t nreads, noperands;
  int32_t *tensors;  ///< the definers of that memory; those that are read come first
};
DIT_NODISCARD enum dit_status graph_write_subgraph(const struct dit_graph_plan *plan, struct graph_piece **list,
                                                   const struct graph_fusion *fusion, int32_t group,
                                                   struct graph_subgraph *out, struct dit_error *err);

/// Programs of a plan; a plan's subgraphs with the same words share one.
struct graph_program {
  struct graph_program *next;
  const int64_t *words;
  size_t count;
  void *program;
  int64_t workspace;
  bool is_kept;  ///< it came from disk
};
/// From the list, from disk, or from the engine. Not DIT_OK: the engine has refused, and says why.
DIT_NODISCARD enum dit_status graph_find_program(const struct dit_graph_plan *plan, struct graph_piece **list,
                                                 const struct graph_subgraph *subgraph, struct graph_program **programs,
                                                 struct graph_program **out, struct dit_error *err);
/// Places of the storages that regions write and nobody else sees: the arena.
DIT_NODISCARD enum dit_status graph_place(struct dit_graph_plan *plan, struct graph_piece **list,
                                          struct dit_error *err);

/// No memory is larger, so that a stride times a size, and an offset and a length, are numbers.
#define GRAPH_MOST_BYTES (INT64_MAX / 4)

/// Bytes from the first to behind the last element; -1 beyond GRAPH_MOST_BYTES, also where there are no elements.
int64_t graph_get_span(const struct dit_graph_layout *layout, int ndim, int dtype);

/// Mistakes on purpose (mistake.c); nothing where none is set.
bool graph_mistake_is_set(void);
void graph_mistake_region(struct dit_region *region, int32_t step);
void graph_mistake_layouts(struct dit_graph_plan *plan);
void graph_mistake_places(struct dit_graph_plan *plan);

#endif
