/// Unfold and fold on CUDA (vendors/host/ops/im2col.h): the launches.
#include "image.h"
#include "ops/im2col.h"
#include "plan.h"

KERNEL_REFERENCE(columns_fold_f32, columns);
KERNEL_REFERENCE(columns_fold_f64, columns);
KERNEL_REFERENCE(columns_fold_f16, columns);
KERNEL_REFERENCE(columns_fold_bf16, columns);
KERNEL_REFERENCE(columns_unfold_2, columns);
KERNEL_REFERENCE(columns_unfold_4, columns);
KERNEL_REFERENCE(columns_unfold_8, columns);

#define MOST_REACH (INT64_C(1) << 28)

static struct kernel *get_kernel(const struct column_call *call) {
  const int dtype = call->x.dtype;
  const size_t width = dit_dtype_get_size(dtype);
  if (!call->fold) {
    return width == 2 ? &columns_unfold_2 : width == 4 ? &columns_unfold_4 : &columns_unfold_8;
  }
  return dtype == DIT_DTYPE_F32   ? &columns_fold_f32
         : dtype == DIT_DTYPE_F64 ? &columns_fold_f64
         : dtype == DIT_DTYPE_F16 ? &columns_fold_f16
                                  : &columns_fold_bf16;
}

/// Sizes; false where they do not fit the kernels' numbers.
static bool set_shape(struct columns_kernel *kernel, const struct conv_shape *s) {
  for (int i = 0; i < 2; i++) {
    if (s->in[1 + i] + 2 * s->padding[1 + i] + s->kernel[1 + i] * s->dilation[1 + i] + s->stride[1 + i] > MOST_REACH) {
      return false;
    }
    kernel->in[i] = (int32_t)s->in[1 + i];
    kernel->out[i] = (int32_t)s->out[1 + i];
    kernel->kernel[i] = (int32_t)s->kernel[1 + i];
    kernel->stride[i] = (int32_t)s->stride[1 + i];
    kernel->padding[i] = (int32_t)s->padding[1 + i];
    kernel->dilation[i] = (int32_t)s->dilation[1 + i];
  }
  return s->kernel[1] * s->kernel[2] <= INT32_MAX;
}

diopiError_t column_run(struct column_call *call) {
  const struct dit_tensor_view *image = call->fold ? &call->out : &call->x,
                               *columns = call->fold ? &call->x : &call->out;
  const struct conv_shape *s = &call->shape;
  struct columns_kernel kernel = {.columns = columns->data};
  struct dit_error err = {.message = ""};
  if (!set_shape(&kernel, s) || !image_set_data(&kernel.image, image, 2)) {
    return frame_get_code(call->frame, DIT_ERR_UNSUPPORTED, &err);
  }
  for (int i = 0; i < columns->ndim; i++) {
    kernel.strides[3 - columns->ndim + i] = columns->strides[i] * (int64_t)dit_dtype_get_size(columns->dtype);
  }
  if (call->fold) {
    image_set_walk(&kernel.walk, image, 2);
  } else {
    const int64_t sizes[4] = {s->out[2], s->out[1], s->kernel[1] * s->kernel[2], call->channels};
    kernel.walk = (struct image_walk){.numel = columns->numel, .is_wide = columns->numel > INT32_MAX};
    for (int i = 0; i < 4; i++) {
      kernel.walk.sizes[i] = sizes[i];
      kernel.walk.divisors[i] = plan_get_divisor(sizes[i]);
    }
  }
  const struct kernel_grid grid = image_get_grid(&kernel.walk);
  return frame_get_code(call->frame, kernel_launch(get_kernel(call), call->frame->stream, grid, &kernel, &err), &err);
}
