/// Elements: strided copies with conversion between all dtypes of the standard, on memory that the host can read.
///
/// Elements go through a row buffer of wide numbers (int64, double, pairs of doubles), so n dtypes need n loads and n
/// stores. Elements of equal dtype are moved as bits.
#include "core/convert.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapt.h"

enum { ROW = 256 };

enum wide { WIDE_INT, WIDE_REAL, WIDE_COMPLEX, WIDE_NONE };

/// One run of elements, as the widest numbers of their class.
struct row {
  enum wide kind;
  bool is_unsigned;  ///< integers are uint64_t's bits
  int64_t count;
  int64_t ints[ROW];
  double reals[ROW], imags[ROW];
};

static enum wide get_wide(int dtype) {
  switch (dit_dtype_get_class(dtype)) {
    case DIT_DTYPE_CLASS_BOOL:
    case DIT_DTYPE_CLASS_UINT:
    case DIT_DTYPE_CLASS_INT:
      return WIDE_INT;
    case DIT_DTYPE_CLASS_FLOAT:
      return WIDE_REAL;
    case DIT_DTYPE_CLASS_COMPLEX:
      return WIDE_COMPLEX;
    default:
      return WIDE_NONE;
  }
}

#define LOAD(type, target, convert)                      \
  for (int64_t i = 0; i < row->count; i++, at += step) { \
    type x;                                              \
    memcpy(&x, at, sizeof x);                            \
    row->target[i] = convert;                            \
  }                                                      \
  break;
#define LOAD_PAIR(type, convert)                         \
  for (int64_t i = 0; i < row->count; i++, at += step) { \
    type pair[2], x;                                     \
    memcpy(pair, at, sizeof pair);                       \
    x = pair[0];                                         \
    row->reals[i] = convert;                             \
    x = pair[1];                                         \
    row->imags[i] = convert;                             \
  }                                                      \
  break;

static void load(struct row *row, int dtype, const char *at, int64_t step) {
  row->kind = get_wide(dtype);
  row->is_unsigned = dtype == DIT_DTYPE_U64;
  switch (dtype) {
    case DIT_DTYPE_BOOL:
      LOAD(uint8_t, ints, x != 0)
    case DIT_DTYPE_U8:
      LOAD(uint8_t, ints, x)
    case DIT_DTYPE_I8:
      LOAD(int8_t, ints, x)
    case DIT_DTYPE_I16:
      LOAD(int16_t, ints, x)
    case DIT_DTYPE_U16:
      LOAD(uint16_t, ints, x)
    case DIT_DTYPE_I32:
      LOAD(int32_t, ints, x)
    case DIT_DTYPE_U32:
      LOAD(uint32_t, ints, x)
    case DIT_DTYPE_I64:
    case DIT_DTYPE_U64:
      LOAD(int64_t, ints, x)
    case DIT_DTYPE_F16:
      LOAD(uint16_t, reals, (double)dit_float_from_f16(x))
    case DIT_DTYPE_BF16:
      LOAD(uint16_t, reals, (double)dit_float_from_bf16(x))
    case DIT_DTYPE_F32:
      LOAD(float, reals, (double)x)
    case DIT_DTYPE_F64:
      LOAD(double, reals, x)
    case DIT_DTYPE_C32:
      LOAD_PAIR(uint16_t, (double)dit_float_from_f16(x))
    case DIT_DTYPE_C64:
      LOAD_PAIR(float, (double)x)
    case DIT_DTYPE_C128:
      LOAD_PAIR(double, x)
    default:
      break;
  }
}

// Stores

/// A real number as an integer, as a C cast does where that is defined, else the least integer (what hardware gives).
static int64_t truncate_real(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : x >= 0x1p63 && x < 0x1p64 ? (int64_t)(uint64_t)x : INT64_MIN;
}

static int64_t get_int(const struct row *row, int64_t i) {
  return row->kind == WIDE_INT ? row->ints[i] : truncate_real(row->reals[i]);
}

static double get_real(const struct row *row, int64_t i) {
  if (row->kind != WIDE_INT) {
    return row->reals[i];
  }
  return row->is_unsigned ? (double)(uint64_t)row->ints[i] : (double)row->ints[i];
}

static bool get_truth(const struct row *row, int64_t i) {
  return row->kind == WIDE_INT ? row->ints[i] != 0
                               : row->reals[i] != 0 || (row->kind == WIDE_COMPLEX && row->imags[i] != 0);
}

/// To float with one rounding to nearest in all: the double is rounded to odd, so that a second rounding sees a tie
/// only where there is one.
static float narrow(double x) {
  float near = (float)x;
  if ((double)near == x || isnan(x) || isinf(near)) {
    return near;
  }
  uint32_t bits = dit_float_get_bits(near);
  const bool away = fabs((double)near) > fabs(x);
  bits = away ? bits - 1 : bits;
  return dit_float_from_bits(bits | 1);
}

#define STORE(type, value)                               \
  for (int64_t i = 0; i < row->count; i++, at += step) { \
    const type x = value;                                \
    memcpy(at, &x, sizeof x);                            \
  }                                                      \
  break;
#define STORE_PAIR(type, convert)                                                           \
  for (int64_t i = 0; i < row->count; i++, at += step) {                                    \
    const double re = get_real(row, i), im = row->kind == WIDE_COMPLEX ? row->imags[i] : 0; \
    const type pair[2] = {convert(re), convert(im)};                                        \
    memcpy(at, pair, sizeof pair);                                                          \
  }                                                                                         \
  break;
#define AS_F16(x) dit_float_to_f16(narrow(x))
#define AS_F32(x) (float)(x)
#define AS_F64(x) (x)

static void store(const struct row *row, int dtype, char *at, int64_t step) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
      STORE(uint8_t, get_truth(row, i))
    case DIT_DTYPE_U8:
    case DIT_DTYPE_I8:
      STORE(uint8_t, (uint8_t)get_int(row, i))
    case DIT_DTYPE_I16:
    case DIT_DTYPE_U16:
      STORE(uint16_t, (uint16_t)get_int(row, i))
    case DIT_DTYPE_I32:
    case DIT_DTYPE_U32:
      STORE(uint32_t, (uint32_t)get_int(row, i))
    case DIT_DTYPE_I64:
    case DIT_DTYPE_U64:
      STORE(int64_t, get_int(row, i))
    case DIT_DTYPE_F16:
      STORE(uint16_t, AS_F16(get_real(row, i)))
    case DIT_DTYPE_BF16:
      STORE(uint16_t, dit_float_to_bf16(narrow(get_real(row, i))))
    case DIT_DTYPE_F32:
      STORE(float, (float)get_real(row, i))
    case DIT_DTYPE_F64:
      STORE(double, get_real(row, i))
    case DIT_DTYPE_C32:
      STORE_PAIR(uint16_t, AS_F16)
    case DIT_DTYPE_C64:
      STORE_PAIR(float, AS_F32)
    case DIT_DTYPE_C128:
      STORE_PAIR(double, AS_F64)
    default:
      break;
  }
}

// What fits

struct limits {
  int64_t low;
  uint64_t high;
  double largest;  ///< of floating dtypes
};

static struct limits get_limits(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
      return (struct limits){0, 1, 0};
    case DIT_DTYPE_U8:
      return (struct limits){0, UINT8_MAX, 0};
    case DIT_DTYPE_I8:
      return (struct limits){INT8_MIN, INT8_MAX, 0};
    case DIT_DTYPE_I16:
      return (struct limits){INT16_MIN, INT16_MAX, 0};
    case DIT_DTYPE_U16:
      return (struct limits){0, UINT16_MAX, 0};
    case DIT_DTYPE_I32:
      return (struct limits){INT32_MIN, INT32_MAX, 0};
    case DIT_DTYPE_U32:
      return (struct limits){0, UINT32_MAX, 0};
    case DIT_DTYPE_I64:
      return (struct limits){INT64_MIN, INT64_MAX, 0};
    case DIT_DTYPE_U64:
      return (struct limits){0, UINT64_MAX, 0};
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      return (struct limits){0, 0, 65504};
    case DIT_DTYPE_BF16:
      return (struct limits){0, 0, 0x1.FEp127};
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      return (struct limits){0, 0, 0x1.FFFFFEp127};
    default:
      return (struct limits){0, 0, INFINITY};
  }
}

/// Does number i have a place in the dtype? Rounding to a floating dtype is allowed, infinity for a finite number is
/// not. Everything has a truth value.
static bool fits(const struct row *row, int64_t i, int dtype, const struct limits *limits) {
  const enum wide to = get_wide(dtype);
  if (dtype == DIT_DTYPE_BOOL) {
    return true;
  }
  if (row->kind == WIDE_INT) {
    const int64_t x = row->ints[i];
    if (to == WIDE_INT) {
      return row->is_unsigned ? (uint64_t)x <= limits->high
                              : x >= limits->low && (x < 0 || (uint64_t)x <= limits->high);
    }
    return fabs(get_real(row, i)) <= limits->largest;
  }
  const double x = row->reals[i];
  if (to == WIDE_INT) {
    return x == floor(x) && x >= (double)limits->low && x < (double)limits->high + 1 &&
           (row->kind == WIDE_REAL || row->imags[i] == 0);
  }
  if (row->kind == WIDE_COMPLEX &&
      ((to == WIDE_REAL && row->imags[i] != 0) || (isfinite(row->imags[i]) && fabs(row->imags[i]) > limits->largest))) {
    return false;
  }
  return !isfinite(x) || fabs(x) <= limits->largest;
}

static bool check_row(const struct row *row, int from, int dtype, char *problem, size_t size) {
  const struct limits limits = get_limits(dtype);
  for (int64_t i = 0; i < row->count; i++) {
    if (!fits(row, i, dtype, &limits)) {
      char number[40];
      if (row->kind == WIDE_INT) {
        snprintf(number, sizeof number, row->is_unsigned ? "%" PRIu64 : "%" PRId64, row->ints[i]);
      } else {
        snprintf(number, sizeof number, "%g", row->reals[i]);
      }
      snprintf(problem, size, "the value %s (%s) does not fit %s", number, dit_dtype_get_name(from),
               dit_dtype_get_name(dtype));
      return false;
    }
  }
  return true;
}

/// Keep signs, NaN and what is zero; saturate the rest.
static void make_proxies(struct row *row, int dtype) {
  const struct limits limits = get_limits(dtype);
  const double least = dtype == DIT_DTYPE_F32 ? 0x1p-126 : dtype == DIT_DTYPE_F64 ? 0x1p-1022 : 0x1p-14;
  for (int64_t i = 0; i < row->count; i++) {
    double x = get_real(row, i);
    if (isfinite(x) && x != 0) {
      const double size = fmin(fmax(fabs(x), least), limits.largest);
      x = copysign(size, x);
    }
    row->reals[i] = x;
  }
  row->kind = row->kind == WIDE_COMPLEX ? WIDE_COMPLEX : WIDE_REAL;
}

static double get_largest(int dtype) {
  return dtype == DIT_DTYPE_F64 ? DBL_MAX : get_limits(dtype).largest;
}

static void keep_lowest(struct row *row, int from, int dtype) {
  const double lowest = -get_largest(from);
  for (int64_t i = 0; row->kind == WIDE_REAL && get_wide(dtype) == WIDE_REAL && i < row->count; i++) {
    row->reals[i] = row->reals[i] == lowest ? fmax(lowest, -get_largest(dtype)) : row->reals[i];
  }
}

// Walking

struct walk {
  int ndim;
  int64_t sizes[DIT_MAX_DIMS], out[DIT_MAX_DIMS], in[DIT_MAX_DIMS];  ///< strides in bytes
};

/// Dimensions of size 1 are dropped, neighbours that continue each other are joined.
static void make_walk(struct walk *walk, const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  const int64_t out_width = (int64_t)dit_dtype_get_size(out->dtype), in_width = (int64_t)dit_dtype_get_size(in->dtype);
  walk->ndim = 0;
  for (int d = 0; d < out->ndim; d++) {
    const int64_t size = out->sizes[d], a = out->strides[d] * out_width, b = in->strides[d] * in_width;
    const int last = walk->ndim - 1;
    if (size == 1) {
      continue;
    }
    if (last >= 0 && walk->out[last] == a * size && walk->in[last] == b * size) {
      walk->sizes[last] *= size;
      walk->out[last] = a;
      walk->in[last] = b;
      continue;
    }
    walk->sizes[walk->ndim] = size;
    walk->out[walk->ndim] = a;
    walk->in[walk->ndim++] = b;
  }
  if (walk->ndim == 0) {
    walk->sizes[0] = 1;
    walk->out[0] = walk->in[0] = 0;
    walk->ndim = 1;
  }
}

static void move_run(char *to, const char *from, int64_t count, int64_t to_step, int64_t from_step, size_t width) {
  if (to_step == (int64_t)width && from_step == (int64_t)width) {
    memmove(to, from, (size_t)count * width);
    return;
  }
  for (int64_t i = 0; i < count; i++, to += to_step, from += from_step) {
    memcpy(to, from, width);
  }
}

/// One run of the innermost dimension.
static bool convert_run(char *to, const char *from, const struct walk *walk, int out_dtype, int in_dtype,
                        enum adapt_mode mode, char *problem, size_t size) {
  const int last = walk->ndim - 1;
  struct row row;
  for (int64_t at = 0; at < walk->sizes[last]; at += ROW) {
    row.count = walk->sizes[last] - at < ROW ? walk->sizes[last] - at : ROW;
    load(&row, in_dtype, from + at * walk->in[last], walk->in[last]);
    if (mode == ADAPT_CHECK && !check_row(&row, in_dtype, out_dtype, problem, size)) {
      return false;
    }
    if (mode == ADAPT_PROXY) {
      make_proxies(&row, out_dtype);
    }
    if (mode == ADAPT_LOWEST) {
      keep_lowest(&row, in_dtype, out_dtype);
    }
    store(&row, out_dtype, to + at * walk->out[last], walk->out[last]);
  }
  return true;
}

/// Call per run of the innermost dimension.
static bool walk_all(const struct walk *walk, char *to, const char *from, int out_dtype, int in_dtype,
                     enum adapt_mode mode, char *problem, size_t size) {
  int64_t index[DIT_MAX_DIMS] = {0};
  const int last = walk->ndim - 1;
  for (;;) {
    if (out_dtype == in_dtype) {
      move_run(to, from, walk->sizes[last], walk->out[last], walk->in[last], dit_dtype_get_size(in_dtype));
    } else if (!convert_run(to, from, walk, out_dtype, in_dtype, mode, problem, size)) {
      return false;
    }
    int d = last - 1;
    for (; d >= 0; d--) {
      to += walk->out[d];
      from += walk->in[d];
      if (++index[d] < walk->sizes[d]) {
        break;
      }
      to -= walk->out[d] * walk->sizes[d];
      from -= walk->in[d] * walk->sizes[d];
      index[d] = 0;
    }
    if (d < 0) {
      return true;
    }
  }
}

bool adapt_elements_copy(const struct dit_tensor_view *out, const struct dit_tensor_view *in, enum adapt_mode mode,
                         char *problem, size_t size) {
  struct walk walk;
  if (out->numel == 0) {
    return true;
  }
  make_walk(&walk, out, in);
  return walk_all(&walk, out->data, in->data, out->dtype, in->dtype, mode, problem, size);
}

void adapt_elements_restore(const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            const struct dit_tensor_view *proxy_out, const struct dit_tensor_view *proxy_in) {
  const size_t width = dit_dtype_get_size(out->dtype), proxy = dit_dtype_get_size(proxy_out->dtype);
  for (int64_t i = 0; i < out->numel; i++) {
    if (memcmp((char *)proxy_out->data + (size_t)i * proxy, (char *)proxy_in->data + (size_t)i * proxy, proxy) == 0) {
      memcpy((char *)out->data + (size_t)i * width, (char *)in->data + (size_t)i * width, width);
    }
  }
}
