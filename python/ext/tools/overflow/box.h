/// Sets of bytes as strided views have them: subtraction and intersection (overflow/box.c).
#ifndef DIT_EXT_TOOLS_OVERFLOW_BOX_H
#define DIT_EXT_TOOLS_OVERFLOW_BOX_H

#include "engine/engine.h"

#define OVERFLOW_BOX_DIMS 10
#define OVERFLOW_BOX_PIECES 16  ///< that one subtraction may leave

/// Bytes start + sum(i[d] * stride[d]), 0 <= i[d] < size[d]. Strides fall, the last one is 1, and no two indices meet.
struct overflow_box {
  uintptr_t start;
  int ndim;
  int64_t size[OVERFLOW_BOX_DIMS], stride[OVERFLOW_BOX_DIMS];
};

/// The bytes of a tensor that has some. False: they are no box, as those of windows that overlap in a complicated way;
/// `box` is then the run from the first to the last byte.
bool overflow_box_set(struct overflow_box *box, const struct engine_tensor *tensor);
/// All bytes from `low` up to `high`.
void overflow_box_set_run(struct overflow_box *box, uintptr_t low, uintptr_t high);
struct engine_span overflow_box_get_span(const struct overflow_box *box);
int64_t overflow_box_get_bytes(const struct overflow_box *box);
/// How many bytes both have; -1: their strides do not fit each other, and some may be common.
int64_t overflow_box_meet(const struct overflow_box *a, const struct overflow_box *b);
/// `a` without `b` as disjoint boxes: how many there are in `out` (OVERFLOW_BOX_PIECES), or -1 when it cannot be said.
int overflow_box_subtract(const struct overflow_box *a, const struct overflow_box *b, struct overflow_box *out);

#endif
