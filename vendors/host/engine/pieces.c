/// Kernels for operators that the standard has no function for and that would cost several (formulas in dit/kernel.h).
#include "kernels.h"
#include "pointwise_loops.h"
#include "reduce.h"

enum dit_status kernel_fold(void *stream, enum dit_kernel_fold fold, const struct dit_tensor_view *out,
                            const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err) {
  if (fold == DIT_KERNEL_FOLD_MIN && in->dtype == out->dtype) {
    return reduce_launch(stream, REDUCE_MIN, 0, out, in, mask, err);
  }
  const bool is_float = dit_dtype_get_class(in->dtype) == DIT_DTYPE_CLASS_FLOAT &&
                        dit_dtype_get_class(out->dtype) == DIT_DTYPE_CLASS_FLOAT;
  return fold == DIT_KERNEL_FOLD_NANSUM && is_float ? reduce_launch(stream, REDUCE_NANSUM, 0, out, in, mask, err)
                                                    : DIT_ERR_UNSUPPORTED;
}

#define XOR(tag, type, arith) LOOP_2(xor_##tag, type, type, arith, x ^ y)
LOOP_LIST_BITS(XOR)

enum dit_status kernel_bitwise_xor(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                                   const struct dit_tensor_view *b, struct dit_error *err) {
  static loop_table loops = {ROWS_BITS(xor), [DIT_DTYPE_BOOL] = xor_u8};
  struct pointwise run = {.outputs = 1, .inputs = 2, .views = {out, a, b}};
  if (a->dtype != out->dtype || b->dtype != out->dtype || out->dtype >= LOOP_TYPES || !loops[out->dtype]) {
    return DIT_ERR_UNSUPPORTED;
  }
  for (int i = 0; i < 3; i++) {
    run.work[i] = out->dtype;
  }
  run.loop = loops[out->dtype];
  return pointwise_launch(stream, &run, err);
}
