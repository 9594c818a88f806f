/// Include LOOPS for float and for double elements (see call.h).
#define REAL float
#define NAME(x) x##_f32
#include LOOPS
#undef REAL
#undef NAME
#define REAL double
#define NAME(x) x##_f64
#include LOOPS
#undef REAL
#undef NAME
#undef LOOPS
