/// The arithmetic of the auto verdict against a naive long double reference: every type, shape and stride, special
/// values, numbers of threads.
#include "dit/judge.h"
#include "numerics_check.h"

static struct tensor_case left, right;

#define WRONG_IF(condition, text) \
  if (condition) {                \
    case_print(&left);            \
    case_print(&right);           \
    return text;                  \
  }

static long double get_size(struct number x) {
  return x.im == 0 ? fabsl(x.re) : hypotl(x.re, x.im);
}

static bool is_nan(struct number x) {
  return isnan(x.re) || isnan(x.im);
}

static bool is_finite(struct number x) {
  return isfinite(x.re) && isfinite(x.im);
}

static bool has_complex(void) {
  return dit_dtype_get_real(left.view.dtype) != left.view.dtype ||
         dit_dtype_get_real(right.view.dtype) != right.view.dtype;
}

static bool is_same(struct number x, struct number r) {
  bool infinite = has_complex() && !is_finite(x) && !is_finite(r) && !is_nan(x) && !is_nan(r);
  return (x.re == r.re && x.im == r.im) || (is_nan(x) && is_nan(r)) || infinite;
}

static long double get_allowed(const struct dit_judge_rule *rule, long double size) {
  long double line = rule->relative * size + rule->absolute, cap = fmaxl(rule->cap, rule->cap_relative * size);
  return (line < cap ? line : cap) + rule->floor;
}

static struct number subtract(struct number a, struct number b) {
  return (struct number){a.re - b.re, a.im - b.im};
}

/// Is an infinite (or NaN, for complex) candidate an overflow of the reference?
static bool may_overflow(const struct dit_judge_rule *rule, struct number x, struct number r) {
  if (!isfinite(rule->limit) || !is_finite(r) || get_size(r) + get_allowed(rule, get_size(r)) < rule->limit) {
    return false;
  }
  return has_complex() || (isinf(x.re) && signbit(x.re) == signbit(r.re));
}

static const char *check_compare(const struct dit_judge_rule *rule, const struct dit_judge_result *got) {
  int64_t wrong = 0, nonfinite = 0, unequal = 0, first = -1;
  long double margin = 0;
  for (int64_t i = 0; i < left.view.numel; i++) {
    struct number x = decode(&left.view, i), r = decode(&right.view, i);
    if (is_same(x, r)) {
      continue;
    }
    unequal++;
    if (!is_finite(x) || !is_finite(r)) {
      bool bad = !may_overflow(rule, x, r);
      first = bad && first < 0 ? i : first;
      nonfinite += bad;
      wrong += bad;
      continue;
    }
    long double error = get_size(subtract(x, r)), allowed = get_allowed(rule, get_size(r));
    wrong += error > allowed;
    margin = error > 0 && error / allowed > margin ? error / allowed : margin;
  }
  WRONG_IF(got->numel != left.view.numel || got->unequal != unequal, "unequal");
  WRONG_IF(got->nonfinite != nonfinite, "nonfinite");
  WRONG_IF(got->wrong != wrong, "wrong");
  WRONG_IF(!is_near(got->margin, margin, margin, 1e-12), "margin");
  WRONG_IF((got->index < 0) != (nonfinite == 0 && margin == 0), "index of nothing");
  WRONG_IF(nonfinite > 0 && got->index != first, "index of the first NaN or infinity");
  if (nonfinite == 0 && got->index >= 0) {
    struct number x = decode(&left.view, got->index), r = decode(&right.view, got->index);
    long double error = get_size(subtract(x, r)), allowed = get_allowed(rule, get_size(r));
    WRONG_IF(!is_near((double)(error / allowed), margin, margin, 1e-12), "index of the largest margin");
    WRONG_IF(got->value != (double)x.re || got->reference != (double)r.re, "value or reference");
    WRONG_IF(!is_near(got->error, error, error, 1e-12) || !is_near(got->allowed, allowed, allowed, 1e-12), "error");
  }
  return NULL;
}

static const char *check_measure(double relative, double floor, const struct dit_judge_error *got) {
  struct dit_judge_error want = {.numel = left.view.numel};
  long double largest = 0, ratio = 0, residual = 0, scale = 0, reach = 0;
  for (int64_t i = 0; i < left.view.numel; i++) {
    struct number x = decode(&left.view, i), r = decode(&right.view, i);
    want.unequal += !is_same(x, r);
    if (!is_finite(x) || !is_finite(r)) {
      continue;
    }
    long double error = get_size(subtract(x, r)), size = get_size(r), rest = error - relative * size - floor;
    want.finite++;
    largest = fmaxl(largest, error);
    scale = fmaxl(scale, size);
    ratio = error > floor ? fmaxl(ratio, error / size) : ratio;
    residual = fmaxl(residual, rest);
    reach = fmaxl(reach, error + relative * size);
  }
  WRONG_IF(got->numel != want.numel || got->finite != want.finite || got->unequal != want.unequal, "counts");
  WRONG_IF(!is_near(got->largest, largest, largest, 1e-12), "largest");
  WRONG_IF(!is_near(got->scale, scale, scale, 1e-12), "scale");
  WRONG_IF(!is_near(got->ratio, ratio, ratio, 1e-9), "ratio");
  WRONG_IF(!is_near(got->residual, residual, reach, 1e-12), "residual");
  return NULL;
}

static const char *check_relative(double difference, double relative) {
  bool nan = false, infinite = false;
  long double most = 0, ratio = 0;
  for (int64_t i = 0; i < left.view.numel; i++) {
    struct number a = decode(&left.view, i), b = decode(&right.view, i);
    if ((a.re == b.re && a.im == b.im) || (is_nan(a) && is_nan(b))) {
      continue;
    }
    nan |= is_nan(a) || is_nan(b);
    infinite |= !is_finite(a) || !is_finite(b);
    if (is_finite(a) && is_finite(b)) {
      long double error = get_size(subtract(a, b));
      most = fmaxl(most, error);
      ratio = fmaxl(ratio, error / (get_size(a) + 1e-6L));
    }
  }
  WRONG_IF(!is_near(difference, nan ? NAN : infinite ? INFINITY : most, most, 1e-12), "difference");
  WRONG_IF(!is_near(relative, nan ? NAN : infinite ? INFINITY : ratio, ratio, 1e-12), "relative difference");
  return NULL;
}

/// Another tensor of the same shape: often the same values with small errors.
static void make_right(void) {
  right.seed = left.seed ^ 77;
  right.counter = 0;
  right.view = (struct dit_tensor_view){.data = right.bytes, .sizes = right.sizes, .strides = right.strides};
  right.view.ndim = left.view.ndim;
  right.view.numel = left.view.numel;
  memcpy(right.sizes, left.sizes, sizeof(left.sizes));
  int dtype = case_below(&right, 2) ? left.view.dtype : case_dtypes[case_below(&right, CASE_DTYPES)];
  right.view.dtype = (int16_t)dtype;
  case_set_strides(&right, (int64_t)dit_dtype_get_size(dtype));
  case_fill(&right);
  int real = dit_dtype_get_real(dtype), parts = real == dtype ? 1 : 2;
  int64_t width = (int64_t)dit_dtype_get_size(real);
  bool near = case_below(&right, 3) > 0;
  for (int64_t i = 0; near && i < right.view.numel; i++) {
    struct number x = decode(&left.view, i);
    for (int part = 0; part < parts; part++) {
      double value = (double)(part ? x.im : x.re), noise = (double)case_below(&right, 1000) * 1e-7;
      int64_t at = case_get(&right.view, i) - right.bytes + part * width;
      case_store(real, right.bytes + at, case_below(&right, 4) ? value : value * (1 + noise), case_next(&right) >> 58);
    }
  }
}

static struct dit_judge_rule make_rule(void) {
  static const struct dit_judge_rule rules[] = {
      {.limit = INFINITY},
      {.relative = 1.1e-5, .absolute = 1.3e-7, .cap = INFINITY, .floor = 1.7e-38, .limit = 60000},
      {.relative = 3.1e-5,
       .absolute = 1.3e-3,
       .cap = 2.3e-4,
       .cap_relative = 1.9e-6,
       .floor = 1e-12,
       .limit = INFINITY},
      {.relative = 0.37, .absolute = 0.013, .cap = INFINITY, .limit = 3.3},
      {.cap = INFINITY, .absolute = INFINITY, .limit = INFINITY},
  };
  return rules[case_below(&right, 5)];
}

static const char *check_one(uint64_t seed, int64_t limit) {
  static const int threads[] = {1, 2, 5};
  struct dit_error err = {0};
  struct dit_judge_result first, again;
  struct dit_judge_error error, error_again;
  double difference, relative, difference_again, relative_again;
  case_init(&left, seed, limit);
  make_right();
  struct dit_judge_rule rule = make_rule();
  double factor = case_below(&right, 2) ? 1.7e-5 : 0, floor = case_below(&right, 2) ? 1.1e-30 : 0;
  memset(&first, 0, sizeof(first));
  memset(&error, 0, sizeof(error));
  CHECK_OK(dit_judge_compare(&left.view, &right.view, &rule, &first, &err));
  CHECK_OK(dit_judge_measure(&left.view, &right.view, factor, floor, &error, &err));
  CHECK_OK(dit_judge_relative(&left.view, &right.view, 1e-6, &difference, &relative, &err));
  for (int i = 0; i < 3; i++) {
    memset(&again, 0, sizeof(again));
    memset(&error_again, 0, sizeof(error_again));
    dit_parallel_set_threads(threads[i]);
    CHECK_OK(dit_judge_compare(&left.view, &right.view, &rule, &again, &err));
    CHECK_OK(dit_judge_measure(&left.view, &right.view, factor, floor, &error_again, &err));
    CHECK_OK(dit_judge_relative(&left.view, &right.view, 1e-6, &difference_again, &relative_again, &err));
    WRONG_IF(memcmp(&first, &again, sizeof(first)) != 0, "another verdict on other threads");
    WRONG_IF(memcmp(&error, &error_again, sizeof(error)) != 0, "another error on other threads");
    WRONG_IF(memcmp(&difference, &difference_again, 8) != 0 || memcmp(&relative, &relative_again, 8) != 0,
             "another relative difference on other threads");
  }
  dit_parallel_set_threads(0);
  const char *wrong = check_compare(&rule, &first);
  wrong = wrong ? wrong : check_measure(factor, floor, &error);
  return wrong ? wrong : check_relative(difference, relative);
}

static void test_random_tensors(void) {
  run_cases(check_one, 4000, 120);
}

static struct dit_tensor_view make_view(void *data, int dtype, int64_t *shape, int64_t count) {
  shape[0] = count;
  shape[1] = 1;
  return (struct dit_tensor_view){
      .data = data, .sizes = shape, .strides = shape + 1, .numel = count, .ndim = 1, .dtype = (int16_t)dtype};
}

/// A single wrong element at every place of a chunk and of its padded end is found there.
static void test_one_wrong_element_is_found_anywhere(void) {
  enum { COUNT = 2055 };
  static float x[COUNT];
  static double r[COUNT];
  struct dit_error err = {0};
  int64_t shape[2];
  const struct dit_judge_rule rule = {.relative = 1e-6, .absolute = 1e-9, .cap = INFINITY, .limit = INFINITY};
  for (int64_t count = 1; count <= COUNT; count += count < 40 ? 1 : 403) {
    struct dit_tensor_view a = make_view(x, DIT_DTYPE_F32, shape, count), b = a;
    b.data = r;
    b.dtype = DIT_DTYPE_F64;
    for (int i = 0; i < COUNT; i++) {
      x[i] = (float)(i + 1) * 0.37F;
      r[i] = x[i];
    }
    for (int64_t at = 0; at < count; at += at < 9 || at > count - 9 ? 1 : 61) {
      float kept = x[at];
      struct dit_judge_result got;
      x[at] += 0.001F * kept;
      CHECK_OK(dit_judge_compare(&a, &b, &rule, &got, &err));
      CHECK(got.wrong == 1 && got.index == at && got.value == x[at] && got.reference == r[at] && got.unequal == 1);
      x[at] = NAN;
      CHECK_OK(dit_judge_compare(&a, &b, &rule, &got, &err));
      CHECK(got.wrong == 1 && got.nonfinite == 1 && got.index == at && isinf(got.error));
      x[at] = kept;
    }
  }
}

/// The cap: an error above it is wrong however generous the line is, unless it is within cap_relative.
static void test_the_cap(void) {
  struct dit_error err = {0};
  struct dit_judge_result got;
  int64_t shape[2];
  double x[4] = {100.5, 1.5, 1000.5, -1.5}, r[4] = {100, 1, 1000, -1};
  struct dit_tensor_view a = make_view(x, DIT_DTYPE_F64, shape, 4), b = a;
  b.data = r;
  struct dit_judge_rule rule = {.relative = 1, .absolute = 1, .cap = 0.4, .cap_relative = 1e-3, .limit = INFINITY};
  CHECK_OK(dit_judge_compare(&a, &b, &rule, &got, &err));
  CHECK(got.wrong == 3 && got.index == 0 && got.allowed == 0.4);  // 1e-3 * 1000 is more than 0.5
  rule.cap = 0.6;
  CHECK_OK(dit_judge_compare(&a, &b, &rule, &got, &err));
  CHECK(got.wrong == 0 && got.margin > 0.8 && got.margin < 0.84);
}

static void test_overflow_rules(void) {
  struct dit_error err = {0};
  struct dit_judge_result got;
  int64_t shape[2];
  double x[6] = {INFINITY, -INFINITY, INFINITY, INFINITY, 65504, NAN},
         r[6] = {65530, -70000, 65000, -70000, 65510, 1e9};
  struct dit_tensor_view a = make_view(x, DIT_DTYPE_F64, shape, 6), b = a;
  b.data = r;
  const struct dit_judge_rule rule = {.relative = 0x1p-9, .cap = INFINITY, .limit = 65504};
  CHECK_OK(dit_judge_compare(&a, &b, &rule, &got, &err));
  // 65000 * (1 + 2^-9) is still below the limit; -70000 is not +Inf; a NaN is no overflow.
  CHECK(got.nonfinite == 3 && got.wrong == 3 && got.index == 2);
}

static void test_types(void) {
  struct dit_judge_type type;
  struct dit_error err = {0};
  CHECK_OK(dit_judge_type_get(DIT_DTYPE_F32, &type, &err));
  CHECK(1.0F + (float)type.roundoff == 1.0F && 1.0F + (float)(2 * type.roundoff) > 1.0F);
  CHECK_OK(dit_judge_type_get(DIT_DTYPE_C64, &type, &err));
  CHECK(type.roundoff == 0x1p-24);
  static const int half[] = {DIT_DTYPE_F16, DIT_DTYPE_BF16};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(dit_judge_type_get(half[i], &type, &err));
    for (int k = 0; k < 2; k++) {  // half a step rounds to even, a little more does not
      double value = 1 + type.roundoff * (k ? 1.01 : 0.99);
      float got =
          i ? dit_float_from_bf16(dit_float_to_bf16((float)value)) : dit_float_from_f16(dit_float_to_f16((float)value));
      CHECK(k ? got == 1 + 2 * type.roundoff : got == 1);
    }
    float most = i ? dit_float_from_bf16(0x7F7F) : dit_float_from_f16(0x7BFF);
    CHECK(type.limit == most);
  }
  static const int none[] = {DIT_DTYPE_I64, DIT_DTYPE_BOOL, DIT_DTYPE_QI8, DIT_DTYPE_F4_E2M1FN_X2, -1, 99};
  for (int i = 0; i < 6; i++) {
    CHECK(dit_judge_type_get(none[i], &type, &err) == DIT_ERR_UNSUPPORTED);
  }
}

static void test_odd(void) {
  struct dit_error err = {0};
  int64_t shape[2], odd;
  float x[6] = {1, 1 + 0x1p-23F, 3, 0.1F, -0.2F, 0.3F};
  struct dit_tensor_view a = make_view(x, DIT_DTYPE_F32, shape, 6);
  CHECK_OK(dit_judge_count_odd(&a, &odd, &err));
  int64_t want = 0;
  for (int i = 0; i < 6; i++) {
    want += dit_float_get_bits(x[i]) & 1;
  }
  CHECK(odd == want && want >= 2 && want < 6);
  a.dtype = DIT_DTYPE_C64;
  shape[0] = a.numel = 3;
  CHECK_OK(dit_judge_count_odd(&a, &odd, &err));
  CHECK(odd == want);
  a.dtype = DIT_DTYPE_I32;
  CHECK(dit_judge_count_odd(&a, &odd, &err) == DIT_ERR_UNSUPPORTED);
}

/// The pass of the common case, against the plain formulas; the same bits on any number of threads.
static void check_near(int64_t count, bool wide) {
  static float x[200003], single[200003];
  static double r[200003];
  struct dit_judge_near want = {.beyond = -INFINITY, .excess = -INFINITY}, got, again;
  const struct dit_judge_near_rule rule = {.atol = 1e-5, .rtol = 1e-6, .relative = 3e-7};
  int64_t shape[2];
  uint64_t state = 77 + (uint64_t)count;
  long double dot = 0, norm_x = 0, norm_r = 0;
  for (int64_t i = 0; i < count; i++) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    r[i] = ((double)(int64_t)(state >> 20) - 0x1p43) * 0x1p-40;
    single[i] = (float)r[i];
    r[i] = wide ? r[i] : single[i];
    x[i] = (float)(r[i] * (1 + (double)(state >> 60) * 1e-7));
    double a = x[i], b = single[i], apart = fabs(a - b);
    want.difference = fmax(want.difference, apart);
    want.relative = fmax(want.relative, apart / (fabs(a) + 1e-6));
    want.beyond = fmax(want.beyond, apart - (1e-5 + 1e-6 * fabs(b)));
    want.excess = fmax(want.excess, fabs(a - r[i]) - 3e-7 * fabs(r[i]));
    want.scale = fmax(want.scale, fabs(b));
    dot += (long double)a * b;
    norm_x += (long double)a * a;
    norm_r += (long double)b * b;
  }
  struct dit_tensor_view left_view = make_view(x, DIT_DTYPE_F32, shape, count), right_view = left_view;
  right_view.data = wide ? (void *)r : (void *)single;
  right_view.dtype = wide ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  memset(&got, 0, sizeof got);
  memset(&again, 0, sizeof again);
  dit_parallel_set_threads(1);
  CHECK(dit_judge_near(&left_view, &right_view, &rule, &got));
  dit_parallel_set_threads(3);
  CHECK(dit_judge_near(&left_view, &right_view, &rule, &again));
  dit_parallel_set_threads(0);
  CHECK(memcmp(&got, &again, sizeof got) == 0);
  CHECK(got.difference == want.difference && got.relative == want.relative && got.scale == want.scale);
  CHECK(count % 8 ? got.beyond >= want.beyond : got.beyond == want.beyond);  // the padding is a pair of zeros
  CHECK(got.excess == fmax(want.excess, count % 8 ? 0 : -INFINITY) && got.poison == 0);
  CHECK(fabs(got.dot - (double)dot) <= 1e-12 * (double)norm_x &&
        fabs(got.norm_x - (double)norm_x) <= 1e-12 * (double)norm_x);
  CHECK(fabs(got.norm_r - (double)norm_r) <= 1e-12 * (double)norm_r);
  x[count / 2] = count % 2 ? INFINITY : NAN;
  CHECK(dit_judge_near(&left_view, &right_view, &rule, &got) && isnan(got.poison));
}

static void test_near(void) {
  static const int64_t counts[] = {1, 7, 8, 9, 1023, 1024, 1025, 32768, 40001, 200003};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    check_near(counts[i], true);
    check_near(counts[i], false);
  }
}

static void test_near_leaves_the_rest_alone(void) {
  struct dit_judge_near near = {.scale = 42};
  const struct dit_judge_near_rule rule = {0};
  float x[4] = {0};
  int64_t shape[2], other[2];
  struct dit_tensor_view a = make_view(x, DIT_DTYPE_F32, shape, 4), b = make_view(x, DIT_DTYPE_F32, other, 2);
  CHECK(!dit_judge_near(&a, &b, &rule, &near));
  b = a;
  b.dtype = DIT_DTYPE_I32;
  CHECK(!dit_judge_near(&a, &b, &rule, &near));
  a = make_view(x, DIT_DTYPE_F32, shape, 0);
  CHECK(!dit_judge_near(&a, &a, &rule, &near));
  a = make_view(x, DIT_DTYPE_F32, shape, 2);
  shape[1] = 2;
  CHECK(!dit_judge_near(&a, &a, &rule, &near));  // gaps
  CHECK(near.scale == 42);
}

static void test_refusals(void) {
  struct dit_error err = {0};
  struct dit_judge_result got = {.numel = 42};
  int64_t shape[2], other[2];
  float x[4] = {0};
  struct dit_tensor_view a = make_view(x, DIT_DTYPE_F32, shape, 4), b = make_view(x, DIT_DTYPE_F32, other, 3);
  struct dit_judge_rule rule = {.limit = INFINITY};
  CHECK(dit_judge_compare(&a, &b, &rule, &got, &err) == DIT_ERR_INVALID);
  rule.absolute = NAN;
  CHECK(dit_judge_compare(&a, &a, &rule, &got, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "absolute of the rule is nan");
  rule.absolute = 0;
  rule.floor = -1;
  CHECK(dit_judge_compare(&a, &a, &rule, &got, &err) == DIT_ERR_INVALID);
  rule.floor = 0;
  b = a;
  b.dtype = DIT_DTYPE_QI8;
  CHECK(dit_judge_compare(&a, &b, &rule, &got, &err) == DIT_ERR_UNSUPPORTED);
  CHECK(got.numel == 42);
}

int main(void) {
  RUN(test_types);
  RUN(test_the_cap);
  RUN(test_overflow_rules);
  RUN(test_one_wrong_element_is_found_anywhere);
  RUN(test_odd);
  RUN(test_near);
  RUN(test_near_leaves_the_rest_alone);
  RUN(test_refusals);
  RUN(test_random_tensors);
  return 0;
}
