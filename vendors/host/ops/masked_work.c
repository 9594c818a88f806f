/// masked_fill on the host (see masked.c).
#include <string.h>

#include "engine/cast.h"
#include "engine/nest.h"
#include "engine/simd.h"
#include "masked.h"

struct fill_task {
  struct nest nest;  ///< out, input, mask
  int width;
  _Alignas(16) char value[16];
};

struct wide {
  uint64_t part[2];
};
#define FILL_PARAMS (char *out, const char *in, const uint8_t *mask, const char *value, int64_t count)
#define FILL_ARGS (out, in, mask, value, count)
#define FILL_LOOP(name, type)                  \
  KERNEL_INLINE void name##_body FILL_PARAMS { \
    type fill;                                 \
    memcpy(&fill, value, sizeof fill);         \
    type *o = (type *)out;                     \
    const type *p = (const type *)in;          \
    KERNEL_LANES                               \
    for (int64_t i = 0; i < count; i++) {      \
      o[i] = mask[i] ? fill : p[i];            \
    }                                          \
  }                                            \
  KERNEL_MULTI(static, name, FILL_PARAMS, FILL_ARGS)
FILL_LOOP(fill_1, uint8_t)
FILL_LOOP(fill_2, uint16_t)
FILL_LOOP(fill_4, uint32_t)
FILL_LOOP(fill_8, uint64_t)
FILL_LOOP(fill_16, struct wide)

static void fill_block(int width, char *out, const char *in, const uint8_t *mask, const char *value, int64_t count) {
  switch (width) {
    case 1:
      fill_1(out, in, mask, value, count);
      break;
    case 2:
      fill_2(out, in, mask, value, count);
      break;
    case 4:
      fill_4(out, in, mask, value, count);
      break;
    case 8:
      fill_8(out, in, mask, value, count);
      break;
    default:
      fill_16(out, in, mask, value, count);
  }
}

/// Rows whose mask stands still are filled or copied as a whole.
static bool fill_whole(const struct fill_task *task, char *const *data, int64_t count) {
  const int64_t out_step = task->nest.strides[0][0], in_step = task->nest.strides[1][0];
  if (task->nest.strides[2][0] != 0) {
    return false;
  }
  if (*(const uint8_t *)data[2]) {
    cast_move(data[0], out_step, task->value, 0, task->width, count);
  } else if (data[0] != data[1]) {
    cast_move(data[0], out_step, data[1], in_step, task->width, count);
  }
  return true;
}

static void fill_run(void *context, char *const *data, int64_t count) {
  const struct fill_task *task = context;
  const int64_t out_step = task->nest.strides[0][0], in_step = task->nest.strides[1][0];
  const int64_t mask_step = task->nest.strides[2][0], width = task->width;
  if (fill_whole(task, data, count)) {
    return;
  }
  if (out_step == width && in_step == width && mask_step == 1) {
    fill_block(task->width, data[0], data[1], (const uint8_t *)data[2], task->value, count);
    return;
  }
  _Alignas(16) char block[NEST_BLOCK * 16];
  uint8_t mask[NEST_BLOCK];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    const int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    cast_gather(block, data[1] + i * in_step, in_step, task->width, n);
    cast_gather(mask, data[2] + i * mask_step, mask_step, 1, n);
    fill_block(task->width, block, block, mask, task->value, n);
    cast_scatter(data[0] + i * out_step, out_step, block, task->width, n);
  }
}

static void fill_all(void *argument) {
  struct fill_task *task = argument;
  nest_run(&task->nest, fill_run, task);
}

diopiError_t masked_fill(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *input,
                         const struct dit_tensor_view *mask, const void *value) {
  struct fill_task task;
  nest_init(&task.nest, 3, (const struct dit_tensor_view *const[]){out, input, mask});
  task.width = (int)dit_dtype_get_size(out->dtype);
  memcpy(task.value, value, sizeof task.value);
  return frame_launch(frame, fill_all, &task, sizeof task);
}
