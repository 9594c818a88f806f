/// An operator library from a plain C program, without Python and torch: softmax of a small matrix on the embedded
/// device.
///
///   cc -std=c11 -Iinclude examples/c/diopi.c -Lpython/ditorch/lib -ldit -Wl,-rpath,$PWD/python/ditorch/lib
#include "dit/diopi.h"

#include <stdio.h>

#include "dit/memory.h"
#include "dit/runtime.h"

#define ROWS 2
#define COLUMNS 3

static int fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

/// Everything between the device's memory and the printed rows.
static int run(const struct dit_diopi_library *library, float *in, float *out) {
  static const int64_t sizes[2] = {ROWS, COLUMNS};
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t x = dit_diopi_tensor_create(in, 2, sizes, NULL, DIT_DTYPE_F32, 0);
  diopiTensorHandle_t y = dit_diopi_tensor_create(out, 2, sizes, NULL, DIT_DTYPE_F32, 0);
  diopiError_t code = diopiErrorOccurred;
  if (context && x && y && library->functions.diopiSoftmax) {
    code = library->functions.diopiSoftmax(context, y, x, 1);
  }
  dit_diopi_tensor_destroy(y);
  dit_diopi_tensor_destroy(x);
  dit_diopi_context_destroy(context);
  return code == diopiSuccess ? 0 : fail("diopiSoftmax", dit_diopi_library_get_error(library));
}

int main(int argc, char **argv) {
  const float values[ROWS * COLUMNS] = {1, 2, 3, 1, 1, 1};
  float results[ROWS * COLUMNS];
  struct dit_error err = {0};
  struct dit_diopi_library *library = NULL;
  void *in = NULL, *out = NULL;
  int status = 1;
  if (dit_runtime_init("host", &err) != DIT_OK ||
      dit_diopi_library_open(argc > 1 ? argv[1] : "host", &library, &err) != DIT_OK ||
      dit_memory_alloc(0, 0, sizeof values, &in, &err) != DIT_OK ||
      dit_memory_alloc(0, 0, sizeof values, &out, &err) != DIT_OK ||
      dit_memory_copy(in, 0, values, -1, sizeof values, 0, 0, false, &err) != DIT_OK) {
    fail("start", err.message);
  } else if (run(library, in, out) == 0) {
    if (dit_memory_copy(results, -1, out, 0, sizeof results, 0, 0, false, &err) == DIT_OK) {
      for (int i = 0; i < ROWS * COLUMNS; i++) {
        printf("%.4f%c", (double)results[i], i % COLUMNS == COLUMNS - 1 ? '\n' : ' ');
      }
      status = 0;
    } else {
      fail("copy", err.message);
    }
  }
  dit_memory_free(in);
  dit_memory_free(out);
  dit_diopi_library_close(library);
  dit_runtime_shutdown();
  return status;
}
