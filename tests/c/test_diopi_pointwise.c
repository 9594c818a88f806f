/// The elementwise engine behind the host's operators: random shapes, layouts and dtypes against the definition, the
/// same results on a side stream and on any number of threads, arguments that may go away once a call has returned.
#include "dit/diopi.h"
#include "kernel_check.h"

static const struct dit_diopi_vtable *functions;
static const diopiScalar_t one = {.stype = diopi_dtype_int64, .ival = 1};

static diopiTensorHandle_t wrap(struct diopiTensor *handle, const struct sample *sample) {
  dit_diopi_tensor_init(handle, &sample->view);
  return handle;
}

static const int dtypes[] = {DIT_DTYPE_F32, DIT_DTYPE_F64, DIT_DTYPE_F16, DIT_DTYPE_BF16, DIT_DTYPE_I32, DIT_DTYPE_U8};

/// One call of `name` on samples: out, then inputs.
#define CALL(raw, name, o, ...)                                               \
  do {                                                                        \
    struct diopiContext context;                                              \
    dit_diopi_context_init(&context, 0, raw);                                 \
    CHECK(functions->name(&context, wrap(&handles[0], o), __VA_ARGS__) == 0); \
    dit_diopi_context_reset(&context);                                        \
  } while (0)

/// Sizes that meet each path: one run, blocks, tiles of short runs, a number that repeats, several grains.
static void choose_sizes(int kind, int64_t *sizes) {
  static const int64_t table[][3] = {{1, 1, 7}, {3, 40, 700}, {50, 9, 3}, {2, 3, 1100}, {90, 20, 40}, {1, 1, 1}};
  for (int i = 0; i < 3; i++) {
    sizes[i] = table[kind][i] > 1 ? table[kind][i] - random_below(2) : 1;
  }
}

static void test_sums(void) {
  struct diopiTensor handles[3];
  for (int round = 0; round < 400; round++) {
    int64_t sizes[3];
    struct sample out, a, b;
    const int dtype = dtypes[random_below(6)];
    choose_sizes(round % 6, sizes);
    sample_init(&out, dtype, 3, sizes, (enum layout)random_below(LAYOUT_EXPANDED));
    sample_init(&a, dtype, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
    sample_init(&b, dtype, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
    sample_fill(&a, false);
    sample_fill(&b, false);
    CALL(NULL, diopiMul, &out, wrap(&handles[1], &a), wrap(&handles[2], &b));
    for (int64_t i = 0; i < out.view.numel; i++) {
      const long double want = view_get(&a.view, i) * view_get(&b.view, i), got = view_get(&out.view, i);
      if (is_floating(dtype)) {
        CHECK(fabsl(got - want) <= (long double)get_epsilon(dtype) * (fabsl(want) + 1e-4L));
      } else {
        CHECK(fmodl(got - want, dtype == DIT_DTYPE_U8 ? 256 : 4294967296.0L) == 0);
      }
    }
    sample_destroy(&out);
    sample_destroy(&a);
    sample_destroy(&b);
  }
}

/// The same bits on one thread, on four, and on a side stream whose caller has overwritten everything but the data.
static void test_streams_and_threads(void) {
  struct dit_error err = {0};
  struct diopiTensor handles[3];
  int64_t stream;
  void *raw = NULL;
  CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
  CHECK_OK(dit_stream_get_raw(0, stream, &raw, &err));
  for (int round = 0; round < 60; round++) {
    int64_t sizes[3];
    struct sample out[3], a, b;
    choose_sizes(round % 6, sizes);
    sample_init(&a, DIT_DTYPE_F32, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
    sample_init(&b, DIT_DTYPE_F16, 3, sizes, (enum layout)random_below(LAYOUT_KINDS));
    sample_fill(&a, true);
    sample_fill(&b, true);
    for (int i = 0; i < 3; i++) {
      sample_init(&out[i], DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
      dit_parallel_set_threads(i == 0 ? 1 : 4);
      CALL(i == 2 ? raw : NULL, diopiAdd, &out[i], wrap(&handles[1], &a), wrap(&handles[2], &b), &one);
      memset(handles, 0x5A, sizeof handles);
    }
    CHECK_OK(dit_stream_synchronize(0, stream, &err));
    const size_t bytes = (size_t)out[0].view.numel * sizeof(float);
    CHECK(memcmp(out[0].view.data, out[1].view.data, bytes) == 0);
    CHECK(memcmp(out[0].view.data, out[2].view.data, bytes) == 0);
    for (int i = 0; i < 3; i++) {
      sample_destroy(&out[i]);
    }
    sample_destroy(&a);
    sample_destroy(&b);
  }
  dit_parallel_set_threads(0);
}

/// Numbers that a stream's task reads when it runs, not when it is queued: the scale found by the call before.
static void test_scaling_in_order(void) {
  struct dit_error err = {0};
  struct diopiContext context;
  struct diopiTensor grad_handle, found_handle, scale_handle;
  struct sample grad, found, scale;
  const int64_t sizes[1] = {1000}, single[1] = {1};
  int64_t stream;
  void *raw = NULL;
  CHECK_OK(dit_stream_acquire(0, 0, &stream, &err));
  CHECK_OK(dit_stream_get_raw(0, stream, &raw, &err));
  sample_init(&grad, DIT_DTYPE_F16, 1, sizes, LAYOUT_GAPS);
  sample_init(&found, DIT_DTYPE_F32, 1, single, LAYOUT_CONTIGUOUS);
  sample_init(&scale, DIT_DTYPE_F32, 1, single, LAYOUT_CONTIGUOUS);
  dit_diopi_context_init(&context, 0, raw);
  const diopiScalar_t half = {.stype = diopi_dtype_float64, .fval = 0.5}, six = {.stype = diopi_dtype_int64, .ival = 6};
  const diopiScalar_t zero = {.stype = diopi_dtype_int64, .ival = 0};
  diopiTensorHandle_t list[1] = {wrap(&grad_handle, &grad)};
  CHECK(functions->diopiFill(&context, list[0], &six) == 0);
  CHECK(functions->diopiFill(&context, wrap(&found_handle, &found), &zero) == 0);
  CHECK(functions->diopiFill(&context, wrap(&scale_handle, &scale), &half) == 0);
  CHECK(functions->diopiAmpForeachNonFiniteCheckAndUnscaleInp(&context, list, 1, &found_handle, &scale_handle) == 0);
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  for (int64_t i = 0; i < 1000; i++) {
    CHECK(view_get(&grad.view, i) == 3);
  }
  CHECK(view_get(&found.view, 0) == 0);
  dit_diopi_context_reset(&context);
  sample_destroy(&grad);
  sample_destroy(&found);
  sample_destroy(&scale);
}

int main(void) {
  load_kernels();
  CHECK(dit_diopi_get_active());
  functions = &dit_diopi_get_active()->functions;
  random_init();
  RUN(test_sums);
  RUN(test_streams_and_threads);
  RUN(test_scaling_in_order);
  dit_runtime_shutdown();
  return 0;
}
