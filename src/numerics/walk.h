/// How the numeric passes walk tensors: fixed cuts of the work, loop nests, and chunks without strides.
///
/// A walk holds one or two tensors of one shape. Its elements are cut into at most WALK_SLOTS slots by their number
/// alone, so that partial results, one per slot and combined in order, do not depend on the number of threads. Within
/// a slot the elements come in chunks of at most WALK_CHUNK as packed arrays: the tensor's own memory where it is
/// packed, else a copy on the stack. Depends on include/dit and nothing else.
#ifndef DIT_NUMERICS_WALK_H
#define DIT_NUMERICS_WALK_H

#include "dit/tensor.h"

#define WALK_OPERANDS 2
#define WALK_SLOTS 64
/// Elements of a chunk, and the smallest slot.
#define WALK_CHUNK 1024
#define WALK_SLOT_MIN 32768
#define WALK_ELEMENT_MAX 16

enum walk_order {
  WALK_ANY,        ///< dimensions are sorted by stride: fastest
  WALK_ROW_MAJOR,  ///< the order of the indices
};

struct walk {
  int ndim;  ///< at least 1
  int operands;
  int64_t numel;
  int64_t slot;  ///< elements per slot: a multiple of WALK_CHUNK
  const char *data[WALK_OPERANDS];
  int64_t width[WALK_OPERANDS];                  ///< bytes of an element
  int64_t strides[WALK_OPERANDS][DIT_MAX_DIMS];  ///< in bytes; dimension 0 innermost
  int64_t sizes[DIT_MAX_DIMS];
};

/// DIT_ERR_INVALID or _UNSUPPORTED as include/dit/numerics.h says; `what` names the tensor in the message.
enum dit_status walk_check(const struct dit_tensor_view *view, const char *what, struct dit_error *err);
/// All views were checked and have the sizes of views[0].
void walk_init(struct walk *walk, int operands, const struct dit_tensor_view *const *views, enum walk_order order);

/// `begin` is the position of the chunk in the walk's order; `data` are packed elements, aligned like the tensor's own.
typedef void walk_body(void *context, const char *const *data, int64_t begin, int64_t count);
/// Call `body` for every chunk of [begin, end) in order.
void walk_range(const struct walk *walk, int64_t begin, int64_t end, walk_body *body, void *context);

/// Fill slot number `index` from the elements [begin, end).
typedef void walk_slot(void *context, int index, int64_t begin, int64_t end);
/// Run every slot, on several threads when there is more than one; returns their number (0 when empty).
int walk_run(const struct walk *walk, walk_slot *slot, void *context);

#endif
