/// Shared by the tests of operators: the host's functions, handles over samples, one call with its context.
#ifndef DIT_TESTS_DIOPI_CHECK_H
#define DIT_TESTS_DIOPI_CHECK_H

#include "dit/diopi.h"
#include "kernel_check.h"

static const struct dit_diopi_vtable *functions;

static inline void load_operators(void) {
  load_kernels();
  CHECK(dit_diopi_get_active());
  functions = &dit_diopi_get_active()->functions;
}

/// A handle that lives until 16 more were made.
static inline diopiTensorHandle_t wrap(const struct dit_tensor_view *view) {
  static struct diopiTensor rooms[16];
  static int next;
  struct diopiTensor *room = &rooms[next++ % 16];
  dit_diopi_tensor_init(room, view);
  return room;
}

static inline diopiScalar_t make_int(int64_t value) {
  return (diopiScalar_t){.stype = diopi_dtype_int64, .ival = value};
}
static inline diopiScalar_t make_real(double value) {
  return (diopiScalar_t){.stype = diopi_dtype_float64, .fval = value};
}

/// A raw stream beside the default one.
static inline void *acquire_stream(int64_t *stream) {
  struct dit_error err = {0};
  void *raw = NULL;
  CHECK_OK(dit_stream_acquire(0, 0, stream, &err));
  CHECK_OK(dit_stream_get_raw(0, *stream, &raw, &err));
  CHECK(raw);
  return raw;
}

/// One call that must succeed, on a raw stream (NULL: the default one).
#define CALL_ON(raw, name, ...)                                                                                 \
  do {                                                                                                          \
    struct diopiContext context;                                                                                \
    dit_diopi_context_init(&context, 0, raw);                                                                   \
    const diopiError_t code = functions->name(&context, __VA_ARGS__);                                           \
    if (code != diopiSuccess) {                                                                                 \
      fprintf(stderr, #name ": code %d: %s\n", (int)code, dit_diopi_library_get_error(dit_diopi_get_active())); \
    }                                                                                                           \
    CHECK(code == diopiSuccess);                                                                                \
    dit_diopi_context_reset(&context);                                                                          \
  } while (0)
#define CALL(name, ...) CALL_ON(NULL, name, __VA_ARGS__)

#endif
