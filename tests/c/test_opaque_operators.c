/// Operators of the opaque device: computed behind the closed mapping, queued everywhere, failing late and by name.
#include "device_test.h"
#include "dit/diopi.h"
#include "dit/gate.h"
#include "dit/memory.h"

static struct dit_diopi_library *library;

static void start(const char *mishaps, const char *missing) {
  struct dit_error err = {0};
  dit_diopi_library_close(library);
  library = NULL;
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_option_set("host_memory", "64MiB", &err));
  CHECK_OK(dit_option_set("opaque", mishaps, &err));
  CHECK_OK(dit_option_set("opaque_missing", missing, &err));
  CHECK_OK(dit_runtime_init("opaque", &err));
  CHECK_OK(dit_diopi_library_open("opaque", &library, &err));
}

/// A tensor of the device with `count` numbers; strides NULL: one dimension.
static diopiTensorHandle_t make(const float *numbers, int64_t count, int ndim, const int64_t *sizes,
                                const int64_t *strides) {
  struct dit_error err = {0};
  void *memory = NULL;
  CHECK_OK(dit_memory_alloc(0, 0, (size_t)count * 4, &memory, &err));
  if (numbers) {
    CHECK_OK(dit_memory_copy(memory, 0, numbers, -1, (size_t)count * 4, 0, 0, false, &err));
  }
  diopiTensorHandle_t made = dit_diopi_tensor_create(memory, ndim, sizes, strides, DIT_DTYPE_F32, 0);
  CHECK(made);
  return made;
}

static void drop(diopiTensorHandle_t tensor) {
  dit_memory_free(tensor->view.data);
  dit_diopi_tensor_destroy(tensor);
}

static enum dit_status read_out(const void *device, void *to, size_t size, struct dit_error *err) {
  return dit_memory_copy(to, -1, device, 0, size, 0, 0, false, err);
}

static void test_add_and_cat(void) {
  struct dit_error err = {0};
  static const float numbers[] = {1, 2, 3, 4, 5, 6};
  const int64_t six = 6, twelve = 12, sizes[] = {3, 2}, strides[] = {1, 3};
  float got[12];
  start("", "");
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t a = make(numbers, 6, 1, &six, NULL), out = make(NULL, 6, 1, &six, NULL),
                      long_out = make(NULL, 12, 1, &twelve, NULL);
  const diopiScalar_t one = {.stype = diopi_dtype_float64, .fval = 1};
  CHECK(library->functions.diopiAdd(context, out, a, a, &one) == diopiSuccess);
  diopiConstTensorHandle_t list[] = {a, out};
  CHECK(library->functions.diopiCat(context, long_out, list, 2, 0) == diopiSuccess);
  CHECK_OK(read_out(long_out->view.data, got, sizeof got, &err));
  for (int i = 0; i < 12; i++) {
    CHECK(got[i] == numbers[i % 6] * (i < 6 ? 1 : 2));
  }
  diopiTensorHandle_t columns = make(numbers, 6, 2, sizes, strides), rows = make(NULL, 6, 2, sizes, NULL);
  CHECK(library->functions.diopiMulScalar(context, rows, columns, &one) == diopiSuccess);
  CHECK_OK(read_out(rows->view.data, got, 6 * sizeof(float), &err));
  CHECK(got[0] == 1 && got[1] == 4 && got[2] == 2 && got[5] == 6);
  drop(a), drop(out), drop(long_out), drop(columns), drop(rows);
  dit_diopi_context_destroy(context);
}

/// A result that the library makes is the caller's: its address is the device's, not where it was computed.
static void test_results_that_are_made(void) {
  struct dit_error err = {0};
  static const float numbers[] = {0, 2, 0, 4};
  const int64_t four = 4;
  int64_t places[2] = {0, 0};
  void *base;
  size_t size;
  int device = -1;
  start("", "");
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t input = make(numbers, 4, 1, &four, NULL), out = NULL;
  CHECK(library->functions.diopiNonzero(context, &out, input) == diopiSuccess);
  CHECK(out && out->view.numel == 2 && dit_diopi_context_owns(context, out));
  CHECK(dit_memory_find(out->view.data, &base, &size, &device) && device == 0);
  CHECK_OK(read_out(out->view.data, places, sizeof places, &err));
  CHECK(places[0] == 1 && places[1] == 3);
  drop(input);
  dit_diopi_context_destroy(context);
}

static void test_missing(void) {
  const int64_t four = 4, sizes[] = {2, 2}, strides[] = {1, 2};
  diopiExtSupport_t support = {.struct_size = sizeof support};
  const diopiScalar_t one = {.stype = diopi_dtype_float64, .fval = 1};
  start("", "diopiAdd,diopi*Backward,dtype:bfloat16,layout:channels_last");
  CHECK(!library->functions.diopiAdd && !library->functions.diopiHardtanhBackward && library->functions.diopiRelu);
  CHECK(library->ext_get_support("diopiAdd", &support) == diopiNoImplement);
  CHECK(library->ext_get_support("diopiRelu", &support) == diopiSuccess);
  CHECK(!(support.dtypes & 1u << diopi_dtype_bfloat16) && support.dtypes & 1u << diopi_dtype_float32);
  CHECK(support.layouts == (diopiExtContiguous | diopiExtStrided));
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t turned = make(NULL, 4, 2, sizes, strides), flat = make(NULL, 4, 1, &four, NULL),
                      square = make(NULL, 4, 2, sizes, NULL);
  CHECK(library->functions.diopiMulScalar(context, square, turned, &one) == diopiForceFallbackToCPU);
  flat->view.dtype = DIT_DTYPE_BF16;
  CHECK(library->functions.diopiMulScalar(context, flat, flat, &one) == diopiDtypeNotSupported);
  drop(turned), drop(flat), drop(square);
  dit_diopi_context_destroy(context);
  static const char *const wrong[][2] = {{"diopiAd", "did you mean 'diopiAdd'"},
                                         {"dtype:float31", "did you mean 'dtype:float32'"},
                                         {"layout:stridden", "did you mean 'layout:strided'"},
                                         {"kernel:copi", "did you mean 'kernel:copy'"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    struct dit_error err = {0};
    dit_runtime_shutdown();
    CHECK_OK(dit_option_set("opaque_missing", wrong[i][0], &err));
    CHECK(dit_runtime_init("opaque", &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, wrong[i][1]);
  }
}

static void test_failures_carry_the_name(void) {
  struct dit_error err = {0};
  static const float numbers[] = {1, 2, 3, 4};
  const int64_t four = 4;
  float got[4] = {0};
  start("fail:2", "");  // the copy in is the first piece of work
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t a = make(numbers, 4, 1, &four, NULL);
  CHECK(library->functions.diopiReluInp(context, a) == diopiSuccess);  // nobody knows yet
  CHECK(dit_device_synchronize(0, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "diopiReluInp failed");
  CHECK(library->functions.diopiReluInp(context, a) == diopiErrorOccurred);
  CHECK_CONTAINS(dit_diopi_library_get_error(library), "diopiReluInp failed");
  CHECK(dit_diopi_library_get_failure(library) == diopiExtFailureOther);
  CHECK(read_out(a->view.data, got, sizeof got, &err) == DIT_ERR_DEVICE);
  CHECK_OK(dit_runtime_get_vtable()->reset(0, &err));
  CHECK(library->functions.diopiReluInp(context, a) == diopiSuccess);
  CHECK_OK(read_out(a->view.data, got, sizeof got, &err));
  CHECK(got[0] == 1 && got[3] == 4);
  drop(a);
  dit_diopi_context_destroy(context);
}

/// A tensor that is not the device's is refused before anything is computed.
static void test_foreign_memory(void) {
  const int64_t four = 4;
  float here[4] = {-1, -1, -1, -1};
  start("", "");
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t foreign = dit_diopi_tensor_create(here, 1, &four, NULL, DIT_DTYPE_F32, 0);
  CHECK(library->functions.diopiReluInp(context, foreign) == diopiErrorOccurred);
  CHECK_CONTAINS(dit_diopi_library_get_error(library), "not in the device's memory");
  CHECK(library->functions.diopiReluInp(NULL, foreign) == diopiErrorOccurred);
  CHECK(here[0] == -1);
  dit_diopi_tensor_destroy(foreign);
  dit_diopi_context_destroy(context);
}

int main(void) {
  RUN(test_add_and_cat);
  RUN(test_results_that_are_made);
  RUN(test_missing);
  RUN(test_failures_carry_the_name);
  RUN(test_foreign_memory);
  dit_diopi_library_close(library);
  return 0;
}
