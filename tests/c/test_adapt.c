/// The adaptor over a library that takes float32 and int32 alone: what is converted, what is written back, what is an
/// error, and that nothing happens where nothing is needed.
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/convert.h"
#include "dit/adapt.h"
#include "dit/alloc.h"
#include "dit/diopi.h"

static struct dit_diopi_library *adapt;
static enum dit_status (*configure)(const char *, const char *, struct dit_error *);
static void (*get_counts)(struct dit_adapt_counts *);
static void (*reset_counts)(void);
static const char *(*get_way)(const char *);
static struct dit_error err;

static const char *const narrow = DIT_TEST_VENDORS "/diopi_narrow.so";

static void *find(const char *name) {
  void *symbol = dlsym(adapt->handle, name);
  CHECK(symbol);
  return symbol;
}

static struct dit_adapt_counts count(void) {
  struct dit_adapt_counts counts;
  get_counts(&counts);
  reset_counts();
  return counts;
}

static diopiTensorHandle_t make(void *data, int ndim, const int64_t *sizes, const int64_t *strides, int dtype) {
  diopiTensorHandle_t tensor = dit_diopi_tensor_create(data, ndim, sizes, strides, dtype, 0);
  CHECK(tensor);
  return tensor;
}

/// diopiExp of `count` elements of a dtype; the library behind doubles.
static diopiError_t run_exp(void *out, void *in, int64_t size, int dtype, const int64_t *stride) {
  struct diopiContext context;
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t y = make(out, 1, &size, NULL, dtype), x = make(in, 1, &size, stride, dtype);
  const diopiError_t code = adapt->functions.diopiExp(&context, y, x);
  dit_diopi_tensor_destroy(x);
  dit_diopi_tensor_destroy(y);
  dit_diopi_context_reset(&context);
  return code;
}

static void test_direct_calls_are_counted_and_untouched(void) {
  float in[5] = {1, 2, 3, 4, 5}, out[5] = {0};
  CHECK_OK(configure(narrow, NULL, &err));
  reset_counts();
  const int64_t before = dit_alloc_get_count();
  CHECK(run_exp(out, in, 5, DIT_DTYPE_F32, NULL) == diopiSuccess && out[4] == 10);
  const struct dit_adapt_counts counts = count();
  CHECK(counts.calls == 1 && counts.direct == 1 && counts.converted == 0 && counts.dtypes == 0 && counts.layouts == 0);
  CHECK(dit_alloc_get_count() - before <= 2);  // the test's own handles
}

static void test_half_is_widened_and_learned(void) {
  uint16_t in[4], out[4];
  int *calls = dlsym(dlopen(narrow, RTLD_NOW | RTLD_LOCAL), "narrow_calls");
  CHECK(calls);
  for (int i = 0; i < 4; i++) {
    in[i] = dit_float_to_f16((float)i + 0.5f);
  }
  CHECK_OK(configure(narrow, NULL, &err));
  reset_counts();
  CHECK(run_exp(out, in, 4, DIT_DTYPE_F16, NULL) == diopiSuccess && dit_float_from_f16(out[3]) == 7);
  struct dit_adapt_counts counts = count();
  CHECK(counts.converted == 1 && counts.dtypes == 2 && counts.written == 1 && counts.direct == 0);
  const int before = *calls;
  CHECK(run_exp(out, in, 4, DIT_DTYPE_F16, NULL) == diopiSuccess);
  CHECK(*calls == before + 1);  // the refused dtype is not tried again
  double wide[2] = {1, 2}, result[2] = {-1, -1};
  CHECK(run_exp(result, wide, 2, DIT_DTYPE_F64, NULL) == diopiDtypeNotSupported && result[0] == -1);
  CHECK(count().refused == 1);
}

static void test_rules_narrow_with_range_checks(void) {
  double in[3] = {1, 1e300, 3}, out[3] = {-1, -1, -1};
  int64_t ints[2] = {7, INT64_C(1) << 40}, result[2] = {-1, -1};
  CHECK_OK(configure(narrow, "- diopiExp:\n    dtype: (float64, int64)->float32\n", &err));
  CHECK(run_exp(out, in, 3, DIT_DTYPE_F64, NULL) == diopiErrorOccurred && out[0] == -1);
  CHECK_CONTAINS(dit_diopi_library_get_error(adapt), "1e+300 (float64) does not fit float32");
  in[1] = INFINITY;
  CHECK(run_exp(out, in, 3, DIT_DTYPE_F64, NULL) == diopiSuccess && out[2] == 6 && isinf(out[1]));
  CHECK(run_exp(result, ints, 2, DIT_DTYPE_I64, NULL) == diopiSuccess && result[0] == 14);
}

static diopiError_t select_rows(int64_t first, float *out) {
  static float table[6] = {0, 1, 2, 3, 4, 5};
  static const int64_t sizes[2] = {3, 2}, picked[2] = {2, 2}, two = 2;
  int64_t index[2] = {first, 0};
  struct diopiContext context;
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t y = make(out, 2, picked, NULL, DIT_DTYPE_F32), x = make(table, 2, sizes, NULL, DIT_DTYPE_F32);
  diopiTensorHandle_t i = make(index, 1, &two, NULL, DIT_DTYPE_I64);
  const diopiError_t code = adapt->functions.diopiIndexSelect(&context, y, x, 0, i);
  dit_diopi_tensor_destroy(i);
  dit_diopi_tensor_destroy(x);
  dit_diopi_tensor_destroy(y);
  dit_diopi_context_reset(&context);
  return code;
}

static void test_indices_become_int32(void) {
  float out[4] = {-1, -1, -1, -1};
  CHECK_OK(configure(narrow, NULL, &err));
  CHECK(select_rows(2, out) == diopiSuccess && out[0] == 4 && out[1] == 5 && out[2] == 0);
  out[0] = -1;
  CHECK(select_rows((INT64_C(1) << 32) + 2, out) == diopiErrorOccurred && out[0] == -1);
  CHECK_CONTAINS(dit_diopi_library_get_error(adapt), "does not fit int32");
  CHECK_OK(configure(narrow, "- diopiIndexSelect:\n    tensor_dtype:\n      index: (int64)->int32\n", &err));
  CHECK(select_rows(1, out) == diopiSuccess && out[0] == 2);
}

static void test_in_out_tensors_are_read_and_written(void) {
  const int64_t size = 3, stride = 2;
  uint16_t param[3], buf[6];
  float grad[3] = {1, 2, 3};
  struct diopiContext context;
  for (int i = 0; i < 3; i++) {
    param[i] = dit_float_to_bf16(10);
    buf[2 * i] = dit_float_to_bf16((float)i);
    buf[2 * i + 1] = 0x1234;
  }
  CHECK_OK(configure(narrow, NULL, &err));
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t p = make(param, 1, &size, NULL, DIT_DTYPE_BF16), g = make(grad, 1, &size, NULL, DIT_DTYPE_F32);
  diopiTensorHandle_t b = make(buf, 1, &size, &stride, DIT_DTYPE_BF16);
  CHECK(adapt->functions.diopiSgd(&context, p, g, b, 1.0, 0, 0, 0, false) == diopiSuccess);
  for (int i = 0; i < 3; i++) {
    CHECK(dit_float_from_bf16(param[i]) == (float)(9 - i) && dit_float_from_bf16(buf[2 * i]) == (float)(i + 1));
    CHECK(buf[2 * i + 1] == 0x1234 && grad[i] == (float)(i + 1));
  }
  dit_diopi_tensor_destroy(b);
  dit_diopi_tensor_destroy(g);
  dit_diopi_tensor_destroy(p);
  dit_diopi_context_reset(&context);
}

static void test_errors_are_passed_on_and_write_nothing(void) {
  uint16_t in[13], out[13];
  memset(in, 0, sizeof in);
  memset(out, 0x55, sizeof out);
  CHECK_OK(configure(narrow, NULL, &err));
  CHECK(run_exp(out, in, 13, DIT_DTYPE_F16, NULL) == diopiErrorOccurred && out[0] == 0x5555 && out[12] == 0x5555);
  CHECK_CONTAINS(dit_diopi_library_get_error(adapt), "narrow: not for me");
}

static void test_layouts(void) {
  static const int64_t sizes[4] = {1, 2, 2, 3};
  float in[12], out[12];
  struct diopiContext context;
  for (int i = 0; i < 12; i++) {
    in[i] = (float)i;
    out[i] = -1;
  }
  CHECK_OK(configure(narrow, "- common_config:\n    layout: NHWC\n", &err));
  reset_counts();
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t y = make(out, 4, sizes, NULL, DIT_DTYPE_F32), x = make(in, 4, sizes, NULL, DIT_DTYPE_F32);
  CHECK(adapt->functions.diopiExp(&context, y, x) == diopiSuccess);
  for (int i = 0; i < 12; i++) {
    CHECK(out[i] == 2 * in[i]);
  }
  CHECK(count().layouts == 2);
  dit_diopi_tensor_destroy(x);
  dit_diopi_tensor_destroy(y);
  dit_diopi_context_reset(&context);
  const int64_t step = 2;
  CHECK(run_exp(out, in, 3, DIT_DTYPE_F32, &step) == diopiSuccess && out[2] == 8);
  CHECK_OK(configure(narrow, "- diopiExp:\n    layout: ND\n", &err));
  CHECK(run_exp(out, in, 3, DIT_DTYPE_F32, &step) == diopiErrorOccurred);  // nothing may be changed, as the rule says
}

static void test_rules_that_the_library_tells(void) {
  static const char telling[] = DIT_TEST_VENDORS "/diopi_telling.so";
  uint16_t in[2] = {dit_float_to_f16(1), dit_float_to_f16(2)}, out[2];
  float wide[4] = {1, 2, 3, 4}, result[2];
  const int64_t step = 2;
  int *calls = dlsym(dlopen(telling, RTLD_NOW | RTLD_LOCAL), "narrow_calls");
  CHECK_OK(configure(telling, NULL, &err));
  CHECK(calls && run_exp(out, in, 2, DIT_DTYPE_F16, NULL) == diopiSuccess && dit_float_from_f16(out[1]) == 4);
  CHECK(*calls == 1);  // nothing had to be refused first
  CHECK(run_exp(result, wide, 2, DIT_DTYPE_F32, &step) == diopiSuccess && result[1] == 6);
  CHECK(strcmp(get_way("diopiSgd"), "none") == 0);
  diopiExtSupport_t support = {.struct_size = sizeof support};
  CHECK(adapt->ext_get_support("diopiExp", &support) == diopiSuccess && support.dtypes >> diopi_dtype_float16 & 1 &&
        !(support.dtypes >> diopi_dtype_float64 & 1) && support.layouts & diopiExtStrided);
}

static void test_results_that_the_library_makes(void) {
  const int64_t size = 3;
  uint16_t in[3] = {dit_float_to_f16(1), dit_float_to_f16(2), dit_float_to_f16(3)};
  unsigned char mask[3] = {1, 0, 1};
  struct diopiContext context;
  diopiTensorHandle_t made = NULL;
  CHECK_OK(configure(narrow, NULL, &err));
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t x = make(in, 1, &size, NULL, DIT_DTYPE_F16), m = make(mask, 1, &size, NULL, DIT_DTYPE_BOOL);
  CHECK(adapt->functions.diopiMaskedSelect(&context, &made, x, m) == diopiSuccess);
  CHECK(made && dit_diopi_context_owns(&context, made) && made->view.dtype == DIT_DTYPE_F16 && made->view.numel == 2);
  CHECK(dit_float_from_f16(((uint16_t *)made->view.data)[1]) == 3);
  dit_diopi_tensor_destroy(m);
  dit_diopi_tensor_destroy(x);
  dit_diopi_context_reset(&context);
}

static void test_outputs_that_are_written_in_part(void) {
  static const int64_t one = 1, four = 4;
  uint16_t out[4], in = dit_float_to_f16(9);
  int64_t at = 2;
  struct diopiContext context;
  for (int i = 0; i < 4; i++) {
    out[i] = dit_float_to_f16((float)i);
  }
  CHECK_OK(configure(narrow, NULL, &err));
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t y = make(out, 1, &four, NULL, DIT_DTYPE_F16), x = make(&in, 1, &one, NULL, DIT_DTYPE_F16);
  diopiTensorHandle_t i = make(&at, 1, &one, NULL, DIT_DTYPE_I64);
  CHECK(adapt->functions.diopiDestIndexCopyKV(&context, y, x, i) == diopiSuccess);
  CHECK(dit_float_from_f16(out[1]) == 1 && dit_float_from_f16(out[2]) == 9 && dit_float_from_f16(out[3]) == 3);
  dit_diopi_tensor_destroy(i);
  dit_diopi_tensor_destroy(x);
  dit_diopi_tensor_destroy(y);
  dit_diopi_context_reset(&context);
}

static void test_in_place_by_out_of_place(void) {
  const int64_t size = 3;
  float data[3] = {1, 2, 3};
  struct diopiContext context;
  CHECK_OK(configure(narrow, NULL, &err));
  CHECK(strcmp(get_way("diopiExpInp"), "composed") == 0 && strcmp(get_way("diopiExp"), "direct") == 0);
  CHECK(strcmp(get_way("diopiConvolution2d"), "none") == 0 && get_way("diopiNothing") == NULL);
  CHECK_OK(configure(narrow, "- diopiExpInp:\n    supportComposite: false\n", &err));
  CHECK(strcmp(get_way("diopiExpInp"), "none") == 0);
  CHECK_OK(configure(narrow, NULL, &err));
  diopiExtSupport_t support = {.struct_size = sizeof support};
  CHECK(adapt->ext_get_support("diopiConvolution2d", &support) == diopiNoImplement);
  dit_diopi_context_init(&context, 0, NULL);
  diopiTensorHandle_t x = make(data, 1, &size, NULL, DIT_DTYPE_F32);
  union dit_diopi_value values[2] = {{.context = &context}, {.tensor = x}};
  CHECK(dit_diopi_invoke(&adapt->functions, DIT_DIOPI_diopiExpInp, values) == diopiSuccess && data[2] == 6);
  dit_diopi_tensor_destroy(x);
  dit_diopi_context_reset(&context);
}

static void *run_many(void *argument) {
  uint16_t in[64], out[64];
  for (int round = 0; round < 200; round++) {
    for (int i = 0; i < 64; i++) {
      in[i] = dit_float_to_f16((float)(i + *(int *)argument));
    }
    CHECK(run_exp(out, in, 64, DIT_DTYPE_F16, NULL) == diopiSuccess);
    for (int i = 0; i < 64; i++) {
      CHECK(dit_float_from_f16(out[i]) == 2 * (float)(i + *(int *)argument));
    }
  }
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  int numbers[4];
  CHECK_OK(configure(narrow, NULL, &err));
  for (int i = 0; i < 4; i++) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[i], NULL, run_many, &numbers[i]) == 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
}

static void test_without_memory(void) {
  uint16_t in[4] = {0}, out[4];
  int failures = 0;
  CHECK_OK(configure(narrow, NULL, &err));
  CHECK(run_exp(out, in, 4, DIT_DTYPE_F16, NULL) == diopiSuccess);
  const int64_t four = 4;
  diopiTensorHandle_t y = make(out, 1, &four, NULL, DIT_DTYPE_F16), x = make(in, 1, &four, NULL, DIT_DTYPE_F16);
  for (int after = 0; after < 8; after++) {
    struct diopiContext context;
    dit_diopi_context_init(&context, 0, NULL);
    const int64_t live = dit_alloc_get_live();
    memset(out, 0x55, sizeof out);
    dit_alloc_set_failure(after);
    const diopiError_t code = adapt->functions.diopiExp(&context, y, x);
    dit_alloc_set_failure(-1);
    CHECK(code == diopiSuccess || (code == diopiErrorOccurred && out[0] == 0x5555));
    failures += code != diopiSuccess;
    dit_diopi_context_reset(&context);
    CHECK(dit_alloc_get_live() == live);
  }
  CHECK(failures >= 3);
  dit_diopi_tensor_destroy(x);
  dit_diopi_tensor_destroy(y);
}

static void test_bad_libraries(void) {
  CHECK(configure("adapt", NULL, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "would wrap itself");
  CHECK(configure("no_such_library", NULL, &err) != DIT_OK);
  CHECK_CONTAINS(err.message, "no_such_library");
}

int main(void) {
  setenv("DITORCH_ADAPT_LIB", narrow, 1);  // what it cannot do is left out of the table when the adaptor is opened
  unsetenv("DITORCH_ADAPT_RULES");
  CHECK_OK(dit_diopi_library_open("adapt", &adapt, &err));
  *(void **)&configure = find("dit_adapt_configure");
  *(void **)&get_counts = find("dit_adapt_get_counts");
  *(void **)&reset_counts = find("dit_adapt_reset_counts");
  *(void **)&get_way = find("dit_adapt_get_way");
  RUN(test_direct_calls_are_counted_and_untouched);
  RUN(test_half_is_widened_and_learned);
  RUN(test_rules_narrow_with_range_checks);
  RUN(test_indices_become_int32);
  RUN(test_in_out_tensors_are_read_and_written);
  RUN(test_errors_are_passed_on_and_write_nothing);
  RUN(test_layouts);
  RUN(test_rules_that_the_library_tells);
  RUN(test_results_that_the_library_makes);
  RUN(test_outputs_that_are_written_in_part);
  RUN(test_in_place_by_out_of_place);
  RUN(test_threads);
  RUN(test_without_memory);
  RUN(test_bad_libraries);
  dit_diopi_library_close(adapt);
  return 0;
}
