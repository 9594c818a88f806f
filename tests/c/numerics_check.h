/// Random tensors for the tests of the numeric passes: every type, shape and stride, special values, and shrinking.
///
/// A case is made from its seed and a `limit` on every size alone, so a failing one is shrunk by lowering the limit.
#ifndef DIT_TESTS_NUMERICS_CHECK_H
#define DIT_TESTS_NUMERICS_CHECK_H

#include <math.h>

#include "check.h"
#include "core/convert.h"
#include "dit/dit.h"

#define CASE_BYTES (1 << 22)
#define CASE_DIMS 5

static const int case_dtypes[] = {
    DIT_DTYPE_BOOL,       DIT_DTYPE_U8,      DIT_DTYPE_I8,        DIT_DTYPE_I16,         DIT_DTYPE_U16,
    DIT_DTYPE_I32,        DIT_DTYPE_U32,     DIT_DTYPE_I64,       DIT_DTYPE_U64,         DIT_DTYPE_F16,
    DIT_DTYPE_BF16,       DIT_DTYPE_F32,     DIT_DTYPE_F64,       DIT_DTYPE_C32,         DIT_DTYPE_C64,
    DIT_DTYPE_C128,       DIT_DTYPE_F8_E5M2, DIT_DTYPE_F8_E4M3FN, DIT_DTYPE_F8_E5M2FNUZ, DIT_DTYPE_F8_E4M3FNUZ,
    DIT_DTYPE_F8_E8M0FNU,
};
#define CASE_DTYPES ((int)(sizeof(case_dtypes) / sizeof(case_dtypes[0])))

struct tensor_case {
  uint64_t seed, counter;
  struct dit_tensor_view view;
  int64_t sizes[CASE_DIMS], strides[CASE_DIMS];
  _Alignas(64) char bytes[CASE_BYTES];
};

static inline uint64_t case_next(struct tensor_case *t) {
  return dit_random_mix(t->seed, ++t->counter);
}

static inline int64_t case_below(struct tensor_case *t, int64_t bound) {
  return (int64_t)(case_next(t) % (uint64_t)bound);
}

/// Sizes: mostly small, sometimes empty, sometimes one large dimension; the product stays below 2^18.
static inline void case_set_shape(struct tensor_case *t, int64_t limit) {
  int ndim = (int)case_below(t, CASE_DIMS + 1);
  int64_t numel = 1;
  for (int dim = 0; dim < ndim; dim++) {
    int64_t kind = case_below(t, 40), size = 1 + case_below(t, 9);
    if (kind == 0) {
      size = 0;
    } else if (kind < 6) {
      size = 1 + case_below(t, 90000);
    }
    size = size > limit ? limit : size;
    int64_t room = (1 << 18) / (numel > 0 ? numel : 1);
    size = size > room ? room : size;
    t->sizes[dim] = size;
    numel *= size;
  }
  t->view.ndim = ndim;
  t->view.numel = numel;
}

/// Strides: a random order of dimensions, gaps, zeros; all inside the buffer.
static inline void case_set_strides(struct tensor_case *t, int64_t width) {
  int order[CASE_DIMS], ndim = t->view.ndim;
  bool shuffle = case_below(t, 2), gaps = case_below(t, 3) == 0, expand = case_below(t, 5) == 0;
  for (int i = 0; i < ndim; i++) {
    order[i] = ndim - 1 - i;
  }
  for (int i = ndim - 1; i > 0 && shuffle; i--) {
    int j = (int)case_below(t, i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  int64_t step = 1, room = CASE_BYTES / width / (t->view.numel > 0 ? t->view.numel : CASE_BYTES);
  for (int i = 0; i < ndim; i++) {
    int64_t size = t->sizes[order[i]] > 1 ? t->sizes[order[i]] : 1;
    int64_t gap = gaps && room > 1 ? 1 + case_below(t, room > 4 && case_below(t, 4) ? 4 : room) : 1;
    t->strides[order[i]] = step * gap;
    if (expand && case_below(t, 3) == 0) {
      t->strides[order[i]] = 0;
      continue;
    }
    step = step * gap * size;
    room /= gap;
  }
}

/// 0: plain, 1: also special values, 2: extreme exponents, 3: constant, 4: all NaN, 5: a large mean.
static inline double case_value(struct tensor_case *t, int mode) {
  double plain = (double)(int64_t)case_next(t) * 0x1p-63;
  switch (mode) {
    case 1: {
      static const double special[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 0x1p-149, -0x1p-24, 0x1p-1074};
      return case_below(t, 3) == 0 ? special[case_below(t, 8)] : plain;
    }
    case 2:
      return ldexp(plain, (int)case_below(t, 1800) - 900);
    case 3:
      return 3.25;
    case 4:
      return NAN;
    case 5:
      return 1000 + plain;
    default:
      return plain * 4;
  }
}

static inline void case_store(int dtype, char *target, double value, uint64_t noise) {
  float narrow = (float)value;
  uint8_t byte = 0;
  uint16_t half = 0;
  switch (dtype) {
    case DIT_DTYPE_F64:
      memcpy(target, &value, 8);
      return;
    case DIT_DTYPE_F32:
      memcpy(target, &narrow, 4);
      return;
    case DIT_DTYPE_F16:
      half = dit_float_to_f16(narrow);
      memcpy(target, &half, 2);
      return;
    case DIT_DTYPE_BF16:
      half = dit_float_to_bf16(narrow);
      memcpy(target, &half, 2);
      return;
    case DIT_DTYPE_F8_E5M2:
      byte = dit_float_to_f8_e5m2(narrow);
      break;
    case DIT_DTYPE_F8_E4M3FN:
      byte = dit_float_to_f8_e4m3fn(narrow);
      break;
    case DIT_DTYPE_F8_E5M2FNUZ:
      byte = dit_float_to_f8_e5m2fnuz(narrow);
      break;
    case DIT_DTYPE_F8_E4M3FNUZ:
      byte = dit_float_to_f8_e4m3fnuz(narrow);
      break;
    case DIT_DTYPE_F8_E8M0FNU:
      byte = dit_float_to_f8_e8m0fnu(narrow);
      break;
    case DIT_DTYPE_BOOL:
      byte = noise & 1;
      break;
    default:  // integers: any bits, often small
      noise = value > 0.5 ? noise : value > -0.5 ? noise >> 60 : noise >> 40;
      memcpy(target, &noise, dit_dtype_get_size(dtype));
      return;
  }
  *target = (char)byte;
}

/// Fill the whole buffer, so that a wrong address reads a wrong number.
static inline void case_fill(struct tensor_case *t) {
  int real = dit_dtype_get_real(t->view.dtype), mode = (int)case_below(t, 6);
  int64_t width = (int64_t)dit_dtype_get_size(real), low, high;
  dit_tensor_get_span(&t->view, &low, &high);
  for (int64_t at = 0; at + width <= high; at += width) {
    double value = case_value(t, mode);
    case_store(real, t->bytes + at, value, case_next(t));
  }
}

static inline void case_init(struct tensor_case *t, uint64_t seed, int64_t limit) {
  t->seed = seed;
  t->counter = 0;
  t->view = (struct dit_tensor_view){.data = t->bytes, .sizes = t->sizes, .strides = t->strides};
  t->view.dtype = (int16_t)case_dtypes[case_below(t, CASE_DTYPES)];
  case_set_shape(t, limit);
  case_set_strides(t, (int64_t)dit_dtype_get_size(t->view.dtype));
  case_fill(t);
}

/// Address of the element with the row-major number `flat`.
static inline const char *case_get(const struct dit_tensor_view *view, int64_t flat) {
  int64_t offset = 0;
  for (int dim = view->ndim - 1; dim >= 0; dim--) {
    offset += flat % view->sizes[dim] * view->strides[dim];
    flat /= view->sizes[dim];
  }
  return (const char *)view->data + offset * (int64_t)dit_dtype_get_size(view->dtype);
}

struct number {
  long double re, im;
};

static inline long double decode_real(int dtype, const char *at) {
  uint8_t byte = (uint8_t)*at;
#define DECODE(type)                    \
  do {                                  \
    type number_;                       \
    memcpy(&number_, at, sizeof(type)); \
    return number_;                     \
  } while (0)
  switch (dtype) {
    case DIT_DTYPE_F64:
      DECODE(double);
    case DIT_DTYPE_F32:
      DECODE(float);
    case DIT_DTYPE_I64:
      DECODE(int64_t);
    case DIT_DTYPE_U64:
      DECODE(uint64_t);
    case DIT_DTYPE_I32:
      DECODE(int32_t);
    case DIT_DTYPE_U32:
      DECODE(uint32_t);
    case DIT_DTYPE_I16:
      DECODE(int16_t);
    case DIT_DTYPE_U16:
      DECODE(uint16_t);
    case DIT_DTYPE_I8:
      DECODE(int8_t);
    case DIT_DTYPE_U8:
    case DIT_DTYPE_BOOL:
      return byte;
    case DIT_DTYPE_F8_E5M2:
      return dit_float_from_f8_e5m2(byte);
    case DIT_DTYPE_F8_E4M3FN:
      return dit_float_from_f8_e4m3fn(byte);
    case DIT_DTYPE_F8_E5M2FNUZ:
      return dit_float_from_f8_e5m2fnuz(byte);
    case DIT_DTYPE_F8_E4M3FNUZ:
      return dit_float_from_f8_e4m3fnuz(byte);
    case DIT_DTYPE_F8_E8M0FNU:
      return dit_float_from_f8_e8m0fnu(byte);
    default: {
      uint16_t half;
      memcpy(&half, at, 2);
      return dtype == DIT_DTYPE_F16 ? dit_float_from_f16(half) : dit_float_from_bf16(half);
    }
  }
#undef DECODE
}

static inline struct number decode(const struct dit_tensor_view *view, int64_t flat) {
  int real = dit_dtype_get_real(view->dtype);
  const char *at = case_get(view, flat);
  struct number x = {decode_real(real, at), 0};
  if (real != view->dtype) {
    x.im = decode_real(real, at + dit_dtype_get_size(real));
  }
  return x;
}

static inline void case_print(const struct tensor_case *t) {
  fprintf(stderr, "seed %llu: %s, sizes", (unsigned long long)t->seed, dit_dtype_get_name(t->view.dtype));
  for (int dim = 0; dim < t->view.ndim; dim++) {
    fprintf(stderr, " %lld", (long long)t->sizes[dim]);
  }
  fprintf(stderr, ", strides");
  for (int dim = 0; dim < t->view.ndim; dim++) {
    fprintf(stderr, " %lld", (long long)t->strides[dim]);
  }
  fprintf(stderr, "\n");
}

/// Equal, both NaN, or within `slack` * `scale` of each other.
static inline bool is_near(double got, long double want, long double scale, double slack) {
  if (isnan(got) || isnan(want)) {
    return isnan(got) && isnan(want);
  }
  if ((long double)got == want || got == (double)want) {
    return true;
  }
  return isfinite(got) && fabsl(got - want) <= slack * scale + 0x1p-1074L;
}

/// `check(seed, limit)` returns NULL or the name of what is wrong. Runs `count` seeds; shrinks and stops at a failure.
static inline void run_cases(const char *(*check)(uint64_t seed, int64_t limit), uint64_t first, int count) {
  for (uint64_t seed = first; seed < first + (uint64_t)count; seed++) {
    int64_t limit = INT64_MAX;
    const char *wrong = check(seed, limit);
    if (!wrong) {
      continue;
    }
    for (int64_t smaller = 1 << 17; smaller >= 1; smaller /= 2) {
      const char *still = check(seed, smaller);
      if (still) {
        wrong = still;
        limit = smaller;
      }
    }
    fprintf(stderr, "wrong: %s (seed %llu, every size at most %lld)\n", wrong, (unsigned long long)seed,
            (long long)limit);
    (void)check(seed, limit);
    exit(1);
  }
}

#endif
