// The process's settings that a captured call needs to be run again; see call_settings.h.
//
// Two questions to torch per call, by functions that are looked up once; the generator is asked for operators that draw
// from one, alone.
#include "tools/call_settings.h"

#include <string.h>

static struct {
  bool looked_up;
  PyObject *py_autocast_enabled, *py_autocast_dtype, *py_deterministic, *py_rng_state, *py_device;
} torch;

static PyObject *attribute_find(const char *module, const char *name) {
  PyObject *py_module = PyImport_ImportModule(module);
  PyObject *py_value = py_module ? PyObject_GetAttrString(py_module, name) : NULL;
  Py_XDECREF(py_module);
  py_error_drop();
  return py_value;
}

static void torch_load(void) {
  if (!torch.looked_up) {
    torch.looked_up = true;
    torch.py_autocast_enabled = attribute_find("torch", "is_autocast_enabled");
    torch.py_autocast_dtype = attribute_find("torch", "get_autocast_dtype");
    torch.py_deterministic = attribute_find("torch._C", "_get_deterministic_algorithms");
    torch.py_rng_state = attribute_find("torch.cuda", "get_rng_state");
    torch.py_device = PyUnicode_InternFromString("cuda");
  }
}

static bool is_true(PyObject *py_answer) {
  bool yes = py_answer == Py_True;
  Py_XDECREF(py_answer);
  py_error_drop();
  return yes;
}

static PyObject *call_one(PyObject *py_function, PyObject *argument) {
  return py_function ? PyObject_CallOneArg(py_function, argument) : NULL;
}

// {"cuda": {"enabled": True, "dtype": "bfloat16"}}
static PyObject *autocast_describe(void) {
  PyObject *py_dtype = call_one(torch.py_autocast_dtype, torch.py_device);
  PyObject *py_text = py_dtype ? PyObject_Str(py_dtype) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  const char *name = text && strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
  PyObject *py_answer =
      name ? Py_BuildValue("{O:{s:O,s:s}}", torch.py_device, "enabled", Py_True, "dtype", name) : NULL;
  Py_XDECREF(py_text);
  Py_XDECREF(py_dtype);
  return py_answer;
}

// {"cuda:0": base64 of the generator's state}
static PyObject *random_describe(int device) {
  PyObject *py_index = PyLong_FromLong(device);
  PyObject *py_state = py_index ? call_one(torch.py_rng_state, py_index) : NULL;
  PyObject *py_list = py_state ? PyObject_CallMethod(py_state, "tolist", NULL) : NULL;
  PyObject *py_bytes = py_list ? PyObject_CallOneArg((PyObject *)&PyBytes_Type, py_list) : NULL;
  PyObject *py_binascii = py_bytes ? PyImport_ImportModule("binascii") : NULL;
  PyObject *py_text = py_binascii ? PyObject_CallMethod(py_binascii, "b2a_base64", "O", py_bytes) : NULL;
  PyObject *py_answer = NULL;
  if (py_text && PyBytes_GET_SIZE(py_text) > 0) {
    PyObject *py_key = PyUnicode_FromFormat("cuda:%d", device);
    PyObject *py_plain = PyUnicode_DecodeASCII(PyBytes_AS_STRING(py_text), PyBytes_GET_SIZE(py_text) - 1, NULL);
    py_answer = py_key && py_plain ? Py_BuildValue("{O:O}", py_key, py_plain) : NULL;
    Py_XDECREF(py_key);
    Py_XDECREF(py_plain);
  }
  Py_XDECREF(py_text);
  Py_XDECREF(py_binascii);
  Py_XDECREF(py_bytes);
  Py_XDECREF(py_list);
  Py_XDECREF(py_state);
  Py_XDECREF(py_index);
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
  torch_load();
  if (is_true(call_one(torch.py_autocast_enabled, torch.py_device))) {
    settings_add(&py_settings, "autocast", autocast_describe());
  }
  if (torch.py_deterministic && is_true(PyObject_CallNoArgs(torch.py_deterministic))) {
    settings_add(&py_settings, "deterministic", Py_NewRef(Py_True));
  }
  if (call->op->flags & ENGINE_OP_RANDOM) {
    int device = engine_call_get_device(call);
    settings_add(&py_settings, "random", random_describe(device < 0 ? 0 : device));
  }
  return py_settings;
}
