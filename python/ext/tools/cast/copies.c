// Copies of a call's tensors in other dtypes, and the way back into the arguments that the operator changed. All by
// torch's own operators on the tensor's own device, so autograd sees it.
//
// In inference mode tensors have no version counter, by which a change is seen: copies are made outside of it.
#include <string.h>

#include "py_call.h"
#include "tools/cast/cast.h"
#include "tools/cast/torch.h"
#include "torch_tensor.h"

// On the way in

// Outside inference mode, so that the copy has a version counter; without autograd, as inside.
static PyObject *copy_make_counted(PyObject *tensor, const struct cast_pair *pair) {
  PyObject *py_guard = py_context_enter(PyObject_CallOneArg(torch_names.py_inference, Py_False));
  PyObject *py_grad = py_guard ? torch_grad_switch(Py_False) : NULL;
  PyObject *py_copy = py_grad ? cast_tensor_convert(tensor, pair->py_convert, pair->py_to) : NULL;
  torch_grad_restore(py_grad);
  py_context_leave(py_guard);
  return py_copy;
}

static int item_cast(struct cast_job *job, int index) {
  struct cast_item *item = &job->item[index];
  const struct engine_tensor *tensor = &job->call->in.tensor[index];
  item->py_copy = cast_tensor_convert(tensor->py_tensor, item->pair->py_convert, item->pair->py_to);
  item->version = item->py_copy ? engine_tensor_get_version(item->py_copy) : -1;
  if (item->py_copy && item->version < 0) {
    Py_SETREF(item->py_copy, copy_make_counted(tensor->py_tensor, item->pair));
    item->version = item->py_copy ? engine_tensor_get_version(item->py_copy) : -1;
  }
  if (!item->py_copy) {
    return -1;
  }
  job->casts++;
  job->bytes += (uint64_t)tensor->numel * dit_dtype_get_size(item->pair->to);
  return 0;
}

int cast_copies_make(struct cast_job *job) {
  for (int i = 0; i < job->count; i++) {
    struct cast_item *item = &job->item[i];
    if (!item->pair) {
      continue;
    }
    if (item->first != i) {
      item->py_copy = job->item[item->first].py_copy;
    } else if (item_cast(job, i) < 0) {
      return -1;
    }
  }
  return 0;
}

void cast_copies_drop(struct cast_job *job) {
  for (int i = 0; i < job->count; i++) {
    if (job->item[i].first == i) {
      Py_CLEAR(job->item[i].py_copy);
    }
  }
  Py_CLEAR(job->py_results);
}

// Write back

// out= that was resized: the original gets the same shape and strides.
static int tensor_reshape_like(PyObject *original, const struct engine_tensor *copy) {
  PyObject *py_sizes = py_numbers_pack(copy->sizes, copy->ndim);
  PyObject *py_strides = py_sizes ? py_numbers_pack(copy->strides, copy->ndim) : NULL;
  int64_t reach = 1;
  for (int i = 0; i < copy->ndim; i++) {
    reach += (copy->sizes[i] - 1) * copy->strides[i];
  }
  PyObject *py_reach = PyLong_FromLongLong(copy->numel ? reach : 0);  // strides may leave gaps
  PyObject *py_done =
      py_strides && py_reach ? PyObject_CallFunctionObjArgs(torch_names.py_resize, original, py_reach, NULL) : NULL;
  Py_XDECREF(py_reach);
  if (py_done) {
    Py_SETREF(py_done,
              PyObject_CallFunctionObjArgs(torch_names.py_as_strided_inplace, original, py_sizes, py_strides, NULL));
  }
  int status = py_done ? 0 : -1;
  Py_XDECREF(py_done);
  Py_XDECREF(py_strides);
  Py_XDECREF(py_sizes);
  return status;
}

static bool shapes_agree(const struct engine_tensor *a, const struct engine_tensor *b) {
  return a->ndim == b->ndim && memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof(int64_t)) == 0;
}

// Did autograd record the change? A copy that still ends in its own cast (or in nothing) was changed without it.
static bool change_is_recorded(PyObject *copy) {
  PyObject *py_node = engine_tensor_get(copy, engine_torch.grad_fn);
  py_error_drop();
  bool recorded = py_node && py_node != Py_None && !cast_node_is(py_node);
  Py_XDECREF(py_node);
  return recorded;
}

static int item_write_back(struct cast_job *job, int index) {
  PyObject *original = job->call->in.tensor[index].py_tensor, *copy = job->item[index].py_copy;
  struct engine_tensor now;
  engine_tensor_read(copy, &now);
  bool recorded = change_is_recorded(copy);
  PyObject *py_grad = recorded ? NULL : torch_grad_switch(Py_False);
  int status = recorded || py_grad ? 0 : -1;
  if (status == 0 && !shapes_agree(&job->call->in.tensor[index], &now)) {
    status = tensor_reshape_like(original, &now);
  }
  if (status == 0) {
    PyObject *py_target = job->item[index].silent && !recorded ? PyObject_GetAttr(original, torch_names.py_text_data)
                                                               : Py_NewRef(original);
    PyObject *py_done = py_target ? PyObject_CallFunctionObjArgs(torch_names.py_copy, py_target, copy, NULL) : NULL;
    Py_XDECREF(py_target);
    status = py_done ? 0 : -1;
    Py_XDECREF(py_done);
  }
  torch_grad_restore(py_grad);
  job->written++;
  job->bytes += (uint64_t)now.numel * dit_dtype_get_size(job->item[index].pair->from);
  engine_tensor_reset(&now);
  return status;
}

int cast_copies_write_back(struct cast_job *job) {
  for (int i = 0; i < job->count; i++) {
    if (job->item[i].changed && item_write_back(job, i) < 0) {
      return -1;
    }
  }
  return 0;
}
