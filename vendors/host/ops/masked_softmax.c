/// Scaled masked softmax over the last dimension, and its gradient.
///
/// output = softmax(s), s = scale * input where the mask is 0, -10000 where it is not (a row that is masked everywhere
/// comes out even). mask broadcasts to input, bool or any real dtype; with fixed_triu_mask the mask is j > i of the
/// last two dimensions and `mask` may be NULL. grad_input = scale * output * (grad_output - sum(grad_output * output)),
/// 0 where masked. Floating dtypes; half types are computed in float. The result may be the first input itself.
#include <math.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/mathf.h"
#include "frame.h"

#define MASKED (-10000)

struct softmax_call {
  struct frame *frame;
  struct dit_tensor_view out, x, y, mask;  ///< y: the softmax, in a backward call
  int64_t mask_strides[DIT_MAX_DIMS];      ///< of the dense copy, broadcast to x
  char *to;
  const char *from, *result;
  const uint8_t *masks;
  double scale;
  bool triangle, backward;
};

/// Where row `row` of x has its mask; NULL without one.
static const uint8_t *find_mask(const struct softmax_call *call, int64_t row) {
  int64_t offset = 0;
  for (int dim = call->x.ndim - 2; dim >= 0; dim--) {
    offset += row % call->x.sizes[dim] * call->mask_strides[dim];
    row /= call->x.sizes[dim];
  }
  return call->masks ? call->masks + offset : NULL;
}

#define DEFINE_ROWS(type, name, exponential)                                                                           \
  static void name##_forward(const type *x, type *out, int64_t count, const uint8_t *mask, int64_t step, int64_t seen, \
                             type scale) {                                                                             \
    type max = -(type)INFINITY, sum = 0;                                                                               \
    for (int64_t i = 0; i < count; i++) {                                                                              \
      out[i] = i >= seen || (mask && mask[i * step]) ? (type)MASKED : x[i] * scale;                                    \
      max = out[i] > max ? out[i] : max;                                                                               \
    }                                                                                                                  \
    for (int64_t i = 0; i < count; i++) {                                                                              \
      out[i] = exponential(out[i] - max);                                                                              \
      sum += out[i];                                                                                                   \
    }                                                                                                                  \
    for (int64_t i = 0; i < count; i++) {                                                                              \
      out[i] /= sum;                                                                                                   \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name##_backward(const type *grad, const type *y, type *out, int64_t count, const uint8_t *mask,          \
                              int64_t step, int64_t seen, type scale) {                                                \
    type sum = 0;                                                                                                      \
    for (int64_t i = 0; i < count; i++) {                                                                              \
      sum += grad[i] * y[i];                                                                                           \
    }                                                                                                                  \
    for (int64_t i = 0; i < count; i++) {                                                                              \
      out[i] = i >= seen || (mask && mask[i * step]) ? 0 : scale * y[i] * (grad[i] - sum);                             \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name##_rows(void *context, int64_t begin, int64_t end) {                                                 \
    const struct softmax_call *call = context;                                                                         \
    const int ndim = call->x.ndim;                                                                                     \
    const int64_t count = call->x.sizes[ndim - 1], step = call->mask_strides[ndim - 1];                                \
    for (int64_t row = begin; row < end; row++) {                                                                      \
      const int64_t seen = call->triangle ? row % call->x.sizes[ndim - 2] + 1 : count;                                 \
      const uint8_t *mask = find_mask(call, row);                                                                      \
      const type *x = (const type *)call->from + row * count;                                                          \
      type *out = (type *)call->to + row * count;                                                                      \
      if (call->backward) {                                                                                            \
        name##_backward(x, (const type *)call->result + row * count, out, count, mask, step, seen, (type)call->scale); \
      } else {                                                                                                         \
        name##_forward(x, out, count, mask, step, seen, (type)call->scale);                                            \
      }                                                                                                                \
    }                                                                                                                  \
  }
DEFINE_ROWS(float, float, exp_f32)
DEFINE_ROWS(double, double, exp)

static diopiError_t run_softmax(void *context) {
  struct softmax_call *call = context;
  struct dense out = {0}, x = {0}, y = {0}, mask = {0};
  const int work = dense_get_work(call->x.dtype);
  const bool done = dense_read(&x, &call->x, work) && dense_read(&y, &call->y, work) &&
                    dense_read(&mask, &call->mask, DIT_DTYPE_BOOL) && dense_reserve(&out, &call->out, work);
  if (done) {
    const int64_t count = call->x.sizes[call->x.ndim - 1];
    call->to = out.data;
    call->from = x.data;
    call->result = y.data;
    call->masks = mask.data;
    dit_parallel_for(0, call->x.numel / count, 8192 / count + 1, work == DIT_DTYPE_F64 ? double_rows : float_rows,
                     call);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&x);
  dense_close(&y);
  dense_close(&mask);
  return done ? diopiSuccess : frame_fail(call->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

/// Checks that both directions have; `names` are those of out, x and y.
static diopiError_t start(struct softmax_call *call, const char *const *names) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *x = &call->x, *mask = &call->mask;
  FRAME_CHECK(frame, x->ndim >= 1 && (!call->triangle || x->ndim >= 2), "'%s' has %d dimensions; valid: at least %d",
              names[1], (int)x->ndim, 1 + call->triangle);
  FRAME_CHECK(frame, frame_is_same_shape(&call->out, x) && call->out.dtype == x->dtype,
              "'%s' has another shape or dtype than '%s'", names[0], names[1]);
  FRAME_CHECK(frame, !call->backward || (frame_is_same_shape(&call->y, x) && call->y.dtype == x->dtype),
              "'%s' has another shape or dtype than '%s'", names[2], names[1]);
  FRAME_CHECK(frame, call->triangle || mask->handle, "'mask' is NULL; only fixed_triu_mask needs none");
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(frame, names[1], x->dtype);
  }
  if (call->triangle) {
    call->mask = (struct dit_tensor_view){0};
  } else {
    int64_t strides[DIT_MAX_DIMS], own[DIT_MAX_DIMS];
    struct dit_tensor_view expanded;
    FRAME_CHECK(frame, frame_expand(mask, x->ndim, x->sizes, strides, &expanded), "'mask' does not broadcast to '%s'",
                names[1]);
    if (!frame_has_dtype(DTYPES_PLAIN, mask->dtype)) {
      return frame_fail_dtype(frame, "mask", mask->dtype);
    }
    dit_shape_set_contiguous(mask->ndim, mask->sizes, own);
    for (int dim = 0; dim < x->ndim; dim++) {
      const int at = dim - x->ndim + mask->ndim;
      call->mask_strides[dim] = at < 0 || mask->sizes[at] == 1 ? 0 : own[at];
    }
  }
  const struct dit_tensor_view *inputs[] = {&call->mask, &call->y, x};
  FRAME_TRY(frame_check_output(frame, names[0], &call->out, inputs, 2, false));
  FRAME_TRY(frame_check_output(frame, names[0], &call->out, inputs + 2, 1, true));
  return x->numel == 0 ? diopiSuccess : frame_run(frame, run_softmax, call);
}

diopiError_t diopiScaledMaskedSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask, double scale,
                                      bool fixed_triu_mask) {
  static const char *const names[] = {"output", "input"};
  struct frame frame;
  struct softmax_call call = {.frame = &frame, .scale = scale, .triangle = fixed_triu_mask};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, output, &call.out);
  FRAME_TAKE(&frame, input, &call.x);
  FRAME_TAKE_OPTIONAL(&frame, mask, &call.mask);
  return start(&call, names);
}

diopiError_t diopiScaledMaskedSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output,
                                              diopiConstTensorHandle_t mask, double scale, bool fixed_triu_mask) {
  static const char *const names[] = {"grad_input", "grad_output", "output"};
  struct frame frame;
  struct softmax_call call = {.frame = &frame, .scale = scale, .triangle = fixed_triu_mask, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.out);
  FRAME_TAKE(&frame, grad_output, &call.x);
  FRAME_TAKE(&frame, output, &call.y);
  FRAME_TAKE_OPTIONAL(&frame, mask, &call.mask);
  return start(&call, names);
}
