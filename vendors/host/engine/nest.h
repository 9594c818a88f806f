/// Loop nests: how every elementwise kernel walks its operands.
///
/// A nest holds up to NEST_OPERANDS operands of one shape. Dimensions of size 1 are dropped, the rest is sorted so that
/// the innermost one has the smallest strides (operand 0 decides first) and neighbours that walk memory as one are
/// fused. Strides are in bytes. It holds no pointers to the caller's memory but the data, so it may be copied onto a
/// stream.
#ifndef DIT_HOST_OPS_NEST_H
#define DIT_HOST_OPS_NEST_H

#include "dit/tensor.h"

#define NEST_OPERANDS 10
/// Elements per parallel task and per staging block.
#define NEST_GRAIN 32768
#define NEST_BLOCK 512

struct nest {
  int ndim;  ///< at least 1
  int operands;
  int64_t numel;
  char *data[NEST_OPERANDS];
  int64_t strides[NEST_OPERANDS][DIT_MAX_DIMS];  ///< [operand][dimension], dimension 0 innermost
  int64_t sizes[DIT_MAX_DIMS];
};

/// All views have the sizes of views[0].
void nest_init(struct nest *nest, int operands, const struct dit_tensor_view *const *views);
/// The same without sorting: elements are walked in row-major order of the views.
void nest_init_ordered(struct nest *nest, int operands, const struct dit_tensor_view *const *views);
/// Call `body` for runs along dimension 0 that cover the elements [begin, end) of the nest's own order. `data` are the
/// operands' addresses.
typedef void nest_body(void *context, char *const *data, int64_t count);
void nest_walk(const struct nest *nest, int64_t begin, int64_t end, nest_body *body, void *context);
/// The same over all elements, on several threads when it pays.
void nest_run(const struct nest *nest, nest_body *body, void *context);

#endif
