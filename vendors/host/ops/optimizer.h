/// What the optimizer steps need of the device.
#ifndef DIT_HOST_OPS_OPTIMIZER_H
#define DIT_HOST_OPS_OPTIMIZER_H

#include "elementwise.h"

/// A step of Adam over one tensor of a list: everything but the numbers that depend on the step count, which lies on
/// the device.
struct optimizer_item {
  struct elementwise run;
  struct dit_tensor_view count;  ///< one element
};

struct optimizer_list {
  struct frame *frame;
  void *context;
  int64_t count;
  /// Everything was checked before.
  diopiError_t (*prepare)(const struct optimizer_list *list, int64_t number, struct optimizer_item *item);
  /// Set the numbers of the item for its step count.
  void (*set_count)(const struct optimizer_list *list, struct optimizer_item *item, double count);
  double lr, beta1, beta2;
  bool amsgrad;
};

/// All steps, on the frame's stream.
diopiError_t optimizer_run_list(const struct optimizer_list *list);

#endif
