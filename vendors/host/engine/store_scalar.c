/// One number as one element of any dtype (see kernels.h).
#include "cast.h"
#include "kernels.h"

bool kernel_store_scalar(struct dit_scalar scalar, int dtype, void *dst) {
  switch (scalar.kind) {
    case DIT_SCALAR_BOOL:
    case DIT_SCALAR_INT:
      if (DIT_LIKELY(dtype == DIT_DTYPE_F32)) {
        *(float *)dst = (float)scalar.v.i;
        return true;
      }
      if (!cast_is_supported(dtype, DIT_DTYPE_I64)) {
        return false;
      }
      cast_block(dtype, dst, DIT_DTYPE_I64, &scalar.v.i, 1);
      return true;
    case DIT_SCALAR_DOUBLE:
      if (!cast_is_supported(dtype, DIT_DTYPE_F64)) {
        return false;
      }
      cast_block(dtype, dst, DIT_DTYPE_F64, &scalar.v.d, 1);
      return true;
    default:
      if (!cast_is_supported(dtype, DIT_DTYPE_C128)) {
        return false;
      }
      cast_block(dtype, dst, DIT_DTYPE_C128, &scalar.v.c, 1);
      return true;
  }
}
