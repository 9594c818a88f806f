// Records of a log as Python dictionaries: the same members as the JSONL view, with Python's own values.
#include "py_log_dict.h"

#include <stdbool.h>
#include <string.h>

#include "dit/dtype.h"

PyObject *py_log_text_decode(const char *data, size_t size) {
  return PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "replace");
}

PyObject *py_log_type_get(const struct dit_record *record) {
  const char *name = dit_record_get_type_name(record);
  return name ? py_log_text_decode(name, strlen(name)) : PyUnicode_FromFormat("%u", (unsigned)record->type);
}

static PyObject *numbers_build(const int64_t *values, size_t count) {
  PyObject *py_list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; py_list && i < count; i++) {
    PyObject *py_value = PyLong_FromLongLong(values[i]);
    if (!py_value) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, (Py_ssize_t)i, py_value);
  }
  return py_list;
}

static PyObject *tensor_build(const struct dit_record_field *field) {
  const struct dit_record_tensor *tensor = &field->v.tensor;
  size_t ndim = (size_t)tensor->ndim;
  PyObject *py_dtype = dit_dtype_is_valid(tensor->dtype) ? PyUnicode_FromString(dit_dtype_get_name(tensor->dtype))
                                                         : PyLong_FromLong(tensor->dtype);
  PyObject *py_stride = tensor->strides ? numbers_build(tensor->strides, ndim) : Py_NewRef(Py_None);
  return Py_BuildValue("{s:N,s:N,s:N,s:N,s:i,s:K,s:L,s:L,s:N}", "dtype", py_dtype, "shape",
                       numbers_build(tensor->sizes, ndim), "stride", py_stride, "device",
                       py_log_text_decode(field->device_name.data, field->device_name.size), "device_index",
                       (int)tensor->device_index, "storage", (unsigned long long)tensor->storage_id, "offset",
                       (long long)tensor->storage_offset, "version", (long long)tensor->version, "requires_grad",
                       PyBool_FromLong(tensor->requires_grad));
}

static PyObject *value_build(const struct dit_record_field *field) {
  switch (field->type) {
    case DIT_RECORD_I64:
      return PyLong_FromLongLong(field->v.i64);
    case DIT_RECORD_U64:
      return PyLong_FromUnsignedLongLong(field->v.u64);
    case DIT_RECORD_F64:
      return PyFloat_FromDouble(field->v.f64);
    case DIT_RECORD_BOOL:
      return PyBool_FromLong(field->v.boolean);
    case DIT_RECORD_BYTES:
      return PyBytes_FromStringAndSize(field->v.text.data, (Py_ssize_t)field->v.text.size);
    case DIT_RECORD_I64S:
      return numbers_build(field->v.i64s.data, field->v.i64s.count);
    case DIT_RECORD_TENSOR:
      return tensor_build(field);
    default:
      return py_log_text_decode(field->v.text.data, field->v.text.size);
  }
}

// dict[key] = value; a key that is taken gets "[1]", "[2]" ... as in the other views.
static int field_add(PyObject *dict, const struct dit_record_field *field, bool crowded, size_t index) {
  PyObject *py_key = py_log_text_decode(field->key.data, field->key.size);
  PyObject *py_value = py_key ? value_build(field) : NULL;
  int taken = py_value ? PyDict_Contains(dict, py_key) : -1;
  for (size_t n = crowded ? index + 1 : 1; taken > 0; n++) {
    PyObject *py_other = PyUnicode_FromFormat("%U[%zu]", py_key, n);
    taken = py_other ? PyDict_Contains(dict, py_other) : -1;
    if (taken == 0) {
      Py_SETREF(py_key, Py_NewRef(py_other));
    }
    Py_XDECREF(py_other);
  }
  int result = taken == 0 ? PyDict_SetItem(dict, py_key, py_value) : -1;
  Py_XDECREF(py_key);
  Py_XDECREF(py_value);
  return result;
}

PyObject *py_log_record_build(const struct dit_record *record) {
  PyObject *py_dict =
      Py_BuildValue("{s:N,s:K,s:L,s:i,s:I,s:I}", "type", py_log_type_get(record), "seq",
                    (unsigned long long)record->sequence, "time", (long long)record->wall_ns, "rank",
                    (int)record->header->rank, "pid", (unsigned)record->header->pid, "tid", (unsigned)record->thread);
  if (py_dict && record->flags && py_dict_take(py_dict, "flags", PyLong_FromLong(record->flags)) < 0) {
    Py_CLEAR(py_dict);
  }
  for (size_t i = 0; py_dict && i < record->field_count; i++) {
    if (field_add(py_dict, &record->fields[i], record->field_count > 4096, i) < 0) {
      Py_CLEAR(py_dict);
    }
  }
  return py_dict;
}
