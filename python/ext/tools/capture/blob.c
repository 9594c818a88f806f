// Spans and storages; see capture/blob.h. The snapshot itself is in capture/copy.c.
#include "tools/capture/blob.h"

#include <stdlib.h>
#include <string.h>

#define INSERTION_MAX 24  // tensors that are sorted by insertion

// Arrays

static int spans_grow(struct capture_blobs *blobs, int count) {
  int capacity = blobs->span_capacity ? blobs->span_capacity : 16;
  while (capacity < count) {
    capacity *= 2;
  }
  struct capture_span *span = realloc(blobs->span, (size_t)capacity * sizeof *span);
  int32_t *order = span ? realloc(blobs->order, (size_t)capacity * sizeof *order) : NULL;
  blobs->span = span ? span : blobs->span;
  blobs->order = order ? order : blobs->order;
  if (!order) {
    PyErr_NoMemory();
    return -1;
  }
  blobs->span_capacity = capacity;
  return 0;
}

static int groups_grow(struct capture_blobs *blobs) {
  int capacity = blobs->group_capacity ? 2 * blobs->group_capacity : 16;
  struct capture_group *group = realloc(blobs->group, (size_t)capacity * sizeof *group);
  blobs->group = group ? group : blobs->group;
  struct dit_store_blob *blob = group ? realloc(blobs->blob, (size_t)capacity * sizeof *blob) : NULL;
  blobs->blob = blob ? blob : blobs->blob;
  if (!blob) {
    PyErr_NoMemory();
    return -1;
  }
  blobs->group_capacity = capacity;
  return 0;
}

// Spans

int16_t capture_dtype_find(const struct engine_tensor *tensor) {
  // The exchange calls torch.int1 to int7 "int8" and their unsigned kin "uint8", and has no name for some others.
  if (tensor->dtype >= 0 && tensor->dtype != DIT_DTYPE_I8 && tensor->dtype != DIT_DTYPE_U8) {
    return tensor->dtype;
  }
  PyObject *py_dtype = engine_tensor_get(tensor->py_tensor, engine_torch.dtype);
  int number = py_dtype ? torch_dtype_find(py_dtype) : -1;
  Py_XDECREF(py_dtype);
  py_error_drop();
  return number >= 0 ? (int16_t)number : tensor->dtype;
}

// The whole storage: operators such as as_strided reach beyond the tensor they are given.
static void span_widen(struct capture_span *span) {
  PyObject *py_storage = PyObject_CallMethod(span->tensor->py_tensor, "untyped_storage", NULL);
  PyObject *py_address = py_storage ? PyObject_CallMethod(py_storage, "data_ptr", NULL) : NULL;
  PyObject *py_size = py_address ? PyObject_CallMethod(py_storage, "nbytes", NULL) : NULL;
  uintptr_t low = py_size ? (uintptr_t)PyLong_AsVoidPtr(py_address) : 0;
  size_t size = py_size ? PyLong_AsSize_t(py_size) : 0;
  Py_XDECREF(py_storage);
  Py_XDECREF(py_address);
  Py_XDECREF(py_size);
  bool known = !PyErr_Occurred() && low && low <= span->low && span->high - low <= size;
  py_error_drop();
  if (known) {
    span->low = low;
    span->high = low + size / span->element * span->element;
  }
}

static void span_set(struct capture_span *span, const struct engine_tensor *tensor, int index) {
  *span = (struct capture_span){.tensor = tensor, .group = -1, .same = index, .dtype = capture_dtype_find(tensor)};
  span->element = (uint8_t)dit_dtype_get_size(span->dtype);
  bool readable = (tensor->flags & ENGINE_TENSOR_STRIDED) && tensor->place != ENGINE_PLACE_NONE && span->element > 0;
  if (!readable) {
    return;
  }
  span->group = 0;  // to be found
  span->low = span->high = (uintptr_t)tensor->data;
  if (tensor->numel <= 0 || !tensor->data) {
    return;
  }
  int64_t reach = 0;
  for (int i = 0; i < tensor->ndim; i++) {
    int64_t far = (tensor->sizes[i] - 1) * tensor->strides[i];
    if (far < 0) {
      span->low -= (uintptr_t)(-far * span->element);
    } else {
      reach += far;
    }
  }
  span->high += (uintptr_t)((reach + 1) * span->element);
}

// Same memory space first, then address; the same object ends up side by side.
static int spans_compare(const struct capture_span *a, const struct capture_span *b) {
  if (a->group != b->group) {
    return a->group < b->group ? -1 : 1;  // unreadable ones first
  }
  if (a->tensor->place != b->tensor->place) {
    return a->tensor->place < b->tensor->place ? -1 : 1;
  }
  if (a->tensor->device_index != b->tensor->device_index) {
    return a->tensor->device_index < b->tensor->device_index ? -1 : 1;
  }
  if (a->low != b->low) {
    return a->low < b->low ? -1 : 1;
  }
  uintptr_t one = (uintptr_t)a->tensor->py_tensor, two = (uintptr_t)b->tensor->py_tensor;
  if (one != two) {
    return one < two ? -1 : 1;
  }
  return a < b ? -1 : a > b;
}

static _Thread_local const struct capture_span *sorted_spans;
static int order_compare(const void *a, const void *b) {
  return spans_compare(&sorted_spans[*(const int32_t *)a], &sorted_spans[*(const int32_t *)b]);
}

static void order_sort(struct capture_blobs *blobs, int count) {
  int32_t *order = blobs->order;
  const struct capture_span *span = blobs->span;
  for (int i = 0; i < count; i++) {
    order[i] = i;
  }
  if (count > INSERTION_MAX) {
    sorted_spans = span;
    qsort(order, (size_t)count, sizeof *order, order_compare);
    return;
  }
  for (int i = 1; i < count; i++) {
    int32_t moving = order[i];
    int at = i;
    for (; at > 0 && spans_compare(&span[moving], &span[order[at - 1]]) < 0; at--) {
      order[at] = order[at - 1];
    }
    order[at] = moving;
  }
}

// Storages

static bool group_takes(const struct capture_group *group, const struct capture_span *span) {
  const struct engine_tensor *a = group->tensor, *b = span->tensor;
  bool overlaps =
      a->place == b->place && a->device_index == b->device_index && span->low < group->high && group->low < span->high;
  // Elements of both must lie on whole offsets of one storage; foreign memory may break that.
  uint8_t narrow = span->element < group->widest ? span->element : group->widest;
  return overlaps && (span->low - group->widest_low) % narrow == 0;
}

static void group_extend(struct capture_group *group, const struct capture_span *span) {
  group->low = span->low < group->low ? span->low : group->low;
  group->high = span->high > group->high ? span->high : group->high;
  group->dtype = group->dtype == span->dtype ? group->dtype : -1;
  if (span->element > group->widest) {
    group->widest = span->element;
    group->widest_low = span->low;
  }
}

static int group_open(struct capture_blobs *blobs, const struct capture_span *span) {
  if (blobs->group_count == blobs->group_capacity && groups_grow(blobs) < 0) {
    return -1;
  }
  blobs->group[blobs->group_count] = (struct capture_group){
      .low = span->low,
      .high = span->high,
      .tensor = span->tensor,
      .widest_low = span->low,
      .dtype = span->dtype,
      .widest = span->element,
  };
  return blobs->group_count++;
}

// Start at a whole offset of the largest element type: never before the storage's own start, which is one.
static void group_align(struct capture_group *group) {
  uintptr_t past = (group->widest_low - group->low) % group->widest;
  group->low -= past ? group->widest - past : 0;
}

int capture_blobs_collect(struct capture_blobs *blobs, const struct engine_tensor *tensors, int count) {
  if (count > blobs->span_capacity && spans_grow(blobs, count) < 0) {
    return -1;
  }
  for (int i = 0; i < count; i++) {
    span_set(&blobs->span[i], &tensors[i], i);
    if (blobs->whole && blobs->span[i].high > blobs->span[i].low) {
      span_widen(&blobs->span[i]);
    }
  }
  blobs->span_count = count;
  order_sort(blobs, count);
  int first_open = blobs->group_count;
  for (int i = 0; i < count; i++) {
    struct capture_span *span = &blobs->span[blobs->order[i]];
    if (i > 0 && blobs->span[blobs->order[i - 1]].tensor->py_tensor == span->tensor->py_tensor) {
      span->same = blobs->span[blobs->order[i - 1]].same;
      span->group = blobs->span[span->same].group;
      continue;
    }
    if (span->group < 0) {
      continue;
    }
    int last = blobs->group_count - 1;
    if (last >= first_open && group_takes(&blobs->group[last], span)) {
      span->group = last;
      group_extend(&blobs->group[last], span);
    } else if ((span->group = group_open(blobs, span)) < 0) {
      return -1;
    }
  }
  for (int i = first_open; i < blobs->group_count; i++) {
    group_align(&blobs->group[i]);
  }
  return 0;
}

// Late comers

int capture_blobs_join(struct capture_blobs *blobs, PyObject *tensor) {
  struct capture_late *late = malloc(sizeof *late);
  if (!late) {
    PyErr_NoMemory();
    return -1;
  }
  engine_tensor_read(tensor, &late->tensor);
  Py_INCREF(tensor);
  late->next = blobs->late;
  blobs->late = late;
  int index = blobs->span_count;
  if (index + 1 > blobs->span_capacity && spans_grow(blobs, index + 1) < 0) {
    return -1;
  }
  struct capture_span *span = &blobs->span[index];
  span_set(span, &late->tensor, index);
  blobs->span_count++;
  if (span->group < 0) {
    return index;
  }
  if ((span->group = group_open(blobs, span)) < 0 || capture_blobs_copy(blobs) < 0) {
    blobs->group_count = blobs->copied;  // the item goes on without it
    blobs->span_count = index;
    return -1;
  }
  return index;
}

int capture_blobs_join_bytes(struct capture_blobs *blobs, const void *data, size_t size) {
  static const struct engine_tensor host = {.place = ENGINE_PLACE_CPU, .device_index = -1};
  const struct capture_span span = {
      .tensor = &host, .low = (uintptr_t)data, .high = (uintptr_t)data + size, .dtype = DIT_DTYPE_U8, .element = 1};
  int index = group_open(blobs, &span);
  if (index < 0 || capture_blobs_copy(blobs) < 0) {
    blobs->group_count = blobs->copied;
    return -1;
  }
  return index;
}

void capture_blobs_move(struct capture_blobs *blobs) {
  blobs->copied = 0;
  blobs->group_count = 0;
}

void capture_blobs_clear(struct capture_blobs *blobs) {
  for (int i = 0; i < blobs->copied; i++) {
    blobs->blob[i].release(blobs->blob[i].context);
  }
  while (blobs->late) {
    struct capture_late *next = blobs->late->next;
    Py_DECREF(blobs->late->tensor.py_tensor);
    engine_tensor_reset(&blobs->late->tensor);
    free(blobs->late);
    blobs->late = next;
  }
  blobs->copied = blobs->group_count = blobs->span_count = 0;
  blobs->bytes = 0;
}

void capture_blobs_reset(struct capture_blobs *blobs) {
  capture_blobs_clear(blobs);
  free(blobs->span);
  free(blobs->order);
  free(blobs->group);
  free(blobs->blob);
  *blobs = (struct capture_blobs){0};
}
