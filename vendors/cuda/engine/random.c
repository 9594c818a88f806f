/// Random fills and dropout on CUDA (vendors/host/ops/random.h and engine/kernels.h): the launches. Values of tensor
/// parameters are not looked at, because that would make the host wait.
#include "ops/random.h"

#include <string.h>

#include "engine/kernels.h"
#include "kernels/random.h"
#include "kinds.h"
#include "launch.h"
#include "ops/fail.h"
#include "packed.h"

#define REFERENCES(tag)                           \
  KERNEL_REFERENCE(random_uniform_##tag, random); \
  KERNEL_REFERENCE(random_normal_##tag, random);  \
  KERNEL_REFERENCE(dropout_##tag, random);
FLOAT_KINDS(REFERENCES)
KERNEL_REFERENCE(random_bernoulli_1, random);
KERNEL_REFERENCE(random_bernoulli_2, random);
KERNEL_REFERENCE(random_bernoulli_4, random);
KERNEL_REFERENCE(random_bernoulli_8, random);
KERNEL_REFERENCE(random_integer, random);
KERNEL_REFERENCE(dropout_strided_f32, random);
KERNEL_REFERENCE(dropout_strided_f64, random);

static struct kernel *get_kernel(const struct random_task *task) {
  const size_t width = dit_dtype_get_size(task->v_out.dtype);
  switch (task->kind) {
    case RANDOM_UNIFORM:
      return KIND_OF_FLOAT(random_uniform, task->v_out.dtype);
    case RANDOM_NORMAL:
      return KIND_OF_FLOAT(random_normal, task->v_out.dtype);
    case RANDOM_BERNOULLI:
      return width == 1   ? &random_bernoulli_1
             : width == 2 ? &random_bernoulli_2
             : width == 4 ? &random_bernoulli_4
                          : &random_bernoulli_8;
    default:
      return &random_integer;
  }
}

diopiError_t random_launch(struct random_task *task) {
  struct frame *frame = &task->frame;
  struct packed out, a, b;
  struct dit_error err = {.message = ""};
  FRAME_TRY(packed_read(&a, frame, &task->v_a));
  FRAME_TRY(packed_read(&b, frame, &task->v_b));
  FRAME_TRY(packed_reserve(&out, frame, &task->v_out));
  FRAME_TRY(random_reserve(frame, task->generator, (uint64_t)task->numel * (task->wide ? 2 : 1), &task->span));
  struct random_kernel kernel = {.out = out.view.data,
                                 .a = a.view.data,
                                 .b = b.view.data,
                                 .numel = task->numel,
                                 .seed = task->span.seed,
                                 .offset = task->span.offset,
                                 .from = task->a,
                                 .to = task->b,
                                 .first = task->from,
                                 .range = task->range,
                                 .dtype = task->v_out.dtype,
                                 .a_dtype = a.view.dtype,
                                 .b_dtype = b.view.dtype,
                                 .is_wide = task->wide};
  if (task->kind == RANDOM_BERNOULLI) {
    _Alignas(16) char one[16] = {0};
    kernel.limit = (uint64_t)(task->a * 4294967296.0);
    kernel_store_scalar((struct dit_scalar){DIT_SCALAR_INT, {.i = 1}}, task->v_out.dtype, one);
    memcpy(&kernel.one, one, sizeof kernel.one);
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(task->numel, RANDOM_KERNEL_THREADS * 4),
                                   .threads = RANDOM_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(frame, kernel_launch(get_kernel(task), frame->stream, grid, &kernel, &err), &err));
  return packed_store(&out, frame, &task->v_out);
}

// Dropout

/// Row-major dimensions with neighbours that lie as one joined; false when there are too many.
static bool set_dims(struct dropout_kernel *kernel, const struct dit_tensor_view *const views[3]) {
  const struct dit_tensor_view *shape = views[2];
  for (int dim = 0; dim < shape->ndim; dim++) {
    int64_t steps[3];
    if (shape->sizes[dim] == 1) {
      continue;
    }
    bool joins = kernel->ndim > 0;
    for (int i = 0; i < 3; i++) {
      steps[i] = views[i]->strides[dim] * (int64_t)dit_dtype_get_size(views[i]->dtype);
      joins = joins && kernel->strides[kernel->ndim - 1][i] == steps[i] * shape->sizes[dim];
    }
    if (!joins && kernel->ndim == RANDOM_KERNEL_DIMS) {
      return false;
    }
    const int at = joins ? kernel->ndim - 1 : kernel->ndim++;
    kernel->sizes[at] = joins ? kernel->sizes[at] * shape->sizes[dim] : shape->sizes[dim];
    memcpy(kernel->strides[at], steps, sizeof steps);
  }
  return true;
}

static enum dit_status launch_strided(void *stream, struct dropout_kernel *kernel,
                                      const struct dit_tensor_view *const views[3], struct dit_error *err) {
  if (!set_dims(kernel, views)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(kernel->numel, RANDOM_KERNEL_THREADS),
                                   .threads = RANDOM_KERNEL_THREADS};
  struct kernel *chosen = kernel->dtype == DIT_DTYPE_F64 ? &dropout_strided_f64 : &dropout_strided_f32;
  return kernel_launch(chosen, stream, grid, kernel, err);
}

enum dit_status kernel_dropout(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *mask,
                               const struct dit_tensor_view *in, double keep, double scale, uint64_t seed,
                               uint64_t offset, struct dit_error *err) {
  struct dropout_kernel kernel = {.out = out->data,
                                  .mask = mask->data,
                                  .in = in->data,
                                  .numel = in->numel,
                                  .seed = seed,
                                  .offset = offset,
                                  .limit = (uint64_t)(keep * 4294967296.0),
                                  .scale = scale,
                                  .dtype = in->dtype};
  if (!frame_has_dtype(DTYPES_FLOAT, in->dtype) || out->dtype != in->dtype || mask->dtype != DIT_DTYPE_BOOL) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (in->numel == 0) {
    return DIT_OK;
  }
  if (!(out->flags & mask->flags & in->flags & DIT_TENSOR_CONTIGUOUS)) {
    return launch_strided(stream, &kernel, (const struct dit_tensor_view *const[]){out, mask, in}, err);
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(in->numel, RANDOM_KERNEL_THREADS * 4),
                                   .threads = RANDOM_KERNEL_THREADS};
  return kernel_launch(KIND_OF_FLOAT(dropout, in->dtype), stream, grid, &kernel, err);
}

/// The mask as a Bernoulli fill, then the product.
diopiError_t feature_run(struct feature_task *task) {
  struct frame *frame = task->frame;
  struct packed mask;
  struct dit_tensor_view wide;
  struct dit_error err = {.message = ""};
  int64_t strides[DIT_MAX_DIMS];
  FRAME_TRY(packed_reserve(&mask, frame, task->mask));
  const struct random_kernel fill = {.out = mask.view.data,
                                     .numel = task->mask->numel,
                                     .seed = task->span.seed,
                                     .offset = task->span.offset,
                                     .limit = (uint64_t)(task->keep * 4294967296.0),
                                     .one = 1};
  const struct kernel_grid grid = {.x = kernel_get_blocks(fill.numel, RANDOM_KERNEL_THREADS * 4),
                                   .threads = RANDOM_KERNEL_THREADS};
  frame_expand(&mask.view, task->in->ndim, task->in->sizes, strides, &wide);
  struct dropout_kernel kernel = {.out = task->out->data,
                                  .mask = wide.data,
                                  .in = task->in->data,
                                  .numel = task->in->numel,
                                  .scale = task->keep == 0 ? 0 : 1 / task->keep,
                                  .dtype = task->in->dtype,
                                  .is_drawn = 1};
  const struct dit_tensor_view *const views[] = {task->out, &wide, task->in};
  FRAME_TRY(frame_get_code(frame, kernel_launch(&random_bernoulli_1, frame->stream, grid, &fill, &err), &err));
  FRAME_TRY(packed_store(&mask, frame, task->mask));
  return frame_get_code(frame, launch_strided(frame->stream, &kernel, views, &err), &err);
}
