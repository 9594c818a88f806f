/// Batch norm: statistics per channel (dimension 1), with gradients, and the pieces of synchronised batch norm.
///
/// y = (x - mean) * invstd * weight + bias, invstd = 1 / sqrt(variance + eps); in training mean and variance are the
/// batch's and running = (1 - momentum) * running + momentum * new (variance with n / (n - 1)). With d = x - mean, n
/// elements per channel and g the gradient of y:
///   grad_weight = sum(g * d) * invstd, grad_bias = sum(g),
///   grad_input = (g - sum(g) / n - d * invstd^2 * sum(g * d) / n) * invstd * weight; outside training g * invstd *
///   weight.
/// Sums are in double over blocks of float, per-channel numbers in double. Tensors whose channels lie together
/// (channels-last, and any (N, C)) are walked in that order. Statistics have any floating dtype (float32 for half
/// inputs). Outputs may be exactly the input or the gradient.
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "lines.h"

#define LINE_BLOCK 512
#define SUM_STEP 64
#define GRAIN 16384
#define MAX_CHUNKS 64

struct batch_task {
  struct frame frame;
  struct dit_tensor_view v_x, v_g, v_out;  ///< the input first; absent where the operator has none
  struct shaped moved[3];                  ///< the same with channels last
  bool lines;
  int work;
  int64_t samples, channels, area, count;  ///< count: elements per channel
  int64_t chunk, chunks;
  const void *x, *g;
  void *out;
  double *room;  ///< everything below
  double *mean, *scale, *sum, *dot, *a, *b, *c, *weight, *bias, *partial;
  int pass;
};

#define REAL_LOOPS "norm_batch_loops.h"
#include "real.h"

// ---- the passes

static void run_sum(void *context, int64_t begin, int64_t end) {
  const struct batch_task *task = context;
  const bool single = task->work == DIT_DTYPE_F32;
  if (!task->lines) {
    (single ? sum_planes_f32 : sum_planes_f64)(task, task->pass, begin, end);
    return;
  }
  for (int64_t chunk = begin; chunk < end; chunk++) {
    (single ? sum_lines_f32 : sum_lines_f64)(task, task->pass, chunk);
  }
}

static void sum_channels(struct batch_task *task, int pass) {
  task->pass = pass;
  if (!task->lines) {
    const int64_t work = task->count > 0 ? task->count : 1;
    dit_parallel_for(0, task->channels, GRAIN / work, run_sum, task);
    return;
  }
  dit_parallel_for(0, task->chunks, 1, run_sum, task);
  memset(task->sum, 0, sizeof(double) * (size_t)task->channels);
  memset(task->dot, 0, sizeof(double) * (size_t)task->channels);
  for (int64_t chunk = 0; chunk < task->chunks; chunk++) {
    const double *part = task->partial + chunk * 2 * task->channels;
    for (int64_t c = 0; c < task->channels; c++) {
      task->sum[c] += part[c];
      task->dot[c] += part[task->channels + c];
    }
  }
}

static void run_apply(void *context, int64_t begin, int64_t end) {
  const struct batch_task *task = context;
  const bool single = task->work == DIT_DTYPE_F32;
  if (task->lines) {
    (single ? apply_lines_f32 : apply_lines_f64)(task, begin, end);
  } else {
    (single ? apply_planes_f32 : apply_planes_f64)(task, begin, end);
  }
}

static void apply_channels(struct batch_task *task) {
  const int64_t width = task->lines ? task->channels : task->area;
  const int64_t rows = task->lines ? task->samples * task->area : task->samples * task->channels;
  dit_parallel_for(0, rows, GRAIN / (width > 0 ? width : 1), run_apply, task);
}

/// mean and variance (in `sum`) of each channel.
static void compute_moments(struct batch_task *task) {
  const double n = (double)task->count;
  sum_channels(task, 0);
  for (int64_t c = 0; c < task->channels; c++) {
    task->mean[c] = task->sum[c] / n;
    if (task->work == DIT_DTYPE_F32) {
      task->mean[c] = (double)(float)task->mean[c];
    }
  }
  sum_channels(task, 1);
  for (int64_t c = 0; c < task->channels; c++) {
    task->sum[c] /= n;
  }
}

/// y = x * b + c from mean and scale (invstd).
static void set_forward(struct batch_task *task) {
  for (int64_t c = 0; c < task->channels; c++) {
    task->a[c] = 0;
    task->b[c] = task->scale[c] * task->weight[c];
    task->c[c] = task->bias[c] - task->mean[c] * task->b[c];
  }
}

// ---- tensors and numbers per channel

static diopiError_t fail_memory(struct batch_task *task) {
  return frame_fail(&task->frame, diopiErrorOccurred, "no memory for copies of the arguments");
}

/// Numbers of a channel as double; `missing` where the tensor is absent.
static bool read_channels(const struct dit_tensor_view *view, double *out, int64_t count, double missing) {
  struct dense dense = {0};
  if (!view->handle) {
    for (int64_t i = 0; i < count; i++) {
      out[i] = missing;
    }
    return true;
  }
  if (!dense_read(&dense, view, DIT_DTYPE_F64)) {
    return false;
  }
  if (count > 0) {
    memcpy(out, dense.data, sizeof(double) * (size_t)count);
  }
  dense_close(&dense);
  return true;
}

static bool write_channels(const struct dit_tensor_view *view, const double *values, int64_t count) {
  struct dense dense = {0};
  if (!view->handle || count == 0) {
    return true;
  }
  if (!dense_reserve(&dense, view, DIT_DTYPE_F64)) {
    return false;
  }
  memcpy(dense.data, values, sizeof(double) * (size_t)count);
  dense_store(&dense);
  dense_close(&dense);
  return true;
}

/// Sizes, the walk, room for the numbers per channel.
static bool set_up(struct batch_task *task) {
  const struct dit_tensor_view *x = &task->v_x;
  const size_t channels = (size_t)task->channels;
  shaped_move_last(&task->moved[0], x, 1u << 1);
  task->lines =
      task->moved[0].view.flags & DIT_TENSOR_CONTIGUOUS && (!(x->flags & DIT_TENSOR_CONTIGUOUS) || task->area == 1);
  const int64_t rows = task->samples * task->area, least = GRAIN / (task->channels > 0 ? task->channels : 1);
  task->chunk = (rows + MAX_CHUNKS - 1) / MAX_CHUNKS;
  task->chunk = task->chunk < least ? least : task->chunk;
  task->chunk = task->chunk < 1 ? 1 : task->chunk;
  task->chunks = (rows + task->chunk - 1) / task->chunk;
  const size_t partial = task->lines ? (size_t)task->chunks * 2 * channels : 0;
  task->room = dit_malloc((9 * channels + partial) * sizeof(double) + 1);
  if (!task->room) {
    return false;
  }
  double **places[] = {&task->mean, &task->scale, &task->sum,    &task->dot, &task->a,
                       &task->b,    &task->c,     &task->weight, &task->bias};
  for (size_t i = 0; i < 9; i++) {
    *places[i] = task->room + i * channels;
  }
  task->partial = task->room + 9 * channels;
  return true;
}

/// The big tensors in the order of the walk.
struct big {
  struct dense x, g, out;
};

static bool open_big(struct batch_task *task, struct big *big) {
  const struct dit_tensor_view *views[3] = {&task->v_x, &task->v_g, &task->v_out};
  struct dense *dense[3] = {&big->x, &big->g, &big->out};
  for (int i = 0; i < 3; i++) {
    const struct dit_tensor_view *view = views[i];
    if (task->lines && view->handle) {
      shaped_move_last(&task->moved[i], view, 1u << 1);
      view = &task->moved[i].view;
    }
    if (!(i == 2 ? dense_reserve(dense[i], view, task->work) : dense_read(dense[i], view, task->work))) {
      return false;
    }
  }
  task->x = big->x.data;
  task->g = big->g.data;
  task->out = big->out.data;
  return true;
}

static void close_big(struct big *big) {
  dense_close(&big->x);
  dense_close(&big->g);
  dense_close(&big->out);
}

// ---- arguments

static diopiError_t check_channels(struct batch_task *task, const char *name, const struct dit_tensor_view *view) {
  if (!view->handle) {
    return diopiSuccess;
  }
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return frame_fail_dtype(&task->frame, name, view->dtype);
  }
  FRAME_CHECK(&task->frame, view->numel == task->channels, "'%s' has %lld elements; the input has %lld channels", name,
              (long long)view->numel, (long long)task->channels);
  return diopiSuccess;
}

static diopiError_t set_input(struct batch_task *task) {
  const struct dit_tensor_view *x = &task->v_x;
  FRAME_CHECK(&task->frame, x->ndim >= 2, "'input' has %d dimensions; it must have at least 2: (N, C, ...)",
              (int)x->ndim);
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(&task->frame, "input", x->dtype);
  }
  task->samples = x->sizes[0];
  task->channels = x->sizes[1];
  task->area = 1;
  for (int dim = 2; dim < x->ndim; dim++) {
    task->area *= x->sizes[dim];
  }
  task->count = task->samples * task->area;
  task->work = x->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  return diopiSuccess;
}

static diopiError_t check_big(struct batch_task *task, const char *name, const struct dit_tensor_view *view) {
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return frame_fail_dtype(&task->frame, name, view->dtype);
  }
  FRAME_CHECK(&task->frame, frame_is_same_shape(view, &task->v_x), "'%s' has another shape than 'input'", name);
  return diopiSuccess;
}

static diopiError_t check_out(struct batch_task *task, const char *name, const struct dit_tensor_view *out,
                              bool in_place) {
  const struct dit_tensor_view *inputs[] = {&task->v_x, &task->v_g};
  return out->handle ? frame_check_output(&task->frame, name, out, inputs, 2, in_place) : diopiSuccess;
}

// ---- forward

struct forward_task {
  struct batch_task t;
  struct dit_tensor_view mean, scale, weight, bias, running_mean, running_var;
  bool training;
  double momentum, eps;
};

static bool update_running(struct forward_task *f) {
  struct batch_task *task = &f->t;
  const double n = (double)task->count, unbias = n / (n - 1);
  if (!read_channels(&f->running_mean, task->a, task->channels, 0) ||
      !read_channels(&f->running_var, task->b, task->channels, 0)) {
    return false;
  }
  for (int64_t c = 0; c < task->channels; c++) {
    task->a[c] = (1 - f->momentum) * task->a[c] + f->momentum * task->mean[c];
    task->b[c] = (1 - f->momentum) * task->b[c] + f->momentum * task->sum[c] * unbias;
  }
  return write_channels(&f->running_mean, task->a, task->channels) &&
         write_channels(&f->running_var, task->b, task->channels);
}

static bool work_forward(struct forward_task *f, struct big *big) {
  struct batch_task *task = &f->t;
  const int64_t channels = task->channels;
  if (!set_up(task) || !open_big(task, big) || !read_channels(&f->weight, task->weight, channels, 1) ||
      !read_channels(&f->bias, task->bias, channels, 0)) {
    return false;
  }
  if (f->training) {
    compute_moments(task);
  } else if (!read_channels(&f->running_mean, task->mean, channels, 0) ||
             !read_channels(&f->running_var, task->sum, channels, 1)) {
    return false;
  }
  for (int64_t c = 0; c < channels; c++) {
    task->scale[c] = 1 / sqrt(task->sum[c] + f->eps);
  }
  if (f->training && (!write_channels(&f->mean, task->mean, channels) ||
                      !write_channels(&f->scale, task->scale, channels) || !update_running(f))) {
    return false;
  }
  if (task->v_out.handle) {
    set_forward(task);
    apply_channels(task);
    dense_store(&big->out);
  }
  return true;
}

static diopiError_t run_forward(void *argument) {
  struct forward_task *f = argument;
  struct big big = {0};
  const bool done = work_forward(f, &big);
  close_big(&big);
  dit_free(f->t.room);
  return done ? diopiSuccess : fail_memory(&f->t);
}

diopiError_t diopiBatchNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t save_mean,
                            diopiTensorHandle_t save_invstd, diopiConstTensorHandle_t input,
                            diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                            diopiTensorHandle_t running_mean, diopiTensorHandle_t running_var, bool training,
                            double momentum, double eps) {
  struct forward_task f = {.training = training, .momentum = momentum, .eps = eps};
  struct batch_task *task = &f.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, out, &task->v_out);
  FRAME_TAKE_OPTIONAL(&task->frame, save_mean, &f.mean);
  FRAME_TAKE_OPTIONAL(&task->frame, save_invstd, &f.scale);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &f.weight);
  FRAME_TAKE_OPTIONAL(&task->frame, bias, &f.bias);
  FRAME_TAKE_OPTIONAL(&task->frame, running_mean, &f.running_mean);
  FRAME_TAKE_OPTIONAL(&task->frame, running_var, &f.running_var);
  FRAME_TRY(set_input(task));
  FRAME_TRY(check_big(task, "out", &task->v_out));
  FRAME_CHECK(&task->frame, training || (f.running_mean.handle && f.running_var.handle),
              "outside training 'running_mean' and 'running_var' are needed; one of them is NULL");
  FRAME_CHECK(&task->frame, !training || task->count > 0 || task->channels == 0,
              "'input' has no elements per channel; training needs at least one");
  if (training) {  // outside training the saved statistics are not written, so an empty tensor may stand for them
    FRAME_TRY(check_channels(task, "save_mean", &f.mean));
    FRAME_TRY(check_channels(task, "save_invstd", &f.scale));
  }
  FRAME_TRY(check_channels(task, "weight", &f.weight));
  FRAME_TRY(check_channels(task, "bias", &f.bias));
  FRAME_TRY(check_channels(task, "running_mean", &f.running_mean));
  FRAME_TRY(check_channels(task, "running_var", &f.running_var));
  FRAME_TRY(check_out(task, "out", &task->v_out, true));
  FRAME_TRY(check_out(task, "save_mean", &f.mean, false));
  FRAME_TRY(check_out(task, "save_invstd", &f.scale, false));
  return frame_run(&task->frame, run_forward, &f);
}

diopiError_t diopiBatchNormStats(diopiContextHandle_t ctx, diopiTensorHandle_t mean, diopiTensorHandle_t invstd,
                                 diopiConstTensorHandle_t input, double eps) {
  struct forward_task f = {.training = true, .eps = eps};
  struct batch_task *task = &f.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, mean, &f.mean);
  FRAME_TAKE(&task->frame, invstd, &f.scale);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TRY(set_input(task));
  FRAME_CHECK(&task->frame, task->count > 0 || task->channels == 0,
              "'input' has no elements per channel; it needs at least one");
  FRAME_TRY(check_channels(task, "mean", &f.mean));
  FRAME_TRY(check_channels(task, "invstd", &f.scale));
  FRAME_TRY(check_out(task, "mean", &f.mean, false));
  FRAME_TRY(check_out(task, "invstd", &f.scale, false));
  return frame_run(&task->frame, run_forward, &f);
}

static diopiError_t run_elemt(void *argument) {
  struct forward_task *f = argument;
  struct batch_task *task = &f->t;
  struct big big = {0};
  bool done = set_up(task) && open_big(task, &big) && read_channels(&f->weight, task->weight, task->channels, 1) &&
              read_channels(&f->bias, task->bias, task->channels, 0) &&
              read_channels(&f->mean, task->mean, task->channels, 0) &&
              read_channels(&f->scale, task->scale, task->channels, 1);
  if (done) {
    set_forward(task);
    apply_channels(task);
    dense_store(&big.out);
  }
  close_big(&big);
  dit_free(task->room);
  return done ? diopiSuccess : fail_memory(task);
}

/// `eps` is in invstd already.
diopiError_t diopiBatchNormElemt(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                 diopiConstTensorHandle_t mean, diopiConstTensorHandle_t invstd, float eps) {
  struct forward_task f = {.eps = (double)eps};
  struct batch_task *task = &f.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, out, &task->v_out);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &f.weight);
  FRAME_TAKE_OPTIONAL(&task->frame, bias, &f.bias);
  FRAME_TAKE(&task->frame, mean, &f.mean);
  FRAME_TAKE(&task->frame, invstd, &f.scale);
  FRAME_TRY(set_input(task));
  FRAME_TRY(check_big(task, "out", &task->v_out));
  FRAME_TRY(check_channels(task, "weight", &f.weight));
  FRAME_TRY(check_channels(task, "bias", &f.bias));
  FRAME_TRY(check_channels(task, "mean", &f.mean));
  FRAME_TRY(check_channels(task, "invstd", &f.scale));
  FRAME_TRY(check_out(task, "out", &task->v_out, true));
  return frame_run(&task->frame, run_elemt, &f);
}

// ---- backward

struct backward_task {
  struct batch_task t;
  struct dit_tensor_view mean, scale, weight, grad_weight, grad_bias;
  struct dit_tensor_view sum_dy, sum_dy_xmu, count;
  bool training;
  bool variance;  ///< `scale` holds the variance
  double eps, total;
};

/// grad_input = a * g + b * x + c from sum and dot over `total` elements.
static void set_backward(const struct backward_task *b) {
  const struct batch_task *task = &b->t;
  for (int64_t c = 0; c < task->channels; c++) {
    const double scale = task->scale[c];
    task->a[c] = scale * task->weight[c];
    task->b[c] = b->training ? -task->a[c] * scale * scale * task->dot[c] / b->total : 0;
    task->c[c] = b->training ? -task->a[c] * task->sum[c] / b->total - task->b[c] * task->mean[c] : 0;
  }
}

static bool write_parameters(struct backward_task *b) {
  struct batch_task *task = &b->t;
  for (int64_t c = 0; c < task->channels; c++) {
    task->bias[c] = task->dot[c] * task->scale[c];
  }
  return write_channels(&b->grad_weight, task->bias, task->channels) &&
         write_channels(&b->grad_bias, task->sum, task->channels) &&
         write_channels(&b->sum_dy, task->sum, task->channels) &&
         write_channels(&b->sum_dy_xmu, task->dot, task->channels);
}

static bool work_backward(struct backward_task *b, struct big *big) {
  struct batch_task *task = &b->t;
  const int64_t channels = task->channels;
  if (!set_up(task) || !open_big(task, big) || !read_channels(&b->weight, task->weight, channels, 1) ||
      !read_channels(&b->mean, task->mean, channels, 0) || !read_channels(&b->scale, task->scale, channels, 1)) {
    return false;
  }
  for (int64_t c = 0; b->variance && c < channels; c++) {
    task->scale[c] = 1 / sqrt(task->scale[c] + b->eps);
  }
  sum_channels(task, 2);
  if (!write_parameters(b)) {
    return false;
  }
  if (task->v_out.handle) {
    set_backward(b);
    apply_channels(task);
    dense_store(&big->out);
  }
  return true;
}

static diopiError_t run_backward(void *argument) {
  struct backward_task *b = argument;
  struct big big = {0};
  const bool done = work_backward(b, &big);
  close_big(&big);
  dit_free(b->t.room);
  return done ? diopiSuccess : fail_memory(&b->t);
}

diopiError_t diopiBatchNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t weight, diopiConstTensorHandle_t running_mean,
                                    diopiConstTensorHandle_t running_var, diopiConstTensorHandle_t save_mean,
                                    diopiConstTensorHandle_t save_invstd, bool training, double eps) {
  struct backward_task b = {.training = training, .variance = !training, .eps = eps};
  struct batch_task *task = &b.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_input, &task->v_out);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_weight, &b.grad_weight);
  FRAME_TAKE_OPTIONAL(&task->frame, grad_bias, &b.grad_bias);
  FRAME_TAKE(&task->frame, grad_output, &task->v_g);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &b.weight);
  FRAME_TRY(
      frame_take(&task->frame, training ? "save_mean" : "running_mean", training ? save_mean : running_mean, &b.mean));
  FRAME_TRY(frame_take(&task->frame, training ? "save_invstd" : "running_var", training ? save_invstd : running_var,
                       &b.scale));
  FRAME_TRY(set_input(task));
  FRAME_TRY(check_big(task, "grad_output", &task->v_g));
  if (grad_input) {
    FRAME_TRY(check_big(task, "grad_input", &task->v_out));
  }
  FRAME_TRY(check_channels(task, "weight", &b.weight));
  FRAME_TRY(check_channels(task, training ? "save_mean" : "running_mean", &b.mean));
  FRAME_TRY(check_channels(task, training ? "save_invstd" : "running_var", &b.scale));
  FRAME_TRY(check_channels(task, "grad_weight", &b.grad_weight));
  FRAME_TRY(check_channels(task, "grad_bias", &b.grad_bias));
  FRAME_TRY(check_out(task, "grad_input", &task->v_out, true));
  FRAME_TRY(check_out(task, "grad_weight", &b.grad_weight, false));
  FRAME_TRY(check_out(task, "grad_bias", &b.grad_bias, false));
  b.total = (double)task->count;
  return frame_run(&task->frame, run_backward, &b);
}

diopiError_t diopiBatchNormBackwardReduce(diopiContextHandle_t ctx, diopiTensorHandle_t sum_dy,
                                          diopiTensorHandle_t sum_dy_xmu, diopiTensorHandle_t grad_weight,
                                          diopiTensorHandle_t grad_bias, diopiConstTensorHandle_t grad_out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t mean,
                                          diopiConstTensorHandle_t invstd, diopiConstTensorHandle_t weight,
                                          bool input_g, bool weight_g, bool bias_g) {
  struct backward_task b = {.training = true};
  struct batch_task *task = &b.t;
  (void)weight;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TRY(frame_take_optional(&task->frame, "sum_dy", input_g ? sum_dy : NULL, &b.sum_dy));
  FRAME_TRY(frame_take_optional(&task->frame, "sum_dy_xmu", input_g ? sum_dy_xmu : NULL, &b.sum_dy_xmu));
  FRAME_TRY(frame_take_optional(&task->frame, "grad_weight", weight_g ? grad_weight : NULL, &b.grad_weight));
  FRAME_TRY(frame_take_optional(&task->frame, "grad_bias", bias_g ? grad_bias : NULL, &b.grad_bias));
  FRAME_TAKE(&task->frame, grad_out, &task->v_g);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE(&task->frame, mean, &b.mean);
  FRAME_TAKE(&task->frame, invstd, &b.scale);
  FRAME_TRY(set_input(task));
  FRAME_TRY(check_big(task, "grad_out", &task->v_g));
  const struct dit_tensor_view *outs[] = {&b.sum_dy, &b.sum_dy_xmu, &b.grad_weight, &b.grad_bias};
  static const char *const names[] = {"sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias"};
  for (int i = 0; i < 4; i++) {
    FRAME_TRY(check_channels(task, names[i], outs[i]));
    FRAME_TRY(check_out(task, names[i], outs[i], false));
  }
  FRAME_TRY(check_channels(task, "mean", &b.mean));
  FRAME_TRY(check_channels(task, "invstd", &b.scale));
  return frame_run(&task->frame, run_backward, &b);
}

/// Total of the counts of all processes.
static bool read_total(const struct dit_tensor_view *count, double *total) {
  struct dense dense = {0};
  *total = 0;
  if (!dense_read(&dense, count, DIT_DTYPE_F64)) {
    return false;
  }
  for (int64_t i = 0; i < count->numel; i++) {
    *total += ((const double *)dense.data)[i];
  }
  dense_close(&dense);
  return true;
}

static diopiError_t run_backward_elemt(void *argument) {
  struct backward_task *b = argument;
  struct batch_task *task = &b->t;
  const int64_t channels = task->channels;
  struct big big = {0};
  bool done = set_up(task) && open_big(task, &big) && read_channels(&b->weight, task->weight, channels, 1) &&
              read_channels(&b->mean, task->mean, channels, 0) && read_channels(&b->scale, task->scale, channels, 1) &&
              read_channels(&b->sum_dy, task->sum, channels, 0) &&
              read_channels(&b->sum_dy_xmu, task->dot, channels, 0) && read_total(&b->count, &b->total);
  if (done) {
    set_backward(b);
    apply_channels(task);
    dense_store(&big.out);
  }
  close_big(&big);
  dit_free(task->room);
  return done ? diopiSuccess : fail_memory(task);
}

diopiError_t diopiBatchNormBackwardElemt(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t input,
                                         diopiConstTensorHandle_t mean, diopiConstTensorHandle_t invstd,
                                         diopiConstTensorHandle_t weight, diopiConstTensorHandle_t sum_dy,
                                         diopiConstTensorHandle_t sum_dy_xmu, diopiConstTensorHandle_t count) {
  struct backward_task b = {.training = true};
  struct batch_task *task = &b.t;
  FRAME_BEGIN(&task->frame, ctx);
  FRAME_TAKE(&task->frame, grad_input, &task->v_out);
  FRAME_TAKE(&task->frame, grad_out, &task->v_g);
  FRAME_TAKE(&task->frame, input, &task->v_x);
  FRAME_TAKE(&task->frame, mean, &b.mean);
  FRAME_TAKE(&task->frame, invstd, &b.scale);
  FRAME_TAKE_OPTIONAL(&task->frame, weight, &b.weight);
  FRAME_TAKE(&task->frame, sum_dy, &b.sum_dy);
  FRAME_TAKE(&task->frame, sum_dy_xmu, &b.sum_dy_xmu);
  FRAME_TAKE(&task->frame, count, &b.count);
  FRAME_TRY(set_input(task));
  FRAME_TRY(check_big(task, "grad_input", &task->v_out));
  FRAME_TRY(check_big(task, "grad_out", &task->v_g));
  FRAME_TRY(check_channels(task, "mean", &b.mean));
  FRAME_TRY(check_channels(task, "invstd", &b.scale));
  FRAME_TRY(check_channels(task, "weight", &b.weight));
  FRAME_TRY(check_channels(task, "sum_dy", &b.sum_dy));
  FRAME_TRY(check_channels(task, "sum_dy_xmu", &b.sum_dy_xmu));
  if (!frame_has_dtype(DTYPES_REAL, b.count.dtype)) {
    return frame_fail_dtype(&task->frame, "count", b.count.dtype);
  }
  FRAME_TRY(check_out(task, "grad_input", &task->v_out, true));
  return frame_run(&task->frame, run_backward_elemt, &b);
}
