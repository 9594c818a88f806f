/// Dtypes of results: the common dtype of operands as torch.result_type finds it, and what belongs to a dtype.
#ifndef DIT_PROMOTION_H
#define DIT_PROMOTION_H

#include "dit/dtype.h"

DIT_EXTERN_C_BEGIN

/// The complex dtype of a floating one, as PyTorch pairs them (bfloat16: complex64); complex -> itself; others ->
/// complex64.
DIT_API int dit_dtype_get_complex(int dtype);
/// The bits of an element that make it other than zero: all of them for integers and bool, all but the signs for
/// floating and complex numbers. Of a complex128 these are the bits of either half.
DIT_API uint64_t dit_dtype_get_magnitude_bits(int dtype);

/// torch.result_type, operand by operand: tensors with dimensions, 0-d tensors and numbers promote among themselves; a
/// weaker category counts only where it is of a higher kind (bool, integer, floating, complex). Begin with
/// DIT_PROMOTION_INIT. A category is -1 when PyTorch refuses it.
struct dit_promotion {
  int dims, zeros, numbers;
};
enum { DIT_PROMOTION_NONE = -2 };
#define DIT_PROMOTION_INIT {DIT_PROMOTION_NONE, DIT_PROMOTION_NONE, DIT_PROMOTION_NONE}
/// One more operand in the category.
DIT_API void dit_promotion_add(int *category, int dtype);
/// The common dtype; -1: PyTorch refuses, or there was no operand.
DIT_API int dit_promotion_get(const struct dit_promotion *promotion);

DIT_EXTERN_C_END

#endif
