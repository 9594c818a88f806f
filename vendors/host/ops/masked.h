/// The work of masked_fill and of packing by a mask, after masked.c and masked_select.c have checked the arguments.
#ifndef DIT_HOST_OPS_MASKED_H
#define DIT_HOST_OPS_MASKED_H

#include "engine/nest.h"
#include "layout.h"

/// out = mask ? value : input, all of out's sizes; `value` is an element of out's dtype, 16 bytes of it. Not empty.
diopiError_t masked_fill(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *input,
                         const struct dit_tensor_view *mask, const void *value);

struct pack_task {
  struct frame *frame;
  struct dit_tensor_view whole, mask, packed, input;
  diopiTensorHandle_t *out;
  const char *packed_name;
  bool unpack, zero, exact;  ///< exact: packed has no element too many
  struct nest nest;          ///< mask, whole: row-major
  const int64_t *starts;
  int width;
};

/// The elements of `whole` where `mask` is true to or from `packed`, inside of frame_run; `starts` of
/// index_count_blocks is set, mask and whole have one shape.
diopiError_t masked_pack(struct pack_task *task);

#endif
