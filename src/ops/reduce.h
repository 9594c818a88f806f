/// What the reductions share: their tensor and the shape of their result (reduce.c).
#ifndef DIT_OPS_REDUCE_H
#define DIT_OPS_REDUCE_H

#include "invoke.h"

struct reduce_shape {
  uint32_t mask;  ///< bits of the reduced dimensions
  bool keep;
  int ndim;
  int64_t sizes[DIT_MAX_DIMS];
  int64_t reduced;  ///< elements that go into one result
};

/// The first argument, when it is a device tensor of a plain dtype; else NULL.
const struct dit_tensor_view *reduce_get_self(struct dit_call *call);
/// The shape from the arguments number `dims` and `keep` (-1: there is none). False for wrong or repeated dimensions.
bool reduce_infer_shape(const struct dit_call *call, const struct dit_tensor_view *self, int dims, int keep,
                        struct reduce_shape *shape);

#endif
