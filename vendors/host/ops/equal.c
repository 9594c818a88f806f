/// Equality of whole tensors: one shape, one dtype, no element that differs. NaN is equal to nothing.
#include <string.h>

#include "elementwise.h"
#include "engine/cast.h"
#include "engine/nest.h"

#define DIFFER(tag, type, arith) LOOP_2(differ_##tag, uint8_t, type, type, x != y)
LOOP_LIST_BITS(DIFFER)
LOOP_LIST_FLOAT(DIFFER)
#define PAIR_DIFFER(tag, type, arith) LOOP_PLAIN_2(differ_##tag, uint8_t, type, type, x != y)
LOOP_LIST_COMPLEX(PAIR_DIFFER)
static loop_table differ_loops = {ROWS_BITS(differ), ROWS_FLOAT(differ),
                                  ROWS_COMPLEX(differ), [DIT_DTYPE_BOOL] = differ_u8};

/// Block by block, until one differs.
struct equal_task {
  struct nest nest;
  const struct dit_tensor_view *views[2];
  pointwise_loop *loop;
  int work, dtype, width;
  bool differs;
};

static const _Alignas(16) char no_numbers[POINTWISE_PARAMETERS];

static void equal_run(void *context, char *const *data, int64_t count) {
  struct equal_task *task = context;
  _Alignas(64) char raw[2][NEST_BLOCK * 16], block[2][NEST_BLOCK * 16];
  uint8_t different[NEST_BLOCK];
  for (int64_t begin = 0; begin < count && !task->differs; begin += NEST_BLOCK) {
    const int64_t n = count - begin < NEST_BLOCK ? count - begin : NEST_BLOCK;
    const void *in[2];
    for (int i = 0; i < 2; i++) {
      const int64_t stride = task->nest.strides[i][0];
      in[i] = data[i] + begin * stride;
      if (stride != task->width) {
        cast_gather(raw[i], in[i], stride, task->width, n);
        in[i] = raw[i];
      }
      if (task->work != task->dtype) {
        cast_block(task->work, block[i], task->dtype, in[i], n);
        in[i] = block[i];
      }
    }
    task->loop(no_numbers, (void *[]){different}, in, n);
    task->differs = memchr(different, 1, (size_t)n) != NULL;
  }
}

static diopiError_t run_equal(void *argument) {
  struct equal_task *task = argument;
  nest_init(&task->nest, 2, task->views);
  nest_walk(&task->nest, 0, task->nest.numel, equal_run, task);
  return diopiSuccess;
}

diopiError_t diopiEqual(diopiContextHandle_t ctx, bool *out, diopiConstTensorHandle_t input,
                        diopiConstTensorHandle_t other) {
  struct frame frame;
  struct dit_tensor_view a, b;
  struct equal_task task;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out != NULL, "'out' is NULL; it must be the place for a bool");
  FRAME_TAKE(&frame, input, &a);
  FRAME_TAKE(&frame, other, &b);
  FRAME_CHECK(&frame, a.dtype == b.dtype, "'input' is %s, 'other' is %s; they must be equal",
              dit_dtype_get_name(a.dtype), dit_dtype_get_name(b.dtype));
  task.dtype = a.dtype;
  task.work = elementwise_get_work(a.dtype);
  if (task.work >= LOOP_TYPES || !differ_loops[task.work]) {
    return frame_fail_dtype(&frame, "input", a.dtype);
  }
  if (!frame_is_same_shape(&a, &b)) {
    *out = false;
    return diopiSuccess;
  }
  task.views[0] = &a;
  task.views[1] = &b;
  task.loop = differ_loops[task.work];
  task.width = (int)dit_dtype_get_size(a.dtype);
  task.differs = false;
  if (a.numel > 0) {
    FRAME_TRY(frame_run(&frame, run_equal, &task));
  }
  *out = !task.differs;
  return diopiSuccess;
}
