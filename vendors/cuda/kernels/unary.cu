/// The kernels of vendors/host/ops/unary_expressions.h.
#include "pointwise.cuh"
#include "ops/unary_expressions.h"
