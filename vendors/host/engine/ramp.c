/// Numbers in steps (see ramp.h): blocks in double or int64, converted to the tensor's dtype.
#include "ramp.h"

#include "cast.h"
#include "dit/dtype.h"
#include "host.h"
#include "nest.h"
#include "simd.h"

/// PyTorch's linspace comes from both ends, so that the last element is exactly `end`.
static double get_linspace(const struct ramp_task *task, int64_t i) {
  return i < task->steps / 2 ? task->start + task->step * (double)i
                             : task->end - task->step * (double)(task->steps - 1 - i);
}

KERNEL_INLINE void count_whole_body(uint64_t *restrict numbers, int64_t count, uint64_t next, uint64_t step) {
  for (int64_t k = 0; k < count; k++) {
    numbers[k] = next;
    next += step;
  }
}
KERNEL_MULTI(static, count_whole, (uint64_t * numbers, int64_t count, uint64_t next, uint64_t step),
             (numbers, count, next, step))

/// start + (begin + k) step; begin + k is exact in double as long as it is exact in a tensor's length.
KERNEL_INLINE void count_real_body(double *restrict numbers, int count, double begin, double start, double step) {
  for (int k = 0; k < count; k++) {
    numbers[k] = start + (begin + (double)k) * step;
  }
}
KERNEL_MULTI(static, count_real, (double *numbers, int count, double begin, double start, double step),
             (numbers, count, begin, start, step))

/// Numbers [begin, begin + count) in int64 or double.
static void make_numbers(const struct ramp_task *task, int64_t begin, int64_t count, void *room) {
  double *numbers = room;
  uint64_t *whole = room;
  if (task->is_integer) {
    const uint64_t step = (uint64_t)task->istep;
    count_whole(whole, count, (uint64_t)task->istart + (uint64_t)begin * step, step);
  } else if (task->is_linspace) {
    for (int64_t k = 0; k < count; k++) {
      numbers[k] = get_linspace(task, begin + k);
    }
  } else {
    count_real(numbers, (int)count, (double)begin, task->start, task->step);
  }
}

static void fill_block(const struct ramp_task *task, int64_t begin, int64_t count) {
  _Alignas(16) char numbers[NEST_BLOCK * 8], block[NEST_BLOCK * 16];
  const int made = task->is_integer ? DIT_DTYPE_I64 : DIT_DTYPE_F64, width = (int)dit_dtype_get_size(task->dtype);
  char *out = task->data + begin * task->stride;
  const bool dense = task->stride == width;
  if (dense && task->dtype == made) {
    make_numbers(task, begin, count, out);
    return;
  }
  make_numbers(task, begin, count, numbers);
  cast_block(task->dtype, dense ? out : block, made, numbers, count);
  if (!dense) {
    cast_scatter(out, task->stride, block, width, count);
  }
}

static void run_ramp(void *argument) {
  const struct ramp_task *task = argument;
  for (int64_t begin = 0; begin < task->count; begin += NEST_BLOCK) {
    fill_block(task, begin, task->count - begin < NEST_BLOCK ? task->count - begin : NEST_BLOCK);
  }
}

enum dit_status ramp_launch(void *stream, const struct ramp_task *task, struct dit_error *err) {
  return host_stream_launch(stream, run_ramp, task, sizeof *task, err);
}
