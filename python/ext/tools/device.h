/// Where a call's work runs, and timing events there: one face for the ways to get them.
///
/// Inline: the CPU and the default stream of the embedded device work in the caller, the host clock is the device's.
/// Helper: a device table of dit/helper.h ("host" for other streams of the embedded device, "cuda"). Torch: any other
/// device, through torch.Event. Events are pooled per source and never synchronise by themselves. All functions need
/// the GIL; tools_event_wait drops it while it waits.
#ifndef DIT_EXT_TOOLS_DEVICE_H
#define DIT_EXT_TOOLS_DEVICE_H

#include "dit/helper.h"
#include "engine/engine.h"

/// The device of a call: that of its first tensor that is not on the CPU.
struct tools_site {
  uint8_t place;  ///< enum engine_place; ENGINE_PLACE_CPU when no tensor is elsewhere, NONE when there is none at all
  int16_t device;
  void *stream;         ///< raw handle of the calling thread's current stream there
  PyObject *py_tensor;  ///< borrowed; NULL for a remembered site
};

void tools_site_find(const struct engine_leaves *leaves, struct tools_site *site);
/// The same for the gradients of a backward event; entries may be NULL.
void tools_site_find_among(PyObject *const *tensors, int count, struct tools_site *site);
/// Another moment or thread: ask for the current stream again.
void tools_site_refresh(struct tools_site *site);
/// The host clock is the device's clock: nothing is queued behind the caller's back.
bool tools_site_is_inline(const struct tools_site *site);
/// The device table for the site; NULL where torch's own operators must serve. Looked up once per kind.
const struct dit_helper_vtable *tools_site_get_helper(const struct tools_site *site);
/// Wait until host memory at an embedded device's site may be read. Drops the GIL when there is something to wait for.
void tools_site_settle(const struct tools_site *site);

/// A source of events: one per (place, device) and owner, with a pool of idle events.
struct tools_source;
/// The sources of one tool; zero-initialise.
struct tools_sources {
  struct tools_source *first;
};

/// The source for the site; NULL for an inline site, or when events cannot be had there (`failed` counts).
/// `use_torch`: take torch.Event although a better way exists.
struct tools_source *tools_source_get(struct tools_sources *sources, const struct tools_site *site, bool use_torch);
/// Destroys the pools. Events still out must have been given back before.
void tools_sources_reset(struct tools_sources *sources);
/// Events made so far, over all sources.
size_t tools_sources_get_created(const struct tools_sources *sources);

/// From the pool, or new; NULL when the device refuses.
void *tools_event_take(struct tools_source *source);
/// Back to the pool; `spoiled` ones are destroyed. NULL allowed.
void tools_event_give(struct tools_source *source, void *event, bool spoiled);
/// Into `stream` of the calling thread's current device. False when the device refuses.
bool tools_event_record(struct tools_source *source, void *event, void *stream);
enum tools_passed { TOOLS_PASSED, TOOLS_NOT_YET, TOOLS_FAILED };
/// Nanoseconds between two recorded events; does not wait.
enum tools_passed tools_event_get_elapsed(struct tools_source *source, void *begin, void *end, int64_t *nanoseconds);
/// Wait for it; drops the GIL.
bool tools_event_wait(struct tools_source *source, void *event);

#endif
