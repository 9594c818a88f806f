/// The gradient of unfold, and one_hot, on the host (see unfold.c).
#include "dit/parallel.h"
#include "engine/index.h"
#include "engine/scalar.h"
#include "unfold.h"

typedef void unfold_line(const struct unfold_task *task, char *out, const char *grad);

/// Element i: the windows from the first that reaches it to the last that begins at or before it.
#define UNFOLD_LINE(suffix, type, sum_type, load, store)                                                              \
  static void line_##suffix(const struct unfold_task *task, char *out, const char *grad) {                            \
    for (int64_t i = 0; i < task->length; i++) {                                                                      \
      int64_t first = i < task->size ? 0 : (i - task->size) / task->step + 1;                                         \
      int64_t last = i / task->step < task->windows - 1 ? i / task->step : task->windows - 1;                         \
      sum_type sum = {0};                                                                                             \
      for (int64_t j = first; j <= last && task->size > 0; j++) {                                                     \
        const type value = *(const type *)(grad + j * task->window_step + (i - j * task->step) * task->element_step); \
        load;                                                                                                         \
      }                                                                                                               \
      type *o = (type *)(out + i * task->out_step);                                                                   \
      store;                                                                                                          \
    }                                                                                                                 \
  }
struct pair_f32 {
  float re, im;
};
struct pair_f64 {
  double re, im;
};
UNFOLD_LINE(1, uint8_t, uint8_t, sum = (uint8_t)(sum + value), *o = sum)
UNFOLD_LINE(2, uint16_t, uint16_t, sum = (uint16_t)(sum + value), *o = sum)
UNFOLD_LINE(4, uint32_t, uint32_t, sum += value, *o = sum)
UNFOLD_LINE(8, uint64_t, uint64_t, sum += value, *o = sum)
UNFOLD_LINE(bool, uint8_t, uint8_t, sum = sum | (value != 0), *o = sum)
UNFOLD_LINE(f16, uint16_t, float, sum += half_to_float(value), *o = half_from_float(sum))
UNFOLD_LINE(bf16, uint16_t, float, sum += bfloat_to_float(value), *o = bfloat_from_float(sum))
UNFOLD_LINE(f32, float, float, sum += value, *o = sum)
UNFOLD_LINE(f64, double, double, sum += value, *o = sum)
UNFOLD_LINE(c64, struct pair_f32, struct pair_f32, sum.re += value.re; sum.im += value.im, *o = sum)
UNFOLD_LINE(c128, struct pair_f64, struct pair_f64, sum.re += value.re; sum.im += value.im, *o = sum)

static unfold_line *const lines[] = {
    [DIT_DTYPE_U8] = line_1,    [DIT_DTYPE_I8] = line_1,      [DIT_DTYPE_I16] = line_2,   [DIT_DTYPE_I32] = line_4,
    [DIT_DTYPE_I64] = line_8,   [DIT_DTYPE_BOOL] = line_bool, [DIT_DTYPE_F16] = line_f16, [DIT_DTYPE_BF16] = line_bf16,
    [DIT_DTYPE_F32] = line_f32, [DIT_DTYPE_F64] = line_f64,   [DIT_DTYPE_C64] = line_c64, [DIT_DTYPE_C128] = line_c128,
};

static void unfold_run(void *context, char *const *data, int64_t count) {
  const struct unfold_task *task = context;
  for (int64_t i = 0; i < count; i++) {
    lines[task->dtype](task, data[0] + i * task->nest.strides[0][0], data[1] + i * task->nest.strides[1][0]);
  }
}

static void unfold_range(void *context, int64_t begin, int64_t end) {
  const struct unfold_task *task = context;
  nest_walk(&task->nest, begin, end, unfold_run, context);
}

static void unfold_all(void *argument) {
  struct unfold_task *task = argument;
  dit_parallel_for(0, task->nest.numel, NEST_GRAIN / task->length + 1, unfold_range, task);
}

bool unfold_has_dtype(int dtype) {
  return (size_t)dtype < sizeof lines / sizeof lines[0] && lines[dtype];
}

diopiError_t unfold_run_backward(struct frame *frame, const struct unfold_task *task) {
  return frame_launch(frame, unfold_all, task, sizeof *task);
}

static void mark_run(void *context, char *const *data, int64_t count) {
  const struct hot_task *task = context;
  const bool wide = task->input.dtype == DIT_DTYPE_I64;
  for (int64_t i = 0; i < count; i++) {
    const int64_t class = index_read(data[0] + i * task->nest.strides[0][0], wide);
    *(int64_t *)(data[1] + i * task->nest.strides[1][0] + class * task->step) = 1;
  }
}

static diopiError_t run_hot(void *argument) {
  struct hot_task *task = argument;
  struct frame now = frame_get_inner(task->frame);
  struct dit_tensor_view first = task->out;
  FRAME_TRY(layout_check_index(task->frame, "input", &task->input, task->out.sizes[task->input.ndim], false));
  FRAME_TRY(layout_zero(&now, &task->out));
  if (task->out.numel == 0) {
    return diopiSuccess;
  }
  first.ndim--;
  task->step = task->out.strides[first.ndim] * 8;
  nest_init(&task->nest, 2, (const struct dit_tensor_view *const[]){&task->input, &first});
  nest_run(&task->nest, mark_run, task);
  return diopiSuccess;
}

diopiError_t hot_run(struct hot_task *task) {
  return frame_run(task->frame, run_hot, task);
}
