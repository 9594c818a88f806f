/// Rotary embedding and the masked softmax on CUDA (vendors/host/ops/rotary.h, masked_softmax.h): the launches.
#include "kernels/rotary.h"

#include "engine/kernels.h"
#include "engine/nest.h"
#include "kinds.h"
#include "launch.h"
#include "ops/fail.h"
#include "ops/masked_softmax.h"
#include "ops/rotary.h"
#include "packed.h"
#include "plan.h"

#define REFERENCES(tag)                   \
  KERNEL_REFERENCE(rotary_##tag, rotary); \
  KERNEL_REFERENCE(masked_softmax_##tag, rotary);
FLOAT_KINDS(REFERENCES)

diopiError_t rotary_run(struct rotary_call *call) {
  const struct dit_tensor_view *const views[4] = {&call->out, &call->x, &call->cosine, &call->sine};
  const int ndim = call->x.ndim;
  struct rotary_kernel kernel = {.width = (int32_t)call->x.sizes[ndim - 1],
                                 .is_conj = call->conj,
                                 .is_interleaved = call->interleaved,
                                 .is_full = call->full,
                                 .cosine_dtype = call->cosine.dtype,
                                 .sine_dtype = call->sine.dtype};
  struct dit_tensor_view lines[4];
  const struct dit_tensor_view *first[4];
  int64_t sizes[DIT_MAX_DIMS], strides[4][DIT_MAX_DIMS];
  struct dit_error err = {.message = ""};
  struct nest nest;
  for (int dim = 0; dim < ndim; dim++) {
    sizes[dim] = dim == ndim - 1 ? 1 : call->x.sizes[dim];
  }
  for (int i = 0; i < 4; i++) {
    const struct dit_tensor_view *view = views[i];
    for (int dim = 0; dim < ndim; dim++) {
      const int at = dim - ndim + view->ndim;
      strides[i][dim] = at < 0 || view->sizes[at] == 1 ? 0 : view->strides[at];
    }
    lines[i] = *view;
    lines[i].ndim = (int16_t)ndim;
    lines[i].sizes = sizes;
    lines[i].strides = strides[i];
    lines[i].numel = call->x.numel / kernel.width;
    lines[i].flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
    first[i] = &lines[i];
    kernel.steps[i] = strides[i][ndim - 1] * (int64_t)dit_dtype_get_size(view->dtype);
  }
  nest_init(&nest, 4, first);
  const struct kernel_grid grid = {.x = kernel_get_blocks(lines[0].numel, ROTARY_KERNEL_THREADS / 32),
                                   .threads = ROTARY_KERNEL_THREADS};
  const enum dit_status status =
      plan_set_strided(&kernel.lines, &nest)
          ? kernel_launch(KIND_OF_FLOAT(rotary, call->x.dtype), call->frame->stream, grid, &kernel, &err)
          : DIT_ERR_UNSUPPORTED;
  return frame_get_code(call->frame, status, &err);
}

/// The mask as contiguous bool.
static diopiError_t read_mask(struct masked_softmax *call, const uint8_t **out) {
  const struct dit_tensor_view *mask = &call->mask;
  struct dit_error err = {.message = ""};
  int64_t strides[DIT_MAX_DIMS];
  struct dit_tensor_view copy = *mask;
  *out = mask->handle ? mask->data : NULL;
  if (!mask->handle || (mask->dtype == DIT_DTYPE_BOOL && mask->flags & DIT_TENSOR_CONTIGUOUS)) {
    return diopiSuccess;
  }
  dit_shape_set_contiguous(mask->ndim, mask->sizes, strides);
  copy.strides = strides;
  copy.dtype = DIT_DTYPE_BOOL;
  copy.flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  copy.data = scratch_take(call->frame->context, (size_t)mask->numel);
  if (!copy.data) {
    return frame_fail_device(call->frame, "no device memory for a copy of the mask");
  }
  *out = copy.data;
  return frame_get_code(call->frame, kernel_copy(call->frame->stream, &copy, mask, &err), &err);
}

diopiError_t masked_softmax_run(struct masked_softmax *call) {
  const int last = call->x.ndim - 1;
  struct frame *frame = call->frame;
  struct packed x, y, out;
  struct dit_error err = {.message = ""};
  struct masked_softmax_kernel kernel = {.length = call->x.sizes[last],
                                         .mask_step = call->mask_strides[last],
                                         .triangle = call->triangle ? call->x.sizes[last - 1] : 0,
                                         .scale = call->scale,
                                         .masked = MASKED_SCORE,
                                         .ndim = last,
                                         .is_backward = call->backward};
  if (last > POINTWISE_KERNEL_DIMS) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  FRAME_TRY(read_mask(call, &kernel.mask));
  FRAME_TRY(packed_read(&x, frame, &call->x));
  FRAME_TRY(packed_read(&y, frame, &call->y));
  FRAME_TRY(packed_reserve(&out, frame, &call->out));
  kernel.x = x.view.data;
  kernel.y = y.view.data;
  kernel.out = out.view.data;
  kernel.rows = call->x.numel / kernel.length;
  for (int dim = 0; dim < last; dim++) {
    kernel.sizes[dim] = call->x.sizes[last - 1 - dim];
    kernel.mask_strides[dim] = call->mask_strides[last - 1 - dim];
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(kernel.rows, ROTARY_KERNEL_THREADS / 32),
                                   .threads = ROTARY_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(
      frame, kernel_launch(KIND_OF_FLOAT(masked_softmax, call->x.dtype), frame->stream, grid, &kernel, &err), &err));
  return packed_store(&out, frame, &call->out);
}
