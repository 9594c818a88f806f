/// The work of automatic mixed precision, after amp.c has checked the arguments.
#ifndef DIT_HOST_OPS_AMP_H
#define DIT_HOST_OPS_AMP_H

#include "frame.h"

struct amp_unscale {
  diopiTensorHandle_t *grads;
  int64_t count;
  float *found_inf;  ///< device memory, as is inv_scale
  const float *inv_scale;
};
diopiError_t amp_unscale(struct frame *frame, const struct amp_unscale *task);

/// One float, one int32, one float in device memory.
struct amp_update {
  float *scale;
  int32_t *tracker;
  const float *found;
  double growth, backoff;
  int32_t interval;
};
diopiError_t amp_update(struct frame *frame, const struct amp_update *task);

#endif
