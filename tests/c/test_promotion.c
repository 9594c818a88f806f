/// Promotion of operands and what belongs to a dtype, as PyTorch has them.
#include "check.h"
#include "dit/promotion.h"

static int promote(int dims, int zeros, int numbers) {
  struct dit_promotion promotion = DIT_PROMOTION_INIT;
  dit_promotion_add(&promotion.dims, dims);
  dit_promotion_add(&promotion.zeros, zeros);
  dit_promotion_add(&promotion.numbers, numbers);
  return dit_promotion_get(&promotion);
}

/// A weaker category counts only where it is of a higher kind.
static void test_categories(void) {
  const int none = DIT_PROMOTION_NONE;
  CHECK(promote(none, none, none) == -1);
  CHECK(promote(DIT_DTYPE_F16, DIT_DTYPE_F64, none) == DIT_DTYPE_F16);
  CHECK(promote(DIT_DTYPE_I8, DIT_DTYPE_I64, none) == DIT_DTYPE_I8);
  CHECK(promote(DIT_DTYPE_BOOL, DIT_DTYPE_I32, DIT_DTYPE_I64) == DIT_DTYPE_I32);
  CHECK(promote(DIT_DTYPE_I32, none, DIT_DTYPE_F32) == DIT_DTYPE_F32);
  CHECK(promote(DIT_DTYPE_I32, DIT_DTYPE_F16, DIT_DTYPE_F32) == DIT_DTYPE_F16);
  CHECK(promote(DIT_DTYPE_BF16, none, DIT_DTYPE_C64) == DIT_DTYPE_C64);
  CHECK(promote(DIT_DTYPE_F16, DIT_DTYPE_C128, none) == DIT_DTYPE_C32);
  CHECK(promote(none, none, DIT_DTYPE_I64) == DIT_DTYPE_I64);
  struct dit_promotion refused = DIT_PROMOTION_INIT;
  dit_promotion_add(&refused.dims, DIT_DTYPE_U16);
  dit_promotion_add(&refused.dims, DIT_DTYPE_I32);
  dit_promotion_add(&refused.dims, DIT_DTYPE_I64);
  CHECK(dit_promotion_get(&refused) == -1);
}

static void test_parts(void) {
  CHECK(dit_dtype_get_complex(DIT_DTYPE_F16) == DIT_DTYPE_C32 &&
        dit_dtype_get_complex(DIT_DTYPE_BF16) == DIT_DTYPE_C64);
  CHECK(dit_dtype_get_complex(DIT_DTYPE_F64) == DIT_DTYPE_C128 && dit_dtype_get_complex(DIT_DTYPE_I8) == DIT_DTYPE_C64);
  CHECK(dit_dtype_get_complex(DIT_DTYPE_C32) == DIT_DTYPE_C32 && dit_dtype_get_complex(DIT_DTYPE_C64) == DIT_DTYPE_C64);
  CHECK(dit_dtype_get_magnitude_bits(DIT_DTYPE_F32) == 0x7FFFFFFF);
  CHECK(dit_dtype_get_magnitude_bits(DIT_DTYPE_C64) == 0x7FFFFFFF7FFFFFFF);
  CHECK(dit_dtype_get_magnitude_bits(DIT_DTYPE_I16) == UINT64_MAX);
}

int main(void) {
  RUN(test_categories);
  RUN(test_parts);
  return 0;
}
