/// Random choices: permutations, samples of a distribution, dropout.
///
/// Randperm: a Fisher-Yates shuffle, one word per element. Multinomial: with replacement the place of a uniform number
/// in the running sum of the weights; without, the num_samples largest of weight / exponential number. Dropout: mask ~
/// Bernoulli(1 - p), out = input * mask / (1 - p); a mask that broadcasts to the input drops whole features. Outside
/// training out = input and the mask is 1. Numbers belong to elements by their row-major order.
#include "engine/kernels.h"
#include "random.h"

// Permutation

diopiError_t diopiRandperm(diopiContextHandle_t ctx, diopiTensorHandle_t out, int64_t n,
                           diopiGeneratorHandle_t generator) {
  struct permutation_task task = {.n = n, .wide = n > INT32_MAX};
  struct frame *frame = &task.frame;
  FRAME_BEGIN(frame, ctx);
  FRAME_TAKE(frame, out, &task.out);
  FRAME_CHECK(frame, n >= 0, "'n' is %lld; it must not be negative", (long long)n);
  FRAME_CHECK(frame, task.out.ndim == 1 && task.out.numel == n, "'out' has %lld elements; it must be 1-d with n = %lld",
              (long long)task.out.numel, (long long)n);
  if (!frame_has_dtype(DTYPES_REAL, task.out.dtype)) {
    return frame_fail_dtype(frame, "out", task.out.dtype);
  }
  const int bits[DIT_DTYPE_COUNT] = {
      [DIT_DTYPE_U8] = 8,   [DIT_DTYPE_I8] = 7,   [DIT_DTYPE_I16] = 15, [DIT_DTYPE_I32] = 31, [DIT_DTYPE_I64] = 63,
      [DIT_DTYPE_F16] = 11, [DIT_DTYPE_F32] = 24, [DIT_DTYPE_F64] = 53, [DIT_DTYPE_BF16] = 8};
  FRAME_CHECK(frame, n <= INT64_MAX >> (63 - bits[task.out.dtype]) || n - 1 <= INT64_MAX >> (63 - bits[task.out.dtype]),
              "'n' is %lld; %s cannot hold the numbers below it", (long long)n, dit_dtype_get_name(task.out.dtype));
  FRAME_TRY(frame_check_output(frame, "out", &task.out, NULL, 0, false));
  FRAME_TRY(random_reserve(frame, generator, (uint64_t)n * (task.wide ? 2 : 1), &task.span));
  return permutation_run(&task);
}

// Samples of a distribution

diopiError_t diopiMultinomial(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                              int64_t num_samples, bool replacement, diopiGeneratorHandle_t generator) {
  struct sample_task task = {.generator = generator, .samples = num_samples, .replacement = replacement};
  struct frame *frame = &task.frame;
  FRAME_BEGIN(frame, ctx);
  FRAME_TAKE(frame, out, &task.out);
  FRAME_TAKE(frame, input, &task.in);
  if (!frame_has_dtype(DTYPES_FLOAT, task.in.dtype)) {
    return frame_fail_dtype(frame, "input", task.in.dtype);
  }
  if (task.out.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(frame, "out", task.out.dtype);
  }
  const int ndim = task.in.ndim;
  FRAME_CHECK(frame, ndim == 1 || ndim == 2, "'input' has %d dimensions; valid: 1 or 2", ndim);
  task.rows = ndim == 2 ? task.in.sizes[0] : 1;
  task.classes = task.in.sizes[ndim - 1];
  FRAME_CHECK(frame, num_samples > 0 && (replacement || num_samples <= task.classes),
              "'num_samples' is %lld; valid: 1 to %lld%s", (long long)num_samples, (long long)task.classes,
              replacement ? " or more" : " without replacement");
  FRAME_CHECK(
      frame,
      task.out.ndim == ndim && task.out.sizes[ndim - 1] == num_samples && (ndim == 1 || task.out.sizes[0] == task.rows),
      "'out' must have the shape of 'input' with num_samples for the last size");
  FRAME_TRY(frame_check_output(frame, "out", &task.out, (const struct dit_tensor_view *[]){&task.in}, 1, false));
  FRAME_TRY(random_check(frame, generator));
  return sample_run(&task);
}

// Dropout

static diopiError_t copy_through(struct frame *frame, const struct dit_tensor_view *out,
                                 const struct dit_tensor_view *mask, const struct dit_tensor_view *in) {
  struct dit_error err = {.message = ""};
  const struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}};
  if (out->data != in->data || out->handle != in->handle) {
    FRAME_TRY(frame_get_code(frame, kernel_copy(frame->stream, out, in, &err), &err));
  }
  return frame_get_code(frame, kernel_fill(frame->stream, mask, one, &err), &err);
}

static diopiError_t run_dropout(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                const char *name, diopiTensorHandle_t mask, diopiConstTensorHandle_t input, double p,
                                bool train, diopiGeneratorHandle_t generator) {
  struct frame frame;
  struct dit_tensor_view o, m, x, wide;
  struct dit_error err = {.message = ""};
  struct random_span span;
  int64_t strides[DIT_MAX_DIMS];
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, name, out, &o));
  FRAME_TAKE(&frame, mask, &m);
  FRAME_TAKE(&frame, input, &x);
  if (!frame_has_dtype(DTYPES_FLOAT, x.dtype)) {
    return frame_fail_dtype(&frame, "input", x.dtype);
  }
  if (o.dtype != x.dtype) {
    return frame_fail_dtype(&frame, name, o.dtype);
  }
  if (m.dtype != DIT_DTYPE_BOOL && m.dtype != DIT_DTYPE_U8) {
    return frame_fail_dtype(&frame, "mask", m.dtype);
  }
  FRAME_CHECK(&frame, p >= 0 && p <= 1, "'p' is %g; valid: 0 to 1", p);
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'%s' has another shape than 'input'", name);
  FRAME_CHECK(&frame, frame_expand(&m, x.ndim, x.sizes, strides, &wide), "'mask' does not broadcast to 'input'");
  FRAME_TRY(frame_check_output(&frame, name, &o, (const struct dit_tensor_view *[]){&x}, 1, true));
  FRAME_TRY(frame_check_output(&frame, "mask", &m, (const struct dit_tensor_view *[]){&x, &o}, 2, false));
  m.dtype = DIT_DTYPE_BOOL;  // uint8 holds the same 0 and 1
  if (!train) {
    return copy_through(&frame, &o, &m, &x);
  }
  FRAME_TRY(random_reserve(&frame, generator, (uint64_t)m.numel, &span));
  if (x.numel == 0) {
    return diopiSuccess;
  }
  if (!frame_is_same_shape(&m, &x)) {
    struct feature_task task = {&frame, &o, &m, &x, 1 - p, span};
    return feature_run(&task);
  }
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  return frame_get_code(&frame, kernel_dropout(frame.stream, &o, &m, &x, 1 - p, scale, span.seed, span.offset, &err),
                        &err);
}

diopiError_t diopiDropout(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t mask,
                          diopiConstTensorHandle_t input, double p, bool train, diopiGeneratorHandle_t generator) {
  return run_dropout(__func__, ctx, out, "out", mask, input, p, train, generator);
}

diopiError_t diopiDropoutInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiTensorHandle_t mask, double p,
                             bool train, diopiGeneratorHandle_t generator) {
  return run_dropout(__func__, ctx, input, "input", mask, input, p, train, generator);
}
