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
  RUN(test_large_mean_keeps_its_spread);
  RUN(test_refusals);
  RUN(test_random_tensors);
  return 0;
}
