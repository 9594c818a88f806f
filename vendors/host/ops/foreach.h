/// What list operators share: the norm of one tensor.
#ifndef DIT_HOST_OPS_FOREACH_H
#define DIT_HOST_OPS_FOREACH_H

#include "frame.h"

/// The p-norm of all elements (infinity: the largest magnitude, 0: the number of elements that are not 0), accumulated
/// in double, block by block on the calling thread. Device memory is open. DIT_ERR_UNSUPPORTED for other than float
/// types.
enum dit_status foreach_get_norm(const struct dit_tensor_view *view, double p, double *out);

#endif
