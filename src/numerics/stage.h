/// Packed elements of any type to the types the kernels compute in.
///
/// What float holds exactly (types of up to 16 bits, float32) is staged as float, the rest as double; 64-bit integers
/// do not fit either and have kernels of their own. Complex elements are pairs of their real type.
#ifndef DIT_NUMERICS_STAGE_H
#define DIT_NUMERICS_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/error.h"

enum stage_kind {
  STAGE_NONE,   ///< not a numeric type of ours
  STAGE_FLOAT,  ///< exact in float
  STAGE_DOUBLE,
  STAGE_INT64,  ///< int64, uint64
};

/// What the summing kernels read.
enum lane_source {
  LANE_DOUBLE,
  LANE_FLOAT,
  LANE_BRAIN,  ///< bfloat16
  LANE_HALF,   ///< float16
};

/// The kind of a dtype; complex types have the kind of their parts.
enum stage_kind stage_get_kind(int dtype);
/// DIT_ERR_UNSUPPORTED for STAGE_NONE; `what` names the tensor in the message.
enum dit_status stage_check(int dtype, const char *what, struct dit_error *err);
bool stage_is_complex(int dtype);
/// bool, uint8 or int8.
bool stage_is_byte(int dtype);
/// float16 or bfloat16.
bool stage_is_half(int dtype);
/// `count` real numbers of `dtype` (twice the elements of a complex type) as float: `source` itself for float32 (or
/// complex64), else `room`. Only for STAGE_FLOAT.
const float *stage_float(int dtype, const char *source, float *room, int64_t count);
/// The same, but 16-bit floats stay as they are where the processor converts them faster on the way (AVX-512).
const void *stage_lanes(int dtype, const char *source, float *room, int64_t count, enum lane_source *lanes);
/// The same as double, for every kind but STAGE_NONE; 64-bit integers are rounded. `source` itself for float64.
const double *stage_double(int dtype, const char *source, double *room, int64_t count);
/// The same, or NULL when there are 64-bit integers beyond 2^53, which double does not hold exactly.
const double *stage_exact(int dtype, const char *source, double *room, int64_t count);
/// One real number of `dtype` at `source`, exact where long double has 64 bits of significand.
long double stage_one(int dtype, const char *source, int64_t index);

#endif
