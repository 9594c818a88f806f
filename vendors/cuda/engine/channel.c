/// Launches of the norms with statistics per channel (see channel.h).
#include "channel.h"

#include "kinds.h"
#include "ops/fail.h"
#include "plan.h"

#define REFERENCES(tag)                             \
  KERNEL_REFERENCE(channel_moments_##tag, channel); \
  KERNEL_REFERENCE(channel_dots_##tag, channel);    \
  KERNEL_REFERENCE(channel_apply_##tag, channel);
FLOAT_KINDS(REFERENCES)
#define VECTOR_KINDS(X) X(f32) X(f16) X(bf16)
#define VECTOR_REFERENCES(tag)                                            \
  KERNEL_REFERENCE(channel_plane_moments_##tag##_vector, channel_vector); \
  KERNEL_REFERENCE(channel_plane_dots_##tag##_vector, channel_vector);    \
  KERNEL_REFERENCE(channel_plane_apply_##tag##_vector, channel_vector);   \
  KERNEL_REFERENCE(channel_plane_moments_##tag##_single, channel_vector); \
  KERNEL_REFERENCE(channel_plane_dots_##tag##_single, channel_vector);    \
  KERNEL_REFERENCE(channel_plane_apply_##tag##_single, channel_vector);   \
  KERNEL_REFERENCE(channel_line_moments_##tag, channel_vector);           \
  KERNEL_REFERENCE(channel_line_dots_##tag, channel_vector);              \
  KERNEL_REFERENCE(channel_line_apply_##tag, channel_vector);
VECTOR_KINDS(VECTOR_REFERENCES)

/// A pass over the big tensors, by the way in which it walks.
enum { BY_VECTORS, BY_ELEMENTS, BY_LINES, WAYS };
struct pass {
  struct kernel *general[4], *ways[3][WAYS];  ///< of float, float16, bfloat16
};
#define WAYS_OF(name, tag) \
  {&channel_plane_##name##_##tag##_vector, &channel_plane_##name##_##tag##_single, &channel_line_##name##_##tag}
#define PASS(name)                                                                                   \
  static const struct pass name##_pass = {                                                           \
      {&channel_##name##_f32, &channel_##name##_f16, &channel_##name##_bf16, &channel_##name##_f64}, \
      {WAYS_OF(name, f32), WAYS_OF(name, f16), WAYS_OF(name, bf16)}};
PASS(moments)
PASS(dots)
PASS(apply)
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

static int get_place(int dtype) {
  return dtype == DIT_DTYPE_F32 ? 0 : dtype == DIT_DTYPE_F16 ? 1 : dtype == DIT_DTYPE_BF16 ? 2 : 3;
}

/// How the kernels of vectors walk, or WAYS where they do not; their parameters are set.
static int choose_way(struct channel_walk *walk, bool writes, int64_t *lanes) {
  struct channel_kernel *kernel = &walk->kernel;
  const int64_t total = kernel->samples * kernel->channels * kernel->area;
  const uintptr_t places =
      (uintptr_t)kernel->x | (uintptr_t)kernel->g | (writes ? (uintptr_t)kernel->out : (uintptr_t)0);
  *lanes = 16 / (int64_t)dit_dtype_get_size(walk->dtype);
  if (get_place(walk->dtype) == 3 || total == 0 || total > INT32_MAX / 2) {
    return WAYS;
  }
  kernel->over = plan_get_divisor(kernel->channels);
  if (kernel->is_lines) {
    kernel->wide = 1;
    while (kernel->wide < 32 && kernel->wide * *lanes < kernel->channels) {
      kernel->wide *= 2;
    }
    return kernel->channels % *lanes == 0 && places % 16 == 0 ? BY_LINES : WAYS;
  }
  const bool is_vector = kernel->area % *lanes == 0 && places % 16 == 0;
  *lanes = is_vector ? *lanes : 1;
  kernel->plane = plan_get_divisor(kernel->area / *lanes);
  return is_vector ? BY_VECTORS : BY_ELEMENTS;
}

/// Blocks along the channels, and parts of them: enough for some turns of the device, but each worth its block.
static int64_t split_channels(struct channel_kernel *kernel, int way, int64_t lanes) {
  const bool is_lines = kernel->is_lines;
  int64_t blocks =
      is_lines ? (kernel->channels + CHANNEL_KERNEL_COLUMNS - 1) / CHANNEL_KERNEL_COLUMNS : kernel->channels;
  int64_t part = is_lines ? PART / CHANNEL_KERNEL_COLUMNS : PART, most = 256;
  if (way != WAYS) {
    const int64_t columns = kernel->wide * lanes;
    blocks = is_lines ? (kernel->channels + columns - 1) / columns : kernel->channels;
    part = is_lines ? CHANNEL_KERNEL_THREADS / kernel->wide * 8 : CHANNEL_KERNEL_THREADS * 4 * (lanes == 1 ? 2 : lanes);
    most = blocks > 0 ? (int64_t)kernel_get_multiprocessors() * 12 / blocks : 1;
    most = most < 1 ? 1 : most;
  } else {
    lanes = 1;
  }
  int64_t splits = (kernel->count + part - 1) / part;
  splits = splits < 1 ? 1 : splits > most ? most : splits;
  kernel->part = (kernel->count + splits - 1) / splits;
  kernel->part = is_lines ? kernel->part : (kernel->part + lanes - 1) / lanes * lanes;
  kernel->splits = kernel->part > 0 ? (int32_t)((kernel->count + kernel->part - 1) / kernel->part) : 1;
  return blocks;
}

static diopiError_t run_parts(struct channel_walk *walk, const struct pass *pass) {
  struct channel_kernel *kernel = &walk->kernel;
  struct dit_error err = {.message = ""};
  int64_t lanes;
  const int way = choose_way(walk, false, &lanes), place = get_place(walk->dtype);
  const int64_t blocks = split_channels(kernel, way, lanes);
  kernel->partials = scratch_take(
      walk->frame->context, (size_t)kernel->splits * (size_t)kernel->channels * 2 * dit_dtype_get_size(walk->work));
  if (!kernel->partials) {
    return frame_fail_device(walk->frame, "no device memory for sums of channels");
  }
  const struct kernel_grid grid = {
      .x = (unsigned)blocks, .y = (unsigned)kernel->splits, .threads = CHANNEL_KERNEL_THREADS};
  struct kernel *run = way == WAYS ? pass->general[place] : pass->ways[place][way];
  return blocks == 0 ? diopiSuccess
                     : frame_get_code(walk->frame, kernel_launch(run, walk->frame->stream, grid, kernel, &err), &err);
}

diopiError_t channel_moments(struct channel_walk *walk) {
  return run_parts(walk, &moments_pass);
}

diopiError_t channel_dots(struct channel_walk *walk) {
  return run_parts(walk, &dots_pass);
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
  int64_t lanes;
  if (total == 0) {
    return diopiSuccess;
  }
  const int way = choose_way(walk, true, &lanes), place = get_place(walk->dtype);
  struct kernel *run = way == WAYS ? apply_pass.general[place] : apply_pass.ways[place][way];
  struct kernel_grid grid = {.threads = CHANNEL_KERNEL_THREADS};
  if (way == BY_LINES) {
    grid.x = (unsigned)split_channels(kernel, way, lanes);
    grid.y = (unsigned)kernel->splits;
  } else if (way != WAYS) {
    const int64_t block = CHANNEL_KERNEL_THREADS * (lanes == 1 ? 4 : 2 * lanes);  // as apply_planes has it
    grid.x = (unsigned)((total + block - 1) / block);
  } else {
    kernel->is_vector = !kernel->is_lines && kernel->area % lanes == 0 &&
                        ((uintptr_t)kernel->x | (uintptr_t)kernel->g | (uintptr_t)kernel->out) % 16 == 0;
    grid.x = kernel_get_blocks(total, CHANNEL_KERNEL_THREADS * (kernel->is_vector ? 2 * lanes : 2));
  }
  FRAME_TRY(frame_get_code(walk->frame, kernel_launch(run, walk->frame->stream, grid, kernel, &err), &err));
  return packed_store(&walk->out, walk->frame, walk->out_view);
}

diopiError_t channel_finish(struct channel_walk *walk, struct channel_finish *finish, enum channel_step step,
                            int64_t items) {
  static struct kernel *const kernels[][2] = {
#define PAIR(step) {&channel_##step##_f32, &channel_##step##_f64},
      STEPS(PAIR)};
  struct dit_error err = {.message = ""};
  if (items == 0) {
    return diopiSuccess;
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(items, CHANNEL_KERNEL_THREADS / 32),
                                   .threads = CHANNEL_KERNEL_THREADS};
  return frame_get_code(
      walk->frame, kernel_launch(kernels[step][walk->work == DIT_DTYPE_F64], walk->frame->stream, grid, finish, &err),
      &err);
}
