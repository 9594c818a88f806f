/// The kernels of vendors/host/ops/binary_expressions.h.
#include "pointwise.cuh"
#include "ops/binary_expressions.h"
