// Checks on a CUDA device: flags (or statistics) written into slots by kernels on the current stream, read in one go.
//
// Two halves of slots per device: while one is being read the other takes new calls. Events wait in a queue in the
// order of the calls and are judged in that order, so that who came first is known although nobody waited. Invariant:
// every slot number of a queued event lies in the half that its generation names; a half is used again only after it
// was read.
#include <string.h>

#include "tools/overflow/overflow.h"

#define HALF 16384  // slots; a training step of 1,100 calls takes about 5,000
#define STREAMS 8

struct overflow_pending {
  struct overflow_pending *next;
  struct overflow_event event;
  struct overflow_batch *batch;
  struct overflow_kept *kept;
  void *stream;
  uint64_t generation;  // of the batch's half
  int capacity, count;  // of tensors
  bool scaler;
  struct overflow_meta tensor[];
};

struct overflow_batch {
  struct overflow_batch *next;
  const struct dit_helper_vtable *helper;
  int device;
  uint8_t place;
  bool refused, reading;
  bool stats;      // slots hold statistics
  void *slots;     // 2 * HALF
  int used, half;  // of the half in use
  uint64_t generation;
  int64_t calls;  // waiting
  struct overflow_pending *head, *tail;
  void *streams[STREAMS];  // that were launched on since the last reading
  int stream_count;
};

static bool is_output(const struct overflow_meta *tensor) {
  return tensor->role == OVERFLOW_OUT || tensor->role == OVERFLOW_IN_AFTER;
}

static size_t slot_size(const struct overflow_batch *batch) {
  return batch->stats ? sizeof(struct dit_tensor_stats) : 1;
}

// Making slots would break a CUDA graph that is being captured; an event tells whether one is.
static bool site_is_capturing(const struct dit_helper_vtable *helper, const struct tools_site *site) {
  void *event = NULL;
  if (site->place != ENGINE_PLACE_CUDA || helper->event_create(site->device, &event, NULL) != DIT_OK) {
    return false;
  }
  bool capturing = helper->event_record(event, site->stream, NULL) == DIT_ERR_UNSUPPORTED;
  helper->event_destroy(event);
  return capturing;
}

struct overflow_batch *overflow_batch_get(struct overflow_state *state, const struct tools_site *site) {
  for (struct overflow_batch *batch = state->batches; batch; batch = batch->next) {
    if (batch->device == site->device && batch->place == site->place) {
      return batch->refused ? NULL : batch;
    }
  }
  const struct dit_helper_vtable *helper = tools_site_get_helper(site);
  struct overflow_batch *batch =
      helper && site_is_capturing(helper, site) ? NULL : PyMem_Calloc(1, sizeof(struct overflow_batch));
  if (!batch) {
    return NULL;
  }
  batch->device = site->device;
  batch->place = site->place;
  batch->helper = helper;
  batch->stats = state->stats && helper && helper->stats;
  batch->refused = !helper || !(batch->stats ? helper->stats : helper->nonfinite) ||
                   helper->slots_create(site->device, slot_size(batch), 2 * HALF, &batch->slots, NULL) != DIT_OK;
  batch->next = state->batches;
  state->batches = batch;
  return batch->refused ? NULL : batch;
}

// One event

struct overflow_pending *overflow_pending_create(struct overflow_batch *batch, const struct tools_site *site,
                                                 int capacity) {
  struct overflow_pending *pending = PyMem_Malloc(sizeof *pending + (size_t)capacity * sizeof(struct overflow_meta));
  if (pending) {
    *pending = (struct overflow_pending){
        .batch = batch, .capacity = capacity, .stream = site->stream, .generation = batch->generation};
  }
  return pending;
}

struct overflow_pending *overflow_pending_grow(struct overflow_pending *pending, int capacity) {
  if (capacity <= pending->capacity) {
    return pending;
  }
  struct overflow_pending *grown =
      PyMem_Realloc(pending, sizeof *pending + (size_t)capacity * sizeof(struct overflow_meta));
  if (!grown) {
    return pending;
  }
  grown->capacity = capacity;
  return grown;
}

void overflow_pending_destroy(struct overflow_state *state, struct overflow_pending *pending) {
  if (!pending) {
    return;
  }
  state->latest = state->latest == pending ? NULL : state->latest;
  if (state->recent == pending) {
    state->recent = NULL;
    state->recent_flags = pending->event.in_flags | pending->event.junk_flags | pending->event.out_flags;
  }
  overflow_kept_release(pending->kept);
  PyMem_Free(pending);
}

// Slots of a half that was read meanwhile, by another thread, are lost to this event.
static void pending_renew(struct overflow_state *state, struct overflow_pending *pending) {
  pending->generation = pending->batch->generation;
  for (int i = 0; i < pending->count; i++) {
    if (pending->tensor[i].slot >= 0) {
      pending->tensor[i].slot = -1;
      pending->tensor[i].flags = OVERFLOW_UNKNOWN;
      state->unchecked++;
    }
  }
}

void overflow_pending_attach(struct overflow_pending *pending, struct overflow_kept *kept) {
  kept->references++;
  overflow_kept_release(pending->kept);
  pending->kept = kept;
}

struct overflow_event *overflow_pending_get_event(struct overflow_pending *pending) {
  return &pending->event;
}

static void stream_note(struct overflow_batch *batch, void *stream) {
  for (int i = 0; i < batch->stream_count; i++) {
    if (batch->streams[i] == stream) {
      return;
    }
  }
  if (batch->stream_count < STREAMS) {
    batch->streams[batch->stream_count++] = stream;
  }
}

// The slots are taken at once and in one piece: nothing in between may let another thread in.
static int slots_take(struct overflow_state *state, struct overflow_pending *pending, int count) {
  struct overflow_batch *batch = pending->batch;
  if (pending->generation != batch->generation) {
    pending_renew(state, pending);
  }
  if (batch->used + count > HALF) {
    return -1;
  }
  int first = batch->half * HALF + batch->used;
  batch->used += count;
  return first;
}

// Launches

void overflow_launch_init(struct overflow_launch *launch, bool lazy) {
  launch->count = 0;
  launch->capacity = 2 * DIT_HELPER_BATCH;
  launch->more = NULL;
  launch->tensor_more = NULL;
  launch->lazy = lazy;
}

static struct dit_tensor_view *launch_get_views(struct overflow_launch *launch) {
  return launch->more ? launch->more : launch->few;
}

static int *launch_get_tensors(struct overflow_launch *launch) {
  return launch->tensor_more ? launch->tensor_more : launch->tensor_few;
}

static void launch_reset(struct overflow_launch *launch) {
  PyMem_Free(launch->more);
  PyMem_Free(launch->tensor_more);
  overflow_launch_init(launch, launch->lazy);
}

// Room for one more; false without memory.
static bool launch_grow(struct overflow_launch *launch) {
  if (launch->count < launch->capacity) {
    return true;
  }
  size_t capacity = 2 * (size_t)launch->capacity;
  struct dit_tensor_view *more = PyMem_Realloc(launch->more, capacity * sizeof *more);
  int *tensors = more ? PyMem_Realloc(launch->tensor_more, capacity * sizeof *tensors) : NULL;
  if (more && !launch->more) {
    memcpy(more, launch->few, sizeof launch->few);
  }
  launch->more = more ? more : launch->more;
  if (!tensors) {
    return false;
  }
  if (!launch->tensor_more) {
    memcpy(tensors, launch->tensor_few, sizeof launch->tensor_few);
  }
  launch->tensor_more = tensors;
  launch->capacity = (int)capacity;
  return true;
}

/// How a group of tensors is looked at.
enum pass { PASS_FLAGS, PASS_STATS, PASS_WATCH, PASS_STATS_IF };

/// The tensors of a launch whose reading is one of `readings` (bits).
struct group {
  struct overflow_pending *pending;
  struct overflow_launch *launch;
  unsigned readings;
  enum pass pass;
  uint64_t mark;  ///< left by results that are bad
};

static enum dit_status views_pass(const struct overflow_batch *batch, const struct group *group,
                                  const struct dit_tensor_view *views, int count, int results, size_t first) {
  const struct dit_helper_vtable *helper = batch->helper;
  void *stream = group->pending->stream;
  switch (group->pass) {
    case PASS_FLAGS:
      return helper->nonfinite(views, count, stream, batch->slots, first, NULL);
    case PASS_STATS:
      return helper->stats(views, count, stream, batch->slots, first, NULL);
    case PASS_WATCH:
      return helper->watch(views, count, results, group->mark, stream, batch->slots, first, NULL);
    default:
      return helper->stats_if(views, count, group->mark, stream, batch->slots, first, NULL);
  }
}

// Neighbours of the launch that belong to the group go together: their slots are neighbours too.
static void group_pass(struct overflow_state *state, const struct group *group) {
  struct overflow_launch *launch = group->launch;
  struct overflow_meta *tensors = group->pending->tensor;
  const struct dit_tensor_view *views = launch_get_views(launch);
  const int *indices = launch_get_tensors(launch);
  for (int i = 0; i < launch->count;) {
    int count = 0, results = 0;  // results come last
    while (i + count < launch->count && count < DIT_HELPER_BATCH &&
           group->readings >> tensors[indices[i + count]].reading & 1 && tensors[indices[i + count]].slot >= 0) {
      results += !is_output(&tensors[indices[i + count]]);
      count++;
    }
    enum dit_status status = DIT_OK;
    if (count) {
      status = views_pass(group->pending->batch, group, views + i, count, results, (size_t)tensors[indices[i]].slot);
    }
    for (int k = 0; k < count && status != DIT_OK; k++) {
      tensors[indices[i + k]].slot = -1;
      tensors[indices[i + k]].flags = OVERFLOW_UNKNOWN;
      state->unchecked++;
    }
    i += count ? count : 1;
  }
}

// From here on reading flags first costs less than reading statistics at once.
#define WATCHED_BYTES ((int64_t)4 << 20)

static bool launch_is_watched(const struct overflow_batch *batch, struct overflow_launch *launch) {
  const struct dit_tensor_view *views = launch_get_views(launch);
  int64_t bytes = 0;
  for (int i = 0; i < launch->count; i++) {
    bytes += views[i].numel * (int64_t)dit_dtype_get_size(views[i].dtype);
  }
  return batch->stats && batch->helper->watch && batch->helper->stats_if && bytes >= WATCHED_BYTES;
}

static uint8_t reading_get(const struct overflow_launch *launch, const struct overflow_meta *tensor, bool watched) {
  return !watched                             ? OVERFLOW_READ
         : tensor->role == OVERFLOW_IN_BEFORE ? OVERFLOW_READ_FLAGS
         : is_output(tensor)                  ? OVERFLOW_READ_RESULT
         : launch->lazy                       ? OVERFLOW_READ_LAZILY
                                              : OVERFLOW_READ_WATCHED;
}

// Results leave a mark, so that what follows knows whether anybody will ask.
static void launch_pass_watched(struct overflow_state *state, struct group *group) {
  static uint64_t marks;  // under the GIL
  const unsigned both = 1U << OVERFLOW_READ_RESULT | 1U << OVERFLOW_READ_WATCHED;
  group->pass = PASS_WATCH;
  group->mark = ++marks;
  group->readings = both | 1U << OVERFLOW_READ_FLAGS;
  group_pass(state, group);
  group->pass = PASS_STATS_IF;
  group->readings = both | 1U << OVERFLOW_READ_LAZILY;
  group_pass(state, group);
}

void overflow_pending_launch(struct overflow_state *state, struct overflow_pending *pending,
                             struct overflow_launch *launch) {
  struct overflow_batch *batch = pending->batch;
  if (!launch->count) {
    return;
  }
  int first = slots_take(state, pending, launch->count);
  bool watched = launch_is_watched(batch, launch);
  const int *indices = launch_get_tensors(launch);
  stream_note(batch, pending->stream);
  for (int i = 0; i < launch->count; i++) {
    struct overflow_meta *tensor = &pending->tensor[indices[i]];
    tensor->slot = first < 0 ? -1 : first + i;
    tensor->flags = first < 0 ? OVERFLOW_UNKNOWN : 0;
    tensor->reading = reading_get(launch, tensor, watched);
  }
  state->unchecked += first < 0 ? launch->count : 0;
  struct group group = {.pending = pending,
                        .launch = launch,
                        .readings = 1U << OVERFLOW_READ,
                        .pass = batch->stats ? PASS_STATS : PASS_FLAGS};
  if (watched) {
    launch_pass_watched(state, &group);
  } else {
    group_pass(state, &group);
  }
  launch_reset(launch);
}

static struct overflow_meta *meta_add(struct overflow_pending *pending, const struct engine_tensor *tensor,
                                      enum overflow_role role, int index) {
  if (pending->count >= pending->capacity) {  // only without memory for more
    return NULL;
  }
  struct overflow_meta *meta = &pending->tensor[pending->count++];
  overflow_meta_set(meta, tensor, role, index);
  pending->event.in_count += !is_output(meta);
  pending->event.out_count += is_output(meta);
  return meta;
}

void overflow_pending_add_unknown(struct overflow_pending *pending, const struct engine_tensor *tensor,
                                  enum overflow_role role, int index) {
  struct overflow_meta *meta = meta_add(pending, tensor, role, index);
  if (meta) {
    meta->flags = OVERFLOW_UNKNOWN;
  }
}

void overflow_pending_mark(struct overflow_pending *pending, int index, uint8_t coverage) {
  for (int i = 0; i < pending->count; i++) {
    struct overflow_meta *meta = &pending->tensor[i];
    if (meta->index == index && !is_output(meta)) {
      meta->coverage = coverage;
    }
  }
}

void overflow_pending_mark_last(struct overflow_pending *pending, uint8_t coverage) {
  if (pending->count) {
    pending->tensor[pending->count - 1].coverage = coverage;
  }
}

void overflow_pending_add(struct overflow_state *state, struct overflow_pending *pending,
                          struct overflow_launch *launch, const struct engine_tensor *tensor, enum overflow_role role,
                          int index) {
  const struct overflow_batch *batch = pending->batch;
  struct overflow_meta *meta = meta_add(pending, tensor, role, index);
  if (!meta || !overflow_can_be_bad(tensor)) {
    return;
  }
  if (tensor->place != batch->place && tensor->place <= ENGINE_PLACE_HOST) {  // a number on the CPU
    meta->flags = overflow_tensor_scan(state, tensor);
    return;
  }
  struct engine_tensor plain = *tensor;  // conjugation and sign do not touch finiteness
  plain.flags &= (uint8_t) ~(ENGINE_TENSOR_CONJ | ENGINE_TENSOR_NEG);
  if (tensor->place != batch->place || tensor->device_index != batch->device || !launch_grow(launch) ||
      !engine_tensor_get_view(&plain, &launch_get_views(launch)[launch->count])) {
    meta->flags = OVERFLOW_UNKNOWN;
    state->unchecked++;
    return;
  }
  launch_get_tensors(launch)[launch->count++] = (int)(meta - pending->tensor);
}

void overflow_pending_commit(struct overflow_state *state, struct overflow_pending *pending, struct overflow_kept *kept,
                             bool scaler) {
  struct overflow_batch *batch = pending->batch;
  pending->kept = kept;
  pending->scaler = scaler;
  if (kept) {
    kept->references++;
  }
  if (batch->tail) {
    batch->tail->next = pending;
  } else {
    batch->head = pending;
  }
  batch->tail = pending;
  batch->calls++;
  state->latest = pending;
  if (pending->event.kind == OVERFLOW_FORWARD && !scaler) {
    state->recent = pending;
    state->recent_id = pending->event.id;
  }
}

void overflow_objects_forget(struct overflow_state *state, struct overflow_pending *pending) {
  if (state->latest == pending) {
    struct overflow_event *event = &pending->event;
    event->func = event->args = event->kwargs = event->result = NULL;
  }
}

// Reading

static const void *slot_get(const struct overflow_batch *batch, const struct overflow_meta *tensor, const void *values,
                            int first) {
  return (const char *)values + (size_t)(tensor->slot - first) * slot_size(batch);
}

static void tensor_resolve(const struct overflow_batch *batch, struct overflow_meta *tensor, const void *values,
                           int first) {
  if (tensor->slot < 0) {
    return;
  }
  if (!batch->stats) {
    tensor->flags = *(const uint8_t *)slot_get(batch, tensor, values, first) & OVERFLOW_BAD;
    return;
  }
  const struct dit_tensor_stats *stats = slot_get(batch, tensor, values, first);
  tensor->flags =
      (uint8_t)((stats->nan ? DIT_NONFINITE_NAN : 0) | (stats->pos_inf || stats->neg_inf ? DIT_NONFINITE_INF : 0));
}

// The mark of the results was set on the device: then the slots of all tensors of the launch hold statistics.
static bool pending_is_marked(const struct overflow_pending *pending) {
  for (int i = 0; i < pending->count; i++) {
    const struct overflow_meta *tensor = &pending->tensor[i];
    if (is_output(tensor) && tensor->slot >= 0 && tensor->flags & OVERFLOW_BAD) {
      return true;
    }
  }
  return false;
}

static bool slot_has_stats(const struct overflow_pending *pending, const struct overflow_meta *tensor, bool marked) {
  return pending->batch->stats && tensor->slot >= 0 &&
         (tensor->reading == OVERFLOW_READ || (marked && tensor->reading != OVERFLOW_READ_FLAGS));
}

// Inputs first, as findings want them.
static void event_take_tensors(struct overflow_pending *pending, const void *values, int first) {
  struct overflow_tensor *tensors = PyMem_Calloc((size_t)pending->count + 1, sizeof *tensors);
  bool marked = pending_is_marked(pending);
  int at = 0;
  for (int pass = 0; tensors && pass < 2; pass++) {
    for (int i = 0; i < pending->count; i++) {
      const struct overflow_meta *meta = &pending->tensor[i];
      if (is_output(meta) != (pass == 1) || meta->coverage == OVERFLOW_UNREAD) {
        continue;
      }
      struct overflow_tensor *tensor = &tensors[at++];
      tensor->meta = *meta;
      tensor->has_stats = slot_has_stats(pending, meta, marked);
      if (tensor->has_stats) {
        memcpy(&tensor->stats, slot_get(pending->batch, meta, values, first), sizeof tensor->stats);
      }
    }
  }
  pending->event.tensor = tensors;
  pending->event.in_count = at - pending->event.out_count;
}

// Results first: they tell whether the inputs were looked at.
static void pending_read_flags(struct overflow_pending *pending, const void *values, int first) {
  bool marked = false;
  uint8_t bad = 0;
  for (int results = 1; results >= 0; results--) {
    for (int i = 0; i < pending->count; i++) {
      struct overflow_meta *tensor = &pending->tensor[i];
      if (is_output(tensor) != (results == 1)) {
        continue;
      }
      if (tensor->slot >= 0 && tensor->reading == OVERFLOW_READ_LAZILY && !marked) {
        tensor->flags = bad ? OVERFLOW_UNKNOWN : 0;
      } else {
        tensor_resolve(pending->batch, tensor, values, first);
      }
      bad |= results ? tensor->flags & OVERFLOW_BAD : 0;
      marked |= results && tensor->slot >= 0 && tensor->flags & OVERFLOW_BAD;
    }
  }
}

static int pending_resolve(struct engine_tool *tool, struct overflow_pending *pending, const void *values, int first) {
  struct overflow_state *state = tool->state;
  struct overflow_event *event = &pending->event;
  if (pending->scaler) {
    overflow_excuse(state);
    return 0;
  }
  pending_read_flags(pending, values, first);
  for (int i = 0; i < pending->count; i++) {
    const struct overflow_meta *tensor = &pending->tensor[i];
    overflow_event_add(event, is_output(tensor), tensor->flags, tensor->coverage);
  }
  if (event->kind == OVERFLOW_BACKWARD) {
    event->forward_flags = pending->kept ? pending->kept->flags : 0;
  } else if (pending->kept) {
    pending->kept->flags = event->in_flags | event->junk_flags | event->out_flags;
  }
  int status = 0;
  if (event->out_flags & OVERFLOW_BAD) {
    event_take_tensors(pending, values, first);
    status = overflow_judge(tool, event);
    PyMem_Free(event->tensor);
    event->tensor = NULL;
  }
  return status;
}

// Wait for every stream that was used; the last one by slots_read itself.
static void streams_wait(struct overflow_batch *batch, void *const *streams, int count) {
  for (int i = 1; i < count; i++) {
    void *event = NULL;
    if (batch->helper->event_create(batch->device, &event, NULL) != DIT_OK) {
      continue;
    }
    if (batch->helper->event_record(event, streams[i], NULL) == DIT_OK) {
      (void)!batch->helper->event_wait(event, NULL);
    }
    batch->helper->event_destroy(event);
  }
}

static bool slots_read(struct overflow_batch *batch, int first, int used, void *const *streams, int stream_count,
                       void *values) {
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  streams_wait(batch, streams, stream_count);
  status = batch->helper->slots_read(batch->slots, (size_t)first, (size_t)used, streams[0], values, NULL);
  Py_END_ALLOW_THREADS;
  return status == DIT_OK;
}

// Judge all of a detached queue; the first exception stays pending.
static int queue_resolve(struct engine_tool *tool, struct overflow_pending *queue, const void *values, int first) {
  int status = 0;
  PyObject *kind = NULL, *value = NULL, *trace = NULL;
  while (queue) {
    struct overflow_pending *pending = queue;
    queue = pending->next;
    if (pending_resolve(tool, pending, values, first) < 0) {
      if (status == 0) {
        PyErr_Fetch(&kind, &value, &trace);
      }
      py_error_drop();
      status = -1;
    }
    overflow_pending_destroy(tool->state, pending);
  }
  if (status < 0) {
    PyErr_Restore(kind, value, trace);
  }
  return status;
}

static int batch_read(struct engine_tool *tool, struct overflow_batch *batch) {
  struct overflow_state *state = tool->state;
  if (batch->reading || !batch->head) {
    return 0;
  }
  int first = batch->half * HALF, used = batch->used, stream_count = batch->stream_count;
  void *streams[STREAMS];
  memcpy(streams, batch->streams, sizeof streams);
  struct overflow_pending *queue = batch->head;
  batch->head = batch->tail = NULL;
  batch->calls = 0;
  batch->used = 0;
  batch->half = !batch->half;
  batch->generation++;
  batch->stream_count = 0;
  batch->reading = true;
  void *values = PyMem_Calloc((size_t)used + 1, slot_size(batch));
  bool read = values && (!used || slots_read(batch, first, used, streams, stream_count, values));
  batch->reading = false;
  if (!read) {
    state->unchecked += used;
    for (struct overflow_pending *pending = queue; pending; pending = pending->next) {
      for (int i = 0; i < pending->count; i++) {
        pending->tensor[i].slot = -1;
      }
    }
  }
  state->reads++;
  int status = queue_resolve(tool, queue, values, first);
  PyMem_Free(values);
  return status;
}

int overflow_batch_reserve(struct engine_tool *tool, struct overflow_batch *batch, int count) {
  return batch->used + count > HALF ? batch_read(tool, batch) : 0;
}

int overflow_batches_read(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  int status = 0;
  for (struct overflow_batch *batch = state->batches; batch && status == 0; batch = batch->next) {
    status = batch_read(tool, batch);
  }
  return status;
}

int overflow_batches_poll(struct engine_tool *tool) {
  struct overflow_state *state = tool->state;
  int status = 0;
  for (struct overflow_batch *batch = state->batches; batch && status == 0; batch = batch->next) {
    if (batch->calls >= state->every) {
      status = batch_read(tool, batch);
    }
  }
  return status;
}

void overflow_batches_destroy(struct overflow_state *state) {
  while (state->batches) {
    struct overflow_batch *batch = state->batches;
    state->batches = batch->next;
    while (batch->head) {
      struct overflow_pending *pending = batch->head;
      batch->head = pending->next;
      overflow_pending_destroy(state, pending);
    }
    if (batch->slots) {
      batch->helper->slots_destroy(batch->slots);
    }
    PyMem_Free(batch);
  }
}
