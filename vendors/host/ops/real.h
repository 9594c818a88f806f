/// Templates of loops in float and double: a header with loops is included by
///   #define REAL_LOOPS "thing_loops.h"
///   #include "real.h"
/// once with REAL float, once with REAL double. NAME(x) adds the type's suffix (x_f32, x_f64), BODY(x) the suffix of
/// the body of a multi-target loop, EXP and LOG1P are the functions of that type.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/mathd.h"
#include "engine/mathf.h"
#include "engine/rows.h"
#include "engine/simd.h"

#define REAL float
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#define EXP exp_f32
#define LOG1P log1p_f32
#define LOG log_f32
#define FABS fabsf
#define POW powf
#include REAL_LOOPS
#undef REAL
#undef NAME
#undef BODY
#undef EXP
#undef LOG1P
#undef LOG
#undef FABS
#undef POW
#define REAL double
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#define EXP exp_f64
#define LOG1P log1p
#define LOG log_f64
#define FABS fabs
#define POW pow
#include REAL_LOOPS
#undef REAL
#undef NAME
#undef BODY
#undef EXP
#undef LOG1P
#undef LOG
#undef FABS
#undef POW
#undef REAL_LOOPS
