/// Nanoseconds per call of the C operators (inference, output, the library's function) without a framework: the floor
/// the door stands on.
///
/// Prints one line per operator, size and thread count: best and median of REPEATS samples. Outputs come from a ring of
/// preallocated buffers, so the allocator is not part of the figure. Timings vary from machine to machine; compare
/// figures of one run only.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dit/dit.h"
#include "dit/parallel.h"

#define REPEATS 9
#define MAX_ELEMENTS (4 << 20)

static char *buffers[4];  ///< three inputs and the result
static int64_t room[DIT_MAX_DIMS * 2];
static const struct dit_kernel_vtable *kernels;

static enum dit_status new_tensor(struct dit_call *call, int ndim, const int64_t *sizes, const int64_t *strides,
                                  int dtype, struct dit_tensor_view *out) {
  (void)call;
  int64_t numel = 1;
  memcpy(room, sizes, sizeof(int64_t) * (size_t)ndim);
  for (int dim = ndim - 1; dim >= 0; dim--) {
    room[DIT_MAX_DIMS + dim] = strides ? strides[dim] : numel;
    numel *= sizes[dim];
  }
  *out = (struct dit_tensor_view){buffers[3],
                                  room,
                                  room + DIT_MAX_DIMS,
                                  numel,
                                  buffers[3],
                                  buffers[3],
                                  ndim,
                                  (int16_t)dtype,
                                  0,
                                  DIT_TENSOR_ON_DEVICE | (strides ? 0 : DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE)};
  return DIT_OK;
}

static const struct dit_call_services services = {.new_tensor = new_tensor};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static const struct dit_op *find(const char *name, const char *overload) {
  int count;
  const struct dit_op *table = dit_op_get_table(&count);
  for (int i = 0; i < count; i++) {
    if (strcmp(table[i].name, name) == 0 && strcmp(table[i].overload, overload) == 0) {
      return &table[i];
    }
  }
  fprintf(stderr, "operator %s.%s is not in the table\n", name, overload);
  exit(1);
}

static void set_tensor(struct dit_value *value, int buffer, int64_t *shape, int64_t rows, int64_t columns) {
  shape[0] = rows;
  shape[1] = columns;
  shape[2] = columns;
  shape[3] = 1;
  value->tag = DIT_VALUE_TENSOR;
  value->v.tensor = (struct dit_tensor_view){buffers[buffer],
                                             shape,
                                             shape + 2,
                                             rows * columns,
                                             buffers[buffer],
                                             buffers[buffer],
                                             2,
                                             DIT_DTYPE_F32,
                                             0,
                                             DIT_TENSOR_ON_DEVICE | DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE};
}

static void set_int(struct dit_value *value, int64_t number) {
  value->tag = DIT_VALUE_INT;
  value->v.i = number;
}

static void measure(const char *label, const struct dit_op *op, struct dit_value *args, int nargs, int64_t rows,
                    int64_t columns, int threads) {
  struct dit_value rets[DIT_MAX_RETS];
  struct dit_error err = {0};
  struct dit_call call = {.op = op,
                          .nargs = nargs,
                          .nrets = 1,
                          .args = args,
                          .rets = rets,
                          .default_dtype = DIT_DTYPE_F32,
                          .kernels = kernels,
                          .diopi = dit_diopi_get_active(),
                          .services = &services,
                          .err = &err};
  double samples[REPEATS];
  int64_t loops = 1;
  for (;;) {  // as many calls as take two milliseconds
    double start = now();
    for (int64_t i = 0; i < loops; i++) {
      if (op->run(&call) != DIT_OK) {
        fprintf(stderr, "%s: %s\n", label, err.message);
        exit(1);
      }
    }
    if (now() - start > 2e6) {
      break;
    }
    loops *= 2;
  }
  for (int sample = 0; sample < REPEATS; sample++) {
    double start = now();
    for (int64_t i = 0; i < loops; i++) {
      enum dit_status status = op->run(&call);
      (void)status;
    }
    samples[sample] = (now() - start) / (double)loops;
  }
  qsort(samples, REPEATS, sizeof(double), compare);
  printf("%-8s %5lld x %-5lld threads %d  best %12.1f ns  median %12.1f ns\n", label, (long long)rows,
         (long long)columns, threads, samples[0], samples[REPEATS / 2]);
  fflush(stdout);
}

static void run_size(int64_t rows, int64_t columns, int threads) {
  int64_t shapes[2][4];
  struct dit_value args[4];
  memset(args, 0, sizeof(args));
  set_tensor(&args[0], 0, shapes[0], rows, columns);
  set_tensor(&args[1], 1, shapes[1], rows, columns);
  set_int(&args[2], 1);
  measure("add", find("aten::add", "Tensor"), args, 3, rows, columns, threads);
  measure("mul", find("aten::mul", "Tensor"), args, 2, rows, columns, threads);
  args[1].tag = DIT_VALUE_STRING;
  args[1].v.string = "none";
  measure("gelu", find("aten::gelu", ""), args, 2, rows, columns, threads);
  set_int(&args[1], 1);
  args[2].tag = DIT_VALUE_BOOL;
  args[2].v.i = 0;
  measure("softmax", find("aten::_softmax", ""), args, 3, rows, columns, threads);
  args[1].tag = DIT_VALUE_NONE;
  measure("sum", find("aten::sum", ""), args, 2, rows, columns, threads);
  int64_t dims[1] = {0};
  args[1].tag = DIT_VALUE_INTS;
  args[1].v.ints.data = dims;
  args[1].v.ints.size = 1;
  args[3].tag = DIT_VALUE_NONE;
  measure("sum0", find("aten::sum", "dim_IntList"), args, 4, rows, columns, threads);
}

static void run_product(int64_t n, int threads) {
  int64_t shapes[2][4];
  struct dit_value args[2];
  set_tensor(&args[0], 0, shapes[0], n, n);
  set_tensor(&args[1], 1, shapes[1], n, n);
  measure("mm", find("aten::mm", ""), args, 2, n, n, threads);
}

/// Argument: the vendor library (default: the host vendor beside libdit).
int main(int argc, char **argv) {
  struct dit_error err = {0};
  if (dit_options_load(NULL, &err) != DIT_OK || dit_runtime_init(argc > 1 ? argv[1] : "host", &err) != DIT_OK ||
      dit_diopi_activate("host", &err) != DIT_OK) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  kernels = dit_runtime_get_kernels();
  for (int i = 0; i < 4; i++) {
    buffers[i] = aligned_alloc(64, sizeof(float) * MAX_ELEMENTS);
    for (int64_t j = 0; buffers[i] && j < MAX_ELEMENTS; j++) {
      ((float *)buffers[i])[j] = (float)((j * 37 + i) % 1000) / 500.0f - 1.0f;
    }
  }
  for (int threads = 1; threads <= 2; threads++) {
    dit_parallel_set_threads(threads);
    run_size(4, 4, threads);
    run_size(32, 32, threads);
    run_size(256, 256, threads);
    run_size(2048, 2048, threads);
    for (int64_t n = 4; n <= 1024; n *= 4) {
      run_product(n, threads);
    }
  }
  for (int i = 0; i < 4; i++) {
    free(buffers[i]);
  }
  return 0;
}
