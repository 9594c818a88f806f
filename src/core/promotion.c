/// Promotion of operands by PyTorch's rules (see promotion.h). Depends on dtype.
#include "dit/promotion.h"

int dit_dtype_get_complex(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      return DIT_DTYPE_C32;
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return DIT_DTYPE_C128;
    default:
      return DIT_DTYPE_C64;
  }
}

uint64_t dit_dtype_get_magnitude_bits(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
      return 0x7FFF;
    case DIT_DTYPE_F32:
      return 0x7FFFFFFF;
    case DIT_DTYPE_C32:
      return 0x7FFF7FFF;
    case DIT_DTYPE_C64:
      return 0x7FFFFFFF7FFFFFFF;
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return 0x7FFFFFFFFFFFFFFF;
    default:
      return UINT64_MAX;
  }
}

static bool is_class(int dtype, enum dit_dtype_class klass) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == klass;
}

void dit_promotion_add(int *category, int dtype) {
  *category = *category == DIT_PROMOTION_NONE ? dtype
              : dtype == DIT_PROMOTION_NONE   ? *category
              : *category < 0 || dtype < 0    ? -1
                                              : dit_dtype_promote(*category, dtype);
}

/// PyTorch's combine_categories.
static int combine(int higher, int lower) {
  const bool lower_is_complex = is_class(lower, DIT_DTYPE_CLASS_COMPLEX);
  if (is_class(higher, DIT_DTYPE_CLASS_COMPLEX)) {
    return higher;
  }
  if (is_class(higher, DIT_DTYPE_CLASS_FLOAT)) {
    return lower_is_complex ? dit_dtype_get_complex(higher) : higher;
  }
  if (higher == DIT_DTYPE_BOOL || lower_is_complex || is_class(lower, DIT_DTYPE_CLASS_FLOAT)) {
    dit_promotion_add(&higher, lower);
    return higher;
  }
  return higher != DIT_PROMOTION_NONE ? higher : lower;
}

int dit_promotion_get(const struct dit_promotion *promotion) {
  const int common = combine(promotion->dims, combine(promotion->zeros, promotion->numbers));
  return common == DIT_PROMOTION_NONE ? -1 : common;
}
