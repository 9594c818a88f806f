/// Pieces of device memory on the host (see dit/stage.h).
///
/// The pinned memory is not marked as used by the stream, as dit_memory_copy would do: the one wait at the end has seen
/// all of it. Depends on runtime.c, stream.c.
#include "dit/stage.h"

#include "device/memory_watch.h"

enum dit_status dit_stage_fetch(int device, int64_t stream, const struct dit_stage_piece *pieces, size_t count,
                                struct dit_error *err) {
  void *raw;
  bool queued = false;
  DIT_RETURN_IF_NOT_OK(dit_stream_get_raw(device, stream, &raw, err));
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  enum dit_status status = DIT_OK;
  for (size_t i = 0; i < count && status == DIT_OK; i++) {
    const struct dit_stage_piece *piece = &pieces[i];
    if (piece->size == 0) {
      continue;
    }
    if (DIT_UNLIKELY(dit_watch_get())) {
      dit_watch_range(piece->device, piece->size, "a copy");
    }
    const struct dit_copy copy = {piece->host, piece->device, piece->size, DIT_COPY_DEVICE_TO_HOST, -1, device};
    status = vtable->copy_async(&copy, device, raw, err);
    queued = true;
  }
  if (!queued) {
    return DIT_OK;
  }
  // Also after a failure: what was queued before it must not write to the host any more.
  const enum dit_status waited = vtable->stream_synchronize(device, raw, status == DIT_OK ? err : NULL);
  return status == DIT_OK ? waited : status;
}

/// The answer for one generation of the runtime (device_internal.h): generation, a bit that it is known, the answer.
static atomic_uint known;

bool dit_stage_is_host_accessible(void) {
  const unsigned generation = atomic_load_explicit(&dit_generation, memory_order_relaxed);
  const unsigned have = atomic_load_explicit(&known, memory_order_relaxed);
  struct dit_device_properties properties;
  if (DIT_LIKELY(have >> 2 == generation && have & 2)) {
    return have & 1;
  }
  if (dit_device_get_count() == 0 || dit_device_get_properties(0, &properties, NULL) != DIT_OK) {
    return true;
  }
  atomic_store_explicit(&known, generation << 2 | 2u | properties.host_accessible, memory_order_relaxed);
  return properties.host_accessible;
}
