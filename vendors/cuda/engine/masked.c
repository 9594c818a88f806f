/// masked_fill, nonzero and packing by a mask on CUDA (vendors/host/ops/masked.h, vendors/host/engine/index.h).
#include "ops/masked.h"

#include <string.h>

#include "dit/promotion.h"
#include "engine/index.h"
#include "kernels/pack.h"
#include "kinds.h"
#include "launch.h"
#include "plan.h"

KERNEL_REFERENCE(pack_count, pack);
KERNEL_REFERENCE(pack_scan, pack);
KERNEL_REFERENCE(pack_list, pack);
#define REFERENCES(width)                    \
  KERNEL_REFERENCE(pack_move_##width, pack); \
  KERNEL_REFERENCE(masked_fill_##width, pack);
WIDTH_KINDS(REFERENCES)
KERNEL_REFERENCE(masked_fill_flat_2, pack);
KERNEL_REFERENCE(masked_fill_flat_4, pack);

// masked_fill

static bool is_flat(const struct nest *nest, int width) {
  return nest->ndim == 1 && nest->strides[0][0] == width && nest->strides[1][0] == width && nest->strides[2][0] == 1 &&
         (uintptr_t)nest->data[0] % (4 * (unsigned)width) == 0 &&
         (uintptr_t)nest->data[1] % (4 * (unsigned)width) == 0 && (uintptr_t)nest->data[2] % 4 == 0;
}

diopiError_t masked_fill(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *input,
                         const struct dit_tensor_view *mask, const void *value) {
  struct nest nest;
  struct pointwise_strided task;
  struct dit_error err = {.message = ""};
  const int width = (int)dit_dtype_get_size(out->dtype);
  nest_init(&nest, 3, (const struct dit_tensor_view *const[]){out, input, mask});
  if (!plan_set_strided(&task, &nest)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  memcpy(task.numbers, value, 16);
  const bool flat = (width == 2 || width == 4) && is_flat(&nest, width);
  struct kernel *kernel = !flat        ? KIND_OF_WIDTH(masked_fill, width)
                          : width == 2 ? &masked_fill_flat_2
                                       : &masked_fill_flat_4;
  const struct kernel_grid grid = {.x = kernel_get_blocks(nest.numel, PACK_KERNEL_THREADS * (flat ? 8 : 2)),
                                   .threads = PACK_KERNEL_THREADS};
  return frame_get_code(frame, kernel_launch(kernel, frame->stream, grid, &task, &err), &err);
}

// Elements that are not zero

/// `other` may be NULL.
static bool set_task(struct pack_kernel *task, const struct dit_tensor_view *view, const struct dit_tensor_view *other,
                     int64_t *starts) {
  struct nest nest;
  if (view->ndim > PACK_KERNEL_DIMS) {
    return false;
  }
  nest_init_ordered(&nest, other ? 2 : 1, (const struct dit_tensor_view *const[]){view, other});
  *task = (struct pack_kernel){.starts = starts,
                               .tiles = (view->numel + PACK_KERNEL_TILE - 1) / PACK_KERNEL_TILE,
                               .bits = dit_dtype_get_magnitude_bits(view->dtype),
                               .width = (int32_t)dit_dtype_get_size(view->dtype),
                               .ndim = view->ndim};
  for (int dim = 0; dim < view->ndim; dim++) {
    task->sizes[dim] = view->sizes[dim];
  }
  return plan_set_strided(&task->walk, &nest);
}

static struct kernel_grid get_grid(const struct pack_kernel *task) {
  return (struct kernel_grid){.x = kernel_get_blocks(task->tiles, 1), .threads = PACK_KERNEL_THREADS};
}

enum dit_status index_count_blocks(struct diopiContext *context, void *stream, const struct dit_tensor_view *view,
                                   int64_t **starts, int64_t *total, struct dit_error *err) {
  struct pack_kernel task;
  const int64_t tiles = (view->numel + PACK_KERNEL_TILE - 1) / PACK_KERNEL_TILE;
  *total = 0;
  *starts = scratch_take(context, ((size_t)tiles + 1) * sizeof **starts);
  if (!*starts) {
    return DIT_ERR_NOMEM;
  }
  if (tiles == 0) {
    return DIT_OK;
  }
  if (!set_task(&task, view, NULL, *starts)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct kernel_grid one = {.x = 1, .threads = PACK_KERNEL_THREADS};
  DIT_RETURN_IF_NOT_OK(kernel_launch(&pack_count, stream, get_grid(&task), &task, err));
  DIT_RETURN_IF_NOT_OK(kernel_launch(&pack_scan, stream, one, &task, err));
  return launch_read(stream, total, *starts + tiles, sizeof *total, err);
}

enum dit_status index_list_nonzero(void *stream, const struct dit_tensor_view *view, const int64_t *starts,
                                   int64_t *out, int64_t row_step, int64_t dim_step, struct dit_error *err) {
  struct pack_kernel task;
  if (view->ndim == 0 || view->numel == 0) {
    return DIT_OK;
  }
  if (!set_task(&task, view, NULL, (int64_t *)starts)) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.list = out;
  task.row_step = row_step;
  task.dim_step = dim_step;
  return kernel_launch(&pack_list, stream, get_grid(&task), &task, err);
}

diopiError_t masked_pack(struct pack_task *task) {
  struct frame *frame = task->frame;
  struct pack_kernel kernel;
  struct dit_error err = {.message = ""};
  const int width = (int)dit_dtype_get_size(task->whole.dtype);
  if (!set_task(&kernel, &task->mask, &task->whole, (int64_t *)task->starts)) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  kernel.packed = task->packed.data;
  kernel.packed_step = (task->unpack ? task->packed.strides[0] : 1) * width;
  kernel.packed_count = task->packed.numel;
  kernel.is_unpack = task->unpack;
  return frame_get_code(
      frame, kernel_launch(KIND_OF_WIDTH(pack_move, width), frame->stream, get_grid(&kernel), &kernel, &err), &err);
}
