/// The library that lies: every kind of fault changes what it says it changes, and nothing happens without a rule.
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dit/diopi.h"
#include "dit/fault.h"
#include "dit/runtime.h"

#define ROWS 3
#define COLUMNS 4
#define COUNT (ROWS * COLUMNS)

static struct dit_diopi_library *faulty;
static enum dit_status (*configure)(const char *, struct dit_error *);
static uint64_t (*get_count)(void);
static struct dit_error err;

/// softmax over the last dimension, with a guard of one element behind the output.
static float input[COUNT + 1], output[COUNT + 1], clean[COUNT];

static void get_storage(const struct diopiTensor *tensor, void **base, size_t *size) {
  (void)tensor;
  *base = input;
  *size = sizeof input;
}

/// `strided`: the input is the transpose of a matrix; `offset`: it begins one element later.
static diopiError_t run_softmax(bool strided, bool offset) {
  static const int64_t sizes[2] = {ROWS, COLUMNS}, rows[2] = {COLUMNS, 1}, columns[2] = {1, ROWS};
  for (int i = 0; i <= COUNT; i++) {
    input[i] = (float)(i * i % 7) / 3.0f;
    output[i] = -5.0f;
  }
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t out = dit_diopi_tensor_create(output, 2, sizes, NULL, DIT_DTYPE_F32, 0);
  diopiTensorHandle_t in =
      dit_diopi_tensor_create(input + offset, 2, sizes, strided ? columns : rows, DIT_DTYPE_F32, 0);
  CHECK(context && out && in);
  in->get_storage = get_storage;
  diopiError_t code = faulty->functions.diopiSoftmax(context, out, in, 1);
  dit_diopi_tensor_destroy(in);
  dit_diopi_tensor_destroy(out);
  dit_diopi_context_destroy(context);
  return code;
}

static void expect_clean(bool strided, bool offset) {
  CHECK_OK(configure("", &err));
  CHECK(run_softmax(strided, offset) == diopiSuccess);
  memcpy(clean, output, sizeof clean);
}

static int count_differences(void) {
  int differences = 0;
  for (int i = 0; i < COUNT; i++) {
    differences += memcmp(&output[i], &clean[i], sizeof(float)) != 0;
  }
  return differences;
}

static void test_outputs(void) {
  expect_clean(false, false);
  CHECK(output[COUNT] == -5.0f && get_count() == 0);
  CHECK_OK(configure("value:diopiSoftmax,index=5", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 1 && output[5] != clean[5]);
  CHECK(get_count() == 1);
  CHECK_OK(configure("nan:diopiSoft*,index=2", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 1 && isnan(output[2]));
  CHECK_OK(configure("precision:*,bits=3", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() > COUNT / 2);
  CHECK_OK(configure("unwritten:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && output[0] == -5.0f && output[COUNT - 1] == -5.0f);
  CHECK_OK(configure("outside:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 0 && output[COUNT] != -5.0f);
  CHECK_OK(configure("random:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 0);
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 1);
}

static void test_inputs(void) {
  expect_clean(false, false);
  const float before = input[0];
  CHECK_OK(configure("input:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 0 && input[0] != before);
  CHECK_OK(configure("stride:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 0 && get_count() == 0);
  expect_clean(true, false);
  CHECK_OK(configure("stride:diopiSoftmax", &err));
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() > 0 && get_count() == 1);
  expect_clean(false, true);
  CHECK_OK(configure("offset:diopiSoftmax", &err));
  CHECK(run_softmax(false, true) == diopiSuccess && count_differences() > 0 && get_count() == 1);
  CHECK_OK(configure("dtype:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiDtypeNotSupported);  // softmax has no int32
}

/// A list's first tensor is altered for the call alone: the caller finds its list, and its handles, as they were.
static void test_lists(void) {
  static const int64_t size = COUNT / 2;
  const float row[COUNT / 2] = {1, 2, 3, 4, 5, 6};
  float joined[COUNT];
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t out = dit_diopi_tensor_create(joined, 1, (int64_t[]){COUNT}, NULL, DIT_DTYPE_F32, 0);
  diopiTensorHandle_t made[2], list[2];
  for (int i = 0; i < 2; i++) {
    list[i] = made[i] = dit_diopi_tensor_create((void *)row, 1, &size, NULL, DIT_DTYPE_F32, 0);
    CHECK(made[i]);
  }
  CHECK_OK(configure("dtype:diopiCat", &err));  // int32 bits become floating numbers
  CHECK(faulty->functions.diopiCat(context, out, (diopiConstTensorHandle_t *)list, 2, 0) == diopiSuccess);
  CHECK(joined[0] != 1 && joined[COUNT / 2] == 1 && get_count() == 1);
  CHECK(list[0] == made[0] && list[1] == made[1] && made[0]->view.dtype == DIT_DTYPE_F32);
  CHECK_OK(configure("", &err));
  CHECK(faulty->functions.diopiCat(context, out, (diopiConstTensorHandle_t *)list, 2, 0) == diopiSuccess);
  CHECK(joined[0] == 1 && joined[COUNT - 1] == 6);
  dit_diopi_tensor_destroy(made[0]);
  dit_diopi_tensor_destroy(made[1]);
  dit_diopi_tensor_destroy(out);
  dit_diopi_context_destroy(context);
}

static void test_choice(void) {
  expect_clean(true, false);
  CHECK_OK(configure("value:diopiAdd", &err));
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() == 0);
  CHECK_OK(configure("value:*,dtype=float64", &err));
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() == 0);
  CHECK_OK(configure("value:*,when=empty", &err));
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() == 0);
  CHECK_OK(configure("value:*,when=strided", &err));
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() == 1);
  CHECK_OK(configure("value:*,call=2", &err));
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() == 0);
  CHECK(run_softmax(true, false) == diopiSuccess && count_differences() == 1);
  CHECK(configure("value:*,when=blue", &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "expanded");
  CHECK(configure("burn:*", &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "outside");
}

static void test_failures(void) {
  CHECK_OK(configure("error:diopiSoftmax", &err));
  CHECK(run_softmax(false, false) == diopiErrorOccurred && output[0] == -5.0f);
  CHECK_CONTAINS(dit_diopi_library_get_error(faulty), "injected fault: diopiSoftmax");
  CHECK_OK(configure("", &err));
#if !CHECK_SANITIZED
  CHECK_OK(configure("crash:diopiSoftmax", &err));
  pid_t child = fork();
  if (child == 0) {
    run_softmax(false, false);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
}

/// One sound call says which kinds would act on it.
static void test_probe(void) {
  int (*find_kind)(const char *);
  int (*count_kinds)(void);
  void (*probe)(unsigned char *);
  void *symbol = dlsym(faulty->handle, "dit_faulty_find_kind");
  memcpy(&find_kind, &symbol, sizeof find_kind);
  symbol = dlsym(faulty->handle, "dit_faulty_count_kinds");
  memcpy(&count_kinds, &symbol, sizeof count_kinds);
  symbol = dlsym(faulty->handle, "dit_faulty_probe");
  memcpy(&probe, &symbol, sizeof probe);
  CHECK(find_kind && count_kinds && probe && find_kind("burn") == -1 && count_kinds() < 256);
  static const struct {
    const char *kind;
    bool acts;
  } expected[] = {
      {"last_element", true},       {"tail_not_read", false},
      {"tail_of_16", true},         {"first_65535", false},
      {"dim_below_1_last", false},  {"nan_dropped", false},
      {"rows_repeated", true},      {"large_clipped", false},
      {"output_strides", false},    {"float32_in_11_bits", true},
      {"accumulates", true},        {"five_dims", false},
      {"last_input_ignored", true}, {"value", true},
      {"stale_size", true},         {"error_swallowed", true},  // not tried: they might act
  };
  unsigned char table[256] = {0};
  expect_clean(false, false);
  CHECK_OK(configure("nan:*", &err));
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    table[find_kind(expected[i].kind)] = 1;
  }
  probe(table);
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 0 && get_count() == 0);
  CHECK(output[COUNT] == -5.0f);
  probe(NULL);
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    if (table[find_kind(expected[i].kind)] != 1 + expected[i].acts) {
      fprintf(stderr, "%s: not %s\n", expected[i].kind, expected[i].acts ? "acting" : "idle");
      CHECK(false);
    }
  }
  CHECK(table[find_kind("last_row")] == 0);                                      // nobody asked
  CHECK(run_softmax(false, false) == diopiSuccess && count_differences() == 1);  // the rule again
  CHECK_OK(configure("", &err));
}

int main(void) {
  CHECK_OK(dit_diopi_library_open("faulty", &faulty, &err));
  void *symbol = dlsym(faulty->handle, "dit_faulty_configure");
  memcpy(&configure, &symbol, sizeof configure);
  symbol = dlsym(faulty->handle, "dit_faulty_get_count");
  memcpy(&get_count, &symbol, sizeof get_count);
  CHECK(configure && get_count);
  struct dit_diopi_library *behind = NULL;
  CHECK_OK(dit_diopi_library_open("host", &behind, &err));
  CHECK(faulty->implemented == behind->implemented);  // it has what the library behind it has
  dit_diopi_library_close(behind);
  RUN(test_outputs);
  RUN(test_inputs);
  RUN(test_lists);
  RUN(test_choice);
  RUN(test_failures);
  RUN(test_probe);
  dit_diopi_library_close(faulty);
  return 0;
}
