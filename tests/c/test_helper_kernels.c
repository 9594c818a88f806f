/// The CUDA kernels on the CPU (cuda_fibers.h): the results are compared with src/numerics.
#include "numerics_check.h"

// clang-format off: the first one sets what the second one builds on
#include "cuda_fibers.h"
#include "../../vendors/cuda/helper_plan.c"
// clang-format on

// Launches as vendors/cuda/helper_launch.c makes them

static struct kernel_scratch scratch;

static void check_scratch(void) {
  for (int i = 0; i < DIT_HELPER_BATCH; i++) {
    CHECK(scratch.ticket[i] == 0 && scratch.flags[i] == 0);
  }
}

/// `index`: the tensor's place in the batch; the others are empty.
static void run_one(const struct dit_tensor_view *view, bool stats, void *out) {
  struct kernel_batch_strided strided;
  struct plan plan;
  int used = 0;
  memset(&strided, 0, sizeof strided);
  plan_init(&plan, view, NULL, PLAN_ANY);
  CHECK(plan_add(&strided.batch.tensor[0], view, &plan, strided.dims, HELPER_POOL_DIMS, &used));
  strided.batch.tensor[1] = strided.batch.tensor[0];
  strided.batch.tensor[1].slot = 1;
  strided.batch.tensor[0].numel = 0;  // an empty tensor goes first: it must not disturb the other
  strided.batch.tensor[0].blocks = 1;
  strided.batch.out = out;
  strided.batch.scratch = &scratch;
  unsigned blocks = strided.batch.tensor[1].blocks + 1;  // one more than needed
  if (plan.ndim == 0) {
    run_grid(stats ? body_stats : body_nonfinite, &strided.batch, blocks, 2);
  } else {
    run_grid(stats ? body_stats_strided : body_nonfinite_strided, &strided, blocks, 2);
  }
  check_scratch();
}

static struct dit_hash run_hash(const struct dit_tensor_view *view) {
  struct kernel_hash_strided task;
  struct dit_hash out[3];
  struct plan plan;
  int used = 0;
  memset(&task, 0, sizeof task);
  plan_init(&plan, view, NULL, PLAN_ROW_MAJOR);
  struct kernel_tensor *tensor = &task.hash.batch.tensor[0];
  CHECK(plan_add(tensor, view, &plan, task.dims, 32, &used));
  int64_t slot = plan_get_hash_slot(view->numel);
  tensor->blocks = view->numel > 0 ? (uint32_t)((view->numel + slot - 1) / slot) : 1;
  tensor->slot = 2;
  task.hash.slot_size[0] = slot;
  task.hash.prefix[0] = plan_get_hash_prefix(view);
  task.hash.batch.out = out;
  task.hash.batch.scratch = &scratch;
  if (plan.ndim == 0) {
    run_grid(body_hash, &task.hash, tensor->blocks + 1, 1);
  } else {
    run_grid(body_hash_strided, &task, tensor->blocks + 1, 1);
  }
  check_scratch();
  return out[2];
}

// Against src/numerics

static struct tensor_case subject, other;

#define WRONG_IF(condition, text) \
  if (condition) {                \
    case_print(&subject);         \
    return text;                  \
  }

static const char *check_stats(const struct dit_tensor_stats *got, const struct dit_tensor_stats *want) {
  double rms = want->finite > 0 ? want->finite_norm / sqrt((double)want->finite) : 0;
  double last = subject.view.dtype == DIT_DTYPE_C128 ? 3e-16 : 0;
  WRONG_IF(got->numel != want->numel || got->finite != want->finite || got->zero != want->zero, "counts");
  WRONG_IF(got->nan != want->nan || got->pos_inf != want->pos_inf || got->neg_inf != want->neg_inf, "non-finite");
  WRONG_IF(got->min_int != want->min_int || got->max_int != want->max_int, "integer extrema");
  WRONG_IF(!is_near(got->min, want->min, fabs(want->min), last), "min");
  WRONG_IF(!is_near(got->max, want->max, fabs(want->max), last), "max");
  WRONG_IF(!is_near(got->abs_max, want->abs_max, fabs(want->abs_max), last), "abs_max");
  WRONG_IF(signbit(got->min) != signbit(want->min) && !isnan(want->min), "sign of zero");
  WRONG_IF(!is_near(got->mean, want->mean, rms, 1e-14), "mean");
  WRONG_IF(!is_near(got->mean_imag, want->mean_imag, rms, 1e-14), "mean_imag");
  WRONG_IF(!is_near(got->finite_mean, want->finite_mean, rms, 1e-14), "finite_mean");
  WRONG_IF(!is_near(got->finite_mean_imag, want->finite_mean_imag, rms, 1e-14), "finite_mean_imag");
  // As in test_numerics_stats.c: a spread far below the rounding of the values cannot be seen.
  double blur = rms * 1e-5;
  WRONG_IF(!is_near(got->std, want->std, want->std + blur, 1e-11), "std");
  WRONG_IF(!is_near(got->std_sample, want->std_sample, want->std_sample + blur, 1e-11), "std_sample");
  WRONG_IF(!is_near(got->finite_std, want->finite_std, want->finite_std + blur, 1e-11), "finite_std");
  WRONG_IF(!is_near(got->finite_std_sample, want->finite_std_sample, want->finite_std_sample + blur, 1e-11),
           "finite_std_sample");
  WRONG_IF(!is_near(got->norm, want->norm, want->norm, 1e-13), "norm");
  WRONG_IF(!is_near(got->finite_norm, want->finite_norm, want->finite_norm, 1e-13), "finite_norm");
  return NULL;
}

static const char *check_single(uint64_t seed, int64_t limit) {
  struct dit_error err = {0};
  struct dit_tensor_stats stats[2], want;
  struct dit_hash hash;
  uint8_t flags[2] = {9, 9};
  bool nan, inf;
  case_init(&subject, seed, limit);
  if (seed % 5 == 0 && dit_dtype_get_size(subject.view.dtype) < 16) {  // not aligned to a vector
    subject.view.data = subject.bytes + dit_dtype_get_size(subject.view.dtype);
  }
  if (seed % 2 && dit_shape_is_contiguous(subject.view.ndim, subject.sizes, subject.strides)) {
    subject.view.flags = DIT_TENSOR_CONTIGUOUS;  // said by the caller, as the engine does
  }
  memset(stats, 0xAB, sizeof stats);
  CHECK_OK(dit_tensor_get_stats(&subject.view, &want, &err));
  run_one(&subject.view, true, stats);
  WRONG_IF(stats[0].numel != 0 || !isnan(stats[0].min), "statistics of the empty tensor beside it");
  const char *wrong = check_stats(&stats[1], &want);
  if (wrong) {
    return wrong;
  }
  CHECK_OK(dit_tensor_get_nonfinite(&subject.view, &nan, &inf, &err));
  run_one(&subject.view, false, flags);
  WRONG_IF(flags[0] != 0 || flags[1] != (nan ? DIT_NONFINITE_NAN : 0) + (inf ? DIT_NONFINITE_INF : 0), "flags");
  CHECK_OK(dit_tensor_get_hash(&subject.view, &hash, &err));
  struct dit_hash got = run_hash(&subject.view);
  WRONG_IF(got.low != hash.low || got.high != hash.high, "hash");
  return NULL;
}

/// The same shape as `subject`, mostly nearly the same values.
static void make_other(void) {
  other.seed = subject.seed;
  other.counter = subject.counter;
  other.view = subject.view;
  other.view.data = other.bytes;
  other.view.sizes = other.sizes;
  other.view.strides = other.strides;
  memcpy(other.sizes, subject.sizes, sizeof(subject.sizes));
  memcpy(other.strides, subject.strides, sizeof(subject.strides));
  if (case_below(&other, 3) == 0) {
    other.view.dtype = (int16_t)case_dtypes[case_below(&other, CASE_DTYPES)];
    case_set_strides(&other, (int64_t)dit_dtype_get_size(other.view.dtype));
    case_fill(&other);
    return;
  }
  int real = dit_dtype_get_real(other.view.dtype);
  int64_t width = (int64_t)dit_dtype_get_size(real), low, high;
  dit_tensor_get_span(&other.view, &low, &high);
  memcpy(other.bytes, subject.bytes, (size_t)high);
  for (int64_t at = 0; at + width <= high; at += width) {
    if (case_below(&other, 4) == 0) {
      double noise = 1 + (double)case_below(&other, 1000) * 1e-6;
      case_store(real, other.bytes + at, (double)decode_real(real, subject.bytes + at) * noise,
                 case_next(&other) >> 40);
    }
  }
}

static const char *check_pair(uint64_t seed, int64_t limit) {
  static const double tolerances[][2] = {{1e-5, 1e-8}, {0, 0}, {1e-3, 1e-3}, {0.5, 0}};
  struct dit_error err = {0};
  struct dit_compare_result got, want;
  struct kernel_compare task;
  case_init(&subject, seed, limit);
  make_other();
  const double *chosen = tolerances[case_below(&other, 4)];
  struct dit_compare_options options = {chosen[0], chosen[1], case_below(&other, 2)};
  CHECK_OK(plan_check_pair(&subject.view, &other.view, &options, &err));
  CHECK_OK(dit_tensor_compare(&subject.view, &other.view, &options, &want, &err));
  memset(&got, 0xAB, sizeof got);
  plan_compare(&task, &subject.view, &other.view, &options);
  task.out = &got;
  task.scratch = &scratch;
  run_grid(body_compare, &task, task.tensor[0].blocks, 1);
  check_scratch();
  double size = want.norm_a * want.norm_b;
  WRONG_IF(got.numel != want.numel || got.finite_pairs != want.finite_pairs || got.unequal != want.unequal, "counts");
  WRONG_IF(got.over_tolerance != want.over_tolerance || got.allclose != want.allclose, "over_tolerance");
  WRONG_IF(got.nonfinite_mismatch != want.nonfinite_mismatch, "nonfinite_mismatch");
  WRONG_IF(!is_near(got.max_abs_diff, want.max_abs_diff, want.max_abs_diff, 1e-15), "max_abs_diff");
  WRONG_IF(!is_near(got.max_rel_diff, want.max_rel_diff, want.max_rel_diff, 1e-15), "max_rel_diff");
  WRONG_IF(!is_near(got.max_rel_diff_sym, want.max_rel_diff_sym, want.max_rel_diff_sym, 1e-15), "max_rel_diff_sym");
  WRONG_IF(!is_near(got.mean_abs_diff, want.mean_abs_diff, want.mean_abs_diff, 1e-13), "mean_abs_diff");
  WRONG_IF(!is_near(got.sum_abs_diff, want.sum_abs_diff, want.sum_abs_diff, 1e-13), "sum_abs_diff");
  WRONG_IF(!is_near(got.dot, want.dot, isfinite(size) ? size : INFINITY, 1e-13), "dot");
  WRONG_IF(!is_near(got.cosine, want.cosine, 1, 1e-12), "cosine");
  WRONG_IF(!is_near(got.norm_a, want.norm_a, want.norm_a, 1e-13), "norm_a");
  WRONG_IF(!is_near(got.norm_b, want.norm_b, want.norm_b, 1e-13), "norm_b");
  WRONG_IF(!is_near(got.min_a, want.min_a, fabs(want.min_a), 3e-16), "min_a");
  WRONG_IF(!is_near(got.max_a, want.max_a, fabs(want.max_a), 3e-16), "max_a");
  WRONG_IF(!is_near(got.min_b, want.min_b, fabs(want.min_b), 3e-16), "min_b");
  WRONG_IF(!is_near(got.max_b, want.max_b, fabs(want.max_b), 3e-16), "max_b");
  return NULL;
}

static void test_random_tensors(void) {
  run_cases(check_single, 31000, 90);
}

static void test_random_pairs(void) {
  run_cases(check_pair, 47000, 90);
}

static struct dit_tensor_view make_view(void *data, int dtype, int64_t *shape, int64_t count) {
  shape[0] = count;
  shape[1] = 1;
  return (struct dit_tensor_view){
      .data = data, .sizes = shape, .strides = shape + 1, .numel = count, .ndim = 1, .dtype = (int16_t)dtype};
}

/// Every code of the 8 and 16 bit types reads as src/core/convert.h has it.
static void test_every_short_code(void) {
  static const int dtypes[] = {DIT_DTYPE_F16,         DIT_DTYPE_BF16,        DIT_DTYPE_F8_E5M2,    DIT_DTYPE_F8_E4M3FN,
                               DIT_DTYPE_F8_E5M2FNUZ, DIT_DTYPE_F8_E4M3FNUZ, DIT_DTYPE_F8_E8M0FNU, DIT_DTYPE_I8,
                               DIT_DTYPE_U8,          DIT_DTYPE_I16,         DIT_DTYPE_U16};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
    int width = dtype_get_width(dtypes[i]);
    CHECK(width == (int)dit_dtype_get_size(dtypes[i]));
    for (uint32_t code = 0; code < (width == 1 ? 256U : 65536U); code++) {
      char bytes[2];
      memcpy(bytes, &code, 2);
      double got = real_from_bits(code, dtypes[i]), want = (double)decode_real(dtypes[i], bytes);
      CHECK(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want));
      struct special_rule rule = rule_get(dtypes[i]);
      uint32_t flags = rule.width ? flags_get(code, &rule) : 0;
      CHECK(flags == (isnan(want) ? DIT_NONFINITE_NAN : isinf(want) ? DIT_NONFINITE_INF : 0U));
    }
  }
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    CHECK(dtype_get_width(dtype) == (int)dit_dtype_get_size(dtype));
  }
}

static void test_extreme_doubles(void) {
  struct dit_error err = {0};
  struct dit_tensor_stats got[2], want;
  int64_t shape[2];
  static const double sets[][4] = {{1e308, -1e308, 1.7e308, 1},
                                   {5e-324, -1e-320, 3e-310, 0},
                                   {1e-200, 1e200, 1, -1},
                                   {1e300, 1e300, 1e300, 1e300},
                                   {0, 0, -0.0, 0}};
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
    subject.view = make_view((void *)(uintptr_t)sets[i], DIT_DTYPE_F64, shape, 4);
    CHECK_OK(dit_tensor_get_stats(&subject.view, &want, &err));
    run_one(&subject.view, true, got);
    const char *wrong = check_stats(&got[1], &want);
    if (wrong) {
      fprintf(stderr, "set %zu: %s\n", i, wrong);
      exit(1);
    }
  }
}

/// Values on both sides of where the unit of the sums changes, in one thread and between threads.
static void test_units_of_sums_change(void) {
  enum { COUNT = 2000 };
  static double values[COUNT], others[COUNT];
  struct dit_error err = {0};
  struct dit_tensor_stats got[2], want;
  struct dit_compare_result result, wanted;
  struct dit_compare_options options = {1e-3, 0, false};
  struct kernel_compare task;
  int64_t shape[2];
  for (int side = -1; side <= 1; side += 2) {
    for (int i = 0; i < COUNT; i++) {
      values[i] = ldexp(0.5 + 1.5 * i / COUNT, side * 400);
      others[i] = values[i] * (1 + (i % 7) * 1e-3);
    }
    subject.view = make_view(values, DIT_DTYPE_F64, shape, COUNT);
    CHECK_OK(dit_tensor_get_stats(&subject.view, &want, &err));
    run_one(&subject.view, true, got);
    CHECK(check_stats(&got[1], &want) == NULL);
    struct dit_tensor_view right = subject.view;
    right.data = others;
    CHECK_OK(dit_tensor_compare(&subject.view, &right, &options, &wanted, &err));
    plan_compare(&task, &subject.view, &right, &options);
    task.out = &result;
    task.scratch = &scratch;
    run_grid(body_compare, &task, task.tensor[0].blocks, 1);
    CHECK(result.over_tolerance == wanted.over_tolerance && fabs(result.cosine - wanted.cosine) < 1e-13);
    CHECK(is_near(result.norm_a, wanted.norm_a, wanted.norm_a, 1e-13));
    CHECK(is_near(result.norm_b, wanted.norm_b, wanted.norm_b, 1e-13));
    CHECK(is_near(result.sum_abs_diff, wanted.sum_abs_diff, wanted.sum_abs_diff, 1e-13));
    CHECK(is_near(result.dot, wanted.dot, wanted.dot, 1e-13));
  }
}

static void test_int64_is_exact(void) {
  struct dit_error err = {0};
  struct dit_tensor_stats got[2], want;
  struct dit_compare_result result;
  struct kernel_compare task;
  int64_t shape[2], signs[] = {INT64_MAX, INT64_MIN, INT64_MAX - 1, INT64_MIN + 7};
  uint64_t others[] = {(uint64_t)INT64_MAX - 1, 0, 5, UINT64_MAX};
  static uint64_t stamps[3000];
  subject.view = make_view(signs, DIT_DTYPE_I64, shape, 4);
  run_one(&subject.view, true, got);
  CHECK(got[1].mean == 1.0 && got[1].min_int == INT64_MIN && got[1].max_int == INT64_MAX);
  struct dit_tensor_view right = subject.view;
  right.data = others;
  right.dtype = DIT_DTYPE_U64;
  struct dit_compare_options options = {0, 0.5, false};
  plan_compare(&task, &subject.view, &right, &options);
  task.out = &result;
  task.scratch = &scratch;
  run_grid(body_compare, &task, task.tensor[0].blocks, 1);
  CHECK(result.over_tolerance == 4 && result.unequal == 4 && result.max_abs_diff == 0x1p64 * 1.5);
  for (int i = 0; i < 3000; i++) {
    stamps[i] = UINT64_MAX - 10 + (uint64_t)(i & 1) * 2;
  }
  subject.view = make_view(stamps, DIT_DTYPE_U64, shape, 3000);
  CHECK_OK(dit_tensor_get_stats(&subject.view, &want, &err));
  run_one(&subject.view, true, got);
  CHECK(got[1].max_int == want.max_int && got[1].min_int == want.min_int && got[1].std == 1.0);
}

static void test_large_mean_keeps_its_spread(void) {
  static float values[20000];
  struct dit_tensor_stats got[2];
  int64_t shape[2];
  for (int i = 0; i < 20000; i++) {
    values[i] = 8388608.0F + (float)(i & 1);
  }
  subject.view = make_view(values, DIT_DTYPE_F32, shape, 20000);
  run_one(&subject.view, true, got);
  CHECK(fabs(got[1].mean - 8388608.5) < 1e-8 && fabs(got[1].std - 0.5) < 1e-12);
}

static void test_hash_takes_every_dtype(void) {
  static char bytes[40000];
  struct dit_error err = {0};
  struct dit_hash want;
  int64_t shape[2], square[4] = {45, 33, 1, 45};  // a transposed matrix
  for (int i = 0; i < 40000; i++) {
    bytes[i] = (char)(i * 7 + (i >> 8));
  }
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    struct dit_tensor_view view = make_view(bytes, dtype, shape, 2100);
    CHECK_OK(dit_tensor_get_hash(&view, &want, &err));
    struct dit_hash got = run_hash(&view);
    CHECK(got.low == want.low && got.high == want.high);
    view.ndim = 2;
    view.sizes = square;
    view.strides = square + 2;
    view.numel = 45 * 33;
    CHECK_OK(dit_tensor_get_hash(&view, &want, &err));
    got = run_hash(&view);
    CHECK(got.low == want.low && got.high == want.high);
  }
}

/// The refusals are those of src/numerics, status by status.
static void test_refusals_are_those_of_numerics(void) {
  struct dit_error err = {0};
  struct dit_tensor_stats stats;
  struct dit_hash hash;
  int64_t shape[2];
  for (int dtype = -1; dtype <= DIT_DTYPE_COUNT; dtype++) {
    static char bytes[64];
    struct dit_tensor_view view = make_view(bytes, dtype, shape, 4);
    CHECK(plan_check(&view, "the tensor", true, &err) == dit_tensor_get_stats(&view, &stats, &err));
    CHECK(plan_check(&view, "the tensor", false, &err) == dit_tensor_get_hash(&view, &hash, &err));
  }
  struct dit_tensor_view view = make_view(NULL, DIT_DTYPE_F32, shape, 4);
  CHECK(plan_check(&view, "the tensor", true, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "NULL");
  view = make_view(shape, DIT_DTYPE_F32, shape, 2);
  view.numel = 3;
  CHECK(plan_check(&view, "the tensor", true, &err) == DIT_ERR_INVALID);
  view.ndim = DIT_MAX_DIMS + 1;
  CHECK(plan_check(&view, "the tensor", true, &err) == DIT_ERR_UNSUPPORTED);
}

int main(void) {
  RUN(test_every_short_code);
  RUN(test_refusals_are_those_of_numerics);
  RUN(test_extreme_doubles);
  RUN(test_units_of_sums_change);
  RUN(test_int64_is_exact);
  RUN(test_large_mean_keeps_its_spread);
  RUN(test_hash_takes_every_dtype);
  RUN(test_random_tensors);
  RUN(test_random_pairs);
  return 0;
}
