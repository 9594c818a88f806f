/// Sum, mean and softmax against long double; the same bits on any number of threads.
#include "diopi_check.h"

/// Sum or mean over the dimensions of `mask`; `out` keeps them with size 1.
static void call_reduce(bool mean, const struct dit_tensor_view *out, const struct dit_tensor_view *in, uint32_t mask) {
  int64_t dims[DIT_MAX_DIMS];
  diopiSize_t list = {dims, 0};
  for (int dim = 0; dim < in->ndim; dim++) {
    if (mask >> dim & 1) {
      dims[list.len++] = dim;
    }
  }
  if (mean) {
    CALL(diopiMean, wrap(out), wrap(in), list);
  } else {
    CALL(diopiSum, wrap(out), wrap(in), list);
  }
}

/// The row-major number of the result element that element `index` of `in` belongs to.
static int64_t get_target(const struct dit_tensor_view *in, uint32_t mask, int64_t index) {
  int64_t position[DIT_MAX_DIMS], target = 0;
  for (int dim = in->ndim - 1; dim >= 0; dim--) {
    position[dim] = index % in->sizes[dim];
    index /= in->sizes[dim];
  }
  for (int dim = 0; dim < in->ndim; dim++) {
    target = mask >> dim & 1 ? target : target * in->sizes[dim] + position[dim];
  }
  return target;
}

static int choose_result(int dtype) {
  static const int results[] = {DIT_DTYPE_F32, DIT_DTYPE_F64};
  if (is_floating(dtype)) {
    return random_below(3) == 0 ? results[random_below(2)] : dtype;
  }
  return random_below(3) == 0 ? DIT_DTYPE_I32 : DIT_DTYPE_I64;
}

static bool check_reduce(const struct test_case *test) {
  struct sample in, out;
  int64_t sizes[DIT_MAX_DIMS], kept[DIT_MAX_DIMS], reduced = 1;
  int ndim = draw_shape(test, sizes), dtype = all_dtypes[random_below(10)], result = choose_result(dtype);
  uint32_t mask = ndim ? 1 + (uint32_t)random_below((1 << ndim) - 1) : 0;  // none at all means all of them
  for (int dim = 0; dim < ndim; dim++) {
    kept[dim] = mask >> dim & 1 ? 1 : sizes[dim];
    reduced *= mask >> dim & 1 ? sizes[dim] : 1;
  }
  bool mean = is_floating(result) && random_below(2);
  sample_init(&in, dtype, ndim, sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&out, result, ndim, kept, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_fill(&in, false);
  long double *want = calloc((size_t)out.view.numel + 1, sizeof(long double));
  long double *size = calloc((size_t)out.view.numel + 1, sizeof(long double));
  for (int64_t i = 0; i < in.view.numel; i++) {
    int64_t target = get_target(&in.view, mask, i);
    want[target] += view_get(&in.view, i);
    size[target] += fabsl(view_get(&in.view, i));
  }
  call_reduce(mean, &out.view, &in.view, mask);
  bool ok = true;
  int work = result == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  for (int64_t i = 0; i < out.view.numel && ok; i++) {
    long double expected = mean ? want[i] / (long double)reduced : want[i];
    double scale = (double)(mean ? size[i] / (long double)(reduced ? reduced : 1) : size[i]);
    double steps = reduced > 1 ? 42 : 2;  // lanes, then a pairwise tree over at most 60,000 elements
    double tolerance = is_floating(result) ? scale * get_epsilon(work) * steps +
                                                 1.01 * get_epsilon(result) * (double)fabsl(expected) + 1e-30
                                           : 0;
    long double got = view_get(&out.view, i);
    ok = is_close(got, expected, tolerance) || report("reduce", i, got, expected);
  }
  free(want);
  free(size);
  sample_destroy(&in);
  sample_destroy(&out);
  return ok;
}

static void test_reduce(void) {
  run_cases("reduce", check_reduce, 2000);
}

/// One thousand ones and a tiny rest: a running float sum would lose it.
static void test_accuracy(void) {
  struct sample in, out;
  const int64_t sizes[1] = {1 << 22}, one[1] = {1};
  sample_init(&in, DIT_DTYPE_F32, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_F32, 1, one, LAYOUT_CONTIGUOUS);
  double want = 0;
  for (int64_t i = 0; i < sizes[0]; i++) {
    float value = 0.1f + 0.01f * (float)(i % 7);
    view_set(&in.view, i, (long double)value);
    want += (double)value;
  }
  call_reduce(false, &out.view, &in.view, 1);
  double error = fabs((double)view_get(&out.view, 0) - want) / want;
  printf("relative error of a float sum over 4194304 elements: %.3g\n", error);
  CHECK(error < 1e-6);
  sample_destroy(&in);
  sample_destroy(&out);
}

static void test_empty(void) {
  struct sample in, out;
  const int64_t sizes[2] = {3, 0}, kept[2] = {3, 1};
  sample_init(&in, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_F32, 2, kept, LAYOUT_CONTIGUOUS);
  call_reduce(false, &out.view, &in.view, 2);
  CHECK(view_get(&out.view, 2) == 0);
  call_reduce(true, &out.view, &in.view, 2);
  CHECK(isnan(view_get(&out.view, 0)));
  sample_destroy(&in);
  sample_destroy(&out);
}

static void test_nan(void) {
  struct sample in, out;
  const int64_t sizes[1] = {3000}, one[1] = {1};
  sample_init(&in, DIT_DTYPE_F32, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_F32, 1, one, LAYOUT_CONTIGUOUS);
  sample_fill(&in, false);
  view_set(&in.view, 2999, INFINITY);
  call_reduce(false, &out.view, &in.view, 1);
  CHECK(view_get(&out.view, 0) == INFINITY);
  view_set(&in.view, 7, NAN);
  call_reduce(false, &out.view, &in.view, 1);
  CHECK(isnan(view_get(&out.view, 0)));
  sample_destroy(&in);
  sample_destroy(&out);
}

/// Rows, columns, and both, large enough to be cut: 1, 2 and 5 threads give the same bits, also without memory for
/// partial sums.
static void test_threads(void) {
  static const uint32_t masks[] = {1, 2, 3};
  struct sample in;
  const int64_t sizes[2] = {3000, 300};
  sample_init(&in, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&in, false);
  for (int m = 0; m < 3; m++) {
    const int64_t kept[2] = {masks[m] & 1 ? 1 : sizes[0], masks[m] & 2 ? 1 : sizes[1]};
    struct sample out[4];
    for (int run = 0; run < 4; run++) {
      static const int threads[] = {1, 2, 5, 2};
      sample_init(&out[run], DIT_DTYPE_F32, 2, kept, LAYOUT_CONTIGUOUS);
      dit_parallel_set_threads(threads[run]);
      dit_alloc_set_failure(run == 3 ? 0 : -1);
      call_reduce(false, &out[run].view, &in.view, masks[m]);
      dit_alloc_set_failure(-1);
      CHECK(memcmp(out[0].view.data, out[run].view.data, (size_t)out[0].view.numel * 4) == 0);
    }
    for (int run = 0; run < 4; run++) {
      sample_destroy(&out[run]);
    }
  }
  dit_parallel_set_threads(0);
  sample_destroy(&in);
}

static bool check_softmax(const struct test_case *test) {
  struct sample in, out;
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = draw_shape(test, sizes), dtype = float_dtypes[random_below(4)];
  if (ndim == 0) {
    sizes[ndim++] = 1 + random_below(test->size_limit);
  }
  int dim = (int)random_below(ndim);
  bool log = random_below(2), widen = (dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16) && random_below(2);
  int result = widen ? DIT_DTYPE_F32 : dtype;
  sample_init(&in, dtype, ndim, sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&out, result, ndim, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_fill(&in, false);
  if (log) {
    CALL(diopiLogSoftmax, wrap(&out.view), wrap(&in.view), dim);
  } else {
    CALL(diopiSoftmax, wrap(&out.view), wrap(&in.view), dim);
  }
  uint32_t mask = 1u << dim;
  int64_t lines = in.view.numel ? in.view.numel / sizes[dim] : 0;
  long double *sum = calloc((size_t)lines + 1, sizeof(long double));
  for (int64_t i = 0; i < in.view.numel; i++) {
    sum[get_target(&in.view, mask, i)] += expl(view_get(&in.view, i));
  }
  bool ok = true;
  for (int64_t i = 0; i < in.view.numel && ok; i++) {
    long double x = view_get(&in.view, i), total = sum[get_target(&in.view, mask, i)];
    long double want = log ? x - logl(total) : expl(x) / total, got = view_get(&out.view, i);
    int work = dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
    double tolerance = 30 * get_epsilon(work) * (double)(fabsl(want) + (log ? 4 : 0)) +
                       1.01 * get_epsilon(result) * (double)fabsl(want) + (result == DIT_DTYPE_F16 ? 0x1p-24 : 0);
    ok = is_close(got, want, tolerance) || report("softmax", i, got, want);
  }
  free(sum);
  sample_destroy(&in);
  sample_destroy(&out);
  return ok;
}

static void test_softmax(void) {
  run_cases("softmax", check_softmax, 1500);
}

static void test_softmax_special(void) {
  struct sample in, out;
  const int64_t sizes[2] = {3, 20};
  sample_init(&in, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&in, false);
  for (int64_t i = 0; i < 20; i++) {
    view_set(&in.view, i, -INFINITY);
  }
  view_set(&in.view, 25, NAN);
  view_set(&in.view, 45, -INFINITY);
  CALL(diopiSoftmax, wrap(&out.view), wrap(&in.view), 1);
  CHECK(isnan(view_get(&out.view, 3)) && isnan(view_get(&out.view, 30)));
  CHECK(view_get(&out.view, 45) == 0 && view_get(&out.view, 46) > 0);
  sample_destroy(&in);
  sample_destroy(&out);
}

int main(void) {
  load_operators();
  random_init();
  RUN(test_reduce);
  RUN(test_accuracy);
  RUN(test_empty);
  RUN(test_nan);
  RUN(test_threads);
  RUN(test_softmax);
  RUN(test_softmax_special);
  dit_runtime_shutdown();
  return 0;
}
