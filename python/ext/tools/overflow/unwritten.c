// Memory that nobody wrote: what torch.empty and its relatives handed out, until the first write to it.
//
// A region is one storage's memory, as boxes (overflow/box.c) that are still unwritten; a write through any view takes
// its bytes away, and a region without boxes goes. A box that may have been written, by an index that was not followed
// or by a call that the tool did not see (the version counter tells), is vague: it answers "partly". Regions hold weak
// references of their storages, so that memory which was freed and is used again is known for what it is. Invariant: no
// box of a living region was written by a call that was seen, and `home` repeats the regions' own. At most REGIONS
// regions; the oldest go first and are counted. Only when there is a region does any of this cost more than one test.
#include <string.h>

#include "tools/overflow/box.h"
#include "tools/overflow/overflow.h"

#define REGIONS 512
#define REGION_BOXES 32  // more: one vague box
#define DROPPED_AT_ONCE 64

struct piece {
  struct overflow_box box;
  bool vague;
};

struct overflow_region {
  struct engine_span home;  // all it had in the beginning
  uintptr_t base;           // where the storage's memory begins
  PyObject *py_weak;        // owned: number of a weak reference of the storage
  int64_t version;          // of the storage's counter after the last write that was seen; -1 unknown
  int16_t device;
  uint8_t place;
  int count;
  struct piece *piece;  // owned
};

// Storages

uintptr_t overflow_storage_ask(PyObject *storage, const char *method) {
  PyObject *py_number = PyObject_CallMethod(storage, method, NULL);
  size_t number = py_number ? PyLong_AsSize_t(py_number) : 0;
  Py_XDECREF(py_number);
  if (PyErr_Occurred()) {
    py_error_drop();
    return 0;
  }
  return number;
}

static bool torch_load(struct overflow_unwritten *unwritten) {
  if (unwritten->py_revive) {
    return true;
  }
  PyObject *py_torch = PyImport_ImportModule("torch");
  PyObject *py_storage = py_torch ? PyObject_GetAttrString(py_torch, "UntypedStorage") : NULL;
  PyObject *py_free = py_storage ? PyObject_GetAttrString(py_storage, "_free_weak_ref") : NULL;
  PyObject *py_revive = py_free ? PyObject_GetAttrString(py_storage, "_new_with_weak_ptr") : NULL;
  Py_XDECREF(py_torch);
  Py_XDECREF(py_storage);
  if (!py_revive) {
    Py_XDECREF(py_free);
    py_error_drop();
    return false;
  }
  unwritten->py_free = py_free;
  unwritten->py_revive = py_revive;
  return true;
}

static void region_destroy(struct overflow_unwritten *unwritten, struct overflow_region *region) {
  PyObject *py_none = PyObject_CallOneArg(unwritten->py_free, region->py_weak);
  Py_XDECREF(py_none);
  py_error_drop();
  Py_DECREF(region->py_weak);
  PyMem_Free(region->piece);
  PyMem_Free(region);
}

static void region_drop(struct overflow_unwritten *unwritten, int index) {
  struct overflow_region *region = unwritten->region[index];
  unwritten->count--;
  memmove(&unwritten->region[index], &unwritten->region[index + 1],
          (size_t)(unwritten->count - index) * sizeof *unwritten->region);
  memmove(&unwritten->home[index], &unwritten->home[index + 1],
          (size_t)(unwritten->count - index) * sizeof *unwritten->home);
  region_destroy(unwritten, region);
}

// Its storage is gone, or has other memory now (share_memory_, a storage that was resized).
static bool region_is_dead(const struct overflow_unwritten *unwritten, const struct overflow_region *region) {
  PyObject *py_storage = PyObject_CallOneArg(unwritten->py_revive, region->py_weak);
  uintptr_t base = py_storage && py_storage != Py_None ? overflow_storage_ask(py_storage, "data_ptr") : 0;
  Py_XDECREF(py_storage);
  py_error_drop();
  return base != region->base;
}

static void unwritten_make_room(struct overflow_unwritten *unwritten) {
  for (int i = unwritten->count - 1; i >= 0; i--) {
    if (region_is_dead(unwritten, unwritten->region[i])) {
      region_drop(unwritten, i);
    }
  }
  while (unwritten->count > REGIONS - DROPPED_AT_ONCE) {
    region_drop(unwritten, 0);
    unwritten->dropped++;
  }
}

void overflow_unwritten_clear(struct overflow_unwritten *unwritten) {
  while (unwritten->count) {
    region_drop(unwritten, unwritten->count - 1);
  }
}

void overflow_unwritten_reset(struct overflow_unwritten *unwritten) {
  overflow_unwritten_clear(unwritten);
  PyMem_Free(unwritten->region);
  PyMem_Free(unwritten->home);
  Py_CLEAR(unwritten->py_free);
  Py_CLEAR(unwritten->py_revive);
  unwritten->region = NULL;
  unwritten->home = NULL;
}

// The region's memory may lie where the tensor's does. A region whose storage died goes, and the next one takes its
// index: false then.
static bool region_meets(struct overflow_unwritten *unwritten, int index, const struct engine_tensor *tensor,
                         const struct engine_span *span, bool *dropped) {
  *dropped = false;
  if (!engine_spans_meet(&unwritten->home[index], span)) {
    return false;
  }
  const struct overflow_region *region = unwritten->region[index];
  if (region->place != tensor->place || region->device != tensor->device_index) {
    return false;
  }
  *dropped = region_is_dead(unwritten, region);
  if (*dropped) {
    region_drop(unwritten, index);
  }
  return !*dropped;
}

static void region_blur(struct overflow_region *region) {
  for (int i = 0; i < region->count; i++) {
    region->piece[i].vague = true;
  }
}

static int64_t version_read(const struct overflow_unwritten *unwritten, const struct engine_tensor *tensor) {
  int64_t version = unwritten->unversioned ? -1 : engine_tensor_get_version(tensor->py_tensor);
  py_error_drop();
  return version;
}

// Questions

static uint8_t region_ask(const struct overflow_region *region, const struct overflow_box *box) {
  int64_t bytes = overflow_box_get_bytes(box), common = 0;
  for (int i = 0; i < region->count; i++) {
    int64_t met = overflow_box_meet(&region->piece[i].box, box);
    if (met < 0 || (met > 0 && region->piece[i].vague)) {
      return OVERFLOW_PARTLY;
    }
    common += met;
  }
  return common == 0 ? OVERFLOW_WRITTEN : common == bytes ? OVERFLOW_UNWRITTEN : OVERFLOW_PARTLY;
}

uint8_t overflow_unwritten_get(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor) {
  struct engine_span span = engine_tensor_get_span(tensor);
  uint8_t answer = OVERFLOW_WRITTEN;
  bool dropped;
  for (int i = 0; span.low && i < unwritten->count && answer == OVERFLOW_WRITTEN; i += !dropped) {
    if (!region_meets(unwritten, i, tensor, &span, &dropped)) {
      continue;
    }
    struct overflow_region *region = unwritten->region[i];
    if (tensor->version >= 0 && region->version >= 0 && tensor->version != region->version) {
      region_blur(region);  // somebody wrote who was not seen
      region->version = tensor->version;
    }
    struct overflow_box box;  // no exact one: all between the first and the last byte
    (void)overflow_box_set(&box, tensor);
    answer = region_ask(region, &box);
  }
  return answer;
}

bool overflow_unwritten_meets(const struct overflow_unwritten *unwritten, const struct engine_tensor *tensor) {
  struct engine_span span = engine_tensor_get_span(tensor);
  for (int i = 0; i < unwritten->count; i++) {
    if (engine_spans_meet(&unwritten->home[i], &span)) {
      return true;
    }
  }
  return false;
}

// Changes

static PyObject *storage_refer(PyObject *tensor, uintptr_t *base) {
  PyObject *py_storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
  *base = py_storage ? overflow_storage_ask(py_storage, "data_ptr") : 0;
  PyObject *py_weak = py_storage ? PyObject_CallMethod(py_storage, "_weak_ref", NULL) : NULL;
  Py_XDECREF(py_storage);
  py_error_drop();
  return py_weak;
}

static void unwritten_add_box(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor,
                              const struct overflow_box *box, bool vague) {
  if (!torch_load(unwritten)) {
    return;
  }
  if (!unwritten->region) {
    unwritten->region = PyMem_Calloc(REGIONS, sizeof *unwritten->region);
  }
  if (!unwritten->home) {
    unwritten->home = PyMem_Calloc(REGIONS, sizeof *unwritten->home);
  }
  if (unwritten->count == REGIONS) {
    unwritten_make_room(unwritten);
  }
  uintptr_t base = 0;
  PyObject *py_weak = unwritten->region && unwritten->home ? storage_refer(tensor->py_tensor, &base) : NULL;
  if (!py_weak) {
    return;
  }
  struct overflow_region *region = PyMem_Calloc(1, sizeof *region);
  struct piece *piece = PyMem_Calloc(1, sizeof *piece);
  if (!region || !piece || unwritten->count == REGIONS) {
    PyObject *py_none = PyObject_CallOneArg(unwritten->py_free, py_weak);
    Py_XDECREF(py_none);
    py_error_drop();
    Py_DECREF(py_weak);
    PyMem_Free(region);
    PyMem_Free(piece);
    return;
  }
  *piece = (struct piece){.box = *box, .vague = vague};
  *region = (struct overflow_region){.home = overflow_box_get_span(box),
                                     .base = base,
                                     .py_weak = py_weak,
                                     .version = version_read(unwritten, tensor),
                                     .device = tensor->device_index,
                                     .place = tensor->place,
                                     .count = 1,
                                     .piece = piece};
  unwritten->home[unwritten->count] = region->home;
  unwritten->region[unwritten->count++] = region;
}

void overflow_unwritten_add(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor, bool vague) {
  struct overflow_box box;
  if (tensor->place == ENGINE_PLACE_NONE || !engine_tensor_get_span(tensor).low) {
    return;
  }
  bool exact = overflow_box_set(&box, tensor);
  overflow_unwritten_remove(unwritten, tensor);
  unwritten_add_box(unwritten, tensor, &box, vague || !exact);
}

void overflow_unwritten_add_tail(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor,
                                 uintptr_t low) {
  struct engine_span span = engine_tensor_get_span(tensor);
  if (tensor->place != ENGINE_PLACE_NONE && span.low && low < span.high) {
    struct overflow_box box;
    overflow_box_set_run(&box, low > span.low ? low : span.low, span.high);
    unwritten_add_box(unwritten, tensor, &box, false);
  }
}

static bool region_append(struct overflow_region *region, const struct overflow_box *box, int count, bool vague) {
  if (region->count + count > REGION_BOXES) {
    return false;
  }
  struct piece *grown = PyMem_Realloc(region->piece, (size_t)(region->count + count + 1) * sizeof *grown);
  if (!grown) {
    return false;
  }
  region->piece = grown;
  for (int i = 0; i < count; i++) {
    grown[region->count++] = (struct piece){.box = box[i], .vague = vague};
  }
  return true;
}

// Too many boxes: the whole home is vague.
static void region_give_up(struct overflow_region *region) {
  region->count = 1;
  region->piece[0].vague = true;
  overflow_box_set_run(&region->piece[0].box, region->home.low, region->home.high);
}

static void region_subtract(struct overflow_region *region, const struct overflow_box *box) {
  for (int i = region->count - 1; i >= 0; i--) {
    struct overflow_box rest[OVERFLOW_BOX_PIECES];
    int count = overflow_box_subtract(&region->piece[i].box, box, rest);
    bool vague = region->piece[i].vague;
    if (count < 0) {
      region->piece[i].vague = true;
      continue;
    }
    region->piece[i] = region->piece[--region->count];
    if (!region_append(region, rest, count, vague)) {
      region_give_up(region);
      return;
    }
  }
}

enum change { CHANGE_WRITE, CHANGE_BLUR };

static void unwritten_change(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor,
                             enum change change) {
  struct engine_span span = engine_tensor_get_span(tensor);
  struct overflow_box box;
  bool dropped, exact = span.low && unwritten->count && overflow_box_set(&box, tensor);
  for (int i = 0; span.low && i < unwritten->count; i += !dropped) {
    if (!region_meets(unwritten, i, tensor, &span, &dropped)) {
      continue;
    }
    struct overflow_region *region = unwritten->region[i];
    region->version = version_read(unwritten, tensor);
    if (change == CHANGE_WRITE && exact) {
      region_subtract(region, &box);
    } else if (region_ask(region, &box) != OVERFLOW_WRITTEN) {
      region_blur(region);
    }
    if (!region->count) {
      region_drop(unwritten, i);
      dropped = true;
    }
  }
}

void overflow_unwritten_remove(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor) {
  unwritten_change(unwritten, tensor, CHANGE_WRITE);
}

void overflow_unwritten_blur(struct overflow_unwritten *unwritten, const struct engine_tensor *tensor) {
  unwritten_change(unwritten, tensor, CHANGE_BLUR);
}

void overflow_unwritten_move(struct overflow_unwritten *unwritten, uintptr_t from, uintptr_t to) {
  uintptr_t distance = to - from;  // wraps around, and back
  for (int i = 0; i < unwritten->count; i++) {
    struct overflow_region *region = unwritten->region[i];
    if (region->base != from) {
      continue;
    }
    region->base = to;
    region->home.low += distance;
    region->home.high += distance;
    unwritten->home[i] = region->home;
    for (int k = 0; k < region->count; k++) {
      region->piece[k].box.start += distance;
    }
  }
}
