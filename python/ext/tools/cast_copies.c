// Casting tensors for one call: copies on the way in, write-back into arguments that the operator changed, results on
// the way out. Everything is done by torch's own operators on the tensor's own device, so autograd sees it.
//
// Whether the operator wrote to a copy is told by its version counter. At level "aten" that counter does not move (it
// is kept above), so the operator's schema tells; in inference mode there is none, so copies are made outside of it.
#include <string.h>

#include "dit/dtype.h"
#include "dit/record.h"
#include "tools/cast.h"
#include "tools/cast_dtypes.h"
#include "tools/remap.h"

static struct {
  PyObject *py_to, *py_copy, *py_resize, *py_as_strided, *py_empty_strided, *py_narrow, *py_expand, *py_conj,
      *py_neg_view;
  PyObject *py_float, *py_double, *py_half, *py_bfloat16;
  PyObject *py_set_grad, *py_get_grad, *py_inference, *py_autocast;
  PyTypeObject *cast_node;  // of autograd: what a differentiable cast leaves behind
} torch;

// ---- torch's functions

static PyObject *attribute_get(PyObject *module, const char *name) {
  PyObject *py_value = module ? PyObject_GetAttrString(module, name) : NULL;
  PyErr_Clear();
  return py_value;
}

// The type of the autograd node of a cast, from one. A torch that names it otherwise leaves NULL.
static void cast_node_find(PyObject *py_torch) {
  PyObject *py_kwargs = Py_BuildValue("{s:O}", "requires_grad", Py_True);
  PyObject *py_ones = attribute_get(py_torch, "ones");
  PyObject *py_args = Py_BuildValue("(i)", 1);
  PyObject *py_tensor = py_ones && py_args && py_kwargs ? PyObject_Call(py_ones, py_args, py_kwargs) : NULL;
  PyObject *py_cast = py_tensor ? PyObject_CallOneArg(torch.py_double, py_tensor) : NULL;
  PyObject *py_node = py_cast ? engine_tensor_get(py_cast, engine_torch.grad_fn) : NULL;
  torch.cast_node = py_node && py_node != Py_None ? (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(py_node)) : NULL;
  PyErr_Clear();
  Py_XDECREF(py_node);
  Py_XDECREF(py_cast);
  Py_XDECREF(py_tensor);
  Py_XDECREF(py_args);
  Py_XDECREF(py_ones);
  Py_XDECREF(py_kwargs);
}

int cast_copies_load(void) {
  if (torch.py_to) {
    return 0;
  }
  PyObject *py_torch = PyImport_ImportModule("torch");
  PyObject *py_c = attribute_get(py_torch, "_C");
  PyObject *py_base = attribute_get(py_c, "TensorBase");
  const struct {
    PyObject **slot, *owner;
    const char *name;
  } wanted[] = {
      {&torch.py_copy, py_base, "copy_"},
      {&torch.py_resize, py_base, "resize_"},
      {&torch.py_as_strided, py_base, "as_strided_"},
      {&torch.py_narrow, py_base, "narrow"},
      {&torch.py_expand, py_base, "expand"},
      {&torch.py_conj, py_base, "conj"},
      {&torch.py_neg_view, py_torch, "_neg_view"},
      {&torch.py_float, py_base, "float"},
      {&torch.py_double, py_base, "double"},
      {&torch.py_half, py_base, "half"},
      {&torch.py_bfloat16, py_base, "bfloat16"},
      {&torch.py_empty_strided, py_torch, "empty_strided"},
      {&torch.py_get_grad, py_torch, "is_grad_enabled"},
      {&torch.py_set_grad, py_c, "_set_grad_enabled"},
      {&torch.py_inference, py_c, "_InferenceMode"},
  };
  bool found = py_torch && py_c && py_base;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    Py_XSETREF(*wanted[i].slot, attribute_get(wanted[i].owner, wanted[i].name));
    found = found && *wanted[i].slot;
  }
  Py_XSETREF(torch.py_autocast, attribute_get(py_c, "_is_any_autocast_enabled"));
  if (found && !torch.cast_node) {
    int token = engine_guard_raise();
    cast_node_find(py_torch);
    engine_guard_lower(token);
  }
  torch.py_to = found ? attribute_get(py_base, "to") : NULL;
  Py_XDECREF(py_base);
  Py_XDECREF(py_c);
  Py_XDECREF(py_torch);
  if (!torch.py_to && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_NotImplementedError, "this PyTorch lacks a function that OpDtypeCast needs");
  }
  return torch.py_to ? 0 : -1;
}

PyObject *cast_convert_find(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      return torch.py_float;
    case DIT_DTYPE_F64:
      return torch.py_double;
    case DIT_DTYPE_F16:
      return torch.py_half;
    case DIT_DTYPE_BF16:
      return torch.py_bfloat16;
    default:
      return NULL;
  }
}

bool cast_autocast_is_on(void) {
  PyObject *py_on = torch.py_autocast ? PyObject_CallNoArgs(torch.py_autocast) : NULL;
  bool on = py_on == Py_True;
  Py_XDECREF(py_on);
  PyErr_Clear();
  return on;
}

// ---- grad mode

// Switch it; the state before for grad_restore, or NULL with an exception.
static PyObject *grad_switch(PyObject *wanted) {
  PyObject *py_before = PyObject_CallNoArgs(torch.py_get_grad);
  if (py_before && py_before != wanted) {
    PyObject *py_done = PyObject_CallOneArg(torch.py_set_grad, wanted);
    if (!py_done) {
      Py_CLEAR(py_before);
    }
    Py_XDECREF(py_done);
  }
  return py_before;
}

// Takes the reference. Keeps a pending exception.
static void grad_restore(PyObject *py_before) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  Py_XDECREF(PyObject_CallOneArg(torch.py_set_grad, py_before));
  Py_DECREF(py_before);
  PyErr_Restore(kind, value, traceback);
}

// ---- on the way in

static PyObject *tensor_convert(PyObject *tensor, PyObject *convert, PyObject *dtype) {
  if (convert) {
    return PyObject_CallOneArg(convert, tensor);
  }
  return PyObject_CallFunctionObjArgs(torch.py_to, tensor, dtype, NULL);
}

// Outside inference mode, so that the copy has a version counter; without autograd, as inside.
static PyObject *copy_make_counted(PyObject *tensor, const struct cast_pair *pair) {
  PyObject *py_guard = PyObject_CallOneArg(torch.py_inference, Py_False);
  PyObject *py_entered = py_guard ? PyObject_CallMethod(py_guard, "__enter__", NULL) : NULL;
  PyObject *py_grad = py_entered ? grad_switch(Py_False) : NULL;
  PyObject *py_copy = py_grad ? tensor_convert(tensor, pair->py_convert, pair->py_to) : NULL;
  if (py_grad) {
    grad_restore(py_grad);
  }
  if (py_entered) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    Py_XDECREF(PyObject_CallMethod(py_guard, "__exit__", "OOO", Py_None, Py_None, Py_None));
    PyErr_Restore(kind, value, traceback);
  }
  Py_XDECREF(py_entered);
  Py_XDECREF(py_guard);
  return py_copy;
}

static int item_cast(struct cast_job *job, int index) {
  struct cast_item *item = &job->item[index];
  const struct engine_tensor *tensor = &job->call->in.tensor[index];
  item->py_copy = tensor_convert(tensor->py_tensor, item->pair->py_convert, item->pair->py_to);
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

// ---- what the operator wrote to

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

// Operators that write to arguments without moving the version counter of those: which arguments (positions), and the
// argument that tells whether they do. torch.nn.functional's own normalisations have the statistics further ahead.
static const struct silent_writer {
  const char *name;  // last part
  int first, count, flag;
} silent_writers[] = {
    {"batch_norm", 3, 2, 5},
    {"instance_norm", 3, 2, 5},
    {"native_batch_norm", 3, 2, 5},
    {"_native_batch_norm_legit", 3, 2, 5},
    {"cudnn_batch_norm", 3, 2, 5},
    {"miopen_batch_norm", 3, 2, 5},
    {"_batch_norm_impl_index", 3, 2, 5},
    {"_batch_norm_with_update", 3, 2, -1},
    {"batch_norm_gather_stats", 3, 2, -1},
    {"batch_norm_gather_stats_with_counts", 3, 2, -1},
    {"batch_norm_update_stats", 1, 2, -1},
    {"fused_moving_avg_obs_fake_quant", 3, 4, -1},
    {"_fused_moving_avg_obs_fq_helper", 3, 4, -1},
    {"rrelu_with_noise", 1, 1, -1},
    {"_cummax_helper", 1, 2, -1},
    {"_cummin_helper", 1, 2, -1},
};

static const struct silent_writer *silent_writer_find(const struct engine_call *call) {
  const char *name = call->op->name, *dot = strrchr(name, '.'), *colon = strrchr(name, ':');
  const char *last = dot ? dot + 1 : colon ? colon + 1 : name;
  for (size_t i = 0; i < sizeof silent_writers / sizeof *silent_writers; i++) {
    if (strcmp(silent_writers[i].name, last) == 0) {
      return &silent_writers[i];
    }
  }
  return NULL;
}

static bool silent_writer_writes(const struct silent_writer *writer, const struct engine_call *call) {
  PyObject *flag = NULL;
  if (writer->flag < 0) {
    return true;
  }
  if (PyTuple_GET_SIZE(call->args) > writer->flag) {
    flag = PyTuple_GET_ITEM(call->args, writer->flag);
  } else if (call->kwargs) {
    flag = PyDict_GetItemString(call->kwargs, "training");
    flag = flag ? flag : PyDict_GetItemString(call->kwargs, "use_input_stats");
  }
  return flag ? flag == Py_True : strcmp(writer->name, "instance_norm") == 0;  // whose default is to write
}

static void silent_look(struct cast_job *job) {
  static uint32_t key_mean, key_variance;
  const struct engine_call *call = job->call;
  const struct silent_writer *writer = silent_writer_find(call);
  if (!writer || !silent_writer_writes(writer, call)) {
    return;
  }
  if (!key_mean && (dit_record_intern("kwargs.running_mean", 19, &key_mean, NULL) != DIT_OK ||
                    dit_record_intern("kwargs.running_var", 18, &key_variance, NULL) != DIT_OK)) {
    return;
  }
  int first = strncmp(call->op->name, "torch.nn.functional.", 20) == 0 ? 1 : writer->first;
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    bool given = leaf->top < PyTuple_GET_SIZE(call->args);
    bool positional = given && leaf->top >= first && leaf->top < first + writer->count;
    if (leaf->tensor >= 0 && (positional || leaf->key == key_mean || leaf->key == key_variance)) {
      struct cast_item *item = &job->item[job->item[leaf->tensor].first];
      item->changed = item->changed || item->py_copy;
    }
  }
}

// out= is written to, whatever the version counter says: some operators fill it through a view that hides it.
static void out_look(struct cast_job *job) {
  static PyObject *py_out;
  const struct engine_call *call = job->call;
  if (!call->kwargs || (!py_out && !(py_out = PyUnicode_InternFromString("out")))) {
    PyErr_Clear();
    return;
  }
  PyObject *key, *value;
  Py_ssize_t at = 0, top = PyTuple_GET_SIZE(call->args);
  while (PyDict_Next(call->kwargs, &at, &key, &value) && PyUnicode_Compare(key, py_out) != 0) {
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
  bool fused = strstr(call->op->name, "_fused_") != NULL;
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

// ---- shared memory

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
  PyErr_Clear();
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

// ---- write back

static PyObject *sizes_build(const int64_t *values, int count) {
  PyObject *py_tuple = PyTuple_New(count);
  for (int i = 0; py_tuple && i < count; i++) {
    PyObject *py_value = PyLong_FromLongLong(values[i]);
    if (!py_value) {
      Py_CLEAR(py_tuple);
      break;
    }
    PyTuple_SET_ITEM(py_tuple, i, py_value);
  }
  return py_tuple;
}

// out= that was resized: the original gets the same shape and strides.
static int tensor_reshape_like(PyObject *original, const struct engine_tensor *copy) {
  PyObject *py_sizes = sizes_build(copy->sizes, copy->ndim);
  PyObject *py_strides = py_sizes ? sizes_build(copy->strides, copy->ndim) : NULL;
  int64_t reach = 1;
  for (int i = 0; i < copy->ndim; i++) {
    reach += (copy->sizes[i] - 1) * copy->strides[i];
  }
  PyObject *py_reach = PyLong_FromLongLong(copy->numel ? reach : 0);  // strides may leave gaps
  PyObject *py_done =
      py_strides && py_reach ? PyObject_CallFunctionObjArgs(torch.py_resize, original, py_reach, NULL) : NULL;
  Py_XDECREF(py_reach);
  if (py_done) {
    Py_SETREF(py_done, PyObject_CallFunctionObjArgs(torch.py_as_strided, original, py_sizes, py_strides, NULL));
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
  PyErr_Clear();
  bool recorded = py_node && py_node != Py_None && Py_TYPE(py_node) != torch.cast_node;
  Py_XDECREF(py_node);
  return recorded;
}

static int item_write_back(struct cast_job *job, int index) {
  PyObject *original = job->call->in.tensor[index].py_tensor, *copy = job->item[index].py_copy;
  struct engine_tensor now;
  engine_tensor_read(copy, &now);
  bool recorded = change_is_recorded(copy);
  PyObject *py_grad = recorded ? NULL : grad_switch(Py_False);
  int status = recorded || py_grad ? 0 : -1;
  if (status == 0 && !shapes_agree(&job->call->in.tensor[index], &now)) {
    status = tensor_reshape_like(original, &now);
  }
  if (status == 0) {
    PyObject *py_target =
        job->item[index].silent && !recorded ? PyObject_GetAttrString(original, "data") : Py_NewRef(original);
    PyObject *py_done = py_target ? PyObject_CallFunctionObjArgs(torch.py_copy, py_target, copy, NULL) : NULL;
    Py_XDECREF(py_target);
    status = py_done ? 0 : -1;
    Py_XDECREF(py_done);
  }
  if (py_grad) {
    grad_restore(py_grad);
  }
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

// ---- on the way out

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
      PyObject *py_narrow = PyObject_CallFunction(torch.py_narrow, "Oiii", py_tensor, i, 0, 1);
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
  PyObject *py_sizes = sizes_build(narrow.sizes, narrow.ndim), *py_strides = sizes_build(narrow.strides, narrow.ndim);
  PyObject *py_device = engine_tensor_get(py_narrow, engine_torch.device);
  PyObject *py_args = py_sizes && py_strides ? PyTuple_Pack(2, py_sizes, py_strides) : NULL;
  PyObject *py_kwargs = py_device ? Py_BuildValue("{s:O,s:O}", "dtype", dtype, "device", py_device) : NULL;
  PyObject *py_empty = py_args && py_kwargs ? PyObject_Call(torch.py_empty_strided, py_args, py_kwargs) : NULL;
  PyObject *py_full = py_empty ? PyObject_CallFunctionObjArgs(torch.py_copy, py_empty, py_narrow, NULL) : NULL;
  PyObject *py_shape = py_full ? sizes_build(tensor->sizes, tensor->ndim) : NULL;
  if (py_shape) {
    py_result = py_narrow == tensor->py_tensor ? Py_NewRef(py_full)
                                               : PyObject_CallFunctionObjArgs(torch.py_expand, py_full, py_shape, NULL);
  }
  Py_XDECREF(py_shape);
  Py_XDECREF(py_full);
  Py_XDECREF(py_empty);
  Py_XDECREF(py_kwargs);
  Py_XDECREF(py_args);
  Py_XDECREF(py_device);
  Py_XDECREF(py_strides);
  Py_XDECREF(py_sizes);
  engine_tensor_reset(&narrow);
  Py_DECREF(py_narrow);
  return py_result;
}

static PyObject *tensor_cast_plain(const struct engine_tensor *tensor, int16_t dtype) {
  PyObject *to = cast_dtype_get_object(dtype);
  if ((tensor->flags & ENGINE_TENSOR_STRIDED) && !tensor_is_dense(tensor)) {
    return tensor_cast_strided(tensor, to);
  }
  return tensor_convert(tensor->py_tensor, cast_convert_find(dtype), to);
}

// A cast resolves the conjugate and the negative bit: take them off before and put them on afterwards. Both are views.
static PyObject *tensor_cast_flagged(const struct engine_tensor *tensor, int16_t dtype) {
  PyObject *py_result = Py_NewRef(tensor->py_tensor);
  const struct {
    unsigned flag;
    PyObject *py_toggle;
  } bits[] = {{ENGINE_TENSOR_CONJ, torch.py_conj}, {ENGINE_TENSOR_NEG, torch.py_neg_view}};
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

// The tensors that take the places of the results; NULL entries stay. How many there are, or -1.
static int replacements_make(struct cast_job *job, const struct engine_leaves *out, PyObject **replacement) {
  int16_t inline_dtypes[CAST_INLINE], *dtypes = inline_dtypes;
  bool autocast = cast_autocast_is_on();
  int status = 0, replaced = 0;
  if (out->tensor_count > CAST_INLINE && !(dtypes = PyMem_Malloc((size_t)out->tensor_count * sizeof *dtypes))) {
    PyErr_NoMemory();
    return -1;
  }
  status = autocast ? 0 : cast_result_dtypes(job->call, out, dtypes);
  for (int i = 0; status == 0 && i < out->tensor_count; i++) {
    const struct engine_tensor *tensor = &out->tensor[i];
    int original = original_find(job, tensor->py_tensor);
    if (original >= 0) {
      replacement[i] = Py_NewRef(job->call->in.tensor[original].py_tensor);
      status = result_note(job, i, job->item[original].pair->to, job->item[original].pair->from);
    } else if (!autocast && dtypes[i] != tensor->dtype) {
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
