/// What gather and scatter share.
#ifndef DIT_HOST_OPS_GATHER_H
#define DIT_HOST_OPS_GATHER_H

#include "layout.h"

/// `index` has the dimensions of `whole` and is nowhere longer but along `dim`. An index without elements always fits.
diopiError_t gather_check(struct frame *frame, const struct dit_tensor_view *whole, const char *name,
                          const struct dit_tensor_view *index, int dim);
/// `view` with the sizes of `index`, standing still along `dim` (-1: moving along all).
void gather_limit(struct layout *layout, const struct dit_tensor_view *view, const struct dit_tensor_view *index,
                  int dim);

#endif
