/// Extrema and exact sums of 64-bit integers and of bytes (see kernels.h): plain loops for the vectoriser.
#include <string.h>

#include "dit/dtype.h"
#include "numerics/kernels.h"
#include "numerics/simd.h"

#define EXTREMA_LOOP(type)                          \
  do {                                              \
    const type *x = values;                         \
    type smallest = x[0], largest = x[0];           \
    uint64_t zero = 0;                              \
    for (int64_t i = 0; i < count; i++) {           \
      smallest = x[i] < smallest ? x[i] : smallest; \
      largest = x[i] > largest ? x[i] : largest;    \
      zero += x[i] == 0;                            \
    }                                               \
    out->min = (uint64_t)smallest;                  \
    out->max = (uint64_t)largest;                   \
    out->zero = (int64_t)zero;                      \
  } while (0)

NUMERIC_INLINE void int_find_extrema_body(const void *values, int64_t count, bool is_signed, struct int_extrema *out) {
  if (is_signed) {
    EXTREMA_LOOP(int64_t);
  } else {
    EXTREMA_LOOP(uint64_t);
  }
}
NUMERIC_MULTI(extern, int_find_extrema, (const void *values, int64_t count, bool is_signed, struct int_extrema *out),
              (values, count, is_signed, out))

NUMERIC_INLINE void int_sum_near_body(const uint64_t *values, int64_t count, uint64_t low, struct int_sums *out) {
  uint64_t sum = 0, square = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t distance = (uint32_t)(values[i] - low);
    sum += distance;
    square += (uint64_t)distance * distance;
  }
  *out = (struct int_sums){sum, square};
}
NUMERIC_MULTI(extern, int_sum_near, (const uint64_t *values, int64_t count, uint64_t low, struct int_sums *out),
              (values, count, low, out))

NUMERIC_INLINE void int_measure_body(const uint64_t *restrict values, int64_t count, uint64_t low,
                                     double *restrict distances, uint64_t *sum) {
  uint64_t total = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t distance = values[i] - low, bits = distance | UINT64_C(0x4330000000000000);  // 2^52 + distance
    double value;
    memcpy(&value, &bits, sizeof(value));
    distances[i] = value - 0x1p52;
    total += distance;
  }
  *sum = total;
}
NUMERIC_MULTI(extern, int_measure,
              (const uint64_t *restrict values, int64_t count, uint64_t low, double *restrict distances, uint64_t *sum),
              (values, count, low, distances, sum))

#define BYTE_LOOP(type)                                      \
  do {                                                       \
    const type *x = values;                                  \
    type low = x[0], high = x[0];                            \
    int32_t zero = 0, sum = 0, square = 0;                   \
    for (int64_t i = 0; i < count; i++) {                    \
      low = x[i] < low ? x[i] : low;                         \
      high = x[i] > high ? x[i] : high;                      \
    }                                                        \
    for (int64_t i = 0; i < count; i++) {                    \
      zero += x[i] == 0;                                     \
      sum += x[i];                                           \
      square += x[i] * x[i];                                 \
    }                                                        \
    *out = (struct byte_sums){low, high, zero, sum, square}; \
  } while (0)

NUMERIC_INLINE void byte_sum_body(int dtype, const void *values, int64_t count, struct byte_sums *out) {
  if (dtype == DIT_DTYPE_I8) {
    BYTE_LOOP(int8_t);
  } else if (dtype == DIT_DTYPE_U8) {
    BYTE_LOOP(uint8_t);
  } else {
    const uint8_t *x = values;
    int32_t zero = 0;
    for (int64_t i = 0; i < count; i++) {
      zero += x[i] == 0;
    }
    int32_t ones = (int32_t)count - zero;
    *out = (struct byte_sums){zero == 0, ones > 0, zero, ones, ones};
  }
}
NUMERIC_MULTI(extern, byte_sum, (int dtype, const void *values, int64_t count, struct byte_sums *out),
              (dtype, values, count, out))
