/// Tensors of numbers in steps: arange, linspace.
///
/// Arange: out[i] = start + i * step, as many elements as out has. Linspace: steps numbers from start to end, both
/// included. Numbers are computed in double, or exactly in int64 for integers.
#include "engine/ramp.h"

#include <math.h>

#include "frame.h"

static diopiError_t begin_ramp(struct frame *frame, diopiTensorHandle_t out, struct ramp_task *task) {
  struct dit_tensor_view o;
  FRAME_TAKE(frame, out, &o);
  FRAME_CHECK(frame, o.ndim == 1, "'out' has %d dimensions; it must have 1", (int)o.ndim);
  FRAME_TRY(frame_check_output(frame, "out", &o, NULL, 0, true));
  if (o.dtype == DIT_DTYPE_BOOL || !frame_has_dtype(DTYPES_ANY & ~DTYPE_BIT(C32), o.dtype)) {
    return frame_fail_dtype(frame, "out", o.dtype);
  }
  task->data = o.data;
  task->stride = o.strides[0] * (int64_t)dit_dtype_get_size(o.dtype);
  task->count = o.numel;
  task->dtype = o.dtype;
  task->is_integer = frame_has_dtype(DTYPES_INT | DTYPES_UINT, o.dtype);
  return diopiSuccess;
}

static int64_t to_integer(struct dit_scalar scalar) {
  return scalar.kind == DIT_SCALAR_DOUBLE ? (int64_t)scalar.v.d : scalar.v.i;
}

diopiError_t diopiArange(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *start,
                         const diopiScalar_t *end, const diopiScalar_t *step) {
  struct frame frame;
  struct dit_scalar first, last, distance;
  struct dit_error err = {.message = ""};
  struct ramp_task task = {.is_linspace = false};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(begin_ramp(&frame, out, &task));
  FRAME_TRY(frame_get_scalar(&frame, "start", start, &first));
  FRAME_TRY(frame_get_scalar(&frame, "end", end, &last));
  FRAME_TRY(frame_get_scalar(&frame, "step", step, &distance));
  task.start = frame_scalar_to_double(first);
  task.step = frame_scalar_to_double(distance);
  task.istart = to_integer(first);
  task.istep = to_integer(distance);
  const double limit = frame_scalar_to_double(last);
  FRAME_CHECK(&frame, isfinite(task.start) && isfinite(limit) && isfinite(task.step) && task.step != 0,
              "'start', 'end', 'step' are %g, %g, %g; they must be finite and step not 0", task.start, limit,
              task.step);
  FRAME_CHECK(&frame, task.step > 0 ? limit >= task.start : limit <= task.start,
              "'end' is %g, which steps of %g from %g do not reach", limit, task.step, task.start);
  const double count = ceil((limit - task.start) / task.step);
  FRAME_CHECK(&frame, count == (double)task.count,
              "'out' has %lld elements; from %g to %g in steps of %g there are %.0f", (long long)task.count, task.start,
              limit, task.step, count);
  return frame_get_code(&frame, ramp_launch(frame.stream, &task, &err), &err);
}

diopiError_t diopiLinspace(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *start,
                           const diopiScalar_t *end, int64_t steps) {
  struct frame frame;
  struct dit_scalar first, last;
  struct dit_error err = {.message = ""};
  struct ramp_task task = {.is_linspace = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(begin_ramp(&frame, out, &task));
  FRAME_TRY(frame_get_scalar(&frame, "start", start, &first));
  FRAME_TRY(frame_get_scalar(&frame, "end", end, &last));
  FRAME_CHECK(&frame, steps == task.count, "'steps' is %lld; 'out' has %lld elements", (long long)steps,
              (long long)task.count);
  task.steps = steps;
  task.start = frame_scalar_to_double(first);
  task.end = frame_scalar_to_double(last);
  if (task.is_integer) {  // PyTorch's ends have the dtype of the result
    task.start = trunc(task.start);
    task.end = trunc(task.end);
  }
  task.step = steps > 1 ? (task.end - task.start) / (double)(steps - 1) : 0;
  if (steps == 1) {
    task.end = task.start;
  }
  task.is_integer = false;
  return frame_get_code(&frame, ramp_launch(frame.stream, &task, &err), &err);
}
