/// One pair of elements at a time, in long double: what compare.c does with chunks that need care, and detail.c always.
#ifndef DIT_NUMERICS_PAIR_H
#define DIT_NUMERICS_PAIR_H

#include <math.h>

#include "dit/numerics.h"
#include "numerics/stage.h"
#include "numerics/walk.h"

/// A chunk of one tensor.
struct pair_side {
  int dtype;
  bool is_complex;
  const char *raw;
  const double *values;  ///< staged; NULL for 64-bit integers, which are read from `raw`
};

struct pair_number {
  long double real, imag;
};

enum pair_class { PAIR_FINITE, PAIR_NAN, PAIR_INFINITE };

/// Equal sizes, known types, valid tolerances.
enum dit_status pair_check(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                           const struct dit_compare_options *options, struct dit_error *err);

/// `room` holds 2 * WALK_CHUNK doubles.
static inline void pair_side_init(struct pair_side *side, int dtype, const char *raw, int64_t count, double *room) {
  side->dtype = dtype;
  side->is_complex = stage_is_complex(dtype);
  side->raw = raw;
  side->values = NULL;
  if (stage_get_kind(dtype) != STAGE_INT64) {
    side->values = stage_double(dtype, raw, room, side->is_complex ? 2 * count : count);
  }
}

static inline struct pair_number pair_side_get(const struct pair_side *side, int64_t index) {
  if (!side->values) {
    return (struct pair_number){stage_one(side->dtype, side->raw, index), 0};
  }
  if (side->is_complex) {
    return (struct pair_number){side->values[2 * index], side->values[2 * index + 1]};
  }
  return (struct pair_number){side->values[index], 0};
}

static inline enum pair_class pair_get_class(struct pair_number x) {
  if (isnan(x.real) || isnan(x.imag)) {
    return PAIR_NAN;
  }
  return isinf(x.real) || isinf(x.imag) ? PAIR_INFINITE : PAIR_FINITE;
}

static inline long double pair_get_size(struct pair_number x) {
  return x.imag == 0 ? fabsl(x.real) : hypotl(x.real, x.imag);
}

static inline long double pair_get_diff(struct pair_number a, struct pair_number b) {
  return pair_get_size((struct pair_number){a.real - b.real, a.imag - b.imag});
}

/// |a - b| / size, where 0 / 0 is 0.
static inline double pair_get_ratio(long double diff, long double size) {
  return diff > 0 ? (double)(diff / size) : 0;
}

/// Equal as the verdict sees it: infinities by sign, NaN by equal_nan.
static inline bool pair_is_equal(struct pair_number a, struct pair_number b, bool equal_nan) {
  if (a.real == b.real && a.imag == b.imag) {
    return true;
  }
  return equal_nan && pair_get_class(a) == PAIR_NAN && pair_get_class(b) == PAIR_NAN;
}

static inline bool pair_is_close(struct pair_number a, struct pair_number b,
                                 const struct dit_compare_options *options) {
  if (pair_is_equal(a, b, options->equal_nan)) {
    return true;
  }
  if (pair_get_class(a) != PAIR_FINITE || pair_get_class(b) != PAIR_FINITE) {
    return false;
  }
  return pair_get_diff(a, b) <= options->atol + options->rtol * pair_get_size(b);
}

#endif
