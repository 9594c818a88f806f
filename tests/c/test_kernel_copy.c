/// The copy kernel against the definition, over random dtypes, shapes and strides.
#include "kernel_check.h"

static const struct dit_kernel_vtable *kernels;

static uint64_t wrap_bits(int dtype, uint64_t bits) {
  int shift = 64 - 8 * (int)dit_dtype_get_size(dtype);
  bits <<= shift;
  return dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_UINT ? bits >> shift : (uint64_t)((int64_t)bits >> shift);
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

int main(void) {
  kernels = load_kernels();
  random_init();
  RUN(test_copy);
  RUN(test_transpose);
  dit_runtime_shutdown();
  return 0;
}
