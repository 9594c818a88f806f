/// Deviations from the mean in two passes (see deviations.h).
///
/// A mean of large numbers may be off by many roundings; the sum of the deviations tells by how much. Only where that
/// is a part of them all that matters (constants above all) they are taken again, from the better center.
#include "deviations.h"

#include <math.h>

#include "rows.h"
#include "simd.h"

#define DEVIATIONS_LANES 32
#define DEVIATIONS_BLOCK 1024
#define DEVIATIONS_ROUNDS 3

#define REAL float
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "deviations_loops.h"
#undef REAL
#undef NAME
#undef BODY

#define REAL double
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "deviations_loops.h"
