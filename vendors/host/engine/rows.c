/// Row loops for float and double (see rows.h).
#include "rows.h"

#include "cast.h"
#include "dit/dtype.h"
#include "scalar.h"
#include "simd.h"

#define ROW_LANES 32
#define ROW_BLOCK 2048

// bfloat16 in one pass: read, widened, computed and rounded without a room in between

static uint16_t *get_bfloat(const struct row_data *p, int64_t at) {
  return (uint16_t *)p->data + at;
}

static bool is_bfloat(const struct row_data *out, const struct row_data *p) {
  return out->dtype == DIT_DTYPE_BF16 && p->dtype == DIT_DTYPE_BF16;
}

KERNEL_INLINE void centered_bf16_body(uint16_t *out, const uint16_t *p, int64_t count, float center, float scale,
                                      float shift) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = bfloat_from_float((bfloat_to_float(p[i]) - center) * scale + shift);
  }
}
KERNEL_MULTI(static, centered_bf16,
             (uint16_t * out, const uint16_t *p, int64_t count, float center, float scale, float shift),
             (out, p, count, center, scale, shift))

KERNEL_INLINE void weighted_bf16_body(uint16_t *out, const uint16_t *p, const float *weight, const float *bias,
                                      int64_t count, float scale, float center) {
  if (weight && bias) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = bfloat_from_float((bfloat_to_float(p[i]) - center) * scale * weight[i] + bias[i]);
    }
  } else if (weight) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = bfloat_from_float((bfloat_to_float(p[i]) - center) * scale * weight[i]);
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = bfloat_from_float((bfloat_to_float(p[i]) - center) * scale + (bias ? bias[i] : 0));
    }
  }
}
KERNEL_MULTI(static, weighted_bf16,
             (uint16_t * out, const uint16_t *p, const float *weight, const float *bias, int64_t count, float scale,
              float center),
             (out, p, weight, bias, count, scale, center))

/// Sums of p - center and of its squares over at most a block.
KERNEL_INLINE void moments_bf16_body(const uint16_t *p, int64_t count, float center, double *sum, double *squares) {
  float sums[ROW_LANES] = {0}, products[ROW_LANES] = {0};
  int64_t i = 0;
  for (; i + ROW_LANES <= count; i += ROW_LANES) {
    for (int j = 0; j < ROW_LANES; j++) {
      const float x = bfloat_to_float(p[i + j]) - center;
      sums[j] += x;
      products[j] += x * x;
    }
  }
  for (int j = 0; i < count; i++, j++) {
    const float x = bfloat_to_float(p[i]) - center;
    sums[j] += x;
    products[j] += x * x;
  }
  *sum = *squares = 0;
  for (int j = 0; j < ROW_LANES; j++) {
    *sum += (double)sums[j];
    *squares += (double)products[j];
  }
}
KERNEL_MULTI(static, moments_bf16, (const uint16_t *p, int64_t count, float center, double *sum, double *squares),
             (p, count, center, sum, squares))

/// Mean and sum of squares about it of a block of bfloat16 in one pass, about a guess of the mean. False: they are of
/// another dtype, or the guess was so far off that digits were lost.
static bool guess_moments(const struct row_data *p, int64_t at, int64_t count, float guess, double *mean,
                          double *squares) {
  double sum, about;
  if (p->dtype != DIT_DTYPE_BF16) {
    return false;
  }
  moments_bf16(get_bfloat(p, at), count, guess, &sum, &about);
  const double moved = sum * sum / (double)count;
  *mean = (double)guess + sum / (double)count;
  *squares = about - moved;
  return !(moved > 16 * *squares) || moved == 0;
}

/// A first guess: the mean of a few elements.
static float make_guess(const struct row_data *p, int64_t at, int64_t count) {
  float room[16], sum = 0;
  const int64_t n = count < 16 ? count : 16;
  cast_block(DIT_DTYPE_F32, room, p->dtype, (const char *)p->data + at * (int64_t)dit_dtype_get_size(p->dtype), n);
  for (int64_t i = 0; i < n; i++) {
    sum += room[i];
  }
  return sum / (float)n;
}

#define REAL float
#define REAL_DTYPE DIT_DTYPE_F32
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#define HAS_BFLOAT(x) (x)
#include "rows_loops.h"
#undef HAS_BFLOAT
#undef REAL
#undef REAL_DTYPE
#undef NAME
#undef BODY
#define REAL double
#define REAL_DTYPE DIT_DTYPE_F64
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#define HAS_BFLOAT(x) false
#include "rows_loops.h"
