/// The kernels of vendors/host/ops/ternary_expressions.h.
#include "pointwise.cuh"
#include "ops/ternary_expressions.h"
