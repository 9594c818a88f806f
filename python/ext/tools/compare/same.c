// Reading what the device gave, and the cheapest comparison: the very same values.
//
// Host memory (the CPU, the embedded device once its stream is idle) is read in place; anything else is copied once.
// Most results of a device that rounds as the CPU does are equal to the last bit: those need no judge. Depends on
// twin.h.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/compare/judge.h"
#include "tools/compare/state.h"
#include "tools/twin.h"

// Values of the device

void compare_fetched_reset(struct compare_fetched *fetched) {
  if (fetched->owned) {
    twin_release(fetched->owned, fetched->owned_count);
    PyMem_Free(fetched->owned);
  }
  PyMem_Free(fetched->value);
  *fetched = (struct compare_fetched){0};
}

bool compare_tensors_need_copies(const struct engine_tensor *tensors, int count) {
  for (int i = 0; i < count; i++) {
    if (tensors[i].place != ENGINE_PLACE_CPU && tensors[i].place != ENGINE_PLACE_HOST) {
      return true;
    }
  }
  return false;
}

int compare_tensors_fetch(struct compare_fetched *fetched, const struct engine_tensor *tensors, int count) {
  if (!compare_tensors_need_copies(tensors, count)) {
    return 0;
  }
  fetched->owned = PyMem_Calloc((size_t)count, sizeof *fetched->owned);
  if (!fetched->owned) {
    (void)PyErr_NoMemory();
    return -1;
  }
  if (twin_make(tensors, count, TWIN_DETACHED, false, fetched->owned) < 0) {
    PyMem_Free(fetched->owned);
    fetched->owned = NULL;
    return -1;
  }
  fetched->owned_count = count;
  return 0;
}

PyObject *compare_fetched_get(const struct compare_fetched *fetched, const struct engine_tensor *tensors, int i) {
  return fetched->owned ? fetched->owned[i] : tensors[i].py_tensor;
}

int compare_leaves_fetch(struct compare_fetched *fetched, const struct engine_leaves *leaves) {
  *fetched = (struct compare_fetched){0};
  fetched->value = PyMem_Calloc((size_t)leaves->leaf_count + 1, sizeof *fetched->value);
  if (!fetched->value || compare_tensors_fetch(fetched, leaves->tensor, leaves->tensor_count) < 0) {
    if (!fetched->value) {
      (void)PyErr_NoMemory();
    }
    return -1;
  }
  for (int i = 0; i < leaves->leaf_count; i++) {
    const struct engine_leaf *leaf = &leaves->leaf[i];
    fetched->value[i] = leaf->tensor < 0 ? leaf->value : compare_fetched_get(fetched, leaves->tensor, leaf->tensor);
  }
  return 0;
}

// The same values

static bool rows_are_equal(const struct dit_tensor_view *a, const struct dit_tensor_view *b, int dim, const char *x,
                           const char *y, size_t element) {
  int64_t size = a->sizes[dim];
  if (dim == a->ndim - 1) {
    if (a->strides[dim] == 1 && b->strides[dim] == 1) {
      return memcmp(x, y, (size_t)size * element) == 0;
    }
    for (int64_t i = 0; i < size; i++) {
      if (memcmp(x + i * a->strides[dim] * (int64_t)element, y + i * b->strides[dim] * (int64_t)element, element)) {
        return false;
      }
    }
    return true;
  }
  for (int64_t i = 0; i < size; i++) {
    if (!rows_are_equal(a, b, dim + 1, x + i * a->strides[dim] * (int64_t)element,
                        y + i * b->strides[dim] * (int64_t)element, element)) {
      return false;
    }
  }
  return true;
}

// The same bytes in every element.
static bool views_are_equal(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  size_t element = dit_dtype_get_size(a->dtype);
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->numel != b->numel) {
    return false;
  }
  if (a->numel == 0) {
    return true;
  }
  for (int d = 0; d < a->ndim; d++) {
    if (a->sizes[d] != b->sizes[d]) {
      return false;
    }
  }
  bool same_strides = memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides) == 0;
  if (a->ndim == 0 || (same_strides && dit_shape_is_dense(a->ndim, a->sizes, a->strides))) {
    return memcmp(a->data, b->data, (size_t)a->numel * element) == 0;
  }
  return rows_are_equal(a, b, 0, a->data, b->data, element);
}

int compare_tensor_equals(PyObject *tensor, PyObject *twin) {
  struct engine_tensor a, b;
  struct dit_tensor_view first, second;
  int answer = -1;
  engine_tensor_read(tensor, &a);
  engine_tensor_read(twin, &b);
  if (a.numel == 0 && b.numel == 0) {
    answer = 1;
  } else if (engine_tensor_get_view(&a, &first) && engine_tensor_get_view(&b, &second)) {
    Py_BEGIN_ALLOW_THREADS;
    answer = views_are_equal(&first, &second);
    Py_END_ALLOW_THREADS;
  }
  engine_tensor_reset(&a);
  engine_tensor_reset(&b);
  return answer;
}

int compare_judgement_set_same(struct compare_case *c, struct compare_judgement *out,
                               const struct engine_tensor *tensor) {
  *out = (struct compare_judgement){.close = true, .cosine = 1, .numel = tensor->numel, .index = -1};
  out->cpu_error = NAN;
  return compare_tolerance_get(c, tensor->dtype, &out->atol, &out->rtol);
}

// The reference rounded to float32 is the device's value everywhere. NaN count as different: the judge looks at them.
static bool rounds_to(const struct dit_tensor_view *device, const struct dit_tensor_view *reference) {
  const float *a = device->data;
  const double *b = reference->data;
  int64_t count = device->numel;
  for (int64_t begin = 0; begin < count; begin += 4096) {
    int64_t end = count - begin < 4096 ? count : begin + 4096;
    int different = 0;
    for (int64_t i = begin; i < end; i++) {
      different |= a[i] != (float)b[i];
    }
    if (different) {
      return false;
    }
  }
  return true;
}

static bool views_are_alike(const struct dit_tensor_view *device, const struct dit_tensor_view *reference) {
  if (device->dtype == reference->dtype) {
    return views_are_equal(device, reference);
  }
  bool shapes = device->ndim == reference->ndim &&
                memcmp(device->sizes, reference->sizes, (size_t)device->ndim * sizeof *device->sizes) == 0 &&
                memcmp(device->strides, reference->strides, (size_t)device->ndim * sizeof *device->strides) == 0;
  return device->dtype == DIT_DTYPE_F32 && reference->dtype == DIT_DTYPE_F64 && shapes &&
         dit_shape_is_dense(device->ndim, device->sizes, device->strides) && rounds_to(device, reference);
}

// The cosine of equal tensors is 1 unless nothing in them is finite: one of the first elements tells.
static bool view_has_finite(const struct dit_tensor_view *view) {
  enum dit_dtype_class class = dit_dtype_get_class(view->dtype);
  if (class == DIT_DTYPE_CLASS_INT || class == DIT_DTYPE_CLASS_UINT || class == DIT_DTYPE_CLASS_BOOL) {
    return true;
  }
  static const int64_t one = 1;
  for (int64_t i = 0; i < view->numel && i < 8 && class == DIT_DTYPE_CLASS_FLOAT; i++) {
    if (!dit_shape_is_dense(view->ndim, view->sizes, view->strides) && i > 0) {
      break;
    }
    struct dit_tensor_view element = *view;
    bool has_nan = true, has_inf = true;
    element.data = (char *)view->data + (size_t)i * dit_dtype_get_size(view->dtype);
    element.ndim = 1;
    element.numel = 1;
    element.sizes = element.strides = &one;
    element.flags = DIT_TENSOR_CONTIGUOUS;
    if (dit_tensor_get_nonfinite(&element, &has_nan, &has_inf, NULL) == DIT_OK && !has_nan && !has_inf) {
      return true;
    }
  }
  return false;
}

int compare_same_judge(struct compare_case *c, PyObject *device, PyObject *reference, struct compare_judgement *out) {
  if (!device || !reference || !engine_is_tensor(device) || !engine_is_tensor(reference)) {
    return 0;
  }
  struct engine_tensor a, b;
  struct dit_tensor_view first, second;
  int same = 0;
  engine_tensor_read(device, &a);
  engine_tensor_read(reference, &b);
  if (a.numel > 0 && engine_tensor_get_view(&a, &first) && engine_tensor_get_view(&b, &second)) {
    Py_BEGIN_ALLOW_THREADS;
    same = views_are_alike(&first, &second) && view_has_finite(&first);
    Py_END_ALLOW_THREADS;
  }
  if (same) {
    same = compare_judgement_set_same(c, out, &a) < 0 ? -1 : 1;
    if (a.dtype != b.dtype) {
      snprintf(out->info, sizeof out->info, "Inconsistent dtypes: torch.%s torch.%s", dit_dtype_get_name(a.dtype),
               dit_dtype_get_name(b.dtype));
    }
  }
  engine_tensor_reset(&a);
  engine_tensor_reset(&b);
  return same;
}

int compare_judge_all(struct compare_case *c, enum compare_what what, PyObject *const *device,
                      PyObject *const *reference, int count, struct compare_judgement *judgements) {
  PyObject **left = PyMem_Calloc((size_t)count * 2 + 1, sizeof *left), **right = left + count;
  struct compare_judgement *judged = NULL;
  int status = left ? 0 : -1, open = 0;
  for (int i = 0; i < count && status == 0; i++) {
    bool known = what != COMPARE_OUTPUT || judge_dtype_is_known(c, i, device[i], reference[i]);
    int same = known ? compare_same_judge(c, device[i], reference[i], &judgements[i]) : 0;
    same = same || !known ? same : compare_near_judge(c, what, i, device[i], reference[i], &judgements[i]);
    status = same < 0 ? -1 : 0;
    if (!same) {
      left[i] = device[i];
      right[i] = reference[i];
      open++;
    }
  }
  if (status == 0 && open == count) {
    status = compare_judge(c, what, device, reference, count, judgements);
  } else if (status == 0 && open > 0) {
    judged = PyMem_Calloc((size_t)count, sizeof *judged);
    status = judged ? compare_judge(c, what, left, right, count, judged) : -1;
    for (int i = 0; i < count && status == 0; i++) {
      judgements[i] = left[i] || right[i] ? judged[i] : judgements[i];
    }
  }
  if (status < 0 && !PyErr_Occurred()) {
    (void)PyErr_NoMemory();
  }
  PyMem_Free(judged);
  PyMem_Free(left);
  return status;
}
