/// Group and instance norm on CUDA (vendors/host/ops/norm_group.h).
#include "ops/norm_group.h"

#include "channel.h"
#include "ops/fail.h"

/// Groups of samples as the channels of one sample, or channels of samples.
static void set_sizes(struct channel_kernel *kernel, int64_t channels, int64_t area) {
  kernel->samples = 1;
  kernel->channels = channels;
  kernel->area = kernel->count = area;
}

static struct channel_finish get_finish(const struct group_task *task) {
  return (struct channel_finish){.samples = task->samples,
                                 .groups = task->groups,
                                 .width = task->width,
                                 .size = task->width * task->area,
                                 .eps = task->eps};
}

/// Statistics of all groups; `finish` has where they go.
static diopiError_t run_moments(struct group_task *task, struct channel_walk *walk, struct channel_finish *finish) {
  set_sizes(&walk->kernel, task->samples * task->groups, task->width * task->area);
  FRAME_TRY(channel_moments(walk));
  finish->channels = walk->kernel.channels;
  finish->count = walk->kernel.count;
  finish->partials = walk->kernel.partials;
  finish->part = walk->kernel.part;
  finish->splits = walk->kernel.splits;
  set_sizes(&walk->kernel, task->samples * task->groups * task->width, task->area);
  return diopiSuccess;
}

diopiError_t group_forward(struct group_task *task) {
  struct frame *frame = &task->frame;
  struct channel_walk walk;
  struct channel_finish finish = get_finish(task);
  struct packed mean, scale, weight, bias;
  FRAME_TRY(channel_open(&walk, frame, &task->v_x, NULL, &task->v_out, false));
  FRAME_TRY(channel_take(&finish.mean, &mean, frame, &task->v_mean, true));
  FRAME_TRY(channel_take(&finish.scale, &scale, frame, &task->v_scale, true));
  FRAME_TRY(channel_take(&finish.weight, &weight, frame, &task->v_weight, false));
  FRAME_TRY(channel_take(&finish.bias, &bias, frame, &task->v_bias, false));
  FRAME_TRY(run_moments(task, &walk, &finish));
  FRAME_TRY(channel_reserve_factors(&walk));
  finish.factors = walk.kernel.factors;
  FRAME_TRY(channel_finish(&walk, &finish, CHANNEL_GROUP, task->samples * task->groups));
  FRAME_TRY(channel_store(&mean, frame, &task->v_mean));
  FRAME_TRY(channel_store(&scale, frame, &task->v_scale));
  return channel_apply(&walk);
}

/// Statistics that the caller did not keep.
static diopiError_t recompute(struct group_task *task, struct channel_walk *walk, struct channel_finish *finish) {
  const size_t groups = (size_t)(task->samples * task->groups), width = dit_dtype_get_size(walk->work);
  struct channel_finish moments = get_finish(task);
  char *room = scratch_take(task->frame.context, 2 * groups * width);
  if (!room) {
    return frame_fail_device(&task->frame, "no device memory for statistics of groups");
  }
  moments.mean = (struct channel_numbers){.data = room, .dtype = walk->work};
  moments.scale = (struct channel_numbers){.data = room + groups * width, .dtype = walk->work};
  FRAME_TRY(run_moments(task, walk, &moments));
  FRAME_TRY(channel_finish(walk, &moments, CHANNEL_GROUP, (int64_t)groups));
  finish->mean = moments.mean;
  finish->scale = moments.scale;
  return diopiSuccess;
}

diopiError_t group_backward(struct group_task *task) {
  struct frame *frame = &task->frame;
  struct channel_walk walk;
  struct channel_finish finish = get_finish(task);
  struct packed mean, scale, weight, grad_weight, grad_bias;
  const int64_t channels = task->groups * task->width;
  FRAME_TRY(channel_open(&walk, frame, &task->v_x, &task->v_g, &task->v_out, false));
  FRAME_TRY(channel_take(&finish.mean, &mean, frame, &task->v_mean, false));
  FRAME_TRY(channel_take(&finish.scale, &scale, frame, &task->v_scale, false));
  FRAME_TRY(channel_take(&finish.weight, &weight, frame, &task->v_weight, false));
  FRAME_TRY(channel_take(&finish.grad_weight, &grad_weight, frame, &task->v_grad_weight, true));
  FRAME_TRY(channel_take(&finish.grad_bias, &grad_bias, frame, &task->v_grad_bias, true));
  if (task->recompute) {
    FRAME_TRY(recompute(task, &walk, &finish));
  }
  set_sizes(&walk.kernel, task->samples * channels, task->area);
  walk.kernel.mean = finish.mean;
  walk.kernel.width = task->width;
  FRAME_TRY(channel_dots(&walk));
  finish.channels = walk.kernel.channels;
  finish.partials = walk.kernel.partials;
  finish.splits = walk.kernel.splits;
  FRAME_TRY(channel_finish(&walk, &finish, CHANNEL_PARAMETERS, channels));
  if (task->v_out.handle) {
    FRAME_TRY(channel_reserve_factors(&walk));
    finish.factors = walk.kernel.factors;
    FRAME_TRY(channel_finish(&walk, &finish, CHANNEL_GROUP_BACKWARD, task->samples * task->groups));
    FRAME_TRY(channel_apply(&walk));
  }
  FRAME_TRY(channel_store(&grad_weight, frame, &task->v_grad_weight));
  return channel_store(&grad_bias, frame, &task->v_grad_bias);
}
