/// Resizing and sampling of images on CUDA (vendors/host/ops/upsample.h, grid_sample.h): the launches.
#include "image.h"
#include "kinds.h"
#include "ops/grid_sample.h"
#include "ops/upsample.h"
#include "packed.h"

#define REFERENCES(tag)                            \
  KERNEL_REFERENCE(enlarge_nearest_##tag, resize); \
  KERNEL_REFERENCE(enlarge_linear_##tag, resize);  \
  KERNEL_REFERENCE(enlarge_cubic_##tag, resize);   \
  KERNEL_REFERENCE(shrink_nearest_##tag, resize);  \
  KERNEL_REFERENCE(shrink_linear_##tag, resize);   \
  KERNEL_REFERENCE(shrink_cubic_##tag, resize);    \
  KERNEL_REFERENCE(grid_sample_##tag, resize);
FLOAT_KINDS(REFERENCES)

static struct kernel *get_kernel(const struct resize_call *call) {
  const int dtype = call->small.dtype;
  switch (call->mode) {
    case RESIZE_NEAREST:
      return call->backward ? KIND_OF_FLOAT(shrink_nearest, dtype) : KIND_OF_FLOAT(enlarge_nearest, dtype);
    case RESIZE_LINEAR:
      return call->backward ? KIND_OF_FLOAT(shrink_linear, dtype) : KIND_OF_FLOAT(enlarge_linear, dtype);
    default:
      return call->backward ? KIND_OF_FLOAT(shrink_cubic, dtype) : KIND_OF_FLOAT(enlarge_cubic, dtype);
  }
}

diopiError_t resize_run(struct resize_call *call) {
  const struct dit_tensor_view *result = call->backward ? &call->small : &call->large;
  struct resize_kernel kernel = {.mode = (int32_t)call->mode, .align = call->align};
  struct dit_error err = {.message = ""};
  if (!image_set_data(&kernel.large, &call->large, call->ndim) ||
      !image_set_data(&kernel.small, &call->small, call->ndim)) {
    return frame_get_code(call->frame, DIT_ERR_UNSUPPORTED, &err);
  }
  for (int i = 0; i < 3; i++) {
    kernel.in[i] = (int32_t)call->in[i];
    kernel.out[i] = (int32_t)call->out[i];
    kernel.is_used[i] = i >= 3 - call->ndim;
  }
  image_set_walk(&kernel.walk, result, call->ndim);
  return frame_get_code(
      call->frame, kernel_launch(get_kernel(call), call->frame->stream, image_get_grid(&kernel.walk), &kernel, &err),
      &err);
}

diopiError_t sample_grid(struct sample_call *call) {
  struct frame *frame = &call->frame;
  struct packed out, input, grid;
  struct dit_error err = {.message = ""};
  if (call->channels > INT32_MAX || call->height > INT32_MAX || call->width > INT32_MAX) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  FRAME_TRY(packed_read(&input, frame, &call->input));
  FRAME_TRY(packed_read(&grid, frame, &call->grid));
  FRAME_TRY(packed_reserve(&out, frame, &call->out));
  const struct grid_sample_kernel kernel = {.out = out.view.data,
                                            .input = input.view.data,
                                            .grid = grid.view.data,
                                            .batch = call->out.sizes[0],
                                            .points = call->points,
                                            .channels = (int32_t)call->channels,
                                            .height = (int32_t)call->height,
                                            .width = (int32_t)call->width,
                                            .mode = (int32_t)call->mode};
  const unsigned blocks = kernel_get_blocks(kernel.batch * kernel.points, IMAGE_KERNEL_THREADS);
  const int64_t spare = (int64_t)kernel_get_multiprocessors() * 8 / blocks;
  const int64_t parts = spare < 1 ? 1 : spare < call->channels ? spare : call->channels;
  const struct kernel_grid shape = {.x = blocks, .y = (unsigned)parts, .threads = IMAGE_KERNEL_THREADS};
  struct kernel *chosen = KIND_OF_FLOAT(grid_sample, call->input.dtype);
  FRAME_TRY(frame_get_code(frame, kernel_launch(chosen, frame->stream, shape, &kernel, &err), &err));
  return packed_store(&out, frame, &call->out);
}
