/// Elements and addresses: bits of any dtype to double, strided offsets, a thread's way through a tensor.
///
/// Everything is exact but 64-bit integers, which double rounds. Part of helper_kernels.cu.
#ifndef DIT_CUDA_HELPER_ELEMENT_CUH
#define DIT_CUDA_HELPER_ELEMENT_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "helper_kernels.h"

#if defined(__CUDACC__)
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(HELPER_THREADS)
#define PARAMETER const __grid_constant__
#define UNROLL _Pragma("unroll")
#define UNROLL_1 _Pragma("unroll 1")
#define UNROLL_2 _Pragma("unroll 2")
#define UNROLL_4 _Pragma("unroll 4")
#endif

#define VECTOR 16  // bytes of one load

__extension__ typedef __int128 wide_int;
__extension__ typedef unsigned __int128 wide_uint;

/// Memory whose type the compiler does not know.
typedef uint16_t raw16 __attribute__((__may_alias__));
typedef uint32_t raw32 __attribute__((__may_alias__));
typedef uint64_t raw64 __attribute__((__may_alias__));

/// The bits of one element; `high` for complex128 alone.
struct bits128 {
  uint64_t low, high;
};

DEVICE int dtype_get_width(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_C128:
      return 16;
    case DIT_DTYPE_F64:
    case DIT_DTYPE_I64:
    case DIT_DTYPE_U64:
    case DIT_DTYPE_C64:
      return 8;
    case DIT_DTYPE_F32:
    case DIT_DTYPE_I32:
    case DIT_DTYPE_U32:
    case DIT_DTYPE_C32:
    case DIT_DTYPE_QI32:
      return 4;
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
    case DIT_DTYPE_I16:
    case DIT_DTYPE_U16:
    case DIT_DTYPE_BITS16:
      return 2;
    default:
      return 1;
  }
}

DEVICE bool dtype_is_complex(int dtype) {
  return dtype == DIT_DTYPE_C32 || dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}

DEVICE bool dtype_is_int64(int dtype) {
  return dtype == DIT_DTYPE_I64 || dtype == DIT_DTYPE_U64;
}

/// Do squares of this type leave double's range?
DEVICE bool dtype_is_wide(int dtype) {
  return dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_C128;
}

DEVICE struct bits128 load_vector(const char *at) {
  const ulonglong2 pair = *(const ulonglong2 *)(const void *)at;
  struct bits128 bits;
  bits.low = pair.x;
  bits.high = pair.y;
  return bits;
}

/// One element at an address aligned to its real type.
DEVICE struct bits128 load_element(const char *at, int width) {
  struct bits128 bits;
  bits.low = bits.high = 0;
  if (width == 1) {
    bits.low = *(const uint8_t *)(const void *)at;
  } else if (width == 2) {
    bits.low = *(const raw16 *)(const void *)at;
  } else if (width == 4) {
    // complex32 is aligned to 2 bytes
    bits.low = (uintptr_t)at % 4 ? (uint64_t)((const raw16 *)(const void *)at)[0] |
                                       (uint64_t)((const raw16 *)(const void *)at)[1] << 16
                                 : *(const raw32 *)(const void *)at;
  } else if ((uintptr_t)at % 8) {
    bits.low = (uint64_t)((const raw32 *)(const void *)at)[0] | (uint64_t)((const raw32 *)(const void *)at)[1] << 32;
  } else {
    bits.low = *(const raw64 *)(const void *)at;
    if (width == 16) {
      bits.high = ((const raw64 *)(const void *)at)[1];
    }
  }
  return bits;
}

/// Element number `index` of a loaded vector.
DEVICE struct bits128 take_element(struct bits128 vector, int index, int width) {
  struct bits128 bits = vector;
  if (width < 16) {
    uint64_t word = index * width < 8 ? vector.low : vector.high;
    bits.low = word >> (index * width % 8 * 8);
    bits.low = width < 8 ? bits.low & ((UINT64_C(1) << (width % 8 * 8)) - 1) : bits.low;
    bits.high = 0;
  }
  return bits;
}

DEVICE double double_from_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

DEVICE double float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// A short float without its sign, finite: value = fraction * 2^(exponent - bias), exact in double.
DEVICE double short_from_bits(uint32_t magnitude, int mantissa, int bias, bool negative) {
  uint32_t exponent = magnitude >> mantissa, fraction = magnitude & ((1U << mantissa) - 1);
  double scale = double_from_bits((uint64_t)(1023 + (exponent ? (int)exponent : 1) - bias - mantissa) << 52);
  double value = (double)(exponent ? fraction | 1U << mantissa : fraction) * scale;
  return negative ? -value : value;
}

DEVICE double nan_get(void) {
  return double_from_bits(UINT64_C(0x7FF8000000000000));
}

DEVICE double infinity_get(void) {
  return double_from_bits(UINT64_C(0x7FF0000000000000));
}

DEVICE double half_from_bits(uint32_t bits) {
  uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00) {
    return magnitude > 0x7C00 ? nan_get() : bits & 0x8000 ? -infinity_get() : infinity_get();
  }
  return short_from_bits(magnitude, 10, 15, (bits & 0x8000) != 0);
}

DEVICE double float8_from_bits(uint32_t bits, int dtype) {
  bool negative = (bits & 0x80) != 0;
  switch (dtype) {
    case DIT_DTYPE_F8_E5M2:
      return half_from_bits(bits << 8);
    case DIT_DTYPE_F8_E4M3FN:
      return (bits & 0x7F) == 0x7F ? nan_get() : short_from_bits(bits & 0x7F, 3, 7, negative);
    case DIT_DTYPE_F8_E5M2FNUZ:
      return bits == 0x80 ? nan_get() : short_from_bits(bits & 0x7F, 2, 16, negative);
    case DIT_DTYPE_F8_E4M3FNUZ:
      return bits == 0x80 ? nan_get() : short_from_bits(bits & 0x7F, 3, 8, negative);
    default:  // float8_e8m0fnu: 2^(bits - 127)
      return bits == 0xFF ? nan_get() : double_from_bits((uint64_t)(1023 + (int)bits - 127) << 52);
  }
}

/// One real number as double; 64-bit integers are rounded.
DEVICE double real_from_bits(uint64_t bits, int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return double_from_bits(bits);
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      return float_from_bits((uint32_t)bits);
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      return half_from_bits((uint32_t)bits & 0xFFFF);
    case DIT_DTYPE_BF16:
      return float_from_bits((uint32_t)bits << 16);
    case DIT_DTYPE_BOOL:
      return bits != 0;
    case DIT_DTYPE_U8:
    case DIT_DTYPE_U16:
    case DIT_DTYPE_U32:
      return (double)bits;
    case DIT_DTYPE_I8:
      return (int8_t)bits;
    case DIT_DTYPE_I16:
      return (int16_t)bits;
    case DIT_DTYPE_I32:
      return (int32_t)bits;
    case DIT_DTYPE_I64:
      return (double)(int64_t)bits;
    case DIT_DTYPE_U64:
      return (double)bits;
    default:
      return float8_from_bits((uint32_t)bits, dtype);
  }
}

DEVICE double imag_from_bits(struct bits128 bits, int dtype) {
  if (dtype == DIT_DTYPE_C128) {
    return double_from_bits(bits.high);
  }
  return real_from_bits(dtype == DIT_DTYPE_C64 ? bits.low >> 32 : bits.low >> 16, dtype);
}

DEVICE bool is_finite(double x) {
  return x - x == 0;
}

DEVICE bool is_nan(double x) {
  return x != x;
}

/// Magnitude of a complex number; `wide` where squares leave the range.
DEVICE double size_get(double re, double im, bool wide) {
  return wide ? hypot(re, im) : sqrt(re * re + im * im);
}

DEVICE int64_t offset_get(const struct kernel_dim *dims, int ndim, int64_t index) {
  int64_t offset = 0;
  if (index <= INT32_MAX) {
    uint32_t rest = (uint32_t)index;
    UNROLL_1 for (int dim = 0; dim < ndim - 1; dim++) {
      // A dimension of 2^32 or more holds the whole rest.
      uint32_t size = dims[dim].size > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)dims[dim].size;
      uint32_t next = rest / size;
      offset += (int64_t)(rest - next * size) * dims[dim].stride;
      rest = next;
    }
    return offset + (int64_t)rest * dims[ndim - 1].stride;
  }
  UNROLL_1 for (int dim = 0; dim < ndim - 1; dim++) {
    int64_t next = index / dims[dim].size;
    offset += (index - next * dims[dim].size) * dims[dim].stride;
    index = next;
  }
  return offset + index * dims[ndim - 1].stride;
}

/// This thread's way through a tensor: step by step a vector of elements where memory is flat and aligned, else one.
struct cursor {
  int64_t at, step, vectors, end;
  int width, per;  ///< bytes of an element, elements of a vector
};

/// `width` may be that of a complex number's part.
DEVICE struct cursor cursor_make(const struct kernel_tensor *tensor, int width, bool aligned) {
  struct cursor cursor;
  int64_t numel = tensor->numel * (dtype_get_width(tensor->dtype) / width);
  cursor.width = width;
  cursor.per = VECTOR / width;
  cursor.vectors = aligned ? numel / cursor.per : 0;
  cursor.end = cursor.vectors + (numel - cursor.vectors * cursor.per);
  cursor.step = (int64_t)tensor->blocks * HELPER_THREADS;
  cursor.at = (int64_t)blockIdx.x * HELPER_THREADS + threadIdx.x;
  return cursor;
}

DEVICE bool is_aligned(const struct kernel_tensor *tensor) {
  return tensor->ndim == 0 && (uintptr_t)tensor->data % VECTOR == 0;
}

/// Elements of the step at `at`.
DEVICE int cursor_get_count(const struct cursor *cursor, int64_t at) {
  return at < cursor->vectors ? cursor->per : 1;
}

/// What the step at `at` of a flat tensor reads; nothing beyond the end.
DEVICE struct bits128 cursor_load(const struct cursor *cursor, const struct kernel_tensor *tensor, int64_t at) {
  struct bits128 none;
  none.low = none.high = 0;
  if (at < cursor->vectors) {
    return load_vector(tensor->data + at * VECTOR);
  }
  if (at >= cursor->end) {
    return none;
  }
  int64_t element = cursor->vectors * cursor->per + (at - cursor->vectors);
  return load_element(tensor->data + element * cursor->width, cursor->width);
}

/// The loop over a thread's steps of a flat tensor, with LOOKAHEAD loads under way: `body` sees `loaded` and `count`.
#define LOOKAHEAD 3
#define FOR_STEPS(cursor, tensor, body)                                                         \
  do {                                                                                          \
    struct bits128 ahead[LOOKAHEAD];                                                            \
    UNROLL for (int j = 0; j < LOOKAHEAD; j++) {                                                \
      ahead[j] = cursor_load(&cursor, tensor, cursor.at + j * cursor.step);                     \
    }                                                                                           \
    UNROLL_1 for (; cursor.at < cursor.end; cursor.at += cursor.step) {                         \
      struct bits128 loaded = ahead[0];                                                         \
      int count = cursor_get_count(&cursor, cursor.at);                                         \
      UNROLL for (int j = 0; j + 1 < LOOKAHEAD; j++) {                                          \
        ahead[j] = ahead[j + 1];                                                                \
      }                                                                                         \
      ahead[LOOKAHEAD - 1] = cursor_load(&cursor, tensor, cursor.at + LOOKAHEAD * cursor.step); \
      body;                                                                                     \
    }                                                                                           \
  } while (0)

#endif
