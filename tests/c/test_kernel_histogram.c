/// The histogram kernel against its definition, for every integer dtype and layout, at the ends of the bins and of
/// int64.
#include "kernel_check.h"

static const struct dit_kernel_vtable *kernels;
static const int dtypes[] = {DIT_DTYPE_U8, DIT_DTYPE_I8, DIT_DTYPE_I16, DIT_DTYPE_I32, DIT_DTYPE_I64};

static int64_t count_in_bin(const struct dit_tensor_view *in, int64_t bins, int64_t low, int64_t high, int64_t bin) {
  int64_t count = 0;
  for (int64_t i = 0; i < in->numel; i++) {
    int64_t value = (int64_t)view_get(in, i);
    if (value < low || value > high) {
      continue;
    }
    int64_t found = (value - low) * bins / (high - low);
    count += (found == bins ? bins - 1 : found) == bin;
  }
  return count;
}

static void check(const struct sample *in, int64_t bins, int64_t low, int64_t high, enum layout layout) {
  struct dit_error err = {0};
  struct sample out;
  sample_init(&out, in->view.dtype, 1, &bins, layout);
  CHECK_OK(kernels->histogram(NULL, &out.view, &in->view, low, high, &err));
  if (low == high) {
    low = INT64_MAX;
    high = INT64_MIN;
    for (int64_t i = 0; i < in->view.numel; i++) {
      int64_t value = (int64_t)view_get(&in->view, i);
      low = value < low ? value : low;
      high = value > high ? value : high;
    }
    low -= low == high;
    high += low + 1 == high;
  }
  for (int64_t bin = 0; bin < bins; bin++) {
    CHECK(view_get(&out.view, bin) == count_in_bin(&in->view, bins, low, high, bin));
  }
  sample_destroy(&out);
}

static void test_definition(void) {
  const int64_t sizes[3] = {3, 5, 7};
  for (int d = 0; d < 5; d++) {
    for (int layout = 0; layout < LAYOUT_KINDS; layout++) {
      struct sample in;
      sample_init(&in, dtypes[d], 3, sizes, (enum layout)layout);
      for (int64_t i = 0; i < in.view.numel; i++) {
        view_set(&in.view, i, random_below(40));
      }
      for (int64_t bins = 1; bins < 9; bins++) {
        check(&in, bins, 0, 39, LAYOUT_CONTIGUOUS);
        check(&in, bins, 5, 17, LAYOUT_GAPS);
        check(&in, bins, 0, 0, LAYOUT_CONTIGUOUS);
      }
      sample_destroy(&in);
    }
  }
}

static void test_ends(void) {
  struct dit_error err = {0};
  struct sample in, out;
  const int64_t three = 3, four = 4, none = 0;
  sample_init(&in, DIT_DTYPE_I64, 1, &three, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_I64, 1, &four, LAYOUT_CONTIGUOUS);
  memcpy(in.view.data, (const int64_t[3]){INT64_MIN, INT64_MAX, 0}, 24);
  CHECK_OK(kernels->histogram(NULL, &out.view, &in.view, INT64_MIN, INT64_MAX, &err));
  CHECK(memcmp(out.view.data, (const int64_t[4]){1, 0, 1, 1}, 32) == 0);
  memcpy(in.view.data, (const int64_t[3]){7, 7, 7}, 24);  // one value: the range becomes 6..8
  CHECK_OK(kernels->histogram(NULL, &out.view, &in.view, 0, 0, &err));
  CHECK(memcmp(out.view.data, (const int64_t[4]){0, 0, 3, 0}, 32) == 0);
  struct dit_tensor_view empty = in.view;
  empty.sizes = &none;
  empty.numel = 0;
  CHECK_OK(kernels->histogram(NULL, &out.view, &empty, 0, 0, &err));
  CHECK(memcmp(out.view.data, (const int64_t[4]){0, 0, 0, 0}, 32) == 0);
  sample_destroy(&in);
  sample_destroy(&out);
}

static void test_unsupported(void) {
  struct dit_error err = {0};
  struct sample in, out;
  const int64_t size = 4;
  sample_init(&in, DIT_DTYPE_F32, 1, &size, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_I32, 1, &size, LAYOUT_CONTIGUOUS);
  CHECK(kernels->histogram(NULL, &in.view, &in.view, 0, 1, &err) == DIT_ERR_UNSUPPORTED);
  CHECK(kernels->histogram(NULL, &out.view, &in.view, 0, 1, &err) == DIT_ERR_UNSUPPORTED);
  sample_destroy(&in);
  sample_destroy(&out);
}

int main(void) {
  kernels = load_kernels();
  random_init();
  RUN(test_definition);
  RUN(test_ends);
  RUN(test_unsupported);
  dit_runtime_shutdown();
  return 0;
}
