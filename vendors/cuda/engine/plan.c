/// Small helpers of the launch plans (see plan.h).
#include "plan.h"

#include "dit/dtype.h"

/// Dtypes that kernels/kernel.cuh loads.
#define LOADABLE                                                                                     \
  (1ull << DIT_DTYPE_U8 | 1ull << DIT_DTYPE_I8 | 1ull << DIT_DTYPE_I16 | 1ull << DIT_DTYPE_I32 |     \
   1ull << DIT_DTYPE_I64 | 1ull << DIT_DTYPE_F16 | 1ull << DIT_DTYPE_F32 | 1ull << DIT_DTYPE_F64 |   \
   1ull << DIT_DTYPE_BOOL | 1ull << DIT_DTYPE_BF16 | 1ull << DIT_DTYPE_U16 | 1ull << DIT_DTYPE_U32 | \
   1ull << DIT_DTYPE_U64)

bool plan_is_loadable(int dtype) {
  return dtype >= 0 && dtype < 64 && LOADABLE >> dtype & 1;
}

/// q = (mulhi(n, magic) + n) >> shift for n below 2^31.
struct pointwise_divisor plan_get_divisor(int64_t divisor) {
  struct pointwise_divisor result = {.divisor = (uint32_t)divisor};
  while (result.shift < 32 && (UINT64_C(1) << result.shift) < (uint64_t)divisor) {
    result.shift++;
  }
  result.magic = (uint32_t)((((UINT64_C(1) << result.shift) - (uint64_t)divisor) << 32) / (uint64_t)divisor + 1);
  return result;
}

bool plan_set_strided(struct pointwise_strided *strided, const struct nest *nest) {
  if (nest->ndim > POINTWISE_KERNEL_DIMS) {
    return false;
  }
  *strided =
      (struct pointwise_strided){.numel = nest->numel, .ndim = (int16_t)nest->ndim, .is_wide = nest->numel > INT32_MAX};
  for (int dim = 0; dim < nest->ndim; dim++) {
    strided->sizes[dim] = nest->sizes[dim];
    if (!strided->is_wide) {
      strided->divisors[dim] = plan_get_divisor(nest->sizes[dim]);
    }
    for (int i = 0; i < nest->operands; i++) {
      strided->data[i] = nest->data[i];
      strided->strides[dim][i] = nest->strides[i][dim];
    }
  }
  return true;
}
