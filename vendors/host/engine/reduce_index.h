/// Where the largest or smallest element lies along one dimension.
#ifndef DIT_HOST_ENGINE_REDUCE_INDEX_H
#define DIT_HOST_ENGINE_REDUCE_INDEX_H

#include "dit/error.h"
#include "dit/tensor.h"

/// indices (int64) and, where `values` is not NULL, the elements themselves (in's dtype). Both have in's dimensions
/// with size 1 (or stride 0) in `dim`, which is not empty in `in`. The first of equal elements wins, the first NaN over
/// all. DIT_ERR_UNSUPPORTED for dtypes other than real numbers and bool.
enum dit_status reduce_index_launch(void *stream, bool largest, const struct dit_tensor_view *values,
                                    const struct dit_tensor_view *indices, const struct dit_tensor_view *in, int dim,
                                    struct dit_error *err);

#endif
