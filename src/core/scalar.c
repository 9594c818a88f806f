/// Which dtypes can hold a number, as functions that write one into a tensor ask.
#include <math.h>

#include "dit/dtype.h"
#include "dit/tensor.h"

static bool fits_float(double value, double largest) {
  return isnan(value) || isinf(value) || fabs(value) <= largest;
}

static bool fits_integer(struct dit_scalar scalar, int bits, bool is_signed) {
  const double limit = ldexp(1, is_signed ? bits - 1 : bits);
  if (scalar.kind == DIT_SCALAR_DOUBLE) {
    const double low = is_signed ? -limit : -(limit - 1);  // an unsigned type takes negative numbers, which wrap
    const double value = trunc(scalar.v.d);
    return !isnan(value) && value >= low && value < limit;
  }
  if (bits == 64) {
    return true;
  }
  const int64_t high = (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;
  return scalar.v.i <= high && scalar.v.i >= (is_signed ? -high - 1 : -high);
}

bool dit_scalar_fits(struct dit_scalar scalar, int dtype) {
  const enum dit_dtype_class klass = dit_dtype_get_class(dtype);
  if (scalar.kind == DIT_SCALAR_COMPLEX) {
    return klass == DIT_DTYPE_CLASS_COMPLEX;
  }
  const double real = scalar.kind == DIT_SCALAR_DOUBLE ? scalar.v.d : (double)scalar.v.i;
  switch (dtype) {
    case DIT_DTYPE_F16:
      return fits_float(real, 65504);
    case DIT_DTYPE_BF16:
      return fits_float(real, 0x1.FEp127);
    case DIT_DTYPE_F32:
      return fits_float(real, 0x1.FFFFFEp127);
    default:
      break;
  }
  if (klass == DIT_DTYPE_CLASS_INT || klass == DIT_DTYPE_CLASS_UINT) {
    return fits_integer(scalar, 8 * (int)dit_dtype_get_size(dtype), klass == DIT_DTYPE_CLASS_INT);
  }
  return true;
}
