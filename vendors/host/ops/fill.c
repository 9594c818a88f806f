/// Tensors of numbers that no input decides: fill, zeros, ones, arange, linspace.
///
/// Fill: every element of input = value. Arange: out[i] = start + i * step, as many elements as out has. Linspace:
/// steps numbers from start to end, both included. Numbers are computed in double, or exactly in int64 for integers.
#include <math.h>

#include "elementwise.h"
#include "engine/cast.h"
#include "engine/kernels.h"
#include "engine/nest.h"

static diopiError_t run_fill(const char *function, diopiContextHandle_t ctx, const char *name,
                             diopiTensorHandle_t tensor, const diopiScalar_t *value, const diopiSize_t *size) {
  struct frame frame;
  struct dit_tensor_view o;
  struct dit_scalar scalar;
  struct dit_error err;
  err.message[0] = 0;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, name, tensor, &o));
  FRAME_TRY(frame_get_scalar(&frame, "value", value, &scalar));
  if (size) {
    bool same = size->len == o.ndim && (size->len == 0 || size->data);
    for (int dim = 0; same && dim < o.ndim; dim++) {
      same = size->data[dim] == o.sizes[dim];
    }
    FRAME_CHECK(&frame, same, "'out' does not have the shape that 'size' asks for");
  }
  FRAME_TRY(frame_check_output(&frame, name, &o, NULL, 0, true));
  return frame_get_code(&frame, kernel_fill(frame.stream, &o, scalar, &err), &err);
}

static const diopiScalar_t zero = {.stype = diopi_dtype_int64, .ival = 0};
static const diopiScalar_t one = {.stype = diopi_dtype_int64, .ival = 1};

diopiError_t diopiFill(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *value) {
  return run_fill(__func__, ctx, "input", input, value, NULL);
}
diopiError_t diopiZeroInp(diopiContextHandle_t ctx, diopiTensorHandle_t self) {
  return run_fill(__func__, ctx, "self", self, &zero, NULL);
}
diopiError_t diopiZeros(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiSize_t size) {
  return run_fill(__func__, ctx, "out", out, &zero, &size);
}
diopiError_t diopiOnes(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiSize_t size) {
  return run_fill(__func__, ctx, "out", out, &one, &size);
}

/// out[i] for i of a flat tensor of any stride: linear in i, in double or in wrapping int64.
struct ramp_task {
  char *data;
  int64_t stride, count, steps;
  int dtype;
  bool is_integer, is_linspace;
  int64_t istart, istep;
  double start, end, step;
};

/// PyTorch's linspace comes from both ends, so that the last element is exactly `end`.
static double get_linspace(const struct ramp_task *task, int64_t i) {
  return i < task->steps / 2 ? task->start + task->step * (double)i
                             : task->end - task->step * (double)(task->steps - 1 - i);
}

static void fill_block(const struct ramp_task *task, int64_t begin, int64_t count) {
  double numbers[NEST_BLOCK];
  int64_t whole[NEST_BLOCK];
  _Alignas(16) char block[NEST_BLOCK * 16];
  for (int64_t k = 0; k < count; k++) {
    const int64_t i = begin + k;
    if (task->is_integer) {
      whole[k] = (int64_t)((uint64_t)task->istart + (uint64_t)i * (uint64_t)task->istep);
    } else {
      numbers[k] = task->is_linspace ? get_linspace(task, i) : task->start + (double)i * task->step;
    }
  }
  if (task->is_integer) {
    cast_block(task->dtype, block, DIT_DTYPE_I64, whole, count);
  } else {
    cast_block(task->dtype, block, DIT_DTYPE_F64, numbers, count);
  }
  cast_scatter(task->data + begin * task->stride, task->stride, block, (int)dit_dtype_get_size(task->dtype), count);
}

static void run_ramp(void *argument) {
  const struct ramp_task *task = argument;
  for (int64_t begin = 0; begin < task->count; begin += NEST_BLOCK) {
    fill_block(task, begin, task->count - begin < NEST_BLOCK ? task->count - begin : NEST_BLOCK);
  }
}

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
  return frame_launch(&frame, run_ramp, &task, sizeof task);
}

diopiError_t diopiLinspace(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *start,
                           const diopiScalar_t *end, int64_t steps) {
  struct frame frame;
  struct dit_scalar first, last;
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
  return frame_launch(&frame, run_ramp, &task, sizeof task);
}
