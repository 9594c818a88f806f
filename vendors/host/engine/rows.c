/// Row loops for float and double (see rows.h).
#include "rows.h"

#include "simd.h"

#define ROW_LANES 32
#define ROW_BLOCK 2048

#define REAL float
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "rows_loops.h"
#undef REAL
#undef NAME
#undef BODY
#define REAL double
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "rows_loops.h"
