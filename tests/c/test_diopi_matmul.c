/// Matrix products (diopiBmm, diopiBaddbmm) against long double: every dtype, strides, batch, alpha and beta, BLAS or
/// built-in (the built-in code is also tested when DITORCH_HOST_BLAS is not "none": strides that BLAS cannot take go
/// there).
#include "diopi_check.h"

static const int gemm_dtypes[] = {DIT_DTYPE_F32, DIT_DTYPE_F64, DIT_DTYPE_F16, DIT_DTYPE_BF16,
                                  DIT_DTYPE_I64, DIT_DTYPE_I32, DIT_DTYPE_U8,  DIT_DTYPE_I8};

static int64_t draw_size(const struct test_case *test) {
  return random_below(12) == 0 ? 0 : 1 + random_below(test->size_limit > 90 ? 90 : test->size_limit);
}

/// All elements, in row-major order; the caller frees them.
static long double *decode(const struct sample *sample) {
  long double *values = malloc(sizeof(long double) * (size_t)(sample->view.numel + 1));
  CHECK(values);
  for (int64_t i = 0; i < sample->view.numel; i++) {
    values[i] = view_get(&sample->view, i);
  }
  return values;
}

static long double wrap_round(int dtype, long double value) {
  if (is_floating(dtype)) {
    return value;
  }
  int shift = 64 - 8 * (int)dit_dtype_get_size(dtype);
  uint64_t bits = (uint64_t)(int64_t)value << shift;
  return dtype == DIT_DTYPE_U8 ? (long double)(bits >> shift) : (long double)((int64_t)bits >> shift);
}

static bool compare(const struct sample *out, const struct sample *a, const struct sample *b, const struct sample *bias,
                    double alpha, double beta) {
  const int64_t k = a->sizes[2], n = out->sizes[2], m = out->sizes[1];
  int dtype = out->view.dtype;
  bool ok = true;
  long double *left = decode(a), *right = decode(b);
  for (int64_t i = 0; i < out->view.numel && ok; i++) {
    int64_t column = i % n, row = i / n % m, batch = i / n / m;
    long double sum = 0, size = 0;
    for (int64_t j = 0; j < k; j++) {
      long double product = left[(batch * m + row) * k + j] * right[(batch * k + j) * n + column];
      sum += product;
      size += fabsl(product);
    }
    sum *= (long double)alpha;
    if (bias && beta != 0) {
      sum += (long double)beta * view_get(&bias->view, i);
      size += fabsl((long double)beta * view_get(&bias->view, i));
    }
    int work = dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
    double tolerance = is_floating(dtype)
                           ? (double)(size * (long double)fabs(alpha) + size) * get_epsilon(work) * (double)(k + 4) +
                                 1.01 * get_epsilon(dtype) * (double)fabsl(sum)
                           : 0;
    long double got = view_get(&out->view, i), want = wrap_round(dtype, sum);
    ok = is_close(got, want, tolerance) || report("gemm", i, got, want);
  }
  free(left);
  free(right);
  return ok;
}

static bool check_gemm(const struct test_case *test) {
  struct sample out, a, b, bias;
  const int64_t batch = 1 + random_below(3), m = draw_size(test), n = draw_size(test), k = draw_size(test);
  int dtype = gemm_dtypes[random_below(8)];
  double alpha = random_below(2) ? 1 : 3, beta = random_below(3) == 0 ? 0 : (double)(1 + random_below(2));
  bool with_bias = random_below(2);
  const int64_t a_sizes[3] = {batch, m, k}, b_sizes[3] = {batch, k, n}, sizes[3] = {batch, m, n};
  sample_init(&a, dtype, 3, a_sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&b, dtype, 3, b_sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&bias, dtype, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
  sample_init(&out, dtype, 3, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
  sample_fill(&a, false);
  sample_fill(&b, false);
  sample_fill(&bias, false);
  if (with_bias) {
    CALL(diopiBaddbmm, wrap(&out.view), wrap(&bias.view), wrap(&a.view), wrap(&b.view), beta, alpha);
  } else {
    CALL(diopiBmm, wrap(&out.view), wrap(&a.view), wrap(&b.view));
  }
  bool ok = compare(&out, &a, &b, with_bias ? &bias : NULL, with_bias ? alpha : 1, beta);
  sample_destroy(&out);
  sample_destroy(&a);
  sample_destroy(&b);
  sample_destroy(&bias);
  return ok;
}

static void test_gemm(void) {
  run_cases("gemm", check_gemm, 600);
}

/// Sizes that are cut into tiles and depth blocks, transposed inputs, threads, and no memory at all.
static void test_large(void) {
  for (int round = 0; round < 6; round++) {
    struct sample out, a, b, bias;
    int dtype = round < 2 ? DIT_DTYPE_F32 : round < 4 ? DIT_DTYPE_F64 : DIT_DTYPE_BF16;
    const int64_t sizes_a[3] = {1, 150, 300}, sizes_b[3] = {1, 300, 170}, sizes[3] = {1, 150, 170};
    sample_init(&a, dtype, 3, sizes_a, round & 1 ? LAYOUT_PERMUTED : LAYOUT_CONTIGUOUS);
    sample_init(&b, dtype, 3, sizes_b, round & 1 ? LAYOUT_GAPS : LAYOUT_CONTIGUOUS);
    sample_init(&out, dtype, 3, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&bias, dtype, 3, sizes, LAYOUT_EXPANDED);
    sample_fill(&a, false);
    sample_fill(&b, false);
    sample_fill(&bias, false);
    dit_parallel_set_threads(1 + round % 3);
    CALL(diopiBaddbmm, wrap(&out.view), wrap(&bias.view), wrap(&a.view), wrap(&b.view), 2, 1);
    CHECK(compare(&out, &a, &b, &bias, 1, 2));
    memset(out.view.data, 0xFF, (size_t)out.view.numel * dit_dtype_get_size(dtype));
    dit_alloc_set_failure(0);
    CALL(diopiBmm, wrap(&out.view), wrap(&a.view), wrap(&b.view));
    dit_alloc_set_failure(-1);
    CHECK(compare(&out, &a, &b, NULL, 1, 0));
    sample_destroy(&out);
    sample_destroy(&a);
    sample_destroy(&b);
    sample_destroy(&bias);
  }
  dit_parallel_set_threads(0);
}

/// beta 0 ignores a NaN bias and what the result held; an empty sum leaves beta * bias.
static void test_special(void) {
  static const int64_t shapes[2] = {5, 40};
  for (int i = 0; i < 2; i++) {
    const int64_t n = shapes[i], sizes[3] = {1, n, n}, thin[3] = {1, n, 0}, flat[3] = {1, 0, n};
    struct sample out, a, bias, none_a, none_b;
    sample_init(&out, DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&a, DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&bias, DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&none_a, DIT_DTYPE_F32, 3, thin, LAYOUT_CONTIGUOUS);
    sample_init(&none_b, DIT_DTYPE_F32, 3, flat, LAYOUT_CONTIGUOUS);
    sample_fill(&a, false);
    for (int64_t j = 0; j < out.view.numel; j++) {
      view_set(&bias.view, j, NAN);
      view_set(&out.view, j, NAN);
    }
    CALL(diopiBaddbmm, wrap(&out.view), wrap(&bias.view), wrap(&a.view), wrap(&a.view), 0, 1);
    CHECK(compare(&out, &a, &a, NULL, 1, 0));
    sample_fill(&bias, false);
    CALL(diopiBaddbmm, wrap(&out.view), wrap(&bias.view), wrap(&none_a.view), wrap(&none_b.view), 2, 1);
    for (int64_t j = 0; j < out.view.numel; j++) {
      CHECK(view_get(&out.view, j) == 2 * view_get(&bias.view, j));
    }
    CALL(diopiBmm, wrap(&out.view), wrap(&none_a.view), wrap(&none_b.view));
    CHECK(view_get(&out.view, 3) == 0);
    sample_destroy(&out);
    sample_destroy(&a);
    sample_destroy(&bias);
    sample_destroy(&none_a);
    sample_destroy(&none_b);
  }
}

/// argv[1] "none" or a path: the BLAS to use.
int main(int argc, char **argv) {
  struct dit_error err = {0};
  if (argc > 1) {
    CHECK_OK(dit_option_set("host_blas", argv[1], &err));
  }
  load_operators();
  random_init();
  RUN(test_gemm);
  RUN(test_large);
  RUN(test_special);
  dit_runtime_shutdown();
  return 0;
}
