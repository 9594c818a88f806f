/// Staging (see stage.h), and the choice of instruction set.
#include "numerics/stage.h"

#include <string.h>

#include "core/convert.h"
#include "dit/dtype.h"
#include "numerics/simd.h"

#if SIMD_X86
#include <immintrin.h>
#endif

/// Builds with -DNUMERIC_LEVEL_MAX=3 or 0 test the code of smaller processors on a larger one.
#ifndef NUMERIC_LEVEL_MAX
#define NUMERIC_LEVEL_MAX 4
#endif

int numeric_level;

/// Runs when the library is loaded, before any kernel can be called.
__attribute__((constructor)) static void prepare(void) {
  numeric_level = simd_get_level(NUMERIC_LEVEL_MAX);
}

enum stage_kind stage_get_kind(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
    case DIT_DTYPE_U8:
    case DIT_DTYPE_I8:
    case DIT_DTYPE_I16:
    case DIT_DTYPE_U16:
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
    case DIT_DTYPE_F32:
    case DIT_DTYPE_F8_E5M2:
    case DIT_DTYPE_F8_E4M3FN:
    case DIT_DTYPE_F8_E5M2FNUZ:
    case DIT_DTYPE_F8_E4M3FNUZ:
    case DIT_DTYPE_F8_E8M0FNU:
    case DIT_DTYPE_C32:
    case DIT_DTYPE_C64:
      return STAGE_FLOAT;
    case DIT_DTYPE_I32:
    case DIT_DTYPE_U32:
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return STAGE_DOUBLE;
    case DIT_DTYPE_I64:
    case DIT_DTYPE_U64:
      return STAGE_INT64;
    default:
      return STAGE_NONE;
  }
}

enum dit_status stage_check(int dtype, const char *what, struct dit_error *err) {
  if (stage_get_kind(dtype) != STAGE_NONE) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                       "%s has dtype %s, which has no numbers to compute with; valid: bool, integers of 8 to 64 bits, "
                       "float8/16/32/64, bfloat16, complex: convert it first",
                       what, dit_dtype_get_name(dtype));
}

bool stage_is_complex(int dtype) {
  return dtype == DIT_DTYPE_C32 || dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}

bool stage_is_byte(int dtype) {
  return dtype == DIT_DTYPE_BOOL || dtype == DIT_DTYPE_U8 || dtype == DIT_DTYPE_I8;
}

bool stage_is_half(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

/// A short float's magnitude and sign by selects, without branches and without arithmetic on subnormal numbers (which
/// flush-to-zero would drop). `mantissa`: stored bits; `bias`: of the exponent; `special`: NaN or infinite.
NUMERIC_INLINE float widen(uint32_t magnitude, uint32_t sign, int mantissa, int bias, bool special) {
  uint32_t bits = magnitude << (23 - mantissa), one = (uint32_t)(128 - bias) << 23;  // the smallest normal number
  float tiny = dit_float_from_bits(bits + one) - dit_float_from_bits(one);
  uint32_t normal = bits + ((uint32_t)(127 - bias) << 23);
  uint32_t chosen = bits < UINT32_C(0x00800000) ? dit_float_get_bits(tiny) : normal;
  chosen = special ? bits | UINT32_C(0x7F800000) : chosen;
  return dit_float_from_bits(chosen | sign);
}

NUMERIC_INLINE float widen_f16(uint16_t half) {
  uint32_t magnitude = half & 0x7FFF;
  return widen(magnitude, (uint32_t)(half & 0x8000) << 16, 10, 15, magnitude >= 0x7C00);
}

NUMERIC_INLINE float widen_e4m3fn(uint8_t code) {
  uint32_t magnitude = code & 0x7F;
  return widen(magnitude, (uint32_t)(code & 0x80) << 24, 3, 7, magnitude == 0x7F);
}

/// 0x80 is the only NaN, so its magnitude, 0, must not make an infinity.
NUMERIC_INLINE float widen_fnuz(uint8_t code, int mantissa, int bias) {
  return widen(code == 0x80 ? 0x7F : code & 0x7F, (uint32_t)(code & 0x80) << 24, mantissa, bias, code == 0x80);
}

NUMERIC_INLINE float widen_e8m0(uint8_t code) {
  uint32_t bits = code == 0 ? UINT32_C(0x00400000) : (uint32_t)code << 23;
  return dit_float_from_bits(code == 0xFF ? UINT32_C(0x7FC00000) : bits);
}

#define WIDEN(type, expression)                \
  do {                                         \
    const type *values = (const void *)source; \
    for (int64_t i = 0; i < count; i++) {      \
      room[i] = expression;                    \
    }                                          \
  } while (0)

NUMERIC_INLINE void widen_float_body(int dtype, const char *restrict source, float *restrict room, int64_t count) {
  switch (dtype) {
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      WIDEN(uint16_t, widen_f16(values[i]));
      break;
    case DIT_DTYPE_BF16:
      WIDEN(uint16_t, dit_float_from_bits((uint32_t)values[i] << 16));
      break;
    case DIT_DTYPE_BOOL:
      WIDEN(uint8_t, values[i] != 0);
      break;
    case DIT_DTYPE_U8:
      WIDEN(uint8_t, values[i]);
      break;
    case DIT_DTYPE_I8:
      WIDEN(int8_t, values[i]);
      break;
    case DIT_DTYPE_I16:
      WIDEN(int16_t, values[i]);
      break;
    case DIT_DTYPE_U16:
      WIDEN(uint16_t, values[i]);
      break;
    case DIT_DTYPE_F8_E5M2:
      WIDEN(uint8_t, widen_f16((uint16_t)(values[i] << 8)));
      break;
    case DIT_DTYPE_F8_E4M3FN:
      WIDEN(uint8_t, widen_e4m3fn(values[i]));
      break;
    case DIT_DTYPE_F8_E5M2FNUZ:
      WIDEN(uint8_t, widen_fnuz(values[i], 2, 16));
      break;
    case DIT_DTYPE_F8_E4M3FNUZ:
      WIDEN(uint8_t, widen_fnuz(values[i], 3, 8));
      break;
    default:
      WIDEN(uint8_t, widen_e8m0(values[i]));
      break;
  }
}
NUMERIC_MULTI(static, widen_float, (int dtype, const char *restrict source, float *restrict room, int64_t count),
              (dtype, source, room, count))

#if SIMD_X86
/// The processor's own conversion of float16 (it ignores flush-to-zero); returns how many were done.
SIMD_V4 static int64_t convert_f16_v4(const uint16_t *source, float *room, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(room + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(source + i))));
  }
  return i;
}

SIMD_V3 static int64_t convert_f16_v3(const uint16_t *source, float *room, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(room + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(source + i))));
  }
  return i;
}

static int64_t convert_f16(const char *source, float *room, int64_t count) {
  if (numeric_level == 4) {
    return convert_f16_v4((const void *)source, room, count);
  }
  return numeric_level == 3 ? convert_f16_v3((const void *)source, room, count) : 0;
}
#else
static int64_t convert_f16(const char *source, float *room, int64_t count) {
  (void)source;
  (void)room;
  (void)count;
  return 0;
}
#endif

const float *stage_float(int dtype, const char *source, float *room, int64_t count) {
  if (dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_C64) {
    return (const void *)source;
  }
  int64_t done = dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_C32 ? convert_f16(source, room, count) : 0;
  if (done < count) {
    widen_float(dtype, source + done * 2, room + done, count - done);
  }
  return room;
}

const void *stage_lanes(int dtype, const char *source, float *room, int64_t count, enum lane_source *lanes) {
  if (numeric_level == 4 && stage_is_half(dtype)) {
    *lanes = dtype == DIT_DTYPE_BF16 ? LANE_BRAIN : LANE_HALF;
    return source;
  }
  *lanes = LANE_FLOAT;
  return stage_float(dtype, source, room, count);
}

NUMERIC_INLINE void widen_double_body(int dtype, const char *restrict source, double *restrict room, int64_t count) {
  switch (dtype) {
    case DIT_DTYPE_I32:
      WIDEN(int32_t, values[i]);
      break;
    case DIT_DTYPE_U32:
      WIDEN(uint32_t, values[i]);
      break;
    case DIT_DTYPE_I64:
      WIDEN(int64_t, (double)values[i]);
      break;
    case DIT_DTYPE_U64:
      WIDEN(uint64_t, (double)values[i]);
      break;
    default:
      WIDEN(float, values[i]);
      break;
  }
}
NUMERIC_MULTI(static, widen_double, (int dtype, const char *restrict source, double *restrict room, int64_t count),
              (dtype, source, room, count))

const double *stage_double(int dtype, const char *source, double *room, int64_t count) {
  if (dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_C128) {
    return (const void *)source;
  }
  if (stage_get_kind(dtype) != STAGE_FLOAT) {
    widen_double(dtype, source, room, count);
    return room;
  }
  float narrow[256];
  int64_t width = (int64_t)dit_dtype_get_size(dit_dtype_get_real(dtype));
  for (int64_t done = 0; done < count; done += 256) {
    int64_t part = count - done < 256 ? count - done : 256;
    const float *values = stage_float(dtype, source + done * width, narrow, part);
    widen_double(DIT_DTYPE_F32, (const char *)values, room + done, part);
  }
  return room;
}

/// Integers within 2^51 of 0 land in the significand of 1.5 * 2^52, which leaves them as the difference: processors
/// without a vector conversion of 64-bit integers need no other. `beyond`: 0 when all were, below 2 when within 2^53.
NUMERIC_INLINE void widen_exact_body(const uint64_t *restrict bits, bool is_signed, double *restrict room,
                                     int64_t count, uint64_t *beyond) {
  const uint64_t near = UINT64_C(1) << 51, far = UINT64_C(1) << 53;
  const uint64_t offset = is_signed ? near : 0, offset_far = is_signed ? far : 0;
  uint64_t found = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t sum = bits[i] + UINT64_C(0x4338000000000000);
    double value;
    memcpy(&value, &sum, sizeof(value));
    room[i] = value - 0x1.8p52;
    found |= bits[i] + offset >= near + offset ? 1 : 0;
    found |= bits[i] + offset_far > far + offset_far ? 2 : 0;
  }
  *beyond = found;
}
NUMERIC_MULTI(static, widen_exact,
              (const uint64_t *restrict bits, bool is_signed, double *restrict room, int64_t count, uint64_t *beyond),
              (bits, is_signed, room, count, beyond))

const double *stage_exact(int dtype, const char *source, double *room, int64_t count) {
  if (stage_get_kind(dtype) != STAGE_INT64) {
    return stage_double(dtype, source, room, count);
  }
  uint64_t beyond = 0;
  widen_exact((const void *)source, dtype == DIT_DTYPE_I64, room, count, &beyond);
  if (beyond == 0) {
    return room;
  }
  return beyond == 1 ? stage_double(dtype, source, room, count) : NULL;
}

long double stage_one(int dtype, const char *source, int64_t index) {
  if (dtype == DIT_DTYPE_I64) {
    return ((const int64_t *)(const void *)source)[index];
  }
  if (dtype == DIT_DTYPE_U64) {
    return ((const uint64_t *)(const void *)source)[index];
  }
  double room;
  return *stage_double(dtype, source + index * (int64_t)dit_dtype_get_size(dit_dtype_get_real(dtype)), &room, 1);
}
