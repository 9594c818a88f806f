/// Statistics and the flag-only pass against a naive long double reference.
#include "numerics_check.h"

static struct tensor_case subject;

struct reference {
  int64_t finite, zero, nan, pos_inf, neg_inf;
  long double min, max, sum[2], abs_sum, square, spread;
  bool any_nan, any_inf;
};

/// Kahan: a plain sum of 2^18 terms would be less exact than what it judges.
static void add_exactly(long double *sum, long double *lost, long double x) {
  long double term = x - *lost, next = *sum + term;
  *lost = (next - *sum) - term;
  *sum = next;
}

static void reference_init(struct reference *r, const struct dit_tensor_view *view) {
  bool is_complex = dit_dtype_get_real(view->dtype) != view->dtype;
  long double lost[2] = {0, 0};
  memset(r, 0, sizeof(*r));
  r->min = INFINITY;
  r->max = -INFINITY;
  for (int64_t i = 0; i < view->numel; i++) {
    struct number x = decode(view, i);
    bool nan = isnan(x.re) || isnan(x.im), inf = isinf(x.re) || isinf(x.im);
    r->any_nan |= nan;
    r->any_inf |= inf;
    if (nan) {
      r->nan++;
      continue;
    }
    long double size = is_complex ? hypotl(x.re, x.im) : x.re;
    r->min = size < r->min ? size : r->min;
    r->max = size > r->max ? size : r->max;
    if (inf) {
      r->neg_inf += size < 0;
      r->pos_inf += size > 0;
      continue;
    }
    r->finite++;
    r->zero += size == 0;
    add_exactly(&r->sum[0], &lost[0], x.re);
    add_exactly(&r->sum[1], &lost[1], x.im);
    r->abs_sum += fabsl(x.re) + fabsl(x.im);
    r->square += x.re * x.re + x.im * x.im;
  }
  for (int64_t i = 0; i < view->numel; i++) {
    struct number x = decode(view, i);
    if (isfinite(x.re) && isfinite(x.im)) {
      long double re = x.re - r->sum[0] / r->finite, im = x.im - r->sum[1] / r->finite;
      r->spread += re * re + im * im;
    }
  }
}

#define WRONG_IF(condition, text) \
  if (condition) {                \
    case_print(&subject);         \
    return text;                  \
  }

static const char *check_counts(const struct dit_tensor_stats *s, const struct reference *r) {
  WRONG_IF(s->numel != subject.view.numel, "numel");
  WRONG_IF(s->finite != r->finite, "finite");
  WRONG_IF(s->zero != r->zero, "zero");
  WRONG_IF(s->nan != r->nan, "nan");
  WRONG_IF(s->pos_inf != r->pos_inf || s->neg_inf != r->neg_inf, "infinities");
  return NULL;
}

static const char *check_values(const struct dit_tensor_stats *s, const struct reference *r) {
  bool any = r->finite + r->pos_inf + r->neg_inf > 0, clean = r->finite == s->numel;
  long double largest = fmaxl(fabsl(r->min), fabsl(r->max)), n = r->finite;
  WRONG_IF(!is_near(s->min, any ? r->min : NAN, largest, 1e-15), "min");
  WRONG_IF(!is_near(s->max, any ? r->max : NAN, largest, 1e-15), "max");
  WRONG_IF(!is_near(s->abs_max, any ? largest : NAN, largest, 1e-15), "abs_max");
  WRONG_IF(!is_near(s->finite_mean, n > 0 ? r->sum[0] / n : NAN, n > 0 ? r->abs_sum / n : 0, 1e-14), "finite_mean");
  bool is_complex = dit_dtype_get_real(subject.view.dtype) != subject.view.dtype;
  long double imag = is_complex ? (n > 0 ? r->sum[1] / n : NAN) : 0;
  WRONG_IF(!is_near(s->finite_mean_imag, imag, n > 0 ? r->abs_sum / n : 0, 1e-14), "finite_mean_imag");
  // A spread far below the rounding of the values themselves cannot be seen: sqrt(n) * 2^-60 of the norm.
  long double deviation = n > 0 ? sqrtl(r->spread / n) : NAN, blur = n > 0 ? sqrtl(r->square / n) * 1e-5L : 0;
  WRONG_IF(!is_near(s->finite_std, deviation, deviation + blur, 1e-11), "finite_std");
  deviation = n > 1 ? sqrtl(r->spread / (n - 1)) : NAN;
  WRONG_IF(!is_near(s->finite_std_sample, deviation, deviation + blur, 1e-11), "finite_std_sample");
  WRONG_IF(!is_near(s->finite_norm, sqrtl(r->square), sqrtl(r->square), 1e-12), "finite_norm");
  WRONG_IF(clean && memcmp(&s->mean, &s->finite_mean, sizeof(double)) != 0, "mean");
  WRONG_IF(clean && memcmp(&s->std, &s->finite_std, sizeof(double)) != 0, "std");
  WRONG_IF(!clean && !isnan(s->std), "std with special values");
  double norm = r->nan ? NAN : clean ? s->finite_norm : INFINITY;
  WRONG_IF(!is_near(s->norm, norm, 0, 0), "norm");
  bool mixed = r->nan > 0 || is_complex || (r->pos_inf > 0 && r->neg_inf > 0);
  WRONG_IF(!clean && !is_near(s->mean, mixed ? NAN : r->pos_inf > 0 ? INFINITY : -INFINITY, 0, 0), "IEEE mean");
  return NULL;
}

static const char *check_one(uint64_t seed, int64_t limit) {
  struct dit_error err = {0};
  struct dit_tensor_stats first, again;
  struct reference r;
  case_init(&subject, seed, limit);
  reference_init(&r, &subject.view);
  memset(&first, 0xAB, sizeof(first));
  memset(&again, 0xCD, sizeof(again));
  CHECK_OK(dit_tensor_get_stats(&subject.view, &first, &err));
  static const int threads[] = {1, 2, 5};
  bool nan = false, inf = false;
  for (int i = 0; i < 3; i++) {
    dit_parallel_set_threads(threads[i]);
    CHECK_OK(dit_tensor_get_stats(&subject.view, &again, &err));
    WRONG_IF(memcmp(&first, &again, sizeof(first)) != 0, "other bits on other threads");
    CHECK_OK(dit_tensor_get_nonfinite(&subject.view, &nan, &inf, &err));
    WRONG_IF(nan != r.any_nan || inf != r.any_inf, "has_nan or has_inf");
  }
  dit_parallel_set_threads(0);
  const char *wrong = check_counts(&first, &r);
  return wrong ? wrong : check_values(&first, &r);
}

static void test_random_tensors(void) {
  run_cases(check_one, 1000, 600);
}

static struct dit_tensor_view make_view(void *data, int dtype, int64_t *shape, int64_t count) {
  shape[0] = count;
  shape[1] = 1;
  return (struct dit_tensor_view){
      .data = data, .sizes = shape, .strides = shape + 1, .numel = count, .ndim = 1, .dtype = (int16_t)dtype};
}

static void test_known_values(void) {
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2];
  float floats[] = {3, -4, 0, -0.0F};
  struct dit_tensor_view view = make_view(floats, DIT_DTYPE_F32, shape, 4);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.zero == 2 && s.min == -4 && s.max == 3 && s.abs_max == 4 && s.norm == 5 && s.mean == -0.25);
  CHECK(fabs(s.std * s.std * 4 - 24.75) < 1e-13 && fabs(s.std_sample * s.std_sample * 3 - 24.75) < 1e-13);
  double huge[] = {1e200, -1e200, 1e300};
  view = make_view(huge, DIT_DTYPE_F64, shape, 3);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(fabs(s.norm / 1e300 - 1) < 1e-15 && fabs(s.std / 1e300 - sqrt(2.0) / 3) < 1e-14);
  double tiny[] = {3e-310, -4e-310};
  view = make_view(tiny, DIT_DTYPE_F64, shape, 2);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(fabs(s.norm / 5e-310 - 1) < 1e-12 && fabs(s.std / 3.5e-310 - 1) < 1e-12);
  CHECK_OK(
      dit_tensor_get_stats(&(struct dit_tensor_view){.dtype = DIT_DTYPE_F32, .data = floats, .numel = 1}, &s, &err));
  CHECK(s.numel == 1 && s.mean == 3 && s.std == 0 && isnan(s.std_sample));
  view = make_view(NULL, DIT_DTYPE_BF16, shape, 0);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.numel == 0 && isnan(s.min) && isnan(s.mean) && isnan(s.std) && s.norm == 0);
}

static void test_int64_is_exact(void) {
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2], signs[] = {INT64_MAX, INT64_MIN, INT64_MAX - 1, INT64_MIN + 3};
  struct dit_tensor_view view = make_view(signs, DIT_DTYPE_I64, shape, 4);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.mean == 0.0 && s.min_int == INT64_MIN && s.max_int == INT64_MAX);
  signs[3] = INT64_MIN + 7;
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.mean == 1.0);
  uint64_t stamps[3000];
  for (int i = 0; i < 3000; i++) {
    stamps[i] = UINT64_MAX - 10 + (uint64_t)(i & 1) * 2;
  }
  view = make_view(stamps, DIT_DTYPE_U64, shape, 3000);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK((uint64_t)s.max_int == UINT64_MAX - 8 && (uint64_t)s.min_int == UINT64_MAX - 10);
  CHECK(s.std == 1.0 && s.min == 0x1p64);
}

/// Ranges on both sides of where the kernels change: the mean is exact, the deviation as good as double's.
static void test_int64_ranges(void) {
  enum { COUNT = 2500 };
  static int64_t values[COUNT];
  static const int bits[] = {1, 25, 26, 27, 31, 32, 33, 51, 52, 53, 61};
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2];
  for (size_t k = 0; k < sizeof(bits) / sizeof(bits[0]); k++) {
    for (int edge = -1; edge <= 1; edge++) {
      for (int is_signed = 0; is_signed < 2; is_signed++) {
        int64_t base = is_signed ? -(INT64_C(1) << 60) : INT64_C(3) << 60, step = (INT64_C(1) << bits[k]) + edge;
        for (int i = 0; i < COUNT; i++) {
          values[i] = base + (i & 1) * step;
        }
        struct dit_tensor_view view = make_view(values, is_signed ? DIT_DTYPE_I64 : DIT_DTYPE_U64, shape, COUNT);
        CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
        CHECK(s.min_int == base && s.max_int == base + step && s.zero == 0);
        CHECK(is_near(s.mean, (long double)base + step * 0.5L, fabsl((long double)base), 0x1p-53));
        CHECK(is_near(s.std, step * 0.5L, step, 1e-13));
      }
    }
  }
}

/// All the values of the bytes, and a spread far below them.
static void test_bytes_are_exact(void) {
  enum { COUNT = 3000 };
  static uint8_t bytes[COUNT];
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2];
  memset(bytes, 255, sizeof(bytes));
  bytes[COUNT - 1] = 254;
  struct dit_tensor_view view = make_view(bytes, DIT_DTYPE_U8, shape, COUNT);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  long double spread = 1 - 1.0L / COUNT;
  CHECK(s.min == 254 && s.max == 255 && s.zero == 0 && is_near(s.std, sqrtl(spread / COUNT), 1, 1e-15));
  CHECK(is_near(s.norm, sqrtl(255.0L * 255 * (COUNT - 1) + 254.0L * 254), 1, 1e-12));
  view.dtype = DIT_DTYPE_I8;
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.min == -2 && s.max == -1 && is_near(s.std, sqrtl(spread / COUNT), 1, 1e-15));
  view.dtype = DIT_DTYPE_BOOL;
  bytes[7] = bytes[2000] = 0;
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.min == 0 && s.max == 1 && s.zero == 2 && is_near(s.mean, (COUNT - 2) / (long double)COUNT, 1, 1e-15));
}

/// Chunks far from 0 beside chunks around it, in the types that are summed as they are.
static void test_short_floats_with_large_mean(void) {
  enum { COUNT = 3 * 1024 + 5 };
  static uint16_t halves[COUNT];
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2];
  for (int i = 0; i < COUNT; i++) {
    halves[i] = dit_float_to_f16(i < 1024 ? 2048.0F + 2 * (float)(i & 1) : i < 2048 ? (float)(i & 1) : -1.0F);
  }
  struct dit_tensor_view view = make_view(halves, DIT_DTYPE_F16, shape, 1024);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.mean == 2049 && s.std == 1 && s.min == 2048 && s.max == 2050);
  view = make_view(halves, DIT_DTYPE_F16, shape, COUNT);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  long double sum = 1024 * 2049.0L + 512 - 1029, square = 512 * (2048.0L * 2048 + 2050.0L * 2050) + 512 + 1029;
  CHECK(is_near(s.mean, sum / COUNT, 2050, 1e-15) && is_near(s.norm, sqrtl(square), sqrtl(square), 1e-15));
  CHECK(is_near(s.std, sqrtl(square / COUNT - sum / COUNT * (sum / COUNT)), 2050, 1e-14) && s.zero == 512);
}

static void test_large_mean_keeps_its_spread(void) {
  static float values[100000];
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2];
  for (int i = 0; i < 100000; i++) {
    values[i] = 8388608.0F + (float)(i & 1);
  }
  struct dit_tensor_view view = make_view(values, DIT_DTYPE_F32, shape, 100000);
  CHECK_OK(dit_tensor_get_stats(&view, &s, &err));
  CHECK(s.mean == 8388608.5 && s.std == 0.5);
}

static void test_refusals(void) {
  struct dit_error err = {0};
  struct dit_tensor_stats s;
  int64_t shape[2] = {4, 1};
  bool nan, inf;
  struct dit_tensor_view view = make_view(shape, DIT_DTYPE_QI8, shape, 4);
  CHECK(dit_tensor_get_stats(&view, &s, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "qint8");
  CHECK(dit_tensor_get_nonfinite(&view, &nan, &inf, &err) == DIT_ERR_UNSUPPORTED);
  view.dtype = 99;
  CHECK(dit_tensor_get_stats(&view, &s, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "99");
  view.dtype = DIT_DTYPE_F32;
  view.numel = 5;
  CHECK(dit_tensor_get_stats(&view, &s, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "5 elements");
  view.numel = 4;
  view.data = NULL;
  CHECK(dit_tensor_get_stats(&view, &s, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "NULL");
  view.ndim = DIT_MAX_DIMS + 1;
  CHECK(dit_tensor_get_stats(&view, &s, NULL) == DIT_ERR_UNSUPPORTED);
}

int main(void) {
  RUN(test_known_values);
  RUN(test_int64_is_exact);
  RUN(test_int64_ranges);
  RUN(test_bytes_are_exact);
  RUN(test_short_floats_with_large_mean);
  RUN(test_large_mean_keeps_its_spread);
  RUN(test_refusals);
  RUN(test_random_tensors);
  return 0;
}
