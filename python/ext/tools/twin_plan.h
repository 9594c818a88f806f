/// What twin.c has to know before it copies: the geometry of the tensors, and which of them share elements.
#ifndef DIT_EXT_TWIN_PLAN_H
#define DIT_EXT_TWIN_PLAN_H

#include "tools/twin.h"

#define TWIN_INLINE 32  ///< tensors, before the heap is used

/// One call of twin_make or twin_send.
struct twin_plan {
  const struct engine_tensor *tensors;
  PyObject **twins;
  int *group;   ///< number of the first member of the group; -1: not looked at (no memory of its own)
  bool shared;  ///< some group has several members
  int count;
  enum twin_mode mode;
  bool copy_cpu;
  PyObject *target;  ///< the device to go to; NULL: the CPU
};

int64_t twin_plan_get_item_size(const struct engine_tensor *tensor);
/// Bytes from the first element to the end of the last one.
int64_t twin_plan_get_span(const struct engine_tensor *tensor);
/// No two indices share an element, as far as sorted strides tell: each is larger than everything below it. Sets *dense
/// when there are no gaps either.
bool twin_plan_is_simple(const struct engine_tensor *tensor, bool *dense);
/// Fill plan->group and plan->shared. 0 or -1.
DIT_NODISCARD int twin_plan_group(struct twin_plan *plan);

#endif
