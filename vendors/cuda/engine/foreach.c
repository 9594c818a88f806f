/// List operators on CUDA (vendors/host/ops/foreach.h): tensors without gaps share launches, others have their own.
#include "ops/foreach.h"

#include <math.h>

#include "engine/reduce.h"
#include "list.h"

diopiError_t foreach_run_list(const struct foreach_list *all) {
  struct dit_error err = {.message = ""};
  diopiError_t code = diopiSuccess;
  list_begin();
  for (int64_t i = 0; i < all->count && code == diopiSuccess; i++) {
    struct elementwise e;
    code = all->prepare(all, i, &e);
    code = code == diopiSuccess ? elementwise_launch(&e) : code;
  }
  const enum dit_status status = list_end(&err);
  return code == diopiSuccess ? frame_get_code(all->frame, status, &err) : code;
}

static enum reduce_kind get_kind(double p) {
  if (isinf(p)) {
    return p > 0 ? REDUCE_NORM_MAX : REDUCE_NORM_MIN;
  }
  return p == 0 ? REDUCE_NORM_0 : p == 1 ? REDUCE_NORM_1 : p == 2 ? REDUCE_NORM_2 : REDUCE_NORM_P;
}

diopiError_t foreach_run_norms(const struct foreach_norms *list) {
  int64_t ones[DIT_MAX_DIMS], none[DIT_MAX_DIMS] = {0};
  for (int dim = 0; dim < DIT_MAX_DIMS; dim++) {
    ones[dim] = 1;
  }
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view o, x;
    struct dit_error err = {.message = ""};
    FRAME_TRY(frame_take(list->frame, "outs", list->outs[i], &o));
    FRAME_TRY(frame_take(list->frame, "inputs", list->inputs[i], &x));
    if (x.ndim == 0) {
      x.ndim = 1;
      x.sizes = x.strides = ones;
    }
    o.ndim = x.ndim;
    o.sizes = ones;
    o.strides = none;
    const uint32_t mask = (uint32_t)((UINT64_C(1) << x.ndim) - 1);
    const enum dit_status status = reduce_launch(list->frame->stream, get_kind(list->p), list->p, &o, &x, mask, &err);
    FRAME_TRY(frame_get_code(list->frame, status, &err));
  }
  return diopiSuccess;
}
