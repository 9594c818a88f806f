/// What operators over lists of tensors share: which lists C may work on, and handles over their views.
#ifndef DIT_OPS_LIST_H
#define DIT_OPS_LIST_H

#include "diopi_call.h"
#include "dit/alloc.h"
#include "infer.h"

/// Tensors of one list that C may work on: device, floating, one dtype.
static inline bool list_is_uniform(const struct dit_tensor_view *views, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (!views[i].handle || op_check_input(&views[i]) != DIT_OK || !op_is_device(&views[i]) ||
        !op_is_floating(views[i].dtype) || views[i].dtype != views[0].dtype) {
      return false;
    }
  }
  return count > 0;
}

/// One number of `dtype` on the device.
static inline bool list_is_number(const struct dit_tensor_view *view, int dtype) {
  return view && op_is_device(view) && view->numel == 1 && view->dtype == dtype;
}

/// Handles over the views of several lists, in one block; free `rooms`.
struct list_handles {
  struct diopiTensor *rooms;
  diopiTensorHandle_t *tensors;
  int64_t count, room;
};

static inline bool list_handles_init(struct list_handles *handles, int64_t room) {
  handles->count = 0;
  handles->room = room;
  handles->rooms = dit_malloc(((size_t)room + 1) * (sizeof *handles->rooms + sizeof *handles->tensors));
  handles->tensors = handles->rooms ? (diopiTensorHandle_t *)(handles->rooms + room) : NULL;
  return handles->rooms != NULL;
}

/// The next `count` handles.
static inline diopiTensorHandle_t *list_handles_take(struct list_handles *handles, struct dit_call *call,
                                                     const struct dit_tensor_view *views, int64_t count) {
  diopiTensorHandle_t *first = handles->tensors + handles->count;
  for (int64_t i = 0; i < count; i++, handles->count++) {
    handles->tensors[handles->count] = op_handle(call, &handles->rooms[handles->count], &views[i]);
  }
  return first;
}

#endif
