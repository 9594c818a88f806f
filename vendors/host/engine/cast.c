/// Element type conversion (see cast.h).
///
/// Native C types convert directly (one loop per pair); half, bfloat16 and float8 go through float; complex through
/// pairs of double. A conversion to bool is != 0, to uint8 from a floating type goes through int64 (negative numbers
/// wrap, as in PyTorch).
#include "cast.h"

#include <stddef.h>

#include "dit/dtype.h"
#include "nest.h"
#include "scalar.h"

#if KERNEL_X86
#include <immintrin.h>
#define HALF_ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#endif

/// Types that C converts by itself.
#define NATIVE_LIST(X) \
  X(U8, uint8_t)       \
  X(I8, int8_t)        \
  X(I16, int16_t)      \
  X(I32, int32_t)      \
  X(I64, int64_t)      \
  X(U16, uint16_t)     \
  X(U32, uint32_t)     \
  X(U64, uint64_t)     \
  X(F32, float)        \
  X(F64, double)       \
  X(BOOL, uint8_t)
// clang-format off
#define NATIVE_LIST_FOR(X, suffix, type) \
  X(suffix, type, U8, uint8_t)           \
  X(suffix, type, I8, int8_t)            \
  X(suffix, type, I16, int16_t)          \
  X(suffix, type, I32, int32_t)          \
  X(suffix, type, I64, int64_t)          \
  X(suffix, type, U16, uint16_t)         \
  X(suffix, type, U32, uint32_t)         \
  X(suffix, type, U64, uint64_t)         \
  X(suffix, type, F32, float)            \
  X(suffix, type, F64, double)           \
  X(suffix, type, BOOL, uint8_t)
// clang-format on

enum native {
#define NATIVE_ENUM(suffix, type) NATIVE_##suffix,
  NATIVE_LIST(NATIVE_ENUM)
#undef NATIVE_ENUM
      NATIVE_COUNT
};

KERNEL_INLINE uint64_t wrap_to_u64(double value) {
  const uint64_t high = value >= 0x1p63;
  return (uint64_t)(int64_t)(value - (double)high * 0x1p63) ^ high << 63;
}

#define CAST_PARAMS (void *dst, const void *src, int64_t count)
#define CAST_ARGS (dst, src, count)
#define DEFINE_CAST(dst_suffix, dst_type, src_suffix, src_type)            \
  KERNEL_INLINE void cast_##dst_suffix##_##src_suffix##_body CAST_PARAMS { \
    dst_type *restrict d = dst;                                            \
    const src_type *restrict s = src;                                      \
    for (int64_t i = 0; i < count; i++) {                                  \
      d[i] = (dst_type)CONVERT_##dst_suffix(s[i]);                         \
    }                                                                      \
  }                                                                        \
  KERNEL_MULTI(static, cast_##dst_suffix##_##src_suffix, CAST_PARAMS, CAST_ARGS)
/// Only the pairs from floating types to unsigned ones and bool differ from a plain C conversion: negative numbers
/// wrap.
#define CONVERT_U8(value) _Generic((value), float: (int64_t)(value), double: (int64_t)(value), default: (value))
#define CONVERT_I8(value) (value)
#define CONVERT_I16(value) (value)
#define CONVERT_I32(value) (value)
#define CONVERT_I64(value) (value)
#define CONVERT_U16(value) CONVERT_U8(value)
#define CONVERT_U32(value) CONVERT_U8(value)
#define CONVERT_U64(value) \
  _Generic((value), float: wrap_to_u64((double)(value)), double: wrap_to_u64((double)(value)), default: (value))
#define CONVERT_F32(value) (value)
#define CONVERT_F64(value) (value)
#define CONVERT_BOOL(value) ((value) != 0)

#define DEFINE_ROW(suffix, type) NATIVE_LIST_FOR(DEFINE_CAST, suffix, type)
NATIVE_LIST(DEFINE_ROW)

/// int64 that fits into int32, as nearly all does, converts to float with vectors that AVX2 has; exactly alike.
#define SMALL_BLOCK 256
KERNEL_INLINE void cast_narrow_body(float *restrict d, const int64_t *restrict s, int64_t count, bool *fits) {
  uint64_t high = 0;
  for (int64_t i = 0; i < count; i++) {
    high |= ((uint64_t)s[i] + 0x80000000u) >> 32;
  }
  *fits = high == 0;
  for (int64_t i = 0; i < count && high == 0; i++) {
    d[i] = (float)(int32_t)s[i];
  }
}
KERNEL_MULTI(static, cast_narrow, (float *restrict d, const int64_t *restrict s, int64_t count, bool *fits),
             (d, s, count, fits))

static void cast_long_to_float CAST_PARAMS {
  for (int64_t i = 0; i < count; i += SMALL_BLOCK) {
    const int64_t n = count - i < SMALL_BLOCK ? count - i : SMALL_BLOCK;
    float *d = (float *)dst + i;
    const int64_t *s = (const int64_t *)src + i;
    bool fits;
    cast_narrow(d, s, n, &fits);
    if (!fits) {
      cast_F32_I64(d, s, n);
    }
  }
}

typedef void cast_function(void *dst, const void *src, int64_t count);
static cast_function *const native_casts[NATIVE_COUNT][NATIVE_COUNT] = {
#define CELL(dst_suffix, dst_type, src_suffix, src_type) \
  [NATIVE_##dst_suffix][NATIVE_##src_suffix] = cast_##dst_suffix##_##src_suffix,
#define ROW(suffix, type) NATIVE_LIST_FOR(CELL, suffix, type)
    NATIVE_LIST(ROW)
#undef CELL
#undef ROW
};

static void cast_native(int dst, int src, void *to, const void *from, int64_t count) {
  if (dst == NATIVE_F32 && src == NATIVE_I64) {
    cast_long_to_float(to, from, count);
  } else {
    native_casts[dst][src](to, from, count);
  }
}

static int get_native(int dtype) {
  switch (dtype) {
#define NATIVE_CASE(suffix, type) \
  case DIT_DTYPE_##suffix:        \
    return NATIVE_##suffix;
    NATIVE_LIST(NATIVE_CASE)
#undef NATIVE_CASE
    default:
      return -1;
  }
}

static const struct float8_format *get_float8(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F8_E5M2:
      return &float8_e5m2;
    case DIT_DTYPE_F8_E4M3FN:
      return &float8_e4m3fn;
    case DIT_DTYPE_F8_E5M2FNUZ:
      return &float8_e5m2fnuz;
    case DIT_DTYPE_F8_E4M3FNUZ:
      return &float8_e4m3fnuz;
    default:
      return NULL;
  }
}

static bool is_small(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16 || get_float8(dtype) != NULL;
}
static bool is_complex(int dtype) {
  return dtype == DIT_DTYPE_C32 || dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}

static void half_to_float_plain(float *restrict dst, const uint16_t *restrict src, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    dst[i] = half_to_float(src[i]);
  }
}
static void half_from_float_plain(uint16_t *restrict dst, const float *restrict src, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    dst[i] = half_from_float(src[i]);
  }
}

#if KERNEL_X86
// the processor's own conversions, 8 or 16 at a time
KERNEL_V3 static int64_t half_to_float_v3(float *dst, const uint16_t *src, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
  }
  return i;
}
KERNEL_V3 static int64_t half_from_float_v3(uint16_t *dst, const float *src, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), HALF_ROUND));
  }
  return i;
}
KERNEL_V4 static int64_t half_to_float_v4(float *dst, const uint16_t *src, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))));
  }
  return i;
}
KERNEL_V4 static int64_t half_from_float_v4(uint16_t *dst, const float *src, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm256_storeu_si256((__m256i *)(void *)(dst + i), _mm512_cvtps_ph(_mm512_loadu_ps(src + i), HALF_ROUND));
  }
  return i;
}
#define HALF_VECTORS(name) \
  (kernel_level == 4 ? name##_v4(dst, src, count) : kernel_level == 3 ? name##_v3(dst, src, count) : 0)
#else
#define HALF_VECTORS(name) 0
#endif

void cast_half_to_float(float *restrict dst, const uint16_t *restrict src, int64_t count) {
  const int64_t done = HALF_VECTORS(half_to_float);
  half_to_float_plain(dst + done, src + done, count - done);
}
static void cast_half_from_float(uint16_t *restrict dst, const float *restrict src, int64_t count) {
  const int64_t done = HALF_VECTORS(half_from_float);
  half_from_float_plain(dst + done, src + done, count - done);
}

KERNEL_INLINE void cast_bfloat_to_float_body(float *restrict dst, const uint16_t *restrict src, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    dst[i] = bfloat_to_float(src[i]);
  }
}
KERNEL_INLINE void cast_bfloat_from_float_body(uint16_t *restrict dst, const float *restrict src, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    dst[i] = bfloat_from_float(src[i]);
  }
}
KERNEL_MULTI(, cast_bfloat_to_float, (float *restrict dst, const uint16_t *restrict src, int64_t count),
             (dst, src, count))
KERNEL_MULTI(static, cast_bfloat_from_float, (uint16_t *restrict dst, const float *restrict src, int64_t count),
             (dst, src, count))

static void unpack_small(float *dst, int dtype, const void *src, int64_t count) {
  if (dtype == DIT_DTYPE_F16) {
    cast_half_to_float(dst, src, count);
  } else if (dtype == DIT_DTYPE_BF16) {
    cast_bfloat_to_float(dst, src, count);
  } else {
    const struct float8_format *format = get_float8(dtype);
    for (int64_t i = 0; i < count; i++) {
      dst[i] = float8_to_float(format, ((const uint8_t *)src)[i]);
    }
  }
}

static void pack_small(int dtype, void *dst, const float *src, int64_t count) {
  if (dtype == DIT_DTYPE_F16) {
    cast_half_from_float(dst, src, count);
  } else if (dtype == DIT_DTYPE_BF16) {
    cast_bfloat_from_float(dst, src, count);
  } else {
    const struct float8_format *format = get_float8(dtype);
    for (int64_t i = 0; i < count; i++) {
      ((uint8_t *)dst)[i] = float8_from_float(format, src[i]);
    }
  }
}

/// One block of at most NEST_BLOCK elements, at least one side half, bfloat16 or float8.
static void cast_small(int dst_dtype, void *dst, int src_dtype, const void *src, int64_t count) {
  float middle[NEST_BLOCK];
  const float *from = middle;
  if (is_small(src_dtype)) {
    float *target = dst_dtype == DIT_DTYPE_F32 ? dst : middle;
    unpack_small(target, src_dtype, src, count);
    if (dst_dtype == DIT_DTYPE_F32) {
      return;
    }
  } else if (src_dtype == DIT_DTYPE_F32) {
    from = src;
  } else {
    cast_native(NATIVE_F32, get_native(src_dtype), middle, src, count);
  }
  if (is_small(dst_dtype)) {
    pack_small(dst_dtype, dst, from, count);
  } else {
    native_casts[get_native(dst_dtype)][NATIVE_F32](dst, from, count);
  }
}

#define DEFINE_ADD_ZERO(type)                                                                     \
  KERNEL_INLINE void add_zero_##type##_body(type *restrict dst, const type *src, int64_t count) { \
    for (int64_t i = 0; i < count; i++) {                                                         \
      dst[2 * i] = src[i];                                                                        \
      dst[2 * i + 1] = 0;                                                                         \
    }                                                                                             \
  }                                                                                               \
  KERNEL_MULTI(static, add_zero_##type, (type *restrict dst, const type *src, int64_t count), (dst, src, count))
DEFINE_ADD_ZERO(uint16_t)
DEFINE_ADD_ZERO(uint32_t)
DEFINE_ADD_ZERO(uint64_t)

/// Complex numbers of real parts' bits; the imaginary ones are 0.
static void add_zero(int width, void *dst, const void *src, int64_t count) {
  if (width == 8) {
    add_zero_uint64_t(dst, src, count);
  } else if (width == 4) {
    add_zero_uint32_t(dst, src, count);
  } else {
    add_zero_uint16_t(dst, src, count);
  }
}

/// One block, at least one side complex: a real source gets a zero imaginary part, a real target drops it (bool: either
/// part not 0).
static void cast_complex(int dst_dtype, void *dst, int src_dtype, const void *src, int64_t count) {
  _Alignas(16) char parts[NEST_BLOCK * 8];
  const int dst_real = dit_dtype_get_real(dst_dtype), src_real = dit_dtype_get_real(src_dtype);
  if (is_complex(dst_dtype) && is_complex(src_dtype)) {
    cast_block(dst_real, dst, src_real, src, 2 * count);
  } else if (is_complex(dst_dtype)) {
    cast_block(dst_real, parts, src_dtype, src, count);
    add_zero((int)dit_dtype_get_size(dst_real), dst, parts, count);
  } else if (dst_dtype == DIT_DTYPE_BOOL) {
    uint8_t *flags = (uint8_t *)parts, *to = dst;
    cast_block(DIT_DTYPE_BOOL, flags, src_real, src, 2 * count);
    for (int64_t i = 0; i < count; i++) {
      to[i] = flags[2 * i] | flags[2 * i + 1];
    }
  } else {
    const int width = (int)dit_dtype_get_size(src_real);
    cast_gather(parts, src, 2 * width, width, count);
    cast_block(dst_dtype, dst, src_real, parts, count);
  }
}

bool cast_is_supported(int dst_dtype, int src_dtype) {
  if (dst_dtype == src_dtype) {
    return dit_dtype_get_size(dst_dtype) > 0;
  }
  bool dst = get_native(dst_dtype) >= 0 || is_small(dst_dtype) || is_complex(dst_dtype);
  bool src = get_native(src_dtype) >= 0 || is_small(src_dtype) || is_complex(src_dtype);
  return dst && src;
}

void cast_block(int dst_dtype, void *dst, int src_dtype, const void *src, int64_t count) {
  const int dst_native = get_native(dst_dtype), src_native = get_native(src_dtype);
  const int64_t dst_width = (int64_t)dit_dtype_get_size(dst_dtype), src_width = (int64_t)dit_dtype_get_size(src_dtype);
  if (dst_dtype == src_dtype) {
    memcpy(dst, src, (size_t)(count * dst_width));
    return;
  }
  if (dst_native >= 0 && src_native >= 0) {
    cast_native(dst_native, src_native, dst, src, count);
    return;
  }
  bool pairs = is_complex(dst_dtype) || is_complex(src_dtype);
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    (pairs ? cast_complex : cast_small)(dst_dtype, (char *)dst + i * dst_width, src_dtype,
                                        (const char *)src + i * src_width, n);
  }
}

struct wide {
  uint64_t part[2];
};
#define MOVE_LOOP(type)                                               \
  for (int64_t i = 0; i < count; i++) {                               \
    memcpy(dst + i * dst_stride, src + i * src_stride, sizeof(type)); \
  }                                                                   \
  break;

#define DEFINE_REPEAT(type)                                                                \
  KERNEL_INLINE void repeat_##type##_body(type *restrict dst, type value, int64_t count) { \
    for (int64_t i = 0; i < count; i++) {                                                  \
      dst[i] = value;                                                                      \
    }                                                                                      \
  }                                                                                        \
  KERNEL_MULTI(static, repeat_##type, (type *restrict dst, type value, int64_t count), (dst, value, count))
DEFINE_REPEAT(uint16_t)
DEFINE_REPEAT(uint32_t)
DEFINE_REPEAT(uint64_t)

/// One element `count` times, contiguous; src may be dst's first.
static void repeat(char *dst, const char *src, int width, int64_t count) {
  struct wide value = {{0, 0}};
  memcpy(&value, src, (size_t)width);
  if (width == 1) {
    memset(dst, *(const unsigned char *)&value, (size_t)count);
  } else if (width == 2) {
    uint16_t number;
    memcpy(&number, &value, sizeof number);
    repeat_uint16_t((uint16_t *)(void *)dst, number, count);
  } else if (width == 4) {
    uint32_t number;
    memcpy(&number, &value, sizeof number);
    repeat_uint32_t((uint32_t *)(void *)dst, number, count);
  } else if (width == 8) {
    repeat_uint64_t((uint64_t *)(void *)dst, value.part[0], count);
  } else {
    for (int64_t i = 0; i < count; i++) {
      memcpy(dst + i * width, &value, (size_t)width);
    }
  }
}

#define DEFINE_HALVE(type)                                                            \
  KERNEL_INLINE void halve_##type##_body(type *dst, const type *src, int64_t count) { \
    for (int64_t i = 0; i < count; i++) {                                             \
      dst[i] = src[2 * i];                                                            \
    }                                                                                 \
  }                                                                                   \
  KERNEL_MULTI(static, halve_##type, (type * dst, const type *src, int64_t count), (dst, src, count))
DEFINE_HALVE(uint32_t)
DEFINE_HALVE(uint64_t)

/// Every second element, as one part of complex numbers, by vectors; false where it is not that.
static bool halve(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int width, int64_t count) {
  if (dst_stride != width || src_stride != 2 * (int64_t)width || count < 16 || (uintptr_t)src % (uintptr_t)width != 0 ||
      (uintptr_t)dst % (uintptr_t)width != 0) {
    return false;
  }
  if (width == 4) {
    halve_uint32_t((uint32_t *)(void *)dst, (const uint32_t *)(const void *)src, count);
  } else if (width == 8) {
    halve_uint64_t((uint64_t *)(void *)dst, (const uint64_t *)(const void *)src, count);
  }
  return width == 4 || width == 8;
}

void cast_move(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int width, int64_t count) {
  if (src_stride == 0 && dst_stride == width) {
    repeat(dst, src, width, count);
    return;
  }
  if (dst_stride == width && src_stride == width) {
    memmove(dst, src, (size_t)(count * width));
    return;
  }
  if (halve(dst, dst_stride, src, src_stride, width, count)) {
    return;
  }
  switch (width) {
    case 1:
      MOVE_LOOP(uint8_t)
    case 2:
      MOVE_LOOP(uint16_t)
    case 4:
      MOVE_LOOP(uint32_t)
    case 8:
      MOVE_LOOP(uint64_t)
    default:
      MOVE_LOOP(struct wide)
  }
}

void cast_gather(void *dst, const char *src, int64_t stride, int width, int64_t count) {
  cast_move(dst, width, src, stride, width, count);
}

void cast_scatter(char *dst, int64_t stride, const void *src, int width, int64_t count) {
  cast_move(dst, stride, src, width, width, count);
}
