/// Group norm on the host (see norm_group.c).
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "norm_batch.h"
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

/// Open what the task has; `write` has a bit per tensor that is an output. Where channels lie together, `last` has
/// input and output with the channels last.
static bool open_all(struct group_task *task, struct dense *d, unsigned write, const struct shaped *last) {
  const struct dit_tensor_view *views[COUNT] = {&task->v_x,    &task->v_g,           &task->v_weight,
                                                &task->v_bias, &task->v_mean,        &task->v_scale,
                                                &task->v_out,  &task->v_grad_weight, &task->v_grad_bias};
  if (last) {
    views[X] = &last[0].view;
    views[OUT] = &last[1].view;
  }
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

// Channels that lie together: every sample is walked as batch norm walks it, with a group's numbers for each of its
// channels

static double get_number(const struct group_task *task, const void *data, int64_t at, double missing) {
  return !data ? missing : task->work == DIT_DTYPE_F32 ? (double)((const float *)data)[at] : ((const double *)data)[at];
}

static void set_number(const struct group_task *task, void *data, int64_t at, double value) {
  if (data && task->work == DIT_DTYPE_F32) {
    ((float *)data)[at] = (float)value;
  } else if (data) {
    ((double *)data)[at] = value;
  }
}

/// The sum of a group's channels.
static double sum_group(const struct group_task *task, const double *values, int64_t group) {
  double sum = 0;
  for (int64_t c = group * task->width; c < (group + 1) * task->width; c++) {
    sum += values[c];
  }
  return sum;
}

static void set_group(const struct group_task *task, struct batch_task *lines, int64_t sample, int64_t group) {
  const double size = (double)(task->width * task->area), mean = lines->mean[group * task->width];
  const double center = task->work == DIT_DTYPE_F32 ? (double)(float)mean : mean, lost = mean - center;
  const double squares = sum_group(task, lines->sum, group) / size - lost * lost;
  const double scale = 1 / sqrt((squares > 0 || squares != squares ? squares : 0) + task->eps);
  for (int64_t c = group * task->width; c < (group + 1) * task->width; c++) {
    lines->a[c] = center;
    lines->b[c] = scale * get_number(task, task->weight, c, 1);
    lines->c[c] = get_number(task, task->bias, c, 0) - lost * lines->b[c];
  }
  set_number(task, task->mean, sample * task->groups + group, mean);
  set_number(task, task->scale, sample * task->groups + group, scale);
}

static struct row_data get_sample(const struct row_data *data, int64_t at) {
  return (struct row_data){(char *)data->data + at * (int64_t)dit_dtype_get_size(data->dtype), data->dtype};
}

static void forward_sample(const struct group_task *task, struct batch_task *lines, int64_t sample) {
  const int64_t at = sample * lines->channels * task->area;
  lines->x = get_sample(&task->x, at);
  lines->out = get_sample(&task->out, at);
  batch_sum(lines, 0);
  for (int64_t group = 0; group < task->groups; group++) {
    const double mean = sum_group(task, lines->sum, group) / (double)(task->width * task->area);
    for (int64_t c = group * task->width; c < (group + 1) * task->width; c++) {
      lines->mean[c] = mean;
    }
  }
  batch_sum(lines, 1);
  for (int64_t group = 0; group < task->groups; group++) {
    set_group(task, lines, sample, group);
  }
  batch_apply(lines);
}

/// False without memory.
static bool forward_lines(const struct group_task *task) {
  int64_t sizes[DIT_MAX_DIMS];
  struct batch_task lines = {.v_x = task->v_x,
                             .work = task->work,
                             .samples = 1,
                             .channels = task->groups * task->width,
                             .area = task->area,
                             .count = task->area};
  memcpy(sizes, task->v_x.sizes, sizeof(int64_t) * (size_t)task->v_x.ndim);
  sizes[0] = 1;
  lines.v_x.sizes = sizes;
  lines.v_x.numel /= task->samples;
  lines.v_x.flags &= (uint8_t)~DIT_TENSOR_CONTIGUOUS;
  const bool done = batch_set_up(&lines);
  for (int64_t sample = 0; done && sample < task->samples; sample++) {
    forward_sample(task, &lines, sample);
  }
  dit_free(lines.room);
  return done;
}

/// Channels together, and not the plane of each.
static bool is_last(const struct group_task *task, struct shaped *last) {
  shaped_move_last(&last[0], &task->v_x, 1u << 1);
  shaped_move_last(&last[1], &task->v_out, 1u << 1);
  return task->v_x.numel > 0 && task->area > 1 && !(task->v_x.flags & DIT_TENSOR_CONTIGUOUS) &&
         last[0].view.flags & DIT_TENSOR_CONTIGUOUS;
}

static diopiError_t run_forward(void *argument) {
  struct group_task *task = argument;
  struct dense d[COUNT] = {0};
  struct shaped last[2];
  const bool lines = is_last(task, last);
  bool done = open_all(task, d, 1u << OUT | 1u << MEAN | 1u << SCALE, lines ? last : NULL);
  if (done && lines) {
    done = forward_lines(task);
  } else if (done) {
    run_groups(task, run_forward_groups);
  }
  if (done) {
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
  bool done = task->sums && open_all(task, d, 1u << OUT | 1u << GRAD_WEIGHT | 1u << GRAD_BIAS, NULL);
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
