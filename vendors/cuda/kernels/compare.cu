/// The kernels of vendors/host/ops/compare_expressions.h.
#include "pointwise.cuh"
#include "ops/compare_expressions.h"
