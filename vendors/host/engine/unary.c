/// The elementwise unary kernel: relu and gelu.
///
/// Works in float (also for half types) or double or, relu only, the integer type itself; other types and strides are
/// staged in blocks.
#include <math.h>
#include <string.h>

#include "cast.h"
#include "host.h"
#include "kernels.h"
#include "mathf.h"
#include "nest.h"

typedef void unary_loop(void *out, const void *in, int64_t count);

#define PARAMS (void *out, const void *in, int64_t count)
#define ARGS (out, in, count)
#define UNARY_LOOP(name, type, expr)      \
  KERNEL_INLINE void name##_body PARAMS { \
    type *o = out;                        \
    const type *p = in;                   \
    KERNEL_LANES                          \
    for (int64_t i = 0; i < count; i++) { \
      const type x = p[i];                \
      o[i] = (expr);                      \
    }                                     \
  }                                       \
  KERNEL_MULTI(static, name, PARAMS, ARGS)

UNARY_LOOP(relu_f32, float, x < 0 ? 0 : x)
UNARY_LOOP(relu_f64, double, x < 0 ? 0 : x)
UNARY_LOOP(relu_i8, int8_t, x < 0 ? 0 : x)
UNARY_LOOP(relu_i16, int16_t, x < 0 ? 0 : x)
UNARY_LOOP(relu_i32, int32_t, x < 0 ? 0 : x)
UNARY_LOOP(relu_i64, int64_t, x < 0 ? 0 : x)
UNARY_LOOP(relu_u8, uint8_t, x)
UNARY_LOOP(gelu_f32, float, 0.5f * x * (1.0f + erf_f32(x * 0.70710678f)))
UNARY_LOOP(gelu_f64, double, 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)))
UNARY_LOOP(gelu_tanh_f32, float, 0.5f * x * (1.0f + tanh_f32(0.79788456f * (x + 0.044715f * (x * x * x)))))
UNARY_LOOP(gelu_tanh_f64, double, 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x)))))

static unary_loop *select_loop(enum dit_unary_kind kind, int work) {
  if (kind == DIT_UNARY_GELU) {
    return work == DIT_DTYPE_F32 ? gelu_f32 : work == DIT_DTYPE_F64 ? gelu_f64 : NULL;
  }
  if (kind == DIT_UNARY_GELU_TANH) {
    return work == DIT_DTYPE_F32 ? gelu_tanh_f32 : work == DIT_DTYPE_F64 ? gelu_tanh_f64 : NULL;
  }
  switch (work) {
    case DIT_DTYPE_F32:
      return relu_f32;
    case DIT_DTYPE_F64:
      return relu_f64;
    case DIT_DTYPE_U8:
      return relu_u8;
    case DIT_DTYPE_I8:
      return relu_i8;
    case DIT_DTYPE_I16:
      return relu_i16;
    case DIT_DTYPE_I32:
      return relu_i32;
    case DIT_DTYPE_I64:
      return relu_i64;
    default:
      return NULL;
  }
}

struct unary_task {
  struct nest nest;
  unary_loop *loop;
  int dtype, work, width;
};

static void run_run(void *context, char *const *data, int64_t count) {
  const struct unary_task *task = context;
  const int64_t out_stride = task->nest.strides[0][0], in_stride = task->nest.strides[1][0];
  if (task->dtype == task->work && out_stride == task->width && in_stride == task->width) {
    task->loop(data[0], data[1], count);
    return;
  }
  _Alignas(64) char raw[NEST_BLOCK * 8], block[NEST_BLOCK * 8];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    const char *from = data[1] + i * in_stride;
    if (in_stride != task->width) {
      cast_gather(raw, from, in_stride, task->width, n);
      from = raw;
    }
    cast_block(task->work, block, task->dtype, from, n);
    task->loop(block, block, n);
    if (out_stride == task->width) {
      cast_block(task->dtype, data[0] + i * out_stride, task->work, block, n);
    } else {
      cast_block(task->dtype, raw, task->work, block, n);
      cast_scatter(data[0] + i * out_stride, out_stride, raw, task->width, n);
    }
  }
}

static void run_task(void *argument) {
  struct unary_task *task = argument;
  nest_run(&task->nest, run_run, task);
}

enum dit_status kernel_unary(void *stream, enum dit_unary_kind kind, const struct dit_tensor_view *out,
                             const struct dit_tensor_view *in, struct dit_error *err) {
  bool half = in->dtype == DIT_DTYPE_F16 || in->dtype == DIT_DTYPE_BF16;
  int work = half ? DIT_DTYPE_F32 : in->dtype;
  unary_loop *loop = select_loop(kind, work);
  if (!loop || out->dtype != in->dtype) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  if (!stream && !half && out->flags & in->flags & DIT_TENSOR_CONTIGUOUS && out->numel <= NEST_GRAIN) {
    loop(out->data, in->data, out->numel);
    return DIT_OK;
  }
  struct unary_task task;
  nest_init(&task.nest, 2, (const struct dit_tensor_view *const[]){out, in});
  task.loop = loop;
  task.dtype = in->dtype;
  task.work = work;
  task.width = (int)dit_dtype_get_size(in->dtype);
  return host_stream_launch(stream, run_task, &task, sizeof(task), err);
}
