/// What gather and scatter share.
#ifndef DIT_HOST_OPS_GATHER_H
#define DIT_HOST_OPS_GATHER_H

#include "engine/nest.h"
#include "layout.h"

/// `index` has the dimensions of `whole` and is nowhere longer but along `dim`. An index without elements always fits.
diopiError_t gather_check(struct frame *frame, const struct dit_tensor_view *whole, const char *name,
                          const struct dit_tensor_view *index, int dim);
/// `view` with the sizes of `index`, standing still along `dim` (-1: moving along all).
void gather_limit(struct layout *layout, const struct dit_tensor_view *view, const struct dit_tensor_view *index,
                  int dim);

struct gather_task {
  struct frame *frame;
  struct dit_tensor_view out, input, index;
  int dim;
  struct nest nest;
  int64_t step;  ///< of dim in input, in bytes
};

/// The work, after everything but the positions was checked.
diopiError_t gather_run(struct gather_task *task);

enum scatter_mode { SCATTER_SET, SCATTER_ADD, SCATTER_MULTIPLY };

struct scatter_task {
  struct frame *frame;
  struct dit_tensor_view self, copied, src, index;
  bool has_copied;  ///< self is first a copy of `copied`, or zeros where that has no handle
  int dim;
  enum scatter_mode mode;
  _Alignas(16) char value[16];
  struct nest nest;  ///< self, index, src, all at the first step of dim
  int64_t count;     ///< steps of index along dim
  int64_t self_step, index_step, src_step;
  int width;
  bool wide;
};
/// self as it is before anything is scattered: a copy, or zeros.
diopiError_t scatter_prepare(struct scatter_task *task);
diopiError_t scatter_run(struct scatter_task *task);
bool scatter_has_dtype(enum scatter_mode mode, int dtype);

#endif
