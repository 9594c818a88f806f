// Were the inputs left alone? Asked of the device itself: checksums before and after the call, read together.
//
// On a device whose memory the host cannot read, copying every input a second time only to see that nothing happened
// to it costs more than all the rest. A checksum costs a launch. Per device there is one ring of slots; a case
// remembers where its hashes begin, as a number that only grows, so a ring that has come round is noticed and the
// inputs are copied after all. Devices without checksums: likewise. Rings live as long as the process. Everything under
// the GIL. Depends on device.h.
#include <string.h>

#include "tools/compare/state.h"
#include "tools/device.h"

#define RING 4096         ///< slots of a device
#define MOST (RING / 16)  ///< tensors of one call

static struct ring {
  struct ring *next;
  const struct dit_helper_vtable *helper;
  int16_t device;
  uint8_t place;
  bool refused;
  void *slots;
  uint64_t at;  ///< slots given out so far, 1 at first
} *rings;

static struct ring *ring_get(const struct tools_site *site) {
  for (struct ring *ring = rings; ring; ring = ring->next) {
    if (ring->device == site->device && ring->place == site->place) {
      return ring->refused ? NULL : ring;
    }
  }
  struct ring *ring = PyMem_Calloc(1, sizeof *ring);
  if (!ring) {
    return NULL;
  }
  ring->helper = tools_site_get_helper(site);
  ring->device = site->device;
  ring->place = site->place;
  ring->at = 1;
  ring->refused = !ring->helper || !ring->helper->checksum ||
                  ring->helper->slots_create(site->device, sizeof(struct dit_hash), RING, &ring->slots, NULL) != DIT_OK;
  ring->next = rings;
  rings = ring;
  return ring->refused ? NULL : ring;
}

// A run of `count` neighbouring slots; its number.
static uint64_t ring_take(struct ring *ring, int count) {
  if (ring->at % RING + (uint64_t)count > RING) {
    ring->at += RING - ring->at % RING;
  }
  uint64_t first = ring->at;
  ring->at += (uint64_t)count;
  return first;
}

// Only these can be asked: the others are copied.
static bool tensor_can_be_hashed(const struct tools_site *site, const struct engine_tensor *tensor,
                                 struct dit_tensor_view *view) {
  return tensor->place == site->place && tensor->device_index == site->device && engine_tensor_get_view(tensor, view);
}

// Hashes of the inputs that can be asked for, of input i into slot first + i; not of those in `skip` (nullable), whose
// memory may be another one by now. False: the device refused.
static bool inputs_hash(struct ring *ring, const struct tools_site *site, const struct engine_leaves *in,
                        const bool *skip, uint64_t first) {
  struct dit_tensor_view views[DIT_HELPER_BATCH];
  int filled = 0;
  for (int i = 0; i <= in->tensor_count; i++) {
    bool fits =
        i < in->tensor_count && !(skip && skip[i]) && tensor_can_be_hashed(site, &in->tensor[i], &views[filled]);
    filled += fits;
    if (filled > 0 && (!fits || filled == DIT_HELPER_BATCH)) {
      size_t begin = (size_t)((first + (uint64_t)(i - filled + fits)) % RING);
      if (ring->helper->checksum(views, filled, site->stream, ring->slots, begin, NULL) != DIT_OK) {
        return false;
      }
      filled = 0;
    }
  }
  return true;
}

// `count` hashes from each of two places, the first ones first; mostly neighbours, which are read at once.
static bool hashes_read(struct ring *ring, uint64_t before, uint64_t after, int count, void *stream,
                        struct dit_hash *hashes) {
  const struct dit_helper_vtable *helper = ring->helper;
  size_t first = (size_t)(before % RING), second = (size_t)(after % RING), each = (size_t)count;
  bool joined = second == first + each;
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = helper->slots_read(ring->slots, first, joined ? 2 * each : each, stream, hashes, NULL);
  if (status == DIT_OK && !joined) {
    status = helper->slots_read(ring->slots, second, each, stream, hashes + count, NULL);
  }
  Py_END_ALLOW_THREADS;
  return status == DIT_OK;
}

// NULL at once where the host reads the inputs in place.
static struct ring *site_find(const struct engine_call *call, struct tools_site *site) {
  int count = call->in.tensor_count;
  if (count > MOST || !compare_tensors_need_copies(call->in.tensor, count)) {
    return NULL;
  }
  tools_site_find(&call->in, site);
  bool far = site->place != ENGINE_PLACE_CPU && site->place != ENGINE_PLACE_HOST && site->place != ENGINE_PLACE_NONE;
  return far ? ring_get(site) : NULL;
}

void compare_guard_begin(struct compare_case *c, const struct engine_call *call) {
  struct tools_site site;
  struct ring *ring = site_find(call, &site);
  c->guard = 0;
  if (!ring) {
    return;
  }
  uint64_t first = ring_take(ring, call->in.tensor_count);
  c->guard = inputs_hash(ring, &site, &call->in, NULL, first) ? first : 0;
}

void compare_guard_ask(struct compare_case *c, const struct engine_call *call) {
  struct tools_site site;
  struct ring *ring = c->guard ? site_find(call, &site) : NULL;
  uint64_t first = ring ? ring_take(ring, call->in.tensor_count) : 0;
  c->guard_after = ring && inputs_hash(ring, &site, &call->in, c->changed, first) ? first : 0;
}

bool compare_guard_read(const struct compare_case *c, const struct engine_call *call, bool *untouched) {
  struct tools_site site;
  struct ring *ring = c->guard && c->guard_after ? site_find(call, &site) : NULL;
  struct dit_hash hashes[2 * MOST];
  int count = call->in.tensor_count;
  if (!ring || ring->at - c->guard > RING || !hashes_read(ring, c->guard, c->guard_after, count, site.stream, hashes)) {
    return false;  // refused, or its slots were used again
  }
  struct dit_tensor_view view;
  for (int i = 0; i < count; i++) {
    if (!c->changed[i] && tensor_can_be_hashed(&site, &call->in.tensor[i], &view)) {
      untouched[i] = memcmp(&hashes[i], &hashes[count + i], sizeof *hashes) == 0;
    }
  }
  return true;
}

bool compare_guard_end(struct compare_case *c, const struct engine_call *call, bool *untouched) {
  compare_guard_ask(c, call);
  return compare_guard_read(c, call, untouched);
}
