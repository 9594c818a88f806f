/// Elementwise operators of one operand: signs, rounding, roots, exponentials, logarithms, trigonometry, erf, isnan.
///
/// out[i] = f(input[i]); out has input's shape. Functions with fractional values make integers and bool float32
/// (float64 where out is); the others keep the dtype. Half types compute in float. Complex numbers where PyTorch has
/// them. Inp writes to input, which must be able to hold the result.
#include <complex.h>
#include <math.h>

#include "elementwise.h"

// after the macros that it is written in
#include "unary_expressions.h"

enum result { RESULT_SAME, RESULT_FLOAT, RESULT_REAL, RESULT_BOOL };

static diopiError_t run_unary(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                              diopiConstTensorHandle_t input, enum result kind, loop_table loops) {
  struct elementwise e;
  FRAME_TRY(elementwise_unary(&e, function, ctx, out, input));
  int compute = e.views[1].dtype, result = -1;
  if (kind == RESULT_FLOAT) {
    compute = elementwise_to_float(&e, compute);
  } else if (kind == RESULT_BOOL) {
    result = DIT_DTYPE_BOOL;
  } else if (kind == RESULT_REAL && (compute == DIT_DTYPE_C64 || compute == DIT_DTYPE_C128)) {
    result = dit_dtype_get_real(compute);
    FRAME_CHECK(&e.frame, out != input, "'input' is complex; its absolute value is real and cannot replace it");
  }
  FRAME_TRY(elementwise_set_types(&e, result, compute, loops));
  return elementwise_launch(&e);
}

#define DEFINE_OUT(Name, kind, ...)                                                                             \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) { \
    static loop_table loops = {__VA_ARGS__};                                                                    \
    return run_unary(__func__, ctx, out, input, kind, loops);                                                   \
  }
#define DEFINE(Name, kind, ...)                                                        \
  DEFINE_OUT(Name, kind, __VA_ARGS__)                                                  \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input) { \
    static loop_table loops = {__VA_ARGS__};                                           \
    return run_unary(__func__, ctx, input, input, kind, loops);                        \
  }
#define ROWS_TRIG(name) [DIT_DTYPE_F32] = name##_loop, [DIT_DTYPE_F64] = name##_f64, ROWS_COMPLEX(name)
#define DEFINE_FLOAT(Name, name) DEFINE(Name, RESULT_FLOAT, ROWS_FLOAT(loop_##name), ROWS_COMPLEX(name))
#define DEFINE_BF16(Name, name) \
  DEFINE(Name, RESULT_FLOAT, ROWS_FLOAT(loop_##name), ROWS_COMPLEX(name), [DIT_DTYPE_BF16] = loop_##name##_bf16)
DEFINE_BF16(Sqrt, sqrt)
DEFINE_BF16(Rsqrt, rsqrt)
DEFINE_BF16(Reciprocal, reciprocal)
DEFINE(Sin, RESULT_FLOAT, ROWS_TRIG(sin))
DEFINE(Cos, RESULT_FLOAT, ROWS_TRIG(cos))
DEFINE(Tan, RESULT_FLOAT, ROWS_TRIG(tan))
DEFINE_FLOAT(Asin, asin)
DEFINE_FLOAT(Acos, acos)
DEFINE_FLOAT(Sinh, sinh)
DEFINE_FLOAT(Cosh, cosh)
DEFINE_FLOAT(Atan, atan)
DEFINE_FLOAT(Asinh, asinh)
DEFINE_FLOAT(Acosh, acosh)
DEFINE_FLOAT(Atanh, atanh)
DEFINE_BF16(Exp, exp)
DEFINE_FLOAT(Expm1, expm1)
DEFINE_BF16(Log, log)
DEFINE_FLOAT(Log2, log2)
DEFINE_FLOAT(Log10, log10)
DEFINE_FLOAT(Log1p, log1p)
DEFINE(Erf, RESULT_FLOAT, ROWS_FLOAT(loop_erf))
DEFINE(Erfinv, RESULT_FLOAT, ROWS_FLOAT(loop_erfinv))
#define ROWS_HALF(op) [DIT_DTYPE_F16] = op##_half, [DIT_DTYPE_BF16] = op##_half
DEFINE(Neg, RESULT_SAME, ROWS_BITS_SIGNED(neg), ROWS_FLOAT(neg), ROWS_HALF(neg), ROWS_COMPLEX(neg))
DEFINE(Abs, RESULT_REAL, ROWS_INT(abs), ROWS_FLOAT(abs), ROWS_HALF(abs), ROWS_COMPLEX(abs))
DEFINE(Floor, RESULT_SAME, ROWS_BITS_SIGNED(same), ROWS_FLOAT(floor))
DEFINE(Ceil, RESULT_SAME, ROWS_BITS_SIGNED(same), ROWS_FLOAT(ceil))
#define SIGN_ROWS ROWS_INT(sign), ROWS_FLOAT(sign), [DIT_DTYPE_BOOL] = sign_u8
DEFINE_OUT(Sign, RESULT_SAME, SIGN_ROWS)
DEFINE(Sgn, RESULT_SAME, SIGN_ROWS, ROWS_COMPLEX(sgn))
DEFINE_OUT(IsNan, RESULT_BOOL, ROWS_BITS(never), ROWS_FLOAT(isnan), ROWS_COMPLEX(isnan), [DIT_DTYPE_BOOL] = never_u8)
