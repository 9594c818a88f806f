/// Staging (see stage.h), and the choice of instruction set.
#include "numerics/stage.h"

#include "core/convert.h"
#include "dit/dtype.h"
#include "numerics/simd.h"

/// Builds with -DNUMERIC_LEVEL_MAX=3 or 0 test the code of smaller processors on a larger one.
#ifndef NUMERIC_LEVEL_MAX
#define NUMERIC_LEVEL_MAX 4
#endif

int numeric_level;

/// Every value of the float8 types, in the order of float8_tables.
enum { TABLE_E5M2, TABLE_E4M3FN, TABLE_E5M2FNUZ, TABLE_E4M3FNUZ, TABLE_E8M0FNU, TABLE_COUNT };
static float float8_tables[TABLE_COUNT][256];

/// Runs when the library is loaded, before any kernel can be called.
__attribute__((constructor)) static void prepare(void) {
  numeric_level = simd_get_level(NUMERIC_LEVEL_MAX);
  for (int code = 0; code < 256; code++) {
    float8_tables[TABLE_E5M2][code] = dit_float_from_f8_e5m2((uint8_t)code);
    float8_tables[TABLE_E4M3FN][code] = dit_float_from_f8_e4m3fn((uint8_t)code);
    float8_tables[TABLE_E5M2FNUZ][code] = dit_float_from_f8_e5m2fnuz((uint8_t)code);
    float8_tables[TABLE_E4M3FNUZ][code] = dit_float_from_f8_e4m3fnuz((uint8_t)code);
    float8_tables[TABLE_E8M0FNU][code] = dit_float_from_f8_e8m0fnu((uint8_t)code);
  }
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

/// float16 by selects, without branches and without arithmetic on subnormal numbers (which flush-to-zero would drop).
NUMERIC_INLINE float widen_f16(uint16_t half) {
  uint32_t magnitude = (uint32_t)(half & 0x7FFF) << 13;
  float tiny = dit_float_from_bits(magnitude + UINT32_C(0x38800000)) - 0x1p-14f;
  uint32_t normal = magnitude + UINT32_C(0x38000000);
  uint32_t special = magnitude | UINT32_C(0x7F800000);
  uint32_t bits = magnitude < UINT32_C(0x00800000) ? dit_float_get_bits(tiny) : normal;
  bits = magnitude >= UINT32_C(0x0F800000) ? special : bits;
  return dit_float_from_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

NUMERIC_INLINE void widen_half_body(const uint16_t *restrict source, float *restrict room, int64_t count, bool brain) {
  if (brain) {
    for (int64_t i = 0; i < count; i++) {
      room[i] = dit_float_from_bits((uint32_t)source[i] << 16);
    }
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    room[i] = widen_f16(source[i]);
  }
}
NUMERIC_MULTI(static, widen_half, (const uint16_t *restrict source, float *restrict room, int64_t count, bool brain),
              (source, room, count, brain))

static void widen_float8(const float *table, const char *source, float *room, int64_t count) {
  const uint8_t *codes = (const uint8_t *)source;
  for (int64_t i = 0; i < count; i++) {
    room[i] = table[codes[i]];
  }
}

#define WIDEN(type, expression)                \
  do {                                         \
    const type *values = (const void *)source; \
    for (int64_t i = 0; i < count; i++) {      \
      room[i] = expression;                    \
    }                                          \
  } while (0)

const float *stage_float(int dtype, const char *source, float *room, int64_t count) {
  switch (dtype) {
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      return (const void *)source;
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      widen_half((const void *)source, room, count, false);
      break;
    case DIT_DTYPE_BF16:
      widen_half((const void *)source, room, count, true);
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
      widen_float8(float8_tables[TABLE_E5M2], source, room, count);
      break;
    case DIT_DTYPE_F8_E4M3FN:
      widen_float8(float8_tables[TABLE_E4M3FN], source, room, count);
      break;
    case DIT_DTYPE_F8_E5M2FNUZ:
      widen_float8(float8_tables[TABLE_E5M2FNUZ], source, room, count);
      break;
    case DIT_DTYPE_F8_E4M3FNUZ:
      widen_float8(float8_tables[TABLE_E4M3FNUZ], source, room, count);
      break;
    default:
      widen_float8(float8_tables[TABLE_E8M0FNU], source, room, count);
      break;
  }
  return room;
}

const double *stage_double(int dtype, const char *source, double *room, int64_t count) {
  switch (dtype) {
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return (const void *)source;
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
    default: {
      float narrow[256];
      int64_t width = (int64_t)dit_dtype_get_size(dit_dtype_get_real(dtype));
      for (int64_t done = 0; done < count; done += 256) {
        int64_t part = count - done < 256 ? count - done : 256;
        const float *values = stage_float(dtype, source + done * width, narrow, part);
        for (int64_t i = 0; i < part; i++) {
          room[done + i] = values[i];
        }
      }
    }
  }
  return room;
}

bool stage_is_exact(int dtype, const char *source, int64_t count) {
  if (stage_get_kind(dtype) != STAGE_INT64) {
    return true;
  }
  const uint64_t *bits = (const void *)source;
  const uint64_t limit = UINT64_C(1) << 53, offset = dtype == DIT_DTYPE_I64 ? limit : 0;
  int64_t beyond = 0;
  for (int64_t i = 0; i < count; i++) {
    beyond |= bits[i] + offset > limit + offset;
  }
  return beyond == 0;
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
