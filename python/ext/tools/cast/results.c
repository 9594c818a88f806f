// The results of a call as the program should get them: in the dtypes it would have got, with the strides, the bits and
// the containers of what the operator gave; a copy of an argument becomes the argument itself.
#include "dit/dtype.h"
#include "tools/cast/cast.h"
#include "tools/cast/dtypes.h"
#include "tools/cast/torch.h"
#include "tools/remap.h"
#include "torch_tensor.h"

// Fills its memory without gaps or repetition: a cast keeps the strides of such a tensor.
static bool tensor_is_dense(const struct engine_tensor *tensor) {
  int64_t reach = 1;
  for (int i = 0; i < tensor->ndim; i++) {
    reach += (tensor->sizes[i] - 1) * tensor->strides[i];
  }
  return tensor->numel == 0 || reach == tensor->numel;
}

// Without the repetitions of an expanded dimension; a new reference.
static PyObject *tensor_narrow(const struct engine_tensor *tensor) {
  PyObject *py_tensor = Py_NewRef(tensor->py_tensor);
  for (int i = 0; py_tensor && i < tensor->ndim; i++) {
    if (tensor->strides[i] == 0 && tensor->sizes[i] > 1) {
      PyObject *py_narrow = PyObject_CallFunction(torch_names.py_narrow, "Oiii", py_tensor, i, 0, 1);
      Py_SETREF(py_tensor, py_narrow);
    }
  }
  return py_tensor;
}

// A tensor with gaps or repetitions: the cast one has the same strides.
static PyObject *tensor_cast_strided(const struct engine_tensor *tensor, PyObject *dtype) {
  PyObject *py_narrow = tensor_narrow(tensor), *py_result = NULL;
  struct engine_tensor narrow = {0};
  if (!py_narrow) {
    return NULL;
  }
  engine_tensor_read(py_narrow, &narrow);
  PyObject *py_device = engine_tensor_get(py_narrow, engine_torch.device);
  PyObject *py_empty =
      py_device ? torch_strided_make(narrow.sizes, narrow.strides, narrow.ndim, dtype, py_device) : NULL;
  PyObject *py_full = py_empty ? PyObject_CallFunctionObjArgs(torch_names.py_copy, py_empty, py_narrow, NULL) : NULL;
  PyObject *py_shape = py_full ? py_numbers_pack(tensor->sizes, tensor->ndim) : NULL;
  if (py_shape) {
    py_result = py_narrow == tensor->py_tensor
                    ? Py_NewRef(py_full)
                    : PyObject_CallFunctionObjArgs(torch_names.py_expand, py_full, py_shape, NULL);
  }
  Py_XDECREF(py_shape);
  Py_XDECREF(py_full);
  Py_XDECREF(py_empty);
  Py_XDECREF(py_device);
  engine_tensor_reset(&narrow);
  Py_DECREF(py_narrow);
  return py_result;
}

static PyObject *tensor_cast_plain(const struct engine_tensor *tensor, int16_t dtype) {
  PyObject *to = torch_dtype_get(dtype);
  if ((tensor->flags & ENGINE_TENSOR_STRIDED) && !tensor_is_dense(tensor)) {
    return tensor_cast_strided(tensor, to);
  }
  return cast_tensor_convert(tensor->py_tensor, cast_convert_find(dtype), to);
}

// A cast resolves the conjugate and the negative bit: take them off before and put them on afterwards. Both are views.
static PyObject *tensor_cast_flagged(const struct engine_tensor *tensor, int16_t dtype) {
  PyObject *py_result = Py_NewRef(tensor->py_tensor);
  const struct {
    unsigned flag;
    PyObject *py_toggle;
  } bits[] = {{ENGINE_TENSOR_CONJ, torch_names.py_conj}, {ENGINE_TENSOR_NEG, torch_names.py_neg_view}};
  for (int pass = 0; py_result && pass < 2; pass++) {
    for (int i = 0; py_result && i < 2; i++) {
      if (tensor->flags & bits[i].flag) {
        Py_SETREF(py_result, PyObject_CallOneArg(bits[i].py_toggle, py_result));
      }
    }
    if (py_result && pass == 0) {
      struct engine_tensor bare;
      engine_tensor_read(py_result, &bare);
      Py_SETREF(py_result, tensor_cast_plain(&bare, dtype));
      engine_tensor_reset(&bare);
    }
  }
  return py_result;
}

static PyObject *tensor_cast_back(struct cast_job *job, const struct engine_tensor *tensor, int16_t dtype) {
  job->backs++;
  job->bytes += (uint64_t)tensor->numel * dit_dtype_get_size(dtype);
  bool conjugate = (tensor->flags & ENGINE_TENSOR_CONJ) && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_COMPLEX;
  if ((tensor->flags & ENGINE_TENSOR_STRIDED) && (conjugate || (tensor->flags & ENGINE_TENSOR_NEG))) {
    return tensor_cast_flagged(tensor, dtype);
  }
  return tensor_cast_plain(tensor, dtype);
}

// The argument whose copy this is: its number, or -1.
static int original_find(const struct cast_job *job, PyObject *tensor) {
  for (int i = 0; i < job->count; i++) {
    if (job->item[i].py_copy == tensor) {
      return i;
    }
  }
  return -1;
}

static int result_note(struct cast_job *job, int index, int16_t from, int16_t to) {
  if (!job->tool->py_console) {
    return 0;
  }
  if (!job->py_results && !(job->py_results = PyList_New(0))) {
    return -1;
  }
  PyObject *py_row = Py_BuildValue("(iss)", index, dit_dtype_get_name(from), dit_dtype_get_name(to));
  int status = py_row ? PyList_Append(job->py_results, py_row) : -1;
  Py_XDECREF(py_row);
  return status;
}

struct finish {
  const struct engine_leaves *out;
  PyObject **replacement;
};

static PyObject *finish_map(void *context, PyObject *tensor) {
  const struct finish *finish = context;
  for (int i = 0; i < finish->out->tensor_count; i++) {
    if (finish->out->tensor[i].py_tensor == tensor && finish->replacement[i]) {
      return Py_NewRef(finish->replacement[i]);
    }
  }
  return Py_NewRef(tensor);
}

// Is there a result whose dtype could be another one? Arguments, indices and masks have theirs.
static bool dtypes_matter(const struct cast_job *job, const struct engine_leaves *out) {
  for (int i = 0; i < out->tensor_count; i++) {
    enum dit_dtype_class class = dit_dtype_get_class(out->tensor[i].dtype);
    bool inexact = class == DIT_DTYPE_CLASS_FLOAT || class == DIT_DTYPE_CLASS_COMPLEX;
    if (inexact && original_find(job, out->tensor[i].py_tensor) < 0) {
      return true;
    }
  }
  return false;
}

// The tensors that take the places of the results; NULL entries stay. How many there are, or -1.
static int replacements_make(struct cast_job *job, const struct engine_leaves *out, PyObject **replacement) {
  int16_t inline_dtypes[CAST_INLINE], *dtypes = inline_dtypes;
  bool asked = dtypes_matter(job, out) && !cast_autocast_is_on();
  int status = 0, replaced = 0;
  if (out->tensor_count > CAST_INLINE && !(dtypes = PyMem_Malloc((size_t)out->tensor_count * sizeof *dtypes))) {
    PyErr_NoMemory();
    return -1;
  }
  status = asked ? cast_result_dtypes(job->call, out, dtypes) : 0;
  for (int i = 0; status == 0 && i < out->tensor_count; i++) {
    const struct engine_tensor *tensor = &out->tensor[i];
    int original = original_find(job, tensor->py_tensor);
    if (original >= 0) {
      replacement[i] = Py_NewRef(job->call->in.tensor[original].py_tensor);
      status = result_note(job, i, job->item[original].pair->to, job->item[original].pair->from);
    } else if (asked && dtypes[i] != tensor->dtype) {
      replacement[i] = tensor_cast_back(job, tensor, dtypes[i]);
      status = replacement[i] ? result_note(job, i, tensor->dtype, dtypes[i]) : -1;
    }
    replaced += replacement[i] != NULL;
  }
  if (dtypes != inline_dtypes) {
    PyMem_Free(dtypes);
  }
  return status < 0 ? -1 : replaced;
}

PyObject *cast_result_finish(struct cast_job *job, PyObject *result, const struct engine_leaves *out) {
  PyObject *inline_replacement[CAST_INLINE] = {0}, **replacement = inline_replacement, *py_result = NULL;
  if (out->tensor_count > CAST_INLINE &&
      !(replacement = PyMem_Calloc((size_t)out->tensor_count, sizeof *replacement))) {
    return PyErr_NoMemory();
  }
  int replaced = replacements_make(job, out, replacement);
  if (replaced == 0) {
    py_result = Py_NewRef(result);
  } else if (replaced > 0 && out->tensor[0].py_tensor == result) {
    py_result = Py_NewRef(replacement[0]);
  } else if (replaced > 0) {
    struct finish finish = {.out = out, .replacement = replacement};
    py_result = remap_value(result, finish_map, &finish);
  }
  for (int i = 0; i < out->tensor_count; i++) {
    Py_XDECREF(replacement[i]);
  }
  if (replacement != inline_replacement) {
    PyMem_Free(replacement);
  }
  return py_result;
}
