/// The loops of the block machine: one per operation and working type. Registers hold float (float32, float16,
/// bfloat16), double, int64 (all integers) or int32 (bool). The last argument of two or three may be one number.
#ifndef DIT_HOST_ENGINE_REGION_LOOPS_H
#define DIT_HOST_ENGINE_REGION_LOOPS_H

#include "region_lists.h"

enum region_class { CLASS_F32, CLASS_F64, CLASS_I64, CLASS_BOOL, CLASS_COUNT };
/// Bit k of `single`: argument k is one number.
typedef void region_loop(void *out, const void *const *in, unsigned single, int64_t count);

#define REGION_PARAMS (void *out, const void *const *in, unsigned single, int64_t count)
#define REGION_ARGS (out, in, single, count)

#define REGION_1(name, result, type, expression) \
  KERNEL_INLINE void name##_body REGION_PARAMS { \
    result *o = out;                             \
    const type *p = in[0];                       \
    (void)single;                                \
    KERNEL_LANES                                 \
    for (int64_t i = 0; i < count; i++) {        \
      const type x = p[i];                       \
      o[i] = (result)(expression);               \
    }                                            \
  }                                              \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)

#define REGION_LOOP_2(type, result, left, right, expression) \
  KERNEL_LANES                                               \
  for (int64_t i = 0; i < count; i++) {                      \
    const type x = left, y = right;                          \
    o[i] = (result)(expression);                             \
  }
#define REGION_2(name, result, type, expression)           \
  KERNEL_INLINE void name##_body REGION_PARAMS {           \
    result *o = out;                                       \
    const type *p = in[0], *q = in[1];                     \
    if (single == 2) {                                     \
      const type right = q[0];                             \
      REGION_LOOP_2(type, result, p[i], right, expression) \
    } else {                                               \
      REGION_LOOP_2(type, result, p[i], q[i], expression)  \
    }                                                      \
  }                                                        \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)

#define REGION_3(name, result, first, type, expression) \
  KERNEL_INLINE void name##_body REGION_PARAMS {        \
    result *o = out;                                    \
    const first *p = in[0];                             \
    const type *q = in[1], *r = in[2];                  \
    if (single & 4) {                                   \
      const type z = r[0];                              \
      KERNEL_LANES                                      \
      for (int64_t i = 0; i < count; i++) {             \
        const first x = p[i];                           \
        const type y = q[i];                            \
        o[i] = (result)(expression);                    \
      }                                                 \
    } else {                                            \
      KERNEL_LANES                                      \
      for (int64_t i = 0; i < count; i++) {             \
        const first x = p[i];                           \
        const type y = q[i], z = r[i];                  \
        o[i] = (result)(expression);                    \
      }                                                 \
    }                                                   \
  }                                                     \
  KERNEL_MULTI(static, name, REGION_PARAMS, REGION_ARGS)

#endif
