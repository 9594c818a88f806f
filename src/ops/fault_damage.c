/// Damage to elements: works on any dtype and strides, element by element in row-major order (faults are rare; speed is
/// no concern).
///
/// A floating element is treated as sign, exponent and mantissa bits of its format, so half, bfloat16, the float8
/// family and complex need no arithmetic of their own except where a value is added.
#include <math.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/fault.h"

/// Layout of the parts an element consists of: two for complex, one otherwise.
struct part_format {
  int parts;
  int width;     ///< bytes of one part
  int mantissa;  ///< bits; 0 for integers and bool
  int exponent;
  int bias;
  uint64_t nan;
  enum dit_dtype_class class;
};

static struct part_format get_format(int dtype) {
  static const struct part_format half = {1, 2, 10, 5, 15, 0x7E00, DIT_DTYPE_CLASS_FLOAT};
  static const struct part_format single = {1, 4, 23, 8, 127, 0x7FC00000, DIT_DTYPE_CLASS_FLOAT};
  static const struct part_format wide = {1, 8, 52, 11, 1023, UINT64_C(0x7FF8000000000000), DIT_DTYPE_CLASS_FLOAT};
  struct part_format format = half;
  switch (dtype) {
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      break;
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      format = single;
      break;
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      format = wide;
      break;
    case DIT_DTYPE_BF16:
      return (struct part_format){1, 2, 7, 8, 127, 0x7FC0, DIT_DTYPE_CLASS_FLOAT};
    case DIT_DTYPE_F8_E5M2:
      return (struct part_format){1, 1, 2, 5, 15, 0x7F, DIT_DTYPE_CLASS_FLOAT};
    case DIT_DTYPE_F8_E4M3FN:
      return (struct part_format){1, 1, 3, 4, 7, 0x7F, DIT_DTYPE_CLASS_FLOAT};
    case DIT_DTYPE_F8_E5M2FNUZ:
      return (struct part_format){1, 1, 2, 5, 16, 0x80, DIT_DTYPE_CLASS_FLOAT};
    case DIT_DTYPE_F8_E4M3FNUZ:
      return (struct part_format){1, 1, 3, 4, 8, 0x80, DIT_DTYPE_CLASS_FLOAT};
    default:
      return (struct part_format){1, (int)dit_dtype_get_size(dtype), 0, 0, 0, 0, dit_dtype_get_class(dtype)};
  }
  format.parts = dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_COMPLEX ? 2 : 1;
  return format;
}

static uint64_t load_part(const struct part_format *format, const char *at) {
  uint64_t bits = 0;
  memcpy(&bits, at, (size_t)format->width);  // little-endian, as every supported machine
  return bits;
}

static void store_part(const struct part_format *format, char *at, uint64_t bits) {
  memcpy(at, &bits, (size_t)format->width);
}

/// The magnitude bits below the sign.
static uint64_t get_magnitude_mask(const struct part_format *format) {
  return (UINT64_C(1) << (8 * format->width - 1)) - 1;
}

static bool is_special(const struct part_format *format, uint64_t bits) {
  uint64_t exponent = bits >> format->mantissa & ((UINT64_C(1) << format->exponent) - 1);
  if (format->nan == 0x80) {
    return bits == 0x80;
  }
  if (format->bias == 7 && format->width == 1) {
    return (bits & 0x7F) == 0x7F;
  }
  return exponent == (UINT64_C(1) << format->exponent) - 1;
}

/// The magnitude bits of the largest finite number.
static uint64_t get_largest_finite(const struct part_format *format) {
  uint64_t mask = get_magnitude_mask(format);
  if (!is_special(format, mask)) {
    return mask;  // no infinity and NaN elsewhere
  }
  uint64_t infinity = ((UINT64_C(1) << format->exponent) - 1) << format->mantissa;
  return is_special(format, infinity) ? infinity - 1 : mask - 1;
}

static double decode_float(const struct part_format *format, uint64_t bits) {
  uint64_t exponent = bits >> format->mantissa & ((UINT64_C(1) << format->exponent) - 1);
  uint64_t fraction = bits & ((UINT64_C(1) << format->mantissa) - 1);
  if (is_special(format, bits)) {
    return NAN;  // infinities too: they have no size to add to
  }
  double value = ldexp((double)fraction + (exponent ? ldexp(1, format->mantissa) : 0),
                       (exponent ? (int)exponent : 1) - format->bias - format->mantissa);
  return bits >> (8 * format->width - 1) & 1 ? -value : value;
}

/// Rounded to nearest; a value beyond the format becomes its largest finite number.
static uint64_t encode_float(const struct part_format *format, double value) {
  uint64_t sign = signbit(value) ? UINT64_C(1) << (8 * format->width - 1) : 0, bits = 0;
  int exponent;
  value = fabs(value);
  if (value > 0) {
    frexp(value, &exponent);
    exponent = exponent - 1 < 1 - format->bias ? 1 - format->bias : exponent - 1;
    double scaled = nearbyint(ldexp(value, format->mantissa - exponent));
    bits = (uint64_t)scaled + ((uint64_t)(exponent + format->bias - 1) << format->mantissa);
    uint64_t largest = get_largest_finite(format);
    bits = bits > largest ? largest : bits;
  }
  return bits | (bits || format->nan != 0x80 ? sign : 0);
}

static int64_t decode_integer(const struct part_format *format, uint64_t bits) {
  int shift = 64 - 8 * format->width;
  if (format->class == DIT_DTYPE_CLASS_INT || format->class == DIT_DTYPE_CLASS_QUANT) {
    return (int64_t)(bits << shift) >> shift;
  }
  return (int64_t)bits;
}

static double decode(const struct part_format *format, uint64_t bits) {
  if (format->mantissa) {
    return decode_float(format, bits);
  }
  return format->class == DIT_DTYPE_CLASS_UINT ? (double)bits : (double)decode_integer(format, bits);
}

/// Address of the element with the row-major number `index`.
static char *locate(const struct dit_tensor_view *view, int64_t index) {
  int64_t offset = 0;
  for (int dim = view->ndim - 1; dim >= 0; dim--) {
    offset += index % view->sizes[dim] * view->strides[dim];
    index /= view->sizes[dim];
  }
  return (char *)view->data + offset * (int64_t)dit_dtype_get_size(view->dtype);
}

static bool is_damageable(const struct dit_tensor_view *view) {
  return view->data && view->numel > 0 && dit_dtype_get_size(view->dtype) > 0;
}

static double get_largest(const struct dit_tensor_view *view, const struct part_format *format) {
  double largest = 0;
  for (int64_t i = 0; i < view->numel; i++) {
    const char *at = locate(view, i);
    for (int part = 0; part < format->parts; part++) {
      double value = fabs(decode(format, load_part(format, at + part * format->width)));
      largest = value > largest ? value : largest;  // NaN never is
    }
  }
  return largest;
}

/// Add `delta` to one part. When rounding swallows it, the next representable number is taken: a fault is never silent.
static uint64_t add_to_part(const struct part_format *format, uint64_t bits, double delta) {
  if (format->class == DIT_DTYPE_CLASS_BOOL) {
    return bits == 0;
  }
  if (!format->mantissa) {
    int64_t step = fabs(delta) < 1 ? (delta < 0 ? -1 : 1) : fabs(delta) < 9e18 ? (int64_t)delta : 1;
    return bits + (uint64_t)step;
  }
  double value = decode_float(format, bits);
  if (isnan(value)) {
    return encode_float(format, delta == 0 ? 1 : delta);
  }
  uint64_t changed = encode_float(format, value + delta);
  if (changed == bits) {
    uint64_t up = bits + 1;
    changed = is_special(format, up) ? bits - 1 : up;
  }
  return changed;
}

bool dit_damage_value(const struct dit_tensor_view *view, int64_t index, double scale) {
  if (!is_damageable(view)) {
    return false;
  }
  struct part_format format = get_format(view->dtype);
  if (format.width > 8) {
    return false;
  }
  double largest = get_largest(view, &format);
  char *at = locate(view, index % view->numel);
  store_part(&format, at, add_to_part(&format, load_part(&format, at), scale * (largest > 0 ? largest : 1)));
  return true;
}

/// Round the magnitude to `keep` mantissa bits, ties to even; the carry into the exponent is right by the formats'
/// design.
static uint64_t round_float(const struct part_format *format, uint64_t bits, int keep) {
  int drop = format->mantissa - keep;
  uint64_t mask = get_magnitude_mask(format), magnitude = bits & mask;
  if (is_special(format, bits)) {
    return bits;
  }
  uint64_t half = UINT64_C(1) << (drop - 1);
  uint64_t rounded = (magnitude + (half - 1) + (magnitude >> drop & 1)) & ~((half << 1) - 1);
  if (is_special(format, rounded) && format->width == 1) {
    rounded = magnitude & ~((half << 1) - 1);
  }
  return (bits & ~mask) | rounded;
}

static uint64_t round_integer(const struct part_format *format, uint64_t bits, int keep) {
  int64_t value = decode_integer(format, bits);
  bool negative = format->class != DIT_DTYPE_CLASS_UINT && value < 0;
  uint64_t magnitude = negative ? 0 - (uint64_t)value : (uint64_t)value;
  int length = 0;
  while (length < 64 && magnitude >> length) {
    length++;
  }
  if (length > keep + 1) {
    magnitude &= ~((UINT64_C(1) << (length - keep - 1)) - 1);
  }
  return negative ? 0 - magnitude : magnitude;
}

bool dit_damage_precision(const struct dit_tensor_view *view, int bits) {
  struct part_format format = get_format(view->dtype);
  if (!is_damageable(view) || format.width > 8 || format.class == DIT_DTYPE_CLASS_BOOL ||
      (format.mantissa && format.mantissa <= bits)) {
    return false;
  }
  for (int64_t i = 0; i < view->numel; i++) {
    char *at = locate(view, i);
    for (int part = 0; part < format.parts; part++) {
      uint64_t have = load_part(&format, at + part * format.width);
      store_part(&format, at + part * format.width,
                 format.mantissa ? round_float(&format, have, bits) : round_integer(&format, have, bits));
    }
  }
  return true;
}

bool dit_damage_nan(const struct dit_tensor_view *view, int64_t index) {
  struct part_format format = get_format(view->dtype);
  if (!is_damageable(view) || format.width > 8) {
    return false;
  }
  char *at = locate(view, index % view->numel);
  uint64_t bits = format.nan;
  if (format.class == DIT_DTYPE_CLASS_BOOL) {
    bits = load_part(&format, at) == 0;
  } else if (!format.mantissa) {
    bits = format.class == DIT_DTYPE_CLASS_UINT ? UINT64_MAX : get_magnitude_mask(&format) + 1;
  }
  store_part(&format, at, bits);
  return true;
}

/// The row-major number of the element that lies at place `index` of the input's memory order.
static int64_t get_memory_neighbour(const struct dit_tensor_view *input, const int *order, int64_t index) {
  int64_t position[DIT_MAX_DIMS], number = 0;
  for (int i = 0; i < input->ndim; i++) {  // order[0] is the fastest dimension
    position[order[i]] = index % input->sizes[order[i]];
    index /= input->sizes[order[i]];
  }
  for (int dim = 0; dim < input->ndim; dim++) {
    number = number * input->sizes[dim] + position[dim];
  }
  return number;
}

static void sort_by_stride(const struct dit_tensor_view *view, int *order) {
  for (int i = 0; i < view->ndim; i++) {
    int at = i;
    while (at > 0 && view->strides[order[at - 1]] > view->strides[view->ndim - 1 - i]) {
      order[at] = order[at - 1];
      at--;
    }
    order[at] = view->ndim - 1 - i;
  }
}

bool dit_damage_stride(const struct dit_tensor_view *view, const struct dit_tensor_view *input) {
  if (!is_damageable(view) || !input || input->flags & DIT_TENSOR_CONTIGUOUS || input->ndim > DIT_MAX_DIMS) {
    return false;
  }
  size_t width = dit_dtype_get_size(view->dtype);
  int order[DIT_MAX_DIMS];
  char *old = dit_malloc((size_t)view->numel * width);
  if (!old) {
    return false;
  }
  dit_tensor_gather(view, old);
  sort_by_stride(input, order);
  for (int64_t i = 0; i < view->numel; i++) {
    int64_t from = input->numel == view->numel ? get_memory_neighbour(input, order, i) : (i + 1) % view->numel;
    memcpy(locate(view, i), old + (size_t)from * width, width);
  }
  dit_free(old);
  return true;
}

bool dit_damage_unwritten(const struct dit_tensor_view *view) {
  if (!is_damageable(view)) {
    return false;
  }
  size_t width = dit_dtype_get_size(view->dtype);
  int poison = view->dtype == DIT_DTYPE_BOOL ? 1 : 0x5A;
  for (int64_t i = 0; i < view->numel; i++) {
    memset(locate(view, i), poison, width);
  }
  return true;
}
