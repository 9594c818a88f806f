/// The damage half of the fault hook: changing elements of a view of any dtype and strides. Private to src/ops.
#ifndef DIT_OPS_FAULT_H
#define DIT_OPS_FAULT_H

#include "dit/fault.h"

/// One rule of the configuration.
struct fault_rule {
  enum dit_fault_kind kind;
  char pattern[128];
  int dtype;                       ///< -1: any
  uint64_t first_call, last_call;  ///< of the matching calls, from 1
  double probability;
  uint64_t seed;
  double scale;
  int64_t index;
  int bits;
  double ms;
  uint64_t matched;  ///< calls that matched so far
};

/// Each returns true when it changed (or would have changed: the value happened to be the same) at least one element.
bool fault_damage_value(const struct dit_tensor_view *view, int64_t index, double scale);
bool fault_damage_precision(const struct dit_tensor_view *view, int bits);
bool fault_damage_nan(const struct dit_tensor_view *view, int64_t index);
bool fault_damage_stride(const struct dit_tensor_view *view, const struct dit_tensor_view *input);
bool fault_damage_unwritten(const struct dit_tensor_view *view);

#endif
