/// Templates of pooling loops: a header with loops is included by
///   #define POOL_LOOPS "thing_loops.h"
///   #include "pool_types.h"
/// for float, double and int64 (every integer dtype). INDEX counts as wide as REAL is.
#define REAL float
#define INDEX int32_t
#define LOWEST (-INFINITY)
#define IS_NAN(x) ((x) != (x))
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include POOL_LOOPS
#undef REAL
#undef INDEX
#undef LOWEST
#undef IS_NAN
#undef NAME
#undef BODY
#define REAL double
#define INDEX int64_t
#define LOWEST (-(double)INFINITY)
#define IS_NAN(x) ((x) != (x))
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include POOL_LOOPS
#undef REAL
#undef INDEX
#undef LOWEST
#undef IS_NAN
#undef NAME
#undef BODY
#define REAL int64_t
#define INDEX int64_t
#define LOWEST INT64_MIN
#define IS_NAN(x) ((void)(x), 0)
#define NAME(x) x##_i64
#define BODY(x) x##_i64_body
#include POOL_LOOPS
#undef REAL
#undef INDEX
#undef LOWEST
#undef IS_NAN
#undef NAME
#undef BODY
#undef POOL_LOOPS
