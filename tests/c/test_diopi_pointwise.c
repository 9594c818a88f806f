/// The elementwise engine behind the host's operators: random shapes, layouts and dtypes against the definition, in
/// place and apart, the same results on a side stream and on any number of threads, arguments that may go away once a
/// call has returned.
#include "diopi_check.h"

enum kind { KIND_ADD, KIND_SUB, KIND_MUL, KIND_DIV, KIND_COUNT };

static void call_binary(enum kind kind, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                        const struct dit_tensor_view *b, int alpha) {
  const diopiScalar_t factor = make_int(alpha);
  switch (kind) {
    case KIND_ADD:
      CALL(diopiAdd, wrap(out), wrap(a), wrap(b), &factor);
      break;
    case KIND_SUB:
      CALL(diopiSub, wrap(out), wrap(a), wrap(b), &factor);
      break;
    case KIND_MUL:
      CALL(diopiMul, wrap(out), wrap(a), wrap(b));
      break;
    default:
      CALL(diopiDiv, wrap(out), wrap(a), wrap(b), RoundModeNone);
  }
}

/// Round to the dtype as the operators must (float and double by the compiler, half types and integers by exact
/// decoding).
static long double round_to(int dtype, long double value) {
  struct sample one;
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
  CALL(diopiCopyInp, wrap(&wide), wrap(&one.view));  // itself checked by test_kernel_copy and test_kernel_math
  value = view_get(&one.view, 0);
  sample_destroy(&one);
  return value;
}

static uint64_t wrap_bits(int dtype, uint64_t bits) {
  int shift = 64 - 8 * (int)dit_dtype_get_size(dtype);
  bits <<= shift;
  return dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_UINT ? bits >> shift : (uint64_t)((int64_t)bits >> shift);
}

static long double expected_binary(enum kind kind, int compute, long double a, long double b, double alpha) {
  if (compute == DIT_DTYPE_BOOL) {
    return kind == KIND_MUL ? a != 0 && b != 0 : a != 0 || (alpha != 0 && b != 0);
  }
  if (!is_floating(compute)) {
    uint64_t x = (uint64_t)(int64_t)a, y = (uint64_t)(int64_t)b, k = (uint64_t)(int64_t)alpha;
    uint64_t r = kind == KIND_ADD ? x + k * y : kind == KIND_SUB ? x - k * y : x * y;
    r = wrap_bits(compute, r);
    return dit_dtype_get_class(compute) == DIT_DTYPE_CLASS_UINT ? (long double)r : (long double)(int64_t)r;
  }
  switch (kind) {
    case KIND_ADD:
      return a + (long double)alpha * b;
    case KIND_SUB:
      return a - (long double)alpha * b;
    case KIND_MUL:
      return a * b;
    default:
      return a / b;
  }
}

/// The dtype the operation happens in, as the operators choose it.
static int choose_compute(enum kind kind, int a, int b) {
  int common = dit_dtype_promote(a, b);
  return kind == KIND_DIV && !is_floating(common) ? DIT_DTYPE_F32 : common;
}

static bool check_binary(const struct test_case *test) {
  struct sample out, a, b;
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes);
  enum kind kind = (enum kind)random_below(KIND_COUNT);
  int a_dtype = all_dtypes[random_below(10)], b_dtype = random_below(2) ? a_dtype : all_dtypes[random_below(10)];
  int compute = choose_compute(kind, a_dtype, b_dtype);
  if (kind == KIND_SUB && (a_dtype == DIT_DTYPE_BOOL || b_dtype == DIT_DTYPE_BOOL)) {
    kind = KIND_ADD;  // there is no such subtraction
  }
  int out_dtype = random_below(4) == 0 && is_floating(compute) ? float_dtypes[random_below(4)] : compute;
  int alpha = random_below(2) ? 1 : 2;
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
  call_binary(kind, &out.view, left, &b.view, alpha);
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

/// A number as operand is not rounded to the half type.
static void test_binary_number(void) {
  const int64_t sizes[1] = {100};
  const diopiScalar_t tenth = make_real(0.1);
  for (int d = 0; d < 4; d++) {
    struct sample out, a;
    sample_init(&out, float_dtypes[d], 1, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&a, float_dtypes[d], 1, sizes, LAYOUT_GAPS);
    sample_fill(&a, false);
    int compute = float_dtypes[d] == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
    CALL(diopiMulScalar, wrap(&out.view), wrap(&a.view), &tenth);
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
  struct sample a, b, out;
  const int64_t sizes[1] = {5};
  sample_init(&a, DIT_DTYPE_I32, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&b, DIT_DTYPE_F16, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_F16, 1, sizes, LAYOUT_CONTIGUOUS);
  for (int64_t i = 0; i < 5; i++) {
    view_set(&a.view, i, 2049);
    view_set(&b.view, i, 1);
  }
  call_binary(KIND_ADD, &out.view, &a.view, &b.view, 1);
  CHECK(view_get(&out.view, 0) == 2048 && view_get(&out.view, 4) == 2048);
  sample_destroy(&a);
  sample_destroy(&b);
  sample_destroy(&out);
}

enum unary_kind { UNARY_RELU, UNARY_GELU, UNARY_GELU_TANH, UNARY_COUNT };

static long double expected_unary(enum unary_kind kind, long double x) {
  switch (kind) {
    case UNARY_RELU:
      return x < 0 ? 0 : x;
    case UNARY_GELU:
      return 0.5L * x * (1 + erfl(x * 0.707106781186547524400844362104849039L));
    default:
      return 0.5L * x * (1 + tanhl(0.797884560802865355879892119868763737L * (x + 0.044715L * x * x * x)));
  }
}

static bool check_unary(const struct test_case *test) {
  struct sample out, in;
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes);
  enum unary_kind kind = (enum unary_kind)random_below(UNARY_COUNT);
  int dtype = kind == UNARY_RELU ? all_dtypes[random_below(8)] : float_dtypes[random_below(4)];
  bool in_place = random_below(3) == 0;
  sample_init(&in, dtype, ndim, sizes, in_place ? LAYOUT_GAPS : (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&out, dtype, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_fill(&in, true);
  const struct dit_tensor_view *to = in_place ? &in.view : &out.view;
  long double *want = malloc(sizeof(long double) * (size_t)(in.view.numel + 1));
  for (int64_t i = 0; i < in.view.numel; i++) {
    want[i] = expected_unary(kind, view_get(&in.view, i));
  }
  if (kind == UNARY_RELU) {
    CALL(diopiRelu, wrap(to), wrap(&in.view));
  } else {
    CALL(diopiGelu, wrap(to), wrap(&in.view), kind == UNARY_GELU ? "none" : "tanh");
  }
  bool ok = true;
  for (int64_t i = 0; i < in.view.numel && ok; i++) {
    double tolerance = kind == UNARY_RELU ? 0 : 4 * get_epsilon(dtype) * (1 + (double)fabsl(want[i]));
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

static bool check_fill(const struct test_case *test) {
  struct sample out;
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes), dtype = all_dtypes[random_below(10)];
  const bool whole = random_below(2);
  const int64_t number = random_below(whole ? 100 : 50);
  const diopiScalar_t value = whole ? make_int(number) : make_real((double)number);
  sample_init(&out, dtype, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  CALL(diopiFill, wrap(&out.view), &value);
  bool ok = true;
  for (int64_t i = 0; i < out.view.numel && ok; i++) {
    const long double want = dtype == DIT_DTYPE_BOOL ? number != 0 : (long double)number;
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

/// Sizes that meet each path: one run, blocks, tiles of short runs, a number that repeats, several grains.
static void choose_sizes(int kind, int64_t *sizes) {
  static const int64_t table[][3] = {{1, 1, 7}, {3, 40, 700}, {50, 9, 3}, {2, 3, 1100}, {90, 20, 40}, {1, 1, 1}};
  for (int i = 0; i < 3; i++) {
    sizes[i] = table[kind][i] > 1 ? table[kind][i] - random_below(2) : 1;
  }
}

/// The same bits on one thread, on four, and on a side stream whose caller has overwritten everything but the data.
static void test_streams_and_threads(void) {
  struct dit_error err = {0};
  const diopiScalar_t one = make_int(1);
  int64_t stream;
  void *raw = acquire_stream(&stream);
  for (int round = 0; round < 60; round++) {
    int64_t sizes[3];
    struct sample out[3], a, b;
    choose_sizes(round % 6, sizes);
    sample_init(&a, DIT_DTYPE_F32, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
    sample_init(&b, DIT_DTYPE_F16, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
    sample_fill(&a, true);
    sample_fill(&b, true);
    for (int i = 0; i < 3; i++) {
      sample_init(&out[i], DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
      dit_parallel_set_threads(i == 0 ? 1 : 4);
      struct diopiTensor handles[3];
      dit_diopi_tensor_init(&handles[0], &out[i].view);
      dit_diopi_tensor_init(&handles[1], &a.view);
      dit_diopi_tensor_init(&handles[2], &b.view);
      CALL_ON(i == 2 ? raw : NULL, diopiAdd, &handles[0], &handles[1], &handles[2], &one);
      memset(handles, 0x5A, sizeof handles);
    }
    CHECK_OK(dit_stream_synchronize(0, stream, &err));
    const size_t bytes = (size_t)out[0].view.numel * sizeof(float);
    CHECK(memcmp(out[0].view.data, out[1].view.data, bytes) == 0);
    CHECK(memcmp(out[0].view.data, out[2].view.data, bytes) == 0);
    for (int i = 0; i < 3; i++) {
      sample_destroy(&out[i]);
    }
    sample_destroy(&a);
    sample_destroy(&b);
  }
  dit_parallel_set_threads(0);
}

/// Numbers that a stream's task reads when it runs, not when it is queued: the scale found by the call before.
static void test_scaling_in_order(void) {
  struct dit_error err = {0};
  struct sample grad, found, scale;
  const int64_t sizes[1] = {1000}, single[1] = {1};
  int64_t stream;
  void *raw = acquire_stream(&stream);
  sample_init(&grad, DIT_DTYPE_F16, 1, sizes, LAYOUT_GAPS);
  sample_init(&found, DIT_DTYPE_F32, 1, single, LAYOUT_CONTIGUOUS);
  sample_init(&scale, DIT_DTYPE_F32, 1, single, LAYOUT_CONTIGUOUS);
  const diopiScalar_t half = make_real(0.5), six = make_int(6), zero = make_int(0);
  diopiTensorHandle_t list[1] = {wrap(&grad.view)};
  CALL_ON(raw, diopiFill, list[0], &six);
  CALL_ON(raw, diopiFill, wrap(&found.view), &zero);
  CALL_ON(raw, diopiFill, wrap(&scale.view), &half);
  CALL_ON(raw, diopiAmpForeachNonFiniteCheckAndUnscaleInp, list, 1, wrap(&found.view), wrap(&scale.view));
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  for (int64_t i = 0; i < 1000; i++) {
    CHECK(view_get(&grad.view, i) == 3);
  }
  CHECK(view_get(&found.view, 0) == 0);
  sample_destroy(&grad);
  sample_destroy(&found);
  sample_destroy(&scale);
}

int main(void) {
  load_operators();
  random_init();
  RUN(test_binary);
  RUN(test_binary_number);
  RUN(test_binary_rounding);
  RUN(test_unary);
  RUN(test_fill);
  RUN(test_streams_and_threads);
  RUN(test_scaling_in_order);
  dit_runtime_shutdown();
  return 0;
}
