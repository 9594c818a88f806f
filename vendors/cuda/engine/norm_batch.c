/// Batch norm on CUDA (vendors/host/ops/norm_batch.h).
#include "ops/norm_batch.h"

#include "channel.h"

KERNEL_REFERENCE(channel_gather, channel_finish);

/// Numbers of channels: where they go, and whether they are written.
struct slot {
  struct channel_numbers *numbers;
  const struct dit_tensor_view *view;
  bool writes;
  struct packed packed;
};
#define SLOTS(slots) (sizeof(slots) / sizeof((slots)[0]))

/// What is written may have to be read first (running statistics).
static diopiError_t take_slots(struct slot *slots, size_t count, struct frame *frame) {
  for (size_t i = 0; i < count; i++) {
    FRAME_TRY(channel_take(slots[i].numbers, &slots[i].packed, frame, slots[i].view, false));
  }
  return diopiSuccess;
}

static diopiError_t store_slots(struct slot *slots, size_t count, struct frame *frame) {
  for (size_t i = 0; i < count; i++) {
    if (slots[i].writes && slots[i].view->handle) {
      FRAME_TRY(channel_store(&slots[i].packed, frame, slots[i].view));
    }
  }
  return diopiSuccess;
}

static void set_parts(struct channel_finish *finish, const struct channel_kernel *kernel) {
  finish->partials = kernel->partials;
  finish->part = kernel->part;
  finish->splits = kernel->splits;
}

/// The statistics are the batch's, the running ones, or `mean` and `scale` as they are given.
static diopiError_t run_forward(struct forward_task *f, bool are_given) {
  struct frame *frame = &f->t.frame;
  struct channel_walk walk;
  struct channel_finish finish = {.channels = f->t.channels,
                                  .count = f->t.count,
                                  .momentum = f->momentum,
                                  .eps = f->eps,
                                  .is_training = f->training,
                                  .is_variance = !are_given};
  const bool reads_running = !f->training && !are_given;
  const struct dit_tensor_view absent = {.handle = NULL};
  struct slot slots[] = {{&finish.mean, reads_running ? &f->running_mean : &f->mean, f->training, {.is_copy = false}},
                         {&finish.scale, reads_running ? &f->running_var : &f->scale, f->training, {.is_copy = false}},
                         {&finish.weight, &f->weight, false, {.is_copy = false}},
                         {&finish.bias, &f->bias, false, {.is_copy = false}},
                         {&finish.running_mean, f->training ? &f->running_mean : &absent, true, {.is_copy = false}},
                         {&finish.running_var, f->training ? &f->running_var : &absent, true, {.is_copy = false}}};
  FRAME_TRY(channel_open(&walk, frame, &f->t.v_x, NULL, &f->t.v_out, true));
  FRAME_TRY(take_slots(slots, SLOTS(slots), frame));
  if (f->training) {
    FRAME_TRY(channel_moments(&walk));
    set_parts(&finish, &walk.kernel);
  }
  if (f->t.v_out.handle) {
    FRAME_TRY(channel_reserve_factors(&walk));
    finish.factors = walk.kernel.factors;
  }
  FRAME_TRY(channel_finish(&walk, &finish, CHANNEL_BATCH, f->t.channels));
  FRAME_TRY(store_slots(slots, SLOTS(slots), frame));
  return f->t.v_out.handle ? channel_apply(&walk) : diopiSuccess;
}

diopiError_t batch_forward(struct forward_task *f) {
  return run_forward(f, false);
}

diopiError_t batch_elemt(struct forward_task *f) {
  return run_forward(f, true);
}

/// `sums`: whether they are computed here, else they are given.
static diopiError_t run_backward(struct backward_task *b, bool sums) {
  struct frame *frame = &b->t.frame;
  struct channel_walk walk;
  struct channel_finish finish = {.channels = b->t.channels,
                                  .count = b->t.count,
                                  .eps = b->eps,
                                  .is_training = b->training,
                                  .is_variance = b->variance,
                                  .processes = b->count.handle ? b->count.numel : 0};
  struct slot slots[] = {{&finish.mean, &b->mean, false, {.is_copy = false}},
                         {&finish.scale, &b->scale, false, {.is_copy = false}},
                         {&finish.weight, &b->weight, false, {.is_copy = false}},
                         {&finish.grad_weight, &b->grad_weight, true, {.is_copy = false}},
                         {&finish.grad_bias, &b->grad_bias, true, {.is_copy = false}},
                         {&finish.sums, &b->sum_dy, sums, {.is_copy = false}},
                         {&finish.dots, &b->sum_dy_xmu, sums, {.is_copy = false}},
                         {&finish.counts, &b->count, false, {.is_copy = false}}};
  FRAME_TRY(channel_open(&walk, frame, &b->t.v_x, &b->t.v_g, &b->t.v_out, true));
  FRAME_TRY(take_slots(slots, SLOTS(slots), frame));
  walk.kernel.mean = finish.mean;
  if (sums) {
    FRAME_TRY(channel_dots(&walk));
    set_parts(&finish, &walk.kernel);
  }
  if (b->t.v_out.handle) {
    FRAME_TRY(channel_reserve_factors(&walk));
    finish.factors = walk.kernel.factors;
  }
  FRAME_TRY(channel_finish(&walk, &finish, CHANNEL_BATCH_BACKWARD, b->t.channels));
  FRAME_TRY(store_slots(slots, SLOTS(slots), frame));
  return b->t.v_out.handle ? channel_apply(&walk) : diopiSuccess;
}

diopiError_t batch_backward(struct backward_task *b) {
  return run_backward(b, true);
}

diopiError_t batch_backward_elemt(struct backward_task *b) {
  return run_backward(b, false);
}

diopiError_t batch_gather(struct batch_gather_task *task) {
  struct frame *frame = &task->frame;
  struct dit_error err = {.message = ""};
  struct channel_finish finish = {
      .channels = task->channels, .processes = task->processes, .momentum = task->momentum, .eps = task->eps};
  struct slot slots[] = {{&finish.mean, &task->mean, true, {.is_copy = false}},
                         {&finish.scale, &task->scale, true, {.is_copy = false}},
                         {&finish.mean_all, &task->mean_all, false, {.is_copy = false}},
                         {&finish.scale_all, &task->scale_all, false, {.is_copy = false}},
                         {&finish.counts, &task->counts, false, {.is_copy = false}},
                         {&finish.running_mean, &task->running_mean, true, {.is_copy = false}},
                         {&finish.running_var, &task->running_var, true, {.is_copy = false}}};
  FRAME_TRY(take_slots(slots, SLOTS(slots), frame));
  if (task->channels == 0) {
    return diopiSuccess;
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(task->channels, CHANNEL_KERNEL_THREADS),
                                   .threads = CHANNEL_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(frame, kernel_launch(&channel_gather, frame->stream, grid, &finish, &err), &err));
  return store_slots(slots, SLOTS(slots), frame);
}
