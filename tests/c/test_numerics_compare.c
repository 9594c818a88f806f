/// Comparison of two tensors, both passes, against a naive long double reference.
#include "numerics_check.h"

static struct tensor_case left, right;

struct reference {
  int64_t finite, unequal, over, mismatch, worst_abs, worst_rel, first;
  long double max_diff, rel, rel_sym, dot, square[2], abs_dot, abs_diff, min[2], max[2];
};

static long double get_size(struct number x) {
  return x.im == 0 ? fabsl(x.re) : hypotl(x.re, x.im);
}

static void reference_add(struct reference *r, struct number a, struct number b, int64_t i, bool is_complex) {
  long double diff = get_size((struct number){a.re - b.re, a.im - b.im}), size[2] = {get_size(a), get_size(b)};
  long double low[2] = {is_complex ? size[0] : a.re, is_complex ? size[1] : b.re};
  long double rel = diff > 0 ? diff / size[1] : 0, sym = diff > 0 ? diff / fmaxl(size[0], size[1]) : 0;
  r->finite++;
  if (diff > r->max_diff) {
    r->max_diff = diff;
    r->worst_abs = i;
  }
  if (rel > r->rel) {
    r->rel = rel;
    r->worst_rel = i;
  }
  r->rel_sym = fmaxl(r->rel_sym, sym);
  r->dot += a.re * b.re + a.im * b.im;
  r->abs_dot += size[0] * size[1];
  r->abs_diff += diff;
  for (int side = 0; side < 2; side++) {
    r->square[side] += size[side] * size[side];
    r->min[side] = fminl(r->min[side], low[side]);
    r->max[side] = fmaxl(r->max[side], low[side]);
  }
}

static void reference_init(struct reference *r, const struct dit_compare_options *options) {
  bool is_complex = dit_dtype_get_real(left.view.dtype) != left.view.dtype ||
                    dit_dtype_get_real(right.view.dtype) != right.view.dtype;
  memset(r, 0, sizeof(*r));
  r->worst_abs = r->worst_rel = r->first = -1;
  r->min[0] = r->min[1] = INFINITY;
  r->max[0] = r->max[1] = -INFINITY;
  for (int64_t i = 0; i < left.view.numel; i++) {
    struct number a = decode(&left.view, i), b = decode(&right.view, i);
    bool nan_a = isnan(a.re) || isnan(a.im), nan_b = isnan(b.re) || isnan(b.im);
    bool equal = (a.re == b.re && a.im == b.im) || (nan_a && nan_b && options->equal_nan);
    bool finite = isfinite(a.re) && isfinite(a.im) && isfinite(b.re) && isfinite(b.im), close = equal;
    if (finite) {
      reference_add(r, a, b, i, is_complex);
      long double diff = get_size((struct number){a.re - b.re, a.im - b.im});
      close = equal || diff <= options->atol + options->rtol * get_size(b);
    }
    r->mismatch += !finite && !equal && !(nan_a && nan_b);
    r->unequal += !equal;
    r->over += !close;
    r->first = r->first < 0 && !close ? i : r->first;
  }
}

#define WRONG_IF(condition, text) \
  if (condition) {                \
    case_print(&left);            \
    case_print(&right);           \
    return text;                  \
  }

static const char *check_result(const struct dit_compare_result *got, const struct reference *r) {
  bool any = r->finite > 0;
  WRONG_IF(got->numel != left.view.numel || got->finite_pairs != r->finite, "counts of pairs");
  WRONG_IF(got->unequal != r->unequal, "unequal");
  WRONG_IF(got->over_tolerance != r->over || got->allclose != (r->over == 0), "over_tolerance or allclose");
  WRONG_IF(got->nonfinite_mismatch != r->mismatch, "nonfinite_mismatch");
  WRONG_IF(!is_near(got->max_abs_diff, r->max_diff, r->max_diff, 1e-15), "max_abs_diff");
  WRONG_IF(!is_near(got->max_rel_diff, r->rel, r->rel, 1e-15), "max_rel_diff");
  WRONG_IF(!is_near(got->max_rel_diff_sym, r->rel_sym, r->rel_sym, 1e-15), "max_rel_diff_sym");
  WRONG_IF(!is_near(got->sum_abs_diff, r->abs_diff, r->abs_diff, 1e-13), "sum_abs_diff");
  WRONG_IF(!is_near(got->mean_abs_diff, any ? r->abs_diff / r->finite : NAN, r->abs_diff, 1e-13), "mean_abs_diff");
  WRONG_IF(!is_near(got->dot, r->dot, r->abs_dot, 1e-13), "dot");
  WRONG_IF(!is_near(got->norm_a, sqrtl(r->square[0]), sqrtl(r->square[0]), 1e-13), "norm_a");
  WRONG_IF(!is_near(got->norm_b, sqrtl(r->square[1]), sqrtl(r->square[1]), 1e-13), "norm_b");
  WRONG_IF(!is_near(got->min_a, any ? r->min[0] : NAN, fabsl(r->min[0]), 1e-15), "min_a");
  WRONG_IF(!is_near(got->max_a, any ? r->max[0] : NAN, fabsl(r->max[0]), 1e-15), "max_a");
  WRONG_IF(!is_near(got->min_b, any ? r->min[1] : NAN, fabsl(r->min[1]), 1e-15), "min_b");
  WRONG_IF(!is_near(got->max_b, any ? r->max[1] : NAN, fabsl(r->max[1]), 1e-15), "max_b");
  long double size = sqrtl(r->square[0]) * sqrtl(r->square[1]);
  long double cosine = size > 0 ? r->dot / size : r->square[0] == r->square[1];
  WRONG_IF(!is_near(got->cosine, any ? cosine : NAN, size > 0 ? r->abs_dot / size : 1, 1e-12), "cosine");
  return NULL;
}

static const char *check_detail(const struct dit_compare_detail *got, const struct reference *r) {
  WRONG_IF(got->first_mismatch_index != r->first, "first_mismatch_index");
  WRONG_IF(got->worst_abs_index != r->worst_abs, "worst_abs_index");
  WRONG_IF(got->worst_rel_index != r->worst_rel, "worst_rel_index");
  int64_t total = got->ulp_nan_both + got->ulp_nan_one, flat = 0;
  for (int bucket = 0; bucket < DIT_ULP_BUCKETS; bucket++) {
    total += got->ulp[bucket];
  }
  WRONG_IF(total != left.view.numel, "sum of the histogram");
  for (int dim = 0; dim < left.view.ndim; dim++) {
    flat = flat * left.sizes[dim] + got->first_mismatch[dim];
  }
  WRONG_IF(flat != (r->first < 0 ? 0 : r->first), "first_mismatch coordinates");
  return NULL;
}

/// Another tensor of the same shape: mostly the same values, in another type or with other strides.
static void make_right(void) {
  right.seed = left.seed;
  right.counter = left.counter;
  right.view = (struct dit_tensor_view){.data = right.bytes, .sizes = right.sizes, .strides = right.strides};
  right.view.ndim = left.view.ndim;
  right.view.numel = left.view.numel;
  memcpy(right.sizes, left.sizes, sizeof(left.sizes));
  int dtype = case_below(&right, 2) ? left.view.dtype : case_dtypes[case_below(&right, CASE_DTYPES)];
  right.view.dtype = (int16_t)dtype;
  case_set_strides(&right, (int64_t)dit_dtype_get_size(dtype));
  bool near = case_below(&right, 3) > 0;
  if (!near || dtype != left.view.dtype) {
    case_fill(&right);
  }
  int real = dit_dtype_get_real(dtype), parts = real == dtype ? 1 : 2;
  int64_t width = (int64_t)dit_dtype_get_size(real);
  for (int64_t i = 0; near && i < right.view.numel; i++) {
    struct number x = decode(&left.view, i);
    for (int part = 0; part < parts; part++) {
      double value = (double)(part ? x.im : x.re), noise = (double)case_below(&right, 1000) * 1e-6;
      int64_t at = case_get(&right.view, i) - right.bytes + part * width;
      uint64_t bits = 0;
      memcpy(&bits, case_get(&left.view, i) + (dtype == left.view.dtype ? part * width : 0),
             dtype == left.view.dtype ? (size_t)width : 1);
      case_store(real, right.bytes + at, case_below(&right, 4) ? value : value * (1 + noise), bits << 1 >> 1);
    }
  }
}

/// Both passes over left and right, on several numbers of threads, against the reference.
static const char *check_pair(void) {
  static const double tolerances[][2] = {{1e-5, 1e-8}, {0, 0}, {1e-3, 1e-3}, {0.5, 0}};
  static const int threads[] = {1, 2, 5};
  struct dit_error err = {0};
  struct reference r;
  struct dit_compare_result first, again;
  struct dit_compare_detail detail, detail_again;
  const double *chosen = tolerances[case_below(&right, 4)];
  struct dit_compare_options options = {chosen[0], chosen[1], case_below(&right, 2)};
  reference_init(&r, &options);
  memset(&first, 0, sizeof(first));
  memset(&again, 0, sizeof(again));
  CHECK_OK(dit_tensor_compare(&left.view, &right.view, &options, &first, &err));
  CHECK_OK(dit_tensor_compare_detail(&left.view, &right.view, &options, &detail, &err));
  for (int i = 0; i < 3; i++) {
    dit_parallel_set_threads(threads[i]);
    CHECK_OK(dit_tensor_compare(&left.view, &right.view, &options, &again, &err));
    CHECK_OK(dit_tensor_compare_detail(&left.view, &right.view, &options, &detail_again, &err));
    WRONG_IF(memcmp(&first, &again, sizeof(first)) != 0, "other bits on other threads");
    WRONG_IF(memcmp(&detail, &detail_again, sizeof(detail)) != 0, "another detail on other threads");
  }
  dit_parallel_set_threads(0);
  const char *wrong = check_result(&first, &r);
  return wrong ? wrong : check_detail(&detail, &r);
}

static const char *check_one(uint64_t seed, int64_t limit) {
  case_init(&left, seed, limit);
  make_right();
  return check_pair();
}

static void test_random_tensors(void) {
  run_cases(check_one, 9000, 220);
}

static struct dit_tensor_view make_view(void *data, int dtype, int64_t *shape, int64_t count) {
  shape[0] = count;
  shape[1] = 1;
  return (struct dit_tensor_view){
      .data = data, .sizes = shape, .strides = shape + 1, .numel = count, .ndim = 1, .dtype = (int16_t)dtype};
}

/// A copy in which none, few, some, many or all of the elements differ in their lowest bits: chunks that are equal,
/// sparse, and dense, also with nothing but ties for the largest relative difference.
static const char *check_copy(uint64_t seed, int64_t limit) {
  static const int dtypes[] = {DIT_DTYPE_BF16, DIT_DTYPE_F16, DIT_DTYPE_F32, DIT_DTYPE_F64,      DIT_DTYPE_U8,
                               DIT_DTYPE_I8,   DIT_DTYPE_I64, DIT_DTYPE_U64, DIT_DTYPE_F8_E4M3FN};
  static const int64_t every[] = {INT64_MAX, 1500, 300, 40, 3, 1};
  left.seed = seed;
  left.counter = 0;
  left.view = (struct dit_tensor_view){.data = left.bytes, .sizes = left.sizes, .strides = left.strides, .ndim = 1};
  left.view.dtype = (int16_t)dtypes[case_below(&left, 9)];
  left.view.numel = left.sizes[0] = 1 + case_below(&left, limit < 6000 ? limit : 6000);
  left.strides[0] = 1 + case_below(&left, 2);
  int64_t width = (int64_t)dit_dtype_get_size(left.view.dtype);
  case_fill(&left);
  right = left;
  right.view.data = right.bytes;
  right.view.sizes = right.sizes;
  right.view.strides = right.strides;
  int64_t rate = every[case_below(&right, 6)], change = 1 + case_below(&right, 3);
  bool signs = case_below(&right, 4) == 0;
  for (int64_t i = 0; i < right.view.numel; i++) {
    char *at = right.bytes + i * right.strides[0] * width;
    *at = (char)(*at ^ (case_below(&right, rate) == 0 ? change : 0));
    at[width - 1] = (char)(at[width - 1] ^ (signs && case_below(&right, rate) == 0 ? 0x80 : 0));
  }
  return check_pair();
}

static void test_copies_with_few_or_many_differences(void) {
  run_cases(check_copy, 500, 400);
}

/// One step of the last place everywhere, for several chunks: the bits bound the ratios, and the bounds are reached or
/// just not reached.
static void test_ties_of_short_floats(void) {
  enum { COUNT = 16 * 1024, LAST = COUNT - 7 };
  static uint16_t a[COUNT], b[COUNT];
  static const int dtypes[] = {DIT_DTYPE_BF16, DIT_DTYPE_F16};
  static const double units[] = {0x1p-7, 0x1p-10};
  static const uint16_t ones[] = {0x3F80, 0x3C00};
  struct dit_error err = {0};
  struct dit_compare_result got;
  int64_t shape[2];
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < COUNT; i++) {
      b[i] = (uint16_t)(ones[k] + i % 5);
      a[i] = (uint16_t)(b[i] + 1);
    }
    struct dit_tensor_view x = make_view(a, dtypes[k], shape, COUNT), y = x;
    y.data = b;
    double unit = units[k], value = 1 + LAST % 5 * unit;
    struct dit_compare_options options = {unit * (1 + 0x1p-40), 0, false};
    CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
    CHECK(got.allclose && got.unequal == COUNT && got.max_abs_diff == unit);
    CHECK(got.max_rel_diff == unit && got.max_rel_diff_sym == unit / (1 + unit));
    options.rtol = unit * (1 - 0x1p-40);
    CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
    CHECK(got.over_tolerance == (COUNT + 4) / 5);
    options.rtol = 2 * unit;
    CHECK_OK(dit_tensor_compare(&y, &x, &options, &got, &err));
    CHECK(got.max_rel_diff == unit / (1 + unit) && got.max_rel_diff_sym == unit / (1 + unit));
    a[LAST] = ones[k];  // the other way round: b is 1 and a is one step above, seen from y
    b[LAST] = (uint16_t)(ones[k] + 1);
    CHECK_OK(dit_tensor_compare(&y, &x, &options, &got, &err));
    CHECK(got.max_rel_diff == unit && got.max_rel_diff_sym == unit / (1 + unit));
    b[LAST] = (uint16_t)(ones[k] + LAST % 5);
    a[LAST] = (uint16_t)(b[LAST] + 2);  // one pair in the last chunk is further apart
    CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
    CHECK(got.allclose && got.max_abs_diff == 2 * unit && got.max_rel_diff == 2 * unit / value);
    CHECK(got.max_rel_diff_sym == 2 * unit / (value + 2 * unit));
    b[LAST] = 3;  // subnormal: the distance of the bits says nothing about the ratio
    a[LAST] = 4;
    CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
    CHECK(got.over_tolerance == 1 && got.max_rel_diff == 1.0 / 3 && got.max_rel_diff_sym == 0.25);
    b[LAST] = 0x8000;  // -0 and 0 are equal
    a[LAST] = 0;
    CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
    CHECK(got.allclose && got.unequal == COUNT - 1 && got.min_a == 0 && got.min_b == 0 && !signbit(got.min_b));
  }
}

static void test_allclose_rules(void) {
  struct dit_error err = {0};
  struct dit_compare_result got;
  int64_t shape[2];
  double a[] = {NAN, INFINITY, -INFINITY, 1.0, 0.0}, b[] = {NAN, INFINITY, -INFINITY, 1.1, -0.0};
  struct dit_tensor_view x = make_view(a, DIT_DTYPE_F64, shape, 5), y = x;
  y.data = b;
  struct dit_compare_options options = {0.1, 0, true};
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(got.allclose && got.unequal == 1 && got.nonfinite_mismatch == 0 && got.finite_pairs == 2);
  options.equal_nan = false;
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(!got.allclose && got.over_tolerance == 1 && got.nonfinite_mismatch == 0);
  b[2] = INFINITY;
  b[3] = INFINITY;
  options.rtol = 1e9;
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(got.over_tolerance == 3 && got.nonfinite_mismatch == 2);
  b[4] = 1e-300;
  options.atol = INFINITY;
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(got.over_tolerance == 3 && got.max_rel_diff == 1 && got.max_abs_diff == 1e-300 && got.cosine == 0);
}

/// A slightly larger difference in a later chunk, one pair just over the tolerance, a zero reference.
static void test_close_calls_between_chunks(void) {
  enum { COUNT = 5000 };
  static float a[COUNT], b[COUNT];
  struct dit_error err = {0};
  struct dit_compare_result got;
  int64_t shape[2];
  for (int i = 0; i < COUNT; i++) {
    a[i] = b[i] = 1;
  }
  a[10] = 1 + 0x1p-10F;
  a[2000] = 1 + 0x1p-10F + 0x1p-22F;
  struct dit_tensor_view x = make_view(a, DIT_DTYPE_F32, shape, COUNT), y = x;
  y.data = b;
  struct dit_compare_options options = {0x1p-10 + 0x1p-23, 0, false};
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(got.over_tolerance == 1 && got.unequal == 2 && got.max_abs_diff == 0x1p-10 + 0x1p-22);
  CHECK(got.max_rel_diff == 0x1p-10 + 0x1p-22 && got.max_rel_diff_sym < got.max_rel_diff);
  b[3000] = 0;
  a[3000] = 0x1p-20F;
  a[4500] = 1.25F;
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(isinf(got.max_rel_diff) && got.max_rel_diff_sym == 1 && got.max_abs_diff == 0.25 && got.over_tolerance == 3);
}

static void test_ulp_histogram(void) {
  struct dit_error err = {0};
  struct dit_compare_detail got;
  int64_t shape[2];
  float a[8], b[8] = {1, 1, 1, 1, 0.0F, -0x1p-149F, 1, NAN};
  static const int steps[8] = {0, 1, 2, 3, 0, 0, 5, 0};
  for (int i = 0; i < 8; i++) {
    a[i] = i < 4 || i == 6 ? 1 + (float)steps[i] * 0x1p-23F : i == 4 ? -0.0F : i == 5 ? 0x1p-149F : 1;
  }
  struct dit_tensor_view x = make_view(a, DIT_DTYPE_F32, shape, 8), y = x;
  y.data = b;
  struct dit_compare_options options = {0, 0, false};
  CHECK_OK(dit_tensor_compare_detail(&x, &y, &options, &got, &err));
  CHECK(got.ulp_dtype == DIT_DTYPE_F32 && got.ulp[0] == 2 && got.ulp[1] == 1 && got.ulp[2] == 2);
  CHECK(got.ulp[3] == 1 && got.ulp[4] == 1 && got.ulp_nan_one == 1 && got.first_mismatch_index == 1);
  CHECK(got.worst_abs_index == 6 && got.worst_rel_index == 5);
  uint16_t brain[8];
  for (int i = 0; i < 8; i++) {
    brain[i] = dit_float_to_bf16(b[i]);
  }
  y.data = brain;
  y.dtype = DIT_DTYPE_BF16;
  CHECK_OK(dit_tensor_compare_detail(&x, &y, &options, &got, &err));
  CHECK(got.ulp_dtype == DIT_DTYPE_BF16 && got.ulp[0] == 7 && got.ulp_nan_one == 1);
}

/// Around the limits of what the staging of 64-bit integers holds.
static void test_int64_beyond_the_significand(void) {
  struct dit_error err = {0};
  struct dit_compare_result got;
  struct dit_compare_options options = {0, 0, false};
  int64_t shape[2], a[3], b[3];
  for (int bits = 49; bits <= 62; bits++) {
    for (int sign = -1; sign <= 1; sign += 2) {
      for (int64_t i = 0; i < 3; i++) {
        a[i] = sign * ((INT64_C(1) << bits) + i - 1);
        b[i] = a[i] + (i == 1);
      }
      struct dit_tensor_view x = make_view(a, DIT_DTYPE_I64, shape, 3), y = x;
      y.data = b;
      CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
      CHECK(got.unequal == 1 && got.over_tolerance == 1 && got.max_abs_diff == 1 && got.sum_abs_diff == 1);
      CHECK(got.min_a == (double)(sign < 0 ? a[2] : a[0]) && got.max_a == (double)(sign < 0 ? a[0] : a[2]));
    }
  }
}

static void test_int64_differences_are_exact(void) {
  struct dit_error err = {0};
  struct dit_compare_result got;
  struct dit_compare_detail detail;
  int64_t shape[2], a[2] = {INT64_MAX, INT64_MIN};
  uint64_t b[2] = {(uint64_t)INT64_MAX - 1, 0};
  struct dit_tensor_view x = make_view(a, DIT_DTYPE_I64, shape, 2), y = x;
  y.data = b;
  y.dtype = DIT_DTYPE_U64;
  struct dit_compare_options options = {0, 0.5, false};
  CHECK_OK(dit_tensor_compare(&x, &y, &options, &got, &err));
  CHECK(got.over_tolerance == 2 && got.max_abs_diff == 0x1p63);
  CHECK_OK(dit_tensor_compare_detail(&x, &y, &options, &detail, &err));
  CHECK(detail.ulp[1] == 1 && detail.ulp[64] == 1);
}

static void test_refusals(void) {
  struct dit_error err = {0};
  struct dit_compare_result got;
  int64_t shape[2], other[2];
  float values[4] = {0};
  struct dit_tensor_view x = make_view(values, DIT_DTYPE_F32, shape, 4), y = make_view(values, DIT_DTYPE_F32, other, 3);
  struct dit_compare_options options = {0, 0, false};
  CHECK(dit_tensor_compare(&x, &y, &options, &got, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "4 in tensor a and 3 in tensor b");
  y.ndim = 0;
  y.numel = 1;
  CHECK(dit_tensor_compare(&x, &y, &options, &got, &err) == DIT_ERR_INVALID);
  options.rtol = -1;
  CHECK(dit_tensor_compare(&x, &x, &options, &got, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "rtol is -1");
  y = x;
  y.dtype = DIT_DTYPE_F4_E2M1FN_X2;
  options.rtol = 0;
  CHECK(dit_tensor_compare(&x, &y, &options, &got, &err) == DIT_ERR_UNSUPPORTED);
}

int main(void) {
  RUN(test_allclose_rules);
  RUN(test_close_calls_between_chunks);
  RUN(test_ulp_histogram);
  RUN(test_int64_beyond_the_significand);
  RUN(test_int64_differences_are_exact);
  RUN(test_refusals);
  RUN(test_ties_of_short_floats);
  RUN(test_copies_with_few_or_many_differences);
  RUN(test_random_tensors);
  return 0;
}
