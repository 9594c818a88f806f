/// oneDNN at run time: what is found and what is refused with which reason, and the plans: right products, kept and
/// thrown out, from several threads, after a fork. A library of our own stands in for the real one.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dit/dtype.h"
#include "dit/options.h"
#include "dit/parallel.h"
#include "engine/onednn.h"

#define FAKE(kind) DIT_TEST_VENDORS "/onednn_" #kind ".so"

static const char *library;

/// The library is looked for once per process, so every case has one.
static void run_case(const char *choice, void (*body)(void)) {
  library = choice;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    struct dit_error err;
    CHECK_OK(dit_option_set("host_onednn", choice, &err));
    body();
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) {
    fprintf(stderr, "the case above had host_onednn=%s\n", choice);
  }
  CHECK(status == 0);
}

static const char *expected;

static void expect_reason(void) {
  uint64_t run, refused;
  CHECK(!onednn_is_available());
  CHECK_CONTAINS(onednn_describe(), expected);
  onednn_get_counts(&run, &refused);
  CHECK(run == 0 && refused == 0);
}

static void test_reasons(void) {
  static const char *const cases[][2] = {
      {"none", "host_onednn is \"none\""},
      {"/nowhere/libdnnl.so.3", "/nowhere/libdnnl.so.3: cannot open shared object file"},
      {FAKE(nothing), "is no oneDNN (dnnl_version is missing)"},
      {FAKE(old), "is version 2.7; version 3 is needed"},
      {FAKE(threads), "runs on threads (runtime 4) that cannot be held"},
      {FAKE(lacks), "lacks dnnl_primitive_execute"},
      {FAKE(no_engine), "offers no CPU engine"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    expected = cases[i][1];
    run_case(cases[i][0], expect_reason);
  }
}

// Products

/// Small whole numbers, so that sums are exact in any order.
static float get_value(int64_t i) {
  return (float)(i * 7 % 11 - 5);
}

struct product {
  int64_t batch, m, n, k;
  bool turned, repeated, biased, adds;  ///< b column-major; one b for all; a row added; added to what is there
};

static bool multiply(const struct product *p, float *a, float *b, float *c, float *bias) {
  for (int64_t i = 0; i < p->batch * p->m * p->k; i++) {
    a[i] = get_value(i);
  }
  for (int64_t i = 0; i < p->batch * p->k * p->n; i++) {
    b[i] = get_value(i + 3);
  }
  for (int64_t i = 0; i < p->batch * p->m * p->n; i++) {
    c[i] = 100;
  }
  for (int64_t i = 0; i < p->n; i++) {
    bias[i] = get_value(i + 5);
  }
  const struct onednn_gemm_call call = {
      .batch = p->batch,
      .m = p->m,
      .n = p->n,
      .k = p->k,
      .a = (char *)a,
      .b = (char *)b,
      .out = (char *)c,
      .a_strides = {p->m * p->k, p->k, 1},
      .b_strides = {p->repeated ? 0 : p->k * p->n, p->turned ? 1 : p->n, p->turned ? p->k : 1},
      .out_strides = {p->m * p->n, p->n, 1},
      .bias = p->biased ? bias : NULL,
      .adds = p->adds,
      .dtype = DIT_DTYPE_F32};
  return onednn_multiply(&call);
}

static float get_expected(const struct product *p, const float *a, const float *b, const float *bias, int64_t i) {
  const int64_t column = i % p->n, row = i / p->n % p->m, batch = i / p->n / p->m;
  const float *one = b + (p->repeated ? 0 : batch * p->k * p->n);
  float sum = (p->adds ? 100 : 0) + (p->biased ? bias[column] : 0);
  for (int64_t k = 0; k < p->k; k++) {
    sum += a[(batch * p->m + row) * p->k + k] * one[p->turned ? column * p->k + k : k * p->n + column];
  }
  return sum;
}

/// Number of wrong elements; -1 where the library did not take it.
static int64_t check_product(const struct product *p) {
  float *room = malloc(sizeof(float) * (size_t)(p->batch * (p->m * p->k + p->k * p->n + p->m * p->n) + p->n));
  float *a = room, *b = a + p->batch * p->m * p->k, *c = b + p->batch * p->k * p->n, *bias = c + p->batch * p->m * p->n;
  int64_t wrong = multiply(p, a, b, c, bias) ? 0 : -1;
  for (int64_t i = 0; wrong >= 0 && i < p->batch * p->m * p->n; i++) {
    wrong += c[i] != get_expected(p, a, b, bias, i);
  }
  free(room);
  return wrong;
}

static atomic_int *find_counter(const char *name) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  atomic_int *counter = handle ? dlsym(handle, name) : NULL;
  CHECK(counter != NULL);
  return counter;
}

static void use_products(void) {
  uint64_t run, refused;
  CHECK(onednn_is_available() && strstr(onednn_describe(), "oneDNN 3.2.5 ("));
  atomic_int *asked = find_counter("fake_onednn_asked");
  const struct product plain = {.batch = 1, .m = 5, .n = 7, .k = 3};
  CHECK(check_product(&plain) == 0 && *asked == 1);
  CHECK(check_product(&plain) == 0 && *asked == 1);  // the plan is kept
  for (int i = 0; i < 16; i++) {
    const struct product p = {3, 5, 7, 4, i & 1, i & 2, i & 4, i & 8};
    CHECK(check_product(&p) == 0);
  }
  const struct product tiles = {.batch = 1, .m = 600, .n = 300, .k = 200};  // more than one tile
  const int before = *asked;
  CHECK(check_product(&tiles) == 0 && *asked > before + 1);
  const struct product ranges = {.batch = 37, .m = 100, .n = 70, .k = 150, .biased = true};
  CHECK(check_product(&ranges) == 0);
  onednn_get_counts(&run, &refused);
  CHECK(run == 20 && refused == 0);
}

static void use_many(void) {
  const struct product first = {.batch = 1, .m = 1, .n = 1, .k = 1};
  CHECK(check_product(&first) == 0);
  atomic_int *live = find_counter("fake_onednn_live"), *asked = find_counter("fake_onednn_asked");
  const int one = *live;
  for (int i = 1; i <= 2000; i++) {
    const struct product p = {.batch = 1, .m = 1 + i % 50, .n = 1 + i / 50, .k = 2};
    CHECK(check_product(&p) == 0);
  }
  CHECK(*live <= 256 * one);
  CHECK(*asked >= 2000);
}

static void use_fork(void) {
  const struct product p = {.batch = 2, .m = 4, .n = 5, .k = 6};
  CHECK(check_product(&p) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const struct product other = {.batch = 2, .m = 5, .n = 6, .k = 7};
    _exit(check_product(&p) == 0 && check_product(&other) == 0 ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *run_thread(void *argument) {
  intptr_t wrong = 0;
  for (int i = 0; i < 300; i++) {
    const struct product p = {.batch = 1, .m = 1 + i % 7, .n = 1 + (i + (int)(intptr_t)argument) % 11, .k = 3};
    wrong += check_product(&p) != 0;
  }
  return (void *)wrong;
}

static void use_threads(void) {
  pthread_t threads[4];
  for (intptr_t i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)i) == 0);
  }
  for (int i = 0; i < 4; i++) {
    void *wrong = NULL;
    CHECK(pthread_join(threads[i], &wrong) == 0 && wrong == NULL);
  }
}

/// A library that has no good code, or fails: the caller is told every time, the library is asked once.
static void expect_refusal(void) {
  uint64_t run, refused;
  const struct product p = {.batch = 1, .m = 5, .n = 7, .k = 3};
  CHECK(onednn_is_available());
  CHECK(check_product(&p) == -1 && check_product(&p) == -1);
  onednn_get_counts(&run, &refused);
  CHECK(run == 0 && refused == 2);
  CHECK(*find_counter("fake_onednn_asked") == 1);
}

static void expect_no_layout(void) {
  float data[64] = {0};
  struct onednn_gemm_call call = {.batch = 1,
                                  .m = 2,
                                  .n = 2,
                                  .k = 2,
                                  .a = (char *)data,
                                  .b = (char *)data,
                                  .out = (char *)(data + 32),
                                  .a_strides = {8, 4, 2},
                                  .b_strides = {4, 2, 1},
                                  .out_strides = {4, 2, 1},
                                  .dtype = DIT_DTYPE_F32};
  CHECK(!onednn_multiply(&call));  // no stride of 1
  call.a_strides[1] = 2;
  call.a_strides[2] = 1;
  CHECK(onednn_multiply(&call));
  call.dtype = DIT_DTYPE_F64;
  CHECK(!onednn_multiply(&call));
  const struct conv_shape shape = {.batch = 1,
                                   .groups = 1,
                                   .in_channels = 1,
                                   .out_channels = 1,
                                   .in = {1, 4, 4},
                                   .out = {1, 4, 4},
                                   .kernel = {1, 1, 1},
                                   .stride = {1, 1, 1},
                                   .dilation = {1, 1, 1}};
  const struct onednn_tensor image = {(char *)data, {16, 16, 16, 4, 1}}, weight = {(char *)data, {1, 1, 1, 1, 1}};
  const struct onednn_conv_call conv = {
      .shape = &shape, .in = image, .weight = weight, .out = image, .dtype = DIT_DTYPE_F32, .result = DIT_DTYPE_F32};
  CHECK(!onednn_convolve(&conv));  // the library has no convolution
}

static void test_products(void) {
  run_case(FAKE(whole), use_products);
}

static void test_many_shapes(void) {
  run_case(FAKE(whole), use_many);
}

static void test_fork(void) {
  if (!CHECK_SANITIZED) {
    run_case(FAKE(whole), use_fork);
  }
}

static void test_threads(void) {
  run_case(FAKE(whole), use_threads);
}

static void test_refusals(void) {
  run_case(FAKE(whole), expect_no_layout);
  run_case(FAKE(refuses), expect_refusal);
  run_case(FAKE(reference), expect_refusal);
  run_case(FAKE(fails), expect_refusal);
}

int main(void) {
  dit_parallel_set_threads(2);
  RUN(test_reasons);
  RUN(test_products);
  RUN(test_many_shapes);
  RUN(test_fork);
  RUN(test_threads);
  RUN(test_refusals);
  return 0;
}
