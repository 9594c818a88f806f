// Which arguments an operator wrote to, as the run on the CPU left their twins.
//
// Told by the version counters of the twins, by the schemas of the ATen operator of the same name, and by name for the
// few that do it in secret. Too many is harmless: an unchanged twin has the original's values.
#include <limits.h>
#include <string.h>

#include "py_call.h"
#include "tools/fallback/fallback.h"

bool fallback_twin_is_copy(const struct fallback_run *run, int index) {
  return run->twins[index] != run->call->in.tensor[index].py_tensor;
}

static bool version_changed(const struct fallback_run *run, int index) {
  return run->versions[index] >= 0 && engine_tensor_get_version(run->twins[index]) != run->versions[index];
}

static void leaves_mark(const struct fallback_run *run, int top, bool *changed) {
  const struct engine_leaves *in = &run->call->in;
  for (int i = 0; i < in->leaf_count; i++) {
    if (in->leaf[i].top == top && in->leaf[i].tensor >= 0) {
      changed[in->leaf[i].tensor] = true;
    }
  }
}

// The number of a keyword argument among all arguments; -1 when it was not passed.
static int keyword_find(const struct engine_call *call, PyObject *name) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  int top = (int)PyTuple_GET_SIZE(call->args);
  for (; call->kwargs && PyDict_Next(call->kwargs, &at, &key, &value); top++) {
    if (PyUnicode_Compare(key, name) == 0) {
      return top;
    }
  }
  return -1;
}

static int argument_mark(const struct fallback_run *run, const char *name, int position, bool *changed) {
  PyObject *py_name = PyUnicode_FromString(name);
  if (!py_name) {
    return -1;
  }
  int top = keyword_find(run->call, py_name);
  Py_DECREF(py_name);
  top = top < 0 && position < PyTuple_GET_SIZE(run->call->args) ? position : top;
  if (top >= 0) {
    leaves_mark(run, top, changed);
  }
  return 0;
}

// The switch `training` says no.
static bool call_evaluates(const struct engine_call *call) {
  PyObject *training = call->kwargs ? PyDict_GetItemString(call->kwargs, "training") : NULL;
  bool listed = PyTuple_GET_SIZE(call->args) > 5;
  return (training ? training : listed ? PyTuple_GET_ITEM(call->args, 5) : Py_None) == Py_False;
}

// Running statistics of a batch norm in training.
static int statistics_mark(const struct fallback_run *run, bool *changed) {
  if (call_evaluates(run->call)) {
    return 0;
  }
  bool functional = strncmp(run->call->op->name, "torch.nn.functional.", 20) == 0;
  int mean = functional ? 1 : 3;
  return argument_mark(run, "running_mean", mean, changed) < 0 ||
                 argument_mark(run, "running_var", mean + 1, changed) < 0
             ? -1
             : 0;
}

// One argument of a schema, number `position`: its name and place go to `writes` when it is written. 0 or -1.
static int schema_argument_add(PyObject *writes, PyObject *argument, Py_ssize_t position) {
  PyObject *py_alias = PyObject_GetAttrString(argument, "alias_info");
  PyObject *py_write = py_alias && py_alias != Py_None ? PyObject_GetAttrString(py_alias, "is_write") : NULL;
  int status = PyErr_Occurred() ? -1 : 0;
  if (py_write == Py_True) {
    PyObject *py_name = PyObject_GetAttrString(argument, "name");
    PyObject *py_only = py_name ? PyObject_GetAttrString(argument, "kwarg_only") : NULL;
    PyObject *py_place = py_only ? PyLong_FromSsize_t(py_only == Py_True ? -1 : position) : NULL;
    status = py_place ? PyDict_SetItem(writes, py_name, py_place) : -1;
    Py_XDECREF(py_place);
    Py_XDECREF(py_only);
    Py_XDECREF(py_name);
  }
  Py_XDECREF(py_write);
  Py_XDECREF(py_alias);
  return status;
}

static int schema_add(PyObject *writes, PyObject *overload) {
  PyObject *py_schema = PyObject_GetAttrString(overload, "_schema");
  PyObject *py_all = py_schema ? PyObject_GetAttrString(py_schema, "arguments") : NULL;
  Py_ssize_t count = py_all ? PySequence_Size(py_all) : -1;
  int status = count < 0 ? -1 : 0;
  for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
    PyObject *py_one = PySequence_GetItem(py_all, i);
    status = py_one ? schema_argument_add(writes, py_one, i) : -1;
    Py_XDECREF(py_one);
  }
  Py_XDECREF(py_all);
  Py_XDECREF(py_schema);
  return status;
}

// torch.ops.aten.<last part>; NULL without an exception where the arguments need not be those of the ATen operator.
static PyObject *packet_find(const char *name) {
  const char *last = strrchr(name, '.');
  bool method = strncmp(name, "torch.Tensor.", 13) == 0, function = last == name + 5 && strncmp(name, "torch", 5) == 0;
  if (!last || strncmp(last, ".__", 3) == 0 || !(method || function || strncmp(name, "torch._C._nn.", 13) == 0)) {
    return NULL;
  }
  PyObject *py_packet = PyObject_GetAttrString(torch_names.py_aten, last + 1);
  if (py_packet && !PyObject_HasAttrString(py_packet, "overloads")) {
    Py_CLEAR(py_packet);
  }
  py_error_drop();
  return py_packet;
}

// Not one of TorchScript's list operators (aten::sort of a list), which share the packet.
static int overload_is_dispatched(PyObject *overload) {
  PyObject *py_name = PyObject_CallMethod(overload, "name", NULL);
  int known = py_name ? py_call_bool(torch_names.py_dispatch_has_kernel, py_name) : -1;
  Py_XDECREF(py_name);
  return known;
}

static int packet_add(PyObject *writes, PyObject *packet) {
  PyObject *py_names = PyObject_CallMethod(packet, "overloads", NULL);
  Py_ssize_t count = py_names ? PySequence_Size(py_names) : -1;
  int status = count < 0 ? -1 : 0;
  for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
    PyObject *py_name = PySequence_GetItem(py_names, i);
    PyObject *py_overload = py_name ? PyObject_GetAttr(packet, py_name) : NULL;
    int known = py_overload ? overload_is_dispatched(py_overload) : -1;
    status = known < 0 ? -1 : known ? schema_add(writes, py_overload) : 0;
    Py_XDECREF(py_overload);
    Py_XDECREF(py_name);
  }
  Py_XDECREF(py_names);
  return status;
}

// Which arguments the schemas say are written: {name: position, -1 for keyword only}. Asked once per operator.
static PyObject *writes_find(const struct engine_call *call) {
  PyObject *py_writes = PyDict_New();
  int status = py_writes ? 0 : -1;
  if (status == 0 && (call->flags & ENGINE_CALL_ATEN)) {
    status = schema_add(py_writes, call->func);
  } else if (status == 0) {
    PyObject *py_packet = packet_find(call->op->name);
    status = py_packet ? packet_add(py_writes, py_packet) : 0;
    Py_XDECREF(py_packet);
  }
  if (status < 0) {
    Py_CLEAR(py_writes);
  }
  return py_writes;
}

static int schema_mark(const struct fallback_run *run, bool *changed) {
  struct fallback_row *row = run->row;
  if (!row->py_writes && !(row->py_writes = writes_find(run->call))) {
    return -1;
  }
  PyObject *name, *place;
  Py_ssize_t at = 0;
  while (PyDict_Next(row->py_writes, &at, &name, &place)) {
    long position = PyLong_AsLong(place);
    bool listed = position >= 0 && position < PyTuple_GET_SIZE(run->call->args);
    int top = listed ? (int)position : keyword_find(run->call, name);
    if (top >= 0) {
      leaves_mark(run, top, changed);
    }
  }
  return 0;
}

int fallback_changes_find(const struct fallback_run *run, bool *changed, bool *any) {
  int count = run->call->in.tensor_count;
  *any = false;
  memset(changed, 0, (size_t)count);
  for (int i = 0; !(run->call->flags & ENGINE_CALL_ATEN) && i < count; i++) {
    changed[i] = version_changed(run, i);
  }
  // Not everything that is written is counted: growth_tracker of torch._amp_update_scale_, out= of torch.kron, all of
  // torch._fused_adamw_. Level aten is below the version counters.
  int status = schema_mark(run, changed);
  if (status == 0 && run->call->kwargs) {
    status = argument_mark(run, "out", INT_MAX, changed);
  }
  if (status == 0 && (run->row->traits & FALLBACK_STATISTICS)) {
    status = statistics_mark(run, changed);
  }
  for (int i = 0; i < count; i++) {
    changed[i] = changed[i] && fallback_twin_is_copy(run, i);
    *any |= changed[i];
  }
  return status;
}
