// The geometry of tensors and the groups that share elements: union of intervals of addresses, then exact enough tests
// for strided tensors. No copies, no torch but the storage offsets of results.
#include "tools/twin_plan.h"

#include <stdlib.h>

#include "dit/dtype.h"

// Geometry

int64_t twin_plan_get_item_size(const struct engine_tensor *tensor) {
  return (int64_t)dit_dtype_get_size(tensor->dtype);
}

int64_t twin_plan_get_span(const struct engine_tensor *tensor) {
  int64_t last = 0;
  for (int i = 0; i < tensor->ndim; i++) {
    last += (tensor->sizes[i] - 1) * tensor->strides[i];
  }
  return tensor->numel > 0 ? (last + 1) * twin_plan_get_item_size(tensor) : 0;
}

bool twin_plan_is_simple(const struct engine_tensor *tensor, bool *dense) {
  int order[DIT_MAX_DIMS], count = 0;
  *dense = false;
  if (tensor->numel <= 1) {
    *dense = true;
    return true;
  }
  for (int i = 0; i < tensor->ndim; i++) {
    if (tensor->sizes[i] == 1) {
      continue;
    }
    if (count == DIT_MAX_DIMS) {
      return false;
    }
    int at = count++;
    for (; at > 0 && tensor->strides[order[at - 1]] > tensor->strides[i]; at--) {
      order[at] = order[at - 1];
    }
    order[at] = i;
  }
  int64_t extent = 1;  // elements from the first to the last of the dimensions so far
  for (int i = 0; i < count; i++) {
    int64_t stride = tensor->strides[order[i]];
    if (stride < extent) {
      return false;
    }
    extent += (tensor->sizes[order[i]] - 1) * stride;
  }
  *dense = extent == tensor->numel;
  return true;
}

// The part of the span that a tensor covers modulo `period` bytes: dimensions that step by whole periods do not count.
static int64_t tensor_get_width(const struct engine_tensor *tensor, int64_t period) {
  int64_t item = twin_plan_get_item_size(tensor), width = item;
  for (int i = 0; i < tensor->ndim; i++) {
    int64_t step = tensor->strides[i] * item;
    width += step % period ? (tensor->sizes[i] - 1) * step : 0;
  }
  return width;
}

// Interleaved chunks of one buffer (q, k and v of a joint projection) share a range of addresses but no element. True
// only when that is certain.
static bool tensors_are_apart(const struct engine_tensor *a, const struct engine_tensor *b) {
  uintptr_t begin_a = (uintptr_t)a->data, begin_b = (uintptr_t)b->data;
  if (begin_a > begin_b) {
    const struct engine_tensor *swap = a;
    a = b;
    b = swap;
    begin_a = (uintptr_t)a->data;
    begin_b = (uintptr_t)b->data;
  }
  if (begin_a + (uintptr_t)twin_plan_get_span(a) <= begin_b) {
    return true;
  }
  int64_t distance = (int64_t)(begin_b - begin_a);
  for (int i = 0; i < a->ndim; i++) {
    int64_t period = a->strides[i] * twin_plan_get_item_size(a);
    if (period <= 0 || a->sizes[i] == 1) {
      continue;
    }
    int64_t at = distance % period;
    if (at >= tensor_get_width(a, period) && at + tensor_get_width(b, period) <= period) {
      return true;
    }
  }
  return false;
}

// Groups of tensors that share elements

static bool tensor_has_memory(const struct twin_plan *plan, const struct engine_tensor *tensor) {
  bool copied = plan->copy_cpu || tensor->place != ENGINE_PLACE_CPU;
  return copied && (tensor->flags & ENGINE_TENSOR_STRIDED) && tensor->place != ENGINE_PLACE_NONE && tensor->dtype >= 0;
}

struct interval {
  uintptr_t begin, end;
  int index;
};

static int interval_compare(const void *left, const void *right) {
  const struct interval *a = left, *b = right;
  if (a->begin != b->begin) {
    return a->begin < b->begin ? -1 : 1;
  }
  return a->index - b->index;
}

static void groups_merge(struct twin_plan *plan, int a, int b) {
  int keep = plan->group[a] < plan->group[b] ? plan->group[a] : plan->group[b];
  int drop = plan->group[a] < plan->group[b] ? plan->group[b] : plan->group[a];
  plan->shared = true;
  for (int i = 0; keep != drop && i < plan->count; i++) {
    plan->group[i] = plan->group[i] == drop ? keep : plan->group[i];
  }
}

static bool places_are_same(const struct engine_tensor *a, const struct engine_tensor *b) {
  return a->place == b->place && a->device_index == b->device_index;
}

// Intervals in order of their begin: each is compared with those before it that reach into it.
static void intervals_join(struct twin_plan *plan, const struct interval *intervals, int count) {
  for (int i = 1, first = 0; i < count; i++) {
    uintptr_t reach = 0;
    for (int j = first; j < i; j++) {
      reach = intervals[j].end > reach ? intervals[j].end : reach;
    }
    if (reach <= intervals[i].begin) {
      first = i;
      continue;
    }
    for (int j = first; j < i; j++) {
      const struct engine_tensor *a = &plan->tensors[intervals[j].index], *b = &plan->tensors[intervals[i].index];
      if (intervals[j].end > intervals[i].begin && places_are_same(a, b) &&
          (a->py_tensor == b->py_tensor || !tensors_are_apart(a, b))) {
        groups_merge(plan, intervals[j].index, intervals[i].index);
      }
    }
  }
}

// Where the tensor's storage begins; 0 when it cannot be told.
static uintptr_t storage_get_begin(const struct engine_tensor *tensor) {
  PyObject *py_offset = PyObject_CallMethod(tensor->py_tensor, "storage_offset", NULL);
  int64_t offset = py_offset ? PyLong_AsLongLong(py_offset) : -1;
  py_error_drop();
  Py_XDECREF(py_offset);
  return offset < 0 ? 0 : (uintptr_t)tensor->data - (uintptr_t)(offset * twin_plan_get_item_size(tensor));
}

// On the way back, tensors of one storage stay in one storage: results are as related as they were.
static void storages_join(struct twin_plan *plan, const struct interval *intervals, int count) {
  uintptr_t inline_begins[TWIN_INLINE];
  for (int i = 0; i < count && i < TWIN_INLINE; i++) {
    inline_begins[i] = storage_get_begin(&plan->tensors[intervals[i].index]);
    for (int j = 0; inline_begins[i] && j < i; j++) {
      if (inline_begins[j] == inline_begins[i]) {
        groups_merge(plan, intervals[j].index, intervals[i].index);
        break;
      }
    }
  }
}

int twin_plan_group(struct twin_plan *plan) {
  struct interval inline_intervals[TWIN_INLINE], *intervals = inline_intervals;
  if (plan->count > TWIN_INLINE) {
    intervals = PyMem_Malloc(sizeof *intervals * (size_t)plan->count);
    if (!intervals) {
      PyErr_NoMemory();
      return -1;
    }
  }
  int count = 0;
  for (int i = 0; i < plan->count; i++) {
    const struct engine_tensor *tensor = &plan->tensors[i];
    plan->group[i] = tensor_has_memory(plan, tensor) ? i : -1;
    if (plan->group[i] >= 0 && tensor->numel > 0) {
      uintptr_t begin = (uintptr_t)tensor->data;
      intervals[count++] = (struct interval){begin, begin + (uintptr_t)twin_plan_get_span(tensor), i};
    }
  }
  if (count > 1) {
    qsort(intervals, (size_t)count, sizeof *intervals, interval_compare);
    intervals_join(plan, intervals, count);
    if (plan->target) {
      storages_join(plan, intervals, count);
    }
  }
  if (intervals != inline_intervals) {
    PyMem_Free(intervals);
  }
  return 0;
}
