/// A call taken apart for OpOverflowCheck: which tensors it read, which it wrote, which results only show an input.
#ifndef DIT_EXT_TOOLS_OVERFLOW_PARTS_H
#define DIT_EXT_TOOLS_OVERFLOW_PARTS_H

#include "tools/overflow/overflow.h"

/// A call and what is known of its arguments.
struct overflow_parts {
  struct overflow_state *state;
  const struct engine_call *call;
  const struct overflow_op *info;
  const struct overflow_look *look;  ///< NULL for none
  int out_top;                       ///< index of the top-level argument "out", -1 when there is none
};

/// How a leaf of the arguments takes part.
enum overflow_part {
  OVERFLOW_PART_NONE,     ///< not a tensor
  OVERFLOW_PART_INPUT,    ///< read, not written
  OVERFLOW_PART_CHANGED,  ///< read and written
  OVERFLOW_PART_TARGET,   ///< only written: out=, copy_
};

void overflow_parts_set(struct overflow_parts *parts, struct overflow_state *state, const struct engine_call *call,
                        const struct overflow_op *info, const struct overflow_look *look);
enum overflow_part overflow_part_get(const struct overflow_parts *parts, const struct engine_leaf *leaf);
/// The call changed an input that it read.
bool overflow_parts_have_changed(const struct overflow_parts *parts);
/// A result that only shows memory as the call found it.
bool overflow_result_is_old(const struct overflow_parts *parts, int index);
/// A result that is an input which the call wrote to.
bool overflow_result_is_input(const struct overflow_parts *parts, int index);
/// Called for each tensor that the call wrote.
typedef void (*overflow_written_visit)(void *context, const struct engine_tensor *tensor, enum overflow_role role,
                                       int index);
void overflow_parts_visit_written(const struct overflow_parts *parts, overflow_written_visit visit, void *context);
/// Coverage of an input before the call.
uint8_t overflow_parts_get_coverage(const struct overflow_parts *parts, const struct engine_leaf *leaf);

#endif
