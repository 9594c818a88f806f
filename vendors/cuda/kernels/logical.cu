/// The kernels of vendors/host/ops/logical_expressions.h.
#include "pointwise.cuh"
#include "ops/logical_expressions.h"
