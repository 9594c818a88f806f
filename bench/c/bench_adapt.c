/// What a call costs through the adaptor where nothing is converted: diopiAdd of a few elements straight into the host
/// library and through libdiopi_adapt.so, in turns in one run.
///
/// "pass-through" is the difference of the medians, and of the best rounds. Compare figures of one run only.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dit/diopi.h"

enum { ROUNDS = 31, CALLS = 20000, SIZE = 8 };

static double get_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int order(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double get_median(double *samples) {
  qsort(samples, ROUNDS, sizeof *samples, order);
  return samples[ROUNDS / 2];
}

static struct dit_diopi_library *open_library(const char *name) {
  struct dit_error err = {.message = ""};
  struct dit_diopi_library *library = NULL;
  if (dit_diopi_library_open(name, &library, &err) != DIT_OK) {
    fprintf(stderr, "bench_adapt: %s\n", err.message);
    exit(1);
  }
  return library;
}

/// Nanoseconds per call.
static double run(const struct dit_diopi_library *library, diopiTensorHandle_t *t, int calls) {
  static const diopiScalar_t one = {.stype = diopi_dtype_float64, .fval = 1};
  struct diopiContext context;
  dit_diopi_context_init(&context, 0, NULL);
  const double start = get_seconds();
  for (int i = 0; i < calls; i++) {
    if (library->functions.diopiAdd(&context, t[0], t[1], t[2], &one) != diopiSuccess) {
      fprintf(stderr, "bench_adapt: diopiAdd failed: %s\n", dit_diopi_library_get_error(library));
      exit(1);
    }
  }
  const double taken = get_seconds() - start;
  dit_diopi_context_reset(&context);
  return taken * 1e9 / calls;
}

int main(void) {
  static float data[3][SIZE];
  static double direct[ROUNDS], through[ROUNDS];
  const int64_t size = SIZE;
  setenv("DITORCH_ADAPT_LIB", "host", 1);
  setenv("DITORCH_ADAPT_RULES", "", 1);
  struct dit_diopi_library *host = open_library("host"), *adapt = open_library("adapt");
  diopiTensorHandle_t plain[3];
  for (int i = 0; i < 3; i++) {
    plain[i] = dit_diopi_tensor_create(data[i], 1, &size, NULL, DIT_DTYPE_F32, 0);
  }
  (void)run(host, plain, CALLS);
  (void)run(adapt, plain, CALLS);
  for (int round = 0; round < ROUNDS; round++) {
    direct[round] = run(host, plain, CALLS);
    through[round] = run(adapt, plain, CALLS);
  }
  const double a = get_median(direct), b = get_median(through);
  printf("diopiAdd, %d elements: direct %.1f ns, through the adaptor %.1f ns, pass-through %.1f ns (best %.1f)\n", SIZE,
         a, b, b - a, through[0] - direct[0]);
  for (int i = 0; i < 3; i++) {
    dit_diopi_tensor_destroy(plain[i]);
  }
  dit_diopi_library_close(adapt);
  dit_diopi_library_close(host);
  return 0;
}
