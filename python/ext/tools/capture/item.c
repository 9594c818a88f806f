// Building items; see capture/item.h. And what Python may ask for directly: one item as a file or as its parts.
#include "tools/capture/item.h"

#include <stdlib.h>
#include <string.h>

#include "tools/call_settings.h"
#include "tools/capture/pickle.h"

// Free items, guarded by the GIL: at most as many as threads were in here at once.
static struct capture_item *free_items;

struct capture_item *capture_item_take(void) {
  if (engine_torch_load() < 0 || torch_names_load(TORCH_CAPTURE | TORCH_RANDOM) < 0) {
    return NULL;
  }
  struct capture_item *item = free_items;
  if (item) {
    free_items = item->next;
    return item;
  }
  item = calloc(1, sizeof *item);
  if (!item) {
    PyErr_NoMemory();
  }
  return item;
}

void capture_item_give(struct capture_item *item) {
  if (!item) {
    return;
  }
  capture_blobs_clear(&item->blobs);
  for (int i = 0; i < item->tensor_count; i++) {
    engine_tensor_reset(&item->tensors[i]);
  }
  item->tensor_count = 0;
  capture_text_clear(&item->pickle);
  capture_text_clear(&item->json);
  if (item->pickle.capacity + item->json.capacity > (4u << 20)) {  // one huge call should not be remembered for ever
    capture_text_reset(&item->pickle);
    capture_text_reset(&item->json);
  }
  item->next = free_items;
  free_items = item;
}

int capture_item_read(struct capture_item *item, PyObject *const *objects, int count) {
  if (item->tensor_count + count > item->tensor_capacity) {
    int capacity = 2 * (item->tensor_count + count) + 8;
    struct engine_tensor *tensors = realloc(item->tensors, (size_t)capacity * sizeof *tensors);
    if (!tensors) {
      PyErr_NoMemory();
      return -1;
    }
    item->tensors = tensors;
    item->tensor_capacity = capacity;
  }
  for (int i = 0; i < count; i++) {
    if (objects[i] && engine_is_tensor(objects[i])) {
      engine_tensor_read(objects[i], &item->tensors[item->tensor_count++]);
    }
  }
  return 0;
}

int capture_item_build(struct capture_item *item, const struct capture_source *source) {
  struct capture_blobs *blobs = &item->blobs;
  blobs->whole = source->whole;
  blobs->plain = source->plain;
  if (capture_blobs_collect(blobs, source->tensors, source->tensor_count) < 0 || capture_blobs_copy(blobs) < 0) {
    return -1;
  }
  if (pickle_item(&item->pickle, blobs, source->name, source->args, source->count, source->kwargs, source->identifier,
                  source->identifier_size, source->state) < 0) {
    return -1;
  }
  return pickle_json(&item->json, source->tensors, source->tensor_count, source->name, source->args, source->count,
                     source->kwargs);
}

void capture_item_show(const struct capture_item *item, const char *path, struct dit_store_item *out) {
  *out = (struct dit_store_item){.path = path,
                                 .pickle = item->pickle.data,
                                 .pickle_size = item->pickle.size,
                                 .json = item->json.data,
                                 .json_size = item->json.size,
                                 .blobs = item->blobs.blob,
                                 .blob_count = (size_t)item->blobs.copied};
}

void capture_item_move(struct capture_item *item) {
  capture_blobs_move(&item->blobs);
}

int64_t capture_item_get_size(const struct capture_item *item) {
  return item->blobs.bytes + (int64_t)(item->pickle.size + item->json.size);
}

// For Python

struct arguments {
  const char *path, *name, *identifier;
  Py_ssize_t identifier_size;
  PyObject *args, *kwargs, *state;
  struct engine_leaves leaves;
};

static int arguments_build(struct arguments *a, struct capture_item *item) {
  engine_leaves_init(&a->leaves);
  int token = engine_guard_raise();
  int status = engine_leaves_add(&a->leaves, a->args, "args");
  status = status < 0 ? status : engine_leaves_add(&a->leaves, a->kwargs, "kwargs");
  if (status == 0) {
    const struct capture_source source = {
        .name = a->name,
        .args = ((PyTupleObject *)a->args)->ob_item,
        .count = PyTuple_GET_SIZE(a->args),
        .kwargs = a->kwargs,
        .state = a->state == Py_None ? NULL : a->state,
        .identifier = a->identifier,
        .identifier_size = (size_t)a->identifier_size,
        .tensors = a->leaves.tensor,
        .tensor_count = a->leaves.tensor_count,
    };
    status = capture_item_build(item, &source);
  }
  engine_guard_lower(token);
  engine_leaves_reset(&a->leaves);
  return status;
}

PyDoc_STRVAR(
    write_doc,
    "capture_write(path: str | PathLike[str], name: str, args: tuple[Any, ...], kwargs: dict[str, Any], "
    "identifier: str, state: dict[str, Any] | None = None, /) -> int\n\nWrite one item as a .pth file with its "
    ".json, atomically; bytes written. state: what call_settings() said at the call.");
static PyObject *py_capture_write(PyObject *module, PyObject *args) {
  struct arguments a = {0};
  PyObject *py_path = NULL;
  if (!PyArg_ParseTuple(args, "O&sO!O!s#|O:capture_write", PyUnicode_FSConverter, &py_path, &a.name, &PyTuple_Type,
                        &a.args, &PyDict_Type, &a.kwargs, &a.identifier, &a.identifier_size, &a.state)) {
    Py_XDECREF(py_path);
    return NULL;
  }
  struct capture_item *item = capture_item_take();
  PyObject *py_size = NULL;
  if (item && arguments_build(&a, item) == 0) {
    struct dit_store_item view;
    capture_item_show(item, PyBytes_AS_STRING(py_path), &view);
    struct dit_error err = {0};
    enum dit_status status;
    int64_t size = capture_item_get_size(item);
    Py_BEGIN_ALLOW_THREADS;
    for (size_t i = 0; i < view.blob_count; i++) {
      if (view.blobs[i].wait) {
        (void)view.blobs[i].wait(view.blobs[i].context);
      }
    }
    status = dit_store_write_file(PyBytes_AS_STRING(py_path), &view, &err);
    Py_END_ALLOW_THREADS;
    capture_item_move(item);  // the store has released the blobs
    py_size = status == DIT_OK ? PyLong_FromLongLong(size) : py_status_raise(module, status, &err);
  }
  capture_item_give(item);
  Py_DECREF(py_path);
  return py_size;
}

static PyObject *parts_make(const struct capture_item *item) {
  PyObject *py_blobs = PyList_New(item->blobs.copied);
  for (int i = 0; py_blobs && i < item->blobs.copied; i++) {
    const struct dit_store_blob *blob = &item->blobs.blob[i];
    if (blob->wait) {
      (void)blob->wait(blob->context);
    }
    PyObject *py_bytes = PyBytes_FromStringAndSize(blob->data, (Py_ssize_t)blob->size);
    if (!py_bytes) {
      Py_CLEAR(py_blobs);
      break;
    }
    PyList_SET_ITEM(py_blobs, i, py_bytes);
  }
  return py_blobs ? Py_BuildValue("y#s#N", item->pickle.data, (Py_ssize_t)item->pickle.size, item->json.data,
                                  (Py_ssize_t)item->json.size, py_blobs)
                  : NULL;
}

PyDoc_STRVAR(parts_doc,
             "capture_parts(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], identifier: str, /) -> "
             "tuple[bytes, str, list[bytes]]\n\nOne item as its parts, without a file.");
static PyObject *py_capture_parts(PyObject *module, PyObject *args) {
  (void)module;
  struct arguments a = {0};
  if (!PyArg_ParseTuple(args, "sO!O!s#:capture_parts", &a.name, &PyTuple_Type, &a.args, &PyDict_Type, &a.kwargs,
                        &a.identifier, &a.identifier_size)) {
    return NULL;
  }
  struct capture_item *item = capture_item_take();
  PyObject *py_parts = item && arguments_build(&a, item) == 0 ? parts_make(item) : NULL;
  capture_item_give(item);
  return py_parts;
}

PyDoc_STRVAR(settings_doc,
             "call_settings() -> dict[str, Any] | None\n\nWhat decides the result of a call made here and now besides "
             "its arguments: autocast, deterministic algorithms. None when all is as usual.");
static PyObject *py_call_settings(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  if (engine_torch_load() < 0 || torch_names_load(TORCH_CAPTURE) < 0) {
    return NULL;
  }
  int token = engine_guard_raise();
  PyObject *py_settings = call_settings_get(NULL);
  engine_guard_lower(token);
  return py_settings ? py_settings : Py_NewRef(Py_None);
}

PyMethodDef py_capture_methods[] = {
    {"call_settings", py_call_settings, METH_NOARGS, settings_doc},
    {"capture_write", py_capture_write, METH_VARARGS, write_doc},
    {"capture_parts", py_capture_parts, METH_VARARGS, parts_doc},
    {NULL, NULL, 0, NULL},
};
