/// masked_fill: out = mask ? value : input.
///
/// mask is bool (or uint8: not zero) and broadcasts with input to the shape of out; input itself keeps its shape in the
/// in-place forms. value is a number or a 0-d tensor that input's dtype can hold, else an argument error. Every dtype;
/// out may be input.
#include <string.h>

#include "engine/cast.h"
#include "engine/index.h"
#include "engine/nest.h"
#include "engine/simd.h"
#include "layout.h"

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

/// `value` is one element of out's dtype.
static diopiError_t launch_fill(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *input, const struct dit_tensor_view *mask,
                                const void *value) {
  struct fill_task task;
  struct dit_tensor_view x, m;
  int64_t input_strides[DIT_MAX_DIMS], mask_strides[DIT_MAX_DIMS];
  const struct dit_tensor_view *inputs[] = {input, mask};
  if (mask->dtype != DIT_DTYPE_BOOL && mask->dtype != DIT_DTYPE_U8) {
    return frame_fail(frame, diopiDtypeNotSupported, "'mask' is %s; valid: bool, uint8",
                      dit_dtype_get_name(mask->dtype));
  }
  FRAME_TRY(layout_check_dtype(frame, name, out, "input", input));
  FRAME_CHECK(frame,
              frame_expand(input, out->ndim, out->sizes, input_strides, &x) &&
                  frame_expand(mask, out->ndim, out->sizes, mask_strides, &m),
              "'input' has shape %s and 'mask' %s; both must broadcast to that of '%s', %s",
              layout_print(input->ndim, input->sizes), layout_print(mask->ndim, mask->sizes), name,
              layout_print(out->ndim, out->sizes));
  FRAME_TRY(frame_check_output(frame, name, out, inputs, 1, true));
  FRAME_TRY(frame_check_output(frame, name, out, inputs + 1, 1, true));
  if (out->numel == 0) {
    return diopiSuccess;
  }
  nest_init(&task.nest, 3, (const struct dit_tensor_view *const[]){out, &x, &m});
  task.width = (int)dit_dtype_get_size(out->dtype);
  memcpy(task.value, value, sizeof task.value);
  return frame_launch(frame, fill_all, &task, sizeof task);
}

static diopiError_t fill_scalar(struct frame *frame, const char *name, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                const diopiScalar_t *value) {
  struct dit_tensor_view o, x, m;
  struct dit_scalar scalar;
  _Alignas(16) char element[16];
  FRAME_TRY(frame_take(frame, name, out, &o));
  FRAME_TAKE(frame, input, &x);
  FRAME_TAKE(frame, mask, &m);
  FRAME_TRY(frame_get_scalar(frame, "value", value, &scalar));
  FRAME_TRY(layout_get_value(frame, "value", scalar, x.dtype, element));
  return launch_fill(frame, name, &o, &x, &m, element);
}

static diopiError_t fill_tensor(struct frame *frame, const char *name, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                diopiConstTensorHandle_t value) {
  struct dit_tensor_view o, x, m, v;
  struct dit_scalar scalar;
  _Alignas(16) char element[16];
  FRAME_TRY(frame_take(frame, name, out, &o));
  FRAME_TAKE(frame, input, &x);
  FRAME_TAKE(frame, mask, &m);
  FRAME_TAKE(frame, value, &v);
  FRAME_TRY(layout_read_scalar(frame, "value", &v, &scalar));
  FRAME_TRY(layout_get_value(frame, "value", scalar, x.dtype, element));
  return launch_fill(frame, name, &o, &x, &m, element);
}

diopiError_t diopiMaskedFill(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t mask, diopiConstTensorHandle_t value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_tensor(&frame, "out", out, input, mask, value);
}

diopiError_t diopiMaskedFillInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t mask,
                                diopiConstTensorHandle_t value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_tensor(&frame, "input", input, input, mask, value);
}

diopiError_t diopiMaskedFillScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t mask, const diopiScalar_t *value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_scalar(&frame, "out", out, input, mask, value);
}

diopiError_t diopiMaskedFillInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                      diopiConstTensorHandle_t mask, const diopiScalar_t *value) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return fill_scalar(&frame, "input", input, input, mask, value);
}
