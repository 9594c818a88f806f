/// Pooling on CUDA (vendors/host/ops/pool.h): the launches.
#include "ops/pool.h"

#include "image.h"
#include "kinds.h"

#define REFERENCES(tag)                            \
  KERNEL_REFERENCE(pool_max_##tag, pool);          \
  KERNEL_REFERENCE(pool_mean_##tag, pool);         \
  KERNEL_REFERENCE(pool_max_backward_##tag, pool); \
  KERNEL_REFERENCE(pool_mean_backward_##tag, pool);
FLOAT_KINDS(REFERENCES)
#define SQUARE_REFERENCES(tag)              \
  KERNEL_REFERENCE(pool_max_2_##tag, pool); \
  KERNEL_REFERENCE(pool_max_3_##tag, pool);
SQUARE_REFERENCES(f32)
SQUARE_REFERENCES(f16)
SQUARE_REFERENCES(bf16)
KERNEL_REFERENCE(pool_max_any, pool);
KERNEL_REFERENCE(pool_mean_any, pool);

/// The kernel of a floating dtype, or `other`.
#define CHOOSE(name, dtype, other)            \
  ((dtype) == DIT_DTYPE_F32    ? &name##_f32  \
   : (dtype) == DIT_DTYPE_F64  ? &name##_f64  \
   : (dtype) == DIT_DTYPE_F16  ? &name##_f16  \
   : (dtype) == DIT_DTYPE_BF16 ? &name##_bf16 \
                               : (other))

/// `x` is the tensor that is read, or the gradient that is written; `result` the one that threads walk over.
static diopiError_t launch(struct pool_call *call, struct kernel *chosen, const struct dit_tensor_view *x,
                           const struct dit_tensor_view *result) {
  struct dit_error err = {.message = ""};
  struct pool_kernel kernel = {.divisor = call->shape.divisor,
                               .dtype = call->pooled.dtype,
                               .index_dtype = call->indices.dtype,
                               .is_adaptive = call->adaptive,
                               .counts_padding = call->count_padding};
  if (result->numel == 0) {
    return diopiSuccess;
  }
  for (int i = 0; i < 3; i++) {
    kernel.axis[i] = (struct pool_kernel_axis){.in = (int32_t)call->in_sizes[i],
                                               .out = (int32_t)call->out_sizes[i],
                                               .kernel = (int32_t)call->kernel[i],
                                               .stride = (int32_t)call->stride[i],
                                               .padding = (int32_t)call->padding[i],
                                               .dilation = (int32_t)call->dilation[i]};
  }
  image_set_walk(&kernel.walk, result, call->ndim);
  if (!image_set_data(&kernel.pooled, &call->pooled, call->ndim) || !image_set_data(&kernel.x, x, call->ndim) ||
      (call->indices.handle && !image_set_data(&kernel.indices, &call->indices, call->ndim))) {
    return frame_get_code(call->frame, DIT_ERR_UNSUPPORTED, &err);
  }
  return frame_get_code(call->frame,
                        kernel_launch(chosen, call->frame->stream, image_get_grid(&kernel.walk), &kernel, &err), &err);
}

/// Of windows of 2 x 2 or 3 x 3 that are not dilated; NULL where it is another.
static struct kernel *choose_square(const struct pool_call *call) {
  const int64_t size = call->kernel[1], *in = call->in_sizes;
  const int dtype = call->x.dtype;
  const bool is_square = !call->adaptive && in[0] == 1 && call->out_sizes[0] == 1 && call->kernel[0] == 1 &&
                         call->padding[0] == 0 && (size == 2 || size == 3) && call->kernel[2] == size &&
                         call->dilation[1] == 1 && call->dilation[2] == 1 && in[1] * in[2] < INT32_MAX;
  if (!is_square || (call->indices.handle && call->indices.dtype != DIT_DTYPE_I64)) {
    return NULL;
  }
  return dtype == DIT_DTYPE_F32    ? size == 2 ? &pool_max_2_f32 : &pool_max_3_f32
         : dtype == DIT_DTYPE_F16  ? size == 2 ? &pool_max_2_f16 : &pool_max_3_f16
         : dtype == DIT_DTYPE_BF16 ? size == 2 ? &pool_max_2_bf16 : &pool_max_3_bf16
                                   : NULL;
}

diopiError_t pool_work_max(struct pool_call *call) {
  struct kernel *square = choose_square(call);
  if (square) {
    return launch(call, square, &call->x, &call->pooled);
  }
  return launch(call, CHOOSE(pool_max, call->x.dtype, &pool_max_any), &call->x, &call->pooled);
}
diopiError_t pool_work_mean(struct pool_call *call) {
  return launch(call, CHOOSE(pool_mean, call->x.dtype, &pool_mean_any), &call->x, &call->pooled);
}
diopiError_t pool_work_max_backward(struct pool_call *call) {
  return launch(call, CHOOSE(pool_max_backward, call->x.dtype, NULL), &call->grad_x, &call->grad_x);
}
diopiError_t pool_work_mean_backward(struct pool_call *call) {
  return launch(call, CHOOSE(pool_mean_backward, call->x.dtype, NULL), &call->grad_x, &call->grad_x);
}
