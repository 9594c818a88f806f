/// The operations as functions, for generated code: op_EXP_f32(x), op_ADD_i64(x, y). Text: it is compiled where a
/// region is (region_code.c), behind scalar.h, mathf.h, mathd.h and region_lists.h.
#ifndef DIT_HOST_ENGINE_REGION_OPS_H
#define DIT_HOST_ENGINE_REGION_OPS_H

#include "region_lists.h"

#define OP_1(name, result, type, expression) \
  KERNEL_INLINE result name(type x) {        \
    return (result)(expression);             \
  }
#define OP_2(name, result, type, expression)  \
  KERNEL_INLINE result name(type x, type y) { \
    return (result)(expression);              \
  }
#define OP_FLOAT_1(NAME, single, precise)     \
  OP_1(op_##NAME##_f32, float, float, single) \
  OP_1(op_##NAME##_f64, double, double, precise)
#define OP_FLOAT_2(NAME, single, precise)     \
  OP_2(op_##NAME##_f32, float, float, single) \
  OP_2(op_##NAME##_f64, double, double, precise)
#define OP_COMPARE(NAME, expression)                  \
  OP_2(op_##NAME##_f32, int32_t, float, expression)   \
  OP_2(op_##NAME##_f64, int32_t, double, expression)  \
  OP_2(op_##NAME##_i64, int32_t, int64_t, expression) \
  OP_2(op_##NAME##_bool, int32_t, int32_t, expression)
#define OP_INTEGER_1(NAME, expression) OP_1(op_##NAME##_i64, int64_t, int64_t, expression)
#define OP_INTEGER_2(NAME, expression) OP_2(op_##NAME##_i64, int64_t, int64_t, expression)
#define OP_BOOL_1(NAME, expression) OP_1(op_##NAME##_bool, int32_t, int32_t, expression)
#define OP_BOOL_2(NAME, expression) OP_2(op_##NAME##_bool, int32_t, int32_t, expression)
REGION_FLOAT_1(OP_FLOAT_1)
REGION_FLOAT_2(OP_FLOAT_2)
REGION_COMPARE(OP_COMPARE)
REGION_INTEGER_1(OP_INTEGER_1)
REGION_INTEGER_2(OP_INTEGER_2)
REGION_BOOL_1(OP_BOOL_1)
REGION_BOOL_2(OP_BOOL_2)
OP_1(op_ISNAN_f32, int32_t, float, x != x)
OP_1(op_ISNAN_f64, int32_t, double, x != x)
OP_1(op_SIN_f64, double, double, sin(x))
OP_1(op_COS_f64, double, double, cos(x))

#define OP_3(tag, type)                                          \
  KERNEL_INLINE type op_WHERE_##tag(int32_t x, type y, type z) { \
    return x ? y : z;                                            \
  }
OP_3(f32, float)
OP_3(f64, double)
OP_3(i64, int64_t)
OP_3(bool, int32_t)
#define OP_MIX(tag, type)                                          \
  KERNEL_INLINE type op_ADD_SCALED_##tag(type x, type y, type z) { \
    return x + z * y;                                              \
  }                                                                \
  KERNEL_INLINE type op_LERP_##tag(type x, type y, type z) {       \
    return NEAR(x, y, z);                                          \
  }
OP_MIX(f32, float)
OP_MIX(f64, double)

#endif
