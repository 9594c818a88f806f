// Arguments and results as flat lists of leaves.
//
// Opened: list, tuple (named tuples and torch.return_types among them), dict, set, dataclass instances. Everything else
// is one leaf, whatever len() and indexing it offers: a storage is not read byte by byte. A list or tuple of plain ints
// is one leaf. Depth is bounded, so a container that holds itself ends.
#include <stdio.h>
#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"

#define KEY_SIZE 192

void engine_leaves_init(struct engine_leaves *leaves) {
  leaves->leaf = leaves->inline_leaf;
  leaves->tensor = leaves->inline_tensor;
  leaves->leaf_count = leaves->tensor_count = 0;
  leaves->leaf_capacity = leaves->tensor_capacity = ENGINE_INLINE_LEAVES;
}

void engine_leaves_reset(struct engine_leaves *leaves) {
  for (int i = 0; i < leaves->tensor_count; i++) {
    if (leaves->tensor[i].owned) {
      engine_tensor_reset(&leaves->tensor[i]);
    }
  }
  if (leaves->leaf != leaves->inline_leaf) {
    PyMem_Free(leaves->leaf);
  }
  if (leaves->tensor != leaves->inline_tensor) {
    PyMem_Free(leaves->tensor);
  }
  engine_leaves_init(leaves);
}

// Twice the room; the first growth leaves the inline array.
static void *array_grow(void *array, void *inline_array, int *capacity, size_t size) {
  size_t old = (size_t)*capacity * size;
  void *grown = array == inline_array ? PyMem_Malloc(old * 2) : PyMem_Realloc(array, old * 2);
  if (!grown) {
    PyErr_NoMemory();
    return NULL;
  }
  if (array == inline_array) {
    memcpy(grown, inline_array, old);
  }
  *capacity *= 2;
  return grown;
}

// A path under construction. Keys are interned only when somebody will write a record.
struct path {
  char text[KEY_SIZE];
  size_t length;
  int top;
};

// "args.0" ... "args.15" and "out.0" ... are asked for all the time.
static uint32_t key_find(const struct path *path) {
  enum { CACHED = 64 };
  static struct {
    char text[16];
    uint32_t key;
  } cache[CACHED];
  size_t at = 0;
  if (path->length < sizeof cache[0].text) {
    for (size_t i = 0; i < path->length; i++) {
      at = at * 31 + (unsigned char)path->text[i];
    }
    at %= CACHED;
    if (cache[at].key && strcmp(cache[at].text, path->text) == 0) {
      return cache[at].key;
    }
  }
  uint32_t key = 0;
  if (dit_record_intern(path->text, path->length, &key, NULL) != DIT_OK) {
    return 0;
  }
  if (path->length < sizeof cache[0].text) {
    memcpy(cache[at].text, path->text, path->length + 1);
    cache[at].key = key;
  }
  return key;
}

static size_t path_extend(struct path *path, const char *text) {
  size_t before = path->length;
  size_t room = KEY_SIZE - 1 - path->length, size = strnlen(text, room);
  memcpy(path->text + path->length, text, size);
  path->length += size;
  path->text[path->length] = '\0';
  return before;
}

static size_t path_index(struct path *path, Py_ssize_t index) {
  char text[24];
  if (index >= 0 && index < 10) {
    text[0] = '.';
    text[1] = (char)('0' + index);
    text[2] = '\0';
  } else {
    snprintf(text, sizeof text, ".%zd", index);
  }
  return path_extend(path, text);
}

static void path_cut(struct path *path, size_t length) {
  path->length = length;
  path->text[length] = '\0';
}

static int leaf_push(struct engine_leaves *leaves, PyObject *value, uint8_t kind, const struct path *path, int tensor) {
  if (leaves->leaf_count == leaves->leaf_capacity) {
    void *grown = array_grow(leaves->leaf, leaves->inline_leaf, &leaves->leaf_capacity, sizeof *leaves->leaf);
    if (!grown) {
      return -1;
    }
    leaves->leaf = grown;
  }
  leaves->leaf[leaves->leaf_count++] =
      (struct engine_leaf){.value = value, .key = key_find(path), .tensor = tensor, .top = path->top, .kind = kind};
  return 0;
}

static int tensor_push(struct engine_leaves *leaves, PyObject *value, const struct path *path) {
  if (leaves->tensor_count == leaves->tensor_capacity) {
    void *grown = array_grow(leaves->tensor, leaves->inline_tensor, &leaves->tensor_capacity, sizeof *leaves->tensor);
    if (!grown) {
      return -1;
    }
    leaves->tensor = grown;
  }
  engine_tensor_read(value, &leaves->tensor[leaves->tensor_count]);
  return leaf_push(leaves, value, ENGINE_LEAF_TENSOR, path, leaves->tensor_count++);
}

static bool items_are_ints(PyObject *const *items, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyLong_CheckExact(items[i])) {
      return false;
    }
  }
  return count > 0;
}

static int object_walk(struct engine_leaves *leaves, PyObject *object, struct path *path, int depth);

// `items` is borrowed from a container that the call itself keeps alive.
static int items_walk(struct engine_leaves *leaves, PyObject *container, PyObject *const *items, Py_ssize_t count,
                      struct path *path, int depth) {
  if (items_are_ints(items, count)) {
    return leaf_push(leaves, container, ENGINE_LEAF_INTS, path, -1);
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    size_t before = path_index(path, i);
    int status = object_walk(leaves, items[i], path, depth + 1);
    path_cut(path, before);
    if (status < 0) {
      return -1;
    }
  }
  return 0;
}

static int dict_walk(struct engine_leaves *leaves, PyObject *dict, struct path *path, int depth) {
  PyObject *py_key, *py_value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &py_key, &py_value)) {
    const char *text = PyUnicode_Check(py_key) ? PyUnicode_AsUTF8(py_key) : "?";
    py_error_drop();
    size_t before = path_extend(path, ".");
    path_extend(path, text ? text : "?");
    int status = object_walk(leaves, py_value, path, depth + 1);
    path_cut(path, before);
    if (status < 0) {
      return -1;
    }
  }
  return 0;
}

// The fields of a dataclass instance, slots included. A value that only this lookup holds (a property) would be gone
// before it is used, and is left out.
static int dataclass_walk(struct engine_leaves *leaves, PyObject *object, PyObject *py_fields, struct path *path,
                          int depth) {
  PyObject *py_key, *py_field;
  Py_ssize_t at = 0;
  int status = 0;
  while (status == 0 && PyDict_Next(py_fields, &at, &py_key, &py_field)) {
    PyObject *py_value = PyObject_GetAttr(object, py_key);
    const char *text = PyUnicode_AsUTF8(py_key);
    py_error_drop();
    if (py_value && text && Py_REFCNT(py_value) > 1) {
      size_t before = path_extend(path, ".");
      path_extend(path, text);
      status = object_walk(leaves, py_value, path, depth + 1);
      path_cut(path, before);
    }
    Py_XDECREF(py_value);
  }
  return status;
}

static int other_walk(struct engine_leaves *leaves, PyObject *object, struct path *path, int depth) {
  if (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    PyObject *py_fields = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dataclass_fields__");
    py_error_drop();
    if (py_fields && PyDict_Check(py_fields)) {
      int status = dataclass_walk(leaves, object, py_fields, path, depth);
      Py_DECREF(py_fields);
      return status;
    }
    Py_XDECREF(py_fields);
  }
  return leaf_push(leaves, object, ENGINE_LEAF_OTHER, path, -1);
}

static int container_walk(struct engine_leaves *leaves, PyObject *object, struct path *path, int depth) {
  if (PyTuple_Check(object)) {
    return items_walk(leaves, object, ((PyTupleObject *)(void *)object)->ob_item, PyTuple_GET_SIZE(object), path,
                      depth);
  }
  if (PyList_Check(object)) {
    return items_walk(leaves, object, ((PyListObject *)(void *)object)->ob_item, PyList_GET_SIZE(object), path, depth);
  }
  if (PyDict_Check(object)) {
    return dict_walk(leaves, object, path, depth);
  }
  if (PyAnySet_Check(object)) {
    PyObject *py_items = PySequence_Tuple(object);
    int status = py_items ? items_walk(leaves, object, ((PyTupleObject *)(void *)py_items)->ob_item,
                                       PyTuple_GET_SIZE(py_items), path, depth)
                          : -1;
    Py_XDECREF(py_items);  // the set keeps its elements
    return status;
  }
  return other_walk(leaves, object, path, depth);
}

static int object_walk(struct engine_leaves *leaves, PyObject *object, struct path *path, int depth) {
  if (engine_is_tensor(object)) {
    return tensor_push(leaves, object, path);
  }
  if (object == Py_None) {
    return leaf_push(leaves, object, ENGINE_LEAF_NONE, path, -1);
  }
  if (PyBool_Check(object)) {
    return leaf_push(leaves, object, ENGINE_LEAF_BOOL, path, -1);
  }
  if (PyLong_Check(object)) {
    return leaf_push(leaves, object, ENGINE_LEAF_INT, path, -1);
  }
  if (PyFloat_Check(object)) {
    return leaf_push(leaves, object, ENGINE_LEAF_FLOAT, path, -1);
  }
  if (PyUnicode_Check(object)) {
    return leaf_push(leaves, object, ENGINE_LEAF_STRING, path, -1);
  }
  if (depth >= ENGINE_MAX_DEPTH) {
    return leaf_push(leaves, object, ENGINE_LEAF_OTHER, path, -1);
  }
  return container_walk(leaves, object, path, depth);
}

int engine_leaves_add(struct engine_leaves *leaves, PyObject *object, const char *prefix) {
  struct path path = {.top = 0};
  path_extend(&path, prefix);
  return object_walk(leaves, object, &path, 0);
}

int engine_leaves_add_call(struct engine_leaves *leaves, PyObject *args, PyObject *kwargs) {
  struct path path = {.top = 0};
  path_extend(&path, "args");
  Py_ssize_t count = PyTuple_GET_SIZE(args);
  for (Py_ssize_t i = 0; i < count; i++) {
    path.top = (int)i;
    size_t before = path_index(&path, i);
    if (object_walk(leaves, PyTuple_GET_ITEM(args, i), &path, 1) < 0) {
      return -1;
    }
    path_cut(&path, before);
  }
  PyObject *py_key, *py_value;
  Py_ssize_t at = 0;
  while (kwargs && PyDict_Next(kwargs, &at, &py_key, &py_value)) {
    path_cut(&path, 0);
    path.top = (int)count++;
    path_extend(&path, "kwargs.");
    const char *text = PyUnicode_AsUTF8(py_key);
    py_error_drop();
    path_extend(&path, text ? text : "?");
    if (object_walk(leaves, py_value, &path, 1) < 0) {
      return -1;
    }
  }
  return 0;
}
