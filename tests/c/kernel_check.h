/// Shared by the kernel tests: random tensors of any dtype and strides between guard bytes, and element access that
/// shares no code with the kernels.
///
/// Everything is drawn from one seed (DIT_TEST_SEED, printed), so a failure repeats. A failing case is run again with
/// smaller sizes and the smallest one that still fails is printed.
#ifndef DIT_TESTS_KERNEL_CHECK_H
#define DIT_TESTS_KERNEL_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "dit/dit.h"
#include "dit/parallel.h"

#define GUARD 64
#define GUARD_BYTE 0xA7

static uint64_t random_state;

static inline uint64_t random_next(void) {
  uint64_t x = (random_state += UINT64_C(0x9E3779B97F4A7C15));
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}
static inline int64_t random_below(int64_t limit) {
  return (int64_t)(random_next() % (uint64_t)limit);
}
static inline double random_real(void) {
  return (double)(random_next() >> 11) / 9007199254740992.0 * 4 - 2;
}

static inline uint64_t random_init(void) {
  const char *text = getenv("DIT_TEST_SEED");
  random_state = text ? strtoull(text, NULL, 10) : 20240611;
  printf("seed %llu\n", (unsigned long long)random_state);
  return random_state;
}

static inline const struct dit_kernel_vtable *load_kernels(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_runtime_init("host", &err));
  CHECK_OK(dit_diopi_activate("host", &err));
  const struct dit_kernel_vtable *kernels = dit_runtime_get_kernels();
  CHECK(kernels && kernels->abi_version == DIT_KERNEL_ABI_VERSION);
  CHECK(kernels->struct_size == sizeof(*kernels));
  return kernels;
}

/// A tensor in its own allocation.
struct sample {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  char *buffer;
  size_t bytes;
};

enum layout { LAYOUT_CONTIGUOUS, LAYOUT_PERMUTED, LAYOUT_GAPS, LAYOUT_EXPANDED, LAYOUT_KINDS };

static inline void sample_destroy(struct sample *sample) {
  for (int i = 0; i < GUARD; i++) {
    CHECK((unsigned char)sample->buffer[i] == GUARD_BYTE);
    CHECK((unsigned char)sample->buffer[sample->bytes - 1 - (size_t)i] == GUARD_BYTE);
  }
  free(sample->buffer);
}

/// `layout` LAYOUT_EXPANDED gives some dimensions stride 0: for inputs only.
static inline void sample_init(struct sample *sample, int dtype, int ndim, const int64_t *sizes, enum layout layout) {
  int order[DIT_MAX_DIMS];
  size_t width = dit_dtype_get_size(dtype);
  int64_t next = 1, numel = 1;
  for (int i = 0; i < ndim; i++) {
    order[i] = ndim - 1 - i;
    sample->sizes[i] = sizes[i];
    numel *= sizes[i];
  }
  for (int i = ndim - 1; i > 0 && (layout == LAYOUT_PERMUTED || layout == LAYOUT_GAPS); i--) {
    int j = (int)random_below(i + 1), swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  for (int i = 0; i < ndim; i++) {
    int64_t gap = layout == LAYOUT_GAPS ? 1 + random_below(3) : 1;
    sample->strides[order[i]] = next * gap;
    if (layout == LAYOUT_EXPANDED && random_below(2)) {
      sample->strides[order[i]] = 0;
      continue;
    }
    next *= gap * (sizes[order[i]] > 0 ? sizes[order[i]] : 1);
  }
  int64_t offset = layout == LAYOUT_GAPS ? random_below(4) : 0;
  sample->bytes = (size_t)(next + offset) * width + 2 * GUARD;
  sample->buffer = malloc(sample->bytes);
  CHECK(sample->buffer);
  memset(sample->buffer, GUARD_BYTE, sample->bytes);
  sample->view = (struct dit_tensor_view){.data = sample->buffer + GUARD + (size_t)offset * width,
                                          .sizes = sample->sizes,
                                          .strides = sample->strides,
                                          .numel = numel,
                                          .storage = sample->buffer,
                                          .handle = sample,
                                          .ndim = ndim,
                                          .dtype = (int16_t)dtype,
                                          .flags = DIT_TENSOR_ON_DEVICE};
  if (dit_shape_is_contiguous(ndim, sample->sizes, sample->strides)) {
    sample->view.flags |= DIT_TENSOR_CONTIGUOUS;
  }
  if (dit_shape_is_dense(ndim, sample->sizes, sample->strides)) {
    sample->view.flags |= DIT_TENSOR_DENSE;
  }
}

/// Address of the element with row-major number `index`.
static inline char *view_at(const struct dit_tensor_view *view, int64_t index) {
  int64_t offset = 0;
  for (int dim = view->ndim - 1; dim >= 0; dim--) {
    offset += index % view->sizes[dim] * view->strides[dim];
    index /= view->sizes[dim];
  }
  return (char *)view->data + offset * (int64_t)dit_dtype_get_size(view->dtype);
}

static inline long double decode_small(unsigned bits, int mantissa, int exponent_bits, int bias) {
  int exponent = (int)(bits >> mantissa) & ((1 << exponent_bits) - 1);
  long double fraction = (long double)(bits & ((1u << mantissa) - 1)),
              sign = bits >> (mantissa + exponent_bits) & 1 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? (long double)NAN : sign * (long double)INFINITY;
  }
  return sign *
         ldexpl(exponent ? fraction + ldexpl(1, mantissa) : fraction, (exponent ? exponent : 1) - bias - mantissa);
}

static inline long double view_get(const struct dit_tensor_view *view, int64_t index) {
  const char *at = view_at(view, index);
#define CASE(dtype, type)              \
  case dtype: {                        \
    type value;                        \
    memcpy(&value, at, sizeof(value)); \
    return (long double)value;         \
  }
  switch (view->dtype) {
    CASE(DIT_DTYPE_U8, uint8_t)
    CASE(DIT_DTYPE_I8, int8_t)
    CASE(DIT_DTYPE_I16, int16_t)
    CASE(DIT_DTYPE_I32, int32_t)
    CASE(DIT_DTYPE_I64, int64_t)
    CASE(DIT_DTYPE_F32, float)
    CASE(DIT_DTYPE_F64, double)
    CASE(DIT_DTYPE_BOOL, uint8_t)
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16: {
      uint16_t bits;
      memcpy(&bits, at, sizeof(bits));
      return view->dtype == DIT_DTYPE_F16 ? decode_small(bits, 10, 5, 15) : decode_small(bits, 7, 8, 127);
    }
    default:
      CHECK(!"dtype without element access");
      return 0;
  }
#undef CASE
}

/// Only for values the dtype represents exactly, or any value for float and double.
static inline void view_set(const struct dit_tensor_view *view, int64_t index, long double value) {
  char *at = view_at(view, index);
#define CASE(dtype, type)                  \
  case dtype: {                            \
    type element = (type)value;            \
    memcpy(at, &element, sizeof(element)); \
    break;                                 \
  }
  switch (view->dtype) {
    CASE(DIT_DTYPE_U8, uint8_t)
    CASE(DIT_DTYPE_I8, int8_t)
    CASE(DIT_DTYPE_I16, int16_t)
    CASE(DIT_DTYPE_I32, int32_t)
    CASE(DIT_DTYPE_I64, int64_t)
    CASE(DIT_DTYPE_F32, float)
    CASE(DIT_DTYPE_F64, double)
    case DIT_DTYPE_BOOL:
      *at = value != 0;
      break;
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16: {
      int mantissa = view->dtype == DIT_DTYPE_F16 ? 10 : 7, bias = view->dtype == DIT_DTYPE_F16 ? 15 : 127, exponent;
      uint16_t bits = signbit(value) ? 0x8000 : 0;
      if (isnan(value)) {
        bits = view->dtype == DIT_DTYPE_F16 ? 0x7E00 : 0x7FC0;
      } else if (isinf(value)) {
        bits |= view->dtype == DIT_DTYPE_F16 ? 0x7C00 : 0x7F80;
      } else if (value != 0) {
        frexpl(value, &exponent);
        exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
        bits = (uint16_t)(bits | (uint16_t)((unsigned)fabsl(roundl(ldexpl(value, mantissa - exponent))) +
                                            ((unsigned)(exponent + bias - 1) << mantissa)));
      }
      memcpy(at, &bits, sizeof(bits));
      break;
    }
    default:
      CHECK(!"dtype without element access");
  }
#undef CASE
}

static inline bool is_floating(int dtype) {
  return dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_FLOAT;
}

/// Half a unit in the last place of 1, the rounding error of one operation.
static inline double get_epsilon(int dtype) {
  return dtype == DIT_DTYPE_F64 ? 1.2e-16 : dtype == DIT_DTYPE_F32 ? 6.0e-8 : dtype == DIT_DTYPE_F16 ? 4.9e-4 : 3.95e-3;
}

/// Small numbers that every dtype holds exactly; a few NaN and infinities in floating tensors when `special`.
static inline void sample_fill(struct sample *sample, bool special) {
  const struct dit_tensor_view *view = &sample->view;
  for (int64_t i = 0; i < view->numel; i++) {
    long double value = (long double)((double)random_below(33) - 16) / 4;
    if (view->dtype == DIT_DTYPE_F32 || view->dtype == DIT_DTYPE_F64) {
      value = (long double)random_real();
    } else if (view->dtype == DIT_DTYPE_BOOL) {
      value = (long double)random_below(2);
    } else if (view->dtype == DIT_DTYPE_U8) {
      value = (long double)random_below(200);
    } else if (!is_floating(view->dtype)) {
      value = (long double)(random_below(200) - 100);
    }
    if (special && is_floating(view->dtype) && random_below(16) == 0) {
      static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
      value = (long double)specials[random_below(5)];
    }
    view_set(view, i, value);
  }
}

/// Equal, both NaN, or within `tolerance` (absolute).
static inline bool is_close(long double got, long double want, double tolerance) {
  if (isnan(got) || isnan(want)) {
    return isnan(got) && isnan(want);
  }
  return got == want || fabsl(got - want) <= (long double)tolerance;
}

/// One random case: enough to draw it again. `size_limit` bounds the sizes, so that shrinking is drawing with smaller
/// limits.
struct test_case {
  uint64_t seed;
  int64_t size_limit;
  int max_ndim;
};

static inline int draw_shape(const struct test_case *test, int64_t *sizes) {
  int ndim = (int)random_below(test->max_ndim + 1);
  int64_t numel = 1;
  for (int i = 0; i < ndim; i++) {
    int64_t limit = test->size_limit;
    sizes[i] = random_below(20) == 0 ? 0 : random_below(4) == 0 ? 1 : 1 + random_below(limit);
    while (numel * sizes[i] > 60000) {
      sizes[i] = (sizes[i] + 1) / 2;
    }
    numel *= sizes[i] > 0 ? sizes[i] : 1;
  }
  return ndim;
}

/// Run `function` on `count` random cases; on a failure find a small one and stop.
static inline void run_cases(const char *name, bool (*function)(const struct test_case *), int count) {
  for (int i = 0; i < count; i++) {
    static const int64_t limits[] = {3, 8, 40, 700, 5000};
    struct test_case test = {random_next(), limits[random_below(5)], 1 + (int)random_below(5)};
    random_state = test.seed;
    bool ok = function(&test);
    random_state = test.seed + 1;
    if (ok) {
      continue;
    }
    struct test_case smallest = test;
    for (int attempt = 0; attempt < 4000; attempt++) {
      struct test_case smaller = {test.seed + (uint64_t)attempt, 1 + random_below(smallest.size_limit),
                                  1 + (int)random_below(smallest.max_ndim)};
      uint64_t keep = random_state;
      random_state = smaller.seed;
      if (!function(&smaller)) {
        smallest = smaller;
      }
      random_state = keep;
    }
    fprintf(stderr, "%s: case %d fails; smallest: seed %llu size_limit %lld max_ndim %d\n", name, i,
            (unsigned long long)smallest.seed, (long long)smallest.size_limit, smallest.max_ndim);
    random_state = smallest.seed;
    setenv("DIT_TEST_VERBOSE", "1", 1);
    function(&smallest);
    exit(1);
  }
}

/// Print the first wrong element of the case that is being explained.
static inline bool report(const char *what, int64_t index, long double got, long double want) {
  if (getenv("DIT_TEST_VERBOSE")) {
    fprintf(stderr, "  %s: element %lld is %.20Lg, expected %.20Lg\n", what, (long long)index, got, want);
  }
  return false;
}

static const int all_dtypes[] = {DIT_DTYPE_U8,  DIT_DTYPE_I8,  DIT_DTYPE_I16, DIT_DTYPE_I32,  DIT_DTYPE_I64,
                                 DIT_DTYPE_F16, DIT_DTYPE_F32, DIT_DTYPE_F64, DIT_DTYPE_BOOL, DIT_DTYPE_BF16};
static const int float_dtypes[] = {DIT_DTYPE_F16, DIT_DTYPE_F32, DIT_DTYPE_F64, DIT_DTYPE_BF16};

#endif
