/// Rotary embedding on the host (see rotary.c): lines of dense elements in the work type.
#include "dense.h"
#include "dit/parallel.h"
#include "rotary.h"

struct rotary_task {
  const struct dit_tensor_view *x;
  char *out;  ///< dense, like `in`
  const char *in, *cosine, *sine;
  int64_t cosine_strides[DIT_MAX_DIMS], sine_strides[DIT_MAX_DIMS];  ///< of the dense copies, broadcast to x
  int64_t width;                                                     ///< D
  bool conj, interleaved, full;                                      ///< full: cos and sin for every element
};

/// One line of D elements: element i and its partner p.
#define TURN_LINE(type)                                                                        \
  {                                                                                            \
    const type *x = (const type *)task->in + line * task->width;                               \
    type *out = (type *)task->out + line * task->width;                                        \
    const type *c = (const type *)task->cosine + cosine, *s = (const type *)task->sine + sine; \
    const int64_t half = task->width / 2, partner = task->interleaved ? 1 : half;              \
    const type sign = task->conj ? -1 : 1;                                                     \
    for (int64_t i = 0; i < half; i++) {                                                       \
      const int64_t at = task->interleaved ? 2 * i : i, other = task->full ? at + partner : i; \
      const type x1 = x[at], x2 = x[at + partner];                                             \
      out[at] = x1 * c[i * cosine_step] - x2 * (sign * s[i * sine_step]);                      \
      out[at + partner] = x1 * (sign * s[other * sine_step]) + x2 * c[other * cosine_step];    \
    }                                                                                          \
  }

static void run_lines(const struct rotary_task *task, int64_t begin, int64_t end, bool wide) {
  const int last = task->x->ndim - 1;
  const int64_t cosine_step = task->cosine_strides[last], sine_step = task->sine_strides[last];
  for (int64_t line = begin; line < end; line++) {
    int64_t cosine = 0, sine = 0, rest = line;
    for (int dim = last - 1; dim >= 0; dim--) {
      const int64_t index = rest % task->x->sizes[dim];
      cosine += index * task->cosine_strides[dim];
      sine += index * task->sine_strides[dim];
      rest /= task->x->sizes[dim];
    }
    if (wide) {
      TURN_LINE(double)
    } else {
      TURN_LINE(float)
    }
  }
}

static void run_float(void *context, int64_t begin, int64_t end) {
  run_lines(context, begin, end, false);
}
static void run_double(void *context, int64_t begin, int64_t end) {
  run_lines(context, begin, end, true);
}

/// Strides of the dense copy of `view`, broadcast to x's dimensions (the last one has its own size).
static void set_strides(const struct dit_tensor_view *view, int ndim, int64_t *strides) {
  int64_t own[DIT_MAX_DIMS];
  dit_shape_set_contiguous(view->ndim, view->sizes, own);
  for (int dim = 0; dim < ndim; dim++) {
    const int at = dim - ndim + view->ndim;
    strides[dim] = at < 0 || view->sizes[at] == 1 ? 0 : own[at];
  }
}

static diopiError_t run_rotary(void *context) {
  struct rotary_call *call = context;
  struct dense out = {0}, x = {0}, cosine = {0}, sine = {0};
  const int work = dense_get_work(call->x.dtype);
  const bool done = dense_read(&x, &call->x, work) && dense_read(&cosine, &call->cosine, work) &&
                    dense_read(&sine, &call->sine, work) && dense_reserve(&out, &call->out, work);
  if (done) {
    struct rotary_task task = {.x = &call->x,
                               .out = out.data,
                               .in = x.data,
                               .cosine = cosine.data,
                               .sine = sine.data,
                               .width = call->x.sizes[call->x.ndim - 1],
                               .conj = call->conj,
                               .interleaved = call->interleaved,
                               .full = call->full};
    set_strides(&call->cosine, call->x.ndim, task.cosine_strides);
    set_strides(&call->sine, call->x.ndim, task.sine_strides);
    dit_parallel_for(0, call->x.numel / task.width, 16384 / task.width + 1,
                     work == DIT_DTYPE_F64 ? run_double : run_float, &task);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&x);
  dense_close(&cosine);
  dense_close(&sine);
  return done ? diopiSuccess : frame_fail(call->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

diopiError_t rotary_run(struct rotary_call *call) {
  return frame_run(call->frame, run_rotary, call);
}
