/// Group norm on the host (see norm_group.c).
#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "norm_group.h"

#define GRAIN 16384

#define REAL_LOOPS "norm_group_loops.h"
#include "real.h"

static void run_forward_groups(void *context, int64_t begin, int64_t end) {
  const struct group_task *task = context;
  (task->work == DIT_DTYPE_F32 ? forward_groups_f32 : forward_groups_f64)(task, begin, end);
}

static void run_backward_groups(void *context, int64_t begin, int64_t end) {
  const struct group_task *task = context;
  (task->work == DIT_DTYPE_F32 ? backward_groups_f32 : backward_groups_f64)(task, begin, end);
}

static void run_groups(struct group_task *task, void (*body)(void *, int64_t, int64_t)) {
  const int64_t size = task->width * task->area;
  dit_parallel_for(0, task->samples * task->groups, GRAIN / (size > 0 ? size : 1), body, task);
}

enum { X, G, WEIGHT, BIAS, MEAN, SCALE, OUT, GRAD_WEIGHT, GRAD_BIAS, COUNT };

/// Open what the task has; `write` has a bit per tensor that is an output.
static bool open_all(struct group_task *task, struct dense *d, unsigned write) {
  const struct dit_tensor_view *views[COUNT] = {&task->v_x,    &task->v_g,           &task->v_weight,
                                                &task->v_bias, &task->v_mean,        &task->v_scale,
                                                &task->v_out,  &task->v_grad_weight, &task->v_grad_bias};
  for (int i = 0; i < COUNT; i++) {
    const bool output = write >> i & 1;
    const bool big = i == X || i == G || i == OUT;
    bool (*const open)(struct dense *, const struct dit_tensor_view *, int) =
        big ? (output ? dense_reserve_data : dense_read_data) : (output ? dense_reserve : dense_read);
    if (!open(&d[i], views[i], task->work)) {
      return false;
    }
  }
  task->x = (struct row_data){d[X].data, d[X].dtype};
  task->g = (struct row_data){d[G].data, d[G].dtype};
  task->out = (struct row_data){d[OUT].data, d[OUT].dtype};
  task->weight = d[WEIGHT].data;
  task->bias = d[BIAS].data;
  task->mean = d[MEAN].data;
  task->scale = d[SCALE].data;
  return true;
}

static void close_all(struct dense *d) {
  for (int i = 0; i < COUNT; i++) {
    dense_close(&d[i]);
  }
}

static diopiError_t run_forward(void *argument) {
  struct group_task *task = argument;
  struct dense d[COUNT] = {0};
  const bool done = open_all(task, d, 1u << OUT | 1u << MEAN | 1u << SCALE);
  if (done) {
    run_groups(task, run_forward_groups);
    dense_store(&d[OUT]);
    dense_store(&d[MEAN]);
    dense_store(&d[SCALE]);
  }
  close_all(d);
  return done ? diopiSuccess : dense_fail(&task->frame);
}

/// Statistics that the caller did not keep, by a forward pass. Its result is not needed: it goes where grad_input will
/// be, or to room of its own.
static bool recompute(struct group_task *task, void **room) {
  const size_t groups = (size_t)(task->samples * task->groups), width = dit_dtype_get_size(task->work);
  const size_t numel = (size_t)task->v_x.numel;
  const void *weight = task->weight;
  const struct row_data out = task->out;
  const bool reuse = out.data && out.data != task->g.data && out.data != task->x.data;
  *room = dit_malloc((2 * groups + (reuse ? 0 : numel)) * width + 1);
  if (!*room) {
    return false;
  }
  task->mean = *room;
  task->scale = (char *)*room + groups * width;
  if (!reuse) {
    task->out = (struct row_data){(char *)*room + 2 * groups * width, task->work};
  }
  task->weight = NULL;
  run_groups(task, run_forward_groups);
  task->weight = weight;
  task->out = out;
  return true;
}

static diopiError_t run_backward(void *argument) {
  struct group_task *task = argument;
  struct dense d[COUNT] = {0};
  void *room = NULL;
  task->sums = dit_malloc(sizeof(double) * 2 * (size_t)(task->samples * task->groups * task->width) + 1);
  bool done = task->sums && open_all(task, d, 1u << OUT | 1u << GRAD_WEIGHT | 1u << GRAD_BIAS);
  done = done && (!task->recompute || recompute(task, &room));
  if (done) {
    run_groups(task, run_backward_groups);
    if (task->work == DIT_DTYPE_F32) {
      add_parameters_f32(task, d[GRAD_WEIGHT].data, d[GRAD_BIAS].data);
    } else {
      add_parameters_f64(task, d[GRAD_WEIGHT].data, d[GRAD_BIAS].data);
    }
    dense_store(&d[OUT]);
    dense_store(&d[GRAD_WEIGHT]);
    dense_store(&d[GRAD_BIAS]);
  }
  close_all(d);
  dit_free(room);
  dit_free(task->sums);
  return done ? diopiSuccess : dense_fail(&task->frame);
}

static diopiError_t queue(struct group_task *task, frame_work *work) {
  return FRAME_QUEUE(&task->frame, work, task, NULL, &task->v_x, &task->v_g, &task->v_out, &task->v_weight,
                     &task->v_bias, &task->v_mean, &task->v_scale, &task->v_grad_weight, &task->v_grad_bias);
}

diopiError_t group_forward(struct group_task *task) {
  return queue(task, run_forward);
}

diopiError_t group_backward(struct group_task *task) {
  return queue(task, run_backward);
}
