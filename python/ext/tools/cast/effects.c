// What an operator did to the copies it was given: which ones it wrote to, and whether its result shows their memory.
//
// A write is told by the version counter, by the operator's name (in place, out=), and for operators that hide it by
// the operator table. At level "aten" the counter does not move (it is kept above): there the operator's schema tells.
#include <string.h>

#include "dit/dtype.h"
#include "dit/operator.h"
#include "dit/record.h"
#include "tools/cast/cast.h"

// What the operator wrote to

// May the schema's argument with this name or at this place be written to?
static int argument_is_written(PyObject *argument) {
  PyObject *py_alias = PyObject_GetAttrString(argument, "alias_info");
  PyObject *py_write = py_alias && py_alias != Py_None ? PyObject_GetAttrString(py_alias, "is_write") : NULL;
  int yes = py_write ? PyObject_IsTrue(py_write) : 0;
  Py_XDECREF(py_write);
  Py_XDECREF(py_alias);
  return PyErr_Occurred() ? -1 : yes;
}

// The schema's argument for top-level argument number `top` of the call: new reference; NULL without exception: none.
static PyObject *argument_find(const struct engine_call *call, PyObject *arguments, int top) {
  Py_ssize_t given = PyTuple_GET_SIZE(call->args);
  if (top < given) {
    return PySequence_GetItem(arguments, top);
  }
  PyObject *py_key = NULL, *py_value;
  Py_ssize_t at = 0;
  for (int i = 0; call->kwargs && i <= top - given && PyDict_Next(call->kwargs, &at, &py_key, &py_value); i++) {
  }
  Py_ssize_t count = PySequence_Size(arguments);
  for (Py_ssize_t i = 0; py_key && i < count; i++) {
    PyObject *py_argument = PySequence_GetItem(arguments, i);
    PyObject *py_name = py_argument ? PyObject_GetAttrString(py_argument, "name") : NULL;
    bool same = py_name && PyUnicode_Compare(py_name, py_key) == 0;
    Py_XDECREF(py_name);
    if (same) {
      return py_argument;
    }
    Py_XDECREF(py_argument);
  }
  return NULL;
}

static int schema_look(struct cast_job *job) {
  const struct engine_call *call = job->call;
  PyObject *py_schema = PyObject_GetAttrString(call->func, "_schema");
  PyObject *py_mutable = py_schema ? PyObject_GetAttrString(py_schema, "is_mutable") : NULL;
  PyObject *py_arguments = py_mutable == Py_True ? PyObject_GetAttrString(py_schema, "arguments") : NULL;
  int status = py_mutable && (py_mutable != Py_True || py_arguments) ? 0 : -1;
  for (int i = 0; status == 0 && py_arguments && i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor < 0 || !job->item[leaf->tensor].py_copy) {
      continue;
    }
    PyObject *py_argument = argument_find(call, py_arguments, leaf->top);
    int written = py_argument ? argument_is_written(py_argument) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(py_argument);
    if (written < 0) {
      status = -1;
    } else if (written) {
      job->item[job->item[leaf->tensor].first].changed = true;
    }
  }
  Py_XDECREF(py_arguments);
  Py_XDECREF(py_mutable);
  Py_XDECREF(py_schema);
  return status;
}

// Operators that write to arguments without moving the version counter of those: the operator table has the arguments,
// and the one that tells whether they do. torch.nn.functional's own normalisations have the statistics further ahead.
static bool row_writes(const struct dit_operator *row, const struct engine_call *call) {
  PyObject *flag = NULL;
  if (row->writes_if < 0) {
    return true;
  }
  if (PyTuple_GET_SIZE(call->args) > row->writes_if) {
    flag = PyTuple_GET_ITEM(call->args, row->writes_if);
  } else if (call->kwargs) {
    flag = PyDict_GetItemString(call->kwargs, "training");
    flag = flag ? flag : PyDict_GetItemString(call->kwargs, "use_input_stats");
  }
  return flag ? flag == Py_True : row->writes_default;
}

static void silent_look(struct cast_job *job) {
  static uint32_t key_mean, key_variance;
  const struct engine_call *call = job->call;
  const struct dit_operator *row = call->op->flags & ENGINE_OP_COLLECTIVE ? NULL : dit_operator_find(call->op->name);
  if (!row || row->writes_count == 0 || !row_writes(row, call)) {
    return;
  }
  if (!key_mean && (dit_record_intern("kwargs.running_mean", 19, &key_mean, NULL) != DIT_OK ||
                    dit_record_intern("kwargs.running_var", 18, &key_variance, NULL) != DIT_OK)) {
    return;
  }
  int first = strncmp(call->op->name, "torch.nn.functional.", 20) == 0 ? 1 : row->writes_first;
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    bool given = leaf->top < PyTuple_GET_SIZE(call->args);
    bool positional = given && leaf->top >= first && leaf->top < first + row->writes_count;
    if (leaf->tensor >= 0 && (positional || leaf->key == key_mean || leaf->key == key_variance)) {
      struct cast_item *item = &job->item[job->item[leaf->tensor].first];
      item->changed = item->changed || item->py_copy;
    }
  }
}

// out= is written to, whatever the version counter says: some operators fill it through a view that hides it.
static void out_look(struct cast_job *job) {
  const struct engine_call *call = job->call;
  if (!call->kwargs) {
    return;
  }
  PyObject *key, *value;
  Py_ssize_t at = 0, top = PyTuple_GET_SIZE(call->args);
  while (PyDict_Next(call->kwargs, &at, &key, &value) && PyUnicode_Compare(key, torch_names.py_text_out) != 0) {
    top++;
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor >= 0 && leaf->top == top && job->item[leaf->tensor].py_copy) {
      job->item[job->item[leaf->tensor].first].changed = true;
    }
  }
}

// In place by name: the first argument, whatever the version counter says; and for the optimizers in one kernel
// (torch._fused_adamw_), all lists of tensors.
static void inplace_look(struct cast_job *job) {
  const struct engine_call *call = job->call;
  if (!(call->op->flags & ENGINE_OP_INPLACE)) {
    return;
  }
  bool fused = engine_op_is_fused_optimizer(call->op);
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->tensor >= 0 && (leaf->top == 0 || fused) && job->item[leaf->tensor].py_copy) {
      job->item[job->item[leaf->tensor].first].changed = true;
    }
  }
}

int cast_copies_look(struct cast_job *job) {
  bool aten = job->call->flags & ENGINE_CALL_ATEN;
  out_look(job);
  silent_look(job);
  inplace_look(job);
  for (int i = 0; i < job->count; i++) {
    struct cast_item *item = &job->item[i];
    if (item->py_copy && item->first == i) {
      bool moved = engine_tensor_get_version(item->py_copy) != item->version;
      item->silent = !moved && !aten;
      item->changed = item->changed || moved;
    }
  }
  return aten ? schema_look(job) : 0;
}

// Shared memory

struct span {
  const char *begin, *end;  // NULL: unknown or empty
};

static struct span span_get(const struct engine_tensor *tensor) {
  if (!tensor->data || !(tensor->flags & ENGINE_TENSOR_STRIDED) || tensor->numel == 0) {
    return (struct span){0};
  }
  int64_t low = 0, high = 0;
  for (int i = 0; i < tensor->ndim; i++) {
    int64_t reach = (tensor->sizes[i] - 1) * tensor->strides[i];
    *(reach < 0 ? &low : &high) += reach;
  }
  int64_t size = (int64_t)dit_dtype_get_size(tensor->dtype);
  const char *data = tensor->data;
  return (struct span){.begin = data + low * size, .end = data + (high + 1) * size};
}

static bool spans_meet(struct span a, struct span b) {
  return a.begin && b.begin && a.begin < b.end && b.begin < a.end;
}

static bool base_is(PyObject *tensor, PyObject *copy) {
  if (!engine_torch.base) {
    return false;
  }
  PyObject *py_base = engine_tensor_get(tensor, engine_torch.base);
  bool same = py_base == copy;
  py_error_drop();
  Py_XDECREF(py_base);
  return same;
}

static bool result_shows_copy(const struct engine_tensor *result, PyObject *copy) {
  if (result->py_tensor == copy) {
    return false;
  }
  struct engine_tensor tensor;
  engine_tensor_read(copy, &tensor);
  bool known = tensor.data && result->data;
  bool shown = known ? spans_meet(span_get(&tensor), span_get(result)) : base_is(result->py_tensor, copy);
  engine_tensor_reset(&tensor);
  return shown;
}

// Two arguments over the same memory, one of them written to: separate copies would lose what is written.
static bool changed_is_shared(const struct cast_job *job, int index) {
  const struct engine_tensor *tensors = job->call->in.tensor;
  struct span changed = span_get(&tensors[index]);
  for (int i = 0; i < job->count; i++) {
    if (job->item[i].first != job->item[index].first && spans_meet(changed, span_get(&tensors[i]))) {
      return true;
    }
  }
  return false;
}

bool cast_copies_are_shown(const struct cast_job *job, const struct engine_leaves *out) {
  for (int i = 0; i < job->count; i++) {
    const struct cast_item *item = &job->item[i];
    if (!item->py_copy || item->first != i) {
      continue;
    }
    if (item->changed && changed_is_shared(job, i)) {
      return true;
    }
    for (int j = 0; j < out->tensor_count; j++) {
      if (result_shows_copy(&out->tensor[j], item->py_copy)) {
        return true;
      }
    }
  }
  return false;
}
