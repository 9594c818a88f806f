/// binary, unary, copy and fill kernels against long double, over random dtypes, shapes and strides, in place and
/// apart.
#include "kernel_check.h"

static const struct dit_kernel_vtable *kernels;

/// Round to the dtype as the kernels must (float and double by the compiler, half types and integers by exact
/// decoding).
static long double round_to(int dtype, long double value) {
  struct sample one;
  struct dit_error err = {0};
  if (dtype == DIT_DTYPE_F32) {
    return (long double)(float)value;
  }
  if (dtype == DIT_DTYPE_F64) {
    return (long double)(double)value;
  }
  if (!is_floating(dtype)) {
    return value;
  }
  struct dit_tensor_view wide = {.data = &value, .numel = 1, .dtype = DIT_DTYPE_F64, .flags = DIT_TENSOR_ON_DEVICE};
  double as_double = (double)value;
  wide.data = &as_double;
  sample_init(&one, dtype, 0, NULL, LAYOUT_CONTIGUOUS);
  CHECK_OK(kernels->copy(NULL, &one.view, &wide, &err));  // itself checked by test_copy and test_kernel_math
  value = view_get(&one.view, 0);
  sample_destroy(&one);
  return value;
}

static uint64_t wrap_bits(int dtype, uint64_t bits) {
  int shift = 64 - 8 * (int)dit_dtype_get_size(dtype);
  bits <<= shift;
  return dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_UINT ? bits >> shift : (uint64_t)((int64_t)bits >> shift);
}

static long double expected_binary(enum dit_binary_kind kind, int compute, long double a, long double b, double alpha) {
  if (compute == DIT_DTYPE_BOOL) {
    return kind == DIT_BINARY_MUL ? a != 0 && b != 0 : a != 0 || (alpha != 0 && b != 0);
  }
  if (!is_floating(compute)) {
    uint64_t x = (uint64_t)(int64_t)a, y = (uint64_t)(int64_t)b, k = (uint64_t)(int64_t)alpha;
    uint64_t r = kind == DIT_BINARY_ADD ? x + k * y : kind == DIT_BINARY_SUB ? x - k * y : x * y;
    r = wrap_bits(compute, r);
    return dit_dtype_get_class(compute) == DIT_DTYPE_CLASS_UINT ? (long double)r : (long double)(int64_t)r;
  }
  switch (kind) {
    case DIT_BINARY_ADD:
      return a + (long double)alpha * b;
    case DIT_BINARY_SUB:
      return a - (long double)alpha * b;
    case DIT_BINARY_MUL:
      return a * b;
    default:
      return a / b;
  }
}

/// The dtype the operation happens in, as the operators choose it.
static int choose_compute(enum dit_binary_kind kind, int a, int b) {
  int common = dit_dtype_promote(a, b);
  return kind == DIT_BINARY_DIV && !is_floating(common) ? DIT_DTYPE_F32 : common;
}

static bool check_binary(const struct test_case *test) {
  struct sample out, a, b;
  struct dit_error err = {0};
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes);
  enum dit_binary_kind kind = (enum dit_binary_kind)random_below(DIT_BINARY_COUNT);
  int a_dtype = all_dtypes[random_below(10)], b_dtype = random_below(2) ? a_dtype : all_dtypes[random_below(10)];
  int compute = choose_compute(kind, a_dtype, b_dtype);
  if (kind == DIT_BINARY_SUB && compute == DIT_DTYPE_BOOL) {
    kind = DIT_BINARY_ADD;
  }
  int out_dtype = random_below(4) == 0 && is_floating(compute) ? float_dtypes[random_below(4)] : compute;
  int alpha = random_below(2) ? 1 : 2;
  struct dit_scalar factor = {DIT_SCALAR_INT, {.i = alpha}};
  bool in_place = random_below(3) == 0 && a_dtype == out_dtype;
  sample_init(&out, out_dtype, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_init(&a, a_dtype, ndim, sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&b, b_dtype, ndim, sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_fill(&a, true);
  sample_fill(&b, true);
  const struct dit_tensor_view *left = &a.view;
  long double *want = malloc(sizeof(long double) * (size_t)(out.view.numel + 1));
  double *tolerance = malloc(sizeof(double) * (size_t)(out.view.numel + 1));
  for (int64_t i = 0; i < out.view.numel; i++) {
    long double x = round_to(compute, view_get(&a.view, i)), y = round_to(compute, view_get(&b.view, i));
    want[i] = expected_binary(kind, compute, x, y, alpha);
    if (in_place) {
      view_set(&out.view, i, view_get(&a.view, i));
    }
    double size = (double)(fabsl(x) + fabsl(y) * 2 + (isfinite(want[i]) ? fabsl(want[i]) : 0));
    tolerance[i] = is_floating(compute) ? size * (2.1 * get_epsilon(compute) + 2.1 * get_epsilon(out_dtype)) : 0;
  }
  if (in_place) {
    left = &out.view;
  }
  CHECK_OK(kernels->binary(NULL, kind, &out.view, left, &b.view, factor, compute, &err));
  bool ok = true;
  for (int64_t i = 0; i < out.view.numel && ok; i++) {
    long double got = view_get(&out.view, i);
    if (isfinite(want[i]) && fabsl(want[i]) > 60000 && out_dtype == DIT_DTYPE_F16) {
      continue;  // may overflow
    }
    ok = is_close(got, want[i], tolerance[i]) || report("binary", i, got, want[i]);
  }
  free(want);
  free(tolerance);
  sample_destroy(&out);
  sample_destroy(&a);
  sample_destroy(&b);
  return ok;
}

static void test_binary(void) {
  run_cases("binary", check_binary, 3000);
}

/// A host number as operand is read at once and not rounded to the half type.
static void test_binary_number(void) {
  struct dit_error err = {0};
  struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}};
  const int64_t sizes[1] = {100};
  for (int d = 0; d < 4; d++) {
    struct sample out, a;
    const int64_t zero = 0;
    double number = 0.1;
    struct dit_tensor_view scalar = {
        .data = &number, .sizes = sizes, .strides = &zero, .numel = 100, .ndim = 1, .dtype = DIT_DTYPE_F64};
    sample_init(&out, float_dtypes[d], 1, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&a, float_dtypes[d], 1, sizes, LAYOUT_GAPS);
    sample_fill(&a, false);
    int compute = float_dtypes[d] == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
    CHECK_OK(kernels->binary(NULL, DIT_BINARY_MUL, &out.view, &a.view, &scalar, one, compute, &err));
    for (int64_t i = 0; i < 100; i++) {
      long double want = view_get(&a.view, i) * (compute == DIT_DTYPE_F64 ? (long double)0.1 : (long double)0.1f);
      CHECK(is_close(view_get(&out.view, i), want, 1.01 * get_epsilon(float_dtypes[d]) * (double)fabsl(want)));
    }
    sample_destroy(&out);
    sample_destroy(&a);
  }
}

/// An integer operand of a half computation is rounded to the half type first: 2049 -> 2048, + 1 -> 2049 -> 2048 (not
/// 2050).
static void test_binary_rounding(void) {
  struct dit_error err = {0};
  struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}};
  struct sample a, b, out;
  const int64_t sizes[1] = {5};
  sample_init(&a, DIT_DTYPE_I32, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&b, DIT_DTYPE_F16, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_F16, 1, sizes, LAYOUT_CONTIGUOUS);
  for (int64_t i = 0; i < 5; i++) {
    view_set(&a.view, i, 2049);
    view_set(&b.view, i, 1);
  }
  CHECK_OK(kernels->binary(NULL, DIT_BINARY_ADD, &out.view, &a.view, &b.view, one, DIT_DTYPE_F16, &err));
  CHECK(view_get(&out.view, 0) == 2048 && view_get(&out.view, 4) == 2048);
  sample_destroy(&a);
  sample_destroy(&b);
  sample_destroy(&out);
}

static void test_unsupported(void) {
  struct sample a;
  struct dit_error err = {0};
  struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}};
  const int64_t sizes[1] = {4};
  sample_init(&a, DIT_DTYPE_C64, 1, sizes, LAYOUT_CONTIGUOUS);
  CHECK(kernels->binary(NULL, DIT_BINARY_ADD, &a.view, &a.view, &a.view, one, DIT_DTYPE_C64, &err) ==
        DIT_ERR_UNSUPPORTED);
  CHECK(kernels->unary(NULL, DIT_UNARY_RELU, &a.view, &a.view, &err) == DIT_ERR_UNSUPPORTED);
  CHECK((unsigned char)a.buffer[GUARD] == GUARD_BYTE);
  sample_destroy(&a);
}

static long double expected_unary(enum dit_unary_kind kind, long double x) {
  switch (kind) {
    case DIT_UNARY_RELU:
      return x < 0 ? 0 : x;
    case DIT_UNARY_GELU:
      return 0.5L * x * (1 + erfl(x * 0.707106781186547524400844362104849039L));
    default:
      return 0.5L * x * (1 + tanhl(0.797884560802865355879892119868763737L * (x + 0.044715L * x * x * x)));
  }
}

static bool check_unary(const struct test_case *test) {
  struct sample out, in;
  struct dit_error err = {0};
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes);
  enum dit_unary_kind kind = (enum dit_unary_kind)random_below(DIT_UNARY_COUNT);
  int dtype = kind == DIT_UNARY_RELU ? all_dtypes[random_below(8)] : float_dtypes[random_below(4)];
  bool in_place = random_below(3) == 0;
  sample_init(&in, dtype, ndim, sizes, in_place ? LAYOUT_GAPS : (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&out, dtype, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_fill(&in, true);
  const struct dit_tensor_view *to = in_place ? &in.view : &out.view;
  long double *want = malloc(sizeof(long double) * (size_t)(in.view.numel + 1));
  for (int64_t i = 0; i < in.view.numel; i++) {
    want[i] = expected_unary(kind, view_get(&in.view, i));
  }
  CHECK_OK(kernels->unary(NULL, kind, to, &in.view, &err));
  bool ok = true;
  for (int64_t i = 0; i < in.view.numel && ok; i++) {
    double tolerance = kind == DIT_UNARY_RELU ? 0 : 4 * get_epsilon(dtype) * (1 + (double)fabsl(want[i]));
    long double got = view_get(to, i);
    ok = is_close(got, want[i], tolerance) || report("unary", i, got, want[i]);
  }
  free(want);
  sample_destroy(&out);
  sample_destroy(&in);
  return ok;
}

static void test_unary(void) {
  run_cases("unary", check_unary, 1500);
}

static bool check_copy(const struct test_case *test) {
  struct sample out, in;
  struct dit_error err = {0};
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes);
  int from = all_dtypes[random_below(10)], to = random_below(2) ? from : all_dtypes[random_below(10)];
  sample_init(&in, from, ndim, sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&out, to, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_fill(&in, is_floating(from) && is_floating(to));
  CHECK_OK(kernels->copy(NULL, &out.view, &in.view, &err));
  bool ok = true;
  for (int64_t i = 0; i < in.view.numel && ok; i++) {
    long double got = view_get(&out.view, i), want = view_get(&in.view, i);
    if (to == DIT_DTYPE_BOOL) {
      want = want != 0;
    } else if (!is_floating(to)) {
      int64_t whole = (int64_t)truncl(want);
      uint64_t bits = wrap_bits(to, (uint64_t)whole);
      want = to == DIT_DTYPE_U8 ? (long double)bits : (long double)(int64_t)bits;
    }
    double tolerance = is_floating(to) ? 1.001 * get_epsilon(to) * (isfinite(want) ? (double)fabsl(want) : 0) : 0;
    tolerance += to == DIT_DTYPE_F16 ? 0x1p-25 : 0;  // subnormal
    ok = is_close(got, want, tolerance) || report("copy", i, got, want);
  }
  sample_destroy(&out);
  sample_destroy(&in);
  return ok;
}

static void test_copy(void) {
  run_cases("copy", check_copy, 2000);
}

/// Two-dimensional transposes take their own path: all widths, odd sizes.
static void test_transpose(void) {
  static const int dtypes[] = {DIT_DTYPE_U8, DIT_DTYPE_I16, DIT_DTYPE_F32, DIT_DTYPE_I64};
  struct dit_error err = {0};
  for (int d = 0; d < 4; d++) {
    struct sample in, out;
    const int64_t sizes[3] = {3, 67, 131}, turned[3] = {sizes[0], sizes[2], sizes[1]};
    sample_init(&in, dtypes[d], 3, turned, LAYOUT_CONTIGUOUS);
    sample_init(&out, dtypes[d], 3, sizes, LAYOUT_CONTIGUOUS);
    sample_fill(&in, false);
    const int64_t strides[3] = {in.strides[0], in.strides[2], in.strides[1]};
    struct dit_tensor_view view = in.view;
    view.sizes = out.sizes;
    view.strides = strides;
    view.flags = DIT_TENSOR_ON_DEVICE;
    CHECK_OK(kernels->copy(NULL, &out.view, &view, &err));
    for (int64_t i = 0; i < view.numel; i++) {
      CHECK(view_get(&out.view, i) == view_get(&view, i));
    }
    sample_destroy(&in);
    sample_destroy(&out);
  }
}

static bool check_fill(const struct test_case *test) {
  struct sample out;
  struct dit_error err = {0};
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes), dtype = all_dtypes[random_below(10)];
  struct dit_scalar value = {DIT_SCALAR_DOUBLE, {.d = (double)random_below(50)}};
  if (random_below(2)) {
    value = (struct dit_scalar){DIT_SCALAR_INT, {.i = random_below(100)}};
  }
  sample_init(&out, dtype, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  CHECK_OK(kernels->fill(NULL, &out.view, value, &err));
  bool ok = true;
  for (int64_t i = 0; i < out.view.numel && ok; i++) {
    long double want = value.kind == DIT_SCALAR_INT ? (long double)value.v.i : (long double)value.v.d;
    want = dtype == DIT_DTYPE_BOOL ? want != 0 : want;
    long double got = view_get(&out.view, i);
    ok =
        is_close(got, want, is_floating(dtype) ? get_epsilon(dtype) * (double)want : 0) || report("fill", i, got, want);
  }
  sample_destroy(&out);
  return ok;
}

static void test_fill(void) {
  run_cases("fill", check_fill, 500);
}

int main(void) {
  kernels = load_kernels();
  random_init();
  RUN(test_binary);
  RUN(test_binary_number);
  RUN(test_binary_rounding);
  RUN(test_unsupported);
  RUN(test_unary);
  RUN(test_copy);
  RUN(test_transpose);
  RUN(test_fill);
  dit_runtime_shutdown();
  return 0;
}
