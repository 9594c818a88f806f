/// The kernels of vendors/host/ops/foreach_expressions.h.
#include "pointwise.cuh"
#include "ops/foreach_expressions.h"
