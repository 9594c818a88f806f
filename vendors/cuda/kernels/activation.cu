/// The kernels of vendors/host/ops/activation_expressions.h.
#include "pointwise.cuh"
#include "ops/activation_expressions.h"
