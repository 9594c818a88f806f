/// What the files of ditorch._C share: the module's state, its method tables, and the border from enum dit_status to
/// Python exceptions.
#ifndef DIT_EXT_MODULE_H
#define DIT_EXT_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "dit/error.h"

/// Per-module state (one per interpreter that imports ditorch._C).
struct module_state {
  PyObject *py_out_of_memory;  ///< torch.OutOfMemoryError, looked up when first needed; NULL until then
  PyObject *py_answer;         ///< what Python handed down for py_helper.c; NULL until then
};

extern struct PyModuleDef py_module_definition;

/// One table per file, all added to the module when it is executed.
extern PyMethodDef py_runtime_methods[];
extern PyMethodDef py_stream_methods[];
extern PyMethodDef py_memory_methods[];
extern PyMethodDef py_host_methods[];
extern PyMethodDef py_memory_check_methods[];
extern PyMethodDef py_metrics_methods[];
extern PyMethodDef py_options_methods[];
extern PyMethodDef py_operator_methods[];
extern PyMethodDef py_record_methods[];
extern PyMethodDef py_alias_methods[];
extern PyMethodDef py_is_cuda_methods[];
extern PyMethodDef py_redirect_methods[];
extern PyMethodDef py_device_show_methods[];
extern PyMethodDef py_log_methods[];
extern PyMethodDef py_log_read_methods[];
extern PyMethodDef py_log_columns_methods[];
extern PyMethodDef py_environ_methods[];
extern PyMethodDef py_stack_methods[];
extern PyMethodDef py_backward_methods[];
extern PyMethodDef py_backward_probe_methods[];
extern PyMethodDef py_engine_methods[];
extern PyMethodDef py_capture_methods[];
extern PyMethodDef py_helper_methods[];
extern PyMethodDef py_helper_device_methods[];
extern PyMethodDef py_twin_methods[];
extern PyMethodDef py_exempt_methods[];
extern PyMethodDef py_judge_methods[];
extern PyMethodDef py_operator_methods[];
extern PyMethodDef py_torch_names_methods[];
extern PyMethodDef py_type_attribute_methods[];

/// Adds LogReader. 0 or -1.
DIT_NODISCARD int py_log_read_add_types(PyObject *module);
/// Adds RunPair. 0 or -1.
DIT_NODISCARD int py_align_add_types(PyObject *module);
/// Adds Gate. 0 or -1.
DIT_NODISCARD int py_exempt_add_types(PyObject *module);

/// Raise the exception that stands for `status`, with the message of `err`. Always returns NULL.
PyObject *py_status_raise(PyObject *module, enum dit_status status, const struct dit_error *err);
/// None, or the exception.
PyObject *py_status_return(PyObject *module, enum dit_status status, const struct dit_error *err);

/// RuntimeError when `device` is not one of the active vendor's devices.
DIT_NODISCARD int py_device_check(PyObject *module, int device);

/// dict[key] = value; takes the reference of `value` (which may be NULL: an error is then pending). 0 or -1.
DIT_NODISCARD int py_dict_take(PyObject *dict, const char *key, PyObject *value);
/// Instead of PyErr_Clear, where an error means "it is not known" and the work goes on: a Ctrl-C that came meanwhile is
/// not lost but comes again.
static inline void py_error_drop(void) {
  if (PyErr_Occurred()) {
    bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupted) {
      PyErr_SetInterrupt();
    }
  }
}
/// Tuple of ints (sizes, strides); NULL with an exception.
PyObject *py_numbers_pack(const int64_t *numbers, int count);
/// str or None; None gives NULL.
DIT_NODISCARD int py_optional_text(PyObject *argument, const char *what, const char **out);
/// A Python int as an address. 0, or -1 with an exception.
DIT_NODISCARD int py_address_convert(PyObject *argument, void *out);

#endif
