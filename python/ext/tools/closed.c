// Copies of closed device memory in pinned memory; see closed.h.
//
// Only the bytes that the tensor reaches are copied, with its own strides. Depends on dit/stage.h.
#include "tools/closed.h"

#include "dit/memory.h"
#include "dit/runtime.h"
#include "dit/stage.h"

/// Whose memory is it? Another accelerator's tensors have the same place.
static bool is_own(const struct engine_tensor *tensor) {
  void *base;
  size_t size;
  int device = -1;
  return tensor->place == ENGINE_PLACE_OTHER && dit_runtime_is_active() && !dit_stage_is_host_accessible() &&
         tensor->data && dit_memory_find(tensor->data, &base, &size, &device) && device == tensor->device_index;
}

bool tools_closed_fetch(const struct engine_tensor *tensor, struct dit_tensor_view *view, void **memory) {
  struct engine_tensor known = *tensor;
  int64_t low, high;
  known.place = ENGINE_PLACE_HOST;
  if (!is_own(tensor) || !engine_tensor_get_view(&known, view)) {
    return false;
  }
  dit_tensor_get_span(view, &low, &high);
  void *host = NULL;
  if (dit_host_alloc((size_t)(high - low), &host, NULL) != DIT_OK) {
    return false;
  }
  const struct dit_stage_piece piece = {host, (char *)view->data + low, (size_t)(high - low)};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_stage_fetch(tensor->device_index, dit_stream_get_current(tensor->device_index), &piece, 1, NULL);
  Py_END_ALLOW_THREADS;
  if (status != DIT_OK) {
    dit_host_free(host);
    return false;
  }
  view->data = (char *)host - low;
  view->storage = host;
  view->device_index = -1;
  view->flags &= (uint8_t)~DIT_TENSOR_ON_DEVICE;
  *memory = host;
  return true;
}

void tools_closed_release(void *memory) {
  dit_host_free(memory);
}
