/// Dropout against its definition: which random number belongs to which element.
#include "diopi_check.h"

/// Numbers follow philox by the row-major number of the element, whatever the strides and threads.
static void test_dropout(void) {
  const int64_t sizes[2] = {37, 1001};
  for (int layout = 0; layout < LAYOUT_EXPANDED; layout++) {
    for (int d = 0; d < 4; d++) {
      struct sample in, out, mask;
      int64_t kept = 0;
      sample_init(&in, float_dtypes[d], 2, sizes, (enum layout)layout);
      sample_init(&out, float_dtypes[d], 2, sizes, LAYOUT_CONTIGUOUS);
      sample_init(&mask, DIT_DTYPE_BOOL, 2, sizes, (enum layout)layout);
      sample_fill(&in, false);
      dit_parallel_set_threads(1 + d);
      struct diopiGenerator generator = {123, 1000};
      CALL(diopiDropout, wrap(&out.view), wrap(&mask.view), wrap(&in.view), 0.25, true, &generator);
      CHECK(generator.offset >= 1000 + (uint64_t)(in.view.numel + 3) / 4);
      for (int64_t i = 0; i < in.view.numel; i++) {
        uint32_t random[4];
        dit_philox_generate(123, 0, 1000 + (uint64_t)i / 4, random);
        bool keep = (double)random[i % 4] < 0.75 * 4294967296.0;
        CHECK((view_get(&mask.view, i) != 0) == keep);
        CHECK(is_close(view_get(&out.view, i), keep ? view_get(&in.view, i) / 0.75L : 0,
                       4 * get_epsilon(float_dtypes[d])));
        kept += keep;
      }
      CHECK(fabs((double)kept / (double)in.view.numel - 0.75) < 0.01);
      sample_destroy(&in);
      sample_destroy(&out);
      sample_destroy(&mask);
    }
  }
  dit_parallel_set_threads(0);
}

/// A smaller mask drops whole rows; NaN stays where it is dropped, as a product gives it.
static void test_features(void) {
  const int64_t sizes[2] = {37, 11}, rows[2] = {37, 1};
  for (int d = 0; d < 4; d++) {
    struct sample in, mask;
    struct diopiGenerator generator = {7, 40};
    int64_t kept = 0;
    sample_init(&in, float_dtypes[d], 2, sizes, LAYOUT_PERMUTED);
    sample_init(&mask, DIT_DTYPE_BOOL, 2, rows, LAYOUT_CONTIGUOUS);
    for (int64_t i = 0; i < in.view.numel; i++) {
      view_set(&in.view, i, i % 11 == 3 ? (long double)NAN : 3);
    }
    CALL(diopiDropoutInp, wrap(&in.view), wrap(&mask.view), 0.25, true, &generator);
    for (int64_t i = 0; i < in.view.numel; i++) {
      uint32_t random[4];
      dit_philox_generate(7, 0, 40 + (uint64_t)(i / 11) / 4, random);
      const bool keep = (double)random[i / 11 % 4] < 0.75 * 4294967296.0;
      const long double want = i % 11 == 3 ? (long double)NAN : keep ? 4 : 0;
      CHECK((view_get(&mask.view, i / 11) != 0) == keep);
      CHECK(is_close(view_get(&in.view, i), want, 1e-6));
      kept += keep;
    }
    CHECK(kept > 0 && kept < in.view.numel);
    sample_destroy(&in);
    sample_destroy(&mask);
  }
}

int main(void) {
  load_operators();
  random_init();
  RUN(test_dropout);
  RUN(test_features);
  dit_runtime_shutdown();
  return 0;
}
