/// Passes over tensors by channels, for batch, group and instance norm (kernels/channel.h).
#ifndef DIT_CUDA_ENGINE_CHANNEL_H
#define DIT_CUDA_ENGINE_CHANNEL_H

#include "kernels/channel.h"
#include "launch.h"
#include "ops/lines.h"
#include "packed.h"

/// Big tensors of one dtype in the order of the walk: packed, or channels-last where the input is.
struct channel_walk {
  struct frame *frame;
  int dtype, work;  ///< of elements; float or double
  struct channel_kernel kernel;
  struct packed x, g, out;
  struct shaped moved[3];
  const struct dit_tensor_view *out_view;
};

/// `g` and `out` may be absent. Samples, channels and area of the kernel are set; DTYPE: they must have one dtype.
diopiError_t channel_open(struct channel_walk *walk, struct frame *frame, const struct dit_tensor_view *x,
                          const struct dit_tensor_view *g, const struct dit_tensor_view *out, bool may_be_lines);
/// Numbers of channels for reading, or for writing (`writes`: channel_store afterwards).
diopiError_t channel_take(struct channel_numbers *numbers, struct packed *packed, struct frame *frame,
                          const struct dit_tensor_view *view, bool writes);
diopiError_t channel_store(struct packed *packed, struct frame *frame, const struct dit_tensor_view *view);
/// Partials of `channels` x `count` elements; the kernel's sizes are the caller's.
diopiError_t channel_moments(struct channel_walk *walk);
diopiError_t channel_dots(struct channel_walk *walk);
/// Room for factors, and out = factors of channels over g and x, stored.
diopiError_t channel_reserve_factors(struct channel_walk *walk);
diopiError_t channel_apply(struct channel_walk *walk);
/// The kernels that finish, a warp for each of `items`: "batch", "batch_backward", "group", "group_backward",
/// "group_parameters".
enum channel_step { CHANNEL_BATCH, CHANNEL_BATCH_BACKWARD, CHANNEL_GROUP, CHANNEL_GROUP_BACKWARD, CHANNEL_PARAMETERS };
diopiError_t channel_finish(struct channel_walk *walk, struct channel_finish *finish, enum channel_step step,
                            int64_t items);

#endif
