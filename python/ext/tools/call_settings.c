// The process's settings that a captured call needs to be run again; see call_settings.h.
//
// Two questions to torch per call, by functions that are looked up once; the generator is asked for operators that draw
// from one, alone.
#include "tools/call_settings.h"

#include <string.h>

#include "py_call.h"

// {"cuda": {"enabled": True, "dtype": "bfloat16"}}
static PyObject *autocast_describe(void) {
  PyObject *py_dtype = PyObject_CallOneArg(torch_names.py_autocast_dtype_get, torch_names.py_text_cuda);
  PyObject *py_text = py_dtype ? PyObject_Str(py_dtype) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  const char *name = text && strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
  PyObject *py_answer =
      name ? Py_BuildValue("{O:{s:O,s:s}}", torch_names.py_text_cuda, "enabled", Py_True, "dtype", name) : NULL;
  Py_XDECREF(py_text);
  Py_XDECREF(py_dtype);
  return py_answer;
}

// {"cuda:0": base64 of the generator's state}
static PyObject *random_describe(int device) {
  PyObject *py_cuda = PyObject_GetAttr(torch_names.py_torch, torch_names.py_text_cuda);
  PyObject *py_state = py_cuda ? PyObject_CallMethod(py_cuda, "get_rng_state", "i", device) : NULL;
  PyObject *py_list = py_state ? PyObject_CallMethod(py_state, "tolist", NULL) : NULL;
  PyObject *py_bytes = py_list ? PyObject_CallOneArg((PyObject *)&PyBytes_Type, py_list) : NULL;
  PyObject *py_text = py_bytes ? PyObject_CallOneArg(torch_names.py_base64, py_bytes) : NULL;
  PyObject *py_answer = NULL;
  if (py_text && PyBytes_GET_SIZE(py_text) > 0) {
    PyObject *py_key = PyUnicode_FromFormat("cuda:%d", device);
    PyObject *py_plain = PyUnicode_DecodeASCII(PyBytes_AS_STRING(py_text), PyBytes_GET_SIZE(py_text) - 1, NULL);
    py_answer = py_key && py_plain ? Py_BuildValue("{O:O}", py_key, py_plain) : NULL;
    Py_XDECREF(py_key);
    Py_XDECREF(py_plain);
  }
  Py_XDECREF(py_text);
  Py_XDECREF(py_bytes);
  Py_XDECREF(py_list);
  Py_XDECREF(py_state);
  Py_XDECREF(py_cuda);
  return py_answer;
}

// Takes the value; a NULL one is left out.
static void settings_add(PyObject **py_settings, const char *key, PyObject *py_value) {
  if (py_value && !*py_settings) {
    *py_settings = PyDict_New();
  }
  if (py_value && *py_settings) {
    (void)PyDict_SetItemString(*py_settings, key, py_value);
  }
  Py_XDECREF(py_value);
  py_error_drop();
}

PyObject *call_settings_get(const struct engine_call *call) {
  PyObject *py_settings = NULL;
  bool has_autocast = torch_names_load(TORCH_AUTOCAST) == 0;
  py_error_drop();
  if (has_autocast && py_call_is_true(torch_names.py_autocast_is_enabled, torch_names.py_text_cuda)) {
    settings_add(&py_settings, "autocast", autocast_describe());
  }
  if (py_call_is_true(torch_names.py_is_deterministic, NULL)) {
    settings_add(&py_settings, "deterministic", Py_NewRef(Py_True));
  }
  if (call && call->op->flags & ENGINE_OP_RANDOM) {
    int device = engine_call_get_device(call);
    settings_add(&py_settings, "random", random_describe(device < 0 ? 0 : device));
  }
  return py_settings;
}
