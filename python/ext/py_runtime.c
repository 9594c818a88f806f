// Bindings of dit/runtime.h: the vendor and its devices.
#include "dit/diopi.h"
#include "dit/infer.h"
#include "dit/memory.h"
#include "dit/runtime.h"
#include "dit/version.h"
#include "module.h"

PyDoc_STRVAR(
    init_doc,
    "init(vendor: str, /) -> None\n\nLoad a vendor library by name ('host') or path and make it the process's device.");
static PyObject *py_runtime_init(PyObject *module, PyObject *argument) {
  const char *vendor = NULL;
  if (py_optional_text(argument, "vendor", &vendor) < 0) {
    return NULL;
  }
  if (!vendor) {
    PyErr_SetString(PyExc_TypeError, "vendor must be a str, not None");
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_runtime_init(vendor, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

PyDoc_STRVAR(diopi_activate_doc,
             "diopi_activate(name: str, /) -> None\n\nTake a DIOPI library, by name ('host') or path, for the "
             "operators of the device.");
static PyObject *py_diopi_activate(PyObject *module, PyObject *argument) {
  const char *name = NULL;
  if (py_optional_text(argument, "name", &name) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_diopi_activate(name, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

PyDoc_STRVAR(
    infer_functions_doc,
    "infer_functions() -> list[str]\n\nThe functions of LLM inference (dit/infer.h) that the device's operator "
    "library has.");
static PyObject *py_infer_functions(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  const struct dit_diopi_library *library = dit_diopi_get_active();
  PyObject *py_names = PyList_New(0);
  for (int i = 0; py_names && dit_infer_get_name(i); i++) {
    if (library && dit_infer_has(library->infer, i)) {
      PyObject *py_name = PyUnicode_FromString(dit_infer_get_name(i));
      if (!py_name || PyList_Append(py_names, py_name) < 0) {
        Py_CLEAR(py_names);
      }
      Py_XDECREF(py_name);
    }
  }
  return py_names;
}

static PyObject *py_runtime_is_active(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(dit_runtime_is_active());
}

PyDoc_STRVAR(
    counts_by_option_doc,
    "counts_by_option() -> bool\n\nDoes the loaded vendor have as many devices as the option host_devices says? "
    "Else they are its own.");
static PyObject *py_counts_by_option(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  const struct dit_device_vtable *vendor = dit_runtime_get_vtable();
  return PyBool_FromLong(vendor && vendor->counts_by_option);
}

PyDoc_STRVAR(shutdown_doc, "shutdown() -> None\n\nDrain all devices, stop worker threads, give all memory back.");
static PyObject *py_runtime_shutdown(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  Py_BEGIN_ALLOW_THREADS;  // callbacks that still wait need the GIL
  dit_runtime_shutdown();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *py_runtime_is_bad_fork(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyBool_FromLong(dit_runtime_is_bad_fork());
}

// The answer of an optional version slot: an int, or None. NULL with an exception.
static PyObject *version_read(PyObject *module, enum dit_status (*get)(int *, struct dit_error *)) {
  int version = 0;
  struct dit_error err = {0};
  enum dit_status status = get ? get(&version, &err) : DIT_ERR_UNSUPPORTED;
  if (status == DIT_ERR_UNSUPPORTED) {
    Py_RETURN_NONE;
  }
  return status == DIT_OK ? PyLong_FromLong(version) : py_status_raise(module, status, &err);
}

PyDoc_STRVAR(vendor_info_doc,
             "vendor_info() -> dict[str, Any]\n\nname, version, path, description, driver_version, runtime_version "
             "(None: not offered).");
static PyObject *py_vendor_info(PyObject *module, PyObject *unused) {
  (void)unused;
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  if (!vtable) {
    PyErr_SetString(PyExc_RuntimeError, "no vendor is active; call init('host') first");
    return NULL;
  }
  char description[1024] = "";
  if (vtable->describe) {
    vtable->describe(description, sizeof description);
  }
  PyObject *py_result = PyDict_New();
  if (!py_result) {
    return NULL;
  }
  if (py_dict_take(py_result, "name", PyUnicode_FromString(vtable->name)) < 0 ||
      py_dict_take(py_result, "description", PyUnicode_DecodeFSDefault(description)) < 0 ||
      py_dict_take(py_result, "version", PyUnicode_FromString(vtable->version ? vtable->version : "")) < 0 ||
      py_dict_take(py_result, "path", PyUnicode_DecodeFSDefault(dit_runtime_get_path())) < 0 ||
      py_dict_take(py_result, "driver_version", version_read(module, vtable->get_driver_version)) < 0 ||
      py_dict_take(py_result, "runtime_version", version_read(module, vtable->get_runtime_version)) < 0) {
    Py_DECREF(py_result);
    return NULL;
  }
  return py_result;
}

static PyObject *py_device_count(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLong(dit_device_get_count());
}

static PyObject *py_device_current(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyLong_FromLong(dit_device_get_current());
}

PyDoc_STRVAR(set_device_doc, "set_device(device: int, /) -> None\n\nThe calling thread's current device.");
static PyObject *py_device_set(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:set_device", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  return py_status_return(module, dit_device_set_current(device, &err), &err);
}

PyDoc_STRVAR(exchange_device_doc,
             "exchange_device(device: int, /) -> int\n\nSet the current device (negative: no change) and return the "
             "previous one.");
static PyObject *py_device_exchange(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:exchange_device", &device)) {
    return NULL;
  }
  int previous = dit_device_get_current();
  if (device >= 0 && device != previous) {
    if (py_device_check(module, device) < 0) {
      return NULL;
    }
    struct dit_error err = {0};
    enum dit_status status = dit_device_set_current(device, &err);
    if (status != DIT_OK) {
      return py_status_raise(module, status, &err);
    }
  }
  return PyLong_FromLong(previous);
}

static int properties_add_text(PyObject *dict, const struct dit_device_properties *p) {
  return py_dict_take(dict, "name", PyUnicode_FromString(p->name)) < 0 ||
                 py_dict_take(dict, "vendor", PyUnicode_FromString(p->vendor)) < 0 ||
                 py_dict_take(dict, "architecture", PyUnicode_FromString(p->architecture)) < 0 ||
                 py_dict_take(dict, "uuid", PyUnicode_FromString(p->uuid)) < 0 ||
                 py_dict_take(dict, "integrated", PyBool_FromLong(p->integrated)) < 0 ||
                 py_dict_take(dict, "host_accessible", PyBool_FromLong(p->host_accessible)) < 0
             ? -1
             : 0;
}

// Every numeric field of struct dit_device_properties.
// clang-format off
#define PROPERTY_NUMBERS(X) \
  X(total_memory) \
  X(major) \
  X(minor) \
  X(multi_processor_count) \
  X(warp_size) \
  X(max_threads_per_multi_processor) \
  X(max_threads_per_block) \
  X(regs_per_multiprocessor) \
  X(pci_domain) \
  X(pci_bus) \
  X(pci_device) \
  X(shared_memory_per_block) \
  X(shared_memory_per_multiprocessor) \
  X(l2_cache_size) \
  X(clock_rate_khz) \
  X(memory_clock_rate_khz) \
  X(memory_bus_width)
// clang-format on

PyDoc_STRVAR(device_properties_doc,
             "device_properties(device: int, /) -> dict[str, Any]\n\nEvery field of struct dit_device_properties.");
static PyObject *py_device_properties(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:device_properties", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_device_properties p = {0};
  struct dit_error err = {0};
  enum dit_status status = dit_device_get_properties(device, &p, &err);
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  PyObject *py_result = PyDict_New();
  if (!py_result) {
    return NULL;
  }
  int failed = properties_add_text(py_result, &p);
#define PROPERTY_ADD(field) \
  failed = failed < 0 ? failed : py_dict_take(py_result, #field, PyLong_FromLongLong((long long)p.field));
  PROPERTY_NUMBERS(PROPERTY_ADD)
#undef PROPERTY_ADD
  if (failed < 0) {
    Py_CLEAR(py_result);
  }
  return py_result;
}

PyDoc_STRVAR(memory_info_doc, "memory_info(device: int, /) -> tuple[int, int]\n\nBytes, as the vendor counts them.");
static PyObject *py_device_memory(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:memory_info", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_device_memory memory = {0};
  struct dit_error err = {0};
  enum dit_status status = dit_runtime_get_vtable()->get_memory(device, &memory, &err);
  if (status != DIT_OK) {
    return py_status_raise(module, status, &err);
  }
  return Py_BuildValue("KK", (unsigned long long)memory.free, (unsigned long long)memory.total);
}

PyDoc_STRVAR(synchronize_doc, "synchronize(device: int, /) -> None\n\nWait for all work on all streams of the device.");
static PyObject *py_device_synchronize(PyObject *module, PyObject *args) {
  int device = 0;
  if (!PyArg_ParseTuple(args, "i:synchronize", &device) || py_device_check(module, device) < 0) {
    return NULL;
  }
  struct dit_error err = {0};
  enum dit_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = dit_device_synchronize(device, &err);
  Py_END_ALLOW_THREADS;
  return py_status_return(module, status, &err);
}

PyMethodDef py_runtime_methods[] = {
    {"init", py_runtime_init, METH_O, init_doc},
    {"diopi_activate", py_diopi_activate, METH_O, diopi_activate_doc},
    {"infer_functions", py_infer_functions, METH_NOARGS, infer_functions_doc},
    {"is_active", py_runtime_is_active, METH_NOARGS, "is_active() -> bool\n\nIs a vendor loaded?"},
    {"shutdown", py_runtime_shutdown, METH_NOARGS, shutdown_doc},
    {"is_bad_fork", py_runtime_is_bad_fork, METH_NOARGS,
     "is_bad_fork() -> bool\n\nTrue in a child forked after the parent had used the device."},
    {"vendor_info", py_vendor_info, METH_NOARGS, vendor_info_doc},
    {"counts_by_option", py_counts_by_option, METH_NOARGS, counts_by_option_doc},
    {"device_count", py_device_count, METH_NOARGS, "device_count() -> int\n\n0 before init."},
    {"current_device", py_device_current, METH_NOARGS, "current_device() -> int\n\nOf the calling thread."},
    {"set_device", py_device_set, METH_VARARGS, set_device_doc},
    {"exchange_device", py_device_exchange, METH_VARARGS, exchange_device_doc},
    {"device_properties", py_device_properties, METH_VARARGS, device_properties_doc},
    {"memory_info", py_device_memory, METH_VARARGS, memory_info_doc},
    {"synchronize", py_device_synchronize, METH_VARARGS, synchronize_doc},
    {NULL, NULL, 0, NULL},
};
