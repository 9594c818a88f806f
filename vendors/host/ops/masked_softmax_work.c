/// The scaled masked softmax on the host (see masked_softmax.c): rows of dense elements in the work type.
#include <math.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/mathf.h"
#include "masked_softmax.h"

struct softmax_call {
  const struct masked_softmax *task;
  char *to;
  const char *from, *result;
  const uint8_t *masks;
};

/// Where row `row` of x has its mask; NULL without one.
static const uint8_t *find_mask(const struct softmax_call *call, int64_t row) {
  int64_t offset = 0;
  for (int dim = call->task->x.ndim - 2; dim >= 0; dim--) {
    offset += row % call->task->x.sizes[dim] * call->task->mask_strides[dim];
    row /= call->task->x.sizes[dim];
  }
  return call->masks ? call->masks + offset : NULL;
}

#define DEFINE_ROWS(type, name, exponential)                                                                           \
  static void name##_forward(const type *x, type *out, int64_t count, const uint8_t *mask, int64_t step, int64_t seen, \
                             type scale) {                                                                             \
    type max = -(type)INFINITY, sum = 0;                                                                               \
    for (int64_t i = 0; i < count; i++) {                                                                              \
      out[i] = i >= seen || (mask && mask[i * step]) ? (type)MASKED_SCORE : x[i] * scale;                              \
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
    const int ndim = call->task->x.ndim;                                                                               \
    const int64_t count = call->task->x.sizes[ndim - 1], step = call->task->mask_strides[ndim - 1];                    \
    for (int64_t row = begin; row < end; row++) {                                                                      \
      const int64_t seen = call->task->triangle ? row % call->task->x.sizes[ndim - 2] + 1 : count;                     \
      const uint8_t *mask = find_mask(call, row);                                                                      \
      const type *x = (const type *)call->from + row * count;                                                          \
      type *out = (type *)call->to + row * count;                                                                      \
      if (call->task->backward) {                                                                                      \
        name##_backward(x, (const type *)call->result + row * count, out, count, mask, step, seen,                     \
                        (type)call->task->scale);                                                                      \
      } else {                                                                                                         \
        name##_forward(x, out, count, mask, step, seen, (type)call->task->scale);                                      \
      }                                                                                                                \
    }                                                                                                                  \
  }
DEFINE_ROWS(float, float, exp_f32)
DEFINE_ROWS(double, double, exp)

static diopiError_t run_softmax(void *context) {
  struct softmax_call *call = context;
  struct dense out = {0}, x = {0}, y = {0}, mask = {0};
  const int work = dense_get_work(call->task->x.dtype);
  const bool done = dense_read(&x, &call->task->x, work) && dense_read(&y, &call->task->y, work) &&
                    dense_read(&mask, &call->task->mask, DIT_DTYPE_BOOL) && dense_reserve(&out, &call->task->out, work);
  if (done) {
    const int64_t count = call->task->x.sizes[call->task->x.ndim - 1];
    call->to = out.data;
    call->from = x.data;
    call->result = y.data;
    call->masks = mask.data;
    dit_parallel_for(0, call->task->x.numel / count, 8192 / count + 1, work == DIT_DTYPE_F64 ? double_rows : float_rows,
                     call);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&x);
  dense_close(&y);
  dense_close(&mask);
  return done ? diopiSuccess : frame_fail(call->task->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

diopiError_t masked_softmax_run(struct masked_softmax *call) {
  struct softmax_call run = {.task = call};
  return frame_run(call->frame, run_softmax, &run);
}
