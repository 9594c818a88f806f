/// Batch norm: what its forward and backward operators share: the walk over channels, sums and scaled copies.
///
/// A call takes its views, batch_set_input and checks, then, in frame_run: batch_set_up, batch_open, numbers per
/// channel by batch_read_channels, batch_sum, batch_apply, batch_close; `room` is the caller's to free.
#ifndef DIT_HOST_OPS_NORM_BATCH_H
#define DIT_HOST_OPS_NORM_BATCH_H

#include "dense.h"
#include "engine/rows.h"
#include "lines.h"

struct batch_task {
  struct frame frame;
  struct dit_tensor_view v_x, v_g, v_out;  ///< the input first; absent where the operator has none
  struct shaped moved[3];                  ///< the same with channels last
  bool lines;
  int work;
  int64_t samples, channels, area, count;  ///< count: elements per channel
  int64_t chunk, chunks;
  struct row_data x, g, out;
  double *room;  ///< everything below
  double *mean, *scale, *sum, *dot, *a, *b, *c, *weight, *bias, *partial;
  int pass;
};

/// The big tensors in the order of the walk.
struct batch_tensors {
  struct dense x, g, out;
};

/// Sizes from v_x; an argument error for less than two dimensions or a dtype that is not floating.
diopiError_t batch_set_input(struct batch_task *task);
/// Floating, and one number per channel; an absent tensor is right.
diopiError_t batch_check_channels(struct batch_task *task, const char *name, const struct dit_tensor_view *view);
/// Floating, and of the input's shape.
diopiError_t batch_check_big(struct batch_task *task, const char *name, const struct dit_tensor_view *view);
/// No forbidden overlap with the input or the gradient; an absent tensor is right.
diopiError_t batch_check_out(struct batch_task *task, const char *name, const struct dit_tensor_view *out,
                             bool in_place);

/// The walk and room for the numbers per channel; false without memory, as below.
bool batch_set_up(struct batch_task *task);
/// The big tensors, packed and in the work type.
bool batch_open(struct batch_task *task, struct batch_tensors *big);
void batch_close(struct batch_tensors *big);
/// Numbers of a channel as double; `missing` where the tensor is absent.
bool batch_read_channels(const struct dit_tensor_view *view, double *out, int64_t count, double missing);
bool batch_write_channels(const struct dit_tensor_view *view, const double *values, int64_t count);

/// Pass 0: sum = sum(x); 1: sum = sum((x - mean)^2); 2: sum = sum(g), dot = sum(g * (x - mean)).
void batch_sum(struct batch_task *task, int pass);
/// out = a * g + b * x + c.
void batch_apply(struct batch_task *task);

struct forward_task {
  struct batch_task t;
  struct dit_tensor_view mean, scale, weight, bias, running_mean, running_var;
  bool training;
  double momentum, eps;
};

struct backward_task {
  struct batch_task t;
  struct dit_tensor_view mean, scale, weight, grad_weight, grad_bias;
  struct dit_tensor_view sum_dy, sum_dy_xmu, count;
  bool training;
  bool variance;  ///< `scale` holds the variance
  double eps, total;
};

struct batch_gather_task {
  struct frame frame;
  struct dit_tensor_view mean, scale, mean_all, scale_all, running_mean, running_var, counts;
  double momentum, eps;
  int64_t processes, channels;
};

/// The work, after the arguments were checked: on the frame's stream.
diopiError_t batch_forward(struct forward_task *f);
diopiError_t batch_elemt(struct forward_task *f);
diopiError_t batch_backward(struct backward_task *b);
diopiError_t batch_backward_elemt(struct backward_task *b);
diopiError_t batch_gather(struct batch_gather_task *task);

#endif
