// primitives.c: 25 functions for float32, float64 and int64, on contiguous tensors of one shape and dtype.
//
// What a vendor has after a week. The tests show how much of the suite the adaptor makes of it. It needs the headers of
// ditorch and nothing else: cc -O2 -fPIC -shared primitives.c -lm
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diopi/functions.h"

static _Thread_local const char *problem = "";

const char *diopiGetVendorName(void) {
  return "primitives";
}

const char *diopiGetLastErrorString(void) {
  return problem;
}

static diopiError_t fail(diopiError_t code, const char *text) {
  problem = text;
  return code;
}

struct tensor {
  void *data;
  const int64_t *sizes;
  int64_t ndim, numel;
  diopiDtype_t dtype;
};

/// Contiguous, on the device, one of three dtypes or bool.
static diopiError_t take(diopiConstTensorHandle_t handle, struct tensor *out) {
  diopiDevice_t device;
  diopiSize_t sizes, strides;
  const void *data;
  int64_t expected = 1;
  if (!handle || diopiGetTensorDevice(handle, &device) != diopiSuccess || device != diopi_device) {
    return fail(diopiErrorOccurred, "an argument is no tensor on the device");
  }
  diopiGetTensorDtype(handle, &out->dtype);
  diopiGetTensorShape(handle, &sizes);
  diopiGetTensorStride(handle, &strides);
  diopiGetTensorNumel(handle, &out->numel);
  diopiGetTensorDataConst(handle, &data);
  if (out->dtype != diopi_dtype_float32 && out->dtype != diopi_dtype_float64 && out->dtype != diopi_dtype_int64 &&
      out->dtype != diopi_dtype_bool) {
    return fail(diopiDtypeNotSupported, "only float32, float64 and int64");
  }
  for (int64_t i = sizes.len - 1; i >= 0; i--) {
    if (strides.data[i] != expected && sizes.data[i] != 1 && out->numel > 0) {
      return fail(diopiForceFallbackToCPU, "only contiguous tensors");
    }
    expected *= sizes.data[i];
  }
  memcpy(&out->data, &data, sizeof data);
  out->sizes = sizes.data;
  out->ndim = sizes.len;
  return diopiSuccess;
}

static int same_shape(const struct tensor *a, const struct tensor *b) {
  return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim) == 0);
}

#define TRY(call)                \
  do {                           \
    diopiError_t code_ = (call); \
    if (code_ != diopiSuccess) { \
      return code_;              \
    }                            \
  } while (0)

/// Do they share memory without being the same elements?
static int overlaps(const struct tensor *a, const struct tensor *b) {
  const int64_t wide = a->dtype == diopi_dtype_bool ? 1 : a->dtype == diopi_dtype_float32 ? 4 : 8;
  const int64_t other = b->dtype == diopi_dtype_bool ? 1 : b->dtype == diopi_dtype_float32 ? 4 : 8;
  const char *x = a->data, *y = b->data;
  return x != y && x < y + b->numel * other && y < x + a->numel * wide;
}

/// All tensors of a pointwise call: one shape; `out` first. `dtype` is that of the operands.
static diopiError_t take_all(diopiContextHandle_t ctx, diopiConstTensorHandle_t *handles, struct tensor *t, int count) {
  if (!ctx) {
    return fail(diopiErrorOccurred, "the context is NULL");
  }
  for (int i = 0; i < count; i++) {
    TRY(take(handles[i], &t[i]));
  }
  for (int i = 1; i < count; i++) {
    if (!same_shape(&t[0], &t[i])) {
      return t[0].ndim == t[i].ndim && t[0].numel <= t[i].numel ? fail(diopiErrorOccurred, "out has the wrong shape")
                                                                : fail(diopiForceFallbackToCPU, "only equal shapes");
    }
    if (overlaps(&t[0], &t[i])) {
      return fail(diopiErrorOccurred, "out overlaps an input");
    }
  }
  return diopiSuccess;
}

static diopiError_t refuse(void) {
  return fail(diopiDtypeNotSupported, "not for these dtypes");
}

// One operand

/// Newton's method from a first guess, on 1 - erf where that keeps the digits.
static double inverse_erf(double x) {
  const double size = fabs(x), l = log((1 - size) * (1 + size)), b = 4.3307467508 + l / 2;
  if (!(size < 1)) {
    return size == 1 ? copysign(INFINITY, x) : NAN;
  }
  double y = size < 1e-3 ? 0.88622692545275801365 * size : sqrt(sqrt(b * b - l / 0.147) - b);
  for (int i = 0; i < 4 && y > 0; i++) {
    const double error = size < 0.5 ? erf(y) - size : (1 - size) - erfc(y);
    y -= error / (1.12837916709551257390 * exp(-y * y));
  }
  return copysign(y, x);
}

#define UNARY(name, expression)                                                                          \
  diopiError_t name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) { \
    struct tensor t[2];                                                                                  \
    TRY(take_all(ctx, (diopiConstTensorHandle_t[]){out, input}, t, 2));                                  \
    if (t[0].dtype != t[1].dtype || t[0].dtype == diopi_dtype_int64 || t[0].dtype == diopi_dtype_bool) { \
      return refuse();                                                                                   \
    }                                                                                                    \
    for (int64_t i = 0; i < t[0].numel; i++) {                                                           \
      if (t[0].dtype == diopi_dtype_float32) {                                                           \
        const double x = ((const float *)t[1].data)[i];                                                  \
        ((float *)t[0].data)[i] = (float)(expression);                                                   \
      } else {                                                                                           \
        const double x = ((const double *)t[1].data)[i];                                                 \
        ((double *)t[0].data)[i] = expression;                                                           \
      }                                                                                                  \
    }                                                                                                    \
    return diopiSuccess;                                                                                 \
  }
UNARY(diopiExp, exp(x))
UNARY(diopiExpm1, expm1(x))
UNARY(diopiLog, log(x))
UNARY(diopiLog1p, log1p(x))
UNARY(diopiSin, sin(x))
UNARY(diopiCos, cos(x))
UNARY(diopiAtan, atan(x))
UNARY(diopiErf, erf(x))
UNARY(diopiErfinv, inverse_erf(x))
UNARY(diopiFloor, floor(x))
UNARY(diopiSqrt, sqrt(x))

// Two operands

#define LOOP(type, result, expression)                                             \
  for (int64_t i = 0; i < t[0].numel; i++) {                                       \
    const type a = ((const type *)t[1].data)[i], b = ((const type *)t[2].data)[i]; \
    ((result *)t[0].data)[i] = (result)(expression);                               \
  }                                                                                \
  return diopiSuccess;
#define BY_DTYPE(real, integer)                                              \
  TRY(take_all(ctx, (diopiConstTensorHandle_t[]){out, input, other}, t, 3)); \
  if (t[1].dtype != t[2].dtype || t[0].dtype != t[1].dtype) {                \
    return refuse();                                                         \
  }                                                                          \
  switch (t[0].dtype) {                                                      \
    case diopi_dtype_float32:                                                \
      LOOP(float, float, real)                                               \
    case diopi_dtype_float64:                                                \
      LOOP(double, double, real)                                             \
    case diopi_dtype_int64:                                                  \
      LOOP(int64_t, int64_t, integer)                                        \
    default:                                                                 \
      return refuse();                                                       \
  }

diopiError_t diopiAdd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other, const diopiScalar_t *alpha) {
  struct tensor t[3];
  if (!alpha) {
    return fail(diopiErrorOccurred, "alpha is NULL");
  }
  const int real = alpha->stype == diopi_dtype_float32 || alpha->stype == diopi_dtype_float64;
  const double factor = real ? alpha->fval : (double)alpha->ival;
  const uint64_t times = real ? (uint64_t)(int64_t)alpha->fval : (uint64_t)alpha->ival;
  BY_DTYPE(a + factor * b, (uint64_t)a + times * (uint64_t)b)
}

diopiError_t diopiMul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other) {
  struct tensor t[3];
  BY_DTYPE(a * b, (uint64_t)a * (uint64_t)b)
}

static int64_t divide(int64_t a, int64_t b, diopiRoundMode_t mode) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) {
    return b == 0 ? 0 : a;
  }
  return a / b - (mode == RoundModeFloor && a % b != 0 && (a < 0) != (b < 0));
}

diopiError_t diopiDiv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t other, diopiRoundMode_t mode) {
  struct tensor t[3];
  TRY(take_all(ctx, (diopiConstTensorHandle_t[]){out, input, other}, t, 3));
  if ((mode == RoundModeNone) == (t[0].dtype == diopi_dtype_int64)) {
    return refuse();
  }
  BY_DTYPE(a / b, divide(a, b, mode))
}

static int64_t raise_integer(int64_t base, int64_t power) {
  uint64_t result = 1, factor = (uint64_t)base;
  if (power < 0) {
    return base == 1 ? 1 : base == -1 ? (power % 2 ? -1 : 1) : 0;
  }
  for (; power; power >>= 1, factor *= factor) {
    result *= power & 1 ? factor : 1;
  }
  return (int64_t)result;
}

diopiError_t diopiPowTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            diopiConstTensorHandle_t other) {
  struct tensor t[3];
  BY_DTYPE(pow(a, b), raise_integer(a, b))
}

diopiError_t diopiBitwiseAnd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t other) {
  struct tensor t[3];
  TRY(take_all(ctx, (diopiConstTensorHandle_t[]){out, input, other}, t, 3));
  if (t[0].dtype != diopi_dtype_int64 || t[1].dtype != t[0].dtype || t[2].dtype != t[0].dtype) {
    return refuse();
  }
  LOOP(int64_t, int64_t, a & b)
}

#define COMPARE(name, sign)                                                                            \
  diopiError_t name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input, \
                    diopiConstTensorHandle_t other) {                                                  \
    struct tensor t[3];                                                                                \
    TRY(take_all(ctx, (diopiConstTensorHandle_t[]){out, input, other}, t, 3));                         \
    if (t[0].dtype != diopi_dtype_bool || t[1].dtype != t[2].dtype) {                                  \
      return refuse();                                                                                 \
    }                                                                                                  \
    switch (t[1].dtype) {                                                                              \
      case diopi_dtype_float32:                                                                        \
        LOOP(float, uint8_t, a sign b)                                                                 \
      case diopi_dtype_float64:                                                                        \
        LOOP(double, uint8_t, a sign b)                                                                \
      case diopi_dtype_int64:                                                                          \
        LOOP(int64_t, uint8_t, a sign b)                                                               \
      default:                                                                                         \
        return refuse();                                                                               \
    }                                                                                                  \
  }
COMPARE(diopiEq, ==)
COMPARE(diopiLt, <)

diopiError_t diopiWhere(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t condition,
                        diopiConstTensorHandle_t input, diopiConstTensorHandle_t other) {
  struct tensor t[4];
  TRY(take_all(ctx, (diopiConstTensorHandle_t[]){out, condition, input, other}, t, 4));
  if (t[1].dtype != diopi_dtype_bool || t[0].dtype != t[2].dtype || t[0].dtype != t[3].dtype ||
      t[0].dtype == diopi_dtype_bool) {
    return refuse();
  }
  const size_t width = t[0].dtype == diopi_dtype_float32 ? 4 : 8;
  for (int64_t i = 0; i < t[0].numel; i++) {
    const struct tensor *from = ((const uint8_t *)t[1].data)[i] ? &t[2] : &t[3];
    memcpy((char *)t[0].data + (size_t)i * width, (const char *)from->data + (size_t)i * width, width);
  }
  return diopiSuccess;
}

// Along the last dimension of a matrix

static diopiError_t take_matrix(diopiContextHandle_t ctx, diopiConstTensorHandle_t out, diopiConstTensorHandle_t in,
                                int64_t dim, int reduced, struct tensor *t) {
  if (!ctx) {
    return fail(diopiErrorOccurred, "the context is NULL");
  }
  TRY(take(out, &t[0]));
  TRY(take(in, &t[1]));
  if (overlaps(&t[0], &t[1])) {
    return fail(diopiErrorOccurred, "out overlaps an input");
  }
  if (t[1].ndim != 2 || (dim != 1 && dim != -1)) {
    return fail(diopiForceFallbackToCPU, "only the last dimension of a matrix");
  }
  if (t[0].dtype != t[1].dtype || t[0].dtype == diopi_dtype_bool) {
    return refuse();
  }
  if (reduced ? t[0].ndim != 1 || t[0].sizes[0] != t[1].sizes[0] : !same_shape(&t[0], &t[1])) {
    return fail(t[0].ndim == 1 || !reduced ? diopiErrorOccurred : diopiForceFallbackToCPU, "out has another shape");
  }
  return diopiSuccess;
}

#define ROWS(type, wide, start, step, running)                   \
  for (int64_t r = 0; r < t[1].sizes[0]; r++) {                  \
    const type *x = (const type *)t[1].data + r * t[1].sizes[1]; \
    wide sum = start;                                            \
    for (int64_t i = 0; i < t[1].sizes[1]; i++) {                \
      sum step x[i];                                             \
      if (running) {                                             \
        ((type *)t[0].data)[r * t[1].sizes[1] + i] = (type)sum;  \
      }                                                          \
    }                                                            \
    if (!(running)) {                                            \
      ((type *)t[0].data)[r] = (type)sum;                        \
    }                                                            \
  }                                                              \
  return diopiSuccess;
#define FOLD(start, step, running)                            \
  switch (t[0].dtype) {                                       \
    case diopi_dtype_float32:                                 \
      ROWS(float, double, start, step, running)               \
    case diopi_dtype_float64:                                 \
      ROWS(double, long double, start, step, running)         \
    default:                                                  \
      ROWS(int64_t, uint64_t, start, step(uint64_t), running) \
  }

diopiError_t diopiSum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiSize_t dim) {
  struct tensor t[2];
  if (dim.len != 1 || !dim.data) {
    return fail(diopiForceFallbackToCPU, "only one dimension");
  }
  TRY(take_matrix(ctx, out, input, dim.data[0], 1, t));
  FOLD(0, +=, 0)
}

diopiError_t diopiProd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       const int64_t *dim) {
  struct tensor t[2];
  if (!dim) {
    return fail(diopiForceFallbackToCPU, "only one dimension");
  }
  TRY(take_matrix(ctx, out, input, *dim, 1, t));
  FOLD(1, *=, 0)
}

diopiError_t diopiCumsum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         int64_t dim) {
  struct tensor t[2];
  TRY(take_matrix(ctx, out, input, dim, 0, t));
  FOLD(0, +=, 1)
}

#define BEST(type)                                                      \
  for (int64_t r = 0; r < t[1].sizes[0]; r++) {                         \
    const type *x = (const type *)t[1].data + r * t[1].sizes[1];        \
    int64_t best = 0;                                                   \
    for (int64_t i = 1; i < t[1].sizes[1] && x[best] == x[best]; i++) { \
      best = x[i] > x[best] || x[i] != x[i] ? i : best;                 \
    }                                                                   \
    ((type *)t[0].data)[r] = x[best];                                   \
    ((int64_t *)places.data)[r] = best;                                 \
  }                                                                     \
  return diopiSuccess;

diopiError_t diopiMax(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiTensorHandle_t max_indices,
                      diopiConstTensorHandle_t input, int64_t dim) {
  struct tensor t[2], places;
  TRY(take_matrix(ctx, max, input, dim, 1, t));
  TRY(take(max_indices, &places));
  if (places.dtype != diopi_dtype_int64 || !same_shape(&places, &t[0]) || t[1].sizes[1] == 0) {
    return fail(diopiErrorOccurred, "max_indices has another shape or dtype, or there are no elements");
  }
  switch (t[0].dtype) {
    case diopi_dtype_float32:
      BEST(float)
    case diopi_dtype_float64:
      BEST(double)
    default:
      BEST(int64_t)
  }
}

// Sorting and products

static _Thread_local int descending_order;

#define ORDER(name, type)                                                                        \
  static int name(const void *p, const void *q) {                                                \
    const int64_t *a = p, *b = q;                                                                \
    type x, y;                                                                                   \
    memcpy(&x, &a[1], sizeof x);                                                                 \
    memcpy(&y, &b[1], sizeof y);                                                                 \
    const int less = y != y ? x == x : x < y, more = x != x ? y == y : x > y;                    \
    return less != more ? (less == !descending_order ? -1 : 1) : a[0] < b[0] ? -1 : a[0] > b[0]; \
  }
ORDER(order_float, float)
ORDER(order_double, double)
ORDER(order_integer, int64_t)

diopiError_t diopiSort(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                       diopiConstTensorHandle_t input, int64_t dim, bool descending, const bool *stable) {
  struct tensor t[2], places;
  (void)stable;
  TRY(take_matrix(ctx, values, input, dim, 0, t));
  TRY(take(indices, &places));
  if (places.dtype != diopi_dtype_int64 || !same_shape(&places, &t[0])) {
    return fail(diopiErrorOccurred, "indices has another shape or dtype");
  }
  const int64_t columns = t[1].sizes[1];
  const size_t width = t[0].dtype == diopi_dtype_float32 ? 4 : 8;
  int64_t(*pairs)[2] = calloc((size_t)columns + 1, sizeof *pairs);
  for (int64_t r = 0; pairs && r < t[1].sizes[0]; r++) {
    for (int64_t i = 0; i < columns; i++) {
      pairs[i][0] = i;
      memcpy(&pairs[i][1], (const char *)t[1].data + (size_t)(r * columns + i) * width, width);
    }
    descending_order = descending;
    qsort(pairs, (size_t)columns, sizeof *pairs,
          t[0].dtype == diopi_dtype_float32   ? order_float
          : t[0].dtype == diopi_dtype_float64 ? order_double
                                              : order_integer);
    for (int64_t i = 0; i < columns; i++) {
      ((int64_t *)places.data)[r * columns + i] = pairs[i][0];
      memcpy((char *)t[0].data + (size_t)(r * columns + i) * width, &pairs[i][1], width);
    }
  }
  free(pairs);
  return pairs ? diopiSuccess : fail(diopiErrorOccurred, "no memory");
}

#define PRODUCT(type, wide)                                                      \
  for (int64_t n = 0; n < t[0].sizes[0]; n++) {                                  \
    for (int64_t i = 0; i < rows; i++) {                                         \
      for (int64_t k = 0; k < columns; k++) {                                    \
        wide sum = 0;                                                            \
        for (int64_t j = 0; j < inner; j++) {                                    \
          sum += (wide)((const type *)t[1].data)[(n * rows + i) * inner + j] *   \
                 (wide)((const type *)t[2].data)[(n * inner + j) * columns + k]; \
        }                                                                        \
        ((type *)t[0].data)[(n * rows + i) * columns + k] = (type)sum;           \
      }                                                                          \
    }                                                                            \
  }                                                                              \
  return diopiSuccess;

diopiError_t diopiBmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t mat2) {
  struct tensor t[3];
  if (!ctx) {
    return fail(diopiErrorOccurred, "the context is NULL");
  }
  TRY(take(out, &t[0]));
  TRY(take(input, &t[1]));
  TRY(take(mat2, &t[2]));
  if (t[0].ndim != 3 || t[1].ndim != 3 || t[2].ndim != 3 || t[0].sizes[0] != t[1].sizes[0] ||
      t[0].sizes[0] != t[2].sizes[0] || t[1].sizes[2] != t[2].sizes[1] || t[0].sizes[1] != t[1].sizes[1] ||
      t[0].sizes[2] != t[2].sizes[2]) {
    return fail(diopiErrorOccurred, "the shapes do not fit");
  }
  if (overlaps(&t[0], &t[1]) || overlaps(&t[0], &t[2])) {
    return fail(diopiErrorOccurred, "out overlaps an input");
  }
  if (t[0].dtype != t[1].dtype || t[0].dtype != t[2].dtype || t[0].dtype == diopi_dtype_bool) {
    return refuse();
  }
  const int64_t rows = t[1].sizes[1], inner = t[1].sizes[2], columns = t[2].sizes[2];
  switch (t[0].dtype) {
    case diopi_dtype_float32:
      PRODUCT(float, double)
    case diopi_dtype_float64:
      PRODUCT(double, long double)
    default:
      PRODUCT(int64_t, uint64_t)
  }
}
