/// What mistakes do to the tensors of a call: their views, and the values that are read.
#include <string.h>

#include "dit/alloc.h"
#include "mistake_acts.h"

/// The n-th tensor that is read (or, with `written`, that may be written); its parameter in `index`.
static diopiTensorHandle_t find_tensor(const struct mistake_call *call, bool written, int number, int *index) {
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == (written ? 'o' : 't') && call->state->values[i].tensor && number-- == 0) {
      *index = i;
      return call->state->values[i].tensor;
    }
  }
  return NULL;
}

static diopiConstTensorHandle_t find_last(const struct mistake_call *call, int *index) {
  diopiConstTensorHandle_t found = NULL;
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == 't' && call->state->values[i].tensor) {
      found = call->state->values[i].tensor;
      *index = i;
    }
  }
  return found;
}

static struct dit_tensor_view *replace(struct mistake_call *call, int index) {
  struct diopiTensor *handle = &call->state->handles[call->state->handle_count++];
  *handle = *call->state->values[index].tensor;
  call->state->values[index].tensor = handle;
  return &handle->view;
}

static bool flatten(struct mistake_call *call, bool written, int number) {
  int index;
  const diopiTensorHandle_t tensor = find_tensor(call, written, number, &index);
  int64_t low, high;
  if (!tensor || tensor->view.numel < 2 || tensor->view.flags & DIT_TENSOR_CONTIGUOUS) {
    return false;
  }
  dit_tensor_get_span(&tensor->view, &low, &high);
  if (high - low < tensor->view.numel * (int64_t)dit_dtype_get_size(tensor->view.dtype)) {
    return false;
  }
  int64_t *strides = call->state->strides[call->state->handle_count];
  dit_shape_set_contiguous(tensor->view.ndim, tensor->view.sizes, strides);
  struct dit_tensor_view *view = replace(call, index);
  view->strides = strides;
  view->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  return true;
}

bool alter_second_strides(struct mistake_call *call) {
  return flatten(call, false, 1);
}

bool alter_third_strides(struct mistake_call *call) {
  return flatten(call, false, 2);
}

bool alter_output_strides(struct mistake_call *call) {
  return flatten(call, true, 0);
}

/// One stride of the first input is taken for what it would be in a dense row-major tensor.
static bool assume_stride(struct mistake_call *call, bool inner) {
  int index;
  const diopiTensorHandle_t tensor = find_tensor(call, false, 0, &index);
  if (!tensor || tensor->view.ndim < 1 || tensor->view.ndim > DIT_MAX_DIMS || tensor->view.numel < 2) {
    return false;
  }
  const int dim = inner ? tensor->view.ndim - 1 : 0;
  int64_t dense[DIT_MAX_DIMS];
  dit_shape_set_contiguous(tensor->view.ndim, tensor->view.sizes, dense);
  if (tensor->view.sizes[dim] < 2 || tensor->view.strides[dim] <= dense[dim]) {
    return false;  // smaller strides only: nothing outside is read
  }
  int64_t *strides = call->state->strides[call->state->handle_count];
  memcpy(strides, tensor->view.strides, sizeof(int64_t) * (size_t)tensor->view.ndim);
  strides[dim] = dense[dim];
  struct dit_tensor_view *view = replace(call, index);
  view->strides = strides;
  return true;
}

bool alter_inner_stride(struct mistake_call *call) {
  return assume_stride(call, true);
}

bool alter_outer_stride(struct mistake_call *call) {
  return assume_stride(call, false);
}

static bool drop_offset(struct mistake_call *call, bool written, int number) {
  int index;
  void *base = NULL;
  size_t size;
  const diopiTensorHandle_t tensor = find_tensor(call, written, number, &index);
  if (!tensor || !tensor->get_storage || tensor->view.numel == 0) {
    return false;
  }
  tensor->get_storage(tensor, &base, &size);
  if (!base || base == tensor->view.data) {
    return false;
  }
  replace(call, index)->data = base;
  return true;
}

bool alter_second_offset(struct mistake_call *call) {
  return drop_offset(call, false, 1);
}

bool alter_output_offset(struct mistake_call *call) {
  return drop_offset(call, true, 0);
}

bool alter_optional(struct mistake_call *call) {
  int index;
  if (!find_last(call, &index)) {
    return false;
  }
  call->state->values[index].tensor = NULL;
  return true;
}

bool alter_swap(struct mistake_call *call) {
  int first, second;
  const diopiTensorHandle_t a = find_tensor(call, false, 0, &first), b = find_tensor(call, false, 1, &second);
  if (!a || !b || a->view.dtype != b->view.dtype || a->view.ndim != b->view.ndim ||
      memcmp(a->view.sizes, b->view.sizes, sizeof(int64_t) * (size_t)a->view.ndim) != 0) {
    return false;
  }
  call->state->values[first].tensor = b;
  call->state->values[second].tensor = a;
  return true;
}

/// An output that has the memory of an input, or an in-place tensor, is cleared before anything is read.
bool alter_clear(struct mistake_call *call) {
  bool acted = false;
  for (int t = 0; t < call->tensors->output_count; t++) {
    const struct dit_tensor_view *out = &call->tensors->outputs[t];
    bool shares = strstr(call->name, "Inp") != NULL;
    for (int i = 0; i < call->tensors->input_count; i++) {
      shares |= out->data && call->tensors->inputs[i].data == out->data;
    }
    char *zeros = shares && out->numel > 0 ? dit_calloc((size_t)out->numel, dit_dtype_get_size(out->dtype)) : NULL;
    if (zeros) {
      dit_tensor_scatter(out, zeros);
      acted = true;
    }
    dit_free(zeros);
  }
  return acted;
}

// Values that are read

/// A row-major copy of an input whose elements went through the mistake's functions.
static bool reread(struct mistake_call *call, int index) {
  const struct dit_tensor_view from = call->state->values[index].tensor->view;
  const size_t width = dit_dtype_get_size(from.dtype);
  const struct mistake *mistake = call->mistake;
  if (from.numel < 1 || from.ndim > DIT_MAX_DIMS || call->state->copy_count == FAULTY_COPIES) {
    return false;
  }
  char *memory = dit_malloc((size_t)from.numel * width + 64), *next = dit_malloc((size_t)from.numel * width + 64);
  for (int64_t i = 0; memory && next && i < from.numel; i++) {
    double value;
    if (i == 0) {
      dit_tensor_gather(&from, memory);
      memcpy(next, memory, (size_t)from.numel * width);
    }
    if (mistake->is_kept && mistake->is_kept(call, &from, i)) {
      memset(next + (size_t)i * width, 0, width);
    }
    if (mistake->get_source) {
      memcpy(next + (size_t)i * width, memory + (size_t)mistake->get_source(call, &from, i) * width, width);
    }
    if (mistake->change && mistake_load(from.dtype, memory, i, &value)) {
      const double changed = mistake->change(value, from.dtype);
      if (memcmp(&changed, &value, sizeof value) != 0) {
        mistake_store(from.dtype, next, i, changed);
      }
    }
  }
  const bool acted = memory && next && memcmp(memory, next, (size_t)from.numel * width) != 0;
  dit_free(memory);
  if (!acted) {
    dit_free(next);
    return false;
  }
  int64_t *strides = call->state->strides[call->state->handle_count];
  dit_shape_set_contiguous(from.ndim, from.sizes, strides);
  struct dit_tensor_view *view = replace(call, index);
  view->data = next;
  view->strides = strides;
  view->flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  call->state->copies[call->state->copy_count++] = next;
  return true;
}

bool alter_inputs(struct mistake_call *call) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == 't' && call->state->values[i].tensor && call->state->handle_count < FAULTY_TENSORS) {
      acted |= reread(call, i);
    }
  }
  return acted;
}

bool alter_second_input(struct mistake_call *call) {
  int index;
  return find_tensor(call, false, 1, &index) && reread(call, index);
}

bool alter_masks(struct mistake_call *call) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    const diopiTensorHandle_t tensor = call->kinds[i] == 't' ? call->state->values[i].tensor : NULL;
    if (tensor &&
        (tensor->view.dtype == DIT_DTYPE_BOOL || mistake_is_named(call, i, "mask attn_mask attention_mask"))) {
      acted |= reread(call, i);
    }
  }
  return acted;
}

bool alter_indices(struct mistake_call *call) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    const diopiTensorHandle_t tensor = call->kinds[i] == 't' ? call->state->values[i].tensor : NULL;
    if (tensor && (tensor->view.dtype == DIT_DTYPE_I64 || tensor->view.dtype == DIT_DTYPE_I32)) {
      acted |= reread(call, i);
    }
  }
  return acted;
}
