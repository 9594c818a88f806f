/// Launches of the norms with statistics per channel (see channel.h).
#include "channel.h"

#include "ops/fail.h"

#define TAGS(X) X(f32) X(f64) X(f16) X(bf16)
#define REFERENCES(tag)                             \
  KERNEL_REFERENCE(channel_moments_##tag, channel); \
  KERNEL_REFERENCE(channel_dots_##tag, channel);    \
  KERNEL_REFERENCE(channel_apply_##tag, channel);
TAGS(REFERENCES)
#define CHOOSE(name, dtype)                           \
  ((dtype) == DIT_DTYPE_F32   ? &channel_##name##_f32 \
   : (dtype) == DIT_DTYPE_F64 ? &channel_##name##_f64 \
   : (dtype) == DIT_DTYPE_F16 ? &channel_##name##_f16 \
                              : &channel_##name##_bf16)
#define STEPS(X) X(batch) X(batch_backward) X(group) X(group_backward) X(group_parameters)
#define FINISH(step)                                      \
  KERNEL_REFERENCE(channel_##step##_f32, channel_finish); \
  KERNEL_REFERENCE(channel_##step##_f64, channel_finish);
STEPS(FINISH)

#define PART 16384  ///< elements of a channel per block

static diopiError_t open_one(struct channel_walk *walk, struct packed *packed, int number,
                             const struct dit_tensor_view *view, bool writes) {
  const struct dit_tensor_view *seen = view;
  if (view && view->handle && walk->kernel.is_lines) {
    shaped_move_last(&walk->moved[number], view, 1u << 1);
    seen = &walk->moved[number].view;
  }
  if (!view || !view->handle) {
    *packed = (struct packed){.is_copy = false};
    return diopiSuccess;
  }
  if (view->dtype != walk->dtype) {
    return frame_fail(walk->frame, diopiDtypeNotSupported, "'input' and what has its shape must have one dtype here");
  }
  if (writes) {
    walk->out_view = seen;
  }
  return writes ? packed_reserve(packed, walk->frame, seen) : packed_read(packed, walk->frame, seen);
}

diopiError_t channel_open(struct channel_walk *walk, struct frame *frame, const struct dit_tensor_view *x,
                          const struct dit_tensor_view *g, const struct dit_tensor_view *out, bool may_be_lines) {
  struct channel_kernel *kernel = &walk->kernel;
  *kernel = (struct channel_kernel){.samples = x->sizes[0], .channels = x->sizes[1], .area = 1, .width = 1};
  walk->frame = frame;
  walk->dtype = x->dtype;
  walk->work = x->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  walk->out_view = NULL;
  for (int dim = 2; dim < x->ndim; dim++) {
    kernel->area *= x->sizes[dim];
  }
  kernel->count = kernel->samples * kernel->area;
  shaped_move_last(&walk->moved[0], x, 1u << 1);
  kernel->is_lines = may_be_lines && walk->moved[0].view.flags & DIT_TENSOR_CONTIGUOUS &&
                     (!(x->flags & DIT_TENSOR_CONTIGUOUS) || kernel->area == 1);
  FRAME_TRY(open_one(walk, &walk->x, 0, x, false));
  FRAME_TRY(open_one(walk, &walk->g, 1, g, false));
  FRAME_TRY(open_one(walk, &walk->out, 2, out, true));
  kernel->x = walk->x.view.data;
  kernel->g = walk->g.view.data;
  kernel->out = walk->out.view.data;
  kernel->has_gradient = kernel->g != NULL;
  return diopiSuccess;
}

diopiError_t channel_take(struct channel_numbers *numbers, struct packed *packed, struct frame *frame,
                          const struct dit_tensor_view *view, bool writes) {
  FRAME_TRY(writes ? packed_reserve(packed, frame, view) : packed_read(packed, frame, view));
  *numbers = (struct channel_numbers){.data = packed->view.data, .dtype = packed->view.dtype};
  return diopiSuccess;
}

diopiError_t channel_store(struct packed *packed, struct frame *frame, const struct dit_tensor_view *view) {
  return packed_store(packed, frame, view);
}

static diopiError_t run_parts(struct channel_walk *walk, struct kernel *run) {
  struct channel_kernel *kernel = &walk->kernel;
  struct dit_error err = {.message = ""};
  const int64_t part = kernel->is_lines ? PART / CHANNEL_KERNEL_COLUMNS : PART;
  const int64_t most = 256;
  kernel->splits = (int32_t)((kernel->count + part - 1) / part);
  kernel->splits = kernel->splits < 1 ? 1 : kernel->splits > most ? (int32_t)most : kernel->splits;
  kernel->part = (kernel->count + kernel->splits - 1) / kernel->splits;
  kernel->splits = kernel->part > 0 ? (int32_t)((kernel->count + kernel->part - 1) / kernel->part) : 1;
  kernel->partials = scratch_take(
      walk->frame->context, (size_t)kernel->splits * (size_t)kernel->channels * 2 * dit_dtype_get_size(walk->work));
  if (!kernel->partials) {
    return frame_fail_device(walk->frame, "no device memory for sums of channels");
  }
  const int64_t blocks =
      kernel->is_lines ? (kernel->channels + CHANNEL_KERNEL_COLUMNS - 1) / CHANNEL_KERNEL_COLUMNS : kernel->channels;
  const struct kernel_grid grid = {
      .x = (unsigned)blocks, .y = (unsigned)kernel->splits, .threads = CHANNEL_KERNEL_THREADS};
  return blocks == 0 ? diopiSuccess
                     : frame_get_code(walk->frame, kernel_launch(run, walk->frame->stream, grid, kernel, &err), &err);
}

diopiError_t channel_moments(struct channel_walk *walk) {
  return run_parts(walk, CHOOSE(moments, walk->dtype));
}

diopiError_t channel_dots(struct channel_walk *walk) {
  return run_parts(walk, CHOOSE(dots, walk->dtype));
}

diopiError_t channel_reserve_factors(struct channel_walk *walk) {
  struct channel_kernel *kernel = &walk->kernel;
  kernel->factors = scratch_take(walk->frame->context,
                                 (size_t)kernel->channels * CHANNEL_KERNEL_FACTORS * dit_dtype_get_size(walk->work));
  return kernel->factors ? diopiSuccess : frame_fail_device(walk->frame, "no device memory for factors of channels");
}

diopiError_t channel_apply(struct channel_walk *walk) {
  struct channel_kernel *kernel = &walk->kernel;
  struct dit_error err = {.message = ""};
  const int64_t total = kernel->samples * kernel->channels * kernel->area;
  const int64_t lanes = 16 / (int64_t)dit_dtype_get_size(walk->dtype);
  if (total == 0) {
    return diopiSuccess;
  }
  kernel->is_vector = !kernel->is_lines && kernel->area % lanes == 0 &&
                      ((uintptr_t)kernel->x | (uintptr_t)kernel->g | (uintptr_t)kernel->out) % 16 == 0;
  const struct kernel_grid grid = {
      .x = kernel_get_blocks(total, CHANNEL_KERNEL_THREADS * (kernel->is_vector ? 2 * lanes : 2)),
      .threads = CHANNEL_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(walk->frame,
                           kernel_launch(CHOOSE(apply, walk->dtype), walk->frame->stream, grid, kernel, &err), &err));
  return packed_store(&walk->out, walk->frame, walk->out_view);
}

diopiError_t channel_finish(struct channel_walk *walk, struct channel_finish *finish, enum channel_step step,
                            int64_t threads) {
  static struct kernel *const kernels[][2] = {
#define PAIR(step) {&channel_##step##_f32, &channel_##step##_f64},
      STEPS(PAIR)};
  struct dit_error err = {.message = ""};
  if (threads == 0) {
    return diopiSuccess;
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(threads, CHANNEL_KERNEL_THREADS),
                                   .threads = CHANNEL_KERNEL_THREADS};
  return frame_get_code(
      walk->frame, kernel_launch(kernels[step][walk->work == DIT_DTYPE_F64], walk->frame->stream, grid, finish, &err),
      &err);
}
