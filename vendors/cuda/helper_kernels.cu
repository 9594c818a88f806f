/// Kernels of the CUDA helper: non-finite flags, statistics, comparison and hash of strided tensors (contract in
/// include/dit/helper.h; the numbers are those of src/numerics).
///
/// Grid: x = blocks of a tensor, y = tensor. A block of HELPER_THREADS threads takes every blocks-th group of elements,
/// reduces in shared memory as a tree and leaves a partial result; the block that finishes last combines them in order
/// and writes the slot. The cut depends on shape and dtype alone, so results are the same bits on every run and device.
///
/// Moments: a thread sums distances from its first finite value; groups are merged by their means (Chan). For float64
/// the sums are kept in one of three units so that squares neither overflow nor vanish: bin 0 counts in 2^-600 (all
/// |x| < 2^-400 so far), bin 1 in 1, bin 2 in 2^600 (some |x| > 2^400); what is lost when a bin is raised is below the
/// rounding of the rest.
///
/// Written in the subset that C11 and CUDA C++ share and built with -fmad=false: tests/c/test_helper_kernels.c compiles
/// this file for the CPU and compares it with src/numerics. Depends on helper_kernels.h.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "helper_kernels.h"

#if defined(__CUDACC__)
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(HELPER_THREADS)
#define PARAMETER const __grid_constant__
#endif

#define VECTOR 16  // bytes of one load

__extension__ typedef __int128 wide_int;
__extension__ typedef unsigned __int128 wide_uint;

// ---- elements

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
    bits.low = *(const uint16_t *)(const void *)at;
  } else if (width == 4) {
    // complex32 is aligned to 2 bytes
    bits.low = (uintptr_t)at % 4 ? (uint64_t)((const uint16_t *)(const void *)at)[0] |
                                       (uint64_t)((const uint16_t *)(const void *)at)[1] << 16
                                 : *(const uint32_t *)(const void *)at;
  } else if ((uintptr_t)at % 8) {
    bits.low = (uint64_t)((const uint32_t *)(const void *)at)[0] | (uint64_t)((const uint32_t *)(const void *)at)[1]
                                                                       << 32;
  } else {
    bits.low = *(const uint64_t *)(const void *)at;
    if (width == 16) {
      bits.high = ((const uint64_t *)(const void *)at)[1];
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

// ---- addresses

DEVICE int64_t offset_get(const struct kernel_dim *dims, int ndim, int64_t index) {
  int64_t offset = 0;
  if (index <= INT32_MAX) {
    uint32_t rest = (uint32_t)index;
    _Pragma("unroll 1") for (int dim = 0; dim < ndim - 1; dim++) {
      // A dimension of 2^32 or more holds the whole rest.
      uint32_t size = dims[dim].size > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)dims[dim].size;
      uint32_t next = rest / size;
      offset += (int64_t)(rest - next * size) * dims[dim].stride;
      rest = next;
    }
    return offset + (int64_t)rest * dims[ndim - 1].stride;
  }
  _Pragma("unroll 1") for (int dim = 0; dim < ndim - 1; dim++) {
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
    _Pragma("unroll") for (int j = 0; j < LOOKAHEAD; j++) {                                     \
      ahead[j] = cursor_load(&cursor, tensor, cursor.at + j * cursor.step);                     \
    }                                                                                           \
    _Pragma("unroll 1") for (; cursor.at < cursor.end; cursor.at += cursor.step) {              \
      struct bits128 loaded = ahead[0];                                                         \
      int count = cursor_get_count(&cursor, cursor.at);                                         \
      _Pragma("unroll") for (int j = 0; j + 1 < LOOKAHEAD; j++) {                               \
        ahead[j] = ahead[j + 1];                                                                \
      }                                                                                         \
      ahead[LOOKAHEAD - 1] = cursor_load(&cursor, tensor, cursor.at + LOOKAHEAD * cursor.step); \
      body;                                                                                     \
    }                                                                                           \
  } while (0)

// ---- the end of a block

/// True in every thread of the block that ends last; what the others wrote before is then visible.
DEVICE bool block_is_last(struct kernel_scratch *scratch, int tensor, uint32_t blocks) {
  __shared__ int last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&scratch->ticket[tensor], 1U) == blocks - 1;
    if (last) {
      scratch->ticket[tensor] = 0;
    }
    __threadfence();
  }
  __syncthreads();
  return last != 0;
}

/// Copy past the first-level cache: other blocks wrote it.
DEVICE void fetch_words(void *target, const void *source, int words) {
  for (int i = 0; i < words; i++) {
    ((uint64_t *)target)[i] = ((const volatile uint64_t *)source)[i];
  }
}

// ---- non-finite flags

/// ((bits ^ flip) & mask): equal to `inf` infinite, `nan` or more NaN. width 0: the type has neither.
struct special_rule {
  int width;  ///< bytes of one real number
  uint64_t flip, mask, inf, nan;
};

DEVICE struct special_rule rule_make(int width, uint64_t flip, uint64_t mask, uint64_t inf, uint64_t nan) {
  struct special_rule rule;
  rule.width = width;
  rule.flip = flip;
  rule.mask = mask;
  rule.inf = inf;
  rule.nan = nan;
  return rule;
}

DEVICE struct special_rule rule_get(int dtype) {
  const uint64_t none = UINT64_MAX;
  switch (dtype) {
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return rule_make(8, 0, INT64_MAX, UINT64_C(0x7FF0000000000000), UINT64_C(0x7FF0000000000001));
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      return rule_make(4, 0, INT32_MAX, 0x7F800000, 0x7F800001);
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      return rule_make(2, 0, 0x7FFF, 0x7C00, 0x7C01);
    case DIT_DTYPE_BF16:
      return rule_make(2, 0, 0x7FFF, 0x7F80, 0x7F81);
    case DIT_DTYPE_F8_E5M2:
      return rule_make(1, 0, 0x7F, 0x7C, 0x7D);
    case DIT_DTYPE_F8_E4M3FN:
      return rule_make(1, 0, 0x7F, none, 0x7F);
    case DIT_DTYPE_F8_E5M2FNUZ:
    case DIT_DTYPE_F8_E4M3FNUZ:
      return rule_make(1, 0x7F, 0xFF, none, 0xFF);
    case DIT_DTYPE_F8_E8M0FNU:
      return rule_make(1, 0, 0xFF, none, 0xFF);
    default:
      return rule_make(0, 0, 0, none, none);
  }
}

DEVICE uint32_t flags_get(uint64_t bits, const struct special_rule *rule) {
  uint64_t value = (bits ^ rule->flip) & rule->mask;
  return (value >= rule->nan ? DIT_NONFINITE_NAN : 0U) | (value == rule->inf ? DIT_NONFINITE_INF : 0U);
}

DEVICE uint32_t flags_of_flat(const struct kernel_tensor *tensor, const struct special_rule *rule, int width) {
  // A complex element is two real numbers.
  struct cursor cursor = cursor_make(tensor, width, is_aligned(tensor));
  uint32_t flags = 0;
  FOR_STEPS(cursor, tensor, {
    if (count > 1 || VECTOR / width == 1) {
      _Pragma("unroll") for (int i = 0; i < VECTOR / width; i++) {
        flags |= flags_get(take_element(loaded, i, width).low, rule);
      }
    } else {
      flags |= flags_get(loaded.low, rule);
    }
  });
  return flags;
}

DEVICE uint32_t flags_of_strided(const struct kernel_tensor *tensor, const struct kernel_dim *dims,
                                 const struct special_rule *rule) {
  int width = dtype_get_width(tensor->dtype), parts = rule->width ? width / rule->width : 0;
  uint32_t flags = 0;
  struct cursor cursor = cursor_make(tensor, width, false);
  for (; cursor.at < cursor.end; cursor.at += cursor.step) {
    const char *address = tensor->data + offset_get(dims, tensor->ndim, cursor.at);
    for (int part = 0; part < parts; part++) {
      flags |= flags_get(load_element(address + part * rule->width, rule->width).low, rule);
    }
  }
  return flags;
}

/// Combine the flags of all threads of all blocks of a tensor and write the slot.
DEVICE void flags_finish(const struct kernel_batch *batch, int index, uint32_t mine) {
  const struct kernel_tensor *tensor = &batch->tensor[index];
  __shared__ unsigned any;
  if (threadIdx.x == 0) {
    any = 0;
  }
  __syncthreads();
  if (mine) {
    atomicOr(&any, mine);
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  uint8_t *out = (uint8_t *)batch->out + tensor->slot;
  if (tensor->blocks == 1) {
    *out = (uint8_t)any;
    return;
  }
  if (any) {
    atomicOr(&batch->scratch->flags[index], any);
  }
  __threadfence();
  if (atomicAdd(&batch->scratch->ticket[index], 1U) == tensor->blocks - 1) {
    __threadfence();
    *out = (uint8_t)atomicExch(&batch->scratch->flags[index], 0U);
    batch->scratch->ticket[index] = 0;
  }
}

KERNEL helper_nonfinite(PARAMETER struct kernel_batch batch) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &batch.tensor[index];
  if (blockIdx.x >= tensor->blocks) {
    return;
  }
  struct special_rule rule = rule_get(tensor->dtype);
  uint32_t flags = 0;
  if (rule.width == 2) {
    flags = flags_of_flat(tensor, &rule, 2);
  } else if (rule.width == 4) {
    flags = flags_of_flat(tensor, &rule, 4);
  } else if (rule.width == 1) {
    flags = flags_of_flat(tensor, &rule, 1);
  } else if (rule.width == 8) {
    flags = flags_of_flat(tensor, &rule, 8);
  }
  flags_finish(&batch, index, flags);
}

KERNEL helper_nonfinite_strided(PARAMETER struct kernel_batch_strided strided) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &strided.batch.tensor[index];
  if (blockIdx.x >= tensor->blocks) {
    return;
  }
  struct special_rule rule = rule_get(tensor->dtype);
  uint32_t flags = rule.width ? flags_of_strided(tensor, strided.dims + tensor->first_dim, &rule) : 0;
  flags_finish(&strided.batch, index, flags);
}

// ---- scaled sums

#define BIN_LOW 0
#define BIN_PLAIN 1
#define BIN_HIGH 2

/// Real numbers are multiplied by this in a bin: 2^600, 1, 2^-600.
DEVICE double bin_get_scale(int bin) {
  return bin == BIN_PLAIN ? 1.0 : double_from_bits((uint64_t)(bin == BIN_LOW ? 1023 + 600 : 1023 - 600) << 52);
}

DEVICE int bin_get(double x) {
  double size = fabs(x);
  return size > 0x1p400 ? BIN_HIGH : size < 0x1p-400 ? BIN_LOW : BIN_PLAIN;
}

/// A sum from one bin's unit to a higher one's.
DEVICE double bin_raise(double sum, int from, int to) {
  sum = from < to ? sum * 0x1p-600 : sum;
  return from + 1 < to ? sum * 0x1p-600 : sum;
}

/// The same for a sum of squares or products of `steps` raised factors.
DEVICE double bin_raise_square(double sum, int from, int to) {
  return bin_raise(bin_raise(sum, from, to), from, to);
}

/// A sum in a bin's unit as an ordinary number (which may be infinite or 0).
DEVICE double bin_leave(double sum, int bin) {
  return bin == BIN_PLAIN ? sum : sum * bin_get_scale(BIN_HIGH - bin);
}

DEVICE double smaller_get(double a, double b) {
  return a < b ? a : b;
}

DEVICE double larger_get(double a, double b) {
  return a > b ? a : b;
}

// ---- statistics

/// Distances of one part (real or imaginary) from its first value.
struct part_sums {
  double shift, sum, square;
};

/// What one thread has seen.
struct stats_state {
  int32_t count, zero, nan, pos_inf, neg_inf;
  int32_t bin;
  double min, max;
  struct part_sums real, imag;
  double norm;    ///< sum of squares
  uint64_t base;  ///< 64-bit integers: distances are from this member of the tensor
  uint64_t min_int, max_int;
  wide_int sum;
};

DEVICE void stats_init(struct stats_state *s, int dtype, uint64_t base) {
  memset(s, 0, sizeof(*s));
  s->min = infinity_get();
  s->max = -infinity_get();
  s->bin = dtype_is_wide(dtype) ? BIN_LOW : BIN_PLAIN;
  s->base = base;
}

DEVICE void part_add(struct part_sums *part, double x, bool first, double scale) {
  if (first) {
    part->shift = x;
  }
  double distance = x * scale - part->shift * scale;
  part->sum += distance;
  part->square += distance * distance;
}

DEVICE void part_raise(struct part_sums *part, int from, int to) {
  part->sum = bin_raise(part->sum, from, to);
  part->square = bin_raise_square(part->square, from, to);
}

/// A finite number; `size` is what min and max are of.
DEVICE void stats_add_finite(struct stats_state *s, double re, double im, double size, bool is_complex, bool wide) {
  double scale = 1;
  if (wide) {
    int bin = bin_get(size > 0 || size < 0 ? size : 0);
    if (bin > s->bin) {
      part_raise(&s->real, s->bin, bin);
      part_raise(&s->imag, s->bin, bin);
      s->norm = bin_raise_square(s->norm, s->bin, bin);
      s->bin = bin;
    }
    scale = bin_get_scale(s->bin);
  }
  bool first = s->count == 0;
  part_add(&s->real, re, first, scale);
  s->norm += re * scale * (re * scale);
  if (is_complex) {
    part_add(&s->imag, im, first, scale);
    s->norm += im * scale * (im * scale);
  }
  s->min = smaller_get(size, s->min);
  s->max = larger_get(size, s->max);
  s->zero += re == 0 && im == 0;
  s->count++;
}

DEVICE void stats_add_int(struct stats_state *s, uint64_t bits, bool is_signed) {
  // Compared as unsigned numbers, with the sign bit turned over.
  uint64_t flip = is_signed ? UINT64_C(1) << 63 : 0;
  bool first = s->count == 0, below = (bits ^ flip) < (s->base ^ flip);
  double value = is_signed ? (double)(int64_t)bits : (double)bits;
  part_add(&s->real, below ? -(double)(s->base - bits) : (double)(bits - s->base), first, 1);
  s->norm += value * value;
  s->min_int = first || (bits ^ flip) < (s->min_int ^ flip) ? bits : s->min_int;
  s->max_int = first || (bits ^ flip) > (s->max_int ^ flip) ? bits : s->max_int;
  s->sum += is_signed ? (wide_int)(int64_t)bits : (wide_int)bits;
  s->zero += bits == 0;
  s->count++;
}

DEVICE void stats_add(struct stats_state *s, struct bits128 bits, int dtype) {
  if (dtype_is_int64(dtype)) {
    stats_add_int(s, bits.low, dtype == DIT_DTYPE_I64);
    return;
  }
  bool is_complex = dtype_is_complex(dtype), wide = dtype_is_wide(dtype);
  double re = real_from_bits(bits.low, dtype), im = is_complex ? imag_from_bits(bits, dtype) : 0;
  if (is_finite(re) && is_finite(im)) {
    stats_add_finite(s, re, im, is_complex ? size_get(re, im, wide) : re, is_complex, wide);
  } else if (is_nan(re) || is_nan(im)) {
    s->nan++;
  } else if (is_complex || re > 0) {
    s->pos_inf++;
  } else {
    s->neg_inf++;
  }
}

DEVICE void stats_of_flat(struct stats_state *s, const struct kernel_tensor *tensor, int dtype) {
  struct cursor cursor = cursor_make(tensor, dtype_get_width(dtype), is_aligned(tensor));
  FOR_STEPS(cursor, tensor, {
    _Pragma("unroll 2") for (int i = 0; i < count; i++) {
      stats_add(s, take_element(loaded, i, cursor.width), dtype);
    }
  });
}

DEVICE void stats_of_strided(struct stats_state *s, const struct kernel_tensor *tensor, const struct kernel_dim *dims) {
  int dtype = tensor->dtype;
  struct cursor cursor = cursor_make(tensor, dtype_get_width(dtype), false);
  _Pragma("unroll 1") for (; cursor.at < cursor.end; cursor.at += cursor.step) {
    const char *address = tensor->data + offset_get(dims, tensor->ndim, cursor.at);
    stats_add(s, load_element(address, cursor.width), dtype);
  }
}

/// A thread's sums as moments: count, mean, squared distances from it.
DEVICE void stats_leave(const struct stats_state *s, struct stats_partial *out) {
  double count = s->count > 0 ? s->count : 1, scale = bin_get_scale(s->bin);
  out->count = s->count;
  out->zero = s->zero;
  out->nan = s->nan;
  out->pos_inf = s->pos_inf;
  out->neg_inf = s->neg_inf;
  out->min = s->min;
  out->max = s->max;
  out->mean = s->real.shift * scale + s->real.sum / count;
  out->spread = larger_get(0, s->real.square - s->real.sum * (s->real.sum / count));
  out->mean_imag = s->imag.shift * scale + s->imag.sum / count;
  out->spread_imag = larger_get(0, s->imag.square - s->imag.sum * (s->imag.sum / count));
  out->square = s->norm;
  out->min_int = (int64_t)s->min_int;
  out->max_int = (int64_t)s->max_int;
  out->sum_low = (uint64_t)s->sum;
  out->sum_high = (uint64_t)(s->sum >> 64);
  out->bin = s->bin;
}

DEVICE void partial_raise(struct stats_partial *p, int64_t bin) {
  int from = (int)p->bin, to = (int)bin;
  if (from < to) {
    p->mean = bin_raise(p->mean, from, to);
    p->mean_imag = bin_raise(p->mean_imag, from, to);
    p->spread = bin_raise_square(p->spread, from, to);
    p->spread_imag = bin_raise_square(p->spread_imag, from, to);
    p->square = bin_raise_square(p->square, from, to);
    p->bin = bin;
  }
}

/// Both groups have elements.
DEVICE void moments_merge(double *mean, double *spread, double count, double other_mean, double other_spread,
                          double other_count) {
  double share = other_count / (count + other_count), delta = other_mean - *mean;
  *spread += other_spread + delta * delta * (count * share);
  *mean += delta * share;
}

/// Add `b` to `a`.
DEVICE void partial_merge(struct stats_partial *a, const struct stats_partial *other, int dtype) {
  struct stats_partial b = *other;
  uint64_t flip = dtype == DIT_DTYPE_I64 ? UINT64_C(1) << 63 : 0;
  partial_raise(a, b.bin);
  partial_raise(&b, a->bin);
  a->nan += b.nan;
  a->pos_inf += b.pos_inf;
  a->neg_inf += b.neg_inf;
  if (b.count == 0) {
    return;
  }
  if (a->count == 0) {
    a->mean = b.mean;
    a->spread = b.spread;
    a->mean_imag = b.mean_imag;
    a->spread_imag = b.spread_imag;
  } else {
    moments_merge(&a->mean, &a->spread, (double)a->count, b.mean, b.spread, (double)b.count);
    moments_merge(&a->mean_imag, &a->spread_imag, (double)a->count, b.mean_imag, b.spread_imag, (double)b.count);
  }
  if (a->count == 0 || ((uint64_t)b.min_int ^ flip) < ((uint64_t)a->min_int ^ flip)) {
    a->min_int = b.min_int;
  }
  if (a->count == 0 || ((uint64_t)b.max_int ^ flip) > ((uint64_t)a->max_int ^ flip)) {
    a->max_int = b.max_int;
  }
  a->count += b.count;
  a->zero += b.zero;
  a->square += b.square;
  a->min = smaller_get(a->min, b.min);
  a->max = larger_get(a->max, b.max);
  a->sum_low += b.sum_low;
  a->sum_high += b.sum_high + (a->sum_low < b.sum_low);
}

DEVICE double int_get(int64_t bits, bool is_signed) {
  return is_signed ? (double)bits : (double)(uint64_t)bits;
}

DEVICE void finish_extrema(const struct stats_partial *all, int dtype, struct dit_tensor_stats *out) {
  double low = all->min, high = all->max;
  if (dtype_is_int64(dtype) && all->count > 0) {
    low = int_get(all->min_int, dtype == DIT_DTYPE_I64);
    high = int_get(all->max_int, dtype == DIT_DTYPE_I64);
    out->min_int = all->min_int;
    out->max_int = all->max_int;
  }
  out->min = out->max = out->abs_max = nan_get();
  if (all->count + all->pos_inf + all->neg_inf == 0) {
    return;
  }
  low = all->neg_inf > 0 ? -infinity_get() : low;
  high = all->pos_inf > 0 ? infinity_get() : high;
  low = all->count == 0 && all->neg_inf == 0 ? infinity_get() : low;
  high = all->count == 0 && all->pos_inf == 0 ? -infinity_get() : high;
  out->min = low + 0.0;
  out->max = high + 0.0;
  out->abs_max = dtype_is_complex(dtype) ? out->max : larger_get(fabs(out->min), fabs(out->max));
}

/// Mean of the finite values.
DEVICE double finish_mean(const struct stats_partial *all, int dtype) {
  if (!dtype_is_int64(dtype)) {
    return bin_leave(all->mean, (int)all->bin);
  }
  wide_int sum = (wide_int)((wide_uint)all->sum_high << 64 | all->sum_low);
  wide_int whole = sum / all->count;
  return (double)whole + (double)(int64_t)(sum - whole * all->count) / (double)all->count;
}

/// src/numerics/stats.c: finish.
DEVICE void finish_stats(const struct stats_partial *all, const struct kernel_tensor *tensor,
                         struct dit_tensor_stats *out) {
  int dtype = tensor->dtype, bin = (int)all->bin;
  bool is_complex = dtype_is_complex(dtype), clean = all->count == tensor->numel;
  double count = (double)all->count, spread = all->spread + all->spread_imag;
  memset(out, 0, sizeof(*out));
  out->numel = tensor->numel;
  out->finite = all->count;
  out->zero = all->zero;
  out->nan = all->nan;
  out->pos_inf = all->pos_inf;
  out->neg_inf = all->neg_inf;
  finish_extrema(all, dtype, out);
  out->finite_mean = count > 0 ? finish_mean(all, dtype) : nan_get();
  out->finite_mean_imag = !is_complex ? 0 : count > 0 ? bin_leave(all->mean_imag, bin) : nan_get();
  out->finite_std = count > 0 ? bin_leave(sqrt(spread / count), bin) : nan_get();
  out->finite_std_sample = count > 1 ? bin_leave(sqrt(spread / (count - 1)), bin) : nan_get();
  out->finite_norm = bin_leave(sqrt(all->square), bin);
  out->std = clean ? out->finite_std : nan_get();
  out->std_sample = clean ? out->finite_std_sample : nan_get();
  out->norm = out->nan > 0 ? nan_get() : clean ? out->finite_norm : infinity_get();
  out->mean = out->finite_mean;
  out->mean_imag = out->finite_mean_imag;
  if (!clean) {
    bool both = out->nan > 0 || (out->pos_inf > 0 && out->neg_inf > 0) || is_complex;
    out->mean = both ? nan_get() : out->pos_inf > 0 ? infinity_get() : -infinity_get();
    out->mean_imag = is_complex ? nan_get() : 0;
  }
}

/// room[0] becomes the sum of all, as a tree over neighbours at ever smaller distance.
DEVICE void stats_fold(struct stats_partial *room, int dtype) {
  _Pragma("unroll 1") for (unsigned width = HELPER_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      partial_merge(&room[threadIdx.x], &room[threadIdx.x + width], dtype);
    }
  }
  __syncthreads();
}

DEVICE void stats_reduce(const struct kernel_batch *batch, int index, const struct stats_state *mine) {
  const struct kernel_tensor *tensor = &batch->tensor[index];
  struct stats_partial *partials = batch->scratch->partials[index];
  struct dit_tensor_stats *out = (struct dit_tensor_stats *)batch->out + tensor->slot;
  __shared__ struct stats_partial room[HELPER_THREADS];
  const int words = (int)(sizeof(struct stats_partial) / sizeof(uint64_t));
  int dtype = tensor->dtype;
  stats_leave(mine, &room[threadIdx.x]);
  stats_fold(room, dtype);
  if (tensor->blocks > 1) {
    if (threadIdx.x == 0) {
      partials[blockIdx.x] = room[0];
    }
    if (!block_is_last(batch->scratch, index, tensor->blocks)) {
      return;
    }
    struct stats_state none;
    stats_init(&none, dtype, 0);
    stats_leave(&none, &room[threadIdx.x]);
    _Pragma("unroll 1") for (unsigned i = threadIdx.x; i < tensor->blocks; i += HELPER_THREADS) {
      struct stats_partial other;
      fetch_words(&other, &partials[i], words);
      partial_merge(&room[threadIdx.x], &other, dtype);
    }
    stats_fold(room, dtype);
  }
  if (threadIdx.x == 0) {
    struct dit_tensor_stats result;
    finish_stats(&room[0], tensor, &result);
    *out = result;
  }
}

/// Calls X(dtype) with a constant for the types that fill memory, so that their loops are short; the others share one
/// loop that looks at the type for every element.
#define FOR_DTYPE(dtype, X) \
  switch (dtype) {          \
    case DIT_DTYPE_F32:     \
      X(DIT_DTYPE_F32);     \
      break;                \
    case DIT_DTYPE_F16:     \
      X(DIT_DTYPE_F16);     \
      break;                \
    case DIT_DTYPE_BF16:    \
      X(DIT_DTYPE_BF16);    \
      break;                \
    case DIT_DTYPE_F64:     \
      X(DIT_DTYPE_F64);     \
      break;                \
    case DIT_DTYPE_I64:     \
      X(DIT_DTYPE_I64);     \
      break;                \
    default:                \
      X(dtype);             \
  }

/// 64-bit integers count distances from the first element in memory.
DEVICE uint64_t base_get(const struct kernel_tensor *tensor) {
  return dtype_is_int64(tensor->dtype) && tensor->numel > 0 ? load_element(tensor->data, 8).low : 0;
}

KERNEL helper_stats(PARAMETER struct kernel_batch batch) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &batch.tensor[index];
  if (blockIdx.x >= tensor->blocks) {
    return;
  }
  struct stats_state state;
  stats_init(&state, tensor->dtype, base_get(tensor));
#define STATS_FLAT(constant) stats_of_flat(&state, tensor, constant)
  FOR_DTYPE(tensor->dtype, STATS_FLAT)
  stats_reduce(&batch, index, &state);
}

KERNEL helper_stats_strided(PARAMETER struct kernel_batch_strided strided) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &strided.batch.tensor[index];
  if (blockIdx.x >= tensor->blocks) {
    return;
  }
  struct stats_state state;
  stats_init(&state, tensor->dtype, base_get(tensor));
  stats_of_strided(&state, tensor, strided.dims + tensor->first_dim);
  stats_reduce(&strided.batch, index, &state);
}

// ---- comparison

/// A number with what double lacks of a 64-bit integer in `rest`.
struct number {
  double re, rest, im;
};

DEVICE struct number number_get(struct bits128 bits, int dtype) {
  struct number x;
  x.re = real_from_bits(bits.low, dtype);
  x.rest = 0;
  x.im = dtype_is_complex(dtype) ? imag_from_bits(bits, dtype) : 0;
  if (dtype_is_int64(dtype)) {
    // Two exact halves; what their sum loses is the rest.
    double high = dtype == DIT_DTYPE_I64 ? (double)(int32_t)(bits.low >> 32) : (double)(uint32_t)(bits.low >> 32);
    double low = (double)(uint32_t)bits.low;
    high *= 0x1p32;
    x.re = high + low;
    x.rest = low - (x.re - high);
  }
  return x;
}

/// `quarter` keeps the difference of huge numbers finite: 0.25, else 1.
DEVICE double number_get_diff(struct number a, struct number b, double quarter, bool is_complex, bool wide) {
  double re = (a.re * quarter - b.re * quarter) + (a.rest - b.rest);
  return is_complex ? size_get(re, a.im * quarter - b.im * quarter, wide) : fabs(re);
}

DEVICE double number_get_size(struct number x, bool is_complex, bool wide) {
  return is_complex && x.im != 0 ? size_get(x.re, x.im, wide) : fabs(x.re);
}

DEVICE bool number_is_nan(struct number x) {
  return is_nan(x.re) || is_nan(x.im);
}

DEVICE void pair_raise(struct compare_partial *p, int bin_a, int bin_b) {
  int from = p->bin_a > p->bin_b ? p->bin_a : p->bin_b;
  bin_a = bin_a > p->bin_a ? bin_a : p->bin_a;
  bin_b = bin_b > p->bin_b ? bin_b : p->bin_b;
  p->dot = bin_raise(bin_raise(p->dot, p->bin_a, bin_a), p->bin_b, bin_b);
  p->square_a = bin_raise_square(p->square_a, p->bin_a, bin_a);
  p->square_b = bin_raise_square(p->square_b, p->bin_b, bin_b);
  p->abs_diff = bin_raise(p->abs_diff, from, bin_a > bin_b ? bin_a : bin_b);
  p->bin_a = bin_a;
  p->bin_b = bin_b;
}

/// Sums of a finite pair in the units of its bins.
DEVICE void pair_add_sums(struct compare_partial *p, struct number a, struct number b, double diff, double quarter) {
  double scale_a = bin_get_scale(p->bin_a), scale_b = bin_get_scale(p->bin_b);
  double re_a = a.re * scale_a, im_a = a.im * scale_a, re_b = b.re * scale_b, im_b = b.im * scale_b;
  p->dot += re_a * re_b + im_a * im_b;
  p->square_a += re_a * re_a + im_a * im_a;
  p->square_b += re_b * re_b + im_b * im_b;
  // The difference of huge numbers was quartered; scaled down first, it stays finite.
  double scale = bin_get_scale(p->bin_a > p->bin_b ? p->bin_a : p->bin_b);
  p->abs_diff += diff * scale / quarter;
}

DEVICE void pair_add_finite(struct compare_partial *p, struct number a, struct number b, bool is_complex, bool wide,
                            double tolerance_r, double tolerance_a, bool equal) {
  double size_a = number_get_size(a, is_complex, wide), size_b = number_get_size(b, is_complex, wide), quarter = 1;
  if (wide) {
    int bin_a = bin_get(size_a), bin_b = bin_get(size_b);
    quarter = bin_a == BIN_HIGH || bin_b == BIN_HIGH ? 0.25 : 1;
    if (bin_a > p->bin_a || bin_b > p->bin_b) {
      pair_raise(p, bin_a, bin_b);
    }
  }
  double diff = number_get_diff(a, b, quarter, is_complex, wide), larger = larger_get(size_a, size_b);
  double low_a = is_complex ? size_a : a.re, low_b = is_complex ? size_b : b.re;
  p->finite++;
  p->over += !equal && !(diff / quarter <= tolerance_a + tolerance_r * size_b);
  p->max_diff = larger_get(p->max_diff, diff / quarter);
  p->rel = larger_get(p->rel, diff > 0 ? diff / size_b / quarter : 0);
  p->rel_sym = larger_get(p->rel_sym, diff > 0 ? diff / larger / quarter : 0);
  p->min_a = smaller_get(p->min_a, low_a);
  p->max_a = larger_get(p->max_a, low_a);
  p->min_b = smaller_get(p->min_b, low_b);
  p->max_b = larger_get(p->max_b, low_b);
  pair_add_sums(p, a, b, diff, quarter);
}

DEVICE void pair_add(struct compare_partial *p, struct bits128 bits_a, struct bits128 bits_b, int dtype_a, int dtype_b,
                     const struct kernel_compare *task) {
  struct number a = number_get(bits_a, dtype_a), b = number_get(bits_b, dtype_b);
  bool is_complex = dtype_is_complex(dtype_a) || dtype_is_complex(dtype_b);
  bool wide = dtype_is_wide(dtype_a) || dtype_is_wide(dtype_b);
  bool nan_a = number_is_nan(a), nan_b = number_is_nan(b), nan = nan_a && nan_b;
  bool equal = (a.re == b.re && a.rest == b.rest && a.im == b.im) || (nan && task->equal_nan);
  p->unequal += !equal;
  if (is_finite(a.re) && is_finite(a.im) && is_finite(b.re) && is_finite(b.im)) {
    pair_add_finite(p, a, b, is_complex, wide, task->rtol, task->atol, equal);
    return;
  }
  p->over += !equal;
  p->mismatch += !equal && !nan;
}

DEVICE void pair_init(struct compare_partial *p, int dtype_a, int dtype_b) {
  memset(p, 0, sizeof(*p));
  p->min_a = p->min_b = infinity_get();
  p->max_a = p->max_b = -infinity_get();
  // One scale for both sides would do; two keep the product of a small and a large tensor.
  p->bin_a = p->bin_b = dtype_is_wide(dtype_a) || dtype_is_wide(dtype_b) ? BIN_LOW : BIN_PLAIN;
}

/// Both packed and of one dtype.
DEVICE void pair_of_flat(struct compare_partial *p, const struct kernel_compare *task, int dtype) {
  const struct kernel_tensor *a = &task->tensor[0], *b = &task->tensor[1];
  struct cursor cursor = cursor_make(a, dtype_get_width(dtype), is_aligned(a) && is_aligned(b));
  struct bits128 other = cursor_load(&cursor, b, cursor.at), next;
  FOR_STEPS(cursor, a, {
    next = cursor_load(&cursor, b, cursor.at + cursor.step);
    _Pragma("unroll 2") for (int i = 0; i < count; i++) {
      pair_add(p, take_element(loaded, i, cursor.width), take_element(other, i, cursor.width), dtype, dtype, task);
    }
    other = next;
  });
}

/// Any strides, any two dtypes: they are looked at for every element.
DEVICE void pair_of_strided(struct compare_partial *p, const struct kernel_compare *task) {
  const struct kernel_tensor *a = &task->tensor[0], *b = &task->tensor[1];
  int dtype_a = a->dtype, dtype_b = b->dtype;
  int width_a = dtype_get_width(dtype_a), width_b = dtype_get_width(dtype_b);
  struct cursor cursor = cursor_make(a, width_a, false);
  for (; cursor.at < cursor.end; cursor.at += cursor.step) {
    int64_t rest = cursor.at, offset_a = 0, offset_b = 0;
    _Pragma("unroll 1") for (int dim = 0; dim < a->ndim; dim++) {
      int64_t next = dim == a->ndim - 1 ? 0 : rest / task->dims[dim].size, index = rest - next * task->dims[dim].size;
      offset_a += index * task->dims[dim].stride[0];
      offset_b += index * task->dims[dim].stride[1];
      rest = next;
    }
    pair_add(p, load_element(a->data + offset_a, width_a), load_element(b->data + offset_b, width_b), dtype_a, dtype_b,
             task);
  }
}

DEVICE void pair_merge(struct compare_partial *a, const struct compare_partial *other) {
  struct compare_partial b = *other;
  pair_raise(a, b.bin_a, b.bin_b);
  pair_raise(&b, a->bin_a, a->bin_b);
  a->finite += b.finite;
  a->unequal += b.unequal;
  a->over += b.over;
  a->mismatch += b.mismatch;
  a->max_diff = larger_get(a->max_diff, b.max_diff);
  a->rel = larger_get(a->rel, b.rel);
  a->rel_sym = larger_get(a->rel_sym, b.rel_sym);
  a->min_a = smaller_get(a->min_a, b.min_a);
  a->max_a = larger_get(a->max_a, b.max_a);
  a->min_b = smaller_get(a->min_b, b.min_b);
  a->max_b = larger_get(a->max_b, b.max_b);
  a->dot += b.dot;
  a->square_a += b.square_a;
  a->square_b += b.square_b;
  a->abs_diff += b.abs_diff;
}

DEVICE double finish_cosine(const struct compare_partial *all) {
  if (all->finite == 0) {
    return nan_get();
  }
  if (all->square_a == 0 || all->square_b == 0) {
    return all->square_a == all->square_b ? 1 : 0;
  }
  double cosine = all->dot / (sqrt(all->square_a) * sqrt(all->square_b));
  return larger_get(-1, smaller_get(1, cosine));
}

/// src/numerics/compare.c: finish.
DEVICE void finish_compare(const struct compare_partial *all, int64_t numel, struct dit_compare_result *out) {
  bool any = all->finite > 0;
  int bin = all->bin_a > all->bin_b ? all->bin_a : all->bin_b;
  memset(out, 0, sizeof(*out));
  out->allclose = all->over == 0;
  out->numel = numel;
  out->finite_pairs = all->finite;
  out->unequal = all->unequal;
  out->over_tolerance = all->over;
  out->nonfinite_mismatch = all->mismatch;
  out->max_abs_diff = all->max_diff;
  out->max_rel_diff = all->rel;
  out->max_rel_diff_sym = all->rel_sym;
  out->mean_abs_diff = any ? bin_leave(all->abs_diff / (double)all->finite, bin) : nan_get();
  out->cosine = finish_cosine(all);
  out->dot = bin_leave(bin_leave(all->dot, all->bin_a), all->bin_b);
  out->sum_abs_diff = bin_leave(all->abs_diff, bin);
  out->min_a = any ? all->min_a + 0.0 : nan_get();
  out->max_a = any ? all->max_a + 0.0 : nan_get();
  out->norm_a = bin_leave(sqrt(all->square_a), all->bin_a);
  out->min_b = any ? all->min_b + 0.0 : nan_get();
  out->max_b = any ? all->max_b + 0.0 : nan_get();
  out->norm_b = bin_leave(sqrt(all->square_b), all->bin_b);
}

DEVICE void pair_fold(struct compare_partial *room) {
  _Pragma("unroll 1") for (unsigned width = HELPER_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      pair_merge(&room[threadIdx.x], &room[threadIdx.x + width]);
    }
  }
  __syncthreads();
}

KERNEL helper_compare(PARAMETER struct kernel_compare task) {
  const struct kernel_tensor *a = &task.tensor[0];
  const int words = (int)(sizeof(struct compare_partial) / sizeof(uint64_t));
  __shared__ struct compare_partial room[HELPER_THREADS];
  int dtype_a = a->dtype, dtype_b = task.tensor[1].dtype;
  struct compare_partial mine;
  pair_init(&mine, dtype_a, dtype_b);
  if (task.is_flat) {
#define PAIR_FLAT(constant) pair_of_flat(&mine, &task, constant)
    FOR_DTYPE(dtype_a, PAIR_FLAT)
  } else {
    pair_of_strided(&mine, &task);
  }
  room[threadIdx.x] = mine;
  pair_fold(room);
  if (a->blocks > 1) {
    if (threadIdx.x == 0) {
      task.scratch->pairs[blockIdx.x] = room[0];
    }
    if (!block_is_last(task.scratch, 0, a->blocks)) {
      return;
    }
    pair_init(&room[threadIdx.x], dtype_a, dtype_b);
    _Pragma("unroll 1") for (unsigned i = threadIdx.x; i < a->blocks; i += HELPER_THREADS) {
      struct compare_partial other;
      fetch_words(&other, &task.scratch->pairs[i], words);
      pair_merge(&room[threadIdx.x], &other);
    }
    pair_fold(room);
  }
  if (threadIdx.x == 0) {
    struct dit_compare_result result;
    finish_compare(&room[0], a->numel, &result);
    *task.out = result;
  }
}

// ---- hash

/// 16 bytes from byte `at` of chunk elements [begin, begin + count); zeros beyond the end.
DEVICE struct bits128 hash_gather(const struct kernel_tensor *tensor, const struct kernel_dim *dims, int64_t begin,
                                  int64_t count, int64_t at, int width) {
  struct bits128 result;
  result.low = result.high = 0;
  for (int i = 0; i < VECTOR / width; i++) {
    int64_t element = at / width + i;
    if (element >= count) {
      break;
    }
    int64_t offset = dims ? offset_get(dims, tensor->ndim, begin + element) : (begin + element) * width;
    struct bits128 bits = load_element(tensor->data + offset, width);
    if (width == 16) {
      return bits;
    }
    int shift = i * width % 8 * 8;
    if (i * width < 8) {
      result.low |= bits.low << shift;
    } else {
      result.high |= bits.low << shift;
    }
  }
  return result;
}

/// One of the four lanes of one chunk.
DEVICE struct hash_state hash_lane(const struct kernel_tensor *tensor, const struct kernel_dim *dims, int64_t number,
                                   int lane) {
  const uint64_t seeds[8] = {HASH_K0, HASH_K1, HASH_K2, HASH_K3, HASH_K4, HASH_K5, HASH_K6, HASH_K7};
  int width = dtype_get_width(tensor->dtype);
  int64_t begin = number * HELPER_CHUNK, left = tensor->numel - begin;
  int64_t count = left < HELPER_CHUNK ? left : HELPER_CHUNK, size = count * width;
  bool direct = !dims && (uintptr_t)tensor->data % VECTOR == 0;
  const char *bytes = tensor->data + begin * width;
  struct hash_state state;
  state.s = seeds[2 * lane] ^ (uint64_t)number * HASH_K8;
  state.t = seeds[2 * lane + 1] + (uint64_t)size;
#pragma unroll 4
  for (int64_t at = lane * VECTOR; at - lane * VECTOR < size; at += 4 * VECTOR) {
    struct bits128 bits =
        direct && at + VECTOR <= size ? load_vector(bytes + at) : hash_gather(tensor, dims, begin, count, at, width);
    hash_take(&state, bits.low, bits.high);
  }
  return state;
}

/// One block per slot: chunks are hashed four threads each, then taken in order.
DEVICE void hash_run(const struct kernel_hash *task, int index, const struct kernel_dim *dims) {
  const struct kernel_tensor *tensor = &task->batch.tensor[index];
  __shared__ struct hash_state lanes[HELPER_THREADS];
  const int at_once = HELPER_THREADS / 4;
  int64_t slot_chunks = task->slot_size[index] / HELPER_CHUNK;
  int64_t chunks = (tensor->numel + HELPER_CHUNK - 1) / HELPER_CHUNK, first = blockIdx.x * slot_chunks;
  int64_t end = first + slot_chunks < chunks ? first + slot_chunks : chunks;
  struct hash_state slot;
  slot.s = HASH_K0;
  slot.t = HASH_K1 + blockIdx.x;
  for (; first < end; first += at_once) {
    int64_t number = first + threadIdx.x / 4;
    if (number < end) {
      lanes[threadIdx.x] = hash_lane(tensor, dims, number, (int)(threadIdx.x % 4));
    }
    __syncthreads();
    if (number < end && threadIdx.x % 4 == 0) {
      for (int lane = 1; lane < 4; lane++) {
        hash_take(&lanes[threadIdx.x], lanes[threadIdx.x + lane].s, lanes[threadIdx.x + lane].t);
      }
      hash_finish(&lanes[threadIdx.x]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int chunk = 0; chunk < at_once && first + chunk < end; chunk++) {
        hash_take(&slot, lanes[4 * chunk].s, lanes[4 * chunk].t);
      }
    }
    __syncthreads();
  }
  struct hash_state *states = task->batch.scratch->states[index];
  if (threadIdx.x == 0) {
    states[blockIdx.x] = slot;
  }
  if (!block_is_last(task->batch.scratch, index, tensor->blocks) || threadIdx.x != 0) {
    return;
  }
  struct hash_state all = task->prefix[index];
  for (unsigned i = 0; i < tensor->blocks && tensor->numel > 0; i++) {
    struct hash_state other;
    fetch_words(&other, &states[i], 2);
    hash_take(&all, other.s, other.t);
  }
  hash_finish(&all);
  struct dit_hash *out = (struct dit_hash *)task->batch.out + tensor->slot;
  out->low = all.s;
  out->high = all.t;
}

KERNEL helper_hash(PARAMETER struct kernel_hash task) {
  if (blockIdx.x < task.batch.tensor[blockIdx.y].blocks) {
    hash_run(&task, (int)blockIdx.y, NULL);
  }
}

KERNEL helper_hash_strided(PARAMETER struct kernel_hash_strided task) {
  const struct kernel_tensor *tensor = &task.hash.batch.tensor[blockIdx.y];
  if (blockIdx.x < tensor->blocks) {
    hash_run(&task.hash, (int)blockIdx.y, tensor->ndim ? task.dims + tensor->first_dim : NULL);
  }
}
