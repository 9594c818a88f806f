/// Extrema, zeros and inequality of float bits as ordered integers (see kernels.h): plain loops for the vectoriser.
///
/// Loops are of the elements' own width, so a vector holds as many as possible; counts of one chunk fit it too.
#include <math.h>

#include "core/convert.h"
#include "dit/dtype.h"
#include "numerics/kernels.h"
#include "numerics/simd.h"

/// Extrema of float bits; NaN and infinities show as keys beyond those of the finite numbers.
struct keys {
  int32_t min, max;
  int32_t zero;  ///< +0 and -0; not counted for pairs
};

/// What a type's elements are looked at as: themselves for 16-bit floats, else the floats they were staged to.
struct key_rule {
  bool half;
  int32_t limit;   ///< the key of infinity
  int32_t normal;  ///< the key of the smallest normal number, which is also the number of keys from a power of two to
                   ///< the next
};

static struct key_rule get_rule(int dtype) {
  if (dtype == DIT_DTYPE_BF16) {
    return (struct key_rule){true, 0x7F80, 0x80};
  }
  if (dtype == DIT_DTYPE_F16) {
    return (struct key_rule){true, 0x7C00, 0x400};
  }
  return (struct key_rule){false, 0x7F800000, 0x800000};
}

/// Sign and magnitude to two's complement: the order of the numbers, -0 just below +0, NaN beyond the infinities.
#define GET_KEY(type, bits) ((type)((bits) ^ ((bits) >> (8 * sizeof(type) - 1) & magnitude)))

#define SINGLE_LOOP(type, utype, largest)               \
  do {                                                  \
    const type magnitude = largest, *x = values;        \
    type low = magnitude, high = (type)~magnitude;      \
    utype zero = 0;                                     \
    for (int64_t i = 0; i < count; i++) {               \
      type key = GET_KEY(type, x[i]);                   \
      low = key < low ? key : low;                      \
      high = key > high ? key : high;                   \
      zero = (utype)(zero + ((x[i] & magnitude) == 0)); \
    }                                                   \
    *out = (struct keys){low, high, zero};              \
  } while (0)

NUMERIC_INLINE void single_keys_body(const void *values, int64_t count, bool half, struct keys *out) {
  if (half) {
    SINGLE_LOOP(int16_t, uint16_t, INT16_MAX);
  } else {
    SINGLE_LOOP(int32_t, uint32_t, INT32_MAX);
  }
}
NUMERIC_MULTI(static, single_keys, (const void *values, int64_t count, bool half, struct keys *out),
              (values, count, half, out))

#define PAIR_LOOP(type, utype, largest)                                                 \
  do {                                                                                  \
    const type magnitude = largest, *x = a, *y = b;                                     \
    type low_a = magnitude, high_a = (type)~magnitude, low_b = low_a, high_b = high_a;  \
    utype differ = 0;                                                                   \
    for (int64_t i = 0; i < count; i++) {                                               \
      type key_a = GET_KEY(type, x[i]), key_b = GET_KEY(type, y[i]);                    \
      low_a = key_a < low_a ? key_a : low_a;                                            \
      high_a = key_a > high_a ? key_a : high_a;                                         \
      low_b = key_b < low_b ? key_b : low_b;                                            \
      high_b = key_b > high_b ? key_b : high_b;                                         \
      differ = (utype)(differ + ((x[i] != y[i]) & (((x[i] | y[i]) & magnitude) != 0))); \
    }                                                                                   \
    out[0] = (struct keys){low_a, high_a, 0};                                           \
    out[1] = (struct keys){low_b, high_b, 0};                                           \
    *unequal = differ;                                                                  \
  } while (0)

/// `unequal`: +0 and -0 are equal, NaN goes by its bits.
NUMERIC_INLINE void pair_keys_body(const void *a, const void *b, int64_t count, bool half, struct keys *out,
                                   int64_t *unequal) {
  if (half) {
    PAIR_LOOP(int16_t, uint16_t, INT16_MAX);
  } else {
    PAIR_LOOP(int32_t, uint32_t, INT32_MAX);
  }
}
NUMERIC_MULTI(static, pair_keys,
              (const void *a, const void *b, int64_t count, bool half, struct keys *out, int64_t *unequal),
              (a, b, count, half, out, unequal))

/// The largest distance between the keys of two 16-bit floats; UINT32_MAX when one of a pair that differs is below
/// `normal` in size.
NUMERIC_INLINE void pair_gap_body(const int16_t *a, const int16_t *b, int64_t count, int16_t normal, uint32_t *widest) {
  const int16_t magnitude = INT16_MAX;
  uint16_t most = 0, tiny = 0;
  for (int64_t i = 0; i < count; i++) {
    int16_t key_a = GET_KEY(int16_t, a[i]), key_b = GET_KEY(int16_t, b[i]);
    int16_t size_a = a[i] & magnitude, size_b = b[i] & magnitude, least = size_a < size_b ? size_a : size_b;
    uint16_t low = (uint16_t)(key_a < key_b ? key_a : key_b), high = (uint16_t)(key_a > key_b ? key_a : key_b);
    uint16_t gap = (uint16_t)(high - low);
    most = gap > most ? gap : most;
    tiny = (uint16_t)(tiny | (least < normal ? gap : 0));
  }
  *widest = tiny ? UINT32_MAX : most;
}
NUMERIC_MULTI(static, pair_gap, (const int16_t *a, const int16_t *b, int64_t count, int16_t normal, uint32_t *widest),
              (a, b, count, normal, widest))

static bool is_finite(const struct keys *keys, int32_t limit) {
  return keys->max < limit && keys->min > ~limit;
}

static double get_number(int dtype, int32_t key) {
  if (!stage_is_half(dtype)) {
    return dit_float_from_bits((uint32_t)(key < 0 ? key ^ INT32_MAX : key));
  }
  uint16_t bits = (uint16_t)(key < 0 ? key ^ INT16_MAX : key);
  return dtype == DIT_DTYPE_BF16 ? dit_float_from_bf16(bits) : dit_float_from_f16(bits);
}

bool key_get_extrema(int dtype, const void *data, const void *values, int64_t count, struct extrema *out) {
  struct key_rule rule = get_rule(dtype);
  struct keys keys;
  single_keys(rule.half ? data : values, count, rule.half, &keys);
  *out = (struct extrema){get_number(dtype, keys.min), get_number(dtype, keys.max), keys.zero};
  return is_finite(&keys, rule.limit);
}

bool key_get_pair_extrema(const int *dtypes, const char *const *data, const void *const *values, int64_t count,
                          struct pair_extrema *out) {
  int dtype = dtypes[0] == dtypes[1] ? dtypes[0] : DIT_DTYPE_F32;
  struct key_rule rule = get_rule(dtype);
  struct keys keys[2];
  const void *a = rule.half ? data[0] : values[0], *b = rule.half ? data[1] : values[1];
  pair_keys(a, b, count, rule.half, keys, &out->unequal);
  out->min_a = get_number(dtype, keys[0].min);
  out->max_a = get_number(dtype, keys[0].max);
  out->min_b = get_number(dtype, keys[1].min);
  out->max_b = get_number(dtype, keys[1].max);
  return is_finite(&keys[0], rule.limit) && is_finite(&keys[1], rule.limit);
}

/// Of normal numbers at most `normal` keys apart, one step is at most 1 / normal of the smaller one, and so many steps
/// are so many times that: within a power of two by the format, and beyond it the smaller one is as much larger as the
/// steps become. The bounds are reached (from a power of two upwards), and the divisions round to nearest, as do those
/// of the ratios that they bound: no ratio is above.
void key_get_ratio_bounds(const int *dtypes, const char *const *data, int64_t count, double *rel, double *rel_sym) {
  struct key_rule rule = get_rule(dtypes[0]);
  uint32_t widest = UINT32_MAX;
  if (rule.half && dtypes[0] == dtypes[1]) {
    pair_gap((const void *)data[0], (const void *)data[1], count, (int16_t)rule.normal, &widest);
  }
  bool known = widest <= (uint32_t)rule.normal;
  *rel = known ? (double)widest / rule.normal : INFINITY;
  *rel_sym = known ? (double)widest / ((double)rule.normal + widest) : INFINITY;
}
