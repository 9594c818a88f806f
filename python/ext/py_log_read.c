// Reading record logs from Python: ditorch._C.LogReader over dit/record.h, repair, and unpacking of capture containers.
//
// A reader belongs to one thread at a time; while it waits for a disk, exports or is filtered by Python, the GIL is
// free and another use of it is an error. Records become plain dictionaries. Everything a file says is checked below,
// in libdit.
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "dit/record.h"
#include "dit/store.h"
#include "py_log_dict.h"

#define SINK_BYTES (256 * 1024)

struct step_range {
  int64_t first, last;
};

struct log_reader {
  PyObject ob_base;
  PyObject *py_module;
  struct dit_record_reader *reader;
  PyObject *py_types;    // frozenset of str, or NULL
  PyObject *py_matcher;  // name -> bool, or NULL
  PyObject *py_names;    // dict bytes -> bool: what the matcher said
  struct step_range *steps;
  Py_ssize_t step_count;
  bool busy;
  bool raised;  // a filter or a signal handler left an exception
};

// Filter

static const struct dit_record_field *field_find(const struct dit_record *record, const char *key) {
  size_t size = strlen(key);
  for (size_t i = 0; i < record->field_count; i++) {
    if (record->fields[i].key.size == size && memcmp(record->fields[i].key.data, key, size) == 0) {
      return &record->fields[i];
    }
  }
  return NULL;
}

static bool step_accept(const struct log_reader *self, const struct dit_record *record) {
  const struct dit_record_field *field = field_find(record, "step");
  if (!field || field->type != DIT_RECORD_I64) {
    return false;
  }
  for (Py_ssize_t i = 0; i < self->step_count; i++) {
    if (field->v.i64 >= self->steps[i].first && field->v.i64 <= self->steps[i].last) {
      return true;
    }
  }
  return false;
}

static int type_accept(const struct log_reader *self, const struct dit_record *record) {
  PyObject *py_name = py_log_type_get(record);
  int found = py_name ? PySet_Contains(self->py_types, py_name) : -1;
  Py_XDECREF(py_name);
  if (found == 0 && dit_record_get_type_name(record)) {
    PyObject *py_number = PyUnicode_FromFormat("%u", (unsigned)record->type);
    found = py_number ? PySet_Contains(self->py_types, py_number) : -1;
    Py_XDECREF(py_number);
  }
  return found;
}

static int matcher_ask(struct log_reader *self, PyObject *py_key) {
  PyObject *py_name = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(py_key), PyBytes_GET_SIZE(py_key), "replace");
  PyObject *py_answer = py_name ? PyObject_CallOneArg(self->py_matcher, py_name) : NULL;
  int yes = py_answer ? PyObject_IsTrue(py_answer) : -1;
  Py_XDECREF(py_name);
  Py_XDECREF(py_answer);
  if (yes >= 0 && PyDict_SetItem(self->py_names, py_key, yes ? Py_True : Py_False) < 0) {
    return -1;
  }
  return yes;
}

static int name_accept(struct log_reader *self, const struct dit_record *record) {
  const struct dit_record_field *field = field_find(record, "name");
  if (!field || field->type != DIT_RECORD_STRING) {
    return 0;
  }
  PyObject *py_key = PyBytes_FromStringAndSize(field->v.text.data, (Py_ssize_t)field->v.text.size);
  PyObject *known = py_key ? PyDict_GetItemWithError(self->py_names, py_key) : NULL;  // borrowed
  int yes = known ? known == Py_True : (!py_key || PyErr_Occurred()) ? -1 : matcher_ask(self, py_key);
  Py_XDECREF(py_key);
  return yes;
}

// Called by the reader with or without the GIL. After an exception nothing is accepted any more.
static bool record_accept(void *context, const struct dit_record *record) {
  struct log_reader *self = context;
  if (self->raised || (self->steps && !step_accept(self, record))) {
    return false;
  }
  if (!self->py_types && !self->py_matcher) {
    return true;
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  int yes = self->py_types ? type_accept(self, record) : 1;
  if (yes > 0 && self->py_matcher) {
    yes = name_accept(self, record);
  }
  self->raised = yes < 0;
  PyGILState_Release(gil);
  return yes > 0;
}

// The object

static int reader_enter(struct log_reader *self) {
  if (!self->reader || self->busy) {
    PyErr_SetString(PyExc_RuntimeError,
                    self->busy ? "this LogReader is in use in another thread" : "this LogReader is closed");
    return -1;
  }
  self->busy = true;
  self->raised = false;
  return 0;
}

int py_log_reader_enter(PyObject *module, PyObject *object) {
  struct log_reader *self = (struct log_reader *)object;
  PyObject *py_type = PyObject_GetAttrString(module, "LogReader");
  int is_one = py_type ? PyObject_IsInstance(object, py_type) : -1;
  Py_XDECREF(py_type);
  if (is_one == 0) {
    PyErr_Format(PyExc_TypeError, "expected a LogReader, not %.100s", Py_TYPE(object)->tp_name);
  }
  return is_one > 0 ? reader_enter(self) : -1;
}

bool py_log_reader_leave(PyObject *object) {
  struct log_reader *self = (struct log_reader *)object;
  self->busy = false;
  return self->raised;
}

struct dit_record_reader *py_log_reader_get(PyObject *object) {
  return ((struct log_reader *)object)->reader;
}

static PyObject *reader_next(PyObject *object) {
  struct log_reader *self = (struct log_reader *)object;
  if (reader_enter(self) < 0) {
    return NULL;
  }
  const struct dit_record *record = NULL;
  struct dit_error err = {0};
  enum dit_status status = DIT_OK;
  if (dit_record_reader_is_ready(self->reader)) {
    status = dit_record_reader_next(self->reader, &record, &err);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    status = dit_record_reader_next(self->reader, &record, &err);
    Py_END_ALLOW_THREADS;
  }
  PyObject *py_record = NULL;
  if (!self->raised) {
    py_record = status != DIT_OK ? py_status_raise(self->py_module, status, &err)
                : record         ? py_log_record_build(record)
                                 : NULL;
  }
  self->busy = false;  // only now: a finalizer that runs meanwhile must not move the reader on
  return py_record;
}

struct file_sink {
  struct log_reader *reader;
  int fd, error;
  size_t size;
  char data[SINK_BYTES];
};

static bool signals_check(struct log_reader *self) {
  PyGILState_STATE gil = PyGILState_Ensure();
  self->raised = self->raised || PyErr_CheckSignals() < 0;
  PyGILState_Release(gil);
  return !self->raised;
}

static bool sink_flush(struct file_sink *sink) {
  for (size_t done = 0; done < sink->size;) {
    ssize_t some = write(sink->fd, sink->data + done, sink->size - done);
    if (some < 0 && errno != EINTR) {
      sink->error = errno;
      return false;
    }
    done += some > 0 ? (size_t)some : 0;
    if (!signals_check(sink->reader)) {
      return false;
    }
  }
  sink->size = 0;
  return true;
}

static bool sink_write(void *context, const void *data, size_t size) {
  struct file_sink *sink = context;
  for (const char *p = data; size > 0;) {
    size_t part = sizeof sink->data - sink->size < size ? sizeof sink->data - sink->size : size;
    memcpy(sink->data + sink->size, p, part);
    sink->size += part;
    p += part;
    size -= part;
    if (sink->size == sizeof sink->data && !sink_flush(sink)) {
      return false;
    }
  }
  return true;
}

static enum dit_status legacy_export(struct dit_record_reader *reader, const struct dit_record_sink *sink,
                                     struct dit_error *err) {
  return dit_record_export_legacy_csv(reader, 0, sink, err);
}

static const struct {
  const char *name;
  enum dit_status (*run)(struct dit_record_reader *reader, const struct dit_record_sink *sink, struct dit_error *err);
} views[] = {{"jsonl", dit_record_export_jsonl},
             {"csv", dit_record_export_csv},
             {"trace", dit_record_export_trace},
             {"text", dit_record_export_text},
             {"legacy-csv", legacy_export}};

static int view_find(const char *name) {
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    if (strcmp(views[i].name, name) == 0) {
      return (int)i;
    }
  }
  PyErr_Format(PyExc_ValueError, "view '%s' is unknown; valid: jsonl, csv, trace, text, legacy-csv", name);
  return -1;
}

PyDoc_STRVAR(export_doc,
             "export(view: str, fd: int, /) -> None\n\nWrite all records to a file descriptor; rewinds first.");
static PyObject *reader_export(PyObject *object, PyObject *args) {
  struct log_reader *self = (struct log_reader *)object;
  const char *name = NULL;
  int fd = -1, view = -1;
  if (!PyArg_ParseTuple(args, "si:export", &name, &fd) || (view = view_find(name)) < 0 || reader_enter(self) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status = DIT_ERR_NOMEM;
  struct file_sink *file = PyMem_RawMalloc(sizeof *file);
  if (file) {
    file->reader = self;
    file->fd = fd;
    file->error = 0;
    file->size = 0;
    const struct dit_record_sink sink = {sink_write, file};
    Py_BEGIN_ALLOW_THREADS;
    status = dit_record_reader_rewind(self->reader, &err);
    if (status == DIT_OK) {
      status = views[view].run(self->reader, &sink, &err);
    }
    if (status == DIT_OK) {
      (void)sink_flush(file);  // a failure is in `error` or `raised`
    }
    Py_END_ALLOW_THREADS;
  }
  int error = file ? file->error : 0;
  PyMem_RawFree(file);
  self->busy = false;
  if (self->raised) {
    return NULL;
  }
  if (error) {
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
  }
  return py_status_return(self->py_module, status, &err);
}

static PyObject *counts_build(const struct dit_record_read_counts *counts) {
  return Py_BuildValue(
      "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "records", (unsigned long long)counts->records, "missing",
      (unsigned long long)counts->missing, "damages", (unsigned long long)counts->damages, "damaged_bytes",
      (unsigned long long)counts->damaged_bytes, "malformed", (unsigned long long)counts->malformed, "unresolved",
      (unsigned long long)counts->unresolved, "unknown", (unsigned long long)counts->unknown, "truncated_files",
      (unsigned long long)counts->truncated_files, "truncated_bytes", (unsigned long long)counts->truncated_bytes,
      "noted_drops", (unsigned long long)counts->noted_drops);
}

PyDoc_STRVAR(counts_doc,
             "counts(index: int | None = None, /) -> dict[str, Any]\n\nWhat was met so far, of all files or of one.");
static PyObject *reader_counts(PyObject *object, PyObject *args) {
  struct log_reader *self = (struct log_reader *)object;
  PyObject *index = Py_None;
  if (!PyArg_ParseTuple(args, "|O:counts", &index) || reader_enter(self) < 0) {
    return NULL;
  }
  self->busy = false;
  struct dit_record_read_counts counts;
  dit_record_reader_get_counts(self->reader, &counts);
  if (index != Py_None) {
    Py_ssize_t number = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (number == -1 && PyErr_Occurred()) {
      return NULL;
    }
    dit_record_reader_get_file_counts(self->reader, (size_t)number, &counts);
  }
  return counts_build(&counts);
}

PyDoc_STRVAR(header_doc,
             "header(index: int, /) -> dict[str, Any] | None\n\nrank, pid, world_size, time and metadata of one file.");
static PyObject *reader_header(PyObject *object, PyObject *argument) {
  struct log_reader *self = (struct log_reader *)object;
  Py_ssize_t index = PyNumber_AsSsize_t(argument, PyExc_IndexError);
  if ((index == -1 && PyErr_Occurred()) || reader_enter(self) < 0) {
    return NULL;
  }
  self->busy = false;
  const struct dit_record_header *header = dit_record_reader_get_header(self->reader, (size_t)index);
  if (!header) {
    Py_RETURN_NONE;
  }
  PyObject *py_metadata = PyDict_New();
  for (size_t i = 0; py_metadata && i < header->metadata_count; i++) {
    PyObject *py_key = py_log_text_decode(header->metadata[i].key, strlen(header->metadata[i].key));
    PyObject *py_value = py_log_text_decode(header->metadata[i].value, strlen(header->metadata[i].value));
    if (!py_key || !py_value || PyDict_SetItem(py_metadata, py_key, py_value) < 0) {
      Py_CLEAR(py_metadata);
    }
    Py_XDECREF(py_key);
    Py_XDECREF(py_value);
  }
  return Py_BuildValue("{s:i,s:I,s:i,s:L,s:I,s:N}", "rank", (int)header->rank, "pid", (unsigned)header->pid,
                       "world_size", (int)header->world_size, "time", (long long)header->wall_ns, "index",
                       (unsigned)header->file_index, "metadata", py_metadata);
}

PyDoc_STRVAR(position_doc, "position() -> int\n\nBytes of all files that were read so far, for a progress display.");
static PyObject *reader_position(PyObject *object, PyObject *unused) {
  struct log_reader *self = (struct log_reader *)object;
  (void)unused;
  if (reader_enter(self) < 0) {
    return NULL;
  }
  self->busy = false;
  return PyLong_FromUnsignedLongLong(dit_record_reader_get_position(self->reader));
}

static PyObject *reader_close(PyObject *object, PyObject *unused) {
  struct log_reader *self = (struct log_reader *)object;
  (void)unused;
  if (self->busy) {
    PyErr_SetString(PyExc_RuntimeError, "this LogReader is in use in another thread");
    return NULL;
  }
  dit_record_reader_close(self->reader);
  self->reader = NULL;
  Py_RETURN_NONE;
}

static int steps_convert(struct log_reader *self, PyObject *argument) {
  PyObject *py_steps = PySequence_Fast(argument, "steps must be a sequence of pairs (first, last)");
  if (!py_steps) {
    return -1;
  }
  self->step_count = PySequence_Fast_GET_SIZE(py_steps);
  self->steps = PyMem_Calloc((size_t)self->step_count + 1, sizeof *self->steps);
  int result = self->steps ? 0 : (PyErr_NoMemory(), -1);
  for (Py_ssize_t i = 0; result == 0 && i < self->step_count; i++) {
    long long first = 0, last = 0;
    PyObject *pair = PySequence_Fast_GET_ITEM(py_steps, i);
    if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "LL;a range of steps is (first, last)", &first, &last)) {
      if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "a range of steps is a tuple (first, last)");
      }
      result = -1;
    }
    self->steps[i] = (struct step_range){first, last};
  }
  Py_DECREF(py_steps);
  return result;
}

static int filter_take(struct log_reader *self, PyObject *types, PyObject *steps, PyObject *matcher) {
  if (types != Py_None && !(self->py_types = PyFrozenSet_New(types))) {
    return -1;
  }
  if (steps != Py_None && steps_convert(self, steps) < 0) {
    return -1;
  }
  if (matcher != Py_None) {
    if (!PyCallable_Check(matcher)) {
      PyErr_Format(PyExc_TypeError, "matcher must be callable or None, not %.100s", Py_TYPE(matcher)->tp_name);
      return -1;
    }
    self->py_matcher = Py_NewRef(matcher);
    self->py_names = PyDict_New();
    if (!self->py_names) {
      return -1;
    }
  }
  if (self->py_types || self->steps || self->py_matcher) {
    dit_record_reader_set_filter(self->reader, record_accept, self);
  }
  return 0;
}

// Opens the files; `paths` are str, bytes or os.PathLike.
static int files_open(struct log_reader *self, PyObject *paths) {
  PyObject *py_paths = PySequence_Fast(paths, "paths must be a sequence");
  Py_ssize_t count = py_paths ? PySequence_Fast_GET_SIZE(py_paths) : 0;
  const char **texts = PyMem_Calloc((size_t)count + 1, sizeof *texts);
  PyObject *py_kept = PyList_New(0);
  int result = py_paths && texts && py_kept ? 0 : -1;
  for (Py_ssize_t i = 0; result == 0 && i < count; i++) {
    PyObject *py_bytes = NULL;
    result = PyUnicode_FSConverter(PySequence_Fast_GET_ITEM(py_paths, i), &py_bytes) ? 0 : -1;
    if (result == 0) {
      texts[i] = PyBytes_AS_STRING(py_bytes);
      result = PyList_Append(py_kept, py_bytes);
      Py_DECREF(py_bytes);
    }
  }
  if (result == 0) {
    struct dit_error err = {0};
    enum dit_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = dit_record_reader_open(texts, (size_t)count, &self->reader, &err);
    Py_END_ALLOW_THREADS;
    if (status != DIT_OK) {
      (void)py_status_raise(self->py_module, status, &err);
      result = -1;
    }
  } else if (!PyErr_Occurred()) {
    PyErr_NoMemory();
  }
  PyMem_Free(texts);
  Py_XDECREF(py_kept);
  Py_XDECREF(py_paths);
  return result;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"paths", "types", "steps", "matcher", NULL};
  PyObject *paths = NULL, *types = Py_None, *steps = Py_None, *matcher = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO:LogReader", names, &paths, &types, &steps, &matcher)) {
    return NULL;
  }
  struct log_reader *self = (struct log_reader *)type->tp_alloc(type, 0);
  if (!self) {
    return NULL;
  }
  self->py_module = Py_XNewRef(PyType_GetModule(type));
  if (!self->py_module || files_open(self, paths) < 0 || filter_take(self, types, steps, matcher) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

static int reader_traverse(PyObject *object, visitproc visit, void *arg) {
  struct log_reader *self = (struct log_reader *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->py_module);
  Py_VISIT(self->py_types);
  Py_VISIT(self->py_matcher);
  Py_VISIT(self->py_names);
  return 0;
}

static int reader_clear(PyObject *object) {
  struct log_reader *self = (struct log_reader *)object;
  Py_CLEAR(self->py_types);
  Py_CLEAR(self->py_matcher);
  Py_CLEAR(self->py_names);
  Py_CLEAR(self->py_module);
  return 0;
}

static void reader_dealloc(PyObject *object) {
  struct log_reader *self = (struct log_reader *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  dit_record_reader_close(self->reader);
  PyMem_Free(self->steps);
  (void)reader_clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMethodDef reader_methods[] = {
    {"export", reader_export, METH_VARARGS, export_doc},
    {"counts", reader_counts, METH_VARARGS, counts_doc},
    {"header", reader_header, METH_O, header_doc},
    {"position", reader_position, METH_NOARGS, position_doc},
    {"close", reader_close, METH_NOARGS, "close() -> None\n\nClose the files; again is allowed."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(reader_doc,
             "LogReader(paths: Sequence[str | PathLike[str]], types: Sequence[str | int] | None = None, steps: "
             "Sequence[tuple[int, int]] | None = None, matcher: Callable[[str], bool] | None = None)\n\nIterate over "
             "the records of log files, merged by time, as dictionaries. types: names or numbers of record types; "
             "steps: pairs (first, last); matcher: function of an operator's name.");
static PyType_Slot reader_slots[] = {{Py_tp_doc, (void *)reader_doc},
                                     {Py_tp_new, (void *)(uintptr_t)reader_new},
                                     {Py_tp_dealloc, (void *)(uintptr_t)reader_dealloc},
                                     {Py_tp_traverse, (void *)(uintptr_t)reader_traverse},
                                     {Py_tp_clear, (void *)(uintptr_t)reader_clear},
                                     {Py_tp_iter, (void *)(uintptr_t)PyObject_SelfIter},
                                     {Py_tp_iternext, (void *)(uintptr_t)reader_next},
                                     {Py_tp_methods, reader_methods},
                                     {0, NULL}};
static PyType_Spec reader_spec = {.name = "ditorch._C.LogReader",
                                  .basicsize = sizeof(struct log_reader),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                                  .slots = reader_slots};

// Functions

PyDoc_STRVAR(log_repair_doc,
             "log_repair(path: str | PathLike[str], /) -> int\n\nCut a torn end off a log file; the bytes removed.");
static PyObject *py_log_repair(PyObject *module, PyObject *args) {
  PyObject *py_path = NULL;
  if (!PyArg_ParseTuple(args, "O&:log_repair", PyUnicode_FSConverter, &py_path)) {
    return NULL;
  }
  uint64_t removed = 0;
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_record_repair(PyBytes_AS_STRING(py_path), &removed, &err);
  Py_END_ALLOW_THREADS;
  Py_DECREF(py_path);
  return status == DIT_OK ? PyLong_FromUnsignedLongLong(removed) : py_status_raise(module, status, &err);
}

PyDoc_STRVAR(store_unpack_doc,
             "store_unpack(container: str | PathLike[str], root: str | PathLike[str], /) -> int\n\nWrite every item of "
             "a capture container as files below `root`; their number.");
static PyObject *py_store_unpack(PyObject *module, PyObject *args) {
  PyObject *py_container = NULL, *py_root = NULL;
  if (!PyArg_ParseTuple(args, "O&O&:store_unpack", PyUnicode_FSConverter, &py_container, PyUnicode_FSConverter,
                        &py_root)) {
    Py_XDECREF(py_container);
    return NULL;
  }
  uint64_t written = 0;
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_store_unpack(PyBytes_AS_STRING(py_container), PyBytes_AS_STRING(py_root), &written, &err);
  Py_END_ALLOW_THREADS;
  Py_DECREF(py_container);
  Py_DECREF(py_root);
  return status == DIT_OK ? PyLong_FromUnsignedLongLong(written) : py_status_raise(module, status, &err);
}

int py_log_read_add_types(PyObject *module) {
  PyObject *py_type = PyType_FromModuleAndSpec(module, &reader_spec, NULL);
  int result = py_type ? PyModule_AddType(module, (PyTypeObject *)py_type) : -1;
  Py_XDECREF(py_type);
  return result;
}

PyMethodDef py_log_read_methods[] = {
    {"log_repair", py_log_repair, METH_VARARGS, log_repair_doc},
    {"store_unpack", py_store_unpack, METH_VARARGS, store_unpack_doc},
    {NULL, NULL, 0, NULL},
};
