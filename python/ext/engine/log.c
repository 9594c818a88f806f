// The tools' record log: opening and closing the process's writer, and the fields that all tools share.
//
// Objects whose text must be asked of Python (dtypes, slices ...) are asked before the thread's builder is filled
// further: str() may run user code, which may itself record. See text_add.
#include "engine/log.h"

#include <stdio.h>
#include <string.h>

#define ENGINE_KEY_DEFINE(name) uint32_t engine_key_##name;
ENGINE_KEY_LIST(ENGINE_KEY_DEFINE)
#undef ENGINE_KEY_DEFINE

static struct dit_record_writer *writer;

struct dit_record_writer *engine_log_get(void) {
  return writer;
}

static uint32_t key_intern(const char *text) {
  uint32_t key = 0;
  return dit_record_intern(text, strlen(text), &key, NULL) == DIT_OK ? key : 0;
}

static void keys_intern(void) {
  if (engine_key_id) {
    return;
  }
#define ENGINE_KEY_INTERN(name) engine_key_##name = key_intern(#name);
  ENGINE_KEY_LIST(ENGINE_KEY_INTERN)
#undef ENGINE_KEY_INTERN
}

// Fields

static void common_add(struct dit_record_builder *builder, const struct engine_tool *tool, const struct engine_op *op,
                       uint64_t id, int64_t step) {
  dit_record_field_u64(builder, engine_key_id, id);
  dit_record_field_interned(builder, engine_key_name, op->key);
  dit_record_field_interned(builder, engine_key_tool, tool->key);
  dit_record_field_i64(builder, engine_key_step, step);
}

static void places_add(struct dit_record_builder *builder, uint32_t location, uint32_t module, unsigned flags) {
  if (location) {
    dit_record_field_interned(builder, engine_key_location, location);
  }
  if (module) {
    dit_record_field_interned(builder, engine_key_module, module);
  }
  if (flags & ENGINE_CALL_RECOMPUTE) {
    dit_record_field_bool(builder, engine_key_recompute, true);
  }
}

struct dit_record_builder *engine_log_begin(const struct engine_tool *tool, const struct engine_call *call,
                                            uint16_t type) {
  struct dit_record_builder *builder = writer ? dit_record_builder_get_local() : NULL;
  if (builder) {
    dit_record_begin(builder, type, 0, call->begin_ns);
    common_add(builder, tool, call->op, call->id, call->step);
    places_add(builder, call->location, call->module, call->flags);
  }
  return builder;
}

struct dit_record_builder *engine_log_begin_backward(const struct engine_tool *tool,
                                                     const struct engine_backward *backward, uint16_t type) {
  struct dit_record_builder *builder = writer ? dit_record_builder_get_local() : NULL;
  if (builder) {
    dit_record_begin(builder, type, 0, backward->begin_ns);
    common_add(builder, tool, backward->op, backward->id, backward->step);
    places_add(builder, backward->location, backward->module, backward->flags);
    dit_record_field_i64(builder, engine_key_round, backward->round);
    if (!backward->complete) {
      dit_record_field_bool(builder, engine_key_complete, false);
    }
  }
  return builder;
}

void engine_log_tensor(struct dit_record_builder *builder, uint32_t key, const struct engine_tensor *tensor) {
  struct dit_record_tensor record = {.dtype = tensor->dtype,
                                     .device = engine_tensor_get_device_key(tensor),
                                     .device_index = tensor->device_index,
                                     .ndim = tensor->sizes ? tensor->ndim : 0,
                                     .sizes = tensor->sizes,
                                     .strides = tensor->strides,
                                     .storage_id = (uint64_t)(uintptr_t)tensor->data,
                                     .version = tensor->version,
                                     .requires_grad = (tensor->flags & ENGINE_TENSOR_GRAD) != 0};
  dit_record_field_tensor(builder, key, &record);
}

static void ints_add(struct dit_record_builder *builder, const struct engine_leaf *leaf) {
  int64_t values[DIT_RECORD_MAX_DIMS];
  Py_ssize_t count = PyTuple_Check(leaf->value) ? PyTuple_GET_SIZE(leaf->value) : PyList_GET_SIZE(leaf->value);
  Py_ssize_t kept = count < DIT_RECORD_MAX_DIMS ? count : DIT_RECORD_MAX_DIMS;
  for (Py_ssize_t i = 0; i < kept; i++) {
    PyObject *item = PyTuple_Check(leaf->value) ? PyTuple_GET_ITEM(leaf->value, i) : PyList_GET_ITEM(leaf->value, i);
    values[i] = PyLong_AsLongLong(item);
  }
  py_error_drop();
  dit_record_field_i64s(builder, leaf->key, values, (size_t)kept);
}

#define TEXT_MAX 512

static void text_cut_add(struct dit_record_builder *builder, uint32_t key, PyObject *text) {
  Py_ssize_t size = 0;
  const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
  py_error_drop();
  if (!bytes) {
    bytes = "?";
    size = 1;
  }
  dit_record_field_string(builder, key, bytes, (size_t)(size < TEXT_MAX ? size : TEXT_MAX));
}

// str() of a torch object is C code; of anything else only the type's name is written, so that no user code runs here.
static void other_add(struct dit_record_builder *builder, const struct engine_leaf *leaf) {
  PyTypeObject *type = Py_TYPE(leaf->value);
  bool known = !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || PySlice_Check(leaf->value);
  PyObject *py_text = known ? PyObject_Str(leaf->value) : PyUnicode_FromFormat("<%s>", type->tp_name);
  text_cut_add(builder, leaf->key, py_text);
  Py_XDECREF(py_text);
}

static void leaf_add(struct dit_record_builder *builder, const struct engine_leaves *leaves,
                     const struct engine_leaf *leaf) {
  switch (leaf->kind) {
    case ENGINE_LEAF_TENSOR:
      engine_log_tensor(builder, leaf->key, &leaves->tensor[leaf->tensor]);
      return;
    case ENGINE_LEAF_NONE:
      dit_record_field_string(builder, leaf->key, "None", 4);
      return;
    case ENGINE_LEAF_BOOL:
      dit_record_field_bool(builder, leaf->key, leaf->value == Py_True);
      return;
    case ENGINE_LEAF_INT: {
      int64_t value = PyLong_AsLongLong(leaf->value);
      if (value == -1 && PyErr_Occurred()) {
        py_error_drop();
        other_add(builder, leaf);
        return;
      }
      dit_record_field_i64(builder, leaf->key, value);
      return;
    }
    case ENGINE_LEAF_FLOAT:
      dit_record_field_f64(builder, leaf->key, PyFloat_AS_DOUBLE(leaf->value));
      return;
    case ENGINE_LEAF_STRING:
      text_cut_add(builder, leaf->key, leaf->value);
      return;
    case ENGINE_LEAF_INTS:
      ints_add(builder, leaf);
      return;
    default:
      other_add(builder, leaf);
  }
}

void engine_log_leaves(struct dit_record_builder *builder, const struct engine_leaves *leaves) {
  for (int i = 0; i < leaves->leaf_count; i++) {
    leaf_add(builder, leaves, &leaves->leaf[i]);
  }
}

enum { CACHED_GRADIENTS = 16 };

static uint32_t gradient_key(const char *prefix, int index, uint32_t *cache) {
  if (index < CACHED_GRADIENTS && cache[index]) {
    return cache[index];
  }
  char text[32];
  snprintf(text, sizeof text, "%s.%d", prefix, index);
  uint32_t key = key_intern(text);
  if (index < CACHED_GRADIENTS) {
    cache[index] = key;
  }
  return key;
}

static void gradients_add(struct dit_record_builder *builder, const char *prefix, uint32_t *cache,
                          PyObject *const *gradients, int count) {
  for (int i = 0; i < count; i++) {
    uint32_t key =
        gradients[i] && gradients[i] != Py_None && engine_is_tensor(gradients[i]) ? gradient_key(prefix, i, cache) : 0;
    if (key) {
      struct engine_tensor tensor;
      engine_tensor_read(gradients[i], &tensor);
      engine_log_tensor(builder, key, &tensor);
      engine_tensor_reset(&tensor);
    }
  }
}

void engine_log_gradients(struct dit_record_builder *builder, const struct engine_backward *backward) {
  static uint32_t out_keys[CACHED_GRADIENTS], in_keys[CACHED_GRADIENTS];
  gradients_add(builder, "grad_out", out_keys, backward->grad_outputs, backward->grad_output_count);
  gradients_add(builder, "grad_in", in_keys, backward->grad_inputs, backward->grad_input_count);
}

void engine_log_commit(struct dit_record_builder *builder) {
  if (writer) {
    (void)dit_record_commit(builder, writer, NULL);
  }
}

void engine_log_note(const char *text) {
  struct dit_record_builder *builder = writer ? dit_record_builder_get_local() : NULL;
  if (builder) {
    dit_record_begin(builder, ENGINE_RECORD_NOTE, 0, 0);
    dit_record_field_string(builder, engine_key_text, text, strlen(text));
    engine_log_commit(builder);
  }
}

// Bindings

#define MAX_METADATA 64

// The dictionary's texts, then the names of the record types.
static size_t metadata_fill(PyObject *dict, struct dit_record_pair *pairs) {
  static const struct dit_record_pair types[] = {
#define ENGINE_RECORD_PAIR(suffix, number, name) {"type." #number, name},
      ENGINE_RECORD_LIST(ENGINE_RECORD_PAIR)
#undef ENGINE_RECORD_PAIR
  };
  size_t count = sizeof types / sizeof *types;
  memcpy(pairs, types, sizeof types);
  PyObject *py_key, *py_value;
  Py_ssize_t at = 0;
  while (dict && PyDict_Next(dict, &at, &py_key, &py_value) && count < MAX_METADATA) {
    const char *key = PyUnicode_Check(py_key) ? PyUnicode_AsUTF8(py_key) : NULL;
    const char *value = PyUnicode_Check(py_value) ? PyUnicode_AsUTF8(py_value) : NULL;
    py_error_drop();
    if (key && value) {
      pairs[count++] = (struct dit_record_pair){key, value};
    }
  }
  return count;
}

static int64_t option_int(PyObject *options, const char *name, int64_t fallback) {
  PyObject *value = options ? PyDict_GetItemString(options, name) : NULL;  // borrowed
  int64_t number = value && PyLong_Check(value) ? PyLong_AsLongLong(value) : fallback;
  py_error_drop();
  return number;
}

static bool option_is(PyObject *options, const char *name, const char *text) {
  PyObject *value = options ? PyDict_GetItemString(options, name) : NULL;  // borrowed
  return value && PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, text) == 0;
}

PyDoc_STRVAR(log_open_doc,
             "log_open(directory: str | PathLike[str], metadata: dict[str, str] | None = None, options: dict[str, Any] "
             "| None = None, /) -> None\n\nOpen the process's record log; nothing when it is open. Options: pressure "
             "('block' or 'drop'), queue_bytes, rotate_bytes, rank, world_size.");
static PyObject *py_log_open(PyObject *module, PyObject *args) {
  PyObject *py_directory = NULL, *metadata = NULL, *options = NULL;
  if (!PyArg_ParseTuple(args, "O&|OO:log_open", PyUnicode_FSConverter, &py_directory, &metadata, &options)) {
    return NULL;
  }
  metadata = metadata && PyDict_Check(metadata) ? metadata : NULL;
  options = options && PyDict_Check(options) ? options : NULL;
  struct dit_error err = {0};
  enum dit_status status = DIT_OK;
  if (!writer) {
    keys_intern();
    struct dit_record_pair pairs[MAX_METADATA];
    struct dit_record_options record = {.metadata = pairs, .metadata_count = metadata_fill(metadata, pairs)};
    record.pressure = option_is(options, "pressure", "drop") ? DIT_RECORD_DROP : DIT_RECORD_BLOCK;
    record.queue_bytes = (size_t)option_int(options, "queue_bytes", 0);
    record.rotate_bytes = (uint64_t)option_int(options, "rotate_bytes", 0);
    record.rank = (int32_t)option_int(options, "rank", 0);
    record.world_size = (int32_t)option_int(options, "world_size", 1);
    status = dit_record_writer_create(PyBytes_AS_STRING(py_directory), &record, &writer, &err);
  }
  Py_DECREF(py_directory);
  return py_status_return(module, status, &err);
}

static PyObject *py_log_close(PyObject *module, PyObject *unused) {
  (void)unused;
  struct dit_error err = {0};
  struct dit_record_writer *closing = writer;
  enum dit_status status;
  writer = NULL;  // a backward thread that still has it would be a caller's error: tools are stopped first
  Py_BEGIN_ALLOW_THREADS;
  status = dit_record_writer_destroy(closing, 10000, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

static PyObject *py_log_flush(PyObject *module, PyObject *unused) {
  (void)unused;
  struct dit_error err = {0};
  enum dit_status status = DIT_OK;
  struct dit_record_writer *flushed = writer;
  if (flushed) {
    Py_BEGIN_ALLOW_THREADS;
    status = dit_record_writer_flush(flushed, 10000, &err);
    Py_END_ALLOW_THREADS;
  }
  return py_status_return(module, status, &err);
}

static PyObject *py_log_path(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (!writer) {
    Py_RETURN_NONE;
  }
  char path[4096];
  dit_record_writer_get_path(writer, path, sizeof path);
  return PyUnicode_DecodeFSDefault(path);
}

static PyObject *py_log_counts(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  struct dit_record_counts counts = {0};
  if (writer) {
    dit_record_writer_get_counts(writer, &counts);
  }
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:O}", "committed", (unsigned long long)counts.committed, "accepted",
                       (unsigned long long)counts.accepted, "dropped", (unsigned long long)counts.dropped, "written",
                       (unsigned long long)counts.written, "lost", (unsigned long long)counts.lost, "bytes",
                       (unsigned long long)counts.bytes, "failing", counts.failing ? Py_True : Py_False);
}

PyDoc_STRVAR(log_tool_doc,
             "log_tool(tool: str, event: str, text: str, /) -> None\n\nA record about a tool itself: start, stop, "
             "step, summary.");
static PyObject *py_log_tool(PyObject *module, PyObject *args) {
  (void)module;
  const char *tool = NULL, *event = NULL, *text = NULL;
  if (!PyArg_ParseTuple(args, "sss:log_tool", &tool, &event, &text)) {
    return NULL;
  }
  struct dit_record_builder *builder = writer ? dit_record_builder_get_local() : NULL;
  if (builder) {
    dit_record_begin(builder, ENGINE_RECORD_TOOL, 0, 0);
    dit_record_field_string(builder, engine_key_tool, tool, strlen(tool));
    dit_record_field_string(builder, engine_key_event, event, strlen(event));
    dit_record_field_string(builder, engine_key_text, text, strlen(text));
    engine_log_commit(builder);
  }
  Py_RETURN_NONE;
}

PyMethodDef py_log_methods[] = {
    {"log_open", py_log_open, METH_VARARGS, log_open_doc},
    {"log_close", py_log_close, METH_NOARGS, "log_close() -> None\n\nWrite everything out and close."},
    {"log_flush", py_log_flush, METH_NOARGS,
     "log_flush() -> None\n\nReturn when everything recorded so far survives the process."},
    {"log_path", py_log_path, METH_NOARGS, "log_path() -> str | None"},
    {"log_counts", py_log_counts, METH_NOARGS, "log_counts() -> dict[str, Any]"},
    {"log_tool", py_log_tool, METH_VARARGS, log_tool_doc},
    {NULL, NULL, 0, NULL},
};
