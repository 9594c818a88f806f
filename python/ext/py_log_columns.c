// Records as columns: ditorch._C.log_columns fills arrays of 64-bit numbers and of text numbers from a LogReader, a
// batch at a time, for engines that work on columns (Parquet). The GIL is free meanwhile; memory is that of one batch.
#include <string.h>

#include "dit/align.h"
#include "dit/alloc.h"
#include "dit/dtype.h"
#include "py_log_dict.h"

enum kind { KIND_INT, KIND_FLOAT, KIND_TEXT };

enum { MAX_COLUMNS = 128, SLOTS = 512, MAX_ROWS = 1 << 20 };

struct column {
  const char *key;
  size_t key_size;
  enum kind kind;
  void *values;          // int64_t, double or int32_t by kind
  unsigned char *valid;  // a bit per row, lowest first
};

struct columns {
  struct column column[MAX_COLUMNS];
  int16_t slot[SLOTS];  // column + 1 by hash of its key
  int count;
  size_t rows, row;
  struct dit_align_names *texts;
  struct dit_error err;
};

static size_t key_hash(const char *key, size_t size) {
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < size; i++) {
    value = (value ^ (unsigned char)key[i]) * 16777619u;
  }
  return (value ^ value >> 15) & (SLOTS - 1);
}

static struct column *column_find(struct columns *columns, const char *key, size_t size) {
  for (size_t at = key_hash(key, size); columns->slot[at]; at = (at + 1) & (SLOTS - 1)) {
    struct column *column = &columns->column[columns->slot[at] - 1];
    if (column->key_size == size && memcmp(column->key, key, size) == 0) {
      return column;
    }
  }
  return NULL;
}

static bool is_set(const struct columns *columns, const struct column *column) {
  return column->valid[columns->row / 8] >> columns->row % 8 & 1;
}

static enum dit_status text_set(struct columns *columns, struct column *column, const char *text, size_t size) {
  uint32_t number = 0;
  DIT_RETURN_IF_NOT_OK(dit_align_names_take(columns->texts, text, size, &number, &columns->err));
  ((int32_t *)column->values)[columns->row] = (int32_t)number;
  column->valid[columns->row / 8] |= (unsigned char)(1u << columns->row % 8);
  return DIT_OK;
}

static void int_set(struct columns *columns, const char *key, int64_t value) {
  struct column *column = column_find(columns, key, strlen(key));
  if (column && column->kind == KIND_INT) {
    ((int64_t *)column->values)[columns->row] = value;
    column->valid[columns->row / 8] |= (unsigned char)(1u << columns->row % 8);
  }
}

static enum dit_status text_of(struct columns *columns, const char *key, const char *text, size_t size) {
  struct column *column = column_find(columns, key, strlen(key));
  return column && column->kind == KIND_TEXT ? text_set(columns, column, text, size) : DIT_OK;
}

// dtype, shape and device of the first result, or of the first gradient.
static enum dit_status tensor_set(struct columns *columns, const struct dit_record_field *field) {
  bool is_result = field->key.size >= 3 && memcmp(field->key.data, "out", 3) == 0;
  bool is_gradient = field->key.size >= 7 && memcmp(field->key.data, "grad_in", 7) == 0;
  struct column *shape = column_find(columns, "shape", 5);
  if ((!is_result && !is_gradient) || !shape || shape->kind != KIND_TEXT || is_set(columns, shape)) {
    return DIT_OK;
  }
  char text[512];
  size_t size = 0;
  for (int d = 0; d < field->v.tensor.ndim && size + 24 < sizeof(text); d++) {
    size +=
        (size_t)snprintf(text + size, sizeof(text) - size, d ? "x%lld" : "%lld", (long long)field->v.tensor.sizes[d]);
  }
  DIT_RETURN_IF_NOT_OK(text_set(columns, shape, text, size));
  const char *name = dit_dtype_is_valid(field->v.tensor.dtype) ? dit_dtype_get_name(field->v.tensor.dtype) : "?";
  DIT_RETURN_IF_NOT_OK(text_of(columns, "dtype", name, strlen(name)));
  return text_of(columns, "device", field->device_name.data, field->device_name.size);
}

static enum dit_status field_set(struct columns *columns, const struct dit_record_field *field) {
  if (field->type == DIT_RECORD_TENSOR) {
    return tensor_set(columns, field);
  }
  struct column *column = column_find(columns, field->key.data, field->key.size);
  if (!column || is_set(columns, column)) {
    return DIT_OK;
  }
  if (field->type == DIT_RECORD_STRING) {
    return column->kind == KIND_TEXT ? text_set(columns, column, field->v.text.data, field->v.text.size) : DIT_OK;
  }
  bool whole = field->type == DIT_RECORD_I64 || field->type == DIT_RECORD_U64 || field->type == DIT_RECORD_BOOL;
  int64_t number = field->type == DIT_RECORD_U64    ? (int64_t)field->v.u64
                   : field->type == DIT_RECORD_BOOL ? field->v.boolean
                   : whole                          ? field->v.i64
                                                    : 0;
  if (column->kind == KIND_INT && whole) {
    ((int64_t *)column->values)[columns->row] = number;
  } else if (column->kind == KIND_FLOAT && (whole || field->type == DIT_RECORD_F64)) {
    ((double *)column->values)[columns->row] = whole ? (double)number : field->v.f64;
  } else {
    return DIT_OK;
  }
  column->valid[columns->row / 8] |= (unsigned char)(1u << columns->row % 8);
  return DIT_OK;
}

static enum dit_status record_set(struct columns *columns, const struct dit_record *record) {
  char number[16];
  const char *type = dit_record_get_type_name(record);
  if (!type) {
    snprintf(number, sizeof(number), "%u", (unsigned)record->type);
    type = number;
  }
  DIT_RETURN_IF_NOT_OK(text_of(columns, "type", type, strlen(type)));
  int_set(columns, "seq", (int64_t)record->sequence);
  int_set(columns, "time", record->wall_ns);
  int_set(columns, "rank", record->header->rank);
  int_set(columns, "pid", record->header->pid);
  int_set(columns, "tid", record->thread);
  for (size_t i = 0; i < record->field_count; i++) {
    DIT_RETURN_IF_NOT_OK(field_set(columns, &record->fields[i]));
  }
  columns->row++;
  return DIT_OK;
}

static enum dit_status batch_fill(struct columns *columns, struct dit_record_reader *reader) {
  enum dit_status status = dit_align_names_create(&columns->texts, &columns->err);
  const struct dit_record *record = NULL;
  while (status == DIT_OK && columns->row < columns->rows) {
    status = dit_record_reader_next(reader, &record, &columns->err);
    if (status != DIT_OK || !record) {
      break;
    }
    status = record_set(columns, record);
  }
  return status;
}

// Arguments

static bool column_add(struct columns *columns, const char *key, const char *kind) {
  if (columns->count == MAX_COLUMNS) {
    PyErr_Format(PyExc_ValueError, "more than %d columns", MAX_COLUMNS);
    return false;
  }
  struct column *column = &columns->column[columns->count];
  column->key = key;
  column->key_size = strlen(key);
  if (strcmp(kind, "int") != 0 && strcmp(kind, "float") != 0 && strcmp(kind, "text") != 0) {
    PyErr_Format(PyExc_ValueError, "column %s is '%s'; valid: int, float, text", key, kind);
    return false;
  }
  column->kind = kind[0] == 'i' ? KIND_INT : kind[0] == 'f' ? KIND_FLOAT : KIND_TEXT;
  column->values = dit_calloc(columns->rows, column->kind == KIND_TEXT ? sizeof(int32_t) : sizeof(int64_t));
  column->valid = dit_calloc(columns->rows / 8 + 1, 1);
  columns->count++;
  if (!column->values || !column->valid) {
    (void)PyErr_NoMemory();
    return false;
  }
  size_t at = key_hash(key, column->key_size);
  while (columns->slot[at]) {
    at = (at + 1) & (SLOTS - 1);
  }
  columns->slot[at] = (int16_t)columns->count;
  return true;
}

static bool columns_init(struct columns *columns, PyObject *names, Py_ssize_t rows) {
  if (rows < 1 || rows > MAX_ROWS) {
    PyErr_Format(PyExc_ValueError, "%zd rows; valid: 1 to %d", rows, MAX_ROWS);
    return false;
  }
  columns->rows = (size_t)rows;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
    const char *key = NULL, *kind = NULL;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(names, i), "ss;a column is (key, kind)", &key, &kind) ||
        !column_add(columns, key, kind)) {
      return false;
    }
  }
  return true;
}

static void columns_reset(struct columns *columns) {
  for (int i = 0; i < columns->count; i++) {
    dit_free(columns->column[i].values);
    dit_free(columns->column[i].valid);
  }
  dit_align_names_destroy(columns->texts);
  dit_free(columns);
}

static PyObject *texts_build(const struct dit_align_names *texts) {
  size_t count = dit_align_names_get_count(texts);
  PyObject *py_list = PyList_New((Py_ssize_t)count + 1);
  for (size_t i = 0; py_list && i <= count; i++) {
    struct dit_record_text text = dit_align_names_get(texts, (uint32_t)i);
    PyObject *py_text = py_log_text_decode(text.data, text.size);
    if (!py_text) {
      Py_CLEAR(py_list);
    } else {
      PyList_SET_ITEM(py_list, (Py_ssize_t)i, py_text);
    }
  }
  return py_list;
}

static PyObject *batch_build(const struct columns *columns) {
  PyObject *py_arrays = PyDict_New();
  for (int i = 0; py_arrays && i < columns->count; i++) {
    const struct column *column = &columns->column[i];
    size_t size = columns->row * (column->kind == KIND_TEXT ? sizeof(int32_t) : sizeof(int64_t));
    PyObject *py_pair =
        Py_BuildValue("(y#y#)", column->values, (Py_ssize_t)size, column->valid, (Py_ssize_t)(columns->row / 8 + 1));
    if (py_dict_take(py_arrays, column->key, py_pair) < 0) {
      Py_CLEAR(py_arrays);
    }
  }
  PyObject *py_texts = py_arrays ? texts_build(columns->texts) : NULL;
  if (!py_texts) {
    Py_XDECREF(py_arrays);
    return NULL;
  }
  return Py_BuildValue("(nNN)", (Py_ssize_t)columns->row, py_arrays, py_texts);
}

PyDoc_STRVAR(columns_doc,
             "log_columns(reader: LogReader, columns: tuple[tuple[str, str], ...], rows: int, /) -> tuple[int, "
             "dict[str, tuple[bytes, bytes]], list[str]]\n\nThe next rows of a log as columns (key, 'int' | 'float' | "
             "'text'): their number, per column the values and a bit per row that has one, and the texts that the "
             "values of text columns count. dtype, shape and device are of the first result.");
static PyObject *py_log_columns(PyObject *module, PyObject *args) {
  PyObject *reader = NULL, *names = NULL;
  Py_ssize_t rows = 0;
  if (!PyArg_ParseTuple(args, "OO!n:log_columns", &reader, &PyTuple_Type, &names, &rows) ||
      py_log_reader_enter(module, reader) < 0) {
    return NULL;
  }
  struct columns *columns = dit_calloc(1, sizeof(*columns));
  enum dit_status status = DIT_ERR_NOMEM;
  bool ready = columns ? columns_init(columns, names, rows) : (PyErr_NoMemory(), false);
  if (ready) {
    Py_BEGIN_ALLOW_THREADS;
    status = batch_fill(columns, py_log_reader_get(reader));
    Py_END_ALLOW_THREADS;
  }
  bool raised = py_log_reader_leave(reader);
  PyObject *py_batch = NULL;
  if (ready && !raised) {
    py_batch = status == DIT_OK ? batch_build(columns) : py_status_raise(module, status, &columns->err);
  }
  if (columns) {
    columns_reset(columns);
  }
  return py_batch;
}

PyMethodDef py_log_columns_methods[] = {
    {"log_columns", py_log_columns, METH_VARARGS, columns_doc},
    {NULL, NULL, 0, NULL},
};
