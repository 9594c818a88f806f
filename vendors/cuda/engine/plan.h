/// Small helpers of the launch plans.
#ifndef DIT_CUDA_ENGINE_PLAN_H
#define DIT_CUDA_ENGINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/nest.h"
#include "kernels/pointwise.h"

/// Can kernels read and write single elements of this dtype with conversion (kernels/kernel.cuh)?
bool plan_is_loadable(int dtype);
struct pointwise_divisor plan_get_divisor(int64_t divisor);
/// The nest as a kernel's parameters; false when it has too many dimensions.
bool plan_set_strided(struct pointwise_strided *strided, const struct nest *nest);

#endif
